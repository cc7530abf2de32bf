"""A control plane with the objects of a large cluster, whose own programs stand still."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

from rich.console import Console

from bench import processes
from bench.bound import PODS
from bench.scale.objects import node_items, pod_items
from bench.scale.storage import Storage, etcd_url
from bench.waiting import until
from local.client import ClientError
from local.controlplane import ControlPlane
from local.nodes import NODES, Grid
from local.service import Replica

STILL: Final = ("kube-scheduler", "kube-controller-manager", "kwok")
LIMIT: Final = 600.0  # seconds for each step that is waited for


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the size of the cluster, and what stays of it."""
    parser.add_argument("--grid", type=Grid.parse, default=Grid(16, 20, 32), help="BLOCKSxRACKSxHOSTS (16x20x32)")
    parser.add_argument("--pods", type=int, default=100_000, help="running pods (100000)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs")


def fill(cluster: ControlPlane, grid: Grid, pods: int, console: Console) -> None:
    """Write the nodes of a grid and so many pods; returns when the API server's caches have them and it is at rest."""
    storage, began = Storage(etcd_url(cluster)), time.monotonic()
    try:
        written = storage.put(node_items(grid)) + storage.put(pod_items(grid, pods))
    finally:
        storage.close()
    until(lambda: len(cluster.client.items(NODES)) >= grid.size, "the API server knows all nodes", LIMIT)
    newest = cluster.client.get(PODS, query={"limit": "1"})["metadata"]["resourceVersion"]
    until(lambda: _cached(cluster, newest), "the API server's cache has all pods", LIMIT)
    console.print(f"{written:,} objects written in {time.monotonic() - began:.0f} s")
    plane = {name: [pid] for name, pid in cluster.pids.items()}
    until(lambda: processes.at_rest(plane), "the control plane is at rest", LIMIT)


def _cached(cluster: ControlPlane, version: str) -> bool:
    """Return whether the cache from which the API server answers watches has reached a version of the pods."""
    query = {"limit": "1", "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    try:
        cluster.client.get(PODS, query=query)
    except ClientError as error:
        if error.status != HTTPStatus.GATEWAY_TIMEOUT:
            raise
        return False
    return True


@contextmanager
def standing_still(cluster: ControlPlane) -> Iterator[None]:
    """Stop the programs that would work on the objects; they go on afterwards, so that they can end."""
    still = [pid for name, pid in cluster.pids.items() if name in STILL]
    for pid in still:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in still:
            os.kill(pid, signal.SIGCONT)


def replica_pids(replica: Replica) -> list[int]:
    """Return the processes of a replica: its arbiter and its worker."""
    return processes.group(replica.child.process.pid)
