"""Divisions of a minimum among pod sets against filtering all numbers of pods."""

from __future__ import annotations

from itertools import product

from hypothesis import event, given
from hypothesis import strategies as st

from engine.planner.gang import divisions


@st.composite
def numbers_of_pods(draw: st.DrawFn) -> range:
    """From the minimum of a pod set to its count, in slices."""
    low, step = draw(st.integers(0, 5)), draw(st.sampled_from([1, 1, 2, 3, 4, 7]))
    return range(low, low + step * draw(st.integers(0, 5)) + 1, step)


@given(st.lists(numbers_of_pods(), min_size=1, max_size=4), st.integers(0, 60))
def test_as_good_as_filtering_all_numbers(ranges: list[range], needed: int) -> None:
    """Exactly the numbers that are enough, and of which none could be one slice lower, are listed, in order."""
    expected = [
        numbers
        for numbers in product(*ranges)
        if sum(numbers) >= needed
        and all(
            number == one.start or sum(numbers) - one.step < needed for number, one in zip(numbers, ranges, strict=True)
        )
    ]
    event(f"divisions: {min(len(expected), 10)}")
    assert list(divisions(ranges, needed)) == expected
