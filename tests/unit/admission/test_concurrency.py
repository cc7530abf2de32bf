"""Which reviews compute and which wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.support.eventually import eventually
from webhook.admission.concurrency import ReviewSlots

LONG = 10.0  # seconds until a test gives up


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as running:
        yield running


class Held:
    """A turn that a thread of its own holds, stepping aside when told to."""

    def __init__(
        self, turns: ReviewSlots, pool: ThreadPoolExecutor, log: list[str] | None = None, name: str = ""
    ) -> None:
        self.has, self.done, self.waits = threading.Event(), threading.Event(), threading.Event()
        self.aside: bool | None = None

        def hold() -> None:
            with turns.turn():
                if log is not None:
                    log.append(name)
                self.has.set()
                self.waits.wait(LONG)
                if not self.done.is_set():
                    with turns.released(name) as self.aside:
                        self.done.wait(LONG)

        self.future: Future[None] = pool.submit(hold)

    def step_aside(self) -> None:
        self.waits.set()
        eventually(lambda: self.aside is not None)

    def end(self) -> None:
        self.done.set()
        self.waits.set()
        self.future.result(LONG)


def test_turns_are_handed_on_in_the_order_of_asking(pool: ThreadPoolExecutor) -> None:
    """No more than the count at a time."""
    turns, log = ReviewSlots(1), []
    first = Held(turns, pool, log, "first")
    assert first.has.wait(LONG)
    others = []
    for name in ("second", "third", "fourth"):
        others.append(Held(turns, pool, log, name))
        eventually(lambda: len(turns._queue) == len(others))
    assert log == ["first"]
    for one in (first, *others):
        one.end()
    assert log == ["first", "second", "third", "fourth"]


def test_who_waits_gives_his_turn_to_the_next(pool: ThreadPoolExecutor) -> None:
    """And has it again at once, when he need not wait any more, although others hold all of them."""
    turns = ReviewSlots(1)
    first, second = Held(turns, pool), Held(turns, pool)
    assert first.has.wait(LONG)
    first.step_aside()
    assert second.has.wait(LONG)
    first.end()
    second.end()
    third = Held(turns, pool)
    assert third.has.wait(LONG)
    third.end()


def test_more_who_waited_come_back_than_there_are_turns(pool: ThreadPoolExecutor) -> None:
    """The next newcomer comes when all of them are through."""
    turns = ReviewSlots(1)
    waiting = []
    for _ in range(3):
        waiting.append(Held(turns, pool))
        assert waiting[-1].has.wait(LONG)
        waiting[-1].step_aside()
    assert turns._free == 1
    for one in waiting:
        one.end()
    assert turns._free == 1


@pytest.mark.parametrize(
    ("waiting", "namespace", "may"),
    [(["a"], "a", True), (["a", "a"], "a", False), (["a", "a"], "b", True), (["a", "b", "c", "d"], "e", False)],
    ids=["below the share", "above the share", "of another namespace", "no place at all"],
)
def test_places_are_bounded_for_all_and_for_each_namespace(
    pool: ThreadPoolExecutor, waiting: list[str], namespace: str, may: bool
) -> None:
    """Half of them at most are one namespace's; whoever finds none keeps his turn."""
    turns = ReviewSlots(2, places=4)
    seated = [Held(turns, pool, name=name) for name in waiting]
    for one in seated:
        assert one.has.wait(LONG)
        one.step_aside()
    assert all(one.aside for one in seated)
    with turns.turn(), turns.released(namespace) as granted:
        assert granted is may
        assert turns._free == (2 if may else 1)
    for one in seated:
        one.end()
    assert (turns._free, dict(turns._waiting)) == (2, {})


def test_who_has_no_turn_does_not_wait() -> None:
    """A thread of another sort must not wait for what clients can hold back, and gives nothing back."""
    turns = ReviewSlots(1)
    with turns.released("a") as granted:
        assert not granted
    assert turns._free == 1


def test_a_review_that_fails_gives_back_what_it_holds() -> None:
    """Turn and place, whatever was raised."""
    turns = ReviewSlots(1, places=2)

    def fail() -> None:
        with turns.turn(), turns.released("a"):
            raise RuntimeError

    for _ in range(3):
        with pytest.raises(RuntimeError):
            fail()
    assert (turns._free, dict(turns._waiting)) == (1, {})
