"""Gangs that wait for room: who is planned next. Highest priority first, then oldest, then by name."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Entry:
    """One waiting gang; not planned before `not_before`, impatient from `patient_until` on (monotonic seconds)."""

    priority: int
    created: float
    name: str
    not_before: float = 0.0
    patient_until: float = inf


class Queue:
    """Waiting gangs by key. `room` says that one that did not fit may fit now."""

    def __init__(self) -> None:
        self.room = False
        self._entries: dict[str, Entry] = {}
        self._fresh: set[str] = set()  # not planned since they came in or were put back
        self._misses: dict[tuple[object, ...], int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def keys(self) -> list[str]:
        """Every gang that waits, in no order."""
        return list(self._entries)

    def add(self, key: str, entry: Entry) -> None:
        """Put a gang in (again): it is planned at the next turn."""
        self._entries[key] = entry
        self._fresh.add(key)

    def drop(self, key: str) -> None:
        """Take a gang out."""
        self._entries.pop(key, None)
        self._fresh.discard(key)

    def entry(self, key: str) -> Entry | None:
        """The entry of a gang that waits."""
        return self._entries.get(key)

    def impatient(self, now: float) -> list[str]:
        """Gangs that have waited for longer than the policy's patience, in order."""
        waited = [key for key, entry in self._entries.items() if entry.patient_until <= now]
        return sorted(waited, key=self._order)

    def take(self, now: float, *, strict: bool) -> list[str]:
        """Gangs to plan now, in order: all when room appeared, else those that are new.

        With `strict` the order binds: a new gang is only planned when none ahead of it waits, so all are taken.
        """
        self._misses.clear()
        wanted = set(self._entries) if self.room or (strict and self._fresh) else set(self._fresh)
        ready = {key for key in wanted if self._entries[key].not_before <= now}
        self.room = False
        self._fresh -= ready
        return sorted(ready, key=self._order)

    def later_than(self, key: str) -> list[str]:
        """Gangs behind one in the queue."""
        mine = self._order(key)
        return sorted((other for other in self._entries if self._order(other) > mine), key=self._order)

    def behind(self, key: str) -> None:
        """Everything behind a gang waits for it: what is new there is planned when there is room."""
        self._fresh -= set(self.later_than(key))

    def hopeless(self, question: tuple[object, ...], count: int) -> bool:
        """True when the same question with no more pods did not fit earlier in this turn."""
        return question in self._misses and count >= self._misses[question]

    def missed(self, question: tuple[object, ...], count: int) -> None:
        """Remember that `count` pods did not fit; valid until the next `take`, as plans only use room up."""
        self._misses[question] = min(count, self._misses.get(question, count))

    def _order(self, key: str) -> tuple[int, float, str]:
        entry = self._entries[key]
        return (-entry.priority, entry.created, entry.name)
