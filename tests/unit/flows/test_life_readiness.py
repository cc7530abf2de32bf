"""What becomes of a gang whose pods are bound but not ready, from the decision to what is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.api.pod import Pod, Readiness
from engine.api.reasons import REASONS
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader

EPOCH = 1_800_000_000.0
SETTLED = REASONS["PodsNotReady"].settles + 1


def pulls(leader: Leader, **more: object) -> Readiness:
    """A pod that was bound now, with an image that cannot be pulled."""
    wall = EPOCH + leader.now
    said = 'Back-off pulling image "example.com/train:2"'
    fields = Readiness(False, wall, wall, 0, "main", "ImagePullBackOff", said)
    return replace(fields, **more)  # type: ignore[arg-type]


def start(leader: Leader, *unready: int, name: str = "train", fault: bool = True) -> dict[int, Pod]:
    """The pods of a gang of four, bound to their slots; those of these ranks are not ready."""
    if leader.stores.workloads.get(("batch", "Job", "default", name)) is None:
        leader.has(job(name, count=4, held=True))
        leader.settle()
    return bind(leader, *unready, name=name, fault=fault)


def bind(leader: Leader, *unready: int, name: str = "train", fault: bool = True) -> dict[int, Pod]:
    gang = leader.workload(name)
    slow = pulls(leader) if fault else pulls(leader, waiting="ContainerCreating", message="")
    pods = {
        rank: pod(gang, rank, host=host, readiness=slow if rank in unready else None)
        for rank, host in ranks_of(leader.placed(name)).items()
    }
    leader.has(*pods.values())
    leader.settle()
    return pods


def becomes_ready(leader: Leader, one: Pod) -> None:
    leader.has(replace(one, readiness=None, resource_version=leader.hands.version()))
    leader.settle()


def turns_unready(leader: Leader, one: Pod) -> None:
    leader.has(replace(one, readiness=pulls(leader, bound=1.0), resource_version=leader.hands.version()))
    leader.settle()


def racks(policy: str = "") -> Leader:
    """Two racks of six whole hosts."""
    return Leader(nodes=gpu_nodes(1, 2, 6), policy=POLICY + policy)


def status(leader: Leader) -> Mapping[str, Any]:
    placed = leader.placed()
    assert placed is not None
    return placed.status


def message(leader: Leader) -> str:
    return str(status(leader)["message"])


def test_a_gang_is_starting_until_its_pods_are_ready() -> None:
    """Bound is not running: a large image is pulled, and nothing is wrong."""
    leader = racks()
    pods = start(leader, 2, fault=False)
    leader.later(10.0)
    assert leader.status() == ("Starting", "")
    assert message(leader).startswith("1 of 4 pods not ready: train-2 on ")
    assert message(leader).endswith(": container main: ContainerCreating")
    becomes_ready(leader, pods[2])
    assert leader.status() == ("Running", "")
    assert status(leader)["readyAt"]


def test_pods_that_are_ready_at_once_leave_no_trace_of_the_start() -> None:
    """One status, one Event: as the binding and the readiness come a moment apart."""
    leader = racks()
    pods = start(leader, 0, 1, 2, 3)
    leader.later(1.0)
    for one in pods.values():
        becomes_ready(leader, one)
    leader.later(10.0)
    assert [told.phase for _, told in leader.hands.told] == ["Running"]


def test_a_container_that_cannot_start_is_the_reason_of_a_starting_gang() -> None:
    """After a while, as the first pull may fail: the pod, its host, and the kubelet's words."""
    leader = racks()
    pods = start(leader, 1)
    leader.later(10.0)
    assert "phase" not in status(leader)
    leader.later(SETTLED)
    assert leader.status() == ("Starting", "PodsNotReady")
    host = pods[1].spec.node_name
    assert message(leader) == (
        f"1 of 4 pods not ready: train-1 on {host}: container main: ImagePullBackOff: "
        'Back-off pulling image "example.com/train:2"'
    )


def test_a_running_gang_with_a_pod_that_is_not_ready_any_more_is_incomplete() -> None:
    """It ran: a crash, a failing probe. It is Running again when the pod is ready."""
    leader = racks()
    pods = start(leader)
    assert leader.status() == ("Running", "")
    turns_unready(leader, pods[3])
    leader.later(10.0)
    assert leader.status() == ("Running", "")
    leader.later(SETTLED)
    assert leader.status() == ("Incomplete", "PodsNotReady")
    becomes_ready(leader, pods[3])
    assert leader.status() == ("Running", "")


def test_pods_that_have_ended_well_were_ready() -> None:
    """The last one still pulls its image: of those that ended nothing is expected."""
    leader = racks()
    pods = start(leader, 3)
    for rank in range(3):
        leader.has(replace(pods[rank], phase="Succeeded", resource_version=leader.hands.version()))
    leader.settle()
    becomes_ready(leader, pods[3])
    assert leader.status() == ("Running", "")


def test_a_pod_lost_while_the_gang_starts_makes_it_incomplete() -> None:
    """It runs in part; with a new pod that is not ready it is starting again, as it never was ready."""
    leader = racks()
    pods = start(leader, 0, fault=False)
    leader.later(10.0)
    leader.stores.pods.apply("DELETED", pods[1])
    leader.settle()
    leader.later(10.0)
    assert leader.status() == ("Incomplete", "WaitingForMembers")
    leader.has(pod(leader.workload(), 1, host=pods[1].spec.node_name, name="train-1-b", readiness=pulls(leader)))
    leader.settle()
    leader.later(SETTLED)
    assert leader.status()[0] == "Starting"
