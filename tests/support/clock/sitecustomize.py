"""Gives a process a wall clock that a test sets: Python imports this at its start when the folder is on PYTHONPATH.

The file that `TEST_CLOCK` names has the offset in seconds. Monotonic time is left alone, as when a machine's clock is
set; everything in the service that reads the wall clock reads `time.time`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

LOOK_EVERY = 0.1  # seconds

_file = Path(os.environ["TEST_CLOCK"])
_wall = time.time
_offset, _looked = 0.0, 0.0


def shifted() -> float:
    """Return the seconds since the epoch, plus the offset."""
    global _offset, _looked
    now = time.monotonic()
    if now - _looked > LOOK_EVERY:
        _looked = now
        _offset = float(_file.read_text() or _offset)  # empty while it is written
    return _wall() + _offset


time.time = shifted
