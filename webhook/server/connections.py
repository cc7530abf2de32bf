"""Which connections wait on the poller, and which of them goes when places, memory or time run out. No I/O.

Anybody who reaches the port can connect, so places are a common good. A connection is *proven* once a review on it was
answered: the API server keeps such connections and uses them again. Strangers go before proven ones, and of strangers
those of the address that holds most, so that a crowd from one pod costs its own kind and not a newcomer from elsewhere.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from webhook.server.connection import Connection

# Of all places. Beyond it proven connections make room too: else whoever proves enough of them keeps newcomers out.
PROVEN_SHARE: Final = 0.75


class Stage(enum.Enum):
    """What a parked connection is in the middle of."""

    ARRIVING = enum.auto()  # the handshake, or a request
    IDLE = enum.auto()  # nothing: between requests
    LEAVING = enum.auto()  # it was answered for the last time; the rest of its request runs out


class _Crowd(NamedTuple):
    """Connections that are alike; of them the one whose time limit comes first goes first."""

    address: str
    proven: bool
    stage: Stage


class ParkedConnections:
    """The connections on the poller, in crowds. `partial` is how many bytes of unfinished requests they hold."""

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
        """What a parked connection is in the middle of."""
        return self._where[connection].stage

    def add(self, connection: Connection, stage: Stage) -> None:
        """Park a connection. What it holds and what it has proven does not change until it is removed."""
        crowd = _Crowd(connection.address, connection.proven, stage)
        self._crowds.setdefault(crowd, {})[connection] = len(connection.buffer)
        self._where[connection] = crowd
        self.partial += len(connection.buffer)

    def remove(self, connection: Connection) -> bool:
        """Take a connection out; False when it is not here."""
        crowd = self._where.pop(connection, None)
        if crowd is None:
            return False
        members = self._crowds[crowd]
        self.partial -= members.pop(connection)
        if not members:
            del self._crowds[crowd]
        return True

    def overdue(self, now: float) -> list[Connection]:
        """The connections whose time limit has come."""
        return [connection for connection in self._where if connection.timeout <= now]

    def first_to_go(self) -> Connection | None:
        """Who makes room for others: whoever leaves anyway, else of the strangers; None when there is nobody to ask.

        A lone stranger is never the one: he is the newcomer for whom room is made.
        """
        leaving = [crowd for crowd in self._crowds if crowd.stage is Stage.LEAVING]
        if leaving:
            return self._first_of(leaving[0])
        proven = sum(len(members) for crowd, members in self._crowds.items() if crowd.proven) > self._most_proven
        held: Counter[str] = Counter()
        for crowd, members in self._crowds.items():
            if crowd.proven is proven:
                held[crowd.address] += len(members)
        if held.total() < 2:  # noqa: PLR2004 - himself
            return None
        address = max(held, key=held.__getitem__)
        crowds = [crowd for crowd in self._crowds if (crowd.address, crowd.proven) == (address, proven)]
        return self._first_of(max(crowds, key=lambda crowd: len(self._crowds[crowd])))

    def first_to_forget(self) -> Connection:
        """Whose unfinished request goes when they take too much memory: the oldest of a stranger, else the oldest.

        Raises ValueError while `partial` is 0.
        """
        holding = (connection for connection in self._where if connection.buffer)
        return min(holding, key=lambda connection: (connection.proven, connection.timeout))

    def _first_of(self, crowd: _Crowd) -> Connection:
        return min(self._crowds[crowd], key=lambda connection: connection.timeout)
