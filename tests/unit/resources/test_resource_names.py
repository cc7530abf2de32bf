"""What nodes report of devices, kept current."""

from __future__ import annotations

import random
from dataclasses import replace

from engine.api.objects import Node
from engine.cache.stores import Stores
from engine.resources.names import CORE, MEMORY, NVIDIA, RATIO, Reported, ReportedNodes, gpu_memory
from tests.support.cluster_records import gpu_nodes

GIB = 2**30


def _node(name: str, **allocatable: int) -> Node:
    return replace(gpu_nodes(1, 1, 1)[0], name=name, allocatable=allocatable)


def _dims(name: str, gpus: int, memory: int) -> Node:
    return _node(name, **{CORE: 100 * gpus, RATIO: 100 * gpus, MEMORY: gpus * memory})


def test_follows_the_store() -> None:
    """A name counts while one node reports more than none of it; an empty cluster reports nothing."""
    stores = Stores()
    assert stores.reported.now == Reported()
    stores.nodes.apply("ADDED", _node("a", **{NVIDIA: 8}))
    stores.nodes.apply("ADDED", _node("b", **{NVIDIA: 0, "example.com/x": 1}))
    assert stores.reported.now.names == {NVIDIA, "example.com/x"}
    stores.nodes.apply("MODIFIED", _node("a", cpu=1))
    assert stores.reported.now.names == {"cpu", "example.com/x"}
    stores.nodes.replace([])
    assert stores.reported.now == Reported()


def test_memory_is_told_while_all_gpus_are_alike() -> None:
    """Two sizes are no size; when the odd node goes, the size is known again."""
    stores = Stores()
    stores.nodes.replace([_dims("a", 8, 80 * GIB), _dims("b", 4, 80 * GIB)])
    assert stores.reported.now.memory == 80 * GIB
    stores.nodes.apply("ADDED", _dims("c", 8, 40 * GIB))
    assert stores.reported.now.memory is None
    stores.nodes.apply("DELETED", _dims("c", 8, 40 * GIB))
    assert stores.reported.now.memory == 80 * GIB


def test_a_node_without_gpus_has_no_gpu_memory() -> None:
    """Half-told and nonsensical nodes divide by nothing."""
    assert gpu_memory({}) == 0
    assert gpu_memory({MEMORY: GIB}) == 0
    assert gpu_memory({CORE: 50, MEMORY: GIB}) == 0
    assert gpu_memory({CORE: 200}) == 0


def test_what_does_not_differ_is_the_same_object() -> None:
    """Readers may compare by identity: a heartbeat, or another node of the same sort, makes nothing new."""
    kept = ReportedNodes()
    kept.changed("a", None, _dims("a", 8, GIB))
    before = kept.now
    kept.changed("b", None, _dims("b", 8, GIB))
    kept.changed("b", _dims("b", 8, GIB), _dims("b", 4, GIB))
    assert kept.now is before


def test_any_history_ends_as_if_counted_afresh() -> None:
    """Changes in any order leave no trace of nodes that are gone."""
    chance = random.Random(5)
    stores = Stores()
    for _ in range(300):
        name = f"n{chance.randrange(6)}"
        if chance.random() < 0.3 and (known := stores.nodes.get(name)) is not None:
            stores.nodes.apply("DELETED", known)
        else:
            stores.nodes.apply("ADDED", _dims(name, chance.randrange(3), chance.choice([0, GIB, 2 * GIB])))
        nodes = stores.nodes.values()
        sizes = {gpu_memory(node.allocatable) for node in nodes} - {0}
        names = {key for node in nodes for key, amount in node.allocatable.items() if amount}
        assert stores.reported.now == Reported(frozenset(names), sizes.pop() if len(sizes) == 1 else None)
