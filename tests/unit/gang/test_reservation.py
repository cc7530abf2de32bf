"""Released pods whose gang is over: their room is nobody else's until they are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding import objects
from engine.gang.reservation import reservation, reservations, unreserved_pods
from engine.policy.model import default_policy, parse_policy
from tests.support.cluster_records import REFUSAL, changed, gpu_nodes, job, placement, pod
from tests.support.kinds import example, merged, workload_of
from tests.support.leader import Leader

HOST = "b0-r0-h0"


def _view(workload: Workload | None, pods: list[Pod]) -> ClusterState:
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 1, 1))
    if workload is not None:
        stores.workloads.replace([workload])
        stores.placements.replace([placement(workload, {HOST: 1})])
    stores.pods.replace(pods)
    view.refresh()
    return view


@pytest.mark.parametrize("over", [{"finished": True}, {"deleting": True}], ids=["finished", "being deleted"])
def test_a_released_pod_of_a_gang_that_is_over_keeps_its_room(over: dict[str, Any]) -> None:
    """The scheduler may still bind it: the host is full until the pod is gone."""
    gang = replace(job(count=1), **over)
    view = _view(gang, [pod(gang, 0, pin=HOST)])
    assert view.capacity.free(HOST)["nvidia.com/gpu"] == 0
    view.stores.pods.replace([])
    view.refresh()
    assert view.capacity.free(HOST)["nvidia.com/gpu"] == 8


def test_a_released_pod_counts_once_after_its_user_has_suspended_its_gang() -> None:
    """Its slot stays reserved until the Placement has lost it."""
    gang = replace(job(count=1), suspended=True)
    view = _view(gang, [pod(gang, 0, pin=HOST)])
    assert view.capacity.free(HOST)["nvidia.com/gpu"] == 0
    view.stores.placements.replace([placement(gang, None)])
    view.refresh()
    assert view.capacity.free(HOST)["nvidia.com/gpu"] == 0
    view.stores.pods.replace([])
    view.refresh()
    assert view.capacity.free(HOST)["nvidia.com/gpu"] == 8


def test_a_released_pod_of_a_deleted_workload_keeps_its_room() -> None:
    """The garbage collector takes its time."""
    gang = job(count=1)
    view = _view(None, [pod(gang, 0, pin=HOST)])
    assert view.capacity.free(HOST)["nvidia.com/gpu"] == 0


def test_a_released_pod_counts_once_while_its_slot_is_reserved() -> None:
    """Its own reservation is the room that it will take."""
    gang = job(count=1)
    view = _view(gang, [pod(gang, 0, pin=HOST)])
    assert view.capacity.free(HOST)["nvidia.com/gpu"] == 0
    assert unreserved_pods(gang, placement(gang, {HOST: 1}), [pod(gang, 0, pin=HOST)]) == []


def test_a_pod_pinned_where_its_gang_was_before_counts_there() -> None:
    """The slots have moved on, the pod has not."""
    gang = job(count=1)
    adrift = [pod(gang, 0, pin="h0")]
    assert unreserved_pods(gang, placement(gang, {"h1": 1}), adrift) == adrift
    assert unreserved_pods(gang, placement(gang, None), adrift) == adrift


def test_a_gang_of_which_one_pod_is_adrift_keeps_the_slots_of_the_others() -> None:
    """Room is kept where the pod is on its way to, and where the other one is to come."""
    gang = job(count=2)
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 1, 4))
    stores.workloads.replace([gang])
    stores.placements.replace([placement(gang, {"b0-r0-h0": 1, "b0-r0-h1": 1})])
    stores.pods.replace([pod(gang, 0, pin="b0-r0-h3")])
    view.refresh()
    assert {"b0-r0-h1": 1, "b0-r0-h3": 1}.items() <= view.capacity.reserved(gang.uid).items()
    stores.pods.replace([])
    view.refresh()
    assert view.capacity.reserved(gang.uid) == {"b0-r0-h0": 1, "b0-r0-h1": 1}


@pytest.mark.parametrize(
    "state",
    [{"gated": True}, {"pin": "h0", "deleting": True}, {"host": "h0"}, {"pin": "h0", "phase": "Failed"}, {}],
    ids=["held", "being deleted", "bound", "failed", "not pinned"],
)
def test_a_pod_that_cannot_be_bound_there_any_more_is_not_adrift(state: dict[str, Any]) -> None:
    """Held, going, bound (that is usage) or ended: no room is kept for it."""
    gang = job(count=1)
    assert unreserved_pods(None, None, [pod(gang, 0, **state)]) == []


def test_a_pod_that_the_scheduler_refuses_takes_no_room_from_others() -> None:
    """Anybody may write our marks on a pod that is never bound: the scheduler's word gives the host back at once."""
    stranger = replace(job("stranger", namespace="mallory", require=None), uid="")
    waiting = pod(stranger, None, name="p", pin=HOST)
    leader = Leader(nodes=gpu_nodes(1, 1, 1))
    leader.has(waiting, job(count=1, held=True))
    leader.settle()
    assert leader.status() == ("Waiting", "InsufficientFreeGPUs")
    leader.has(replace(waiting, resource_version="99999999", unschedulable=REFUSAL))
    leader.settle()
    assert leader.placed() is not None
    assert leader.placed().assignment is not None  # type: ignore[union-attr]


