"""The benchmark of decisions measures what it names."""

from __future__ import annotations

from bench import decisions


def test_every_decision_is_measured_beside_placed_gangs() -> None:
    """Where no gang is kept apart all are placed; the exclusive and the spread gangs there keep racks from others."""
    rows = {row["decision"]: row for row in decisions.measure(hosts=256, pods=2, rounds=4)}
    assert list(rows) == list(decisions.DECISIONS)
    assert all(row["us"] > 0 and row["ratio"] > 0 and row["placed"] > 10 for row in rows.values())
    assert all(rows[name]["answer"] == "placed" for name in ("plain", "balanced", "spread"))


def test_a_change_takes_the_slots_of_a_gang_and_gives_them_back() -> None:
    """Every second one restores the cluster."""
    there = decisions.cluster(128, apart=True)

    def reserved() -> int:
        capacity = there.state.capacity
        return sum(sum(capacity.reserved(key).values()) for key, _ in there.placed)

    before = reserved()
    there.change()
    assert there.gone is not None
    assert reserved() < before
    there.change()
    assert (there.gone, reserved()) == (None, before)
