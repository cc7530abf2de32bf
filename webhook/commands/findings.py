"""Prints findings: a line for each in the colour of its result, the remedy below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from webhook.checks.text import FindingText

FORMATS: Final = ("table", "json", "yaml")
_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}
Command = TypeVar("Command", bound=Callable[..., Any])


def format_option(command: Command) -> Command:
    """Add `-o`."""
    return click.option("-o", "--output", default="table", show_default=True, type=click.Choice(FORMATS))(command)


def print_findings(found: Iterable[FindingText], after: Iterable[str]) -> None:
    """Print findings, then the lines after them; colours on a terminal only."""
    from webhook.queries.tables import clean

    for one in found:
        first, *more = (clean(line) for line in one.lines)
        click.echo(click.style(first[: len(one.result)], fg=_COLOURS[one.result]) + first[len(one.result) :])
        for line in more:
            click.echo(line)
    for line in after:
        click.echo(clean(line))
