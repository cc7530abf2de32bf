"""A leader on the real clock with its own stores as API server; state, planner and control loop are the product's."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.controller.controller import Controller
from engine.decoding.objects import node
from engine.decoding.placements import placement
from engine.decoding.pods import pod
from engine.decoding.workloads import workload
from engine.policy.model import parse_policy
from tests.support.leader import POLICY, Hands, Later

Json = Mapping[str, Any]


class BenchLeader:
    """Leads from its first turn; what it writes goes into its stores when `write` is called."""

    def __init__(self) -> None:
        self.stores = Stores()
        self.state = ClusterState(self.stores, parse_policy(POLICY))
        self.hands = Hands(self.state, wall=time.time)
        self.pool = Later()
        self.controller = Controller(
            self.state, self.hands, leads=lambda: True, begin_term=lambda: True, pool=self.pool
        )

    def read(self, bodies: Iterable[Json]) -> int:
        """Read objects as lists of the API server bring them; return their number."""
        read: dict[str, list[Any]] = defaultdict(list)
        for number, body in enumerate(bodies, start=1):
            named = {**body, "metadata": {"resourceVersion": str(number), **body["metadata"]}}
            read[body["kind"]].append(self.record(named))
        self.stores.nodes.replace(read["Node"])
        self.stores.workloads.replace(read["Job"])
        self.stores.placements.replace(read["Placement"])
        self.stores.pods.replace(read["Pod"])
        return sum(map(len, read.values()))

    def record(self, body: Json) -> Any:
        """Return what the caches keep of an object."""
        source = json.dumps(body).encode()
        match body["kind"]:
            case "Node":
                return node(source)
            case "Pod":
                return pod(source)
            case "Placement":
                return placement(source)
        entry = self.state.registry.find("batch", "Job", "v1")
        assert entry is not None
        return workload(source, entry=entry, registry=self.state.registry)

    def turn(self) -> float:
        """Apply what has come and run one pass of the control loop; return its seconds of the processor."""
        began = time.thread_time()
        self.state.refresh()
        self.controller.turn()
        return time.thread_time() - began

    def write(self) -> None:
        """Do the writes that wait."""
        waiting, self.pool.waiting[:] = list(self.pool.waiting), []
        for action in waiting:
            action()

    def settle(self, turns: int = 200) -> None:
        """Turn and write until nothing waits; raises TimeoutError."""
        for _ in range(turns):
            self.turn()
            if not self.pool.waiting and not self.state.changed.is_set():
                return
            self.write()
        raise TimeoutError(f"the leader has not come to rest in {turns} turns")
