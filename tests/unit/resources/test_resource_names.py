"""What nodes report of devices, kept current."""

from __future__ import annotations

import random
from dataclasses import replace

from engine.api.objects import Node
from engine.cache.stores import Stores
from engine.resources.names import CORE, MEMORY, NVIDIA, RATIO, Reported, ReportedNodes, gpu_memory
from tests.support.cluster_records import gpu_nodes
from tests.support.gpu_hosts import gpus

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


def test_raised_amounts_of_a_node_leave_the_size_of_its_gpus() -> None:
    """A node may report more compute, and more memory, than its GPUs have: its Device object has their size."""
    stores = Stores()
    stores.nodes.replace([_node("a", **{CORE: 1600, MEMORY: 8 * 80 * GIB})])
    stores.devices.apply("ADDED", gpus("a", 8, memory=80 * GIB))
    assert stores.reported.now == Reported(frozenset({CORE, MEMORY}), memory=80 * GIB)
    stores.nodes.apply("MODIFIED", _node("a", **{CORE: 1600, MEMORY: 16 * 80 * GIB}))
    assert stores.reported.now.memory == 80 * GIB
    stores.devices.apply("MODIFIED", gpus("a", 8, memory=40 * GIB))
    assert stores.reported.now.memory == 40 * GIB
    stores.devices.replace([])
    assert stores.reported.now.memory == 80 * GIB


def test_gpus_of_several_sizes_on_one_host_have_no_size() -> None:
    """The mean that its amounts give is the size of none of them; sick GPUs and other devices do not count."""
    stores = Stores()
    stores.nodes.replace([_dims("a", 2, 60 * GIB)])
    small, large = gpus("a", 1, memory=40 * GIB).devices[0], gpus("a", 2, memory=80 * GIB).devices[1]
    stores.devices.apply("ADDED", gpus("a", devices=(small, large)))
    assert stores.reported.now.memory is None
    stores.devices.apply("MODIFIED", gpus("a", devices=(replace(small, healthy=False), large)))
    assert stores.reported.now.memory == 80 * GIB


def test_a_device_object_counts_with_a_node_that_reports_dimensions() -> None:
    """One that outlives its node, or of a node that reports whole GPUs alone, tells no size."""
    stores = Stores()
    stores.nodes.replace([_dims("a", 8, 80 * GIB), _node("b", **{NVIDIA: 8})])
    stores.devices.replace([gpus("b", 8, memory=40 * GIB), gpus("gone", 8, memory=40 * GIB)])
    assert stores.reported.now.memory == 80 * GIB


def test_whole_gpus_that_a_node_reports_count_its_gpus() -> None:
    """Of two numbers the smaller one counts, as it does on hosts."""
    assert gpu_memory({NVIDIA: 8, CORE: 1600, MEMORY: 8 * GIB}) == GIB
    assert gpu_memory({NVIDIA: 80, CORE: 800, MEMORY: 8 * GIB}) == GIB
    assert gpu_memory({NVIDIA: 0, CORE: 800, MEMORY: 8 * GIB}) == GIB


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
    """Changes in any order leave no trace of nodes and Device objects that are gone."""
    chance = random.Random(5)
    stores = Stores()
    for _ in range(600):
        name = f"n{chance.randrange(6)}"
        if chance.random() < 0.3 and (known := stores.nodes.get(name)) is not None:
            stores.nodes.apply("DELETED", known)
        elif chance.random() < 0.2 and (listed := stores.devices.get(name)) is not None:
            stores.devices.apply("DELETED", listed)
        elif chance.random() < 0.2:
            stores.devices.apply("ADDED", gpus(name, 2, memory=chance.choice([GIB, 2 * GIB])))
        else:
            stores.nodes.apply("ADDED", _dims(name, chance.randrange(3), chance.choice([0, GIB, 2 * GIB])))
        afresh = ReportedNodes()
        for node in stores.nodes.values():
            afresh.changed(node.name, None, node)
        for devices in stores.devices.values():
            afresh.devices_changed(devices.name, None, devices)
        assert stores.reported.now == afresh.now
