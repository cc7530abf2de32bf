from __future__ import annotations

import pytest

from engine.api.rank import count_ranks, format_ranks, join_ranks, parse_ranks


def test_ranges_and_their_text() -> None:
    """`0-3,8` is the ranks 0, 1, 2, 3 and 8."""
    assert parse_ranks("0-3,8") == ((0, 3), (8, 8))
    assert format_ranks(((0, 3), (8, 8))) == "0-3,8"
    assert parse_ranks("") == ()
    assert format_ranks(()) == ""


def test_neighbours_are_joined_in_text() -> None:
    """Ranges in any order come out ascending, and neighbours become one."""
    assert format_ranks(((8, 9), (0, 1), (2, 3))) == "0-3,8-9"


def test_overlaps_are_joined() -> None:
    """A rank that stands in two ranges is one rank."""
    assert join_ranks(((0, 5), (2, 3), (5, 8))) == ((0, 8),)


def test_a_range_is_never_expanded() -> None:
    """Two thousand million ranks cost as much as one."""
    assert count_ranks(parse_ranks("0-2147483647")) == 2**31


@pytest.mark.parametrize(
    "text",
    [
        *("a", "1-", "-1", "1--2", "3-1", "1,1", "0-3,2", "5,1", "1,", ",", " 1", "1 ", "+1", "1e3"),
        *("٣", "0-2147483648", "99999999999"),
    ],
)
def test_refuses_what_is_no_list_of_ascending_ranges(text: str) -> None:
    """Reversed, overlapping, unbounded and malformed ranges are errors."""
    with pytest.raises(ValueError, match="rank"):
        parse_ranks(text)
