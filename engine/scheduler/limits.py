"""What holds a gang back in its namespace: the mode, limits of waiting gangs and of hosts, quotas.

Without quota a gang could be created in part: its minimum must be admitted before its first pod exists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, Self

import numpy as np

from engine.api.objects import Quota
from engine.api.placement import slots_by_host
from engine.api.pod import Pod, PodSpec
from engine.api.reasons import REASONS
from engine.api.text import did_you_mean, plural, quote
from engine.api.workload import PodSet
from engine.cache.state import ClusterState
from engine.capacity import quota
from engine.gang.gang import Gang, PodGroupState, by_pod_set
from engine.gang.reservation import admitted
from engine.gang.slots import request_to_place
from engine.planner.tree import Bools, Ints64
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of, rule_of
from engine.scheduler.outcome import Outcome, Placed, Waits
from engine.scheduler.separation import exclusive_hosts, kept_hosts
from engine.topology.topology import Topology

# Domains in which a gang is planned again to keep the limit of hosts.
_DOMAIN_TRIES: Final = 4
# Domains of which the hosts are counted to find these.
_DOMAINS_COUNTED: Final = 32


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
    limit: HostLimit | None,
    gang: Gang,
    outcome: Outcome,
    *,
    topology: Topology | None,
    plan: Callable[[frozenset[str]], Outcome],
    room: Callable[[Topology], Ints64],
    staying: Iterable[str] = (),
) -> Outcome:
    """Return a plan within `maxReservedHosts` of the gang's namespace, or why it waits.

    `staying`: the hosts on which the gang keeps slots; those that it leaves do not count. A plan without new hosts is
    within the limit, also where the namespace has more hosts than it may have by now. One on too many is made again
    (`plan`, with the hosts to leave out) on those that the namespace has and on as many new ones as it may have: of the
    new ones of the plan first those that take most of its pods, then the first ones, then those of other domains.
    `room`: how many pods of the gang each host of the topology has room for.
    """
    if limit is None or not isinstance(outcome, Placed):
        return outcome
    known = limit.known.union(_with_domains(staying, gang, topology))

    def new_hosts(placed: Placed) -> list[str]:
        return [host for host in _with_domains(slots_by_host(placed.pod_sets), gang, topology) if host not in known]

    def within(new: Sized) -> bool:
        return not new or len(known) + len(new) <= limit.most

    new = new_hosts(outcome)
    if within(new) or topology is None:
        return outcome
    slots, more = slots_by_host(outcome.pod_sets), max(0, limit.most - len(known))
    largest = sorted(new, key=lambda host: -slots[host])
    of_plan = (frozenset(known.union(hosts[:more])) for hosts in (largest, new))
    others = _by_domain(known, more, outcome, gang, topology=topology, room=room)
    tried = {frozenset[str]()}
    for allowed in chain(of_plan, islice(others, _DOMAIN_TRIES)):
        if allowed in tried:
            continue
        tried.add(allowed)
        again = plan(frozenset(topology.tree.hosts) - allowed)
        if isinstance(again, Placed) and within(new_hosts(again)):
            return again
    return limit.wait(len(new), len(known))


def at_host_limit(view: ClusterState, gang: Gang, outcome: Outcome, *, kept: Mapping[str, Sized]) -> Outcome:
    """Return the outcome of a gang without room, or that it waits for its namespace, which may not have enough hosts.

    Room on any other hosts would not help it: so no gang waits behind it, and no nodes are requested for it. `kept`:
    its pods that have a host already, by pod set.
    """
    if not isinstance(outcome, Waits) or not REASONS[outcome.reason].by_new_nodes:
        return outcome
    limit = HostLimit.of(view, gang)
    if limit is None:
        return outcome
    known, more = len(limit.known), limit.most - len(limit.known)
    if more <= 0:
        return Waits("ReservedHostsLimit", f"{limit.here(known)}, and it does not fit there now; {limit.text}")
    needed = _least_new_hosts(view, gang, limit.known, kept)
    return outcome if needed <= more else limit.wait(needed, known, at_least=True)


def surely_within_host_limit(limit: HostLimit | None, gang: Gang, pods: int) -> bool:
    """Return True if no plan of so many pods, each on a host of its own, takes a namespace past its limit."""
    if limit is None:
        return True
    separation = gang.request.separation
    keeps_domains = separation is not None and separation.exclusive is not None
    return not keeps_domains and len(limit.known) + pods <= limit.most


def past_host_limit(view: ClusterState, gang: Gang, hosts: Iterable[str], topology: Topology | None) -> str:
    """Return, in words, that a gang with slots on these hosts takes its namespace past its limit; "" if it does not.

    The caller holds the state's lock.
    """
    limit = HostLimit.of(view, gang)
    if limit is None:
        return ""
    every = limit.known.union(_with_domains(hosts, gang, topology))
    past = len(every) > max(limit.most, len(limit.known))
    return f"{limit.here(len(every))}; {limit.text}" if past else ""


@dataclass(frozen=True, slots=True)
class HostLimit:
    """The most hosts that the gangs of a namespace may have, and those that its other gangs have (`known`)."""

    most: int
    known: frozenset[str]
    keeps: bool  # some of them without slots, in domains of exclusive gangs
    field: str

    @classmethod
    def of(cls, view: ClusterState, gang: Gang) -> Self | None:
        """Return the limit for a gang; None without any. The caller holds the state's lock."""
        namespace = gang.workload.namespace
        rule = rule_of(namespace, view.policy)
        if rule is None or rule.rule.max_reserved_hosts is None:
            return None
        used = view.gangs.hosts_in(namespace, besides=gang.key)
        kept = kept_hosts(view, namespace, besides=gang.key)
        field = rule.field("maxReservedHosts")
        return cls(rule.rule.max_reserved_hosts, frozenset(used | kept), not kept <= used, field)

    def here(self, hosts: int) -> str:
        """Return how many hosts the namespace has, in words."""
        return f"its namespace {'has slots on, or keeps,' if self.keeps else 'has slots on'} {plural(hosts, 'host')}"

    @property
    def text(self) -> str:
        """The limit in words."""
        return f"the limit is {self.most:,} ({self.field})"

    def wait(self, new: int, known: int, *, at_least: bool = False) -> Waits:
        """Return the outcome of a gang that needs so many new hosts where its namespace has `known` ones."""
        needs = f"needs {'at least ' if at_least else ''}{plural(new, 'more host' if known else 'host')}"
        there = f"; {self.here(known)}" if known else ""
        return Waits("ReservedHostsLimit", f"{needs}{there}; {self.text}")


