"""What is kept of labels between plans has limits, and goes when nodes or topologies do."""

from __future__ import annotations

from dataclasses import replace

from engine.api.pod import PodTerm, SelectorRequirement, SelectorTerm
from engine.capacity.capacity import MAX_DOMAINS, MAX_SELECTION_WEIGHT, MAX_SELECTIONS, Capacity
from engine.capacity.nearby_pods import _MANY_CHANGED, NearbyPods, PodQuery
from engine.topology.levels import presets
from engine.topology.topology import build_topology
from tests.support.cluster_records import gpu_nodes, job, pod, shape

RACK = "cloud.provider.com/topology-rack"
KEYS = [f"key-{number}" for number in range(2 * max(MAX_DOMAINS, MAX_SELECTIONS))]
NODES = [replace(one, labels={**one.labels, **dict.fromkeys(KEYS, "x")}) for one in gpu_nodes(1, 2, 2)]
TOPOLOGY = build_topology("default", presets()["demo"], NODES)


def filled() -> Capacity:
    capacity = Capacity()
    for one in NODES:
        capacity.set_node(one.name, one)
    for key in KEYS:
        capacity.domains(key, TOPOLOGY)
        capacity.spread_nodes(shape(gpu=1), key, (key,), affinity=True, taints=False)
    return capacity


def test_domains_and_nodes_are_kept_up_to_a_limit() -> None:
    """The labels that were named last are kept; a label that no node has, and a selector of many words, are not."""
    capacity = filled()
    kept = capacity._tree_rows["default"].domains
    assert [*kept] == KEYS[-MAX_DOMAINS:]
    assert len(capacity._selections) == MAX_SELECTIONS
    assert capacity.domains(KEYS[-1], TOPOLOGY) is capacity.domains(KEYS[-1], TOPOLOGY)
    assert capacity.domains("invented", TOPOLOGY).number == 0
    assert "invented" not in kept
    words = SelectorRequirement("zone", "NotIn", tuple(str(number) for number in range(MAX_SELECTION_WEIGHT)))
    wide = replace(shape(gpu=1), affinity=(SelectorTerm((words,), ()),))
    before = list(capacity._selections)
    nodes, _ = capacity.spread_nodes(wide, RACK, (RACK,), affinity=True, taints=False)
    assert nodes.all()
    assert list(capacity._selections) == before


def test_what_is_kept_goes_with_nodes_and_topologies() -> None:
    """A deleted node drops the domains, another label the selected nodes, a topology that is gone its domains."""
    capacity = filled()
    capacity.set_node(NODES[0].name, replace(NODES[0], ready=False))
    assert len(capacity._selections) == MAX_SELECTIONS
    capacity.set_node(NODES[0].name, replace(NODES[0], labels={}))
    assert not capacity._selections
    assert capacity.domains(RACK, TOPOLOGY).codes.tolist() == [0, 1, 2, 2]
    capacity.set_node(NODES[0].name, None)
    assert not capacity._tree_rows
    capacity.domains(RACK, TOPOLOGY)
    capacity.keep_topologies(())
    assert not capacity._tree_rows


def test_hosts_that_are_gone_do_not_add_up_in_a_count_that_nobody_reads() -> None:
    """Pods on ever new hosts match a selector that was asked for once."""
    nearby = NearbyPods(list)
    query = PodQuery((PodTerm(RACK, (), ("default",)),))
    nearby.by_row(query, {}, size=0, stamp=1)
    most = 0
    for number in range(3 * _MANY_CHANGED):
        one = pod(job(), None, host=f"h{number}")
        nearby.set_pod(None, one)
        nearby.set_pod(one, None)
        most = max(most, len(nearby._queries[query].changed))
    assert 0 < most <= _MANY_CHANGED + 1
    last = pod(job(), None, host="h0")
    nearby.set_pod(None, last)
    assert nearby.by_row(query, {"h0": 0}, size=1, stamp=1).tolist() == [1]
