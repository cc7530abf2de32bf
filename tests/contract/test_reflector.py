from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from engine.api.objects import ConfigMap
from engine.cluster.client import KubeClient, connect
from engine.cluster.reflector import Reflector
from engine.cluster.store import Store
from engine.decoding import objects
from tests.support.eventually import PROMPT, eventually
from tests.support.fake_api import Answer, FakeApi, Lines, Request, Reset, Split, Stall, Twice

ALL = "/api/v1/configmaps"
MAPS = "/api/v1/namespaces/default/configmaps"
Change = tuple[Hashable, str | None, str | None]


def project(raw: msgspec.Raw) -> ConfigMap:
    body = msgspec.json.decode(raw)
    meta = body["metadata"]
    if body.get("data") == "broken":
        raise ValueError("$.data: Expected `object`, got `str`")
    return ConfigMap(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
        data=body.get("data", {}),
    )


def new_store() -> Store[ConfigMap]:
    return Store(lambda record: (record.namespace, record.name))


class Watched:
    """A reflector under test: its store, what subscribers heard, and the delays that it wished for."""

    def __init__(
        self,
        api: KubeClient,
        path: str = ALL,
        project: Callable[[msgspec.Raw], ConfigMap] = project,
        **options: object,
    ) -> None:
        self.store = new_store()
        self.heard: list[Change] = []
        self.delays: list[float] = []
        self.store.subscribe(lambda key, old, new: self.heard.append((key, _x(old), _x(new))))
        self.reflector: Reflector[ConfigMap] = Reflector(
            api,
            path,
            project,
            self.store,
            rng=random.Random(1),
            wait=self._wait,
            **options,  # type: ignore[arg-type]
        )

    def _wait(self, wake: threading.Event, seconds: float) -> None:
        self.delays.append(seconds)
        wake.wait(min(seconds, 0.02))

    def data(self) -> dict[Hashable, str | None]:
        return {record.name: record.data.get("x") for record in self.store.values()}


def _x(record: ConfigMap | None) -> str | None:
    return None if record is None else record.data.get("x", "")


Watch = Callable[..., Watched]


@pytest.fixture
def watch(api: KubeClient) -> Iterator[Watch]:
    running: list[Watched] = []

    def begin(**options: object) -> Watched:
        watched = Watched(api, **options)  # type: ignore[arg-type]
        running.append(watched)
        watched.reflector.start()
        return watched

    yield begin
    for watched in running:
        watched.reflector.stop()


def watching(fake: FakeApi, times: int = 1) -> None:
    fake.wait_for(lambda server: server.count("GET", watch=True) >= times)


def is_watch(request: Request) -> bool:
    return request.is_watch


def test_a_store_is_synced_by_the_list_and_follows_the_watch(fake: FakeApi, watch: Watch) -> None:
    """What is there comes with the list, what happens comes with the watch: created, changed, deleted, in order."""
    fake.put(MAPS + "/a", data={"x": "1"})
    watched = watch()
    assert watched.store.wait_synced(60)
    assert watched.reflector.problem is None
    fake.put(MAPS + "/a", data={"x": "2"})
    fake.put(MAPS + "/b", data={"x": "3"})
    fake.remove(MAPS + "/a")
    eventually(lambda: len(watched.heard) == 4)
    a, b = ("default", "a"), ("default", "b")
    assert watched.heard == [(a, None, "1"), (a, "1", "2"), (b, None, "3"), (a, "2", None)]
    assert watched.data() == {"b": "3"}


def test_nothing_is_synced_before_the_first_whole_list(fake: FakeApi, watch: Watch) -> None:
    """Until the list is in, the store says that it is not synced and the reflector says why."""
    held = threading.Event()
    fake.fault(Stall(held, then_work=True))
    watched = watch()
    fake.wait_for(lambda server: len(server.requests) == 1)
    assert not watched.store.synced
    assert watched.store.age == float("inf")
    assert watched.reflector.problem == "not listed yet"
    held.set()
    assert watched.store.wait_synced(60)
    assert watched.store.age < 60


