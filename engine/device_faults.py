"""What is wrong with what hosts tell of their devices: counted, and said once."""

from __future__ import annotations

import logging
from typing import Final

from engine import metrics
from engine.api.text import plain

log = logging.getLogger("topogate.devices")

# With more hosts in trouble than this the reason is one for all of them: the metric says how many there are.
MAX_NAMED: Final = 50
_MAX_SAID: Final = 200  # characters of one fault


class DeviceFaults:
    """Hears of every change (`View`), in one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def found(self, host: str, faults: tuple[str, ...]) -> None:
        """Take in what is wrong with a host's devices now; empty: nothing is."""
        before = self._known.pop(host, ())
        if faults:
            self._known[host] = faults
        metrics.device_faults.set(len(self._known))
        fresh = [fault for fault in faults if fault not in before]
        if fresh and len(self._known) <= MAX_NAMED:
            log.warning("devices of %s: %s", plain(host), "; ".join(plain(fault, _MAX_SAID) for fault in fresh))
