"""Waiting for what a run begins or ends with: the cluster's own things, and what we say of a gang."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from engine.api import names
from local.client import Client

AT_WORK = ("Running", "Finished")


def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait for something that is not measured; raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


def make_namespace(client: Client, name: str) -> None:
    """Create a namespace and wait until pods are admitted to it."""
    client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    until(lambda: client.find(account) is not None, f"{name} has its ServiceAccount")


def told(client: Client, namespace: str, gangs: int) -> bool:
    """Whether every Placement says Running (or more) and the Event that says so is there: our last write for it."""
    placements = client.items(f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLACEMENTS}")
    if sum(one.get("status", {}).get("phase") in AT_WORK for one in placements) < gangs:
        return False
    events = client.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    about = {event.get("regarding", {}).get("name") for event in events if _ours(event) and event["reason"] in AT_WORK}
    return len(about) >= gangs


def _ours(event: Mapping[str, Any]) -> bool:
    about_workload = event.get("regarding", {}).get("kind") != names.PLACEMENT_KIND
    return about_workload and str(event.get("reportingController", "")).startswith(names.API_GROUP)
