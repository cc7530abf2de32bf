"""The queue of extensions of placed gangs: lost slots go before everything else, growth after waiting gangs."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from engine.api.workload import GangKey
from engine.lifecycle.actions import Extend, Status
from engine.scheduler.outcome import Never, Waits


@dataclass(frozen=True, slots=True)
class _Entry:
    action: Extend
    rank: tuple[int, float, GangKey]
    out: frozenset[str]
    due: bool
    answer: Waits | Never | None = None


class ExtensionQueue:
    """Waiting extensions, one per gang; not thread-safe.

    A gang that has lost slots keeps the others idle meanwhile: it goes before gangs that have not started. A gang that
    grows is running: it gets what is left.
    """

    def __init__(self) -> None:
        self._entries: dict[GangKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: GangKey, action: Extend, *, priority: int, created: float, out: frozenset[str]) -> None:
        """Add an extension, or keep an equal one, which is planned again only when capacity is freed."""
        known = self._entries.get(key)
        same = known is not None and known.action.requests == action.requests and known.out == out
        entry = _Entry(action, (-priority, created, key), out, True)
        if same and known is not None:
            # Without an answer its plan has failed: it is planned again like any gang after a fault.
            entry = replace(entry, due=known.due or known.answer is None, answer=known.answer)
        self._entries[key] = entry

    def missed(self, key: GangKey, answer: Waits | Never) -> None:
        """Record why an extension did not fit."""
        if (known := self._entries.get(key)) is not None:
            self._entries[key] = replace(known, answer=answer)

    def status(self, key: GangKey) -> Status | None:
        """Return the status of a gang with a waiting extension; None if it was not planned yet."""
        known = self._entries.get(key)
        if known is None or known.answer is None:
            return None
        meanwhile, answer, extension = known.action.meanwhile, known.answer, known.action.extension
        message = f"{known.action.why}: {answer.message}"
        if extension.returned:  # nothing is missing: the pod runs
            return replace(meanwhile, message=f"{meanwhile.message}; {known.action.why}")
        if extension.on_request and meanwhile.reason:  # a lost node is more urgent than a wish
            return replace(meanwhile, message=f"{meanwhile.message}; {message}")
        return Status(meanwhile.phase, answer.reason, message)

    def drop(self, key: GangKey) -> None:
        """Remove the extension of a gang."""
        self._entries.pop(key, None)

    def retry_all(self) -> None:
        """Make all extensions due again, because capacity may have been freed."""
        self._entries = {key: replace(entry, due=True) for key, entry in self._entries.items()}

    def take(self, *, growing: bool, busy: Container[GangKey]) -> list[tuple[GangKey, Extend]]:
        """Return the due extensions of growing gangs or of those that lost slots, by priority and age.

        Those of `busy` gangs stay due.
        """
        due = self._due(growing=growing, busy=busy)
        for key, one in due:
            self._entries[key] = replace(one, due=False, answer=None)
        return [(key, one.action) for key, one in sorted(due, key=lambda pair: pair[1].rank)]

    def growing(self, *, busy: Container[GangKey]) -> list[GangKey]:
        """Return the gangs with due growth, which stays due."""
        return [key for key, _ in self._due(growing=True, busy=busy)]

    def _due(self, *, growing: bool, busy: Container[GangKey]) -> list[tuple[GangKey, _Entry]]:
        return [
            (key, one)
            for key, one in self._entries.items()
            if one.due and key not in busy and bool(one.action.extension.more) == growing
        ]
