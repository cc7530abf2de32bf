"""The search for the fewest gangs to move, on numbers alone."""

from __future__ import annotations

import pytest

from engine.preemption.move_search import (
    FoundMoves,
    MoveCost,
    NoPlace,
    NoRoom,
    OutOfPlansError,
    SlotNeed,
    choose_moves,
)

A, B, C, D = (MoveCost(key, pods, lost) for key, pods, lost in (("a", 1, 10), ("b", 1, 5), ("c", 2, 1), ("d", 3, 1)))
NEED = SlotNeed(2, {0: 0, 1: 0}, {0: {"a": {0: 1}, "b": {1: 1}}, 1: {"d": {2: 1, 3: 1}}})
NOTHING = SlotNeed(0, {}, {})


class Attempts:
    """Answers by set of gangs, NoRoom for any other; the sets that were tried."""

    def __init__(self, answers: dict[str, str | NoPlace]) -> None:
        self._answers = answers
        self.tried: list[str] = []

    def __call__(self, keys: tuple[str, ...]) -> str | NoRoom | NoPlace:
        self.tried.append("".join(keys))
        return self._answers.get("".join(keys), NoRoom())


def found(attempts: Attempts, need: SlotNeed = NEED, most: int = 3) -> FoundMoves[str] | None:
    return choose_moves([A, B, C, D], need, attempts, most_gangs=most)


def test_one_gang_comes_before_two_with_fewer_pods() -> None:
    """A restart disturbs a team, however small the gang is."""
    attempts = Attempts({"ab": "two", "d": "one"})
    assert found(attempts) == FoundMoves(("d",), "one", proven=True)


def test_sets_that_cannot_free_enough_are_not_planned() -> None:
    """The bound knows that neither of two gangs is enough alone, and that a third one is elsewhere."""
    attempts = Attempts({"ab": "two"})
    assert found(attempts) == FoundMoves(("a", "b"), "two", proven=True)
    assert attempts.tried == ["d", "ab"]


def test_gangs_that_may_not_restart_together_are_not_planned() -> None:
    """Nor with others; the next choice is the best one of those that may."""
    need = SlotNeed(2, {0: 0}, {0: {key: {host: 1} for host, key in enumerate("abc")}})
    attempts = Attempts({"bc": "two"})
    apart = lambda keys: not {"a", "b"} <= set(keys)  # noqa: E731
    done = choose_moves([A, B, C, D], need, attempts, most_gangs=3, together=apart)
    assert done == FoundMoves(("b", "c"), "two", proven=True)
    assert attempts.tried == ["bc"]


def test_of_as_many_gangs_and_pods_the_younger_moves() -> None:
    """The least running time is lost."""
    need = SlotNeed(1, {0: 0}, {0: {"a": {0: 1}, "b": {1: 1}, "c": {2: 1}}})
    attempts = Attempts({"a": "old", "b": "young", "c": "more pods"})
    assert found(attempts, need) == FoundMoves(("b",), "young", proven=True)


def test_a_gang_in_the_way_of_a_moved_one_moves_too() -> None:
    """A chain; that no fewer are enough is not proven, as the moved one may have a place that was not tried."""
    beside = SlotNeed(1, {5: 0}, {5: {"c": {9: 1}}})
    attempts = Attempts({"d": NoPlace(beside), "cd": "chain"})
    assert found(attempts) == FoundMoves(("c", "d"), "chain", proven=False)


def test_a_gang_that_could_not_have_a_place_is_no_start_of_a_chain() -> None:
    """All gangs that may still be moved free too little for it."""
    beside = SlotNeed(2, {5: 0}, {5: {"c": {9: 1}}})
    attempts = Attempts({"d": NoPlace(beside), "cd": "chain"})
    assert found(attempts) is None
    assert "cd" not in attempts.tried


def test_two_gangs_on_one_host_are_counted_once() -> None:
    """Half a host each: together they free one slot, and not two."""
    need = SlotNeed(2, {0: 0}, {0: {"a": {0: 1}, "b": {0: 1}, "c": {1: 1}}})
    attempts = Attempts({"abc": "three"})
    assert found(attempts, need) == FoundMoves(("a", "b", "c"), "three", proven=True)
    assert "ab" not in attempts.tried


def test_no_more_gangs_move_than_are_allowed() -> None:
    """Two would be enough."""
    attempts = Attempts({"ab": "two"})
    assert found(attempts, most=1) is None
    assert found(attempts, most=0) is None


def test_a_gang_that_may_not_be_moved_is_in_no_set() -> None:
    """The need names all gangs that are in the way, also those that stay."""
    attempts = Attempts({"ab": "two"})
    assert choose_moves([A, C, D], NEED, attempts, most_gangs=3) is None


def test_a_search_without_plans_left_finds_nothing() -> None:
    """The attempts count them."""

    def attempt(keys: tuple[str, ...]) -> str | NoRoom | NoPlace:
        raise OutOfPlansError

    assert choose_moves([A, B], NEED, attempt, most_gangs=2) is None


def test_very_many_sets_are_tried_in_part_and_nothing_is_proven() -> None:
    """Bounded work: 60 gangs with one slot each, of which four are needed."""
    keys = [f"gang-{number:02}" for number in range(60)]
    need = SlotNeed(4, {0: 0}, {0: {key: {number: 1} for number, key in enumerate(keys)}})
    answers = choose_moves([MoveCost(key, 1, 0.0) for key in keys], need, "".join, most_gangs=4)
    assert answers is not None
    assert not answers.proven


@pytest.mark.parametrize("need", [NOTHING, SlotNeed(1, {0: 0}, {})])
def test_without_a_gang_in_the_way_nothing_moves(need: SlotNeed) -> None:
    """No domain is large enough, or what is in the way is none of the gangs."""
    attempts = Attempts({})
    assert found(attempts, need) is None
    assert not attempts.tried
