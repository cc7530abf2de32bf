"""Evaluates the PromQL that our alerts use, on series in the notation of Prometheus' unit tests.

Parsed by a real parser; of the functions and operators there are those that the alerts need, with Prometheus'
semantics (staleness, extrapolation of `increase`, interpolation of `histogram_quantile`). Anything else raises.
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import promql_parser as promql

STEP: Final = 60.0  # seconds between two samples
STALE: Final = 300.0  # a series without a sample for this long is gone

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

_SERIES = re.compile(r"(\w+)(?:\{(.*)\})?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_VALUES = re.compile(r"(-?[\d.]+)(?:([+-][\d.]+)?x(\d+))?|(_)x?(\d*)")
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_CALCULATE: Final[Mapping[str, Callable[[float, float], float]]] = {
    "-": operator.sub,
    "+": operator.add,
    "*": operator.mul,
    "/": lambda one, other: one / other if other else math.nan,
}
_AGGREGATE: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {"sum": sum, "max": max, "min": min, "count": len}


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels with its name, and (seconds, value) in order."""

    labels: Labels
    samples: tuple[tuple[float, float], ...]

    @classmethod
    def parse(cls, name: str, values: str) -> Series:
        """Read `metric{label="value"}` and `0x10`, `0+5x10`, `3 _ 4`: one value each minute, from 0 on."""
        found = _SERIES.fullmatch(name)
        assert found, name
        labels = frozenset({("__name__", found[1]), *_LABEL.findall(found[2] or "")})
        numbers: list[float | None] = []
        for word in values.split():
            part = _VALUES.fullmatch(word)
            assert part, word
            if part[4]:
                numbers += [None] * int(part[5] or 1)
            else:
                numbers += [float(part[1]) + float(part[2] or 0) * number for number in range(int(part[3] or 0) + 1)]
        return cls(labels, tuple((number * STEP, value) for number, value in enumerate(numbers) if value is not None))


def evaluate(expression: str, series: Iterable[Series], at: float) -> Vector:
    """Return the vector of an expression at a time; a scalar has no labels."""
    found = _Evaluation(tuple(series), at).of(promql.parse(expression))
    return found if isinstance(found, dict) else {frozenset(): found}


def names(expression: str) -> set[str]:
    """Return the metrics that an expression reads. Raises ValueError if it is no PromQL."""
    found: set[str] = set()

    def visit(node: Any) -> bool:
        if isinstance(node, promql.VectorSelector):
            found.add(node.name)
        if isinstance(node, promql.MatrixSelector):
            found.add(node.vector_selector.name)
        return True

    promql.walk(promql.parse(expression), visit)
    return found


