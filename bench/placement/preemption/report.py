"""Tables of the runs with priorities: what preemption changes, ours beside the best peer, and every number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.placement.preemption.records import Record, Setting
from bench.placement.preemption.rules import (
    AT_ONCE,
    CONSOLIDATES,
    KAI_STAYS,
    MOVES,
    MOVES_YOUNG,
    NEVER,
    PEERS,
    STAY,
    YOUNG,
)
from bench.placement.report import Column, table
from bench.placement.rules import OURS
from bench.placement.stats import Change, interval, paired


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 10 else f"{value:.1f} s"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _number(value: float) -> str:
    return f"{value:.1f}"


def _racks(value: float) -> str:
    return f"{value:.2f}"


HIGH_MEAN = Column("high_mean", "high, mean wait", _seconds, -1)
HIGH_GANGS = Column("high_gang_mean", "high gangs, mean wait", _seconds, -1)
HIGH_P95 = Column("high_p95", "high, p95 wait", _seconds, -1)
NORMAL_MEAN = Column("normal_mean", "normal, mean delay", _seconds, -1)
LOW_MEAN = Column("low_mean", "low, mean delay", _seconds, -1)
LOW_P95 = Column("low_p95", "low, p95 delay", _seconds, -1)
LOST = Column("lost", "GPU time lost", lambda value: f"{value:.2%}", -1)
RESTARTS = Column("restarts", "gangs restarted", _number, -1)
EXCESS = Column("excess_racks", "excess racks", _racks, -1)
HIGH_EXCESS = Column("high_excess_racks", "excess racks, high", _racks, -1)
USEFUL = Column("useful", "useful", _percent, 1)

COLUMNS = (
    HIGH_MEAN,
    Column("high_median", "high, median", _seconds, -1),
    HIGH_P95,
    HIGH_GANGS,
    NORMAL_MEAN,
    LOW_MEAN,
    Column("low_median", "low, median", _seconds, -1),
    LOW_P95,
    LOST,
    Column("preemptions", "preemptions", _number, 0),
    RESTARTS,
    Column("moved", "moved at once", _number, 0),
    Column("broken", "half ended", _number, -1),
    EXCESS,
    HIGH_EXCESS,
    Column("in_use", "in use", _percent, 0),
    USEFUL,
)
GANG_WAIT = Column("gang_wait_mean", "gangs, mean wait", _seconds, -1)
GANG_WAIT_P95 = Column("gang_wait_p95", "gangs, p95 wait", _seconds, -1)
GANG_DELAY = Column("gang_delay_mean", "gangs, mean delay", _seconds, -1)
MEAN_DELAY = Column("mean_delay", "all, mean delay", _seconds, -1)
MOVED = Column("moved", "gangs moved", _number, 0)
MOVE_COLUMNS = (
    GANG_WAIT,
    GANG_WAIT_P95,
    GANG_DELAY,
    MEAN_DELAY,
    MOVED,
    LOST,
    EXCESS,
    Column("in_use", "in use", _percent, 0),
    USEFUL,
)
MOVE_COMPARED = (GANG_WAIT, GANG_WAIT_P95, GANG_DELAY, MEAN_DELAY, EXCESS, USEFUL)
MOVE_PAIRS = ((MOVES, STAY), (MOVES_YOUNG, STAY), (CONSOLIDATES, KAI_STAYS))
GAINED = (HIGH_MEAN, HIGH_GANGS, HIGH_P95, NORMAL_MEAN, LOW_MEAN, USEFUL)
COMPARED = (LOST, RESTARTS, NORMAL_MEAN, LOW_MEAN, LOW_P95, HIGH_EXCESS, EXCESS, USEFUL)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two schedulers by one number in one setting; `change` is the first minus the second, seed by seed."""

    setting: Setting
    column: Column
    first: str
    other: str
    mean: float
    other_mean: float
    change: Change

    @property
    def verdict(self) -> str:
        """better, worse or even."""
        return self.column.verdict(self.change)

    @property
    def cell(self) -> str:
        """Both means and the change, in bold if the first is better, in italics if it is worse."""
        show = self.column.show
        mark = {"better": "**", "even": "", "worse": "_"}[self.verdict]
        name = f" ({self.other})" if self.other in PEERS else ""
        return f"{show(self.mean)} vs {show(self.other_mean)}{name}: {mark}{self.change_text}{mark}"

    @property
    def change_text(self) -> str:
        """Percentage points for shares, else per cent of the other's mean."""
        if self.column in (USEFUL, LOST):
            return f"{self.change.mean * 100:+.2f} ± {self.change.half * 100:.2f} points"
        relative = self.change.relative(self.other_mean)
        return "-" if math.isnan(relative.mean) else f"{relative.mean * 100:+.0f} ± {relative.half * 100:.0f} %"


