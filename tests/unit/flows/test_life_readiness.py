"""What becomes of a gang whose pods are bound but not ready, from the decision to what is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import Pod, Readiness
from engine.api.reasons import REASONS
from engine.policy.model import parse_policy
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader

EPOCH = 1_800_000_000.0
SETTLED = REASONS["PodsNotReady"].settles + 1


def pulls(leader: Leader, **more: object) -> Readiness:
    """A pod that was bound now, with an image that cannot be pulled."""
    wall = EPOCH + leader.now
    said = 'Back-off pulling image "example.com/train:2"'
    fields = Readiness(False, wall, 0, "main", "ImagePullBackOff", said)
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
        rank: pod(gang, rank, host=host, bound=EPOCH + leader.now, readiness=slow if rank in unready else None)
        for rank, host in ranks_of(leader.placed(name)).items()
    }
    leader.has(*pods.values())
    leader.settle()
    return pods


def becomes_ready(leader: Leader, one: Pod) -> None:
    leader.has(replace(one, readiness=None, resource_version=leader.hands.version()))
    leader.settle()


def turns_unready(leader: Leader, one: Pod) -> None:
    leader.has(replace(one, readiness=pulls(leader), resource_version=leader.hands.version()))
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
    assert (status(leader)["phase"], status(leader)["reason"]) == ("Starting", "")
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


# -- starts that take too long ---------------------------------------------------------------------------------------

LIMITED = "timeouts: {start: 10m}\n"
MINUTES = 60.0


def gone(leader: Leader, pods: dict[int, Pod]) -> None:
    """Suspended, its controller removes the pods."""
    for one in pods.values():
        leader.stores.pods.apply("DELETED", one)
    leader.settle()


def hosts_of(leader: Leader) -> set[str]:
    return set(ranks_of(leader.placed()).values())


def fail_start(leader: Leader, *unready: int) -> set[str]:
    """A start whose pods of these ranks are not ready in time; returns their hosts."""
    pods = bind(leader, *unready)
    leader.later(10 * MINUTES)
    assert leader.workload().suspended
    gone(leader, pods)
    return {pods[rank].spec.node_name for rank in unready}


def test_a_start_that_takes_too_long_is_given_up_and_tried_on_other_hosts() -> None:
    """Suspended, so that no retry of the user is used; planned again without the host of the pod in question."""
    leader = racks(LIMITED)
    pods = start(leader, 1)
    leader.later(10 * MINUTES - 1)
    assert not leader.workload().suspended
    leader.later(1)
    assert leader.workload().suspended
    host = pods[1].spec.node_name
    assert leader.status() == ("Waiting", "StartTimeout")
    assert message(leader) == (
        f"1 of 4 pods not ready: train-1 on {host}: container main: ImagePullBackOff: Back-off pulling image "
        f'"example.com/train:2", 10m after all were bound; start 1 of 3 has failed: it is planned again in 1m without '
        f"{host}"
    )
    assert [told.reason for _, told in leader.hands.told if told.reason] == ["PodsNotReady", "StartTimeout"]
    gone(leader, pods)
    leader.later(59)
    assert leader.status() == ("Waiting", "StartTimeout")
    leader.later(1)
    assert not leader.workload().suspended
    assert len(hosts_of(leader)) == 4
    assert host not in hosts_of(leader)


def test_a_start_without_a_time_out_takes_as_long_as_it_takes() -> None:
    """The default: a large image is pulled for an hour."""
    leader = racks()
    start(leader, 0, 1, 2, 3)
    leader.later(5 * 60 * MINUTES)
    assert leader.status()[0] == "Starting"
    assert leader.hands.of("suspend") == []


@pytest.mark.parametrize(("own", "after"), [("2m", 2 * MINUTES), ("none", None)])
def test_a_gang_may_set_its_own_time(own: str, after: float | None) -> None:
    """Shorter than the policy's, or none at all."""
    leader = racks(LIMITED)
    gang = job(count=4, held=True)
    leader.has(replace(gang, annotations={**gang.annotations, names.START_TIMEOUT: own}))
    leader.settle()
    bind(leader, 0)
    leader.later((after or 60 * MINUTES) - 1)
    assert leader.hands.of("suspend") == []
    leader.later(1)
    assert leader.hands.of("suspend") == (["train"] if after is not None else [])


