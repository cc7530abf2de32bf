"""A process of its own that makes load by the clock, from one moment to another, as often as it is asked to.

The clock is CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Generic, Self, TypeVar

START_SECONDS = 120.0  # until a generator has made its objects
END_SECONDS = 60.0  # after the end of a period

O = TypeVar("O")  # noqa: E741 - what is ordered
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Period(Generic[O]):
    """When to begin and to end (monotonic), and what to do meanwhile."""

    begin: float
    end: float
    order: O


class Generator(Generic[O, R]):
    """`make` is called in the new process, and what it returns once for each period.

    `nice` below 0, added to this process's own, keeps the schedule on a busy machine, where that is permitted.
    """

    def __init__(self, make: Callable[[], Callable[[Period[O]], R]], *, nice: int = 0) -> None:
        context = multiprocessing.get_context("spawn")  # small: nothing of the parent's
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(make, nice, other), daemon=True)
        self._process.start()
        other.close()

    def __enter__(self) -> Self:
        """Wait until it can begin."""
        self._receive(START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid or 0

    def begin(self, period: Period[O]) -> None:
        """Have it work for a period; returns at once."""
        self._pipe.send(period)

    def result(self, period: Period[O]) -> R:
        """Wait for the end of a period that was begun, and return its result."""
        found: R = self._receive(max(0.0, period.end - time.monotonic()) + END_SECONDS)
        return found

    def _receive(self, seconds: float) -> R:
        if not self._pipe.poll(seconds):
            raise TimeoutError(f"a generator of load says nothing for {seconds:.0f} s")
        try:
            found: R = self._pipe.recv()
        except EOFError:
            raise TimeoutError("a generator of load has ended; what it said stands above") from None
        return found


def _serve(make: Callable[[], Callable[[Period[O]], R]], nice: int, pipe: Connection) -> None:
    with contextlib.suppress(PermissionError):
        os.nice(nice)
    work = make()
    gc.collect()
    gc.freeze()
    gc.disable()  # a pause would be counted as one of the service
    pipe.send(None)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            pipe.send(work(pipe.recv()))
