"""What is done for gangs when nothing else is: each at its time, a few at a time. Pure.

Bringing a text up to date is worth a write, and finding its numbers is worth a plan, but neither may keep a gang that
could start from its slots, nor the API server from its other clients. However many gangs wait, a lane takes no more
than so many of them in so many seconds; whoever has been due for longest goes first.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Generic, TypeVar

T = TypeVar("T")


class Lane(Generic[T]):
    """At most `batch` gangs in `every` seconds; of each gang, what was put in last."""

    def __init__(self, *, batch: int, every: float) -> None:
        self._batch = batch
        self._every = every
        self._waiting: dict[str, tuple[float, T]] = {}
        self._opens = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, key: str, item: T, *, due: float) -> None:
        """Put something in for a gang, or exchange what is in: it keeps its place."""
        known = self._waiting.get(key)
        self._waiting[key] = (due if known is None else min(due, known[0]), item)

    def drop(self, key: str) -> None:
        """Take out what is in for a gang."""
        self._waiting.pop(key, None)

    def take(self, now: float, *, busy: Container[str]) -> list[tuple[str, T]]:
        """Take out those whose time has come, as many as may go now; the `busy` ones wait for their turn."""
        if now < self._opens:
            return []
        ready = sorted((due, key) for key, (due, _) in self._waiting.items() if due <= now and key not in busy)
        taken = [(key, self._waiting.pop(key)[1]) for _, key in ready[: self._batch]]
        if taken:
            self._opens = now + self._every
        return taken

    def next(self, *, busy: Container[str]) -> float | None:
        """When `take` is to be called next; None when nobody waits who is not busy."""
        times = [due for key, (due, _) in self._waiting.items() if key not in busy]
        return max(self._opens, min(times)) if times else None
