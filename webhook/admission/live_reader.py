"""The admission handlers' reads of the cluster, answered from this replica's watch caches."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

from engine.api.objects import Node
from engine.api.placement import Placement, has_started
from engine.api.pod import OwnerRef, Pod, Shape
from engine.api.resources import Requests
from engine.api.workload import GangKey, PodSet, Workload
from engine.cache.state import ClusterState
from engine.devices.allocation import Uses, allocation
from engine.gang.gang import Gang, PodGroupState, host_of, pod_set_of, rank_is_slot, rank_of
from engine.gang.key import key_of, keys_of, placed_key
from engine.gang.ownership import Key, Link, OwnerResolver
from engine.gang.request import PlacementRequest, of_group
from engine.gang.slots import slot_of_rank
from engine.gang.validation import checks
from engine.kinds.registry import Registry
from engine.policy.model import Policy
from engine.preemption.preempt import Preemption, preemption_for
from engine.preemption.search import SearchLimits
from engine.resources.names import Reported
from engine.scheduler.outcome import Never, Outcome, Placed
from engine.scheduler.schedule import answer_in_view
from engine.topology.topology import Topology
from webhook.admission.concurrency import ReviewSlots
from webhook.admission.forecast_budget import ForecastBudget
from webhook.admission.waiters import ObjectWaiters

Found = TypeVar("Found")

# A replica whose cache lags behind waits this long for the Placement that a pod names, and for the pod's owner.
REVISION_WAIT = 0.2
# A forecast is optional: it never costs a review more than this.
FORECAST_WAIT = 0.3
# Requirements of templates times nodes that a forecast may examine: about a second's worth.
FORECAST_CHECKS = 3_000_000
# Processor time, in seconds, of the search for what is preempted, at a submit or dry run.
PREEMPTION_CPU = 0.2
# The leader holds the lock for the milliseconds of a decision; a pod does not wait for it longer than this.
LEDGER_WAIT = 0.2


class LiveReader:
    """Implements `webhook.admission.reader.Reader` over `engine.cache.state.ClusterState`; thread-safe.

    A docstring here adds something to the protocol's.
    """

    def __init__(
        self,
        view: ClusterState,
        *,
        own_username: str,
        own_namespace: str,
        policy_loaded: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        turns: ReviewSlots | None = None,
        allowance: ForecastBudget | None = None,
        resources_fixed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._view = view
        self._stores = view.stores
        self.own_username = own_username
        self.own_namespace = own_namespace
        self._policy_loaded = policy_loaded
        self._clock = clock
        self._wall = wall
        self._turns = turns or ReviewSlots()
        self._allowance = allowance  # None: forecasts are not limited
        self._resources_fixed = resources_fixed
        self._arrivals = ObjectWaiters(view.stores, clock=clock)
        self._owners: OwnerResolver | None = None

    @property
    def policy(self) -> Policy | None:
        return self._view.policy if self._policy_loaded() else None

    @property
    def registry(self) -> Registry:
        return self._view.registry

    @property
    def topologies(self) -> Mapping[str, Topology]:
        return self._view.topologies

    def topologies_under(self, policy: Policy) -> Mapping[str, Topology]:
        return self._view.topologies_under(policy) if self._stores.nodes.synced else {}

    @property
    def reported(self) -> Reported:
        return self._stores.reported.now

    @property
    def resources_fixed(self) -> bool:
        return self._resources_fixed()

    def find(self, key: Key) -> Link | None:
        if key[:2] == ("", "Pod"):
            return self._stores.pods.get(key[2:])
        return self._stores.workloads.get(key) or self._stores.owned.get(key)

    def owners(self, policy: Policy) -> OwnerResolver:
        """Return the owner resolver over `find` under a policy. Cached: a workload's pods share a chain."""
        known, topologies = self._owners, self._view.topologies
        if known is None or known.policy is not policy or known.topologies is not topologies:
            known = self._owners = OwnerResolver(self.find, policy, topologies, self.own_namespace)
        return known

    def placement_of(self, key: GangKey) -> Placement | None:
        """Return the Placement of a gang; the oldest if there are several."""
        found = self._stores.placements.get_by(key)
        return min(found, key=lambda item: (item.created, item.name), default=None)

    def await_revision(self, namespace: str, key: GangKey, revision: int, deadline: float) -> Placement | None:
        """Return the gang's Placement once its assignment has that revision or a newer one.

        Waits 200 ms at most, and not at all when too many reviews wait already, of that namespace or in all.
        """

        def look() -> Placement | None:
            found = self.placement_of(key)
            return None if found is None or found.assignment is None or found.assignment.revision < revision else found

        return self._await(namespace, key, look, deadline)

    def await_owner(self, namespace: str, owner: OwnerRef, deadline: float) -> bool:
        """Return True once the owner of a reference in a namespace is known; waits as `await_revision` does."""
        key = (owner.api_version.rpartition("/")[0], owner.kind, namespace, owner.name)

        def look() -> Link | None:
            found = self.find(key)
            return found if found is not None and found.uid == owner.uid else None

        return self._await(namespace, key, look, deadline) is not None

    def await_pod(self, namespace: str, name: str, deadline: float) -> Pod | None:
        """Return the pod of that name once it is known; waits as `await_revision` does."""
        look = partial(self._stores.pods.get, (namespace, name))
        return self._await(namespace, ("", "Pod", namespace, name), look, deadline)

    def _await(self, namespace: str, key: Hashable, look: Callable[[], Found | None], deadline: float) -> Found | None:
        with self._turns.released(namespace) as may_wait:
            if not may_wait:
                return look()
            return self._arrivals.wait(key, look, min(deadline, self._clock() + REVISION_WAIT))

    def live_claimants(self, placement: Placement, pod_set: PodSet, rank: int) -> int:
        """Return how many live pods already occupy the slot of this rank of a pod set.

        Where ranks come and go (more completions than slots) the leader may have given the slot to another rank: then
        the slot counts as claimed when its host is full of pods of the gang.
        """
        if placement.assignment is None:
            return 0
        gang = (placement.namespace, placement.name)
        # Every review of a pod calls this: among thousands of pods their index finds the one or none with its rank.
        likely = self._stores.pods.get_by(gang if pod_set.rank is not None else (*gang, str(rank)))
        same = sum(1 for pod in likely if rank_of(pod, pod_set) == rank and self._is_live(pod, placement, pod_set))
        if same or rank_is_slot(pod_set):
            return same
        slot = slot_of_rank(placement.assignment.plan_of(pod_set.name), rank)
        if slot is None:
            return 0
        pods = self._stores.pods.get_by(gang)
        there = sum(1 for pod in pods if host_of(pod) == slot.host and self._is_live(pod, placement, pod_set))
        return 1 if there >= slot.count else 0

    def node(self, name: str) -> Node | None:
        return self._stores.nodes.get(name)

    def all_placements(self) -> Sequence[Placement]:
        return tuple(self._stores.placements.values())

    def gangs_in(self, namespace: str) -> int:
        return self._view.gangs.in_namespace(namespace)

    def topology_of(self, placement: Placement) -> Topology | None:
        return self._view.topologies.get(placement.topology)

    def planned_shape(self, placement: Placement, pod_set: PodSet) -> Shape | None:
        """Return the shape of the pods of a pod set that its slots are for; None if the workload is not known."""
        workload = next(iter(self._stores.workloads.get_by(placement.workload.uid)), None)
        if workload is None or placement.assignment is None:
            return None
        planned = placement.assignment.plan_of(pod_set.name).requests
        return self._view.pod_shapes.shapes_of_slots(workload, pod_set, planned)[1]

    def _is_live(self, pod: Pod, placement: Placement, pod_set: PodSet) -> bool:
        """Return True for a live pod of the pod set: the label selects candidates, the owners prove them."""
        if pod.finished or pod.deleting:
            return False
        claim = self.owners(self._view.policy).owner_of(pod)
        return (
            claim.workload is not None
            and claim.key == placed_key(placement)
            and _in_pod_set(pod, claim.workload, pod_set)
        )

    def slot_lost(self, placement: Placement, host: str, requests: Requests) -> bool:
        """Return True if no further pod may go to a slot: others use its capacity, or the gang gets other slots.

        A gang that starts has just been planned: False while this replica is busy or a moment behind. Of one that has
        started, a pod is replaced, mostly with the reason in the same moment: then this replica must be up to date.
        """
        started = has_started(placement.status)
        if not self._lock("", LEDGER_WAIT):
            return started
        try:
            if started:
                self._view.refresh_host(host, gang=placement.name, requests=requests)
            if self._has_newer_plan(placement):
                return True
            gang = placed_key(placement)
            if not self._view.capacity.overcommitted(host, requests, gang=gang):
                return False
            self._view.refresh()  # a follower does so five times a second: the other pods may be gone
            return self._view.capacity.overcommitted(host, requests, gang=gang)
        finally:
            self._view.lock.release()

    def _has_newer_plan(self, placement: Placement) -> bool:
        """Return True if the leader in this process is about to write other slots, or has just written some.

        Nothing is reserved for the pods of the older plan then, so that its hosts do not look taken.
        """
        plan = self._view.gangs.plan_of(placed_key(placement))
        newer, known = plan.assignment if plan is not None else None, placement.assignment
        return newer is not None and known is not None and newer.revision > known.revision

    def reserved_resource(self, pod: Pod, host: str) -> str | None:
        """Return a resource in which a pod would take reserved capacity on a host; None if there is none.

        As far as this replica knows: one that is busy, or a moment behind, returns None.
        """
        if not self._lock("", LEDGER_WAIT):
            return None
        try:
            if self._has_slots(pod) or self._of_daemon_set(pod):
                return None
            if self._view.capacity.reserved_resource(pod, host) is None:
                return None
            self._view.refresh()  # a follower does so five times a second: the gang may have started elsewhere
            return self._view.capacity.reserved_resource(pod, host)
        finally:
            self._view.lock.release()

    def _has_slots(self, pod: Pod) -> bool:
        key = self._view.gangs.gang_of(pod)
        plan = self._view.gangs.plan_of(key) if key is not None else None
        return plan is not None and plan.assignment is not None

    def _of_daemon_set(self, pod: Pod) -> bool:
        owner = pod.owner
        if owner is None or (owner.api_version, owner.kind) != ("apps/v1", "DaemonSet"):
            return False
        known = self._stores.daemon_sets.get((pod.namespace, owner.name))
        return known is not None and known.uid == owner.uid

    def allocation(self, placement: Placement, host: str, uses: Uses) -> str | None:
        """Return the device annotation for a pod of the gang; None if its devices are no longer available.

        A device is unavailable if it is unhealthy, gone, or used by another pod, as far as this replica knows.
        """
        if not self._lock("", LEDGER_WAIT):
            return None
        try:
            if self._view.capacity.lost_devices(placed_key(placement), host):
                return None
        finally:
            self._view.lock.release()
        return allocation(uses, self._stores.devices.get(host), self._view.policy.device_kinds)

    def forecast(self, workload: Workload, request: PlacementRequest, deadline: float) -> Outcome | None:
        """Return the outcome of planning the workload now.

        None if there is no time for it or the caches lag, if it would cost others too much (by itself, or together with
        what its namespace had before), or if it depends on the plans of other members of its pod group.
        """
        with self._planning(workload, deadline) as may_plan:
            if not may_plan:
                return None
            gang = self._view.gangs.as_reviewed(workload, request)
            outcome = self._answer(gang)
            if isinstance(outcome, Never) and gang.pod_group is not None:
                return self._answer_in_group(gang, gang.pod_group, outcome)
            return outcome

    def preemption(self, workload: Workload, request: PlacementRequest, deadline: float) -> Preemption | None:
        """Return what the policy would preempt for a workload that does not fit now; None too if it costs too much.

        The search takes the lock of the cluster state for one plan at a time, as that of the leader does.
        """
        rules = self._view.policy.preemption
        if rules.mode == "never":
            return None
        with self._planning(workload, deadline) as may_plan:
            if not may_plan:
                return None
            gang = self._view.gangs.as_reviewed(workload, request)
        with self._charged(workload.namespace):
            return preemption_for(
                self._view,
                gang,
                plan=lambda: self._answer(gang),
                others=rules.victims == "all",
                protect=rules.protect,
                own_namespace=self.own_namespace,
                now=self._wall(),
                limits=SearchLimits(seconds=PREEMPTION_CPU),
            )

    def _answer_in_group(self, gang: Gang, group: PodGroupState, alone: Never) -> Outcome | None:
        """Return the outcome of a member of a pod group that never fits by itself (`alone`): fewer of its pods may.

        None if that depends on the plans of the other members.
        """
        outcome = self._answer(replace(gang, request=of_group(gang.request)))
        if isinstance(outcome, Never):
            return alone
        starts = group.placed or (isinstance(outcome, Placed) and group.assigned + outcome.count >= group.minimum)
        return outcome if starts and not group.problem else None

    def _answer(self, gang: Gang) -> Outcome:
        view, now = self._view, self._wall()
        created = gang.workload.created or now
        return answer_in_view(view, gang, created=created, settled_before=view.settled_before(now))

    @contextmanager
    def _planning(self, workload: Workload, deadline: float) -> Iterator[bool]:
        """Hold the lock of the refreshed state, at the cost of the workload's namespace; False: without it, no plan."""
        wait = min(FORECAST_WAIT, deadline - self._clock())
        ready = wait > 0 and self._stores.nodes.synced and self._affordable(workload)
        if not ready or not self._lock(workload.namespace, wait):
            yield False
            return
        try:
            self._view.refresh()
            with self._charged(workload.namespace):
                yield True
        finally:
            self._view.lock.release()

    def _charged(self, namespace: str) -> AbstractContextManager[None]:
        """Charge a namespace for the computing inside."""
        return self._allowance.used(namespace) if self._allowance is not None else nullcontext()

    def missing_claims(self, workload: Workload) -> tuple[str, ...]:
        return self._view.pod_shapes.missing_claims(workload)

    def volumes_left_out(self, workload: Workload) -> tuple[str, ...]:
        placement = self.placement_of(next(iter(keys_of(workload)), key_of(workload)))
        placed = placement is not None and placement.assignment is not None
        return self._view.pod_shapes.volumes_left_out(workload, placed=placed)

    def _affordable(self, workload: Workload) -> bool:
        if self._allowance is None:
            return True
        shapes = {one.template.shape for one in workload.pod_sets}
        dear = len(self._stores.nodes) * sum(map(checks, shapes)) > FORECAST_CHECKS
        return not dear and self._allowance.left(workload.namespace) > 0

    def _lock(self, namespace: str, seconds: float) -> bool:
        """Acquire the lock of the cluster state within this time; return False without it."""
        if self._view.lock.acquire(blocking=False):
            return True
        with self._turns.released(namespace) as may_wait:
            return may_wait and self._view.lock.acquire(timeout=seconds)


def _in_pod_set(pod: Pod, workload: Workload, pod_set: PodSet) -> bool:
    """Return True if the pod is of the pod set, by name: the review may have another version of the workload."""
    found = pod_set_of(pod, workload)
    return found is not None and found.name == pod_set.name
