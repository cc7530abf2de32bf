"""Random submissions, ends, faults and leaders while gangs preempt and move each other, with the leader's decisions."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.api import names
from engine.api.placement import Assignment
from engine.gang.gang import Gang, suspended_by_user
from engine.lifecycle.actions import Status
from engine.lifecycle.preemption import MOVED_REST, REST_MOST
from engine.preemption.preempt import preemption_for
from engine.scheduler.schedule import schedule_gang
from tests.support.gang_oracles import overbooked_hosts
from tests.support.leader import unavailable
from tests.support.lives import lives
from tests.support.preempting import GPU, MOVES, PREEMPTS, PreemptingCluster

MOST = 7  # gangs
POLICIES = ("", PREEMPTS, MOVES, PREEMPTS + MOVES)
WRITES = ("tell", "suspend", "give back", "place", "resume", "evict", "release")


class PreemptionLife(RuleBasedStateMachine):
    """Gangs of three priorities on two racks of two hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = PreemptingCluster()
        self.number = 0
        self.policy = PREEMPTS
        self.moved_at: dict[str, tuple[float, Assignment | None]] = {}  # by the Placement's uid
        self.priorities: dict[str, int] = {}
        self.ended: Counter[tuple[str, int]] = Counter()  # assignments, by the Placement's uid and revision
        self.alone: set[str] = set()  # gangs with racks of their own
        self.stuck = False  # slots could not be given back at times
        self.preemptors: dict[str, int] = {}  # of victims -> how many calls there were before
        hands = self.cluster.leader.hands
        self._unplace, self._remove = hands.unplace, hands.remove
        hands.unplace = self._seen_unplace  # type: ignore[method-assign]
        hands.remove = self._seen_remove  # type: ignore[method-assign]

    # -- what is asked of the leader's actions -----------------------------------------------------------------------

    def _seen_unplace(self, gang: Gang, status: Status, **options: Any) -> None:
        assert gang.placement is not None
        assignment = gang.placement.assignment
        if status.reason == "Preempted":
            self._judge(gang)
            assert assignment is not None
            assert not self.ended[gang.placement.uid, assignment.revision], "it ends twice"
        if options.get("moves"):
            assert gang.workload.suspendable
            now = self.cluster.leader.now
            last = self.moved_at.get(gang.placement.uid)
            same = last is not None and last[1] == gang.placement.assignment  # the last attempt has failed
            assert last is None or same or now - last[0] >= MOVED_REST, "it is moved again too soon"
            self.moved_at[gang.placement.uid] = (now, gang.placement.assignment)
        self._unplace(gang, status, **options)
        if status.reason == "Preempted" and assignment is not None:
            self.ended[gang.placement.uid, assignment.revision] += 1

    def _seen_remove(self, gang: Gang, pods: Any, **options: Any) -> None:
        if options["reason"] == "Preempted":
            self._judge(gang)
            assert gang.placement is not None
            assert gang.placement.assignment is None, "its new pods would get the slots of the evicted ones"
        self._remove(gang, pods, **options)

    def _judge(self, gang: Gang) -> None:
        """Somebody of higher priority has written that this gang ends."""
        assert gang.placement is not None
        cluster = self.cluster
        named = [
            name
            for name in cluster.names
            if any(one.uid == gang.placement.uid for one in cluster.intent(name).victims)
            and cluster.intent(name).active
        ]
        mine = self.priorities[gang.workload.name]
        above = [name for name in named if self.priorities[name] > mine and not cluster.intent(name).moves]
        above += [name for name in named if self.priorities[name] >= mine and cluster.intent(name).moves]
        assert above, (gang.workload.name, named)
        for name in above:
            self.preemptors[name] = len(cluster.leader.hands.calls)

    # -- what happens ------------------------------------------------------------------------------------------------

    @initialize(
        policy=st.sampled_from(POLICIES),
        there=st.sampled_from(["", "pieces", "exclusive"]),
        priority=st.sampled_from([0, 5]),
    )
    def begin(self, policy: str, there: str, priority: int) -> None:
        """Under any policy; `pieces`: with one gang of one pod on each rack, and one that waits for a whole rack.

        `exclusive`: with an exclusive gang on each rack, whose pods end slowly.
        """
        self.the_policy_changes(policy)
        if there == "exclusive":
            for rack in range(2):
                self._submit(f"alone-{rack}", 2, priority=priority, suspendable=True, require="rack", alone=True)
            self.cluster.lingering = True
        if there != "pieces":
            return
        for rack in range(2):
            for name in (f"fill-{rack}", f"piece-{rack}"):
                self.priorities[name] = priority
                self.cluster.submit(name, 1, priority=priority, require=None)
            self.cluster.go_on()
        for rack in range(2):
            self.cluster.delete(f"fill-{rack}")
        self.cluster.go_on()
        self.priorities["wide"] = 5
        self.cluster.submit("wide", 2, priority=5)
        self.cluster.go_on()

    @precondition(lambda self: len(self.cluster.names) < MOST)
    @rule(
        count=st.integers(1, 3),
        priority=st.sampled_from([0, 5, 10]),
        suspendable=st.booleans(),
        require=st.sampled_from(["rack", None]),
        alone=st.sampled_from([False, False, True]),
    )
    def submit(self, count: int, priority: int, suspendable: bool, require: str | None, alone: bool) -> None:
        name = f"g{self.number}"
        self.number += 1
        self._submit(name, count, priority=priority, suspendable=suspendable, require=require, alone=alone)

    def _submit(
        self, name: str, count: int, *, priority: int, suspendable: bool, require: str | None, alone: bool
    ) -> None:
        self.priorities[name] = priority
        own = {names.EXCLUSIVE: "rack"} if alone else {}
        self.alone |= {name} if alone else set()
        self.cluster.submit(name, count, priority=priority, suspendable=suspendable, require=require, annotations=own)
        self.cluster.go_on()

    @precondition(lambda self: self.cluster.names)
    @rule(pick=st.integers(0, 9), how=st.sampled_from(["delete", "finish", "finish", "suspend", "resume"]))
    def a_user_acts(self, pick: int, how: str) -> None:
        name = self.cluster.names[pick % len(self.cluster.names)]
        gang = self.cluster.workload(name)
        if how == "delete":
            self.cluster.delete(name)
        elif how == "finish" and self.cluster.runs(name):
            self.cluster.finish(name)
            self.cluster.delete(name)
        elif how == "suspend" and gang.suspendable and not gang.suspended:
            self.cluster.leader.hands._change(gang, suspended=True, held=False)
        elif how == "resume" and suspended_by_user(gang):
            # as the webhook makes of it
            self.cluster.leader.hands._change(gang, suspended=True, held=True)
        self.cluster.go_on()

    @rule(seconds=st.sampled_from([1, 4, 11, 35, 130, 620]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.wait(seconds, every=max(5.0, seconds / 12))

    @rule()
    def pods_linger(self) -> None:
        self.cluster.lingering = not self.cluster.lingering
        self.cluster.go_on()

    @precondition(lambda self: self.cluster.lingering)
    @rule(pick=st.integers(0, 9))
    def one_pod_ends(self, pick: int) -> None:
        """Of those that linger."""
        ending = [one for name in self.cluster.names for one in self.cluster.pods(name) if one.deleting]
        if ending:
            self.cluster.leader.stores.pods.apply("DELETED", ending[pick % len(ending)])
            self.cluster.go_on()

    @rule()
    def evictions_are_refused(self) -> None:
        self.cluster.leader.hands.deaf = not self.cluster.leader.hands.deaf
        self.cluster.go_on()

    @rule(what=st.sets(st.sampled_from(WRITES), max_size=2))
    def writes_fail(self, what: set[str]) -> None:
        self.stuck |= "give back" in what
        self.cluster.leader.hands.broken = dict.fromkeys(what, unavailable)
        self.cluster.go_on()

    @rule(actions=st.integers(0, 6), seconds=st.sampled_from([0, 11]))
    def the_leader_ends(self, actions: int, seconds: int) -> None:
        leader = self.cluster.leader
        leader.now += seconds
        for _ in range(actions):
            leader.turn()
            if leader.pool.waiting:
                leader.pool.waiting.pop(0)()
        self.cluster.another_leader()
        self.cluster.go_on()

    @rule(policy=st.sampled_from(POLICIES))
    def the_policy_changes(self, policy: str) -> None:
        self.policy = policy
        other = PreemptingCluster(policy=policy)
        self.cluster.leader.view.set_policy(other.leader.view.policy)
        self.preemptors.clear()
        self.cluster.go_on()

    # -- what holds --------------------------------------------------------------------------------------------------

    @invariant()
    def one_gang_is_helped_by_moves_at_a_time(self) -> None:
        intents = {name: self.cluster.intent(name) for name in self.cluster.names}
        assert len([name for name, one in intents.items() if one.active and one.moves]) <= 1

    @invariant()
    def no_host_is_used_twice(self) -> None:
        """Slots that could not be given back, while their user had suspended the gang, may be others' by now.

        Such a gang is not resumed on them.
        """
        held = {gang.uid for gang in map(self.cluster.workload, self.cluster.names) if gang.suspended}
        view = self.cluster.leader.view
        assert overbooked_hosts(view, GPU, besides=held if self.stuck else ()) == {}

    @invariant()
    def no_other_gang_is_in_the_rack_of_an_exclusive_one(self) -> None:
        """Neither with slots nor with bound pods, also while those of a preempted gang still end."""
        racks = {name: self._racks(name) for name in self.cluster.names}
        for name in self.alone & racks.keys():
            for other in racks.keys() - {name}:
                assert racks[name].isdisjoint(racks[other]), (name, other)

    def _racks(self, name: str) -> set[str]:
        placed, pods = self.cluster.leader.placed(name), self.cluster.pods(name)
        slots = placed.assignment.hosts if placed is not None and placed.assignment is not None else frozenset()
        return {host.rpartition("-")[0] for host in slots | {one.spec.node_name for one in pods if one.spec.node_name}}

    def teardown(self) -> None:
        """When nothing fails any more, every gang runs whole or not at all, and nobody waits for less urgent ones."""
        cluster, leader = self.cluster, self.cluster.leader
        cluster.lingering = leader.hands.deaf = False
        leader.hands.broken = {}
        self.the_policy_changes(PREEMPTS + MOVES)
        cluster.wait(300, every=10.0)
        self.the_policy_changes(PREEMPTS)
        cluster.wait(2 * REST_MOST, every=50.0)
        cluster.wait(60)
        for name in cluster.names:
            hosts, gang = cluster.hosts(name), cluster.workload(name)
            assert len(hosts) in (0, gang.slots), (name, hosts)
            assert not cluster.intent(name).active, name
            if not hosts and not suspended_by_user(gang):
                assert cluster.leader.status(name)[0] == "Waiting"
                self._nobody_to_preempt(name)
        for name, before in self.preemptors.items():
            if name not in cluster.names or suspended_by_user(cluster.workload(name)):
                continue
            started = ("place", name) in leader.hands.calls[before:]
            assert started or cluster.intent(name).attempts or cluster.message(name), name

    def _nobody_to_preempt(self, name: str) -> None:
        view = self.cluster.leader.view
        key = next(key for key in view.gangs.keys() if view.gangs.workload_of(key) is self.cluster.workload(name))  # noqa: SIM118
        gang = view.gangs.get(key)
        assert gang is not None
        # What is kept for gangs that go first is of no use, whoever is preempted there.
        first = self.cluster.leader.controller._term.nominations_before(key, self.priorities[name])
        kept = frozenset[str]().union(*(one.hosts for one in first))
        found = preemption_for(
            view,
            gang,
            plan=partial(schedule_gang, view, gang, nominated=kept),
            others=False,
            protect=view.policy.preemption.protect,
            own_namespace="topogate-system",
            now=1_800_000_000.0 + self.cluster.leader.now,
        )
        assert found is None, (name, [one.name for one in found.victims], self.cluster.message(name))


PreemptionLife.TestCase.settings = lives(40, steps=20)
TestPreemptionLife = PreemptionLife.TestCase
