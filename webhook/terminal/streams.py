"""The standard streams where they cannot be used: closed by the caller, or on a disk that is full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click


def replace_closed() -> None:
    """Discard what is printed on a stream that the caller has closed (`>&-`): Python has None in its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the program runs


def print_last(text: str) -> None:
    """Print the last words of a program on standard error, if that is possible."""
    with suppress(OSError):
        click.echo(text, err=True)