def test_a_list_comes_in_pages_and_in_one_piece(fake: FakeApi, watch: Watch) -> None:
    """A list of many pages fills the store at once: no subscriber sees a part of it as the whole."""
    for number in range(7):
        fake.put(f"{MAPS}/m{number}", data={"x": str(number)})
    watched = watch(first_page=3)
    assert watched.store.wait_synced(60)
    assert len(watched.store) == 7
    lists = [request.query for request in fake.requests if not request.is_watch]
    assert [query["limit"] for query in lists] == ["3", "3", "3"]
    assert [("continue" in query) for query in lists] == [False, True, True]
    assert all("resourceVersion" not in query for query in lists)


def test_a_page_that_expired_starts_the_list_again(fake: FakeApi, watch: Watch) -> None:
    """410 on a continue token: from the first page, and nothing half is taken in."""
    for number in range(4):
        fake.put(f"{MAPS}/m{number}", data={"x": "1"})
    fake.fault(Answer(410, {"reason": "Expired"}), when=lambda request: "continue" in request.query)
    watched = watch(first_page=3)
    assert watched.store.wait_synced(60)
    assert len(watched.store) == 4
    assert watched.reflector.counts.expired == 1


def test_later_lists_use_small_pages(fake: FakeApi, watch: Watch) -> None:
    """The first list asks for 500 at a time, later ones for 100."""
    watched = watch()
    watching(fake)
    fake.expire()
    fake.drop_watches()
    eventually(lambda: watched.reflector.counts.lists == 2)
    assert [request.query["limit"] for request in fake.requests if not request.is_watch] == ["500", "100"]


def test_a_later_list_decodes_what_has_changed_alone(fake: FakeApi, watch: Watch) -> None:
    """An object with the uid and version that are held is the same; one of the same name with another uid is not."""
    for name in ("same", "changed", "gone", "again"):
        fake.put(f"{MAPS}/{name}", data={"x": "1"})
    decoded: list[str] = []

    def noted(raw: msgspec.Raw) -> ConfigMap:
        record = project(raw)
        decoded.append(record.name)
        return record

    watched = watch(project=noted)
    assert watched.store.wait_synced(60)
    watching(fake)
    same = watched.store.get(("default", "same"))
    decoded.clear()
    held = threading.Event()
    fake.fault(Stall(held), when=is_watch)
    fake.drop_watches()
    watching(fake, 2)  # one that says nothing of what happens now
    fake.put(MAPS + "/changed", data={"x": "2"})
    fake.remove(MAPS + "/gone")
    fake.remove(MAPS + "/again")
    fake.put(MAPS + "/again", data={"x": "3"})
    watched.reflector.list_again()
    held.set()
    eventually(lambda: watched.reflector.counts.lists == 2)
    assert sorted(decoded) == ["again", "changed"]
    assert watched.data() == {"same": "1", "changed": "2", "again": "3"}
    assert watched.store.get(("default", "same")) is same


def test_a_list_for_another_projection_decodes_everything(fake: FakeApi, watch: Watch) -> None:
    """A policy may have more labels of pods read."""
    fake.put(MAPS + "/a", data={"x": "1"})
    watched = watch()
    assert watched.store.wait_synced(60)

    def shouting(raw: msgspec.Raw) -> ConfigMap:
        return replace(project(raw), data={"x": "ONE"})

    watched.reflector.read_anew(shouting)
    eventually(lambda: watched.data() == {"a": "ONE"})


def test_nothing_held_is_trusted_when_versions_go_back(fake: FakeApi, watch: Watch) -> None:
    """An etcd that was restored counts on from its backup: the same versions, of other contents."""
    fake.put(MAPS + "/a", data={"x": "before"})
    fake.advance(100)
    watched = watch()
    assert watched.store.wait_synced(60)
    held = fake.get(MAPS + "/a")
    assert held is not None
    restored = {"metadata": {"resourceVersion": "50"}, "items": [held | {"data": {"x": "restored"}}]}
    fake.fault(Answer(200, restored), when=lambda request: not request.is_watch)
    watched.reflector.list_again()
    eventually(lambda: (("default", "a"), "before", "restored") in watched.heard)


