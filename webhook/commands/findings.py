"""Prints findings: a line for each in the colour of its result, the remedy below it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from webhook.terminal.tables import clean

if TYPE_CHECKING:
    from webhook.checks.text import FindingText

_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}


def print_findings(found: Iterable[FindingText], after: Iterable[str]) -> None:
    """Print findings, then the lines after them; with colours on a terminal that has them, without NO_COLOR."""
    coloured = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"  # as the tables, which rich prints
    for one in found:
        first, *more = (clean(line) for line in one.lines)
        result = first[: len(one.result)]
        click.echo((click.style(result, fg=_COLOURS[one.result]) if coloured else result) + first[len(one.result) :])
        for line in more:
            click.echo(line)
    for line in after:
        click.echo(clean(line))
