"""Random losses, growths and replacements of gangs, with the leader's real view, planner and state machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.api import names
from engine.api.objects import Node
from engine.api.placement import FailedStarts, failed_starts
from engine.api.pod import Pod, Readiness
from engine.api.rank import expand_ranks, join_ranks
from engine.api.workload import Workload
from engine.gang.gang import pinned_host
from engine.policy.model import default_policy
from tests.support.cluster_records import changed, gpu_nodes, job, pod, shape, spec
from tests.support.gang_oracles import overbooked_hosts, ranks_of, scattered
from tests.support.leader import POLICY, Leader
from tests.support.lives import lives

HOSTS = [node.name for node in gpu_nodes(1, 2, 4)]
HALF = 4  # GPUs of a pod: two pods a host
NAMES = ("train", "other")
GPU = "nvidia.com/gpu"
EPOCH = 1_800_000_000.0
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
GROUP = (names.SPREAD, names.SPREAD_GROUP)
# Which of the two gangs asks to be kept apart, and how.
APART = (((names.EXCLUSIVE,), ()), ((), (names.EXCLUSIVE,)), ((names.EXCLUSIVE,), (names.EXCLUSIVE,)), (GROUP, GROUP))


class GangLife(RuleBasedStateMachine):
    """Two gangs on two racks of four hosts; every step is followed by all that the leader makes of it."""

    @initialize(
        level=st.sampled_from(["rack", "block"]),
        counts=st.tuples(st.integers(1, 5), st.integers(1, 4)),
        policy=st.tuples(
            st.sampled_from(["", "nodeLoss: evict\n", "nodeLoss: restart\n", "incomplete: restart\n"]),
            st.sampled_from(["", "timeouts: {start: 20s}\n"]),
        ),
        broken=st.one_of(st.just(set[str]()), st.sets(st.sampled_from(HOSTS), min_size=1)),
        suspendable=st.booleans(),
    )
    def begin(
        self, level: str, counts: tuple[int, int], policy: tuple[str, str], broken: set[str], suspendable: bool
    ) -> None:
        self._begin(level, counts, "".join(policy), broken=broken, suspendable=suspendable)

    def _begin(
        self,
        level: str,
        counts: tuple[int, int],
        policy: str,
        *,
        broken: set[str],
        suspendable: bool,
        asked: tuple[Mapping[str, str], ...] = ({}, {}),
        nodes: Sequence[Node] = (),
        evictable: bool = False,
        cost: str = "retry",
    ) -> None:
        self.leader = Leader(nodes=list(nodes or gpu_nodes(1, 2, 4)), policy=POLICY + policy)
        self.broken = set(broken)  # hosts on which no container starts
        self.edited: set[str] = set()  # gangs whose user has changed them, which gives them all their starts again
        self.serial = 0
        self.level = level
        template = spec(shape=shape(gpu=HALF), gates=(names.GATE,), labels={names.MANAGED: "true"})
        for name, count, more in zip(NAMES, counts, asked, strict=True):
            gang = job(name, count=count, require=level, held=suspendable, template=template, suspendable=suspendable)
            pod_sets = tuple(replace(one, evictable=evictable, replace=cost) for one in gang.pod_sets)
            self.leader.has(replace(gang, annotations={**gang.annotations, **more}, pod_sets=pod_sets))
        self._go_on()

    def _go_on(self) -> None:
        """What controllers, scheduler and leader do until nothing changes any more."""
        for _ in range(4):
            self.leader.settle(30)
            self._create()
            self.leader.settle(30)
            self._bind()
            self._end()
        self.leader.settle(30)

    def _live(self, name: str) -> list[Pod]:
        pods = self.leader.stores.pods.values()
        return [one for one in pods if one.owner and one.owner.name == name and not (one.finished or one.deleting)]

    def _create(self) -> None:
        for name in NAMES:
            gang = self.leader.workload(name)
            if gang.suspended:
                for one in self._live(name):
                    self.leader.stores.pods.apply("DELETED", one)
                continue
            there = {int(one.spec.labels[names.COMPLETION_INDEX]) for one in self._live(name)}
            for rank in set(range(gang.slots)) - there - self._completed(gang):
                self.serial += 1
                self.leader.has(self._pod(gang, rank, name=f"{name}-{rank}-{self.serial}"))

    def _completed(self, gang: Workload) -> set[int]:
        return set(expand_ranks(gang.pod_sets[0].finished_ranks))

    def _pod(self, gang: Workload, rank: int, *, name: str) -> Pod:
        """A new pod of a gang as its webhook leaves it."""
        return pod(gang, rank, gated=True, name=name)

    def _bind(self) -> None:
        for name in NAMES:
            for one in self._live(name):
                host = pinned_host(one.spec.shape)
                node = self.leader.stores.nodes.get(host or "")
                if one.spec.gates or one.spec.node_name or node is None or host is None:
                    continue
                if node.ready and not node.unschedulable and self._fits(one, node):
                    bound = replace(
                        one, spec=replace(one.spec, node_name=host), phase="Running", bound=EPOCH + self.leader.now
                    )
                    self.leader.has(self._as_its_kubelet_says(bound))

    def _as_its_kubelet_says(self, one: Pod) -> Pod:
        wall = EPOCH + self.leader.now
        fault = Readiness(False, wall, 0, "main", "ImagePullBackOff") if one.spec.node_name in self.broken else None
        return replace(one, readiness=fault, resource_version=self.leader.hands.version())

    def _fits(self, one: Pod, node: Node) -> bool:
        """As the scheduler counts: a pod that terminates has its room until it is gone."""
        there = [other for other in self.leader.stores.pods.values() if other.spec.node_name == node.name]
        asked = sum(dict(other.spec.shape.requests).get(GPU, 0) for other in (*there, one) if not other.finished)
        return asked <= node.allocatable.get(GPU, 0)

    def _end(self) -> None:
        """The kubelet of a host that is alive ends the pods that were to go."""
        for one in list(self.leader.stores.pods.values()):
            node = self.leader.stores.nodes.get(one.spec.node_name)
            if one.deleting and node is not None and node.ready:
                self.leader.stores.pods.apply("DELETED", one)

    def _observed(self) -> dict[str, dict[int, str]]:
        return {
            name: {
                int(one.spec.labels[names.COMPLETION_INDEX]): one.spec.node_name
                for one in self._live(name)
                if one.spec.node_name
            }
            for name in NAMES
        }

    # -- what happens ----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), pick=st.integers(0, 9), how=st.sampled_from(["delete", "fail"]))
    def lose_a_pod(self, name: str, pick: int, how: str) -> None:
        pods = sorted(self._live(name), key=lambda one: one.name)
        if not pods:
            return
        one = pods[pick % len(pods)]
        if how == "delete":
            self.leader.stores.pods.apply("DELETED", one)
        else:
            self.leader.has(replace(one, phase="Failed", resource_version=self.leader.hands.version()))
        self._go_on()

    @rule(name=st.sampled_from(NAMES), pick=st.integers(0, 9))
    def complete_a_pod(self, name: str, pick: int) -> None:
        """Its index never runs again. Never the last one: the gang would end."""
        gang = self.leader.workload(name)
        pods = sorted((one for one in self._live(name) if one.spec.node_name), key=lambda one: one.name)
        if not pods or gang.pod_sets[0].needed < 2:
            return
        one = pods[pick % len(pods)]
        done = self._completed(gang) | {int(one.spec.labels[names.COMPLETION_INDEX])}
        self.leader.stores.pods.apply("DELETED", one)
        self.leader.has(self._with_completed(gang, done))
        self._go_on()

    def _with_completed(self, gang: Workload, done: set[int], **more: int) -> Workload:
        fresh = {"remaining": more.get("slots", gang.slots) - len(done)}
        ranks = join_ranks([(rank, rank) for rank in sorted(done)])
        return changed(gang, resource_version=self.leader.hands.version(), finished_ranks=ranks, **fresh, **more)

    @rule(hosts=st.sets(st.sampled_from(HOSTS), min_size=1, max_size=3), drained=st.booleans())
    def cordon(self, hosts: set[str], drained: bool) -> None:
        before = self._observed()
        for host in hosts:
            node = self.leader.stores.nodes.get(host)
            if node is not None:
                self.leader.has(replace(node, unschedulable=True, resource_version=self.leader.hands.version()))
        if not drained:
            self.leader.settle(30)
            assert self._observed() == before, "a cordon moved somebody"
            return
        for name in NAMES:
            for one in self._live(name):
                if one.spec.node_name in hosts:
                    self.leader.stores.pods.apply("DELETED", one)
        self._go_on()

    @rule(host=st.sampled_from(HOSTS))
    def mend(self, host: str) -> None:
        self.leader.has(
            next(
                replace(node, resource_version=self.leader.hands.version())
                for node in gpu_nodes(1, 2, 4)
                if node.name == host
            )
        )
        self._go_on()

    @rule(host=st.sampled_from(HOSTS), seconds=st.sampled_from([5.0, 70.0]))
    def die(self, host: str, seconds: float) -> None:
        node = self.leader.stores.nodes.get(host)
        if node is None:
            return
        since = 1_800_000_000.0 + self.leader.now
        self.leader.has(replace(node, ready=False, settled_at=since, resource_version=self.leader.hands.version()))
        self._go_on()
        self.leader.later(seconds)
        self._go_on()

    @rule(host=st.sampled_from(HOSTS))
    def break_or_repair_the_registry_of_a_host(self, host: str) -> None:
        """No container of a pod starts there, or of those that run they do again."""
        self.broken ^= {host}
        for name in NAMES:
            for one in self._live(name):
                if one.spec.node_name == host:
                    self.leader.has(self._as_its_kubelet_says(one))
        self._go_on()

    @rule(host=st.sampled_from(HOSTS))
    def vanish(self, host: str) -> None:
        node = self.leader.stores.nodes.get(host)
        if node is None:
            return
        self.leader.stores.nodes.apply("DELETED", node)
        for name in NAMES:
            for one in self._live(name):
                if one.spec.node_name == host:
                    self.leader.stores.pods.apply("DELETED", one)
        self._go_on()

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 7))
    def scale(self, name: str, count: int) -> None:
        gang = self.leader.workload(name)
        done = {rank for rank in self._completed(gang) if rank < count}
        if len(done) == count:
            return
        self.edited.add(name)
        self.leader.has(self._with_completed(gang, done, generation=gang.generation + 1, slots=count, total=count))
        for one in self._live(name):
            if int(one.spec.labels[names.COMPLETION_INDEX]) >= count:
                self.leader.stores.pods.apply("DELETED", one)
        self._go_on()

    @precondition(lambda self: self.leader.stores.pods.values())
    @rule(seconds=st.sampled_from([1.0, 31.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.leader.later(seconds)
        self._go_on()

    @rule()
    def lead(self) -> None:
        """The leader is killed; the next one has what the API server has."""
        before, self.leader = self.leader, Leader(policy=self.leader.policy, now=self.leader.now)
        self.leader.hands.follow(before.hands)
        for store in ("nodes", "workloads", "placements", "pods"):
            getattr(self.leader.stores, store).replace(getattr(before.stores, store).values())
        self._go_on()

    # -- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_booked_twice(self) -> None:
        """Pods that are there and slots that are kept never ask for more than a host has."""
        if hasattr(self, "leader"):
            assert overbooked_hosts(self.leader.view, GPU) == {}

    @invariant()
    def the_required_level_holds(self) -> None:
        """All slots, and all pods that are bound, in one domain of it."""
        if not hasattr(self, "leader"):
            return
        for name in NAMES:
            depth = {"block": 1, "rack": 2}[self.level]
            assert not scattered(self.leader.placed(name), self._observed()[name], depth=depth), name

    @invariant()
    def whoever_runs_keeps_his_slot(self) -> None:
        """The slot of a rank is where its pod runs."""
        if not hasattr(self, "leader"):
            return
        for name, hosts in self._observed().items():
            slots = ranks_of(self.leader.placed(name))
            wrong = {rank: (host, slots[rank]) for rank, host in hosts.items() if slots.get(rank, host) != host}
            assert not wrong, name

    @invariant()
    def whoever_has_used_up_his_starts_is_held(self) -> None:
        """No more starts than the policy allows, and no slots after the last one."""
        if not hasattr(self, "leader"):
            return
        for name in NAMES:
            placed = self.leader.placed(name)
            starts = failed_starts(placed.status) if placed is not None else FailedStarts()
            assert starts.count <= default_policy().queue.max_start_attempts
            if placed is not None and starts.count == default_policy().queue.max_start_attempts:
                assert placed.assignment is None or name in self.edited

    @invariant()
    def nobody_is_let_go_onto_a_host_without_a_slot(self) -> None:
        """As many pinned or bound pods of a gang on a host as it has slots there."""
        if not hasattr(self, "leader"):
            return
        for name in NAMES:
            slots = Counter(ranks_of(self.leader.placed(name)).values())
            if slots:
                there = Counter(one.spec.node_name for one in self._live(name) if one.spec.node_name)
                assert there <= slots, name


class SeparatedLife(GangLife):
    """The same, with gangs that are kept apart from each other."""

    @initialize(
        level=st.sampled_from(["rack", "block"]),
        counts=st.tuples(st.integers(1, 5), st.integers(1, 4)),
        policy=st.sampled_from(["", "nodeLoss: evict\n", "nodeLoss: restart\n", "incomplete: restart\n"]),
        apart=st.sampled_from([(*keys, level) for keys in APART for level in ("rack", "host")]),
    )
    def begin(  # type: ignore[override]
        self, level: str, counts: tuple[int, int], policy: str, apart: tuple[tuple[str, ...], tuple[str, ...], str]
    ) -> None:
        *keys_of, at = apart
        self.depth = {"rack": 2, "host": 3}[at]
        values = {names.EXCLUSIVE: at, names.SPREAD: at, names.SPREAD_GROUP: "together"}
        asked = tuple({key: values[key] for key in keys} for keys in keys_of)
        self._begin(level, counts, policy, broken=set(), suspendable=True, asked=asked)

    @rule(host=st.sampled_from(HOSTS))
    def unregister(self, host: str) -> None:
        """A node is deleted, and its pods are still there: it may be registered again with them."""
        node = self.leader.stores.nodes.get(host)
        if node is not None:
            self.leader.stores.nodes.apply("DELETED", node)
            self._go_on()

    @invariant()
    def no_domain_is_shared(self) -> None:
        """Neither by slots nor by bound pods."""
        if not hasattr(self, "leader"):
            return
        path = {node.name: (node.labels[BLOCK], node.labels[RACK], node.name) for node in gpu_nodes(1, 2, 4)}
        found = []
        for name, hosts in self._observed().items():
            there = {*hosts.values(), *ranks_of(self.leader.placed(name)).values()}
            found.append({path[host][: self.depth] for host in there})
        assert found[0].isdisjoint(found[1])


GangLife.TestCase.settings = lives(30, steps=14)
test_gangs_live_through_losses_and_growth = GangLife.TestCase

SeparatedLife.TestCase.settings = lives(30, steps=14)
test_gangs_are_kept_apart_through_losses_and_growth = SeparatedLife.TestCase


class GroupedLife(GangLife):
    """The same, with both gangs in one pod group."""

    @initialize(
        level=st.sampled_from(["rack", "block"]),
        counts=st.tuples(st.integers(1, 5), st.integers(1, 4)),
        fewer=st.integers(0, 2),
        policy=st.sampled_from(["", "nodeLoss: evict\n", "nodeLoss: restart\n", "incomplete: restart\n"]),
        full=st.sets(st.sampled_from(HOSTS)),
    )
    def begin(  # type: ignore[override]
        self, level: str, counts: tuple[int, int], fewer: int, policy: str, full: set[str]
    ) -> None:
        self.least = max(1, sum(counts) - fewer)
        self.begun = False
        asked = {names.POD_GROUP: "mesh", names.MIN_AVAILABLE: str(self.least)}
        cordoned = [replace(node, unschedulable=node.name in full) for node in gpu_nodes(1, 2, 4)]
        self._begin(level, counts, policy, broken=set(), suspendable=True, asked=(asked, asked), nodes=cordoned)

    @invariant()
    def the_group_starts_together_or_not_at_all(self) -> None:
        """When its first pod is let go, as many have slots as must start together."""
        if not hasattr(self, "leader") or self.begun:
            return
        self.begun = any(names.GATE not in one.spec.gates for name in NAMES for one in self._live(name))
        if self.begun:
            assert sum(len(ranks_of(self.leader.placed(name))) for name in NAMES) >= self.least


GroupedLife.TestCase.settings = lives(30, steps=14)
test_pod_groups_live_through_losses_and_growth = GroupedLife.TestCase


class MovedLife(GangLife):
    """The same, with users that ask for moves; evicting a pod costs nothing but its work."""

    @initialize(
        level=st.sampled_from(["rack", "block"]),
        counts=st.tuples(st.integers(1, 5), st.integers(1, 4)),
        policy=st.sampled_from(["", "nodeLoss: evict\n", "nodeLoss: restart\n", "incomplete: restart\n"]),
        suspendable=st.booleans(),
    )
    def begin(  # type: ignore[override]
        self, level: str, counts: tuple[int, int], policy: str, suspendable: bool
    ) -> None:
        self._begin(level, counts, policy, broken=set(), suspendable=suspendable, evictable=True)

    def _annotate(self, name: str, key: str, value: str | None) -> None:
        gang = self.leader.workload(name)
        every = {**gang.annotations, key: value}
        kept = {one: text for one, text in every.items() if text is not None}
        self.leader.has(replace(gang, annotations=kept, resource_version=self.leader.hands.version()))

    def _used(self, name: str, picks: set[int]) -> set[str]:
        """Some of the hosts that a gang uses."""
        hosts = sorted(set(self._observed()[name].values()))
        return {hosts[pick % len(hosts)] for pick in picks if hosts}

    def _on_dead_hosts(self, name: str) -> bool:
        nodes = [self.leader.stores.nodes.get(host) for host in self._observed()[name].values()]
        return any(node is None or not node.ready for node in nodes)

    @rule(name=st.sampled_from(NAMES), picks=st.sets(st.integers(0, 4), max_size=2))
    def leave_hosts(self, name: str, picks: set[int]) -> None:
        """Its pods on these hosts move all together or not at all; no pod is lost by that."""
        before, hosts = self._observed()[name], self._used(name, picks)
        self._annotate(name, names.REPLACE, ",".join(sorted(hosts)) or None)
        on_dead = self._on_dead_hosts(name)
        self._go_on()
        self.leader.later(40.0)
        self._go_on()
        if on_dead:
            return  # the policy lets pods there end meanwhile, and the gang with them
        after = self._observed()[name]
        assert set(before) <= set(after) | (set(before) - set(ranks_of(self.leader.placed(name)))), "a pod was lost"
        on_them = {rank for rank, host in before.items() if host in hosts}
        still = {rank for rank in on_them if after.get(rank) in hosts}
        assert still in (set(), on_them), "only some of the pods have moved"

    @rule(
        name=st.sampled_from(NAMES),
        value=st.sampled_from(["true", "again", "third", "false"]),
        out=st.sets(st.integers(0, 4), max_size=1),
    )
    def plan_again(self, name: str, value: str, out: set[int]) -> None:
        """A gang with slots has slots afterwards, and as many of its pods run, though one of its hosts is cordoned."""
        placed, before = self.leader.placed(name), self._observed()[name]
        for host in self._used(name, out):
            node = self.leader.stores.nodes.get(host)
            if node is not None:
                self.leader.has(replace(node, unschedulable=True, resource_version=self.leader.hands.version()))
        self._annotate(name, names.REPLAN, value)
        on_dead = self._on_dead_hosts(name)
        self._go_on()
        self.leader.later(40.0)
        self._go_on()
        after = self.leader.placed(name)
        if not on_dead and placed is not None and placed.assignment is not None:
            assert after is not None
            assert after.assignment is not None
            assert len(self._observed()[name]) >= len(before)


MovedLife.TestCase.settings = lives(30, steps=14)
test_gangs_live_through_moves = MovedLife.TestCase
