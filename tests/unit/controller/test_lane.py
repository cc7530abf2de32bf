"""What is done for gangs when nothing else is: at its time, a few at a time."""

from __future__ import annotations

from engine.controller.term import DeferredQueue


def lane(*keys: str, due: float = 0.0) -> DeferredQueue[str]:
    made: DeferredQueue[str] = DeferredQueue(batch=2, every=1.0)
    for number, key in enumerate(keys):
        made.put(key, key.upper(), due=due + number)
    return made


def test_nothing_goes_before_its_time() -> None:
    made = lane("a", due=5.0)
    assert made.take(4.9, busy=()) == []
    assert made.next(busy=()) == 5.0
    assert made.take(5.0, busy=()) == [("a", "A")]
    assert len(made) == 0


def test_so_many_go_in_so_many_seconds() -> None:
    """The longest due first; the others when the lane opens again."""
    made = lane("a", "b", "c")
    assert [key for key, _ in made.take(10.0, busy=())] == ["a", "b"]
    assert made.take(10.9, busy=()) == []
    assert made.next(busy=()) == 11.0
    assert [key for key, _ in made.take(11.0, busy=())] == ["c"]


def test_what_is_exchanged_keeps_its_place() -> None:
    """Numbers that change all the time are written all the same; the newest of them."""
    made = lane("a", "b", "c")
    made.put("a", "newer", due=9.0)
    assert made.take(10.0, busy=()) == [("a", "newer"), ("b", "B")]


def test_the_busy_wait_for_their_turn_and_wake_nobody() -> None:
    """The end of their write does."""
    made = lane("a")
    assert made.take(10.0, busy={"a"}) == []
    assert made.next(busy={"a"}) is None
    assert made.take(10.0, busy=()) == [("a", "A")]


def test_what_is_taken_out_is_gone() -> None:
    made = lane("a")
    made.drop("a")
    made.drop("b")
    assert made.next(busy=()) is None
    assert made.take(10.0, busy=()) == []
