"""The lives of gangs with a replica that releases pods by the plan before the newest one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine.api import names
from engine.api.placement import Assignment
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.gang.slots import slot_of_rank
from tests.property.test_gang_life import NAMES, GangLife
from tests.support.cluster_records import pod
from tests.support.lives import lives


class StaleReplicaLife(GangLife):
    """Where the leader has just changed a plan, the next pods of some ranks are released by the one before.

    Of kinds with pods that cost nothing to replace.
    """

    @initialize(
        level=st.sampled_from(["rack", "block"]),
        counts=st.tuples(st.integers(1, 5), st.integers(1, 4)),
        policy=st.sampled_from(["", "nodeLoss: evict\n", "nodeLoss: restart\n", "incomplete: restart\n"]),
        suspendable=st.booleans(),
        first=st.tuples(st.sets(st.integers(0, 4)), st.one_of(st.none(), st.integers(0, 4))),
    )
    def begin(  # type: ignore[override]
        self, level: str, counts: tuple[int, int], policy: str, suspendable: bool, first: tuple[set[int], int | None]
    ) -> None:
        # The host of the rank `lost` in each first plan is cordoned before the first pod is there.
        self.late, self.lost = first
        self.known: dict[str, Assignment | None] = dict.fromkeys(NAMES)
        self._begin(level, counts, policy, broken=set(), suspendable=suspendable, cost="free")

    @rule(ranks=st.sets(st.integers(0, 4), min_size=1))
    def fall_behind(self, ranks: set[int]) -> None:
        """The replica handles the next pods of these ranks, once."""
        self.late = ranks

    def _create(self) -> None:
        if self.lost is not None:
            self._lose_a_host(self.lost)
            self.lost = None
        super()._create()
        newest = {name: self._assignment(name) for name in NAMES}
        if newest != self.known:
            self.late = set()
        self.known = newest

    def _lose_a_host(self, rank: int) -> None:
        """Cordon a host of each plan while the leader sees only the pods that are not late."""
        for name in NAMES:
            gang, self.known[name] = self.leader.workload(name), self._assignment(name)
            plan = self.known[name]
            if plan is None or gang.suspended or (slot := slot_of_rank(plan.plan_of("main"), rank)) is None:
                continue
            node = self.leader.stores.nodes.get(slot.host)
            assert node is not None
            self.leader.has(replace(node, unschedulable=True, resource_version=self.leader.hands.version()))
            for other in set(range(gang.slots)) - self.late:
                self.leader.has(pod(gang, other, gated=True, name=f"{name}-{other}-first"))
        self.leader.settle(30)

    def _assignment(self, name: str) -> Assignment | None:
        placed = self.leader.placed(name)
        return placed.assignment if placed is not None else None

    def _pod(self, gang: Workload, rank: int, *, name: str) -> Pod:
        before = self.known[gang.name]
        if rank not in self.late or before is None or before == self._assignment(gang.name):
            return super()._pod(gang, rank, name=name)
        slot = slot_of_rank(before.plan_of("main"), rank)
        if slot is None:
            return super()._pod(gang, rank, name=name)
        one = pod(gang, rank, pin=slot.host, name=name)
        return replace(one, spec=replace(one.spec, annotations={names.REVISION: str(before.revision)}))


StaleReplicaLife.TestCase.settings = lives(30, steps=14)
test_gangs_live_through_releases_by_old_plans = StaleReplicaLife.TestCase
