"""What holds a gang back in its namespace: the mode, limits of waiting gangs and of hosts, quotas.

Without quota a gang could be created in part: its minimum must be admitted before its first pod exists, and no slot is
kept for a pod that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self

from engine.api.objects import Quota
from engine.api.placement import PodSetRequest
from engine.api.pod import PodSpec
from engine.api.text import did_you_mean, plural, quote
from engine.api.workload import PodSet
from engine.cache.state import ClusterState
from engine.capacity import quota
from engine.gang.gang import Gang, by_pod_set
from engine.gang.request import PlacementRequest
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of, rule_of
from engine.scheduler.outcome import Outcome, Placed, Waits
from engine.scheduler.separation import exclusive_hosts, kept_hosts
from engine.topology.topology import Topology


def on_hold(namespace: str, policy: Policy) -> Waits | None:
    """Return the outcome of a gang that may not be placed now because of the mode; None if it may."""
    mode = mode_of(namespace, policy)
    return Waits("PolicyHold", f"{mode.text}; nothing new is placed until that changes") if mode.holds else None


def waiting_limit(namespace: str, policy: Policy) -> int | None:
    """Return how many gangs of a namespace may wait for capacity at a time; None: any number."""
    rule = rule_of(namespace, policy)
    return rule.rule.max_waiting_gangs if rule is not None else None


def too_many_waiting(namespace: str, policy: Policy) -> Waits:
    """Return the outcome of a gang above its namespace's limit of waiting gangs."""
    rule = rule_of(namespace, policy)
    assert rule is not None and rule.rule.max_waiting_gangs is not None
    limit = rule.rule.max_waiting_gangs
    gangs = f"{plural(limit, 'gang')} of its namespace {'waits' if limit == 1 else 'wait'}"
    return Waits(
        "WaitingGangsLimit",
        f"{gangs} ahead of it, which is the limit ({rule.field('maxWaitingGangs')})",
    )


def within_host_limit(
    view: ClusterState,
    gang: Gang,
    outcome: Outcome,
    *,
    topology: Topology | None,
    plan: Callable[[frozenset[str]], Outcome],
) -> Outcome:
    """Return a plan within `maxReservedHosts` of the gang's namespace, or why it waits.

    A plan on too many hosts is made once more (`plan`, with the hosts to leave out) on those that the namespace has and
    on as many of the new ones as it may have.
    """
    rule = rule_of(gang.workload.namespace, view.policy)
    limit = rule.rule.max_reserved_hosts if rule is not None else None
    if rule is None or limit is None or not isinstance(outcome, Placed):
        return outcome
    known = view.gangs.hosts_in(gang.workload.namespace, besides=gang.key)
    kept = kept_hosts(view, gang.workload.namespace, besides=gang.key)
    has = "has slots on" if kept <= known else "has slots on, or keeps,"
    known |= kept
    assigned = gang.placement.assignment if gang.placement is not None else None

    def with_domains(hosts: Iterable[str]) -> list[str]:
        """Return hosts with the others of their domains, if the gang keeps those: such a domain counts whole."""
        found = [*hosts]
        known_here = frozenset(found if topology is None else (one for one in found if one in topology.tree.index))
        if topology is not None:
            found += sorted(exclusive_hosts(known_here, gang.request.separation, topology).difference(found))
        return found

    if assigned is not None:
        known.update(with_domains(assigned.hosts))

    def new_hosts(placed: Placed) -> list[str]:
        return [host for host in with_domains(_hosts_of(placed)) if host not in known]

    new = new_hosts(outcome)
    if not new or len(known) + len(new) <= limit:
        return outcome
    allowed = known.union(new[: max(0, limit - len(known))])
    if allowed and topology is not None:
        again = plan(frozenset(topology.tree.hosts) - allowed)
        if isinstance(again, Placed) and len(known) + len(new_hosts(again)) <= limit:
            return again
    there = f"; its namespace {has} {plural(len(known), 'host')}" if known else ""
    return Waits(
        "ReservedHostsLimit",
        f"needs {plural(len(new), 'more host' if known else 'host')}{there}; the limit is {limit:,} "
        f"({rule.field('maxReservedHosts')})",
    )


def _hosts_of(placed: Placed) -> Iterable[str]:
    """Return the hosts of a plan, in its order."""
    return dict.fromkeys(slot.host for pods in placed.pod_sets for slot in pods.slots)


@dataclass(frozen=True, slots=True)
class _Coming:
    """The pods of a pod set that do not exist yet: for its own minimum, for that of the gang, and for all of it.

    A quota counts pods that exist and stay already; a terminating pod uses quota beside its replacement.
    """

    pod_set: PodSet
    least: int
    first: int
    most: int


def _coming(gang: Gang, request: PlacementRequest) -> list[_Coming]:
    asks, first = {ask.name: ask for ask in request.pod_sets}, request.first_counts
    found = []
    for pod_set, pods in by_pod_set(gang.workload, [pod for pod in gang.pods if pod.live]):
        if (ask := asks.get(pod_set.name)) is not None:
            most, exist = min(pod_set.slots, ask.count), len(pods)
            counts = (min(most, ask.min_available), min(most, first[ask.name]), most)
            found.append(_Coming(pod_set, *(max(0, count - exist) for count in counts)))
    return found