def test_a_pod_that_no_scheduler_of_ours_binds_takes_no_room_from_others() -> None:
    """Of a scheduler that is not in the policy, or not there, nobody hears whether it will bind a pod."""
    stranger = replace(job("stranger", namespace="mallory", require=None), uid="")
    waiting = pod(stranger, None, name="p", pin=HOST)
    view = _view(None, [replace(waiting, spec=replace(waiting.spec, scheduler_name="nobody"))])
    assert view.capacity.free(HOST)["nvidia.com/gpu"] == 8


RACK = "cloud.provider.com/topology-rack"
_RULE = "{namespaces: [default], allow: false}"
FORBIDDEN = f"apiVersion: topogate.dev/v1alpha1\nkind: Policy\nnamespaces: {{rules: [{_RULE}]}}\n"


def _topology(stores: Stores) -> None:
    made = objects.topology_object({"metadata": {"name": "mine"}, "spec": {"levels": [{"nodeLabel": RACK}]}})
    next(store for name, store in stores.all().items() if name.startswith("topologies.")).apply("ADDED", made)


@pytest.mark.parametrize("late", ["nothing", "the Topology object", "the policy"])
def test_the_new_slot_of_a_pod_that_leaves_is_reserved_whatever_is_known_first(late: str) -> None:
    """A request that is understood later than its Placement is seen: when a replica starts, or the policy changes."""
    asked = {names.REQUIRE: RACK, names.TOPOLOGY: "mine", names.REPLACE: HOST}
    gang = job(count=1, annotations=asked)
    gang = replace(gang, pod_sets=tuple(replace(one, replace="free") for one in gang.pod_sets))
    stores = Stores()
    view = ClusterState(stores, parse_policy(FORBIDDEN) if late == "the policy" else None)
    stores.nodes.replace(gpu_nodes(1, 1, 2))
    if late != "the Topology object":
        _topology(stores)
    stores.workloads.replace([gang])
    stores.placements.replace([placement(gang, {"b0-r0-h1": 1})])
    stores.pods.replace([pod(gang, 0, host=HOST)])
    view.refresh()
    assert bool(view.request_of(gang).errors) == (late != "nothing")
    if late == "the Topology object":
        _topology(stores)
    view.refresh()
    if late == "the policy":
        view.set_policy(default_policy())
    assert not view.request_of(gang).errors
    assert view.capacity.free("b0-r0-h1")["nvidia.com/gpu"] == 0


def test_the_slot_of_a_missing_pod_is_kept_while_pods_beyond_the_replicas_still_run() -> None:
    """A StatefulSet that is scaled down makes the missing pod before it removes the last ones."""
    spec = {"replicas": 3, "ordinals": None}
    found = workload_of(merged(example("statefulset")["object"], {"metadata": {"namespace": "default"}, "spec": spec}))
    placed = placement(found, {"h0": 1, "h1": 1, "h2": 1})

    def member(ordinal: int) -> Pod:
        made = pod(found, None, host=f"h{ordinal}", name=f"store-{ordinal}")
        labels = {**made.spec.labels, "apps.kubernetes.io/pod-index": str(ordinal)}
        return replace(made, spec=replace(made.spec, labels=labels))

    assert reservation(found, placed, [member(ordinal) for ordinal in (0, 2, 3, 4)]) == {"h1": 1}


FOUR = [f"b0-r0-h{number}" for number in range(4)]


@pytest.mark.parametrize("gated", [True, False])
def test_a_completed_pod_that_still_seems_to_run_takes_no_slot_from_the_others(gated: bool) -> None:
    """Its Job's status may be seen before its own end: the slots of the missing pod and the held one stay."""
    gang = changed(job(count=4), remaining=3, finished_ranks=((1, 1),))
    held = pod(gang, 3, gated=True) if gated else pod(gang, 3, pin=FOUR[3])
    pods = [pod(gang, 0, host=FOUR[0]), pod(gang, 1, host=FOUR[1]), held]
    plan = placement(gang, dict.fromkeys(FOUR, 1))
    assert reservation(gang, plan, pods) == {FOUR[2]: 1, FOUR[3]: 1}