def _with_domains(hosts: Iterable[str], gang: Gang, topology: Topology | None) -> list[str]:
    """Return hosts with the others of their domains, if the gang keeps those: such a domain counts whole."""
    found = [*hosts]
    if topology is not None:
        known_here = frozenset(one for one in found if one in topology.tree.index)
        found += sorted(exclusive_hosts(known_here, gang.request.separation, topology).difference(found))
    return found


def _least_new_hosts(view: ClusterState, gang: Gang, known: Collection[str], kept: Mapping[str, Sized]) -> int:
    """Return how many hosts besides `known` a gang needs at least, if new ones are like the largest for its pods.

    0 where no host is large enough for one of them: nothing is known of those that would be.
    """
    request, topology = request_to_place(gang), view.topologies.get(gang.request.topology or "")
    if topology is None or topology.waits:
        return 0
    tree, of_gang, found = topology.tree, request.gang.require if request.gang is not None else None, 0
    mine: Bools = np.zeros(len(tree.hosts), dtype=np.bool_)
    mine[[tree.index[host] for host in known if host in tree.index]] = True
    for ask in request.pod_sets:
        counted = view.capacity.count(gang.shapes[ask.name], topology)
        level, largest = topology.level_of(of_gang or ask.require), int(counted.empty.max(initial=0))
        there = tree.sums(-1 if level is None else level, np.where(mine, counted.free, 0)).max(initial=0)
        missing = min(ask.count, ask.min_available) - len(kept.get(ask.name, ())) - int(there)
        if largest:
            found = max(found, -(-missing // largest))
    return found


def _by_domain(
    known: frozenset[str],
    more: int,
    placed: Placed,
    gang: Gang,
    *,
    topology: Topology,
    room: Callable[[Topology], Ints64],
) -> Iterator[frozenset[str]]:
    """Yield hosts to plan a gang on: those that its namespace has, and at most `more` new ones of one domain.

    One after the other the domains of the required level with most room; without a required level the whole topology
    is one. A gang that keeps domains for itself takes those as a whole.
    """
    tree, separation, free = topology.tree, gang.request.separation, room(topology)
    mine: Bools = np.zeros(len(tree.hosts), dtype=np.bool_)
    mine[[tree.index[host] for host in known if host in tree.index]] = True
    exclusive = topology.level_of(separation.exclusive) if separation is not None else None
    require = topology.level_of(placed.require)
    level = -1 if require is None else require if exclusive is None else min(require, exclusive)
    taken_by = tree.domains[-1 if exclusive is None else exclusive]
    sizes = np.bincount(taken_by, ~mine).astype(np.int64)
    rooms = np.bincount(taken_by, free).astype(np.int64)
    usable = np.where(mine | (sizes[taken_by] <= more), free, 0)
    own, most = tree.sums(level, np.where(mine, free, 0)), tree.sums(level, usable)
    found: list[tuple[int, int, frozenset[str]]] = []
    for domain in np.lexsort((np.arange(len(most)), -most, -own))[:_DOMAINS_COUNTED].tolist():
        first, end = tree.range(level, domain) if level >= 0 else (0, len(tree.hosts))
        units = np.unique(taken_by[first:end])
        order = units[np.lexsort((units, sizes[units], -rooms[units]))]
        order = order[(sizes[order] > 0) & (sizes[order] <= more) & (rooms[order] > 0)][:more]
        chosen, left = set[int](), more
        for unit in order.tolist():
            if sizes[unit] <= left:
                chosen.add(unit)
                left -= int(sizes[unit])
        allowed = mine[first:end] | np.isin(taken_by[first:end], list(chosen))
        if has := int(free[first:end][allowed].sum()):
            hosts = (tree.hosts[first + place] for place in np.flatnonzero(allowed).tolist())
            found.append((-has, domain, frozenset(known.union(hosts))))
    yield from (hosts for _, _, hosts in sorted(found, key=lambda one: one[:2]))


@dataclass(frozen=True, slots=True)
class _Coming:
    """The pods of a pod set that do not exist yet and will: for its own minimum, for the gang's, and for all of it.

    A quota counts pods that exist and stay already; a terminating pod uses quota beside its replacement.
    """

    pod_set: PodSet
    least: int
    first: int
    most: int


def _coming(view: ClusterState, gang: Gang) -> list[_Coming]:
    request = gang.request
    asks, first = {ask.name: ask for ask in request.pod_sets}, request.first_counts
    # A pod of those that give the gang its priority is needed: whose quota allows none has no right to the priority.
    giving = set(view.pod_shapes.giving_priority(gang.workload))
    found = []
    for pod_set, pods in _live_pods(gang):
        if (ask := asks.get(pod_set.name)) is not None:
            most, exist = min(pod_set.needed, ask.count), _admitted(gang, pod_set, pods)
            least = max(ask.min_available, pod_set.name in giving)
            if pod_set.name in giving:
                giving.clear()
            counts = (min(most, least), min(most, max(least, first[ask.name])), most)
            found.append(_Coming(pod_set, *(max(0, count - exist) for count in counts)))
    return found


def _admitted(gang: Gang, pod_set: PodSet, pods: Iterable[Pod]) -> int:
    return admitted(gang.workload, pod_set, pods, placement=gang.placement)


def _live_pods(gang: Gang) -> list[tuple[PodSet, list[Pod]]]:
    return by_pod_set(gang.workload, [pod for pod in gang.pods if pod.live])


@dataclass(frozen=True, slots=True)
class _Quotas:
    """The quotas of a namespace, and the pods that will use more or less of them than their status says."""

    view: ClusterState
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
        return cls(view, quotas, view.gangs.pending(gang, view.capacity), ending)

    def specs(self, gang: Gang, wanted: Iterable[tuple[PodSet, int]]) -> list[tuple[PodSpec, int]]:
        """Return the templates of pod sets as their pods will be created, with the numbers that are not 0."""
        return [(self.spec(gang, pod_set), count) for pod_set, count in wanted if count]

    def of_minimum(self, gang: Gang, coming: Iterable[_Coming]) -> tuple[list[tuple[PodSpec, int, int]], int]:
        """Return the templates with the fewest and most pods to come of each, and how many start together."""
        templates = [(self.spec(gang, one.pod_set), one.least, one.most) for one in coming]
        return templates, sum(one.first for one in coming)

    def spec(self, gang: Gang, pod_set: PodSet) -> PodSpec:
        """Return the template of a pod set as its pods will be created."""
        return self.view.pod_shapes.spec_of(gang.workload, pod_set)


def creation_problem(view: ClusterState, gang: Gang) -> Waits | None:
    """Return why the pods that a gang needs to start could not be created if there were room; None if they could.

    The caller holds the state's lock.
    """
    coming = _coming(view, gang)
    for one in coming:
        if one.least and (name := view.pod_shapes.missing_class(one.pod_set)) is not None:
            hint = did_you_mean(name, view.pod_shapes.known_classes())
            return Waits("PriorityClassMissing", f"PriorityClass {quote(name)} not found: no pod can be created{hint}")
    quotas = _Quotas.of(view, gang)
    if quotas is None:
        return None
    wanted = quotas.specs(gang, ((one.pod_set, one.least) for one in coming))
    missing = quota.shortfall(quotas.quotas, wanted, quotas.pending, quotas.ending)
    if missing is None and any(one.first > one.least for one in coming):
        templates, count = quotas.of_minimum(gang, coming)
        missing = quota.minimum_shortfall(quotas.quotas, templates, count, quotas.pending, quotas.ending)
    return None if missing is None else Waits("QuotaExceeded", missing)


def group_creation_problem(view: ClusterState, gangs: Sequence[Gang], group: PodGroupState) -> Waits | None:
    """Return why the minimum of a pod group could not be created if there were room; None if it may be.

    `gangs`: its workloads without slots. The caller holds the state's lock.
    """
    quotas = _Quotas.of(view, gangs[0]) if gangs else None
    if quotas is None:
        return None
    exist = sum(_admitted(gang, pod_set, pods) for gang in gangs for pod_set, pods in _live_pods(gang))
    templates = [(quotas.spec(gang, one.pod_set), 0, one.most) for gang in gangs for one in _coming(view, gang)]
    count = min(group.missing - exist, sum(most for _, _, most in templates))
    missing = quota.minimum_shortfall(quotas.quotas, templates, count, quotas.pending, quotas.ending)
    if missing is None:
        return None
    start = f"{plural(group.minimum, 'pod')} of pod group {group.name} start together"
    return Waits("QuotaExceeded", f"{start}; {missing}")


def lacking_quota(view: ClusterState, gang: Gang) -> list[tuple[Quota, str, int]]:
    """Return the resources of its namespace's quotas that a gang lacks to start, and how much, by `creation_problem`.

    The caller holds the state's lock.
    """
    quotas = _Quotas.of(view, gang)
    if quotas is None:
        return []
    templates, count = quotas.of_minimum(gang, _coming(view, gang))
    return quota.lacking(quotas.quotas, templates, count, quotas.pending)
