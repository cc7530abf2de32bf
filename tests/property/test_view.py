"""The ledger after any history equals the ledger counted afresh, and never hands a slot out twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api.objects import Node
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.grace import GRACE_SECONDS
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from tests.support.cluster_records import changed, gpu_nodes, job, node, placement, pod

HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0")


def fresh_view(
    nodes: list[Node], workloads: list[Workload], placements: list[Placement], pods: list[Pod]
) -> ClusterState:
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(nodes)
    stores.workloads.replace(workloads)
    stores.placements.replace(placements)
    stores.pods.replace(pods)
    view.refresh()
    return view


def free(view: ClusterState) -> dict[str, dict[str, int]]:
    return {host: {name: amount for name, amount in view.capacity.free(host).items() if amount} for host in HOSTS}


event = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(HOSTS), st.sampled_from(["gone", "full", "small", "cordoned"])),
    st.tuples(
        st.just("pod"),
        st.integers(0, 3),
        st.sampled_from(["absent", "gated", "pinned", "bound", "terminating", "Succeeded", "Failed"]),
        st.sampled_from(HOSTS),
    ),
    st.tuples(st.just("job"), st.sampled_from(["absent", "held", "running", "finished", "suspended", "small"])),
    st.tuples(st.just("placement"), st.lists(st.sampled_from(HOSTS), min_size=4, max_size=4) | st.none()),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(event, max_size=25))
def test_any_history_leaves_the_same_ledger_as_counting_afresh(history: list[tuple[object, ...]]) -> None:
    """Whatever came and went, in whatever order: free = allocatable - usage - reservations, each pod counted once.

    A moment later, that is: until then room of pods that may be on their way is kept as well.
    """
    stores, now = Stores(), [0.0]
    view = ClusterState(stores, clock=lambda: now[0])
    gang = job(count=4)
    nodes = {one.name: one for one in gpu_nodes(1, 2, 2) if one.name in HOSTS}
    pods: dict[str, Pod] = {}
    workloads: dict[str, Workload] = {}
    placements: dict[str, Placement] = {}
    stores.nodes.replace(nodes.values())
    serial = 10_000_000
    for step in history:
        serial += 1
        match step:
            case ("node", str(name), how):
                if how == "gone":
                    if (old := nodes.pop(name, None)) is not None:
                        stores.nodes.apply("DELETED", old)
                    continue
                allocatable = {"cpu": 8000, "pods": 3, "nvidia.com/gpu": 4} if how == "small" else None
                nodes[name] = node(
                    name, allocatable=allocatable, unschedulable=how == "cordoned", resource_version=str(serial)
                )
                stores.nodes.apply("MODIFIED", nodes[name])
            case ("pod", int(rank), str(state), str(host)):
                name = f"train-{rank}"
                old_pod = pods.pop(name, None)
                if state == "absent":
                    if old_pod is not None:
                        stores.pods.apply("DELETED", replace(old_pod, resource_version=str(serial)))
                    continue
                made = pod(
                    gang,
                    rank,
                    host=host if state not in ("gated", "pinned") else "",
                    pin=host if state == "pinned" else "",
                    gated=state == "gated",
                    deleting=state == "terminating",
                    phase=state if state in ("Succeeded", "Failed") else "Pending",
                    uid=f"uid-{name}",
                    resource_version=str(serial),
                )
                pods[name] = made
                stores.pods.apply("MODIFIED", made)
            case ("job", str(state)):
                if state == "absent":
                    if (old_job := workloads.pop("train", None)) is not None:
                        stores.workloads.apply("DELETED", replace(old_job, resource_version=str(serial)))
                    continue
                workloads["train"] = replace(
                    job(count=2 if state == "small" else 4, held=state == "held"),
                    finished=state == "finished",
                    suspended=state in ("held", "suspended"),
                    resource_version=str(serial),
                    uid=gang.uid,
                )
                stores.workloads.apply("MODIFIED", workloads["train"])
            case ("placement", hosts):
                counts: dict[str, int] = {}
                for host in hosts or ():  # type: ignore[attr-defined]
                    counts[host] = counts.get(host, 0) + 1
                placements["p"] = replace(
                    placement(gang, counts if hosts is not None else None), resource_version=str(serial)
                )
                stores.placements.apply("MODIFIED", placements["p"])
        view.refresh()
        now[0] += GRACE_SECONDS
        view.refresh()
        again = fresh_view(
            list(nodes.values()), list(workloads.values()), list(placements.values()), list(pods.values())
        )
        assert free(view) == free(again)


@given(st.permutations(range(4)))
def test_binding_pods_in_any_order_never_frees_a_slot_in_between(order: list[int]) -> None:
    """While reservations turn into usage, what is left on the host stays the same."""
    gang = job(count=4)
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 1, 1))
    small = changed(
        gang,
        template=replace(
            gang.template, shape=replace(gang.template.shape, requests=(("nvidia.com/gpu", 2), ("pods", 1)))
        ),
    )
    stores.workloads.replace([small])
    stores.placements.replace([placement(small, {"b0-r0-h0": 4})])
    view.refresh()
    assert view.capacity.free("b0-r0-h0")["nvidia.com/gpu"] == 0
    for rank in order:
        stores.pods.apply("ADDED", pod(small, rank, host="b0-r0-h0"))
        view.refresh()
        assert view.capacity.free("b0-r0-h0")["nvidia.com/gpu"] == 0


def test_a_plan_counts_as_reserved_before_it_is_written() -> None:
    """`hold` takes the room at once; `settle` hands over to what the API server says."""
    gang = job(count=1, held=True)
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 1, 1))
    stores.workloads.replace([gang])
    view.refresh()
    view.assume(gang.uid, placement(gang, {"b0-r0-h0": 1}))
    assert view.capacity.free("b0-r0-h0")["nvidia.com/gpu"] == 0
    view.take_changes()
    view.confirm(gang.uid, failed=True)
    assert view.capacity.free("b0-r0-h0")["nvidia.com/gpu"] == 8
    assert view.take_changes().capacity_freed  # those who were planned beside it are planned again


def test_a_foreign_pod_with_our_owner_reference_from_another_namespace_is_not_of_the_gang() -> None:
    """The namespace is the boundary: such a pod counts as usage where it is, but fills no slot."""
    gang = job(count=1)
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 1, 1))
    stores.workloads.replace([gang])
    stores.placements.replace([placement(gang, {"b0-r0-h0": 1})])
    stores.pods.replace([pod(gang, 0, host="b0-r0-h0", namespace="elsewhere")])
    view.refresh()
    assert view.gangs.pods_of(gang.uid) == ()
    assert view.capacity.free("b0-r0-h0")["nvidia.com/gpu"] == -8