@pytest.mark.parametrize("seen", [True, False], ids=["its end is not seen", "it is gone"])
@pytest.mark.parametrize("gated", [True, False])
def test_where_ranks_of_completed_pods_are_not_told_the_slot_of_a_pod_that_waits_is_reserved(
    gated: bool, seen: bool
) -> None:
    """Of a training job of Kubeflow only the number of completed pods is known."""
    gang = changed(job(count=3), remaining=2)
    held = pod(gang, 2, gated=True) if gated else pod(gang, 2, pin=FOUR[2])
    pods = [pod(gang, 1, host=FOUR[1]), held, *([pod(gang, 0, host=FOUR[0])] if seen else [])]
    plan = placement(gang, dict.fromkeys(FOUR[:3], 1))
    assert reservation(gang, plan, pods) == {FOUR[2]: 1}


def test_a_held_pod_has_a_slot_while_a_completed_one_of_a_longer_job_still_seems_to_run() -> None:
    """Of two completions that are left its Job runs one already, and has created the other."""
    gang = changed(job(count=3), total=5, remaining=2, finished_ranks=((0, 2),))
    pods = [pod(gang, 2, host=FOUR[0]), pod(gang, 3, host=FOUR[1]), pod(gang, 4, gated=True)]
    plan = placement(gang, dict.fromkeys(FOUR[:3], 1))
    assert reservation(gang, plan, pods) == {FOUR[2]: 1}
    assert reservation(gang, plan, pods[1:]) == {FOUR[0]: 1}


@pytest.mark.parametrize(
    ("failed", "reserved"),
    [
        pytest.param(True, {FOUR[0]: 1, FOUR[1]: 1, FOUR[2]: 1}, id="another one failed"),
        pytest.param(False, {FOUR[2]: 1}, id="it alone is missing"),
    ],
)
def test_where_ranks_of_completed_pods_are_not_told_a_slot_is_freed_once_no_other_pod_is_missing(
    failed: bool, reserved: dict[str, int]
) -> None:
    """Of a training job of Kubeflow pod 0 has completed; pod 1 runs, or has failed and is made again."""
    gang = changed(job(count=3), remaining=2)
    pods = [pod(gang, 2, gated=True), *([] if failed else [pod(gang, 1, host=FOUR[1])])]
    assert reservation(gang, placement(gang, dict.fromkeys(FOUR[:3], 1)), pods) == reserved


def test_where_ranks_of_completed_pods_are_not_told_no_slot_is_given_away_that_a_missing_pod_may_need() -> None:
    """It may be created for either rank; once all that are left run, those of the completed ones are free."""
    gang = changed(job(count=4), remaining=3)
    plan = placement(gang, dict.fromkeys(FOUR, 1))
    pods = [pod(gang, rank, host=FOUR[rank]) for rank in (0, 3)]
    assert reservation(gang, plan, pods) == {FOUR[1]: 1, FOUR[2]: 1}
    assert [one.to_come for one in reservations(gang, plan, pods)] == [1]
    assert reservation(gang, plan, [*pods, pod(gang, 2, host=FOUR[2], deleting=True)]) == {}
    pods.append(pod(gang, 2, gated=True))
    assert reservation(gang, plan, pods) == {FOUR[2]: 1}
    assert reservation(gang, plan, [*pods[:2], pod(gang, 2, host=FOUR[2])]) == {}


def test_of_a_jobset_with_a_completed_job_the_slot_of_a_missing_pod_of_another_job_is_kept() -> None:
    """Its status counts whole Jobs: that of the missing pod has pods that run."""
    gang = changed(job(count=4), remaining=2)
    gang = replace(gang, pod_sets=(replace(gang.pod_sets[0], replica=2),))
    plan = placement(gang, dict.fromkeys(FOUR, 1))
    assert reservation(gang, plan, [pod(gang, 2, host=FOUR[2])]) == {FOUR[3]: 1}
    assert reservation(gang, plan, [pod(gang, 1, host=FOUR[1])]) == {FOUR[0]: 1}
    lost = reservation(gang, plan, [])
    assert lost == dict.fromkeys(FOUR, 1)
    assert [one.to_come for one in reservations(gang, plan, [])] == [2]
