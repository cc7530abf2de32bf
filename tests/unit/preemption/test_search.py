"""The search of victims among more gangs than it may make plans."""

from __future__ import annotations

from engine.preemption.search import MAX_PLANS, Preemptible, choose_victims


def test_few_of_many_gangs_end() -> None:
    """Thousands may be preempted and eight are enough: never all of them for want of plans."""
    candidates = [Preemptible(f"gang-{one:04}", 0, 1, 0.0, frozenset({one % 4})) for one in range(4_000)]
    asked: list[int] = []

    def plan(gone: frozenset[str]) -> str | None:
        asked.append(len(gone))
        domains = [int(key[-4:]) % 4 for key in gone]
        return "fits" if any(domains.count(one) >= 8 for one in range(4)) else None

    found = choose_victims(candidates, plan, quality=lambda _: ())
    assert found is not None
    assert (len(found.gangs), found.plan, found.proven) == (8, "fits", False)
    assert len({next(iter(one.domains)) for one in found.gangs}) == 1
    assert len(asked) <= MAX_PLANS


def test_a_search_that_runs_out_of_plans_keeps_what_it_has_given_back() -> None:
    """Every second gang is needed, which takes more plans than there are."""
    candidates = [Preemptible(f"gang-{number:04}", 0, 1, 0.0, frozenset({0})) for number in range(1_000)]
    needed = {one.key for one in candidates[::2]}
    found = choose_victims(candidates, lambda gone: "fits" if needed <= gone else None, quality=lambda _: ())
    assert found is not None
    assert needed <= {one.key for one in found.gangs}
    assert len(found.gangs) < len(candidates)
