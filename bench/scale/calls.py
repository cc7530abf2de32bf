"""Reviews by the clock on connections that stay open, as an API server sends them; each one's latency.

The schedule is an open loop: a review is due whether those before it were answered or not, and its latency counts from
the moment at which it was due. What waits for a connection, or for the processor, counts too: nothing is left out.
"""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from bench.scale.generator import Period

CONNECTIONS: Final = 16
TIMEOUT: Final = 10.0  # of the API server
HEAD: Final = (
    "POST /{path}?timeout=10s HTTP/1.1\r\nHost: bench.svc:443\r\nUser-Agent: kube-apiserver-admission\r\n"
    "Content-Length: {length}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n"
    "Accept-Encoding: gzip\r\n\r\n"
)
_ENDS: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Reviews:
    """Reviews of one sort: their bodies, sent one after the other, and what each answer has to contain."""

    path: str
    bodies: Sequence[bytes]
    expected: bytes

    def requests(self) -> list[bytes]:
        """The bytes of each."""
        return [HEAD.format(path=self.path, length=len(body)).encode("ascii") + body for body in self.bodies]


class Call(NamedTuple):
    """One review: its sort, when it was due (monotonic), when it was sent, and when its answer was whole."""

    what: str
    due: float
    sent: float
    answered: float
    waited: bool  # for a connection
    whole: bool = True  # the answer has what was expected


@dataclass(frozen=True, slots=True)
class Port:
    """Where a replica answers, and the CA of its certificate (PEM)."""

    number: int
    ca: str


Rates = Mapping[str, float]  # reviews a second by sort


def schedule(period: Period[Rates], *, seed: int) -> list[tuple[float, str]]:
    """Return when which sort is due: one at a random moment of each interval, so that nothing keeps step with it."""
    chosen, due = random.Random(seed), []
    for what, rate in period.order.items():
        for number in range(round(rate * (period.end - period.begin))):
            due.append((period.begin + (number + chosen.random()) / rate, what))
    return sorted(due)


class Caller:
    """Sends reviews of some sorts; the order of a period is how many of each a second. Close it after use."""

    def __init__(self, port: Port, sorts: Mapping[str, Reviews]) -> None:
        self._requests = {what: one.requests() for what, one in sorts.items()}
        self._expected = {what: one.expected for what, one in sorts.items()}
        tls = ssl.create_default_context(cadata=port.ca)
        self._connections = [_connect(port, tls) for _ in range(CONNECTIONS)]
        self._periods = count()

    def __call__(self, period: Period[Rates]) -> list[Call]:
        """Send what is due in a period; raises for the first that gets no answer, or an HTTP error."""
        due, numbers = schedule(period, seed=next(self._periods)), count()
        calls: list[Call] = []
        faults: list[BaseException] = []

        def run(sock: ssl.SSLSocket) -> None:
            try:
                while not faults and (number := next(numbers)) < len(due):
                    calls.append(self._call(sock, number, *due[number]))
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=run, args=(sock,)) for sock in self._connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        return calls

    def close(self) -> None:
        """Close the connections."""
        for sock in self._connections:
            sock.close()

    def _call(self, sock: ssl.SSLSocket, number: int, due: float, what: str) -> Call:
        early = due - time.monotonic()
        if early > 0:
            time.sleep(early)
        sent = time.monotonic()
        sock.sendall(self._requests[what][number % len(self._requests[what])])
        answer = _answer(sock)
        call = Call(what, due, sent, time.monotonic(), early <= 0, self._expected[what] in answer)
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise AssertionError(f"not answered: {answer[:600]!r}")
        return call


def _connect(port: Port, tls: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port.number), timeout=TIMEOUT)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(plain, server_hostname="127.0.0.1")


def _answer(sock: ssl.SSLSocket) -> bytes:
    """Return a whole answer."""
    found = b""
    while _ENDS not in found:
        found += _some(sock)
    head, _, body = found.partition(_ENDS)
    (length,) = (int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: "))
    missing = length - len(body)
    while missing > 0:
        piece = _some(sock)
        found, missing = found + piece, missing - len(piece)
    return found


def _some(sock: ssl.SSLSocket) -> bytes:
    piece = sock.recv(65_536)
    if not piece:
        raise ConnectionError("the replica has closed a connection")
    return piece
