"""A cluster in memory: nodes, pods and workloads as the caches have them, and what the scheduler answers for a gang."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.api.objects import Node
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.key import key_of
from engine.scheduler.outcome import Outcome, Placed
from engine.scheduler.schedule import schedule_gang


class SmallCluster:
    """What the caches contain, and the outcome of a gang in it."""

    def __init__(self, workloads: Iterable[Workload], *, nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> None:
        self.stores = Stores()
        self.view = ClusterState(self.stores)
        self.stores.nodes.replace(list(nodes))
        self.stores.pods.replace(list(pods))
        self.stores.workloads.replace(list(workloads))
        self.view.refresh()

    def plan(self, workload: Workload, **options: Any) -> Outcome:
        found = self.view.gangs.get(key_of(workload))
        assert found is not None
        return schedule_gang(self.view, found, **options)

    def placed(self, workload: Workload) -> Placed:
        outcome = self.plan(workload)
        assert isinstance(outcome, Placed), outcome
        return outcome
