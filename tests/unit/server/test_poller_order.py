"""In which order one turn of the poller hears those who are readable."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from typing import Any

from webhook.connections.connection import Connection
from webhook.server.worker import ParkingWorker


class Hearing(ParkingWorker):
    """A worker that only notes whom it hears: no process, and a poller that finds everybody readable."""

    def __init__(self, connections: list[Connection]) -> None:
        self._polled = self._arrived = time.monotonic()
        self._overslept = False
        self.heard: list[Connection] = []
        self.poller: Any = self
        self._readable = connections

    def select(self, _timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Everybody, in the order given."""
        return [(selectors.SelectorKey(one.sock, 0, selectors.EVENT_READ, one), 1) for one in self._readable]

    def _on_ready(self, connection: Connection) -> None:
        self.heard.append(connection)


def connection(*, proven: bool) -> Connection:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = Connection(socket.socket(), ("127.0.0.1", 1), ("127.0.0.1", 2), context=lambda: context, max_body=100)
    made.proven = proven
    return made


def test_connections_that_have_proven_themselves_are_heard_before_strangers() -> None:
    """However many strangers speak in the same turn; of either sort in the order of the poller."""
    connections = [connection(proven=proven) for proven in (False, False, True, False, True)]
    worker = Hearing(connections)
    worker.wait_for_and_dispatch_events(0.0)
    for one in connections:
        one.close()
    assert [connections.index(one) for one in worker.heard] == [2, 4, 0, 1, 3]
