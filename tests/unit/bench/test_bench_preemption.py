"""The benchmark of the search for victims measures what it names."""

from __future__ import annotations

from bench import decisions, preemption
from engine.api import names
from engine.gang.key import placed_key


def test_every_waiting_gang_is_measured_beside_a_plan_and_a_plain_search() -> None:
    """The leader's search finds no more victims than the plain one, and says of few gangs that none are better."""
    rows = {row["waiting"]: row for row in preemption.measure(16, seeds=1)}
    assert list(rows) == list(preemption.WAITING)
    for row in rows.values():
        assert row["ms"] > 0
        assert row["plain plans"] == row["gangs"] + 1
        assert row["plans"] >= 1
        assert row["victims"][0] is not None
        assert row["victims"][0] <= row["plain victims"][0]
    assert rows["4 hosts, require rack"]["proven"] == 1


def test_above_a_number_of_gangs_the_plain_search_is_left_out() -> None:
    """Its plans would take minutes."""
    (row, *_) = preemption.measure(16, seeds=1, most_plain=10)
    assert row["plain plans"] is None
    assert row["plain victims"] == []


def test_both_searches_leave_the_cluster_as_it_was() -> None:
    """It is full before and after, and the same search finds as many victims again."""
    state, count = preemption.cluster(12, seed=0)
    gang = decisions.submitted(state, "urgent", 4, {names.REQUIRE: "rack"}, priority_class=preemption.URGENT.name)

    def reserved() -> dict[str, int]:
        return {plan.name: sum(state.capacity.reserved(placed_key(plan)).values()) for plan in state.gangs.plans()}

    before = reserved()
    assert len(before) == count >= 12
    first = preemption.leaders(state, gang)
    preemption.plain(state, gang)
    assert preemption.leaders(state, gang).victims == first.victims
    assert reserved() == before