def test_the_time_counts_from_the_last_pod_that_was_bound() -> None:
    """Pods that wait for one another are not ready before the last one is there."""
    leader = racks(LIMITED)
    leader.has(job(count=4, held=True))
    leader.settle()
    gang, hosts = leader.workload(), ranks_of(leader.placed())
    for rank in range(3):
        leader.has(pod(gang, rank, host=hosts[rank], bound=EPOCH + leader.now, readiness=pulls(leader)))
    leader.has(pod(gang, 3, pin=hosts[3], name="late"))
    leader.settle()
    leader.later(20 * MINUTES)
    assert leader.hands.of("suspend") == []
    late = leader.stores.pods.get(("default", "late"))
    assert late is not None
    bound = replace(late.spec, node_name=hosts[3])
    leader.has(replace(late, spec=bound, phase="Running", bound=EPOCH + leader.now, resource_version="99999999"))
    leader.settle()
    leader.later(9 * MINUTES)
    assert leader.hands.of("suspend") == []
    leader.later(1 * MINUTES)
    assert leader.hands.of("suspend") == ["train"]


def test_the_pauses_between_starts_grow() -> None:
    """A tenth of the time, then twice as much: an image that exists nowhere does not keep hosts busy."""
    leader = racks(LIMITED + "queue: {maxStartAttempts: 10}\n")
    start(leader, 0)
    for number, pause in enumerate((60, 120, 240), 1):
        fail_start(leader, 0)
        assert status(leader)["failedStarts"]["count"] == number
        leader.later(pause - 1)
        assert leader.workload().suspended, pause
        leader.later(1)
        assert not leader.workload().suspended, pause


def exhausted() -> Leader:
    """A gang that has used up its two starts."""
    leader = racks(LIMITED + "queue: {maxStartAttempts: 2}\n")
    start(leader, 0)
    fail_start(leader, 0)
    leader.later(5 * MINUTES)
    fail_start(leader, 0)
    return leader


def test_after_the_last_start_a_gang_stays_held_with_its_reason() -> None:
    """Nobody's hosts are blocked for ever; what was wrong stays readable."""
    leader = exhausted()
    assert leader.status() == ("Waiting", "StartLimitExceeded")
    assert "ImagePullBackOff" in message(leader)
    assert message(leader).endswith("start 2 of 2 has failed: it stays held until its user changes or resumes it")
    leader.later(24 * 60 * MINUTES)
    assert leader.workload().suspended
    assert leader.status() == ("Waiting", "StartLimitExceeded")
    assert leader.hands.of("place") == ["train", "train"]


