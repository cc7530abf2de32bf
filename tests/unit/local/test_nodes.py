"""Grids of simulated nodes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from local.client import Client
from local.commands import SIMULATED
from local.nodes import BLOCK, HOSTNAME, LEASES, NODES, RACK, Grid, HostShape, grid_nodes, node, unready


def test_a_grid_numbers_racks_and_hosts_through() -> None:
    """2x2x2: racks 0 and 1 in block 0, racks 2 and 3 in block 1; names in tree order."""
    labels = [body["metadata"]["labels"] for body in grid_nodes(Grid.parse("2x2x2"), prefix="t-")]
    assert [(at[BLOCK], at[RACK], at[HOSTNAME]) for at in labels] == [
        ("t-block-0", "t-rack-00", "t-host-000"),
        ("t-block-0", "t-rack-00", "t-host-001"),
        ("t-block-0", "t-rack-01", "t-host-002"),
        ("t-block-0", "t-rack-01", "t-host-003"),
        ("t-block-1", "t-rack-02", "t-host-004"),
        ("t-block-1", "t-rack-02", "t-host-005"),
        ("t-block-1", "t-rack-03", "t-host-006"),
        ("t-block-1", "t-rack-03", "t-host-007"),
    ]


def test_a_host_offers_what_its_shape_says() -> None:
    """The default is a GPU server; without GPUs the resource is absent, not zero."""
    assert node("h")["status"]["allocatable"] == {
        "cpu": "96",
        "memory": "1Ti",
        "pods": "110",
        "nvidia.com/gpu": "8",
    }
    other = node("h", shape=HostShape(gpus=0, extended={"example.com/nic": "2"}))["status"]["allocatable"]
    assert other == {"cpu": "96", "memory": "1Ti", "pods": "110", "example.com/nic": "2"}


@pytest.mark.parametrize("text", ["", "2x4", "2x4x4x4", "ax1x1", "2*4*4", "-1x1x1", "²x1x1", "1x1x999999", "2 x 2 x 2"])
def test_what_is_no_grid_is_refused_with_an_example(text: str) -> None:
    """The message shows the form."""
    with pytest.raises(ValueError, match="BLOCKSxRACKSxHOSTS such as 2x4x4"):
        Grid.parse(text)


@pytest.mark.parametrize("text", ["0x1x1", "1x0x1", "99999x99999x1"])
def test_a_grid_has_a_bounded_number_of_hosts(text: str) -> None:
    """Neither none nor more than a machine can simulate."""
    with pytest.raises(ValueError, match="a grid needs 1 to 20000 hosts"):
        Grid.parse(text)


class Listed:
    """An API server that lists these objects."""

    def __init__(self, **objects: list[Any]) -> None:
        self._objects = {NODES: objects["nodes"], LEASES: objects["leases"]}

    def items(self, path: str) -> list[Any]:
        """List a collection."""
        return self._objects[path]


def test_a_node_with_the_lease_of_the_one_before_it_is_not_ready() -> None:
    """Its pods would not start while the garbage collector takes that away; other kubelets' Leases are none of ours."""
    bodies = [node(name) for name in ("own", "old", "none", "other")]
    for body in bodies:
        body["metadata"]["uid"] = f"uid-of-{body['metadata']['name']}"
    del bodies[-1]["metadata"]["labels"][SIMULATED]
    leases = [
        {"metadata": {"name": name, "ownerReferences": [{"uid": uid}]}}
        for name, uid in (("own", "uid-of-own"), ("old", "uid-of-a-node-before"))
    ]
    client = cast(Client, Listed(nodes=bodies, leases=[*leases, {"metadata": {"name": "none"}}]))
    assert unready(client, ["own", "old", "none", "other", "absent"]) == {"old", "none", "absent"}
