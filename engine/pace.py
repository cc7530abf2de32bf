"""How fast a namespace is told that its gangs wait: a first hundred at once, then so many in a second. Pure.

Telling costs three writes a gang (a Placement, a status, an Event). A namespace that brings thousands would keep the
writers and the API server busy with them while those of others are to start.
"""

from __future__ import annotations

from typing import Final

BURST: Final = 100.0
EACH_SECOND: Final = 20.0


class Pace:
    """Remembers by namespace how many were told lately; each counts for as long as it takes to be allowed again."""

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}  # until when what was told counts

    def __len__(self) -> int:
        """How many namespaces are remembered."""
        return len(self._ahead)

    def wait(self, namespace: str, now: float) -> float:
        """Count one more and return 0, or return in how many seconds the next may be told."""
        if len(self._ahead) > BURST:
            self._ahead = {name: until for name, until in self._ahead.items() if until > now}
        until = max(self._ahead.get(namespace, now), now)
        late = until - now - (BURST - 1) / EACH_SECOND
        if late > 0:
            return late
        self._ahead[namespace] = until + 1 / EACH_SECOND
        return 0.0
