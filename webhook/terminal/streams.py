"""The standard streams where they cannot be used as they are: closed, on a disk that is full, of few characters."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

import click


def replace_closed() -> None:
    """Discard what is printed on a stream that the caller has closed (`>&-`): Python has None in its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the program runs


def escape_unknown() -> None:
    """Escape the characters that standard output does not have (in Latin-1, say) as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Discard what is still to be printed on standard output: Python would fail to do so at its end, and say so."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_data(text: str) -> None:
    """Print JSON or YAML: in UTF-8 wherever it goes, as programs expect it."""
    click.echo(text.encode(), nl=False)


def print_last(text: str) -> None:
    """Print the last words of a program on standard error, if that is possible."""
    with suppress(OSError):
        click.echo(text, err=True)
