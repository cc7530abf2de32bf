from __future__ import annotations

import logging
import threading
from collections.abc import Hashable
from dataclasses import dataclass

import pytest

from engine.cluster import store as store_module
from engine.cluster.store import Store


@dataclass(frozen=True)
class Thing:
    name: str
    uid: str
    resource_version: str
    owner: str | None = None
    namespace: str = ""


def thing(name: str, version: int | str, *, uid: str = "", owner: str | None = None) -> Thing:
    return Thing(name, uid or f"uid-{name}", str(version), owner)


def version_of(item: Thing | None) -> str | None:
    return None if item is None else item.resource_version


class Heard(list[tuple[Hashable, str | None, str | None]]):
    def __call__(self, key: Hashable, old: Thing | None, new: Thing | None) -> None:
        self.append((key, version_of(old), version_of(new)))


@pytest.fixture
def store() -> Store[Thing]:
    return Store(lambda item: item.name, index=lambda item: item.owner)


@pytest.fixture
def heard(store: Store[Thing]) -> Heard:
    listener = Heard()
    store.subscribe(listener)
    return listener


def test_a_list_replaces_everything_and_tells_the_difference(store: Store[Thing], heard: Heard) -> None:
    """New, changed and missing objects are told; an unchanged one is not, and keeps its record."""
    store.replace([thing("a", 1), thing("b", 2), thing("c", 3)], resource_version="5")
    kept = store.get("a")
    heard.clear()
    store.replace([thing("a", 1), thing("b", 7), thing("d", 8)], resource_version="9")
    assert sorted(heard, key=str) == [("b", "2", "7"), ("c", "3", None), ("d", None, "8")]
    assert store.get("a") is kept
    assert len(store) == 3
    assert store.seen == 9


def test_records_are_found_by_their_second_key(store: Store[Thing]) -> None:
    """The index follows every way in and out, and holds nothing of what is gone."""
    store.replace([thing("a", 1, owner="x"), thing("b", 1, owner="x"), thing("c", 1)], resource_version="1")
    assert {item.name for item in store.get_by("x")} == {"a", "b"}
    store.apply("MODIFIED", thing("a", 2, owner="y"))
    store.apply("ADDED", thing("d", 3, owner="x"))
    store.apply("DELETED", thing("b", 4, owner="x"))
    assert [item.name for item in store.get_by("x")] == ["d"]
    assert [item.name for item in store.get_by("y")] == ["a"]
    store.apply_own_write(thing("c", 9, owner="y"))
    store.discard("", "a")
    assert [item.name for item in store.get_by("y")] == ["c"]
    store.replace([thing("d", 5, owner="z")], resource_version="9")
    assert store.get_by("x") == store.get_by("y") == []
    assert store.get_by(None) == []


def test_records_are_found_by_a_finer_key_too() -> None:
    """Beside the first one, and of records that have only one of them."""
    store: Store[Thing] = Store(
        lambda item: item.name,
        index=lambda item: item.owner,
        finer=lambda item: (item.owner, item.namespace) if item.namespace else None,
    )
    store.replace([thing("a", 1, owner="x"), Thing("b", "b", "1", "x", "n")])
    assert [item.name for item in store.get_by(("x", "n"))] == ["b"]
    store.apply("MODIFIED", Thing("b", "b", "2", "x", "m"))
    assert (store.get_by(("x", "n")), [item.name for item in store.get_by(("x", "m"))]) == ([], ["b"])
    assert {item.name for item in store.get_by("x")} == {"a", "b"}
    store.apply("DELETED", Thing("b", "b", "3", "x", "m"))
    assert (store.get_by(("x", "m")), [item.name for item in store.get_by("x")]) == ([], ["a"])


def test_an_own_write_is_seen_at_once_and_told_once(store: Store[Thing], heard: Heard) -> None:
    """What a write answered is there for the next decision; its own watch event changes nothing more."""
    store.replace([thing("a", 1)], resource_version="1")
    heard.clear()
    store.apply_own_write(thing("a", 5))
    assert store.get("a") == thing("a", 5)
    store.apply("MODIFIED", thing("a", 3))
    assert store.get("a") == thing("a", 5)
    store.apply("MODIFIED", thing("a", 5))
    store.apply("MODIFIED", thing("a", 6))
    assert heard == [("a", "1", "5"), ("a", "5", "6")]


def test_versions_are_compared_as_numbers(store: Store[Thing]) -> None:
    """9 is older than 10."""
    store.apply_own_write(thing("a", 10))
    store.apply("ADDED", thing("a", 9))
    assert store.get("a") == thing("a", 10)


