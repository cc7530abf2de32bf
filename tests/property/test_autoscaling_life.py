"""Random gangs, faults, leaders and lies of a node autoscaler, with the leader's decisions about requests for nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine import metrics
from engine.api.objects import ProvisioningRequest, Quota, RequestCondition
from engine.autoscaling.attempts import AskForNodes
from engine.autoscaling.demand import NodeDemand
from engine.autoscaling.state import state_of
from engine.cluster.client import ApiError, ApiUnavailable
from engine.cluster.writes import WriteRefused
from engine.controller.provisioner import FAILED_MOST, LOOK_EVERY, UNWANTED_AFTER
from engine.controller.writer import StaleObject
from engine.gang.gang import Gang, suspended_by_user
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import changed, gpu_nodes
from tests.support.gang_oracles import overbooked_hosts
from tests.support.lives import lives
from tests.support.preempting import EPOCH, GPU, PREEMPTS, PreemptingCluster

MOST = 5  # gangs
POLICY = (
    "topologies: [{name: default, preset: demo, nodeSelector: {}}]\n"
    "autoscaling: {provisioningRequest: {className: first, after: 10s, parameters: {ValidUntilSeconds: '120'}, "
    "fallbacks: [{className: second}]}}\n"
)
FAULTS = {
    "500": ApiError(500, "InternalError", "broken"),
    "403": WriteRefused("no rights"),
    "409": StaleObject("a newer version exists"),
    "silence": ApiUnavailable("no answer"),
}
KINDS = ("Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked")
GRACE = 5.0  # seconds for a few looks
# Requests and withdrawals of one gang in a time without news about it: two at once, then after growing pauses.
AT_ONCE, EACH = 5, 30.0


@dataclass
class Unwanted:
    """Since when a request is of no use, and the longest step in which time has passed meanwhile."""

    since: float
    step: float = 0.0


@dataclass
class Writes:
    """The writes about requests of one gang since there was news about it."""

    since: float
    count: Counter[str] = field(default_factory=Counter)


class AutoscalingLife(RuleBasedStateMachine):
    """Gangs of whole hosts in a cluster that has one rack, or none, and grows and shrinks."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.serial = 0
        self.quota = False
        self.faults: dict[str, tuple[str, bool]] = {}  # of a write: its fault, and whether it is done all the same
        self.rests_until = 0.0  # withdrawals that have failed are tried again by then
        self.unwanted: dict[tuple[str, str], Unwanted] = {}
        self.writes: dict[str, Writes] = {}  # by the name of the gang's Placement
        self.fits: dict[str, float] = {}  # gangs that have room and wait, and since when
        self.wrong: list[str] = []  # what the leader's threads have done; a raise would be caught there
        self.broken_before = metrics.controller_faults._value.get()

    @initialize(preempts=st.booleans(), nodes=st.integers(0, 2))
    def begin(self, preempts: bool, nodes: int) -> None:
        self.preempts = preempts
        self.cluster = PreemptingCluster(policy=POLICY + (PREEMPTS if preempts else ""), racks=0)
        self.leader = self.cluster.leader
        self.leader.stores.provisioning_version = "v1"
        requests = self.leader.hands.node_requests
        self._ask, self._withdraw = requests.ask, requests.withdraw
        requests.ask = self._seen_ask  # type: ignore[method-assign]
        requests.withdraw = self._seen_withdraw  # type: ignore[method-assign]
        self.leader.has(*gpu_nodes(1, 1, nodes))
        self.cluster.go_on()

    # -- what is asked of the leader's writes ------------------------------------------------------------------------

    def _seen_ask(
        self, gang: Gang, demand: NodeDemand, step: AskForNodes, *, version: str, elsewhere: Sequence[str] = ()
    ) -> str:
        assert gang.placement is not None
        name = gang.placement.name
        self._count("ask", name)
        live = [one.name for one in self.requests() if one.gang == name and not self._ended(one)]
        current = self.leader.placed(gang.workload.name)
        self._require(not live, f"{step.name} beside {live}")
        made = self.leader.stores.provisioning_requests.get(("default", step.name))
        self._require(made is None, f"{step.name} is made twice")
        self._require(current is not None and current.assignment is None, f"{step.name} for a gang that is placed")
        suspended = suspended_by_user(self.cluster.workload(gang.workload.name))
        self._require(not suspended, f"{step.name} for a suspended gang")
        fault, done = self.faults.get("ask", ("", False))
        answer = ""
        if done or not fault:
            answer = self._ask(gang, demand, step, version=version, elsewhere=elsewhere)
        if fault == "403":
            return answer if done else "the ProvisioningRequest for its nodes was refused: no rights"
        if fault:
            raise FAULTS[fault]
        return answer

    def _seen_withdraw(self, requests: Iterable[ProvisioningRequest], gang: Gang | None, why: str) -> None:
        found = tuple(requests)
        for one in found:
            self._count("withdraw", one.gang)
        fault, done = self.faults.get("withdraw", ("", False))
        if done or not fault:
            self._withdraw(found, gang, why)
        if fault:
            raise FAULTS[fault]

    def _count(self, what: str, name: str) -> None:
        """The writes about a gang without news are few, whatever the autoscaler and the API server answer."""
        known = self.writes.setdefault(name, Writes(self.leader.now))
        known.count[what] += 1
        most = AT_ONCE + (self.leader.now - known.since) / EACH
        self._require(known.count[what] <= most, f"{what} {name} at {self.leader.now:g}: {known}")

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)

    def _ended(self, request: ProvisioningRequest) -> bool:
        rules = self.leader.view.policy.autoscaling.of("default")
        assert rules is not None
        tried = next(one for one in rules.classes if one.class_name == request.class_name)
        return state_of(request, tried, now=EPOCH + self.leader.now).ended

    # -- what happens ------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.cluster.names) < MOST)
    @rule(
        count=st.integers(1, 3),
        priority=st.sampled_from([0, 0, 5]),
        suspendable=st.booleans(),
        require=st.sampled_from(["rack", None]),
    )
    def submit(self, count: int, priority: int, suspendable: bool, require: str | None) -> None:
        name = f"g{self.number}"
        self.number += 1
        self.cluster.submit(name, count, priority=priority, suspendable=suspendable, require=require)
        self._news()

    @precondition(lambda self: self.cluster.names)
    @rule(pick=st.integers(0, 9), how=st.sampled_from(["delete", "suspend", "resume", "change"]))
    def a_user_acts(self, pick: int, how: str) -> None:
        name = self.cluster.names[pick % len(self.cluster.names)]
        gang, placed = self.cluster.workload(name), self.leader.placed(name)
        if how == "delete":
            self.cluster.delete(name)
        elif how == "suspend" and gang.suspendable and not suspended_by_user(gang):
            self.leader.hands._change(gang, suspended=True, held=False)
        elif how == "resume" and suspended_by_user(gang):
            self.leader.hands._change(gang, suspended=True, held=True)  # as the webhook makes of it
        elif how == "change" and gang.suspended and (placed is None or placed.assignment is None):
            slots = gang.slots % 3 + 1
            other = changed(gang, slots=slots, total=slots, remaining=slots)
            self.leader.has(
                replace(other, generation=other.generation + 1, resource_version=self.leader.hands.version())
            )
        self._news()

    @rule(closed=st.booleans())
    def the_quota_changes(self, closed: bool) -> None:
        quotas = self.leader.stores.quotas
        known = quotas.get(("default", "gpus"))
        if closed and known is None:
            name = f"requests.{GPU}"
            quotas.apply(
                "ADDED",
                Quota("default", "gpus", {name: 0}, {name: 0}, (), resource_version=self.leader.hands.version()),
            )
        elif not closed and known is not None:
            quotas.apply("DELETED", known)
        self.quota = closed
        self._news()

    @rule(seconds=st.sampled_from([1, 4, 11, 35, 130, 620]))
    def time_passes(self, seconds: int) -> None:
        step = max(2.0, seconds / 15)
        for _ in range(max(1, round(seconds / step))):
            self.cluster.go_on(min(step, seconds), steps=2)
            self._look(step)

    @precondition(lambda self: self.requests())
    @rule(
        pick=st.integers(0, 9),
        kinds=st.dictionaries(st.sampled_from(KINDS), st.booleans(), min_size=1, max_size=2),
        late=st.sampled_from([0.0, 0.0, -700.0, 50.0, 10_000.0]),
        reason=st.sampled_from(["", "", "FailedToCreatePods"]),
    )
    def the_autoscaler_answers(self, pick: int, kinds: dict[str, bool], late: float, reason: str) -> None:
        """Anything, also what contradicts itself, and times that were never or are not yet."""
        known = self.requests()[pick % len(self.requests())]
        at = EPOCH + self.leader.now + late
        fresh = {kind: RequestCondition(status, at, reason or kind, "so it is") for kind, status in kinds.items()}
        version = self.leader.hands.version()
        both = replace(known, conditions={**known.conditions, **fresh}, resource_version=version)
        self.leader.stores.provisioning_requests.apply("MODIFIED", both)
        self.cluster.go_on()

    @precondition(lambda self: self.requests())
    @rule(pick=st.integers(0, 9))
    def somebody_deletes_a_request(self, pick: int) -> None:
        one = self.requests()[pick % len(self.requests())]
        self.leader.stores.provisioning_requests.apply("DELETED", one)
        self._news()

    @rule(rack=st.integers(0, 2), count=st.integers(1, 3))
    def nodes_appear(self, rack: int, count: int) -> None:
        """In a rack where they are of use, or not."""
        self._appear(rack, count)
        self._news()

    def _appear(self, rack: int, count: int) -> None:
        known = {node.name for node in self.leader.stores.nodes.values()}
        fresh = [one for one in gpu_nodes(1, 9, 6) if one.name.startswith(f"b0-r{rack}-") and one.name not in known]
        self.leader.has(
            *(
                replace(one, settled_at=EPOCH + self.leader.now, resource_version=self.leader.hands.version())
                for one in fresh[:count]
            )
        )

    @precondition(lambda self: len(self.leader.stores.nodes) > 0)
    @rule(pick=st.integers(0, 20))
    def a_node_vanishes(self, pick: int) -> None:
        nodes = sorted(self.leader.stores.nodes.values(), key=lambda one: one.name)
        node = nodes[pick % len(nodes)]
        self.leader.stores.nodes.apply("DELETED", node)
        for one in self.cluster.on(node.name):
            self.leader.stores.pods.apply("DELETED", one)
        self._news()

    @rule(
        what=st.dictionaries(
            st.sampled_from(["ask", "withdraw"]), st.tuples(st.sampled_from(sorted(FAULTS)), st.booleans()), max_size=2
        )
    )
    def writes_fail(self, what: dict[str, tuple[str, bool]]) -> None:
        """Or they are done, and their answers are lost."""
        self._fail(what)
        self._news()

    @rule(actions=st.integers(0, 6), seconds=st.sampled_from([0, 11]))
    def the_leader_ends(self, actions: int, seconds: int) -> None:
        self.leader.now += seconds
        for _ in range(actions):
            self.leader.turn()
            if self.leader.pool.waiting:
                self.leader.pool.waiting.pop(0)()
        self.cluster.another_leader()
        self._news()

    def _fail(self, what: dict[str, tuple[str, bool]]) -> None:
        if "withdraw" in self.faults:
            self.rests_until = self.leader.now + FAILED_MOST
        self.faults = what

    # -- what holds --------------------------------------------------------------------------------------------------

    def requests(self) -> list[ProvisioningRequest]:
        return sorted(self.leader.stores.provisioning_requests.values(), key=lambda one: one.name)

    def _news(self) -> None:
        """Something has happened after which requests may be made and withdrawn anew."""
        self.writes.clear()
        self.unwanted.clear()
        self.fits.clear()
        self.cluster.go_on()
        self._look(0.0)

    def _look(self, step: float) -> None:
        """Judge what has lasted too long."""
        now = self.leader.now
        useless = {one.key for one in self.requests() if self._withdrawn() and self._useless(one)}
        self.unwanted = {key: self.unwanted.get(key, Unwanted(now)) for key in useless}
        for key, known in self.unwanted.items():
            known.step = max(known.step, step)
            assert now - known.since <= UNWANTED_AFTER + LOOK_EVERY + GRACE + 2 * known.step, (key, known, now)
        first = self._first()
        self.fits = {first: self.fits.get(first, now)} if first is not None and self._has_room(first) else {}
        for name, since in self.fits.items():
            assert now - since <= GRACE + step, f"{name} has had room since {since:g}, and it is {now:g}"

    def _withdrawn(self) -> bool:
        """Withdrawals succeed, and none waits because one before it has failed."""
        return "withdraw" not in self.faults and self.leader.now > self.rests_until

    def _useless(self, request: ProvisioningRequest) -> bool:
        """Nobody needs its nodes: its gang is gone, suspended, runs, or has no quota."""
        name = next((name for name in self.cluster.names if self._placement(name) == request.gang), None)
        if name is None:
            # The garbage collector, which is not played here, deletes both; the leader sweeps up Placements later.
            return self.leader.stores.placements.get(("default", request.gang)) is None
        gang = self.cluster.workload(name)
        placed = self.leader.placed(name)
        if placed is not None and placed.assignment is not None:
            return self.cluster.runs(name)
        # Pods that exist have their quota.
        return suspended_by_user(gang) or (self.quota and len(self.cluster.pods(name)) < gang.slots)

    def _placement(self, name: str) -> str:
        found = self.leader.placed(name)
        return found.name if found is not None else ""

    def _first(self) -> str | None:
        """The gang that is planned first."""
        if self.preempts or self.quota:
            return None
        waiting = [
            name
            for name in self.cluster.names
            if self.leader.status(name)[0] == "Waiting" and not suspended_by_user(self.cluster.workload(name))
        ]
        order = {name: (-(self.cluster.workload(name).template.priority or 0), int(name[1:])) for name in waiting}
        return min(waiting, key=lambda name: order[name], default=None)

    def _has_room(self, name: str) -> bool:
        view = self.leader.view
        found = [gang for key in view.gangs.keys() if (gang := view.gangs.get(key)) and gang.workload.name == name]  # noqa: SIM118
        if not found or found[0].placement is None or found[0].placement.assignment is not None:
            return False
        return isinstance(schedule_gang(view, found[0]), Placed)

    @invariant()
    def no_host_is_used_twice(self) -> None:
        assert overbooked_hosts(self.leader.view, GPU) == {}

    @invariant()
    def nothing_raises(self) -> None:
        assert metrics.controller_faults._value.get() == self.broken_before

    @invariant()
    def every_write_is_right(self) -> None:
        assert not self.wrong, self.wrong

    @invariant()
    def a_gang_has_one_request(self) -> None:
        """The ended one is deleted as soon as the next one is there."""
        if self._withdrawn():
            found: Any = Counter(one.gang for one in self.requests())
            assert all(count <= 1 for count in found.values()), found

    def teardown(self) -> None:
        """When nothing fails any more and there are nodes, no gang waits to start, and no request is left."""
        if not hasattr(self, "cluster"):
            return
        self._fail({})
        self.the_quota_changes(False)
        for rack in (4, 5, 6, 7, 8):
            self._appear(rack, 6)
        self._news()
        for _ in range(40):
            self.cluster.go_on(5.0, steps=2)
            self._look(5.0)
        for name in self.cluster.names:
            if not suspended_by_user(self.cluster.workload(name)):
                assert self.leader.status(name)[0] != "Waiting", (
                    name,
                    self.leader.status(name),
                    self.cluster.message(name),
                )
        assert [one.name for one in self.requests()] == []


AutoscalingLife.TestCase.settings = lives(25, steps=16)
TestAutoscalingLife = AutoscalingLife.TestCase
