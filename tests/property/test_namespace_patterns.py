"""Patterns of namespaces against all short names."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from engine.policy.patterns import covers, first_for_all, matches, overlap

# Two letters, and a third that no pattern contains: it stands for all others.
NAMES = ["".join(letters) for length in range(7) for letters in product("abc", repeat=length)]
patterns = st.text(alphabet="ab*", min_size=1, max_size=4)


def names_of(pattern: str) -> set[str]:
    return {name for name in NAMES if matches(name, [pattern])}


@given(one=patterns, other=patterns)
def test_a_pattern_covers_another_if_it_matches_all_of_its_names(one: str, other: str) -> None:
    """Compared with every name of up to six letters."""
    assert covers(one, other) == (names_of(other) <= names_of(one))


@given(one=patterns, other=patterns)
def test_patterns_overlap_if_a_name_matches_both(one: str, other: str) -> None:
    """Two patterns of four characters have a common name of at most eight; six are enough as wildcards may be empty."""
    assert overlap(one, other) == overlap(other, one)
    assert overlap(one, other) or not names_of(one) & names_of(other)
    if max(len(one), len(other)) <= 3:
        assert overlap(one, other) == bool(names_of(one) & names_of(other))


@given(pattern=patterns, entries=st.lists(st.lists(patterns, min_size=1, max_size=2), max_size=4))
def test_the_first_entry_for_a_pattern_is_the_first_for_each_of_its_names(
    pattern: str, entries: list[list[str]]
) -> None:
    """What is said of a pattern holds for every namespace that it matches."""
    found = first_for_all(pattern, entries)
    for name in names_of(pattern) if found is not None else ():
        assert next(index for index, one in enumerate(entries) if matches(name, one)) == found
