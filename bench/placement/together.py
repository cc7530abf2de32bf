"""Several settings taken together: small differences that are noise in each of them and no longer are in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from bench.placement.report import COMPARED, FIRST, Column, Comparison, compare, settings, table, values
from bench.placement.rules import OURS
from bench.placement.runs import Record, Setting
from bench.placement.stats import Change, interval

NEAR_FULL = 0.9  # load from which waiting is more than a matter of a few gangs


def together(records: Sequence[Record], scenarios: Iterable[Sequence[str]]) -> str:
    """A table with a line per group of scenarios: their best-effort settings, and those of them near saturation."""
    rows = []
    for names in scenarios:
        among = [one for one in settings(records) if one.scenario in names and not one.strict]
        near = [one for one in among if one.load >= NEAR_FULL]
        for title, group in ((", all loads", among), (f", load {NEAR_FULL:g} and more", near)):
            if len(group) > 1:
                cells = [_cell(pooled(records, group, column), column) for column in COMPARED]
                rows.append([f"{' and '.join(names)}{title}", *cells])
    return table(["", *(column.title for column in COMPARED)], rows)


def pooled(records: Sequence[Record], group: Iterable[Setting], column: Column) -> Change | None:
    """The mean over the settings of our difference to the best peer of each, by seed, as a share of that peer's mean.

    Of a share, the difference itself. Settings in which the peer has nothing to compare with (0) are left out; None
    without any other, or when the settings have not the same number of seeds.
    """
    by_setting = []
    for setting in group:
        found = compare(records, setting, column)
        if found is not None and (column is FIRST or found.theirs):
            by_setting.append(_differences(records, found))
    if not by_setting or len({len(one) for one in by_setting}) > 1:
        return None
    return interval([fmean(of_seed) for of_seed in zip(*by_setting, strict=True)])


def _differences(records: Sequence[Record], found: Comparison) -> list[float]:
    ours, theirs = (values(records, found.setting, rule, found.column.attribute) for rule in (OURS, found.peer))
    base = 1.0 if found.column is FIRST else abs(found.theirs)
    return [(a - b) / base for a, b in zip(ours, theirs, strict=True)]


def _cell(change: Change | None, column: Column) -> str:
    if change is None:
        return "-"
    digits = 1 if column is FIRST else 0
    unit = "points" if column is FIRST else "%"
    told = f"{change.mean * 100:+.{digits}f} ± {change.half * 100:.{digits}f} {unit}"
    mark = "" if not change.certain else "**" if change.mean * column.better > 0 else "_"
    return f"{mark}{told}{mark}"
