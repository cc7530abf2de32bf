"""Paired comparison of two rules over the same seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

# Two-sided 95 % quantiles of Student's t for 1 .. 30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """Mean of the differences of pairs, and how far to both sides its 95 % confidence interval goes."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half

    @property
    def certain(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0

    def relative(self, base: float) -> Change:
        """As a share of `base`; NaN when that is zero."""
        if not base:
            return Change(math.nan, math.nan)
        return Change(self.mean / abs(base), self.half / abs(base))


def interval(values: Sequence[float]) -> Change:
    """Mean and 95 % confidence interval; infinitely wide for a single value. Raises ValueError without any."""
    if not values:
        raise ValueError("values: none")
    if len(values) == 1:
        return Change(values[0], math.inf)
    return Change(fmean(values), t95(len(values) - 1) * stdev(values) / math.sqrt(len(values)))


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Change:
    """`interval` of ours minus theirs, seed by seed. Raises ValueError when they are not pairs."""
    return interval([a - b for a, b in zip(ours, theirs, strict=True)])


def t95(freedom: int) -> float:
    """Two-sided 95 % quantile; beyond 30 degrees the series 1.960 + 2.372/f + 2.82/f^2, right to three digits."""
    if freedom < 1:
        raise ValueError("freedom: at least two pairs are needed")
    return _T95[freedom - 1] if freedom <= len(_T95) else 1.960 + 2.372 / freedom + 2.82 / freedom**2
