"""Mode hold under random histories: nothing is placed, grown, stopped or let go, and afterwards nothing is stuck."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policy.model import parse_policy
from tests.support.cluster_records import changed, gpu_nodes, job, pod
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader

HOSTS = 4
HELD, FREE = "a", "b"
steps = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from((HELD, FREE)), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("fail over"), st.just(0), st.just(0)),
        st.tuples(st.just("hold"), st.just(0), st.booleans()),
        st.tuples(st.just("enforce"), st.just(0), st.just(0)),
        st.tuples(st.just("time"), st.sampled_from((1, 700, 7200)), st.just(0)),
    ),
    min_size=4,
    max_size=25,
)


def policy(order: str, held: str) -> str:
    modes = {"": "", "all": "mode: hold\n", HELD: f"namespaces: {{modes: [{{namespaces: [{HELD}], mode: hold}}]}}\n"}
    return f"{POLICY}queue: {{order: {order}, patience: 5m}}\n{modes[held]}"


def end(leader: Leader, name: str, space: str, *, deleted: bool) -> None:
    found = leader.stores.workloads.get(("batch", "Job", space, name))
    placement = leader.placed(name)
    if found is None or found.finished:
        return
    for one in [one for one in leader.stores.pods.values() if one.owner is not None and one.owner.uid == found.uid]:
        leader.stores.pods.apply("DELETED", one)
    if deleted:
        leader.stores.workloads.apply("DELETED", found)
        if placement is not None:
            leader.stores.placements.apply("DELETED", placement)
    else:
        leader.has(replace(changed(found, remaining=0), finished=True, resource_version=leader.hands.version()))


def start(leader: Leader, made: dict[str, str]) -> None:
    """Let the pods of every placed gang run on their slots."""
    known = {one.owner.uid for one in leader.stores.pods.values() if one.owner is not None}
    for name, space in made.items():
        found = leader.stores.workloads.get(("batch", "Job", space, name))
        if found is None or found.finished or found.suspended or found.uid in known:
            continue
        leader.has(*(pod(found, rank, host=host) for rank, host in ranks_of(leader.placed(name)).items()))


@settings(max_examples=60, deadline=None)
@given(history=steps, order=st.sampled_from(("best-effort", "strict")))
def test_nothing_of_a_held_namespace_starts_or_is_let_go(history: list[tuple[str, object, object]], order: str) -> None:
    """The other namespace goes on; when the hold and what was placed before have ended, every gang gets its turn."""
    leader = Leader(nodes=gpu_nodes(1, 1, HOSTS), policy=policy(order, ""))
    held, made = "", dict[str, str]()

    def places(spaces: set[str]) -> int:
        calls = (name for call, name in leader.hands.calls if call in ("place", "grow", "suspend", "let go"))
        return sum(made[name] in spaces for name in calls)

    for number, (what, which, more) in enumerate(history):
        on_hold = {"": set(), "all": {HELD, FREE}, HELD: {HELD}}[held]
        before = places(on_hold)
        if what == "come":
            made[f"g{number}"] = str(which)
            pods = int(str(more))
            leader.has(job(f"g{number}", count=pods, held=True, namespace=str(which), created=float(number)))
        elif what == "end" and made:
            name = [*made][int(str(which)) % len(made)]
            end(leader, name, made[name], deleted=bool(more))
        elif what == "fail over":
            leader.leading = False
            leader.settle()
            leader.leading = True
        elif what == "time":
            leader.later(float(str(which)))
        leader.settle()
        start(leader, made)
        leader.settle()
        assert places(on_hold) == before
        if what in ("hold", "enforce"):
            held = "" if what == "enforce" else "all" if more else HELD
            leader.view.set_policy(parse_policy(policy(order, held)))
            leader.settle()
            start(leader, made)
    leader.view.set_policy(parse_policy(policy(order, "")))
    for _ in range(2 * len(made) + 1):
        leader.settle()
        leader.later(3.0)
        for name, space in made.items():
            if (placement := leader.placed(name)) is not None and placement.assignment is not None:
                end(leader, name, space, deleted=False)
    leader.settle()
    for name, space in made.items():
        found = leader.stores.workloads.get(("batch", "Job", space, name))
        assert found is None or found.finished, (name, leader.status(name))