@dataclass(frozen=True, slots=True)
class _Evaluation:
    series: tuple[Series, ...]
    at: float

    def of(self, node: Any) -> Vector | float:
        match node:
            case promql.NumberLiteral():
                return float(node.val)
            case promql.ParenExpr():
                return self.of(node.expr)
            case promql.VectorSelector():
                return self._instant(node)
            case promql.AggregateExpr():
                return self._aggregate(node)
            case promql.BinaryExpr():
                return self._binary(node)
            case promql.Call():
                return self._call(node)
        raise NotImplementedError(type(node).__name__)

    def _vector(self, node: Any) -> Vector:
        found = self.of(node)
        assert isinstance(found, dict), f"{node} is a number"
        return found

    def _selected(self, selector: Any) -> list[Series]:
        assert selector.offset is None and selector.at is None
        matchers = selector.matchers.matchers
        return [
            one
            for one in self.series
            if ("__name__", selector.name) in one.labels and all(_matches(dict(one.labels), each) for each in matchers)
        ]

    def _instant(self, selector: Any) -> Vector:
        found: Vector = {}
        for one in self._selected(selector):
            last = bisect_right(one.samples, self.at, key=itemgetter(0)) - 1
            if last >= 0 and one.samples[last][0] > self.at - STALE:
                found[one.labels] = one.samples[last][1]
        return found

    def _aggregate(self, node: Any) -> Vector:
        by = _by(node.modifier)
        groups: defaultdict[Labels, list[float]] = defaultdict(list)
        for labels, value in self._vector(node.expr).items():
            groups[frozenset(label for label in labels if label[0] in by)].append(value)
        function = _AGGREGATE[str(node.op)]
        return {labels: float(function(values)) for labels, values in groups.items()}

    def _binary(self, node: Any) -> Vector | float:
        left, right, sign = self.of(node.lhs), self.of(node.rhs), str(node.op)
        assert not (node.modifier and node.modifier.return_bool), str(node)
        if isinstance(left, float) and isinstance(right, dict):
            assert sign in _CALCULATE, str(node)
            return {_unnamed(labels): _CALCULATE[sign](left, value) for labels, value in right.items()}
        assert isinstance(right, float), str(node)
        if sign in _COMPARE:
            assert isinstance(left, dict), str(node)
            return {labels: value for labels, value in left.items() if _COMPARE[sign](value, right)}
        if isinstance(left, float):
            return _CALCULATE[sign](left, right)
        return {_unnamed(labels): _CALCULATE[sign](value, right) for labels, value in left.items()}

    def _call(self, node: Any) -> Vector | float:
        match node.func.name, list(node.args):
            case "time", []:
                return self.at
            case "absent", [inner]:
                return {} if self._vector(inner) else {frozenset(): 1.0}
            case "increase", [window]:
                return self._increase(window, per_second=False)
            case "rate", [window]:
                return self._increase(window, per_second=True)
            case "max_over_time", [window]:
                return self._largest(window)
            case "histogram_quantile", [promql.NumberLiteral() as share, inner]:
                return _quantile(float(share.val), self._vector(inner))
        raise NotImplementedError(node.func.name)

    def _increase(self, window: Any, *, per_second: bool) -> Vector:
        span: timedelta = window.range
        length = span.total_seconds()
        found: Vector = {}
        for one in self._selected(window.vector_selector):
            samples = [(when, value) for when, value in one.samples if self.at - length < when <= self.at]
            if len(samples) > 1:
                grown = _extrapolated(samples, self.at - length, self.at)
                found[_unnamed(one.labels)] = grown / length if per_second else grown
        return found

    def _largest(self, window: Any) -> Vector:
        begin = self.at - window.range.total_seconds()
        found: Vector = {}
        for one in self._selected(window.vector_selector):
            if values := [value for when, value in one.samples if begin < when <= self.at]:
                found[_unnamed(one.labels)] = max(values)
        return found


def _extrapolated(samples: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """Return the increase of a counter over a range as Prometheus extrapolates it to the ends of the range."""
    (first, low), (last, high) = samples[0], samples[-1]
    resets = sum(before for (_, before), (_, after) in pairwise(samples) if after < before)
    grown = high - low + resets
    sampled, between = last - first, (last - first) / (len(samples) - 1)
    before, after = first - begin, end - last
    if before >= between * 1.1:
        before = between / 2
    if grown > 0 and low >= 0:
        before = min(before, sampled * low / grown)  # a counter began at 0
    if after >= between * 1.1:
        after = between / 2
    return grown * (sampled + before + after) / sampled


def _quantile(share: float, buckets: Vector) -> Vector:
    groups: defaultdict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in buckets.items():
        bound = float(dict(labels)["le"])
        groups[frozenset(label for label in labels if label[0] not in ("le", "__name__"))].append((bound, count))
    return {labels: _within(share, sorted(found)) for labels, found in groups.items()}


def _within(share: float, buckets: Sequence[tuple[float, float]]) -> float:
    assert math.isinf(buckets[-1][0]), "no bucket +Inf"
    rank = share * buckets[-1][1]
    if not buckets[-1][1]:
        return math.nan
    at = next(number for number, (_, count) in enumerate(buckets) if count >= rank)
    if at == len(buckets) - 1:
        return buckets[-2][0]
    low, below = buckets[at - 1] if at else (0.0, 0.0)
    high, count = buckets[at]
    return low + (high - low) * (rank - below) / (count - below)


def _matches(labels: Mapping[str, str], matcher: Any) -> bool:
    value = labels.get(matcher.name, "")
    match str(matcher.op):
        case "MatchOp.Equal":
            return bool(value == matcher.value)
        case "MatchOp.NotEqual":
            return bool(value != matcher.value)
        case "MatchOp.Re":
            return re.fullmatch(matcher.value, value) is not None
        case "MatchOp.NotRe":
            return re.fullmatch(matcher.value, value) is None
    raise NotImplementedError(str(matcher))


def _by(modifier: Any) -> set[str]:
    if modifier is None:
        return set()
    assert str(modifier.type).endswith("By"), "without(...)"
    return set(modifier.labels)


def _unnamed(labels: Labels) -> Labels:
    return frozenset(label for label in labels if label[0] != "__name__")
