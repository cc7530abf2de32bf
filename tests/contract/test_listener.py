"""The port that replicas share, on the real kernel."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from typing import Any

import pytest

from tests.support.loopback import LOOPBACK, needs_ipv6
from webhook.connections.listener import EVERYWHERE, accept_client, leave, listen
from webhook.service.settings import Settings

PATIENCE = 20.0
CLIENTS = 32  # the kernel gives each to either listener: all to one once in two billion runs


@pytest.mark.parametrize("address", LOOPBACK)
def test_a_port_is_open_for_both_families_by_default(address: str) -> None:
    """A pod has an address of IPv6 alone, of IPv4 alone, or of both; its client has one name, which is its address."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(Settings(namespace="a", identity="b").host, 0))
        port: int = listener.getsockname()[1]
        client = stack.enter_context(socket.create_connection((address, port), PATIENCE))
        _readable(listener)
        accepted, name = accept_client(listener)
        stack.enter_context(accepted)
        assert name[:2] == client.getsockname()[:2]
        assert name[0] == address


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(errno.EAFNOSUPPORT, id="the kernel has no IPv6"),
        pytest.param(errno.EADDRNOTAVAIL, id="IPv6 is switched off"),
        pytest.param(None, id="IPv6 and IPv4 need two sockets"),
    ],
)
def test_without_ipv6_the_default_is_ipv4(monkeypatch: pytest.MonkeyPatch, refusal: int | None) -> None:
    create = socket.create_server

    def refused(*arguments: Any, family: int, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            assert refusal is not None, "no socket of both can be made"
            raise OSError(refusal, os.strerror(refusal))
        return create(*arguments, **options)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: refusal is not None)
    monkeypatch.setattr(socket, "create_server", refused)
    with listen(EVERYWHERE, 0) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


@needs_ipv6
def test_a_port_of_somebody_else_is_not_shared() -> None:
    """Not by going over to IPv4 either."""
    with socket.create_server(("::", 0), family=socket.AF_INET6) as somebody, pytest.raises(OSError, match="in use"):
        listen(EVERYWHERE, somebody.getsockname()[1])


@pytest.mark.parametrize("address", LOOPBACK)
def test_who_connects_while_a_listener_is_left_reaches_the_other_one(address: str) -> None:
    """Whoever connects between the last accept and the close is answered by the other listener, not reset."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.closing(listen(EVERYWHERE, 0)))
        port: int = first.getsockname()[1]
        second = stack.enter_context(contextlib.closing(listen(EVERYWHERE, port)))
        before = _connect(stack, address, port)
        _wait(before)
        accepted: list[socket.socket] = []
        between: list[socket.socket] = []

        def accept_one(listener: socket.socket) -> bool:
            if _accept(stack, listener, accepted):
                return True
            between.extend(_connect(stack, address, port))
            return False

        leave(first, accept_one)
        assert 0 < len(accepted) < CLIENTS
        _wait(between)
        while _accept(stack, second, accepted):
            pass
        for connection in accepted:
            connection.sendall(b"hello")
        assert [client.recv(10) for client in before + between] == [b"hello"] * 2 * CLIENTS


def _readable(listener: socket.socket) -> None:
    """Until somebody has connected."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        assert selector.select(PATIENCE), "nobody connects"


def _connect(stack: contextlib.ExitStack, address: str, port: int) -> list[socket.socket]:
    """CLIENTS sockets that have begun to connect."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    clients = [stack.enter_context(socket.socket(family)) for _ in range(CLIENTS)]
    for client in clients:
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect((address, port))
    return clients


def _wait(clients: list[socket.socket]) -> None:
    """Until each is connected or refused; they block from then on."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_WRITE)
        while selector.get_map():
            ready = selector.select(PATIENCE)
            assert ready, "a client is neither connected nor refused"
            for key, _ in ready:
                selector.unregister(key.fileobj)
    for client in clients:
        client.settimeout(PATIENCE)


def _accept(stack: contextlib.ExitStack, listener: socket.socket, accepted: list[socket.socket]) -> bool:
    """Take one connection; False when none waits."""
    try:
        connection = stack.enter_context(listener.accept()[0])
    except BlockingIOError:
        return False
    connection.settimeout(PATIENCE)
    accepted.append(connection)
    return True
