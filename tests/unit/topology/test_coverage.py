"""How much of the cluster each topology covers is told."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from engine import metrics
from engine.cache.reports import Coverage
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.policy.model import Policy, parse_policy
from engine.topology.topology import left_out, topologies_of
from tests.support.cluster_records import gpu_nodes

NODES = gpu_nodes(1, 2, 2)
KEY = next(key for key in NODES[0].labels if "hostname" not in key)


def policy(more: str = "") -> Policy:
    return parse_policy(f"topologies: [{{name: main, levels: [{{name: block, keys: [{KEY}]}}]{more}}}]")


def counted(state: str) -> float | None:
    return metrics.registry.get_sample_value("topogate_topology_nodes", {"topology": "main", "state": state})


def test_nodes_without_a_label_are_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """In the metric always, in the log when it changes."""
    caplog.set_level(logging.WARNING)
    bare = replace(NODES[0], labels={key: value for key, value in NODES[0].labels.items() if key != KEY})
    stores = Stores()
    stores.nodes.replace([bare, *NODES[1:]])
    view = ClusterState(stores, policy(), covered=Coverage().changed)
    view.refresh()
    assert (counted("in"), counted("unlabelled"), counted("unselected")) == (3.0, 1.0, 0.0)
    assert [one.getMessage() for one in caplog.records] == ["topology main: left out: 1 node with no label block"]
    view.set_policy(policy())
    assert len(caplog.records) == 1
    stores.nodes.replace([replace(NODES[0], resource_version="later"), *NODES[1:]])
    view.refresh()
    assert (counted("in"), counted("unlabelled")) == (4.0, 0.0)
    assert caplog.records[-1].getMessage() == "topology main: every node has its labels"


def test_nodes_that_are_not_selected_are_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """They belong to another topology, or to none on purpose."""
    caplog.set_level(logging.WARNING)
    stores = Stores()
    stores.nodes.replace(NODES)
    ClusterState(stores, policy(", nodeSelector: {pool: gpu}"), covered=Coverage().changed).refresh()
    assert (counted("in"), counted("unlabelled"), counted("unselected")) == (0.0, 0.0, 4.0)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (
            ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
            "hosts alone, as no preset fits; nearest: gke, but no node has a label of its level physical-host "
            "(cloud.google.com/gce-topology-host)",
        ),
        (
            ("ib.coreweave.cloud/fabric", "backend.coreweave.cloud/superpod"),
            "hosts alone, as no preset fits; nearest: coreweave, but no node has a label of its level leafgroup "
            "(backend.coreweave.cloud/leafgroup or ib.coreweave.cloud/leafgroup)",
        ),
        (("topology.kubernetes.io/zone",), ""),
        (("cloud.google.com/gce-topology-block",), ""),
        (("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack", KEY), ""),
    ],
)
def test_a_preset_that_fits_but_for_one_level_is_told(labels: tuple[str, ...], told: str) -> None:
    """Whoever gets hosts alone learns which label would have given levels; a zone alone tells of no platform."""
    nodes = [replace(node, labels=dict.fromkeys(labels, "a")) for node in NODES]
    [topology] = topologies_of(parse_policy("{}").topologies, nodes).values()
    assert left_out(topology) == told


def test_a_policy_that_wants_hosts_alone_is_told_nothing() -> None:
    """Only who has chosen nothing is told what is nearly there."""
    nodes = [replace(node, labels={"cloud.provider.com/topology-rack": "a"}) for node in NODES]
    [topology] = topologies_of(
        parse_policy("topologies: [{name: a, levels: [{name: rack, keys: [x]}]}]").topologies, nodes
    ).values()
    assert "nearest" not in left_out(topology)


def test_a_topology_that_is_gone_is_not_counted_any_more() -> None:
    """Its figures go with it."""
    coverage = Coverage()
    view = ClusterState(Stores(), policy(), covered=coverage.changed)
    view.refresh()
    assert counted("in") == 0.0
    view.set_policy(parse_policy("{}"))
    assert counted("in") is None
