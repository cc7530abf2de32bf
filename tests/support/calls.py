"""Calls of the API server to the webhooks that go on while something else happens."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import urllib3

from local.client import Client, ClientError
from tests.support.eventually import eventually


class Calls:
    """Somebody who submits a Job all the time, as dry runs: the webhooks answer; `failed` has what failed."""

    def __init__(self, client: Client, path: str, body: Mapping[str, Any]) -> None:
        self._client = client
        self._path = path
        self._body = body
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._call, daemon=True)
        self.made = 0
        self.failed: list[str] = []

    def __enter__(self) -> Calls:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def go_on(self, more: int = 20) -> None:
        """Wait for so many further calls."""
        wanted = self.made + more
        eventually(lambda: self.made >= wanted, message="calls go on")

    def _call(self) -> None:
        while not self._stop.wait(0.02):
            try:
                self._client.create(self._path, self._body, dry_run=True)
            except (ClientError, urllib3.exceptions.HTTPError) as error:  # refused, or no answer at all
                self.failed.append(str(error))
            self.made += 1