def test_versions_that_are_no_numbers_are_never_older(store: Store[Thing]) -> None:
    """Opaque versions: the watch is right."""
    store.apply("ADDED", thing("a", "zz"))
    store.apply("MODIFIED", thing("a", "aa"))
    assert store.get("a") == thing("a", "aa")
    store.apply("MODIFIED", thing("a", "²"))
    assert store.get("a") == thing("a", "²")


def test_an_answer_that_the_watch_has_overtaken_is_dropped(store: Store[Thing]) -> None:
    """A write's answer never replaces something newer."""
    store.apply("ADDED", thing("a", 7))
    store.apply_own_write(thing("a", 5))
    assert store.get("a") == thing("a", 7)


def test_an_answer_does_not_raise_the_dead(store: Store[Thing]) -> None:
    """An object whose deletion was told does not come back by the late answer of a write."""
    store.apply("ADDED", thing("a", 1))
    store.apply("DELETED", thing("a", 9))
    store.apply_own_write(thing("a", 5))
    assert store.get("a") is None
    store.replace([], resource_version="20")
    store.apply_own_write(thing("b", 15))
    assert store.get("b") is None


def test_a_deletion_counts_whatever_was_written_meanwhile(store: Store[Thing]) -> None:
    """An object that leaves the watch's selector is deleted at an older version than our last write of it."""
    store.apply("ADDED", thing("a", 1))
    store.apply_own_write(thing("a", 9))
    store.apply("DELETED", thing("a", 5))
    assert store.get("a") is None


def test_a_deletion_of_the_predecessor_leaves_the_successor(store: Store[Thing]) -> None:
    """The late deletion of an object of the same name, another uid, takes nothing away."""
    store.apply_own_write(thing("a", 9, uid="new"))
    store.apply("DELETED", thing("a", 5, uid="old"))
    assert store.get("a") == thing("a", 9, uid="new")


def test_a_recreated_object_replaces_its_predecessor(store: Store[Thing], heard: Heard) -> None:
    """Versions are compared within one uid only."""
    store.apply("ADDED", thing("a", 9, uid="old"))
    store.apply("ADDED", thing("a", 5, uid="new"))
    assert store.get("a") == thing("a", 5, uid="new")


def test_a_list_that_is_older_than_our_write_does_not_take_it_back(store: Store[Thing], heard: Heard) -> None:
    """An object that we created or changed after the list was made stays as we wrote it."""
    store.replace([thing("a", 1)], resource_version="1")
    store.apply_own_write(thing("a", 12))
    store.apply_own_write(thing("b", 13))
    heard.clear()
    store.replace([thing("a", 1)], resource_version="10")
    assert store.get("a") == thing("a", 12)
    assert store.get("b") == thing("b", 13)
    assert heard == []
    store.replace([thing("a", 12)], resource_version="20")
    assert store.get("b") is None


def test_a_write_that_the_watch_never_shows_goes_with_the_bookmark(store: Store[Thing], heard: Heard) -> None:
    """What we wrote out of the watch's selector does not stay for ever."""
    store.replace([], resource_version="1")
    store.apply_own_write(thing("a", 5))
    store.bookmark("4")
    assert store.get("a") is not None
    store.bookmark("5")
    assert store.get("a") is None
    assert heard == [("a", None, "5"), ("a", "5", None)]


def test_a_list_of_exactly_what_is_held_is_taken_for_news_of_its_version(store: Store[Thing], heard: Heard) -> None:
    """Nobody is told anything; a write of ours that the list shows is confirmed and stays."""
    store.replace([thing("a", 1)], resource_version="1")
    store.apply_own_write(thing("b", 5))
    held = {(one.uid, one.resource_version) for one in store.values()}
    told = list(heard)
    assert store.confirm(held, "7")
    assert (store.seen, heard) == (7, told)
    store.bookmark("8")
    assert store.get("b") is not None


@pytest.mark.parametrize("others", [set(), {("uid-a", "1")}, {("uid-a", "2")}])
def test_a_list_of_anything_else_proves_nothing(store: Store[Thing], others: set[tuple[str, str]]) -> None:
    """More, fewer, or other versions: the store is as old as it was."""
    store.replace([thing("a", 1), thing("b", 1)], resource_version="1")
    assert not store.confirm(others, "7")
    assert store.seen == 1


def test_a_restored_cluster_is_believed(store: Store[Thing]) -> None:
    """A list from before what we have seen (a restored etcd) wins over our writes."""
    store.replace([], resource_version="100")
    store.apply_own_write(thing("a", 101))
    store.replace([thing("b", 40)], resource_version="50")
    assert [item.name for item in store.values()] == ["b"]
    assert store.seen == 50