def test_a_held_gang_holds_up_no_other() -> None:
    """Not even in strict order."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + LIMITED + "queue: {order: strict, maxStartAttempts: 1}\n")
    start(leader, 0)
    fail_start(leader, 0)
    leader.has(job("other", count=4, held=True))
    leader.settle()
    assert not leader.workload("other").suspended


@pytest.mark.parametrize("act", ["resumes it", "edits its spec", "changes its request"])
def test_its_user_sets_a_held_gang_going_again(act: str) -> None:
    """With as many starts as at first."""
    leader = exhausted()
    gang = leader.workload()
    match act:
        case "resumes it":
            edits: dict[str, Any] = {"suspended": False, "annotations": {names.REQUIRE: "rack"}, "generation": 99}
        case "edits its spec":
            edits = {"generation": 99}
        case _:
            edits = {"annotations": {**gang.annotations, names.START_TIMEOUT: "1h"}}
    leader.has(replace(gang, resource_version=leader.hands.version(), **edits))
    leader.settle()
    leader.later(5)
    assert leader.hands.of("place") == ["train"] * 3
    bind(leader, 0)
    leader.later(60 * MINUTES)
    assert status(leader)["failedStarts"]["count"] == 1


def test_hosts_count_again_when_the_user_has_intervened() -> None:
    """The image is there now: the only four hosts are not left out for what was wrong before."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + LIMITED + "queue: {maxStartAttempts: 1}\n")
    start(leader, 0, 1, 2, 3)
    fail_start(leader, 0, 1, 2, 3)
    gang = leader.workload()
    leader.has(replace(gang, generation=99, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(5)
    assert leader.hands.of("place") == ["train"] * 2


def test_while_its_hosts_are_left_out_a_gang_says_so() -> None:
    """There are no others: they count again after a while."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + LIMITED)
    start(leader, 0, 1)
    fail_start(leader, 0, 1)
    leader.later(90)
    assert message(leader).endswith("4 nodes = 2 recently failed for this gang + 2 with room")
    leader.later(60)
    assert leader.hands.of("place") == ["train"] * 2


def test_every_failed_start_is_an_event() -> None:
    """Also where nothing else was reported between two of them: each names its pods and hosts."""
    leader = racks("timeouts: {start: 20s}\n")
    start(leader, 0)
    for _ in range(2):
        pods = bind(leader, 0)
        leader.later(20)
        assert leader.workload().suspended
        gone(leader, pods)
        leader.later(5)
        assert not leader.workload().suspended
    notes = [note for _, note in leader.hands.notes if "has failed" in note]
    assert [note.partition("; ")[2][:12] for note in notes] == ["start 1 of 3", "start 2 of 3"]


def test_a_suspension_by_its_user_ends_the_count_and_the_pause() -> None:
    """Resumed, it has all its starts, and all hosts."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + LIMITED)
    start(leader, 0, 1, 2, 3)
    fail_start(leader, 0, 1, 2, 3)
    gang = leader.workload()
    mine = {"annotations": {names.REQUIRE: "rack"}, "generation": gang.generation + 1}
    leader.has(replace(gang, resource_version=leader.hands.version(), **mine))
    leader.settle()
    assert leader.status() == ("Waiting", "Suspended")
    assert "failedStarts" not in status(leader)
    leader.has(replace(gang, generation=gang.generation + 2, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("place") == ["train"] * 2


def test_more_starts_in_the_policy_set_a_held_gang_going_again() -> None:
    """The admin's decision; the count goes on."""
    leader = exhausted()
    leader.view.set_policy(parse_policy(POLICY + LIMITED + "queue: {maxStartAttempts: 3}\n"))
    leader.later(10 * MINUTES)
    assert leader.hands.of("place") == ["train"] * 3
    fail_start(leader, 0)
    assert leader.status() == ("Waiting", "StartLimitExceeded")
    assert status(leader)["failedStarts"]["count"] == 3


def test_a_gang_that_was_ready_has_all_its_starts_again() -> None:
    """Only starts in a row count."""
    leader = racks(LIMITED)
    start(leader, 0)
    fail_start(leader, 0)
    leader.later(5 * MINUTES)
    for one in bind(leader, 0).values():
        becomes_ready(leader, one)
    leader.later(1)
    assert leader.status() == ("Running", "")
    assert "failedStarts" not in status(leader)


@pytest.mark.parametrize("reason", ["CreateContainerConfigError", "InvalidImageName"])
def test_a_host_is_not_left_out_for_what_fails_on_every_host(reason: str) -> None:
    """A ConfigMap that does not exist."""
    leader = racks(LIMITED)
    leader.has(job(count=4, held=True))
    leader.settle()
    gang, hosts = leader.workload(), ranks_of(leader.placed())
    fault = pulls(leader, waiting=reason, message="not found")
    pods = {rank: pod(gang, rank, host=host, bound=EPOCH + leader.now, readiness=fault) for rank, host in hosts.items()}
    leader.has(*pods.values())
    leader.settle()
    leader.later(10 * MINUTES)
    assert message(leader).endswith("start 1 of 3 has failed: it is planned again in 1m")
    gone(leader, pods)
    leader.later(1 * MINUTES)
    assert hosts_of(leader) == set(hosts.values())


def test_a_gang_whose_kind_cannot_be_suspended_is_only_reported() -> None:
    """It keeps its slots: without suspension its controller would only make the same pods again."""
    leader = racks(LIMITED)
    leader.has(job(count=4, held=True))
    leader.settle()
    fixed = replace(leader.workload(), suspendable=False, resource_version=leader.hands.version())
    leader.has(fixed)
    bind(leader, 0, fault=False)
    leader.later(10 * MINUTES - 1)
    assert leader.status() == ("Starting", "")
    leader.later(1)
    leader.later(SETTLED)
    assert leader.hands.of("suspend") == []
    assert leader.status() == ("Starting", "PodsNotReady")


def test_a_pod_without_a_time_of_binding_counts_from_its_creation() -> None:
    """Some schedulers write no condition: it is not taken for one that was bound in 1970."""
    leader = racks(LIMITED)
    leader.has(job(count=4, held=True))
    leader.settle()
    gang, created = leader.workload(), EPOCH + leader.now
    for rank, host in ranks_of(leader.placed()).items():
        leader.has(pod(gang, rank, host=host, created=created, readiness=pulls(leader, since=0.0)))
    leader.settle()
    leader.later(10 * MINUTES - 1)
    assert leader.hands.of("suspend") == []
    leader.later(1)
    assert leader.hands.of("suspend") == ["train"]


def successor(leader: Leader) -> Leader:
    """Another replica leads: it has what the API server has, and no memory."""
    other = Leader(nodes=leader.stores.nodes.values(), policy=leader.policy, now=leader.now)
    for store in ("workloads", "placements", "pods"):
        getattr(other.stores, store).replace(getattr(leader.stores, store).values())
    other.settle()
    return other


def test_a_new_leader_knows_the_time_the_hosts_and_the_pause() -> None:
    """Times are in the pods, failed starts in the Placement: nothing starts again with it."""
    leader = racks(LIMITED)
    start(leader, 2)
    leader.later(9 * MINUTES)
    leader = successor(leader)
    leader.later(1 * MINUTES)
    assert leader.workload().suspended
    bad = status(leader)["failedStarts"]["hosts"]
    gone(leader, {rank: one for rank, one in enumerate(leader.stores.pods.values())})
    leader = successor(leader)
    leader.later(59)
    assert leader.workload().suspended
    leader.later(1)
    assert not leader.workload().suspended
    assert not hosts_of(leader) & set(bad)


@pytest.mark.parametrize("written", ["failed start", "suspend"])
def test_a_failed_start_counts_once_wherever_the_leader_ends(written: str) -> None:
    """kill -9 after the count is written, or after the Job is suspended: the next leader goes on from there."""
    leader = racks(LIMITED)
    start(leader, 2)
    before = leader.placed()
    leader.later(10 * MINUTES)
    counted, held = leader.placed(), leader.workload()
    assert before is not None
    assert counted is not None
    half = replace(before, status={**before.status, "failedStarts": counted.status["failedStarts"]})
    leader.stores.placements.apply("MODIFIED", replace(half, resource_version=leader.hands.version()))
    if written == "failed start":
        resumed = replace(held, suspended=False, annotations={names.REQUIRE: "rack"}, generation=held.generation - 1)
        leader.has(replace(resumed, resource_version=leader.hands.version()))
    leader = successor(leader)
    assert leader.workload().suspended
    placed = leader.placed()
    assert placed is not None
    assert placed.assignment is None
    assert leader.status() == ("Waiting", "StartTimeout")
    assert status(leader)["failedStarts"]["count"] == 1
    assert "resume" not in [call for call, _ in leader.hands.calls]


# -- pods that are not ready any more --------------------------------------------------------------------------------

RESTARTS = "incomplete: restart\ntimeouts: {recover: 10m}\n"


def test_a_gang_with_pods_that_are_not_ready_again_in_time_is_restarted_where_the_policy_says_so() -> None:
    """The time counts from the moment when its pod was not ready any more."""
    leader = racks(RESTARTS)
    pods = start(leader)
    turns_unready(leader, pods[3])
    leader.later(10 * MINUTES - 1)
    assert leader.hands.of("suspend") == []
    leader.later(1)
    assert leader.hands.of("suspend") == ["train"]
    assert leader.status() == ("Waiting", "PodsNotReady")
    assert message(leader).endswith("; 10m later it is restarted")
    gone(leader, pods)
    leader.later(10)
    assert not leader.workload().suspended
    assert pods[3].spec.node_name not in hosts_of(leader)


def test_pods_that_are_not_ready_one_after_the_other_restart_nothing() -> None:
    """Of a sweep some pods are always just starting: each has the whole time."""
    leader = racks(RESTARTS)
    pods = start(leader)
    for turn in range(8):
        turns_unready(leader, pods[turn % 4])
        becomes_ready(leader, pods[(turn - 1) % 4])
        leader.later(5 * MINUTES)
        assert leader.status() == ("Incomplete", "PodsNotReady")
    assert leader.hands.of("suspend") == []


def test_an_incomplete_gang_is_kept_by_default() -> None:
    """It runs on with what it has."""
    leader = racks("timeouts: {recover: 10m}\n")
    pods = start(leader)
    turns_unready(leader, pods[3])
    leader.later(60 * MINUTES)
    assert leader.hands.of("suspend") == []


def test_a_replacement_that_is_not_ready_in_time_restarts_the_gang() -> None:
    """Bound is not recovered: its image cannot be pulled on the other host."""
    leader = racks(RESTARTS)
    pods = start(leader)
    leader.stores.pods.apply("DELETED", pods[1])
    fresh = pod(leader.workload(), 1, host=pods[1].spec.node_name, name="train-1-b", readiness=pulls(leader))
    leader.has(replace(fresh, bound=EPOCH + leader.now))
    leader.settle()
    leader.later(10 * MINUTES)
    assert leader.hands.of("suspend") == ["train"]


@pytest.mark.parametrize(("own", "after"), [("2m", 2 * MINUTES), ("none", None)])
def test_a_gang_may_set_its_own_time_to_recover(own: str, after: float | None) -> None:
    """For pods that are not ready, and for pods that are missing."""
    for lost in (False, True):
        leader = racks(RESTARTS)
        gang = job(count=4, held=True)
        leader.has(replace(gang, annotations={**gang.annotations, names.RECOVER_TIMEOUT: own}))
        leader.settle()
        pods = bind(leader)
        if lost:
            leader.stores.pods.apply("DELETED", pods[3])
            leader.settle()
            leader.later(6.0)
        else:
            turns_unready(leader, pods[3])
        leader.later((after or 60 * MINUTES) - 10)
        assert leader.hands.of("suspend") == []
        leader.later(10)
        assert leader.hands.of("suspend") == (["train"] if after is not None else []), lost


def test_a_crash_loop_is_not_recovered_by_a_moment_in_which_it_runs() -> None:
    """Its pod is ready for some seconds after each restart: that is one trouble, not many."""
    leader = racks(RESTARTS)
    pods = start(leader)
    one = pods[3]
    for restart in range(1, 12):
        down = Readiness(False, EPOCH + leader.now, restart, "main", "CrashLoopBackOff", "", "exit code 1")
        leader.has(replace(one, readiness=down, resource_version=leader.hands.version()))
        leader.settle()
        leader.later(50.0)
        up = Readiness(True, EPOCH + leader.now, restart)
        leader.has(replace(one, readiness=up, resource_version=leader.hands.version()))
        leader.settle()
        leader.later(10.0)
    assert leader.hands.of("suspend") == ["train"]


def crashes(leader: Leader, *, after: float) -> dict[int, Pod]:
    """The gang starts, is ready for so long, and then one of its pods does not recover."""
    pods = start(leader)
    leader.later(after)
    assert leader.status() == ("Running", "")
    turns_unready(leader, pods[3])
    leader.later(10 * MINUTES)
    gone(leader, pods)
    return pods


def test_restarts_in_a_row_have_growing_pauses_and_the_limit_of_starts() -> None:
    """A program that crashes a minute after each start: the second restart waits, and after the third it stays held."""
    leader = racks(RESTARTS)
    crashes(leader, after=60.0)
    assert message(leader).endswith("; 10m later it is restarted") or not leader.workload().suspended
    leader.later(10.0)
    assert not leader.workload().suspended
    crashes(leader, after=60.0)
    assert leader.status() == ("Waiting", "PodsNotReady")
    assert message(leader).endswith("not ready for long 2 times in a row; it is planned again in 2m")
    leader.later(100.0)
    assert leader.workload().suspended
    leader.later(30.0)
    assert not leader.workload().suspended
    crashes(leader, after=60.0)
    assert leader.status() == ("Waiting", "StartLimitExceeded")
    assert message(leader).endswith("3 times in a row, and it stays held until its user changes or resumes it")
    leader.later(24 * 60 * MINUTES)
    assert leader.workload().suspended
    assert leader.hands.of("place") == ["train"] * 3


def test_a_gang_that_was_ready_for_long_is_restarted_at_once_each_time() -> None:
    """A crash an hour is trouble, but no start that failed."""
    leader = racks(RESTARTS)
    for number in range(1, 6):
        crashes(leader, after=60 * MINUTES)
        leader.later(10.0)
        assert not leader.workload().suspended
        assert leader.hands.of("suspend") == ["train"] * number
