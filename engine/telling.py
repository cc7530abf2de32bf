"""What people are told of a gang: a status and an Event per change, a moment later where that may pass by itself."""

from __future__ import annotations

from functools import partial

from engine.actions import Status
from engine.errands import Errands
from engine.sight import Gang
from engine.status import changed, differs, settle
from engine.term import Term
from engine.view import View


class Telling:
    """Takes in what each look found, and writes it when it is due."""

    def __init__(self, view: View, errands: Errands, term: Term) -> None:
        self._view = view
        self._errands = errands
        self._term = term

    def tell(self, key: str, gang: Gang, status: Status, now: float) -> None:
        """Take in how a gang stands; nothing is written while it is no news."""
        memory = self._term.of(key)
        known = memory.told or _status_of(gang)
        if known is not None and not differs(known, status):
            memory.telling = None
            return
        pause = settle(status) + self._term.rush.delay(status.phase, now)
        if memory.telling is not None and memory.telling[1].phase == status.phase and pause:
            return
        memory.telling = (now + pause, status)

    def due(self, now: float) -> None:
        """Write what has lasted long enough to be told."""
        for key, memory in list(self._term.memory.items()):
            if memory.telling is None or memory.telling[0] > now or key in self._term.busy:
                continue
            status, memory.telling = memory.telling[1], None
            self._term.guarded(key, now, partial(self._tell_one, key, status))

    def _tell_one(self, key: str, status: Status) -> None:
        memory = self._term.memory[key]
        with self._view.lock:
            gang = self._view.gangs.get(key)
        if gang is None:
            return
        memory.told = status
        if gang.placement is not None and not changed(gang.placement.status, status):
            return
        facts = memory.facts
        self._term.send(key, lambda: self._errands.tell(gang, status, facts))


def _status_of(gang: Gang) -> Status | None:
    status = gang.placement.status if gang.placement is not None else {}
    phase = status.get("phase")
    return Status(str(phase), str(status.get("reason") or ""), str(status.get("message") or "")) if phase else None
