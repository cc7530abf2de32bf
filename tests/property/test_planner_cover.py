"""The cover of one level against all subsets."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner.cover import NEVER, best_last, cover, cover_of, fewest, fewest_of, tightest

values_and_count = st.tuples(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 60))


def _smallest(values: list[int], count: int) -> int:
    sizes = (n for n in range(len(values) + 1) if any(sum(some) >= count for some in combinations(values, n)))
    return next(sizes, NEVER)


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=6), min_size=1, max_size=5),
    st.integers(1, 40),
    st.sampled_from([1, 2**24]),
)
@settings(max_examples=300, deadline=None)
def test_fewest_of_each_segment(segments: list[list[int]], count: int, unit: int) -> None:
    """No subset of a segment that covers is smaller than `fewest` says, and one of that size exists; at any scale."""
    values = np.array([value * unit for segment in segments for value in segment], dtype=np.int64)
    starts = np.cumsum([0, *(len(segment) for segment in segments[:-1])])
    assert fewest(values, starts, count * unit).tolist() == [_smallest(segment, count) for segment in segments]


@given(values_and_count)
@settings(max_examples=500, deadline=None)
def test_the_tightest_cover_leaves_least(case: tuple[list[int], int]) -> None:
    """Of the covers with the fewest members none leaves less than the tightest one, and no member is taken twice."""
    values, count = sorted(case[0], reverse=True), case[1]
    pick = _smallest(values, count)
    if pick == NEVER:
        return
    least = min(sum(some) for some in combinations(values, pick) if sum(some) >= count)
    chosen = tightest(values, pick, count)
    assert len(set(chosen)) == pick
    assert sum(values[i] for i in chosen) == least


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 900))
@settings(max_examples=300, deadline=None)
def test_covers_of_any_size_cover(sizes: list[int], count: int) -> None:
    """Beyond the window of the subset sum the covers still have the fewest members, each once, and reach the count."""
    values = sorted(sizes, reverse=True)
    pick = int(fewest(np.array(values, dtype=np.int64), np.zeros(1, dtype=np.int64), count)[0])
    if pick == NEVER:
        return
    for chosen in (tightest(values, pick, count), best_last(values, pick, count)):
        assert len(set(chosen)) == pick
        assert count <= sum(values[i] for i in chosen) <= sum(values[:pick])


@given(values_and_count, st.sampled_from([1, 2**24]))
@settings(max_examples=300, deadline=None)
def test_what_a_smallest_cover_can_be_made_of(case: tuple[list[int], int], unit: int) -> None:
    """`cover` knows the fewest members and a value that no member of such a cover is below, at any scale."""
    values, count = [value * unit for value in case[0]], case[1] * unit
    pick, least = cover(np.array(values, dtype=np.int64), count)
    assert pick == _smallest(values, count)
    assert (pick, least) == cover_of(Counter(values), count)
    covers = [some for some in combinations(values, pick) if sum(some) >= count] if pick != NEVER else []
    assert all(min(some) >= least for some in covers)


@given(st.lists(st.integers(0, 300), min_size=90, max_size=110), st.integers(1, 30_000))
@settings(max_examples=200, deadline=None)
def test_one_segment_counts_as_many_do(values: list[int], count: int) -> None:
    """A single segment, large or small, needs as many as `fewest` says."""
    array = np.array(values, dtype=np.int64)
    assert fewest_of(array, count) == fewest(array, np.zeros(1, dtype=np.int64), count)[0]