def test_subscribers_may_write_and_are_told_in_order(store: Store[Thing]) -> None:
    """A subscriber that writes does not lock itself out, and everybody hears changes in their order."""
    told: list[tuple[Hashable, str | None]] = []

    def writes(key: Hashable, old: Thing | None, new: Thing | None) -> None:
        if key == "a" and new is not None and new.resource_version == "1":
            store.apply_own_write(thing("a", 2))
            store.apply_own_write(thing("b", 3))
            assert store.get("b") is not None

    store.subscribe(writes)
    store.subscribe(lambda key, old, new: told.append((key, version_of(new))))
    store.apply("ADDED", thing("a", 1))
    assert told == [("a", "1"), ("a", "2"), ("b", "3")]


def test_a_subscriber_that_fails_stops_nobody(store: Store[Thing], caplog: pytest.LogCaptureFixture) -> None:
    """An exception is logged; the other subscribers hear the change."""

    def fails(key: Hashable, old: Thing | None, new: Thing | None) -> None:
        raise RuntimeError("boom")

    store.subscribe(fails)
    heard = Heard()
    store.subscribe(heard)
    with caplog.at_level(logging.ERROR):
        store.apply("ADDED", thing("a", 1))
    assert heard == [("a", None, "1")]
    assert "boom" in caplog.text


def test_a_slow_subscriber_blocks_no_reader_and_no_writer(store: Store[Thing]) -> None:
    """While a subscriber works, others read and write; what they write is told after it, in order."""
    entered, gate = threading.Event(), threading.Event()
    heard = Heard()

    def slow(key: Hashable, old: Thing | None, new: Thing | None) -> None:
        entered.set()
        gate.wait(10)

    store.subscribe(slow)
    store.subscribe(heard)
    thread = threading.Thread(target=store.apply, args=("ADDED", thing("a", 1)))
    thread.start()
    assert entered.wait(5)
    store.apply("ADDED", thing("b", 2))
    assert {item.name for item in store.values()} == {"a", "b"}
    assert heard == []
    gate.set()
    thread.join(5)
    assert heard == [("a", None, "1"), ("b", None, "2")]


def test_many_writers_lose_and_repeat_nothing(store: Store[Thing]) -> None:
    """Eight threads at once: every change is told exactly once, and per object in order."""
    heard = Heard()
    store.subscribe(heard)

    def work(name: str) -> None:
        for version in range(1, 201):
            store.apply("MODIFIED", thing(name, version))

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(heard) == 1600
    for number in range(8):
        versions = [int(new or 0) for key, _, new in heard if key == f"t{number}"]
        assert versions == list(range(1, 201))


def test_waiting_ends_when_the_version_is_seen(store: Store[Thing]) -> None:
    """`wait_synced` and `wait_seen` wake up, and give up in time."""
    assert not store.wait_synced(0.01)
    threading.Timer(0.05, lambda: store.replace([], resource_version="7")).start()
    assert store.wait_synced(5)
    assert store.wait_seen(7, 0)
    assert not store.wait_seen(8, 0.01)
    threading.Timer(0.05, lambda: store.apply("ADDED", thing("a", 8))).start()
    assert store.wait_seen(8, 5)


def test_age_counts_from_the_last_word_of_the_watch() -> None:
    """The age metric: infinite at first, then since the last event, bookmark or list."""
    now = [0.0]
    store: Store[Thing] = Store(lambda item: item.name, clock=lambda: now[0])
    assert store.age == float("inf")
    store.replace([])
    now[0] = 30.0
    assert store.age == 30.0
    store.bookmark("4")
    assert store.age == 0.0


def test_the_memory_of_deletions_is_bounded(store: Store[Thing], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the latest deletions are remembered."""
    monkeypatch.setattr(store_module, "TOMBSTONES", 10)
    for number in range(50):
        store.apply("DELETED", thing(f"t{number}", number + 1))
    assert len(store._tombstones) == 10


def test_a_writer_can_wait_until_subscribers_know_its_change(store: Store[Thing]) -> None:
    """Another thread may be telling them: until it has, a decision on what they know would be one on the past."""
    telling, go_on = threading.Event(), threading.Event()
    known: list[str] = []

    def slow(_key: object, _old: object, new: Thing | None) -> None:
        telling.set()
        go_on.wait(10.0)
        assert new is not None
        known.append(new.name)

    store.subscribe(slow)
    reflector = threading.Thread(target=lambda: store.apply("ADDED", thing("a", 1)))
    reflector.start()
    telling.wait(10.0)
    store.apply_own_write(thing("b", 2))
    assert not store.wait_delivered(0.01)
    assert not store.wait_seen(1, 0.01)
    go_on.set()
    assert store.wait_delivered(10.0)
    assert known == ["a", "b"]
    assert store.wait_seen(1, 10.0)
    reflector.join(10.0)
