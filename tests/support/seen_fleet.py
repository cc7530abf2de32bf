"""The simulated nodes of a test beside the running service, which has seen every change of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from local import nodes
from local.client import Client
from local.nodes import NODES, HostShape
from local.service import Service
from tests.support.eventually import eventually
from tests.support.fleet import Fleet

_COUNT = re.compile(r'^topogate_topology_nodes\{.*topology="([^"]*)".*\} (\S+)$', re.MULTILINE)


class SeenFleet(Fleet):
    """A fleet whose methods return when every running replica has seen what they changed.

    The watch of Jobs may be ahead of that of nodes: a gang that is submitted right after a cordon would now and then be
    planned onto the host. A watch is in order, so a replica that counts a node made after a change has seen the change.
    """

    def __init__(self, client: Client, name: str, service: Service) -> None:
        super().__init__(client, name)
        self._service = service

    def add(self, bodies: Iterable[dict[str, Any]]) -> list[str]:
        """Add nodes as they are, and wait until every replica has seen that all are Ready and take pods."""
        names = super().add(bodies)
        self.nodes_seen()
        return names

    def nodes_seen(self) -> None:
        """Wait until every replica has seen what became of nodes, by a node that is made now."""
        probe = f"{self.prefix}seen"
        self.client.create(NODES, {**nodes.node(probe, shape=HostShape(gpus=0)), "spec": {"unschedulable": True}})
        try:
            self._counted()
        finally:
            self.client.delete(f"{NODES}/{probe}")
            eventually(lambda: self.client.find(f"{NODES}/{probe}") is None, message=f"node {probe} is gone")
        self._counted()  # or the next probe would be taken for seen by a replica that still counts this one

    def _changed(self) -> None:
        self.nodes_seen()

    def _counted(self) -> None:
        """Wait until every topology of every replica accounts for every node, in it or left out."""

        def counted() -> bool:
            wanted = float(len(self.client.items(NODES)))
            for replica in self._service.running():
                status, page = replica.page("/metrics")
                sums: dict[str, float] = {}
                for topology, number in _COUNT.findall(page):
                    sums[topology] = sums.get(topology, 0.0) + float(number)
                assert status and all(found == wanted for found in sums.values()), (replica.number, sums, wanted)
            return True

        eventually(counted, message="every replica has seen the nodes")
