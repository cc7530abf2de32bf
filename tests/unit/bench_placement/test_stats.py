"""Intervals against values worked out by hand."""

import math

import pytest

from bench.placement.stats import interval, paired, t95


def test_the_interval_of_a_textbook_sample() -> None:
    """Mean 3, standard deviation sqrt(2.5), t(4) = 2.776: half width 2.776 * sqrt(2.5 / 5)."""
    found = interval([1, 2, 3, 4, 5])
    assert found.mean == 3
    assert found.half == pytest.approx(1.963, abs=1e-3)
    assert found.certain


def test_pairs_take_out_what_both_share() -> None:
    """A constant advantage is certain, however far the seeds are apart."""
    found = paired([1, 101, 1001], [2, 102, 1002])
    assert (found.low, found.high, found.certain) == (-1, -1, True)


def test_one_pair_says_nothing() -> None:
    """The interval is infinite, and nothing is certain."""
    assert not paired([1], [2]).certain


def test_pairs_must_be_pairs() -> None:
    """Another number of seeds is a fault of the caller."""
    with pytest.raises(ValueError, match="shorter"):
        paired([1, 2], [1])


def test_relative_to_nothing_is_no_number() -> None:
    """A peer without any excess has no share to compare with."""
    assert math.isnan(interval([1, 2]).relative(0).mean)


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.706), (9, 2.262), (30, 2.042), (40, 2.021), (120, 1.980)])
def test_quantiles_of_student(freedom: int, value: float) -> None:
    """From the published table."""
    assert t95(freedom) == pytest.approx(value, abs=1e-3)
