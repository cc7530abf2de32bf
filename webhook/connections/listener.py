"""Listening sockets: of IPv6 and IPv4, shared by replicas on one host, closed without breaking new connections."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

BACKLOG: Final = 2048
EVERYWHERE: Final = "::"  # all addresses of the machine: pods have one of IPv6, of IPv4, or both

_SO_ATTACH_FILTER: Final = 26  # linux/asm-generic/socket.h; Python has no name for it
# Classic BPF over the TCP header: (code, jump if true, jump if false, operand).
_DROP_SYN: Final = (
    (0x30, 0, 0, 13),  # load the byte of the flags
    (0x45, 0, 1, 0x02),  # SYN set?
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # let pass
)


def listen(host: str, port: int) -> socket.socket:
    """Open the port, non-blocking, with SO_REUSEPORT. Raises OSError if a socket without that option holds it."""
    return open_port(host, port, backlog=BACKLOG, reuse_port=True)


def open_port(host: str, port: int, *, backlog: int, reuse_port: bool = False) -> socket.socket:
    """Open a port, non-blocking; on EVERYWHERE for IPv6 and IPv4, or for IPv4 alone where there is no IPv6.

    Raises OSError.
    """
    listener = _everywhere(port, backlog=backlog, reuse_port=reuse_port) if host == EVERYWHERE else None
    if listener is None:
        host = "0.0.0.0" if host == EVERYWHERE else host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=backlog, reuse_port=reuse_port)
    listener.setblocking(False)
    return listener


def _everywhere(port: int, *, backlog: int, reuse_port: bool) -> socket.socket | None:
    """Open a port for IPv6 and IPv4; None where the machine has no IPv6, or has it switched off."""
    if not socket.has_dualstack_ipv6():
        return None
    try:
        return socket.create_server(
            (EVERYWHERE, port), family=socket.AF_INET6, backlog=backlog, reuse_port=reuse_port, dualstack_ipv6=True
        )
    except OSError as error:
        if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            return None
        raise


def accept_client(listener: socket.socket) -> tuple[socket.socket, Any]:
    """Accept a connection; return it and the client's address, that of a client of IPv4 as such. Raises OSError.

    A listener for both calls 10.0.0.1 `::ffff:10.0.0.1`. One client must not have two names, in logs and in its share.
    """
    sock, client = listener.accept()
    if ":" in client[0] and (mapped := ipaddress.IPv6Address(client[0]).ipv4_mapped) is not None:
        return sock, (str(mapped), client[1])
    return sock, client


def leave(listener: socket.socket, accept_one: Callable[[socket.socket], bool]) -> None:
    """Close the port after accepting every client that has already connected.

    `accept_one` accepts one connection and returns False if there is none. Closing a listener resets its queue
    (inet_csk_listen_stop), also connections that arrived since the last accept, and a reset review is a refused pod
    where the entry has failurePolicy Fail. So new connections are stopped before the queue is emptied: a SYN is dropped
    and sent again after a second, when the kernel gives it to the other listener on the port. Where the kernel takes no
    filter (gVisor) that gap remains.
    """
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_SYN)
    memory = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(memory))
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)
    while accept_one(listener):
        pass
    listener.close()