def test_a_watch_asks_for_bookmarks_and_a_bounded_time(fake: FakeApi, watch: Watch) -> None:
    """A watch names its version, wants bookmarks, keeps the selectors, and ends by itself after 240-480 s."""
    fake.put(MAPS + "/a", data={"x": "1"})
    watch(query={"fieldSelector": "metadata.name=a"})
    watching(fake)
    query = fake.requests[-1].query
    assert query["resourceVersion"] == str(fake.version)
    assert query["allowWatchBookmarks"] == "true"
    assert query["fieldSelector"] == "metadata.name=a"
    assert 240 <= int(query["timeoutSeconds"]) <= 480


def test_a_watch_that_ends_goes_on_from_the_last_version(fake: FakeApi, watch: Watch) -> None:
    """After a regular end nothing is listed again and nothing is missed."""
    watched = watch()
    watching(fake)
    fake.put(MAPS + "/a", data={"x": "1"})
    eventually(lambda: len(watched.store) == 1)
    fake.drop_watches()
    watching(fake, 2)
    fake.put(MAPS + "/b", data={"x": "2"})
    eventually(lambda: watched.data() == {"a": "1", "b": "2"})
    assert watched.reflector.counts.lists == 1
    assert watched.delays == []


def test_a_bookmark_moves_the_version_of_a_quiet_watch(fake: FakeApi, watch: Watch) -> None:
    """A quiet collection does not fall out of the server's history: the bookmark's version is used to go on."""
    watched = watch()
    watching(fake)
    version = fake.advance(1000)
    fake.bookmark()
    assert watched.store.wait_seen(version, 60)
    fake.drop_watches()
    watching(fake, 2)
    assert fake.requests[-1].query["resourceVersion"] == str(version)


@pytest.mark.parametrize("over_http", [True, False])
def test_an_expired_version_lists_again(fake: FakeApi, watch: Watch, over_http: bool) -> None:
    """410, as an answer or as an ERROR event: list, tell of what was deleted meanwhile, watch on."""
    fake.put(MAPS + "/a", data={"x": "1"})
    fake.put(MAPS + "/b", data={"x": "1"})
    watched = watch()
    watching(fake)
    eventually(lambda: len(watched.heard) == 2)
    if over_http:
        fake.fault(Answer(410, {"reason": "Gone"}), when=is_watch)
    fake.fault(Stall(gate := threading.Event(), then_work=True), when=is_watch)
    fake.drop_watches()
    fake.remove(MAPS + "/a")
    fake.expire()
    gate.set()
    eventually(lambda: watched.data() == {"b": "1"})
    assert watched.heard[2:] == [(("default", "a"), "1", None)]


def test_a_reset_in_the_middle_of_an_event_loses_nothing(fake: FakeApi, watch: Watch) -> None:
    """The half event is told again after the reconnect; each change is heard exactly once."""
    fake.fault(Reset(events=1), when=is_watch)
    watched = watch()
    watching(fake)
    for number in range(4):
        fake.put(f"{MAPS}/m{number}", data={"x": "1"})
    eventually(lambda: len(watched.store) == 4)
    assert len(watched.heard) == 4
    assert watched.reflector.counts.lists == 1


def test_split_chunks_and_double_delivery_change_nothing(fake: FakeApi, watch: Watch) -> None:
    """Events cut into single bytes, or told twice, are each heard once."""
    fake.fault(Split(1), when=is_watch)
    fake.fault(Twice(), when=is_watch)
    watched = watch()
    watching(fake)
    fake.put(MAPS + "/a", data={"x": "é漢🚀"})
    eventually(lambda: len(watched.heard) == 1)
    fake.drop_watches()
    watching(fake, 2)
    fake.put(MAPS + "/a", data={"x": "2"})
    fake.put(MAPS + "/b", data={"x": "3"})
    eventually(lambda: watched.data() == {"a": "2", "b": "3"})
    fake.remove(MAPS + "/a")
    eventually(lambda: watched.data() == {"b": "3"})
    a, b = ("default", "a"), ("default", "b")
    assert watched.heard == [(a, None, "é漢🚀"), (a, "é漢🚀", "2"), (b, None, "3"), (a, "2", None)]


