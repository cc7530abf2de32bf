"""The parked connections, and the order in which they are closed when places, memory or time run out. No I/O.

Anybody who reaches the port can connect, so places are a shared resource. A connection is *proven* once a review on it
was answered: the API server keeps such connections and uses them again. Unproven connections are closed before proven
ones, first those of the address that holds most, so that a crowd from one pod does not displace a client from
elsewhere.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.connections.connection import Connection

# Of all places. Above it proven connections are closed too: else a client that proves enough of them keeps others out.
PROVEN_SHARE: Final = 0.75


class Stage(enum.Enum):
    """The stage of a parked connection."""

    ARRIVING = enum.auto()  # the handshake, or a request
    IDLE = enum.auto()  # between requests
    SENDING = enum.auto()  # the client has not read all of its answer
    LEAVING = enum.auto()  # got its last answer; the rest of its request is read and discarded


class _Crowd(NamedTuple):
    """The key of similar connections; the one with the earliest time limit is closed first."""

    address: str
    proven: bool
    stage: Stage


class ParkedConnections:
    """The connections on the poller, grouped by crowd. `partial`: bytes of unfinished requests and unread answers."""

    def __init__(self, *, places: int) -> None:
        self.partial = 0
        self._most_proven = int(PROVEN_SHARE * places)
        self._crowds: dict[_Crowd, dict[Connection, int]] = {}
        self._where: dict[Connection, _Crowd] = {}

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._where

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._where))

    def stage(self, connection: Connection) -> Stage:
        """Return the stage of a parked connection."""
        return self._where[connection].stage

    def add(self, connection: Connection, stage: Stage) -> None:
        """Park a connection. What it holds and `proven` must not change until it is removed."""
        crowd = _Crowd(connection.address, connection.proven, stage)
        self._crowds.setdefault(crowd, {})[connection] = connection.held
        self._where[connection] = crowd
        self.partial += connection.held

    def remove(self, connection: Connection) -> bool:
        """Remove a connection; return False if it is not parked."""
        crowd = self._where.pop(connection, None)
        if crowd is None:
            return False
        members = self._crowds[crowd]
        self.partial -= members.pop(connection)
        if not members:
            del self._crowds[crowd]
        return True

    def overdue(self, now: float) -> list[Connection]:
        """Return the connections with a time limit that has passed."""
        return [connection for connection in self._where if connection.timeout <= now]

    def first_to_go(self) -> Connection | None:
        """Return the connection to close when a place is needed; None if there is none.

        A leaving connection goes first, then an unproven one. A single unproven connection is never chosen: it is the
        newcomer that needs the place.
        """
        leaving = [crowd for crowd in self._crowds if crowd.stage is Stage.LEAVING]
        if leaving:
            return self._first_of(leaving[0])
        proven = sum(len(members) for crowd, members in self._crowds.items() if crowd.proven) > self._most_proven
        held: Counter[str] = Counter()
        for crowd, members in self._crowds.items():
            if crowd.proven is proven:
                held[crowd.address] += len(members)
        if held.total() < 2:  # noqa: PLR2004 - the newcomer itself
            return None
        address = max(held, key=held.__getitem__)
        crowds = [crowd for crowd in self._crowds if (crowd.address, crowd.proven) == (address, proven)]
        return self._first_of(max(crowds, key=lambda crowd: len(self._crowds[crowd])))

    def first_to_forget(self) -> Connection:
        """Return the connection to close for the memory in `partial`: the oldest unproven, else the oldest.

        Raises ValueError while `partial` is 0.
        """
        holding = (connection for connection in self._where if connection.held)
        return min(holding, key=lambda connection: (connection.proven, connection.timeout))

    def _first_of(self, crowd: _Crowd) -> Connection:
        return min(self._crowds[crowd], key=lambda connection: connection.timeout)
