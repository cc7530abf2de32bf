"""The simulated nodes of one test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from local import nodes
from local.client import Client
from local.nodes import Grid, HostShape


class Fleet:
    """Makes nodes whose names and label values start with `prefix`, so that no test sees another one's domains.

    All of them carry the label `local.topogate.dev/fleet: <fleet>`; `selector` is the nodeSelector for it.
    """

    LABEL = "local.topogate.dev/fleet"

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.prefix = f"{name}-"
        self.selector = {self.LABEL: name}
        self.names: list[str] = []

    def grid(
        self,
        layout: str,
        *,
        shape: HostShape | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> list[str]:
        """Add "2x4x4" (blocks x racks x hosts) and wait until all are Ready; return the names in tree order."""
        marked = {**self.selector, **(labels or {})}
        return self.add(
            nodes.grid_nodes(Grid.parse(layout), prefix=self.prefix, shape=shape, labels=marked, taints=taints)
        )

    def host(self, name: str, *, block: str, rack: str, shape: HostShape | None = None) -> str:
        """Add one host beside a grid; `name`, `block` and `rack` come without the prefix ("host-032", "block-0")."""
        places = {nodes.BLOCK: self.prefix + block, nodes.RACK: self.prefix + rack, **self.selector}
        return self.add([nodes.node(self.prefix + name, shape=shape, labels=places)])[0]

    def add(self, bodies: Iterable[dict[str, Any]]) -> list[str]:
        """Add nodes as they are and wait until all are Ready."""
        wanted = list(bodies)
        self.names += [body["metadata"]["name"] for body in wanted]
        return nodes.add(self.client, wanted)

    def remove(self, *names: str) -> None:
        """Take nodes away."""
        nodes.remove(self.client, names)
        self._changed()

    def cordon(self, name: str) -> None:
        """Let no new pod come."""
        nodes.cordon(self.client, name)
        self._changed()

    def uncordon(self, name: str) -> None:
        """Let pods come again."""
        nodes.uncordon(self.client, name)
        self._changed()

    def fail(self, name: str) -> None:
        """Let a host die: NotReady, its pods cannot terminate."""
        nodes.fail(self.client, name)
        self._changed()

    def recover(self, name: str) -> None:
        """Bring a dead host back."""
        nodes.recover(self.client, name)
        self._changed()

    def patch(self, name: str, body: Mapping[str, Any]) -> None:
        """Change a node: labels, taints."""
        self.client.patch(f"{nodes.NODES}/{name}", body)
        self._changed()

    def rack_of(self, name: str) -> tuple[str, str]:
        """Return the block and the rack of a node, from its labels."""
        labels = self.client.get(f"{nodes.NODES}/{name}")["metadata"]["labels"]
        return labels[nodes.BLOCK], labels[nodes.RACK]

    def clear(self) -> None:
        """Remove all that were ever added."""
        nodes.remove(self.client, self.names)

    def _changed(self) -> None:
        """Nobody but the API server has to have seen a change; tests/support/seen_fleet.py has a service that must."""


def fleet_name(test: str, unique: str) -> str:
    """Return a name for a test's fleet that is a valid start of node names and label values (<= 40 characters)."""
    return re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_")).strip("-")[:30].strip("-") + f"-{unique}"
