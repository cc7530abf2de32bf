"""The addresses at which this machine reaches itself."""

from __future__ import annotations

import errno
import socket

import pytest


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError as error:
        if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            return False
        raise


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6, or has it switched off")
LOOPBACK = ("127.0.0.1", pytest.param("::1", marks=needs_ipv6))
