"""Free TCP ports on the loopback, for programs that can only be told a number."""

from __future__ import annotations

import random
import socket

# Below the range from which kernels take ports for outgoing connections (Linux: 32768 and up), so that no client
# connection of anybody lands on a port between our look and the program's bind.
FIRST, LAST = 20_000, 32_000


def free_ports(count: int, *, draw: random.Random | None = None) -> list[int]:
    """Return `count` different ports that nobody listens on now.

    Somebody may still take one before it is used: callers start their program, and start again with new ports when it
    reports "address already in use".
    """
    chosen: list[int] = []
    source = draw or random.SystemRandom()
    for candidate in source.sample(range(FIRST, LAST), k=LAST - FIRST):
        if len(chosen) == count:
            break
        if _free(candidate):
            chosen.append(candidate)
    if len(chosen) < count:
        raise OSError(f"no {count} free ports between {FIRST} and {LAST}")
    return chosen


def held_port() -> int:
    """Return a port that this process holds until it ends: for servers that start later, and may share it.

    `free_ports` gives it to nobody meanwhile, also while none of the servers runs.
    """
    port = free_ports(1)[0]
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # SO_REUSEPORT alone lets only servers of the same user share it; the container's server is another one.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", port))
    holder.detach()  # it does not listen, so all connections go to the servers
    return port


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
