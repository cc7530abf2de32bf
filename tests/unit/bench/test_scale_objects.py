"""The objects of the large cluster are what the engine reads, and as large as they are said to be."""

from __future__ import annotations

from bench.scale.objects import NODE_BYTES, POD_BYTES, node_items, pod_items
from engine.decoding import objects, pods
from local.nodes import Grid

GRID = Grid(1, 2, 2)


def test_nodes_are_ready_and_as_large_as_real_ones() -> None:
    for key, value in node_items(GRID):
        node = objects.node(value)
        assert key == f"/registry/minions/{node.name}"
        assert (len(value), node.ready, bool(node.uid)) == (NODE_BYTES, True, True)


def test_pods_run_on_the_nodes_and_are_as_large_as_real_ones() -> None:
    found = list(pod_items(GRID, 8))
    decoded = [pods.pod(value) for _, value in found]
    hosts = [objects.node(value).name for _, value in node_items(GRID)]
    assert [one.spec.node_name for one in decoded] == [*hosts, *hosts]
    assert [key for key, _ in found] == [f"/registry/pods/{one.namespace}/{one.name}" for one in decoded]
    assert len({one.uid for one in decoded}) == 8
    assert all(
        (len(value), pod.phase) == (POD_BYTES, "Running") for (_, value), pod in zip(found, decoded, strict=True)
    )