def test_a_stalled_watch_is_given_up(fake: FakeApi, watch: Watch) -> None:
    """A watch on which nothing arrives, not even bookmarks, is replaced after the read time limit."""
    watched = watch(read_timeout=0.2)
    watching(fake, 2)
    assert watched.reflector.counts.lists == 1
    assert watched.reflector.counts.faults >= 1


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_refusals_are_repeated_with_growing_delays(fake: FakeApi, watch: Watch, status: int) -> None:
    """401, 403, 429 and 5xx: delays of 0.8 s doubling, jittered, until the server has recovered."""
    fake.fault(Answer(status, {"reason": "Nope", "message": "not now"}), times=5)
    watched = watch()
    assert watched.store.wait_synced(60)
    assert len(watched.delays) == 5
    for delay, full in zip(watched.delays, [0.8, 1.6, 3.2, 6.4, 12.8], strict=True):
        assert full / 2 <= delay <= full
    assert watched.reflector.counts.faults == 5


def test_a_list_does_not_wait_as_long_as_the_calls_of_the_outage_before(fake: FakeApi, watch: Watch) -> None:
    """A server that is back and refuses the version is asked for a list at once, not after half a minute."""
    fake.put(MAPS + "/a", data={"x": "1"})
    watched = watch()
    watching(fake)
    fake.fault(Answer(500), when=is_watch, times=7)
    fake.drop_watches()
    watching(fake, 9)  # the first, seven that are refused, and one that works
    assert max(watched.delays) > 12
    fake.expire()
    fake.drop_watches()
    eventually(lambda: watched.reflector.counts.lists == 2)
    assert watched.delays[-1] <= 0.8


def test_a_server_that_cannot_be_reached_is_called_every_few_seconds(fake: FakeApi, watch: Watch) -> None:
    """It restarts; a watch that comes half a minute late leaves a cache that is so old."""
    watched = watch()
    watching(fake)
    fake.fault(Stall(ended := threading.Event()), when=is_watch, times=10**6)
    ended.set()  # each connection is cut without an answer
    fake.drop_watches()
    eventually(lambda: len(watched.delays) >= 9)
    assert watched.delays[4] > 4
    assert max(watched.delays) <= 8


def test_retry_after_is_honoured(fake: FakeApi, watch: Watch) -> None:
    """A 429 with Retry-After waits at least as long as it says."""
    fake.fault(Answer(429, {}, (("Retry-After", "9"),)))
    watched = watch()
    assert watched.store.wait_synced(60)
    assert 9.0 <= watched.delays[0] <= 10.0


def test_retry_after_in_an_error_event_is_honoured_and_the_version_kept(fake: FakeApi, watch: Watch) -> None:
    """An ERROR event that is no 410 is a fault: back off, then watch on without a list."""
    status = b'{"type":"ERROR","object":{"code":429,"details":{"retryAfterSeconds":5}}}'
    fake.fault(Lines((status,)), when=is_watch)
    watched = watch()
    watching(fake, 2)
    assert 5.0 <= watched.delays[0] <= 6.0
    assert watched.reflector.counts.lists == 1


def test_a_missing_collection_is_reported_and_awaited(fake: FakeApi, watch: Watch) -> None:
    """While a CRD is missing the store is not synced and the reason is told; when it comes, all is well."""
    fake.missing.add(ALL)
    watched = watch()
    eventually(lambda: len(watched.delays) >= 2)
    assert not watched.reflector.synced
    assert "404" in (watched.reflector.problem or "")
    fake.missing.clear()
    assert watched.store.wait_synced(60)
    eventually(lambda: watched.reflector.problem is None)


def test_a_right_that_comes_back_is_not_missing_any_more(fake: FakeApi, watch: Watch) -> None:
    """Also when the watch alone was refused and goes on from its version, without another list."""
    watched = watch()
    watching(fake)
    (taken := threading.Event()).set()
    refused = Answer(403, {"reason": "Forbidden"})
    fake.fault(refused, when=lambda request: is_watch(request) and taken.is_set(), times=10**6)
    fake.drop_watches()
    eventually(lambda: watched.reflector.forbidden)
    taken.clear()
    fake.put(MAPS + "/new", data={"x": "1"})
    eventually(lambda: watched.data() == {"new": "1"})
    assert (watched.reflector.forbidden, watched.reflector.counts.lists) == (False, 1)


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":{"metadata":',
        b'{"type":"ADDED","object":{"metadata":7}}',
        b'{"type":"SURPRISE","object":{"metadata":{}}}',
        b'{"type":7,"object":{}}',
        b"[" * 5000,
        b'{"type":"ADDED","object":"\xff"}',
        b'{"type":"ADDED\xff","object":{"metadata":{}}}',
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
    ],
)
def test_an_event_that_is_no_event_lists_again(fake: FakeApi, watch: Watch, line: bytes) -> None:
    """Garbage on the wire is never taken in: the collection is listed again, after a delay."""
    fake.put(MAPS + "/a", data={"x": "1"})
    fake.fault(Lines((line,)), when=is_watch)
    watched = watch()
    eventually(lambda: watched.reflector.counts.lists == 2)
    assert watched.data() == {"a": "1"}
    assert len(watched.delays) == 1
    assert (watched.reflector.counts.expired, watched.reflector.counts.faults) == (1, 0)


