"""The waiting of the cluster tests."""

from __future__ import annotations

import pytest

from tests.support.eventually import eventually


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_it_returns_the_first_true_answer() -> None:
    """Not yet, not yet (an assertion), then the answer itself."""
    answers = iter([0, AssertionError("two"), [3]])

    def condition() -> object:
        answer = next(answers)
        if isinstance(answer, AssertionError):
            raise answer
        return answer

    clock = Clock()
    assert eventually(condition, clock=clock, sleep=clock.sleep) == [3]


def test_its_failure_says_what_was_wanted_and_what_was_seen() -> None:
    """Message, time and last answer or assertion; the message may look for itself."""
    clock = Clock()
    with pytest.raises(AssertionError, match=r"4 pods: not within 5\.0 s; last answer: \[\]"):
        eventually(lambda: [], timeout=5, message="4 pods", clock=clock, sleep=clock.sleep)

    def condition() -> bool:
        raise AssertionError("phase is Pending")

    with pytest.raises(AssertionError, match=r"looked: not within .*; last assertion: phase is Pending"):
        eventually(condition, timeout=1, message=lambda: "looked", clock=clock, sleep=clock.sleep)


def test_a_fault_is_not_waited_for() -> None:
    """Any other exception ends the wait at once."""
    with pytest.raises(KeyError):
        eventually(lambda: dict[str, int]()["absent"])
