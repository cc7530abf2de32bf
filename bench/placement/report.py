"""Tables: every rule's means, and ours beside the best peer with confidence intervals, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.placement.rules import OURS
from bench.placement.runs import NAMES, ORACLE, Record, Setting
from bench.placement.stats import Change, interval, paired


@dataclass(frozen=True, slots=True)
class Column:
    """A number of `Measured` in a table; `better` is -1 when less is better, 1 when more is, 0 when it is only told."""

    attribute: str
    title: str
    show: Callable[[float], str]
    better: int

    def verdict(self, change: Change) -> str:
        """better, worse, or even: the 95 % interval of the change holds zero."""
        if not change.certain:
            return "even"
        return "better" if change.mean * self.better > 0 else "worse"


def _seconds(value: float) -> str:
    return f"{value:,.0f} s"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _number(value: float) -> str:
    return f"{value:.3f}"


EXCESS = Column("excess_racks", "excess racks", _number, -1)
FIRST = Column("first_try", "first try", _percent, 1)
WAIT = Column("wait_mean", "mean wait", _seconds, -1)
WHOLE = Column("whole_racks", "whole racks free", lambda value: f"{value:.2f}", 1)
GANG_WAIT = Column("gang_wait_p95", "p95 wait of gangs", _seconds, -1)

COLUMNS = (
    EXCESS,
    Column("excess_hosts", "excess hosts", _number, -1),
    Column("optimal", "optimal", _percent, 1),
    FIRST,
    WAIT,
    GANG_WAIT,
    WHOLE,
    Column("stranded", "stranded", _percent, 0),
    Column("utilisation", "in use", _percent, 0),
)
COMPARED = (EXCESS, FIRST, WAIT, GANG_WAIT, WHOLE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours beside the peer with the best mean; `change` is ours minus theirs, seed by seed."""

    setting: Setting
    column: Column
    peer: str
    ours: float
    theirs: float
    change: Change

    @property
    def verdict(self) -> str:
        """better, worse or even."""
        return self.column.verdict(self.change)

    @property
    def told(self) -> str:
        """The change with its interval: percentage points for shares, else per cent of the peer's mean."""
        if self.column is FIRST:
            return f"{self.change.mean * 100:+.1f} ± {self.change.half * 100:.1f} points"
        relative = self.change.relative(self.theirs)
        return "-" if math.isnan(relative.mean) else f"{relative.mean * 100:+.0f} ± {relative.half * 100:.0f} %"


def settings(records: Iterable[Record]) -> list[Setting]:
    """In the order of their first record."""
    return list(dict.fromkeys(record.setting for record in records))


def values(records: Iterable[Record], setting: Setting, rule: str, attribute: str) -> list[float]:
    """One number per seed, by seed."""
    found = sorted((r for r in records if r.setting == setting and r.rule == rule), key=lambda record: record.seed)
    return [float(getattr(record.measured, attribute)) for record in found]


def compare(records: Sequence[Record], setting: Setting, column: Column) -> Comparison | None:
    """Ours beside the best peer; None without either."""
    means = {}
    for rule in NAMES:
        numbers = values(records, setting, rule, column.attribute)
        if numbers and not math.isnan(sum(numbers)):
            means[rule] = sum(numbers) / len(numbers)
    peers = [rule for rule in means if rule not in (OURS, ORACLE)]
    if OURS not in means or not peers:
        return None
    peer = min(peers, key=lambda rule: -column.better * means[rule])
    change = paired(*(values(records, setting, rule, column.attribute) for rule in (OURS, peer)))
    return Comparison(setting, column, peer, means[OURS], means[peer], change)


def comparisons(records: Sequence[Record]) -> list[Comparison]:
    """All that the goals are about."""
    found = (compare(records, setting, column) for setting in settings(records) for column in COMPARED)
    return [comparison for comparison in found if comparison is not None]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = [_row(header), _row(["---", *["---:"] * (len(header) - 1)]), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def comparison_table(found: Iterable[Comparison]) -> str:
    """A line per setting: for each compared number the best peer, and how far we are from it."""
    by_setting: dict[Setting, list[Comparison]] = {}
    for comparison in found:
        by_setting.setdefault(comparison.setting, []).append(comparison)
    rows = []
    for setting, line in by_setting.items():
        cells = {comparison.column: _cell(comparison) for comparison in line}
        rows.append([setting.title, *(cells.get(column, "-") for column in COMPARED)])
    return table(["", *(column.title for column in COMPARED)], rows)


def means_table(records: Sequence[Record], setting: Setting) -> str:
    """A line per rule with the mean of every number; excess racks with its interval."""
    rows = []
    for rule in NAMES:
        cells = []
        for column in COLUMNS:
            numbers = values(records, setting, rule, column.attribute)
            if not numbers or math.isnan(sum(numbers)):
                cells.append("-")
                continue
            mean = interval(numbers)
            spread = f" ± {mean.half:.3f}" if column is EXCESS and math.isfinite(mean.half) else ""
            cells.append(column.show(mean.mean) + spread)
        if any(cell != "-" for cell in cells):
            rows.append([rule, *cells])
    return table(["", *(column.title for column in COLUMNS)], rows)


def _cell(comparison: Comparison) -> str:
    show = comparison.column.show
    numbers = f"{show(comparison.ours)} vs {show(comparison.theirs)} ({comparison.peer})"
    mark = {"better": "**", "even": "", "worse": "_"}[comparison.verdict]
    return f"{numbers}: {mark}{comparison.told}{mark}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
