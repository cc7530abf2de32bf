"""Our own namespace is none of ours, whatever it is called."""

from __future__ import annotations

from dataclasses import replace

from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from tests.support.cluster_records import gpu_nodes, job


def test_the_leader_leaves_the_namespace_that_it_runs_in_alone() -> None:
    """An installation outside topogate-system exempts its own namespace, and only that."""
    stores = Stores()
    view = ClusterState(stores, own_namespace="placement")
    stores.nodes.replace(gpu_nodes(1, 1, 1))
    view.refresh()
    assert view.request_of(replace(job(count=1), namespace="placement")).ignored == "ExemptNamespace"
    assert view.request_of(replace(job(count=1), namespace="topogate-system")).asked is not None
