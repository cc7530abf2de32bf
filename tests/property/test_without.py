"""A cluster without some of its gangs, for one question: as if they had never been there, and afterwards as before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.api.placement import Placement, Separation
from engine.api.pod import Pod, PodConstraints, PodTerm, SelectorRequirement
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.capacity.nearby_pods import PodQuery
from engine.gang.gang import pinned_host, released
from engine.gang.key import key_of
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape

HOSTS = tuple(one.name for one in gpu_nodes(1, 2, 2))
ROWS = {host: row for row, host in enumerate(HOSTS)}
WEB = PodQuery((PodTerm("rack", (SelectorRequirement("app", "In", ("web",)),), ("default",), None),))
AWAY = PodConstraints(anti_affinity=WEB.terms)


@dataclass(frozen=True)
class Objects:
    """The objects of one gang."""

    workload: Workload
    placement: Placement | None
    pods: tuple[Pod, ...]


@st.composite
def gangs(draw: st.DrawFn) -> list[Objects]:
    """Gangs of up to three pods, each to come, on its way or there; some keep others out of their rack or away."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        hosts = draw(st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3))
        workload = job(f"gang-{number}", count=len(hosts), require=None)
        template = replace(
            workload.template,
            shape=shape(gpu=draw(st.integers(0, 8))),
            own_labels=draw(st.sampled_from([(), ("app", "web")])),
            constraints=draw(st.sampled_from([None, AWAY])),
        )
        workload = changed(workload, template=template)
        pods = []
        for rank, host in enumerate(hosts):
            state = draw(st.sampled_from(["absent", "gated", "pinned", "bound", "terminating", "Succeeded"]))
            made = pod(
                workload,
                rank,
                host=host if state in ("bound", "terminating", "Succeeded") else "",
                pin=host if state == "pinned" else "",
                gated=state == "gated",
                deleting=state == "terminating",
                phase=state if state == "Succeeded" else "Pending",
            )
            own = replace(made.spec, own_labels=template.own_labels, constraints=template.constraints)
            pods += [] if state == "absent" else [replace(made, spec=own)]
        separation = draw(st.sampled_from([None, Separation(exclusive="rack")]))
        slots = draw(st.sampled_from([dict(Counter(hosts)), None]))  # None: it has given them back
        plan = placement(workload, slots, separation=separation) if draw(st.booleans()) else None
        found.append(Objects(workload, plan, tuple(pods)))
    return found


def state_of(gangs: Iterable[Objects]) -> ClusterState:
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 2, 2))
    every = list(gangs)
    stores.workloads.replace([one.workload for one in every])
    stores.placements.replace([one.placement for one in every if one.placement is not None])
    stores.pods.replace([made for one in every for made in one.pods])
    view.refresh()
    return view


def seen(view: ClusterState) -> dict[str, Any]:
    """What plans look at."""
    topology = view.topologies["default"]
    rack = topology.level_of("rack")
    assert rack is not None
    return {
        "free": {host: {name: left for name, left in view.capacity.free(host).items() if left} for host in HOSTS},
        "slots": view.capacity.count(shape(gpu=1), topology).free.tolist(),
        "warm": view.capacity.slots(shape(gpu=2), topology, scarce="nvidia.com/gpu").slots.tolist(),
        "reserved": sorted((key, host, reserved.count) for key, host, reserved in view.capacity.reservations()),
        "near": view.nearby.by_row(WEB, ROWS, size=len(HOSTS), stamp=ROWS).tolist(),
        "away": sorted(
            dict(hosts).items()
            for _, hosts in view.nearby.keeping_away("default", {"app": "web"}, view.capacity.has_label)
        ),
        "gangs": view.capacity.gang_hosts.others((), topology, rack).tolist(),
        "exclusive": sorted((key, *_hosts(plan)) for key, plan in view.gangs.kept_domains.exclusive()),
    }


def _hosts(plan: Placement) -> list[str]:
    assert plan.assignment is not None
    return sorted(plan.assignment.hosts)


@given(every=gangs(), out=st.sets(st.integers(0, 3)), asked_before=st.booleans())
def test_gangs_are_as_if_they_had_never_been_there(every: list[Objects], out: set[int], asked_before: bool) -> None:
    """Free capacity, slots, reservations, pods nearby and kept domains; whether or not they were counted before."""
    view = state_of(every)
    before = seen(view) if asked_before else seen(state_of(every))
    gone = [one for number, one in enumerate(every) if number in out]
    with view.lock:
        keys = [key_of(one.workload) for one in gone]
        with view.without(keys, [made for one in gone for made in one.pods]):
            assert seen(view) == seen(state_of(one for one in every if one not in gone))
        assert seen(view) == before


def test_a_question_that_fails_leaves_everything_as_it_was() -> None:
    """The gangs are counted again."""
    workload = job("gang", count=1, require=None)
    one = Objects(workload, placement(workload, {HOSTS[0]: 1}), (pod(workload, 0, host=HOSTS[0]),))
    view = state_of([one])
    before = seen(view)
    try:
        with view.without([key_of(workload)], one.pods):
            raise RuntimeError
    except RuntimeError:
        pass
    assert seen(view) == before


@given(every=gangs())
def test_an_exclusive_gang_is_where_it_has_slots_or_pods(every: list[Objects]) -> None:
    """Without its pods, only where it has slots, or where a pod is on its way."""
    view = state_of(every)
    separate = [one for one in every if one.placement is not None and one.placement.separation is not None]
    for pods in (True, False):
        wanted = []
        for one in separate:
            bound = {made.spec.node_name for made in one.pods if made.spec.node_name and not made.finished}
            coming = {host for made in one.pods if released(made) and (host := pinned_host(made.spec.shape))}
            slots = (
                set() if one.placement is None or one.placement.assignment is None else one.placement.assignment.hosts
            )
            if hosts := coming | slots | (bound if pods else set()):
                wanted.append((key_of(one.workload), *sorted(hosts)))
        with view.lock, view.without((), () if pods else [made for one in every for made in one.pods]):
            assert seen(view)["exclusive"] == sorted(wanted)
