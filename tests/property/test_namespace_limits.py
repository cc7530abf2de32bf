"""Limits and fair order of namespaces under random histories: they hold at every moment, and nothing is stuck."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.reasons import REASONS, known_code
from engine.policy.model import parse_policy
from tests.support.cluster_records import changed, gpu_nodes, job
from tests.support.leader import POLICY, Leader

HOSTS = 6
LIMITS = {"a": (1, 3), "b": (2, 2)}  # waiting gangs, hosts
RULES = "".join(
    f"  - {{namespaces: [{space}], maxWaitingGangs: {waiting}, maxReservedHosts: {hosts}}}\n"
    for space, (waiting, hosts) in LIMITS.items()
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from(("a", "b", "c")), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("fail over"), st.just(0), st.just(0)),
    ),
    min_size=4,
    max_size=25,
)


def policy(order: str, fair: bool, *, rules: bool = True) -> str:
    fairness = "namespaces" if fair else "none"
    limits = f"namespaces:\n  rules:\n{RULES}" if rules else ""
    return f"{POLICY}queue: {{order: {order}, patience: 10m, fairness: {{mode: {fairness}}}}}\n{limits}"


def hold(leader: Leader) -> None:
    """The limits hold."""
    for space, (waiting, hosts) in LIMITS.items():
        assert len(leader.view.gangs.hosts_in(space)) <= hosts
        queued = 0
        for placement in leader.view.gangs.placements():
            waits = placement.assignment is None and placement.status.get("phase") == "Waiting"
            if placement.namespace == space and waits:
                code = known_code(placement.status.get("reason"))
                queued += bool(code) and REASONS[code].queued and not REASONS[code].of_order
        assert queued <= waiting


def end(leader: Leader, name: str, space: str, *, deleted: bool) -> None:
    found = leader.stores.workloads.get(("batch", "Job", space, name))
    placement = leader.placed(name)
    if found is None or found.finished:
        return
    if deleted:
        leader.stores.workloads.apply("DELETED", found)
        if placement is not None:
            leader.stores.placements.apply("DELETED", placement)
    else:
        leader.has(replace(changed(found, remaining=0), finished=True, resource_version=leader.hands.version()))


@settings(max_examples=40, deadline=None)
@given(history=steps, order=st.sampled_from(("best-effort", "strict")), fair=st.booleans())
def test_limits_hold_and_whatever_waits_for_them_goes_on(
    history: list[tuple[str, object, object]], order: str, fair: bool
) -> None:
    """Gangs come and end, leaders change. When the others have ended, each gang that a limit allows has been placed."""
    leader = Leader(nodes=gpu_nodes(1, 1, HOSTS), policy=policy(order, fair))
    made: list[tuple[str, str, int]] = []
    for number, (what, which, more) in enumerate(history):
        if what == "come":
            name, space = f"g{number}", str(which)
            made.append((name, space, int(str(more))))
            leader.has(job(name, count=made[-1][2], held=True, namespace=space, created=float(number)))
        elif what == "end" and made:
            name, space, _ = made[int(str(which)) % len(made)]
            end(leader, name, space, deleted=bool(more))
        elif what == "fail over":
            leader.leading = False
            leader.settle()
            leader.leading = True
        leader.settle()
        leader.later(3.0)
        hold(leader)
    for _ in range(2 * len(made)):
        for name, space, _ in made:
            if (placement := leader.placed(name)) is not None and placement.assignment is not None:
                end(leader, name, space, deleted=False)
        leader.settle()
        leader.later(3.0)
        hold(leader)
    for name, space, pods in made:
        waiting = leader.placed(name)
        if (
            waiting is not None
            and waiting.assignment is None
            and waiting.status.get("phase") == "Waiting"
            and leader.stores.workloads.get(("batch", "Job", space, name))
        ):
            assert space in LIMITS and pods > LIMITS[space][1], (name, space, pods, waiting.status)


@settings(max_examples=40, deadline=None)
@given(
    gangs=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from((None, "rack", "host")), st.booleans()), min_size=2, max_size=8
    ),
    limit=st.integers(1, 7),
)
def test_kept_domains_are_within_the_limit(gangs: list[tuple[int, str | None, bool]], limit: int) -> None:
    """Hosts with slots, and all others of the domains that gangs keep, counted by the names of the hosts."""
    rules = f"namespaces: {{rules: [{{namespaces: [a], maxReservedHosts: {limit}}}]}}\n"
    leader = Leader(nodes=gpu_nodes(1, 3, 2), policy=f"{POLICY}{rules}")
    fleet = {node.name for node in leader.stores.nodes.values()}
    waited, over = False, set[str]()
    for number, (pods, level, ends) in enumerate(gangs):
        asked = {names.REQUIRE: "block", names.HELD_BY: names.HELD_BY_SUSPEND}
        if level is not None:
            asked[names.EXCLUSIVE] = level
        leader.has(job(f"g{number}", count=pods, held=True, namespace="a", created=float(number), annotations=asked))
        leader.settle()
        leader.later(3.0)
        taken: set[str] = set()
        for placement in leader.view.gangs.placements():
            if placement.assignment is None or placement.workload.name in over:
                continue
            slots = placement.assignment.pod_sets
            hosts = {slot.host for plan in slots for slot in plan.slots}
            taken |= hosts
            if placement.separation is not None and placement.separation.exclusive == "rack":
                racks = {host.rpartition("-")[0] for host in hosts}
                taken |= {host for host in fleet if host.rpartition("-")[0] in racks}
        assert len(taken) <= limit
        waited = waited or leader.status(f"g{number}")[1] == "ReservedHostsLimit"
        if ends:
            end(leader, f"g{number}", "a", deleted=False)
            over.add(f"g{number}")
            leader.settle()
    if limit == 7:  # more than there are
        assert not waited


@settings(max_examples=20, deadline=None)
@given(history=steps, order=st.sampled_from(("best-effort", "strict")), fair=st.booleans())
def test_without_the_limits_everything_is_placed(
    history: list[tuple[str, object, object]], order: str, fair: bool
) -> None:
    """A policy that lifts the limits ends the waits for them, without another event."""
    leader = Leader(nodes=gpu_nodes(1, 1, 64), policy=policy(order, fair))
    made = []
    for number, (what, which, more) in enumerate(history):
        if what == "come":
            made.append(f"g{number}")
            leader.has(job(made[-1], count=int(str(more)), held=True, namespace=str(which), created=float(number)))
    leader.settle()
    hold(leader)
    leader.view.set_policy(parse_policy(policy(order, fair, rules=False)))
    leader.settle()
    for name in made:
        placement = leader.placed(name)
        assert placement is not None and placement.assignment is not None
