"""The listening socket: shared by replicas on one host, and closed without breaking connections that are being made."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from collections.abc import Callable
from typing import Final

BACKLOG: Final = 2048

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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=True)
    listener.setblocking(False)
    return listener


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
