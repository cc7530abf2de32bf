"""Asks a cluster: connects, reads it with progress on standard error, again and again with `--watch`."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import click

from webhook.terminal.options import ClusterOptions, fail, print_model, print_remarks, print_sections

if TYPE_CHECKING:
    from types import TracebackType

    from pydantic import BaseModel

    from webhook.snapshot.connection import Caller
    from webhook.snapshot.snapshot import Snapshot
    from webhook.terminal.text import TextPart

SILENT_FOR: Final = 2.0  # seconds; nobody wonders about a command that answers sooner
NOT_INSTALLED: Final = (
    "this cluster has no placements.topogate.dev (CustomResourceDefinition): Topogate is not installed there"
)


class ReadingProgress:
    """Tells people that a reading goes on: once after two seconds, on a terminal with a growing count.

    `text` has a place for the count.
    """

    def __init__(self, text: str = "reading the cluster, {:,} objects so far") -> None:
        self._text = text
        self._count = 0
        self._shown = False
        self._timer = threading.Timer(SILENT_FOR, self._begin)
        self._timer.daemon = True
        self._live = sys.stderr.isatty()

    def __enter__(self) -> ReadingProgress:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._shown and self._live:
            click.echo("\r\x1b[K", err=True, nl=False)

    def __call__(self, count: int) -> None:
        """Record the number of things read so far."""
        self._count = count
        if self._shown and self._live:
            self._show()

    def add(self, more: int) -> None:
        """Record that more were read; of several threads a count may get lost."""
        self(self._count + more)

    def _begin(self) -> None:
        self._shown = True
        self._show()

    def _show(self) -> None:
        text = f"topogate: {self._text.format(self._count)}"
        click.echo(f"\r{text}" if self._live else text, err=True, nl=not self._live)


def caller_of(cluster: ClusterOptions) -> Caller:
    """Return the connection; ends the program with one line where there is none."""
    from webhook.snapshot.connection import ConnectionProblem, connect_as_caller

    # Faults are told as remarks; what the engine logs about them is for the service.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        return connect_as_caller(kubeconfig=cluster.kubeconfig, context=cluster.context)
    except ConnectionProblem as problem:
        fail(str(problem))


def reading(
    cluster: ClusterOptions,
    caller: Caller,
    *,
    namespace: str | None = None,
    topologies_alone: bool = False,
    labels: bool = False,
) -> Snapshot:
    """Return a snapshot; `namespace`: where to look without rights in the whole cluster. Raises ConnectionProblem.

    `topologies_alone`: of what gives levels, not of what runs. `labels`: with those of workloads and pods.
    """
    from webhook.snapshot.live import read_cluster

    with ReadingProgress() as progress:
        return read_cluster(
            caller.api,
            namespace=namespace or caller.namespace,
            service_namespace=cluster.service_namespace,
            topologies_alone=topologies_alone,
            labels=labels,
            progress=progress,
        )


Answer = TypeVar("Answer", bound="BaseModel")


@dataclass(frozen=True, slots=True)
class Printed:
    """How answers are printed: the format, and whether and how often they are asked for again."""

    output: str
    watch: bool
    interval: float


def answer_and_print(
    read: Callable[[], Snapshot],
    ask: Callable[[Snapshot], Answer],
    sections: Callable[[Answer], list[TextPart]],
    printed: Printed,
) -> Answer:
    """Read, ask and print; with `watch` again whenever the answer differs. Return the (last) answer.

    Ends the program with one line where the first reading fails; a later one is tried again, and so is one without an
    answer because a part of the cluster could not be read.
    """
    from engine.api.schema import differs
    from webhook.snapshot.connection import ConnectionProblem

    answer: Answer | None = None
    pause, told = threading.Event(), ""
    try:
        while True:
            try:
                snapshot = read()
                if not snapshot.installed:
                    fail(NOT_INSTALLED)
                fresh = ask(snapshot)
            except ConnectionProblem as problem:
                if answer is None:
                    fail(str(problem))
                if str(problem) != told:
                    print_remarks([f"{problem}; trying again"])
                told = str(problem)
            else:
                told = ""
                if answer is None or differs(answer, fresh):
                    _print(fresh, sections, printed, first=answer is None)
                answer = fresh
            if not printed.watch:
                assert answer is not None
                return answer
            pause.wait(printed.interval)
    except KeyboardInterrupt:
        if answer is None:
            raise
        return answer


def _print(
    answer: Answer,
    sections: Callable[[Answer], list[TextPart]],
    printed: Printed,
    *,
    first: bool,
) -> None:
    if printed.output in ("json", "yaml"):
        print_model(answer, printed.output, compact=printed.watch)
        return
    if printed.watch and sys.stdout.isatty():
        click.clear()
    elif not first:
        click.echo()
    print_sections(sections(answer))
    print_remarks(getattr(answer, "remarks", ()))
