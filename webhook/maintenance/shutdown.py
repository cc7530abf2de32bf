"""Whether the service still runs: its pods, and the Lease that its leader renews. Nothing else of it writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from engine.api.names import LEASE_NAME
from engine.api.text import join_comma, quote
from engine.cache.informers import UNFINISHED
from engine.cluster.client import KubeClient, object_path
from engine.cluster.election import LeaseWatch
from engine.cluster.lease import get_lease
from webhook.maintenance.object_names import object_names
from webhook.snapshot.installation import SERVICE_PODS

# Seconds: preStop and what is in flight take 30, then the kubelet has to tell.
TIMEOUT: Final = 120.0
PAUSE: Final = 1.0
_MOST: Final = 20  # pods that are named


def own_pods(api: KubeClient, namespace: str) -> tuple[str, ...]:
    """Return the unfinished pods of the service, at most twenty. Raises ApiFault."""
    path = object_path("v1", "pods", namespace=namespace)
    query = {"labelSelector": SERVICE_PODS, "fieldSelector": UNFINISHED, "limit": str(_MOST)}
    return object_names(api, path, query)


def await_end(
    api: KubeClient,
    namespace: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> str:
    """Wait until no replica runs; return "", or after two minutes what still runs. Raises ApiFault."""
    watch = LeaseWatch()
    end = clock() + TIMEOUT
    while True:
        running = own_pods(api, namespace)
        lease = get_lease(api, namespace, LEASE_NAME)
        if not (watch.seconds_left(lease, clock()) or running):
            return ""
        if clock() >= end:
            if running:
                return f"pods of the service still run: {join_comma(running)}"
            return f"the Lease {LEASE_NAME} is still renewed by {quote(lease.holder if lease else '')}"
        pause(PAUSE)
