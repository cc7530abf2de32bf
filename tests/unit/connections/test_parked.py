"""Who of the parked connections goes first: values in, a connection out."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from webhook.connections.connection import Connection
from webhook.connections.parked import ParkedConnections, Stage

PLACES = 8
ARRIVING, IDLE, SENDING, LEAVING = Stage.ARRIVING, Stage.IDLE, Stage.SENDING, Stage.LEAVING


class Scene:
    """Parked connections by name; each one made later has its time limit later."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.parked = ParkedConnections(places=PLACES)
        self.names: dict[Connection, str] = {}
        self._stack = stack

    def park(
        self,
        name: str,
        stage: Stage,
        *,
        address: str = "pod",
        proven: bool = False,
        held: int = 0,
        outgoing: int = 0,
    ) -> Connection:
        sock = self._stack.enter_context(socket.socket())
        connection = Connection(sock, (address, 1), ("", 0), context=_no_context, max_body=0)
        connection.proven = proven
        connection.buffer += b"x" * held
        connection.outgoing = b"x" * outgoing
        connection.timeout = float(len(self.names))
        self.names[connection] = name
        self.parked.add(connection, stage)
        return connection

    def order(self) -> list[str]:
        """Who goes, one after the other, until nobody is asked any more."""
        gone = []
        while (connection := self.parked.first_to_go()) is not None:
            self.parked.remove(connection)
            gone.append(self.names[connection])
        return gone


def _no_context() -> ssl.SSLContext:
    raise AssertionError("no handshake here")


@pytest.fixture
def scene() -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack)


def test_whoever_leaves_anyway_goes_first(scene: Scene) -> None:
    """A connection that was answered for the last time goes before any other."""
    scene.park("old", ARRIVING)
    scene.park("leaving", LEAVING)
    assert scene.order() == ["leaving"]


def test_of_strangers_the_larger_crowd_loses_its_oldest(scene: Scene) -> None:
    """Handshakes and silent connections are crowds of their own: the few that shake hands outlast the many silent."""
    scene.park("newcomer", ARRIVING)
    for name in ("silent 1", "silent 2", "silent 3"):
        scene.park(name, IDLE)
    assert scene.order()[:2] == ["silent 1", "silent 2"]


def test_a_lone_stranger_is_never_the_one(scene: Scene) -> None:
    """Room is made for him: nobody goes when nobody else can be asked."""
    scene.park("newcomer", ARRIVING)
    scene.park("used", IDLE, proven=True)
    assert scene.order() == []


def test_strangers_of_the_address_that_holds_most_go_first(scene: Scene) -> None:
    """The oldest of all stays when it comes from elsewhere."""
    scene.park("elsewhere", IDLE, address="api-server")
    for name in ("first", "second", "third"):
        scene.park(name, ARRIVING)
    assert scene.order() == ["first", "second", "elsewhere"]


def test_used_connections_outlast_strangers(scene: Scene) -> None:
    """However long they were silent, and whichever address holds most."""
    for name in ("used 1", "used 2", "used 3"):
        scene.park(name, IDLE, proven=True)
    scene.park("first", ARRIVING)
    scene.park("second", IDLE)
    assert scene.order() == ["first"]


def test_used_connections_beyond_their_share_make_room(scene: Scene) -> None:
    """Three quarters of the places at most are kept for them: else whoever uses enough of them keeps others out."""
    scene.park("api server", IDLE, address="api-server", proven=True)
    for number in range(PLACES - 2):
        scene.park(f"used {number}", IDLE, proven=True)
    scene.park("newcomer", ARRIVING)
    assert scene.order() == ["used 0"]


def test_the_oldest_unfinished_request_of_a_stranger_is_forgotten_first(scene: Scene) -> None:
    """A used connection keeps what has arrived; who holds nothing is not asked."""
    scene.park("used", ARRIVING, proven=True, held=10)
    scene.park("holds nothing", ARRIVING)
    scene.park("first", ARRIVING, held=20)
    scene.park("second", ARRIVING, held=30)
    gone = []
    while scene.parked.partial:
        connection = scene.parked.first_to_forget()
        scene.parked.remove(connection)
        gone.append(scene.names[connection])
    assert gone == ["first", "second", "used"]


def test_an_answer_that_is_not_read_is_memory_too(scene: Scene) -> None:
    """It counts as a whole until the last of its bytes is sent, beside what the client has sent ahead."""
    sending = scene.park("sending", SENDING, proven=True, held=10, outgoing=1000)
    scene.park("half a request", ARRIVING, proven=True, held=20)
    assert scene.parked.partial == 1030
    assert scene.parked.first_to_forget() is sending


def test_what_requests_hold_is_known_at_any_time(scene: Scene) -> None:
    """The sum of bytes follows who comes and goes, and nobody goes twice."""
    first = scene.park("first", ARRIVING, held=10)
    scene.park("second", ARRIVING, held=5)
    assert scene.parked.partial == 15
    assert [scene.parked.remove(first), scene.parked.remove(first)] == [True, False]
    assert scene.parked.partial == 5
    assert (first in scene.parked, len(list(scene.parked))) == (False, 1)


def test_time_limits_are_seen(scene: Scene) -> None:
    """Whoever's time has come is overdue, in any stage."""
    first = scene.park("first", ARRIVING)
    second = scene.park("second", LEAVING)
    scene.park("third", IDLE)
    assert scene.parked.overdue(1.0) == [first, second]
