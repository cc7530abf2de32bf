"""Answers as tables: plain columns in a pipe, and with colours on a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_GAP: Final = "  "
_FOLDED: Final = 30  # the least width of a column that is broken into lines


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; `right`: numbers. `folds`: text that is broken on a narrow terminal, never cut.

    `optional`: left out where no row has a value.
    """

    heading: str
    right: bool = False
    folds: bool = False
    optional: bool = False


def clean(text: str) -> str:
    """Return text for one line or cell: what cannot be printed becomes a space, so that nothing moves the cursor."""
    return "".join(char if char.isprintable() else " " for char in text)


def filled(columns: Sequence[TableColumn], rows: Iterable[Sequence[str]]) -> tuple[list[TableColumn], list[list[str]]]:
    """Return the table without the optional columns that are empty."""
    cells = [[clean(cell) for cell in row] for row in rows]
    kept = [place for place, one in enumerate(columns) if not one.optional or any(row[place] for row in cells)]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in cells]


def as_text(columns: Sequence[TableColumn], rows: Iterable[Sequence[str]]) -> str:
    """Return the table in plain columns, without a final newline."""
    columns, found = filled(columns, rows)
    cells = [[column.heading for column in columns], *found]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]

    def padded(line: Sequence[str]) -> str:
        places = zip(columns, line, widths, strict=True)
        return _GAP.join(cell.rjust(width) if column.right else cell.ljust(width) for column, cell, width in places)

    return "\n".join(padded(line).rstrip() for line in cells)


def as_table(columns: Sequence[TableColumn], rows: Iterable[Sequence[str]], *, styles: Sequence[str] = ()) -> Table:
    """Return the table for a terminal; `styles`: of each row, "" for none."""
    from rich.table import Table
    from rich.text import Text

    columns, found = filled(columns, rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=not column.folds,
            overflow="fold" if column.folds else "ellipsis",
        )
    for place, row in enumerate(found):
        style = styles[place] if place < len(styles) else ""
        table.add_row(*(Text(cell, style=style) for cell in row))
    return table


def least_width(columns: Sequence[TableColumn], rows: Iterable[Sequence[str]]) -> int:
    """Return the width at which nothing is cut: lines may be longer than a terminal's, as kubectl's are."""
    columns, found = filled(columns, rows)
    cells = [[column.heading for column in columns], *found]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    least = [min(width, _FOLDED) if one.folds else width for one, width in zip(columns, widths, strict=True)]
    return sum(least) + len(_GAP) * len(columns)


def console_of(least: int) -> Console:
    """Return a console for a table: as wide as the terminal, and at least so wide that nothing is cut."""
    from rich.console import Console

    size = shutil.get_terminal_size()
    # With a height too: else rich takes 80 columns where TERM is dumb, and cuts what is longer.
    return Console(highlight=False, width=max(size.columns, least), height=size.lines)


def number(value: int | None) -> str:
    """Return a number; `?` for one that is not known."""
    return "?" if value is None else f"{value:,}"


def span(seconds: float) -> str:
    """Return a time span as kubectl shows ages: `45s`, `12m`, `3h20m`, `2d4h`."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:  # noqa: PLR2004 - kubectl's own bounds
        return f"{whole}s"
    if minutes < 120:  # noqa: PLR2004
        return f"{minutes}m"
    if hours < 48:  # noqa: PLR2004
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
