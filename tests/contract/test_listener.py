"""The port that replicas share, on the real kernel."""

from __future__ import annotations

import contextlib
import selectors
import socket

from webhook.connections.listener import leave, listen

PATIENCE = 20.0
CLIENTS = 32  # the kernel gives each to either listener: all to one once in two billion runs


def test_who_connects_while_a_listener_is_left_reaches_the_other_one() -> None:
    """Whoever connects between the last accept and the close is answered by the other listener, not reset."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.closing(listen("127.0.0.1", 0)))
        port: int = first.getsockname()[1]
        second = stack.enter_context(contextlib.closing(listen("127.0.0.1", port)))
        before = _connect(stack, port)
        _wait(before)
        accepted: list[socket.socket] = []
        between: list[socket.socket] = []

        def accept_one(listener: socket.socket) -> bool:
            if _accept(stack, listener, accepted):
                return True
            between.extend(_connect(stack, port))
            return False

        leave(first, accept_one)
        assert 0 < len(accepted) < CLIENTS
        _wait(between)
        while _accept(stack, second, accepted):
            pass
        for connection in accepted:
            connection.sendall(b"hello")
        assert [client.recv(10) for client in before + between] == [b"hello"] * 2 * CLIENTS


def _connect(stack: contextlib.ExitStack, port: int) -> list[socket.socket]:
    """CLIENTS sockets that have begun to connect."""
    clients = [stack.enter_context(socket.socket()) for _ in range(CLIENTS)]
    for client in clients:
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect(("127.0.0.1", port))
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
