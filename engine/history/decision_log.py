"""Writes the records: one line of the ordinary log each, none twice, and few about a gang that changes all the time.

Every line goes with a write to the API server that was made anyway, so their rate is bounded as that of the writes is;
the limit for one gang is for those that change for ever.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from engine.api.reasons import Why
from engine.history.record import LOGGER, GangEvent, GangName, ServiceEvent, fields_of_record

# For one gang: a burst, then one line per so many seconds. Those that are left out are counted in the next line.
BURST: Final = 50
REFILL: Final = 60.0
REMEMBERED: Final = 10_000

_log = logging.getLogger(LOGGER)


@dataclass(slots=True)
class _LastRecord:
    fields: dict[str, Any] = field(default_factory=dict)
    tokens: float = float(BURST)
    at: float = 0.0
    omitted: int = 0


class DecisionLog:
    """Writes records; safe for use by many threads, and never raises."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: OrderedDict[GangName | None, _LastRecord] = OrderedDict()
        self._lock = threading.Lock()

    def gang(
        self, name: GangName, event: GangEvent, *, reason: Why = "", message: str, **details: int | float | str | None
    ) -> None:
        """Record what happened to a gang, unless its last record says the same."""
        if _log.isEnabledFor(logging.INFO):
            self._write(name, fields_of_record(event, name, reason=reason, message=message, **details))

    def service(self, event: ServiceEvent, *, reason: Why = "", message: str, **details: str) -> None:
        """Record what happened to the policy, or to the leader."""
        if _log.isEnabledFor(logging.INFO):
            self._write(None, fields_of_record(event, None, reason=reason, message=message, **details))

    def _write(self, name: GangName | None, fields: dict[str, Any]) -> None:
        if (omitted := self._admit(name, fields)) is None:
            return
        told = {**fields, "omitted": omitted} if omitted else fields
        group = f"[{fields['group']}]" if "group" in fields else ""
        about = f" {fields['namespace']}/{fields['workload']}{group}" if name is not None else ""
        why = f" ({fields['reason']})" if fields["reason"] else ""
        _log.info("%s%s%s: %s", fields["event"], about, why, fields["message"], extra={"decision": told})

    def _admit(self, name: GangName | None, fields: dict[str, Any]) -> int | None:
        """Return how many records of the gang were left out before this one; None if this one is left out too."""
        now = self._clock()
        with self._lock:
            last = self._last.pop(name, None) or _LastRecord(at=now)
            self._last[name] = last
            while len(self._last) > REMEMBERED:
                self._last.popitem(last=False)
            last.tokens, last.at = min(float(BURST), last.tokens + (now - last.at) / REFILL), now
            if last.fields == fields:
                return None
            last.fields = fields
            if last.tokens < 1.0:
                last.omitted += 1
                return None
            last.tokens -= 1.0
            omitted, last.omitted = last.omitted, 0
            return omitted
