"""What a pod's status says of its containers: whether they are ready, and what keeps them from it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import FailedPod, Readiness
from engine.decoding.pods import failed_pods, pod
from engine.decoding.wire import ProjectionError

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC).timestamp()
BOUND = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}


def condition(status: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "lastTransitionTime": "2026-11-21T12:00:05Z"}


def read(
    ready: str | None = "False", *, phase: str = "Pending", node: str = "host-1", managed: bool = True, **status: Any
) -> Readiness | None:
    conditions = [BOUND, *([condition(ready)] if ready is not None else [])]
    labels = {names.MANAGED: "true"} if managed else {}
    raw = {
        "metadata": {"name": "p", "namespace": "team", "labels": labels},
        "spec": {"containers": [{}], "nodeName": node},
        "status": {"phase": phase, "conditions": conditions, **status},
    }
    return pod(json.dumps(raw).encode()).readiness


def container(name: str = "main", *, ready: bool = False, restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "restartCount": restarts, **state}


def waiting(reason: str, message: str | None = None) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def test_a_pod_that_is_not_ready_tells_since_when_and_which_container_waits_for_what() -> None:
    """Times in seconds since the epoch, the words of the kubelet."""
    back_off = 'Back-off pulling image "example.com/train:2"'
    found = read(containerStatuses=[container(**waiting("ImagePullBackOff", back_off))])
    assert found == Readiness(
        ready=False,
        since=NOON + 5,
        restarts=0,
        container="main",
        waiting="ImagePullBackOff",
        message=back_off,
    )


def test_a_crash_loop_tells_how_the_container_ended_and_how_often() -> None:
    """The kubelet's own message names only the container and the pause."""
    ended = {"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    found = read(
        phase="Running",
        containerStatuses=[container(restarts=4, **waiting("CrashLoopBackOff", "back-off 40s"), **ended)],
    )
    assert found is not None
    assert (found.waiting, found.ended, found.restarts) == ("CrashLoopBackOff", "exit code 137, OOMKilled", 4)


@pytest.mark.parametrize(
    "quiet",
    [
        {"ready": "True", "phase": "Running"},
        {"ready": "False", "phase": "Succeeded"},
        {"ready": "False", "phase": "Failed"},
        {"ready": "False", "node": ""},
        {"ready": "False", "managed": False},
        {"ready": None, "phase": "Running"},
    ],
    ids=lambda quiet: ",".join(f"{key}={value}" for key, value in quiet.items()),
)
def test_nothing_is_kept_of_pods_that_nobody_asks_about(quiet: dict[str, Any]) -> None:
    """Ready, ended, not bound, not ours, or run by a kubelet that sets no conditions."""
    assert read(**quiet) is None


def test_a_ready_pod_that_was_restarted_tells_since_when_it_is_ready() -> None:
    """A container that crashes is ready for a moment after each restart."""
    found = read("True", phase="Running", containerStatuses=[container(ready=True, restarts=2)])
    assert found is not None
    assert (found.ready, found.since, found.restarts) == (True, NOON + 5, 2)


def test_the_container_that_waits_for_a_cause_is_named_before_those_that_wait_for_their_turn() -> None:
    """Containers wait as PodInitializing while an init container cannot start; one that is through is no cause."""
    found = read(
        initContainerStatuses=[container("fetch", ready=True), container("unpack", **waiting("ErrImagePull"))],
        containerStatuses=[container(**waiting("PodInitializing"))],
    )
    assert found is not None
    assert (found.container, found.waiting) == ("unpack", "ErrImagePull")
    late = read(containerStatuses=[container("a", **waiting("ContainerCreating")), container("b", **waiting("Bad"))])
    assert late is not None
    assert late.container == "b"


def test_a_pod_that_no_kubelet_has_reported_on_is_not_ready() -> None:
    """Bound a moment ago: no condition Ready, no container statuses, null lists."""
    assert read(None, containerStatuses=None, initContainerStatuses=None) == Readiness(
        ready=False, since=0.0, restarts=0
    )


def test_long_and_hostile_texts_are_cut() -> None:
    """A record stays small, whatever a kubelet says."""
    found = read(containerStatuses=[container("n" * 5_000, **waiting("R" * 5_000, "m" * 100_000))])
    assert found is not None
    assert len(found.container) + len(found.waiting) + len(found.message) < 1_000


@pytest.mark.parametrize(
    "status", [{"containerStatuses": {"a": 1}}, {"containerStatuses": [{"restartCount": "many"}]}], ids=str
)
def test_a_status_of_the_wrong_type_is_named_by_its_path(status: dict[str, Any]) -> None:
    """As for every other field; the API server itself sends no such object."""
    with pytest.raises(ProjectionError, match=r"^\$\.status\.containerStatuses"):
        read(**status)


def failed(name: str, at: str | None = None, *, rank: str | None = None, **status: Any) -> dict[str, Any]:
    """A pod that has failed at this second after noon; `status` besides that."""
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": f"2026-11-21T12:00:{at}Z"}
    containers = [container(ready=True, state={"running": {}}), container("train", state={"terminated": ended})]
    annotations = {names.RANK: rank} if rank is not None else {}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": "host-1"},
        "status": {"phase": "Failed", **({"containerStatuses": containers} if at is not None else {}), **status},
    }


def read_failed(*pods: Any) -> list[FailedPod]:
    return failed_pods(json.dumps({"kind": "PodList", "items": pods}).encode())


def test_failed_pods_tell_when_where_and_how_the_first_one_first() -> None:
    """The rank is that of our annotation; "Error" says no more than the exit code."""
    first, second = read_failed(failed("b", "30"), failed("a", "10", rank="3"))
    assert first == FailedPod(NOON + 10, 3, "a", "host-1", "container train: exit code 137, OOMKilled")
    assert second == FailedPod(NOON + 30, None, "b", "host-1", "container train: exit code 137, OOMKilled")
    ended = container("main", state={"terminated": {"exitCode": 1, "reason": "Error"}})
    (plain,) = read_failed(failed("c", containerStatuses=[ended], conditions=[condition("False")]))
    assert (plain.at, plain.how) == (NOON + 5, "container main: exit code 1")


def test_a_pod_that_somebody_deletes_has_not_failed() -> None:
    """The controller of a failed Job ends the other pods, which end with an exit code too."""
    ended = failed("b", "10")
    ended["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:09Z"
    assert [one.name for one in read_failed(ended, failed("a", "30"))] == ["a"]


def test_a_pod_that_failed_without_a_container_tells_its_reason() -> None:
    """Evicted by the kubelet, or lost: no container says anything."""
    (evicted,) = read_failed(failed("a", reason="Evicted", conditions=[condition("False")]))
    assert (evicted.at, evicted.how) == (NOON + 5, "Evicted")


@pytest.mark.parametrize("rank", ["", "x", "-1", "\u0663", "1" * 40])
def test_a_rank_that_is_none_is_left_out(rank: str) -> None:
    assert [one.rank for one in read_failed(failed("a", "10", rank=rank))] == [None]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items": {}}', b'{"items": [{"status": {"phase": 1}}]}'])
def test_a_list_of_pods_that_is_none_is_an_error(body: bytes) -> None:
    with pytest.raises(ProjectionError):
        failed_pods(body)


def test_an_empty_list_of_pods_is_empty() -> None:
    assert [*failed_pods(b'{"items": null}'), *failed_pods(b'{"items": [{}]}')] == [FailedPod(0.0, None, "", "", "")]
