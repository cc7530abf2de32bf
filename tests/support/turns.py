"""Something that looks, or acts, again and again in a thread of its own for as long as a block runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import urllib3

from local.client import ClientError


class Turns(ABC):
    """Takes turns until the block ends or one of them fails, with a pause of so many seconds after each.

    After an answer of the API server with a status of `passing` the next turn tries again; with `outages` also when it
    does not answer. Anything else is told to `failed`, and was the last turn.
    """

    pause: ClassVar[float]
    passing: ClassVar[tuple[int, ...]]
    outages: ClassVar[bool] = False

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @abstractmethod
    def turn(self) -> None:
        """Look, or act, once."""

    @abstractmethod
    def failed(self, fault: str) -> None:
        """Hear what was the matter with the last turn."""

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.turn()
            except Exception as error:
                if not self._passes(error):
                    self.failed(f"{type(self).__name__} failed: {error!r}")
                    return
            self._over.wait(self.pause)

    def _passes(self, error: Exception) -> bool:
        if isinstance(error, ClientError):
            return error.status in self.passing
        return self.outages and isinstance(error, urllib3.exceptions.HTTPError)
