"""The frames of the last minutes, as the live map's server hands them out: compressed, bounded, each with a number."""

from __future__ import annotations

import gzip
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from engine.api.schema import differs
from webhook.map.model import MapFrame

MOST_FRAMES: Final = 360  # half an hour of changes at every reading of five seconds
MOST_BYTES: Final = 64 * 1024 * 1024  # compressed; the newest frame stays, whatever its size


@dataclass(frozen=True, slots=True)
class KeptFrame:
    """A frame: its number, from 1, the time of its reading, and its JSON, compressed with gzip."""

    id: int
    taken_at: str
    content: bytes


class History:
    """The frames that differ from the one before them, oldest first. Methods may be called in several threads.

    `problem`: why the cluster could not be read the last time; "" if it was.
    """

    def __init__(self, *, most_frames: int = MOST_FRAMES, most_bytes: int = MOST_BYTES) -> None:
        self._most_frames = most_frames
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._frames: deque[KeptFrame] = deque()
        self._bytes = 0
        self._last: MapFrame | None = None
        self.problem = ""

    def add(self, frame: MapFrame) -> bool:
        """Keep a frame if it differs from the last one in more than its time; return whether it does."""
        self.problem = ""
        if self._last is not None and not differs(self._last, frame):
            return False
        content = gzip.compress(frame.json_text.encode(), compresslevel=5)
        with self._lock:
            number = self._frames[-1].id + 1 if self._frames else 1
            self._frames.append(KeptFrame(number, frame.taken_at, content))
            self._bytes += len(content)
            while len(self._frames) > 1 and (len(self._frames) > self._most_frames or self._bytes > self._most_bytes):
                self._bytes -= len(self._frames.popleft().content)
        self._last = frame
        return True

    def frames(self) -> tuple[KeptFrame, ...]:
        """Return the frames that are kept, oldest first."""
        with self._lock:
            return tuple(self._frames)

    def frame(self, number: int) -> KeptFrame | None:
        """Return the frame of a number; None if it is not kept any more."""
        return next((one for one in self.frames() if one.id == number), None)
