"""Claims: what only one pod on a host can hold at a time. They stand among a shape's requests, one of each.

A claim has a space in its name, so that no resource of a node can be mistaken for one.
"""

from __future__ import annotations

import hashlib
from typing import Final

_HOST_PORT: Final = "host port "
_APART: Final = "apart from "


def host_port(port: int, protocol: str) -> str:
    """Return the claim on a port of the host. The address is left out: one pod per port, whichever address it binds."""
    return f"{_HOST_PORT}{port}/{protocol}"


def apart(namespace: str, selector: str) -> str:
    """Return the claim of pods that keep each other off a host (required anti-affinity); `selector` is canonical."""
    digest = hashlib.sha256(f"{namespace}\n{selector}".encode()).hexdigest()[:10]
    return f"{_APART}pods {digest}"


def is_claim(resource: str) -> bool:
    """Return whether a name among the requests is a claim."""
    return resource.startswith((_HOST_PORT, _APART))