def test_an_object_whose_name_cannot_be_read_is_left_out(fake: FakeApi, watch: Watch) -> None:
    """A list with an object whose very name is no text is taken in without it."""
    fake.fault(Answer(200, b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"\xff"}}]}'))
    watched = watch()
    assert watched.store.wait_synced(60)
    assert watched.data() == {}
    counts = watched.reflector.counts
    assert (counts.lists, counts.unreadable, counts.faults) == (1, 1, 0)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"items":[]}', b'{"metadata":{},"items":7}', b"\x00", b"[" * 5000, b'{"metadata":"\xff"}']
)
def test_an_answer_that_is_no_list_is_a_fault(fake: FakeApi, watch: Watch, body: bytes) -> None:
    """A 200 that is no list empties nothing and is asked for again."""
    fake.fault(Answer(200, body))
    watched = watch()
    assert watched.store.wait_synced(60)
    assert watched.reflector.counts.faults == 1


def test_a_server_that_ends_every_watch_at_once_is_not_hammered(fake: FakeApi, watch: Watch) -> None:
    """Watches that end at once without a word are faults with a delay."""
    fake.fault(Lines(()), when=is_watch, times=3)
    watched = watch()
    watching(fake, 4)
    assert len(watched.delays) == 3


def test_one_object_that_cannot_be_read_is_left_out(
    fake: FakeApi, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unreadable object goes out of the store, is counted each time and logged once; the others are unaffected."""
    caplog.set_level(logging.WARNING)
    fake.put(MAPS + "/bad", data="broken")
    fake.put(MAPS + "/good", data={"x": "1"})
    fake.put(MAPS + "/turns", data={"x": "1"})
    watched = watch()
    watching(fake)
    assert watched.data() == {"good": "1", "turns": "1"}
    fake.put(MAPS + "/turns", data="broken")
    fake.put(MAPS + "/turns", data="broken", labels={"a": "b"})
    fake.put(MAPS + "/good", data={"x": "2"})
    eventually(lambda: watched.data() == {"good": "2"})
    assert watched.reflector.counts.unreadable == 3
    told = [record.getMessage() for record in caplog.records]
    assert [message.split()[1] for message in told] == ["default/bad", "default/turns"]
    fake.put(MAPS + "/turns", data={"x": "3"})
    eventually(lambda: watched.data() == {"good": "2", "turns": "3"})
    assert watched.reflector.counts.lists == 1


def test_an_object_that_went_unseen_is_not_left_out_any_more(fake: FakeApi, watch: Watch) -> None:
    """How many are left out is told anew by every list: one that was mended or deleted in between counts no longer."""
    for name in ("bad", "gone", "worse"):
        fake.put(MAPS + f"/{name}", data="broken")
    watched = watch()
    watching(fake)
    assert watched.reflector.left_out == 3
    fake.fault(Stall(gate := threading.Event(), then_work=True), when=is_watch)
    fake.drop_watches()
    watching(fake, 2)  # and it hears nothing before the gate opens
    fake.remove(MAPS + "/gone")
    fake.put(MAPS + "/bad", data={"x": "1"})
    fake.expire()
    gate.set()
    eventually(lambda: watched.data() == {"bad": "1"})
    eventually(lambda: watched.reflector.left_out == 1)


def test_a_projection_that_blows_up_stops_nothing(fake: FakeApi, watch: Watch) -> None:
    """Whatever an object does to the projection (here: a missing field), the watch goes on."""
    watched = watch()
    watching(fake)
    event = b'{"type":"ADDED","object":{"metadata":{"name":"odd","resourceVersion":"100"}}}'
    fake.fault(Lines((event,)), when=is_watch)
    fake.drop_watches()
    watching(fake, 3)
    fake.put(MAPS + "/a", data={"x": "1"})
    eventually(lambda: watched.data() == {"a": "1"})


@pytest.mark.parametrize("where", ["watch", "list", "delay"])
def test_stop_ends_promptly(fake: FakeApi, watch: Watch, where: str) -> None:
    """`stop` returns at once: from a quiet watch, from a list that hangs, and from a delay."""
    held = threading.Event()
    if where == "list":
        fake.fault(Stall(held))
    if where == "delay":
        fake.fault(Answer(500), times=1000)
    watched = watch()
    fake.wait_for(lambda server: len(server.requests) >= (2 if where == "watch" else 1))
    started = time.monotonic()
    watched.reflector.stop()
    assert time.monotonic() - started < PROMPT
    held.set()
    eventually(lambda: not any(thread.name == f"reflector {ALL}" for thread in threading.enumerate()))


def test_a_real_delay_is_cut_short_by_stop(fake: FakeApi, api: KubeClient) -> None:
    """With the default wait, `stop` does not sit out a long Retry-After."""
    fake.fault(Answer(429, {}, (("Retry-After", "60"),)))
    reflector = Reflector(api, ALL, project, new_store())
    reflector.start()
    eventually(lambda: reflector.counts.faults == 1)
    started = time.monotonic()
    reflector.stop()
    assert time.monotonic() - started < PROMPT
    eventually(lambda: not any(thread.name == f"reflector {ALL}" for thread in threading.enumerate()))


def test_refresh_is_cheap_when_the_watch_is_up_to_date(fake: FakeApi, watch: Watch) -> None:
    """A watch that has passed the server's newest version is fresh: nothing is listed."""
    watched = watch()
    watching(fake)
    fake.put(MAPS + "/a", data={"x": "1"})
    eventually(lambda: watched.data() == {"a": "1"})
    assert watched.reflector.refresh(60)
    assert watched.reflector.counts.lists == 1


def test_refresh_compares_a_small_collection_whose_watch_is_quiet(fake: FakeApi, watch: Watch) -> None:
    """One request shows that nothing has changed: the watch goes on and nothing is taken in again."""
    fake.put(MAPS + "/a", data={"x": "1"})
    watched = watch()
    watching(fake)
    fake.advance(10)
    before = len(fake.requests)
    assert watched.reflector.refresh(60)
    assert watched.store.seen >= fake.version
    assert (watched.reflector.counts.lists, len(fake.requests) - before) == (1, 1)


def test_refresh_lists_a_large_collection_whose_watch_is_quiet(fake: FakeApi, watch: Watch) -> None:
    """What does not fit one page is listed again where no event or bookmark proves that it is fresh."""
    for number in range(100):
        fake.put(f"{MAPS}/m{number}", data={"x": "1"})
    watched = watch()
    watching(fake)
    fake.advance(10)
    assert watched.reflector.refresh(60)
    assert watched.reflector.counts.lists == 2
    assert watched.store.seen >= fake.version


@pytest.mark.parametrize("sent", [True, False], ids=["bookmark", "no bookmark"])
def test_refresh_of_a_very_large_collection_is_content_with_a_bookmark(fake: FakeApi, watch: Watch, sent: bool) -> None:
    """A short watch ends with one; it has what was missed as well. Without one the collection is listed again."""
    for number in range(100):
        fake.put(f"{MAPS}/m{number}", data={"x": "1"})
    watched = watch(large=50)
    watching(fake)
    fake.ending_bookmarks = sent
    held = threading.Event()
    fake.fault(Stall(held), when=is_watch)
    fake.drop_watches()
    watching(fake, 2)  # one that says nothing of what happens now
    fake.put(f"{MAPS}/m7", data={"x": "2"})
    fake.advance(10)
    threading.Timer(0.5, held.set).start()
    assert watched.reflector.refresh(60)
    assert watched.store.seen >= fake.version
    assert watched.data()["m7"] == "2"
    assert watched.reflector.counts.lists == (1 if sent else 2)
    if sent:
        watching(fake, 4)  # the next one is as long as any other
        seconds = [int(request.query["timeoutSeconds"]) for request in fake.requests if request.is_watch]
        assert sorted(seconds)[0] == 3
        assert seconds[-1] > 200


def test_refresh_sees_through_a_stalled_watch(fake: FakeApi, watch: Watch) -> None:
    """A replica whose watch hangs does not become leader on stale state."""
    fake.fault(Stall(held := threading.Event()), when=is_watch)
    watched = watch()
    watching(fake)
    fake.put(MAPS + "/a", data={"x": "1"})
    threading.Timer(0.2, held.set).start()
    assert watched.reflector.refresh(60)
    assert watched.data() == {"a": "1"}


def test_refresh_says_no_when_the_server_is_away(fake: FakeApi, watch: Watch) -> None:
    """A refresh that cannot ask, or is not done in time, returns False within its limit."""
    watched = watch()
    watching(fake)
    fake.fault(Answer(500), times=1000)
    assert not watched.reflector.refresh(0.5)
    fake._faults.clear()
    for number in range(100):
        fake.put(f"{MAPS}/m{number}", data={"x": "1"})
    eventually(lambda: len(watched.data()) == 100)
    fake.advance(10)
    fake.fault(Answer(500), when=lambda request: request.query.get("limit") != "1", times=10**6)
    started = time.monotonic()
    assert not watched.reflector.refresh(1.5)
    assert time.monotonic() - started < 1.5 + PROMPT


def test_refresh_does_not_drive_a_list_that_is_refused(fake: FakeApi, api: KubeClient) -> None:
    """An overloaded server that asks for pauses gets them, also when a term begins meanwhile."""
    for number in range(100):
        fake.put(f"{MAPS}/m{number}", data={"x": "1"})
    reflector = Reflector(api, ALL, project, new_store(), large=50)
    reflector.start()
    try:
        watching(fake)
        busy = Answer(429, headers=(("Retry-After", "1"),))
        fake.fault(busy, when=lambda request: not request.is_watch and request.query.get("limit") != "1", times=10**6)
        fake.fault(Answer(410), when=is_watch, times=10**6)
        fake.drop_watches()
        eventually(lambda: "429" in (reflector.problem or ""))
        fake.advance(10)
        before = fake.count("GET", watch=False)
        assert not reflector.refresh(1.5)
        assert fake.count("GET", watch=False) - before < 10
    finally:
        reflector.stop()


def test_an_unauthorized_watch_recovers(kubeconfig: Callable[..., str]) -> None:
    """A token that is not accepted for a while keeps the store as it was."""
    with FakeApi(token="t") as fake:
        api = connect(kubeconfig=kubeconfig(fake.url, token="t"), user_agent="t")
        fake.put(MAPS + "/a", data={"x": "1"})
        watched = Watched(api)
        watched.reflector.start()
        watching(fake)
        fake.token = "other"
        fake.drop_watches()
        eventually(lambda: len(watched.delays) >= 2)
        assert watched.data() == {"a": "1"}
        assert watched.reflector.problem is not None
        fake.token = "t"
        eventually(lambda: watched.reflector.problem is None)
        watched.reflector.stop()


@pytest.mark.parametrize(
    ("path", "projection", "content"),
    [
        ("/apis/scheduling.k8s.io/v1/priorityclasses", objects.priority_class, {"value": 7}),
        ("/apis/node.k8s.io/v1/runtimeclasses", objects.runtime_class, {"handler": "x"}),
        ("/api/v1/resourcequotas", objects.quota, {"spec": {"hard": {"pods": "7"}}}),
    ],
)
def test_what_is_seldom_written_is_compared_too(
    fake: FakeApi, api: KubeClient, path: str, projection: Callable[[Any], Any], content: dict[str, Any]
) -> None:
    """A single record without a version would have its whole collection listed at the start of every term."""
    for name in ("a", "b"):
        fake.put(f"{path}/{name}", **content)
    reflector: Reflector[Any] = Reflector(api, path, projection, Store(key=lambda one: one.name))
    reflector.start()
    try:
        watching(fake)
        fake.advance(10)
        assert reflector.refresh(60)
        assert reflector.counts.lists == 1
    finally:
        reflector.stop()