@dataclass(frozen=True, slots=True)
class _Quotas:
    """The quotas of a gang's namespace, and the pods that will use more or less of them than their status says."""

    view: ClusterState
    gang: Gang
    quotas: list[Quota]
    pending: list[tuple[PodSpec, int]]
    ending: list[PodSpec]

    @classmethod
    def of(cls, view: ClusterState, gang: Gang) -> Self | None:
        """Return the quotas of a gang; None without any: the pending pods need a search of all placed gangs."""
        namespace = gang.workload.namespace
        if not (quotas := list(view.stores.quotas.get_by(namespace))):
            return None
        ending = [pod.spec for pod in view.uncreated if pod.namespace == namespace and not pod.finished]
        return cls(view, gang, quotas, view.gangs.pending(gang, view.capacity), ending)

    def shortfall(self, wanted: Iterable[tuple[PodSet, int]]) -> Waits | None:
        """Return what the quotas lack for these numbers of pods; None if nothing."""
        missing = quota.shortfall(self.quotas, self._specs(wanted), self.pending, self.ending)
        return None if missing is None else Waits("QuotaExceeded", missing)

    def lacking(self, wanted: Iterable[tuple[PodSet, int]]) -> list[tuple[Quota, str, int]]:
        """Return the resources of quotas that these numbers of pods lack, and how much."""
        return quota.lacking(self.quotas, self._specs(wanted), self.pending)

    def admitted(self, request: PlacementRequest, coming: list[_Coming]) -> PlacementRequest:
        """Return a request for as many pods as the quotas admit; each pod set keeps its minimum, and whole slices."""
        wanted = [(self._spec(one.pod_set), one.least, one.most) for one in coming]
        counts = quota.admitted(self.quotas, wanted, self.pending, self.ending)
        refused = {one.pod_set.name: one.most - count for one, count in zip(coming, counts, strict=True)}
        asks = tuple(_without(ask, refused.get(ask.name, 0)) for ask in request.pod_sets)
        if asks == request.pod_sets:
            return request
        gang = request.gang
        if gang is not None and gang.min_available is not None and gang.min_available >= sum(ask.count for ask in asks):
            asks = tuple(replace(ask, min_available=ask.count) for ask in asks)
            gang = replace(gang, min_available=None)
        return replace(request, pod_sets=asks, gang=gang)

    def _specs(self, wanted: Iterable[tuple[PodSet, int]]) -> list[tuple[PodSpec, int]]:
        return [(self._spec(pod_set), count) for pod_set, count in wanted if count]

    def _spec(self, pod_set: PodSet) -> PodSpec:
        return self.view.pod_shapes.spec_of(self.gang.workload, pod_set)


def _without(ask: PodSetRequest, refused: int) -> PodSetRequest:
    """Return a request for fewer pods of a pod set, by as many as the quotas refuse."""
    if refused <= 0:
        return ask
    count = ask.count - refused
    if ask.slices:
        count -= count % max(size for _, size in ask.slices)
    return replace(ask, count=max(count, min(ask.count, ask.min_available)))


def creatable_part(view: ClusterState, gang: Gang, request: PlacementRequest) -> PlacementRequest | Waits:
    """Return a request for as many pods as could be created if there were room, or why its minimum could not be.

    The caller holds the state's lock.
    """
    coming = _coming(gang, request)
    for one in coming:
        if one.least and (name := view.pod_shapes.missing_class(one.pod_set)) is not None:
            hint = did_you_mean(name, view.pod_shapes.known_classes())
            return Waits("PriorityClassMissing", f"PriorityClass {quote(name)} not found: no pod can be created{hint}")
    quotas = _Quotas.of(view, gang)
    if quotas is None:
        return request
    if (problem := quotas.shortfall((one.pod_set, one.least) for one in coming)) is not None:
        return problem
    if all(one.least == one.most for one in coming):
        return request
    part = quotas.admitted(request, coming)
    if part.count < request.least:
        problem = quotas.shortfall((one.pod_set, one.first) for one in coming)
    return part if problem is None else problem


def creatable_growth(
    view: ClusterState, gang: Gang, request: PlacementRequest, *, kept: int
) -> PlacementRequest | Waits:
    """Return a request for as many pods as could be created if there were room, or why no more than those with slots.

    `kept`: how many have slots. The caller holds the state's lock.
    """
    quotas = _Quotas.of(view, gang)
    if quotas is None:
        return request
    coming = _coming(gang, request)
    part = quotas.admitted(request, coming)
    if part.count > kept:
        return part
    return quotas.shortfall((one.pod_set, one.most) for one in coming) or part


def quota_limit(view: ClusterState, gang: Gang) -> Waits | None:
    """Return what the quotas lack for all pods of a gang, also those that it can start without; None if nothing.

    The caller holds the state's lock.
    """
    quotas = _Quotas.of(view, gang)
    return quotas.shortfall((one.pod_set, one.most) for one in _coming(gang, gang.request)) if quotas else None


def lacking_quota(view: ClusterState, gang: Gang) -> list[tuple[Quota, str, int]]:
    """Return the resources of its namespace's quotas that a gang lacks to start, and how much.

    The caller holds the state's lock.
    """
    quotas = _Quotas.of(view, gang)
    return quotas.lacking((one.pod_set, one.first) for one in _coming(gang, gang.request)) if quotas else []
