from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import metrics
from engine.cluster import events
from engine.cluster.client import KubeClient
from engine.cluster.events import QUEUE, SPARE, Recorder, Regarding, cut, event_body
from tests.support.eventually import PROMPT, eventually
from tests.support.fake_api import Answer, FakeApi, Stall

ABOUT: dict[str, Any] = {"api_version": "batch/v1", "kind": "Job", "namespace": "team", "name": "train", "uid": "u-1"}


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(api: KubeClient, clock: Clock) -> Iterator[Recorder]:
    metrics.events.clear()
    recorder = Recorder(api, instance="topogate-0", clock=clock, wall=lambda: 1.5)
    yield recorder
    recorder.stop()


def say(recorder: Recorder, reason: str, note: str, **about: Any) -> bool:
    return recorder.record(Regarding(**(ABOUT | about)), reason=reason, note=note, action="Place")


def counted(result: str) -> float:
    return metrics.registry.get_sample_value("topogate_events_total", {"result": result}) or 0.0


def posted(fake: FakeApi) -> list[dict[str, Any]]:
    return [request.json() for request in fake.requests if request.method == "POST"]


def test_an_event_says_who_what_and_about_which_object(fake: FakeApi, recorder: Recorder) -> None:
    """The body is a valid events.k8s.io/v1 Event in the object's namespace."""
    recorder.start()
    assert say(recorder, "Fragmented", "needs 16 hosts in one rack")
    fake.wait_for(lambda server: server.count("POST") == 1)
    assert fake.requests[0].path == "/apis/events.k8s.io/v1/namespaces/team/events"
    body = posted(fake)[0]
    name = body["metadata"].pop("name")
    assert name.startswith("train.")
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "team"},
        "eventTime": "1970-01-01T00:00:01.500000Z",
        "type": "Normal",
        "reason": "Fragmented",
        "action": "Place",
        "note": "needs 16 hosts in one rack",
        "regarding": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "train", "uid": "u-1"},
        "reportingController": "topogate.dev/engine",
        "reportingInstance": "topogate-0",
    }


def test_a_cluster_scoped_object_is_told_of_in_default() -> None:
    """An Event about a node stands in the namespace `default`, as the API asks."""
    body = event_body(
        Regarding("v1", "Node", "", "n1", "u"),
        reason="r",
        note="n",
        action="a",
        warning=True,
        instance="i",
        at=0.0,
        suffix="x",
    )
    assert body["metadata"] == {"name": "n1.x", "namespace": "default"}
    assert "namespace" not in body["regarding"]
    assert body["type"] == "Warning"


@given(st.text(st.characters(), max_size=2000), st.integers(3, 1024))
def test_a_text_is_cut_at_a_character(text: str, limit: int) -> None:
    """A note fits the limit in bytes, stays valid, and what fits is left alone."""
    result = cut(text, limit)
    data = result.encode()
    assert len(data) <= limit
    clean = text.encode("utf-8", "replace").decode()
    assert result == clean if len(clean.encode()) <= limit else clean.startswith(result.removesuffix("…"))


def test_long_names_and_notes_fit_the_api() -> None:
    """Nothing that a user named is too long for an Event about it."""
    body = event_body(
        Regarding("v1", "Pod", "n", "p" * 236 + "." * 17, "u"),
        reason="r" * 300,
        note="é" * 2000,
        action="a" * 300,
        warning=False,
        instance="i" * 300,
        at=0.0,
        suffix="0123456789abcdef",
    )
    assert len(body["metadata"]["name"]) <= 253
    assert ".." not in body["metadata"]["name"]
    assert len(body["note"].encode()) <= 1024
    assert all(len(body[key].encode()) <= 128 for key in ("reason", "action", "reportingInstance"))


def test_the_same_again_is_no_event(recorder: Recorder) -> None:
    """Only a change of reason or note is told, per object; a return to an earlier reason is a change."""
    assert say(recorder, "A", "1")
    assert not say(recorder, "A", "1")
    assert say(recorder, "A", "2")
    assert say(recorder, "B", "2")
    assert say(recorder, "A", "2")
    assert say(recorder, "A", "2", uid="u-2")
    assert not say(recorder, "A", "2")