def settings(records: Iterable[Record]) -> list[Setting]:
    """In the order of their first record."""
    return list(dict.fromkeys(record.setting for record in records))


def values(records: Iterable[Record], setting: Setting, scheduler: str, column: Column) -> list[float]:
    """One number per seed, by seed."""
    found = sorted((r for r in records if r.setting == setting and r.scheduler == scheduler), key=lambda r: r.seed)
    return [float(getattr(record.outcome, column.attribute)) for record in found]


def pair(records: Sequence[Record], setting: Setting, column: Column, first: str, other: str) -> Pair | None:
    """Two schedulers on the same seeds; None where one has no such number."""
    ours, theirs = (values(records, setting, name, column) for name in (first, other))
    if not ours or not theirs or math.isnan(sum(ours) + sum(theirs)):
        return None
    change = paired(ours, theirs)
    return Pair(setting, column, first, other, sum(ours) / len(ours), sum(theirs) / len(theirs), change)


def best_peer(records: Sequence[Record], setting: Setting, column: Column, ours: str = AT_ONCE) -> Pair | None:
    """Ours without a delay beside the peer with the best mean of this number."""
    found = [one for peer in PEERS if (one := pair(records, setting, column, ours, peer)) is not None]
    return min(found, key=lambda one: -column.better * one.other_mean, default=None)


def comparisons(records: Sequence[Record]) -> list[Pair]:
    """Every compared number of every setting with preemption, beside the best peer."""
    found = (best_peer(records, setting, column) for setting in with_classes(records) for column in COMPARED)
    return [one for one in found if one is not None]


def with_classes(records: Iterable[Record]) -> list[Setting]:
    """The settings with priority classes."""
    return [setting for setting in settings(records) if setting.high]


def with_moves(records: Iterable[Record]) -> list[Setting]:
    """The settings in which gangs may be moved."""
    return [setting for setting in settings(records) if not setting.high]


def gained_table(records: Sequence[Record]) -> str:
    """A line per setting: with preemption beside without."""
    lines = [(s.title, [pair(records, s, column, OURS, NEVER) for column in GAINED]) for s in with_classes(records)]
    return _pairs_table(GAINED, lines)


def peers_table(records: Sequence[Record]) -> str:
    """Lines per setting: ours without a delay, and with young victims only, beside the best peer for each number."""
    lines = [
        (f"{s.title}: {ours}", [best_peer(records, s, column, ours) for column in COMPARED])
        for s in with_classes(records)
        for ours in (AT_ONCE, YOUNG)
    ]
    return _pairs_table(COMPARED, lines)


def moves_table(records: Sequence[Record]) -> str:
    """Lines per setting: each scheduler that moves gangs beside itself without moves."""
    lines = [
        (f"{s.title}: {first}", [pair(records, s, column, first, other) for column in MOVE_COMPARED])
        for s in with_moves(records)
        for first, other in MOVE_PAIRS
    ]
    return _pairs_table(MOVE_COMPARED, lines)


def means_table(records: Sequence[Record], setting: Setting) -> str:
    """A line per scheduler with the mean of every number; the lost time with its interval."""
    rows = []
    columns = COLUMNS if setting.high else MOVE_COLUMNS
    for name in setting.schedulers:
        cells = []
        for column in columns:
            numbers = values(records, setting, name, column)
            if not numbers or math.isnan(sum(numbers)):
                cells.append("-")
                continue
            mean = interval(numbers)
            spread = f" ± {mean.half * 100:.2f}" if column is LOST and math.isfinite(mean.half) and mean.mean else ""
            cells.append(column.show(mean.mean) + spread)
        if any(cell != "-" for cell in cells):
            rows.append([name, *cells])
    return table(["", *(column.title for column in columns)], rows)


def _pairs_table(columns: Sequence[Column], lines: Iterable[tuple[str, Sequence[Pair | None]]]) -> str:
    rows = [[title, *("-" if one is None else one.cell for one in line)] for title, line in lines]
    return table(["", *(column.title for column in columns)], rows)
