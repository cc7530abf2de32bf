"""The search of victims among more gangs than it may make plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.planner.tree import Bools
from engine.preemption.search import MAX_PLANS, Preemptible, Scope, SearchLimits, choose_victims


class Anything:
    """Room that excludes nothing: everything is left to the planner."""

    def fits(self, gone: Bools) -> bool:
        return True

    def reachable(self, gone: Bools, rest: Bools, more: int) -> bool:
        return True


class AtLeast(Anything):
    """Room without so many gangs."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fits(self, gone: Bools) -> bool:
        return bool(gone.sum() >= self.number)

    def reachable(self, gone: Bools, rest: Bools, more: int) -> bool:
        return bool(gone.sum() + min(more, rest.sum()) >= self.number)


def gangs(number: int, priority: int = 0) -> list[Preemptible]:
    return [Preemptible(f"gang-{one:04}", priority, 1, float(one)) for one in range(number)]


@pytest.mark.parametrize("counted", [True, False])
def test_few_of_many_gangs_end(counted: bool) -> None:
    """Thousands may be preempted and eight are enough: never all of them for want of plans."""
    candidates = gangs(4_000)
    asked: list[int] = []

    def plan(gone: frozenset[str]) -> str | None:
        asked.append(len(gone))
        domains = [int(key[-4:]) % 4 for key in gone]
        return "fits" if any(domains.count(one) >= 8 for one in range(4)) else None

    room = AtLeast(8) if counted else Anything()
    scopes = [Scope([one for one in candidates if int(one.key[-4:]) % 4 == rack], room) for rack in range(4)]
    limits = SearchLimits(seconds=60.0)
    found = choose_victims(scopes, plan, quality=lambda _: (), limits=limits)
    assert found is not None
    assert (len(found.gangs), found.plan) == (8, "fits")
    assert len({int(one.key[-4:]) % 4 for one in found.gangs}) == 1
    assert len(asked) <= MAX_PLANS
    if counted:
        assert found.proven
        assert [one.key for one in found.gangs] == [f"gang-{one:04}" for one in range(0, 32, 4)]
        assert max(asked) == 8
        assert len(asked) < 10


def test_a_search_that_runs_out_of_plans_keeps_what_it_has_given_back() -> None:
    """Every second gang is needed, which takes more plans than there are."""
    candidates = gangs(1_000)
    needed = {one.key for one in candidates[::2]}
    found = choose_victims(
        [Scope(candidates, Anything())], lambda gone: "fits" if needed <= gone else None, quality=lambda _: ()
    )
    assert found is not None
    assert needed <= {one.key for one in found.gangs}
    assert len(found.gangs) < len(candidates)
    assert not found.proven


def test_where_counting_shows_no_room_nothing_is_planned() -> None:
    """Not even without all gangs."""

    def plan(gone: frozenset[str]) -> str | None:
        raise AssertionError(gone)

    assert choose_victims([Scope(gangs(1_000), AtLeast(1_001))], plan, quality=lambda _: ()) is None


def test_a_search_ends_with_its_time() -> None:
    """With the best victims that it has, and not proven."""
    now = 0.0

    def plan(gone: frozenset[str]) -> str | None:
        nonlocal now
        now += 0.2
        return "fits" if len(gone) >= 3 and "gang-0019" in gone else None

    limits = SearchLimits(seconds=1.0, clock=lambda: now)
    found = choose_victims([Scope(gangs(20), AtLeast(2))], plan, quality=lambda _: (), limits=limits)
    assert now <= 1.5
    assert found is not None
    assert not found.proven
    assert "gang-0019" in {one.key for one in found.gangs}


def test_gangs_of_two_scopes_end_together_where_only_both_suffice() -> None:
    """Each scope has room, and the planner refuses it for a reason that reaches farther."""
    candidates = gangs(3)
    scopes = [Scope(candidates[:2], AtLeast(1)), Scope(candidates[2:], AtLeast(1))]
    found = choose_victims(
        scopes,
        lambda gone: "fits" if len(gone) == 3 else None,
        quality=lambda _: (),
        whole=Scope(candidates, Anything()),
    )
    assert found is not None
    assert (len(found.gangs), found.proven) == (3, True)


def test_a_set_is_found_that_is_enough_where_all_gangs_together_are_not() -> None:
    """Its pods must be near those of a gang that stays; that no better set exists is not claimed."""
    first, *others = gangs(4)
    scopes = [Scope([first, *(replace(one, priority=1) for one in others)], AtLeast(2))]

    def plan(gone: frozenset[str]) -> str | None:
        return "fits" if "gang-0000" not in gone and len(gone) >= 2 else None

    assert choose_victims(scopes, plan, quality=lambda _: ()) is None
    found = choose_victims(scopes, plan, quality=lambda _: (), monotone=False)
    assert found is not None
    assert [one.key for one in found.gangs] == ["gang-0001", "gang-0002"]
    assert not found.proven


def test_gangs_that_may_not_end_together_are_not_chosen_together() -> None:
    scopes = [Scope(gangs(4), AtLeast(2))]

    def together(gone: frozenset[str]) -> bool:
        return not {"gang-0000", "gang-0001"} <= gone

    found = choose_victims(scopes, lambda gone: "fits", quality=lambda _: (), together=together)
    assert found is not None
    assert [one.key for one in found.gangs] == ["gang-0000", "gang-0002"]
    assert not found.proven
