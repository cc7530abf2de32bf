"""Events of a namespace: old and new forms, what may not be read, and rubbish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cluster.client import KubeClient, connect
from tests.support.fake_api import Answer, FakeApi
from webhook.snapshot.past_events import ReadEvent, events_about

EVENTS = "/apis/events.k8s.io/v1/namespaces/alice/events"


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with FakeApi() as running:
        yield running


@pytest.fixture
def api(server: FakeApi, tmp_path: Path) -> KubeClient:
    path = tmp_path / "config"
    named = {"current-context": "mine", "users": [{"name": "me", "user": {}}]}
    clusters = [{"name": "fake", "cluster": {"server": server.url}}]
    contexts = [{"name": "mine", "context": {"cluster": "fake", "user": "me"}}]
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Config", **named, "clusters": clusters, "contexts": contexts})
    )
    return connect(kubeconfig=str(path), user_agent="test")


def test_events_in_their_order(server: FakeApi, api: KubeClient) -> None:
    """A series counts, an Event of the old form has its own count and time, one without a time is left out."""
    server.put(
        f"{EVENTS}/b",
        reason="Fragmented",
        note="needs 4",
        eventTime="2026-01-01T00:01:00.5Z",
        series={"count": 3, "lastObservedTime": "2026-01-01T00:09:00.5Z"},
    )
    server.put(
        f"{EVENTS}/a", reason="Suspended", note="", deprecatedLastTimestamp="2026-01-01T00:00:00Z", deprecatedCount=2
    )
    server.put(f"{EVENTS}/c", reason="Timeless", note="")
    found, problem = events_about(api, "alice", [("train", "")])
    assert problem is None
    assert found == [
        ReadEvent("2026-01-01T00:00:00Z", "Suspended", "", 2),
        ReadEvent("2026-01-01T00:09:00Z", "Fragmented", "needs 4", 3),
    ]


def test_each_name_is_asked_for_once(server: FakeApi, api: KubeClient) -> None:
    events_about(api, "alice", [("train", "u"), ("job-train", ""), ("train", "u")])
    assert [one.query["fieldSelector"] for one in server.requests] == [
        "regarding.name=train",
        "regarding.name=job-train",
    ]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(403, {"reason": "Forbidden"}), "cannot be read: the history is that of the Placement"),
        (Answer(500, {"reason": "InternalError", "message": "etcd"}), "cannot be read (500 InternalError: etcd"),
        (Answer(200, {"items": "many"}), "cannot be read (not a list of Events)"),
    ],
)
def test_what_cannot_be_read_is_told(server: FakeApi, api: KubeClient, answer: Answer, text: str) -> None:
    server.fault(answer, times=10)
    found, problem = events_about(api, "alice", [("train", "")])
    assert found == []
    assert problem is not None
    assert text in problem


def test_a_server_without_the_group_has_no_events(server: FakeApi, api: KubeClient) -> None:
    server.fault(Answer(404, {"reason": "NotFound"}), times=10)
    assert events_about(api, "alice", [("train", "")]) == ([], None)


def test_what_a_placement_repeats_is_read_once(server: FakeApi, api: KubeClient) -> None:
    """The leader records the same on the workload and on its Placement; the same an hour later happened again."""
    for number, at in enumerate(("2026-01-01T00:00:00.9Z", "2026-01-01T01:00:00.1Z")):
        server.put(f"{EVENTS}/{number}", reason="Fragmented", note="needs 4", eventTime=at)
    found, _ = events_about(api, "alice", [("train", ""), ("job-train", "")])
    assert [(one.at, one.reason) for one in found] == [
        ("2026-01-01T00:00:00Z", "Fragmented"),
        ("2026-01-01T01:00:00Z", "Fragmented"),
    ]


def test_events_of_one_second_stay_in_their_order(server: FakeApi, api: KubeClient) -> None:
    for name, at in (("a", "00.9"), ("b", "00.100001"), ("c", "00.25"), ("d", "01")):
        server.put(f"{EVENTS}/{name}", reason=name, note="", eventTime=f"2026-01-01T00:00:{at}Z")
    server.put(f"{EVENTS}/e", reason="e", note="", deprecatedLastTimestamp="2026-01-01T00:00:00Z")
    found, _ = events_about(api, "alice", [("train", "")])
    assert [one.reason for one in found] == ["e", "b", "c", "a", "d"]


def test_events_of_an_earlier_object_of_that_name_are_left_out(server: FakeApi, api: KubeClient) -> None:
    for name, regarding in (("old", {"uid": "1"}), ("new", {"uid": "2"}), ("bare", {}), ("none", None)):
        stamp = "2026-01-01T00:00:00.5Z"
        server.put(f"{EVENTS}/{name}", reason=name, note="", eventTime=stamp, regarding=regarding)
    assert {one.reason for one in events_about(api, "alice", [("train", "2")])[0]} == {"new", "bare", "none"}
    assert {one.reason for one in events_about(api, "alice", [("train", "")])[0]} == {"old", "new", "bare", "none"}