def test_a_crowd_of_pods_loses_and_delays_no_events_of_other_namespaces(fake: FakeApi, recorder: Recorder) -> None:
    """Thousands of held pods of one tenant are told of in one moment; the thread has not started yet."""
    for number in range(3):
        assert say(recorder, "Placed", "1", namespace="small", uid=f"u-{number}")
    for number in range(2 * QUEUE):
        assert say(recorder, "HeldWithoutSlot", "1", namespace="crowd", uid=f"p-{number}")
    assert say(recorder, "Placed", "1", namespace="small", uid="u-3")
    recorder.start()
    fake.wait_for(lambda server: server.count("POST") >= 8)
    first = [body["regarding"]["namespace"] for body in posted(fake)[:8]]
    assert first.count("small") == 4
    assert counted("dropped") == QUEUE + 4


def test_a_copy_on_another_object_gives_way_when_many_wait(recorder: Recorder) -> None:
    """The thread has not started: with few Events in the queue both are taken, with many only the first."""
    placement = Regarding("topogate.dev/v1alpha1", "Placement", "team", "job-train", "uid-p")

    def copy(note: str) -> bool:
        return recorder.record(placement, reason="Placed", note=note, action="Place", spare=True)

    assert copy("0")
    for number in range(SPARE):
        assert say(recorder, "Placed", "n", uid=f"uid-{number}")
    before = counted("dropped")
    assert not copy("1")
    assert say(recorder, "Placed", "n", uid="uid-last")
    assert counted("dropped") == before + 1


def test_an_object_that_flaps_is_quietened(recorder: Recorder, clock: Clock) -> None:
    """After a burst about one object there is one Event per five minutes; other objects are not affected."""
    told = [say(recorder, "A", str(number)) for number in range(100)]
    assert sum(told) == 25
    assert say(recorder, "A", "x", uid="u-2")
    clock.now += 300
    assert say(recorder, "B", "x")
    assert not say(recorder, "C", "x")


def test_memory_of_what_was_told_is_bounded(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects heard of least recently are forgotten first."""
    monkeypatch.setattr(events, "REMEMBERED", 10)
    for number in range(20):
        say(recorder, "A", "1", uid=str(number))
    assert len(recorder._last) == 10
    assert not say(recorder, "A", "1", uid="19")
    assert say(recorder, "A", "1", uid="0")


def test_a_server_that_hangs_holds_up_nobody(
    fake: FakeApi, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a POST hangs, `record` returns at once; the queue drops its oldest and counts them."""
    monkeypatch.setattr(events, "QUEUE", 5)
    gate = threading.Event()
    fake.fault(Stall(gate, then_work=True))
    recorder.start()
    say(recorder, "first", "x")
    fake.wait_for(lambda server: server.count("POST") == 1)
    started = time.monotonic()
    for number in range(12):
        say(recorder, "A", str(number), uid=str(number))
    assert time.monotonic() - started < PROMPT
    assert counted("dropped") == 7
    gate.set()
    fake.wait_for(lambda server: server.count("POST") == 6)
    assert [body["note"] for body in posted(fake)] == ["x", "7", "8", "9", "10", "11"]


@pytest.mark.parametrize("status", [403, 404, 500])
def test_an_event_that_is_refused_is_counted_and_left(fake: FakeApi, recorder: Recorder, status: int) -> None:
    """An Event is never worth a second attempt; the next one is posted."""
    fake.fault(Answer(status))
    recorder.start()
    say(recorder, "A", "1")
    say(recorder, "B", "1")
    eventually(lambda: counted("posted") == 1)
    assert counted("failed") == 1
    assert fake.count("POST") == 2


def test_stop_posts_what_is_queued_and_takes_no_more(fake: FakeApi, recorder: Recorder) -> None:
    """Events recorded before the end are posted; later ones are not taken."""
    say(recorder, "A", "1")
    say(recorder, "B", "1")
    recorder.start()
    recorder.stop()
    assert fake.count("POST") == 2
    assert not say(recorder, "C", "1")


def test_stop_does_not_wait_for_a_busy_server(fake: FakeApi, recorder: Recorder) -> None:
    """A pause that the server asked for ends with `stop`."""
    fake.fault(Answer(429, {}, (("Retry-After", "60"),)))
    recorder.start()
    say(recorder, "A", "1")
    eventually(lambda: counted("failed") == 1)
    started = time.monotonic()
    recorder.stop()
    assert time.monotonic() - started < PROMPT
