"""Keeps gangs apart: hosts that a gang may not use because of exclusive gangs, or of gangs that it is spread from.

So do the rules of single pods: what they and the pods near them require of each other. Everything follows from the
Placements with slots and from the gangs and pods on each host, so that a new leader keeps the same gangs apart. Pods
that are not managed, and those of DaemonSets, are of no gang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from engine.api.names import AUTO, HOST_LEVEL
from engine.api.placement import Placement, Separation
from engine.api.text import plural, quote, sanitize
from engine.api.workload import GangKey, PodSet, ReservationKey
from engine.cache.reservations import Ranges, ranges_of, ranges_of_paths, spread_name
from engine.cache.state import ClusterState
from engine.capacity.nearby_pods import pod_labels
from engine.capacity.other_pods import OtherPods
from engine.capacity.pod_rules import PlannedPods, PodRules, pod_rules
from engine.gang.gang import Gang
from engine.planner.tree import Bools
from engine.resources.shape import EXCLUDED_BY, EXCLUSIVE, SHARED, SPREAD_APART
from engine.scheduler.outcome import Outcome, Placed, Waits, unschedulable_alone
from engine.topology.topology import Topology

# Words for excluded hosts -> the hosts of a topology, by index.
Barred = Mapping[str, Bools]

_MAX_REASONS: Final = 3  # in one message
# How a message counts the domains with excluded hosts.
_DOMAINS: Final = {
    SPREAD_APART: "with such gangs",
    EXCLUSIVE: "of exclusive gangs",
    SHARED: "with other gangs",
}


def separation_key(view: ClusterState, gang: Gang) -> tuple[object, ...]:
    """Return the fields that decide which hosts a gang without slots may not use because of gangs and pods there."""
    separation, members = gang.request.separation, gang.pod_group.members if gang.pod_group is not None else ()
    apart = separation, spread_name(gang.workload.namespace, gang.workload.uid, separation), members
    return *apart, *(_constraints_key(view, gang, pod_set) for pod_set in gang.workload.pod_sets)


def _constraints_key(view: ClusterState, gang: Gang, pod_set: PodSet) -> object:
    """Return what decides the rules for a pod set; its labels only if they matter: most Jobs have some of their own."""
    constraints, namespace, labels = pod_set.template.constraints, gang.workload.namespace, pod_labels(pod_set)
    found = view.nearby.keeping_away(namespace, labels, view.capacity.has_label) if view.nearby.keeps_away else ()
    away = frozenset(term for term, _ in found)
    return away if constraints is None else (away, constraints, namespace, tuple(labels.items()))


def barred_hosts(
    view: ClusterState,
    gang: Gang,
    separation: Separation | None,
    topology: Topology | None,
    *,
    emptied: frozenset[str] = frozenset(),
) -> Barred:
    """Return the hosts that a gang may not use because of other gangs, by reason. The caller holds the state's lock.

    `emptied`: hosts that count as empty, so that no gang is there; those of gangs to be spread from stay what they are.
    """
    if topology is None or topology.waits:
        return {}
    found = {
        SPREAD_APART: _spread_apart(view, gang, separation, topology),
        EXCLUSIVE: _of_exclusive_gangs(view, gang, topology, emptied),
        SHARED: _beside_others(view, gang, separation, topology, emptied),
    }
    return {why: hosts for why, hosts in found.items() if hosts is not None and hosts.any()}


def separated(
    outcome: Outcome,
    plan: Callable[[Barred], Outcome],
    gang: Gang,
    barred: Barred,
    *,
    separation: Separation | None,
    topology: Topology | None,
    pods: int,
) -> Outcome:
    """Return the outcome of a plan, or that other gangs are the only reason why it did not fit.

    `plan` plans the gang without the hosts that it is given.
    """
    if not barred or topology is None or isinstance(outcome, Placed) or unschedulable_alone(outcome):
        return outcome
    if not isinstance(plan({}), Placed):
        return outcome
    beside = {why: hosts for why, hosts in barred.items() if why != SPREAD_APART}
    needs = f"needs room for {plural(pods, 'pod')}"
    if SPREAD_APART in barred and separation is not None and isinstance(plan(beside), Placed):
        level, group = separation.spread or HOST_LEVEL, separation.group
        of = "its workload" if group is None else f"spread group {quote(group)}"
        apart = f"outside the {_several(level)} of the other gangs of {of}"
        return Waits("SpreadDomains", f"{needs} {apart}; {_domains(barred, topology, level)}")
    if separation is not None and separation.exclusive is not None:
        level, apart = separation.exclusive, f"in {_several(separation.exclusive)} without other gangs"
    else:
        level, apart = _level(gang), "outside the domains of exclusive gangs"
    return Waits("ExclusiveDomains", f"{needs} {apart}; {_domains(barred, topology, level)}")


def pods_around(view: ClusterState, gang: Gang, *, emptied: frozenset[str] = frozenset()) -> OtherPods:
    """Return the pods around a gang; `emptied`: hosts that count as empty. The caller holds the state's lock."""
    return OtherPods(view.nearby, view.capacity, key=gang.key, pods=gang.pods, emptied=emptied)


def rules_for(
    gang: Gang,
    topology: Topology | None,
    *,
    kept: Mapping[str, Mapping[int, str]],
    others: OtherPods,
) -> PodRules | None:
    """Return what the pods of a gang and the pods near them require of each other; None if nothing.

    `kept`: pod set -> rank -> host of pods that stay; `others`: the result of `pods_around`. The caller holds the
    state's lock.
    """
    if topology is None or topology.waits:
        return None
    if not others.nearby.keeps_away and not gang.has_pod_constraints:
        return None  # most gangs: their labels need not be looked at
    return pod_rules(
        [
            PlannedPods(
                name=pod_set.name,
                namespace=gang.workload.namespace,
                labels=pod_labels(pod_set),
                constraints=pod_set.template.constraints,
                shape=gang.shapes[pod_set.name],
                kept=tuple(kept.get(pod_set.name, {}).values()),
            )
            for pod_set in gang.workload.pod_sets
            if pod_set.name in gang.shapes
        ],
        others,
        topology=topology,
    )


def constrained(
    outcome: Outcome,
    without: Callable[[], Outcome],
    rules: PodRules | None,
    *,
    topology: Topology | None,
    pods: int,
) -> Outcome:
    """Return the outcome of a plan, or that the rules of its pods are the only reason why it did not fit.

    `without` plans the gang without these rules.
    """
    if rules is None or topology is None or isinstance(outcome, Placed) or unschedulable_alone(outcome):
        return outcome
    if not isinstance(without(), Placed):
        return outcome
    counts: dict[str, int] = {}
    for barred in rules.barred.values():
        for why, there in barred.items():
            counts[why] = max(counts.get(why, 0), int(there.sum()))
    left_out = [f"{plural(count, 'host')} {why}" for why, count in sorted(counts.items(), key=lambda one: -one[1])]
    among = list(dict.fromkeys(why.removeprefix(EXCLUDED_BY) for why in rules.among))
    parts = left_out[:_MAX_REASONS]
    if among:
        parts.append("its own pods must keep to " + ", ".join(among[:_MAX_REASONS]))
    if rules.among_pod_sets:
        parts.append("not every way to place several templates under one rule was tried")
    hosts = plural(len(topology.tree.hosts), "host")
    return Waits("PodConstraints", f"needs room for {plural(pods, 'pod')} among {hosts}; {'; '.join(parts)}")


def _several(level: str) -> str:
    """Return a level in the plural."""
    return plural(2, sanitize(level)).partition(" ")[2]


def exclusive_hosts(hosts: frozenset[str], separation: Separation | None, topology: Topology) -> frozenset[str]:
    """Return all hosts of the domains that a gang on these hosts keeps for itself: at least these."""
    tree = topology.tree
    level = topology.level_of(separation.exclusive) if separation is not None else None
    if level is None:
        return hosts
    domains = {tree.domain_of(level, tree.index[host]) for host in hosts}
    ranges = [tree.range(level, domain) for domain in domains]
    return hosts | {host for first, end in ranges for host in tree.hosts[first:end]}


def kept_hosts(view: ClusterState, namespace: str, *, besides: GangKey) -> set[str]:
    """Return the hosts that exclusive gangs of a namespace keep for themselves, with and without slots of theirs.

    `besides`: a gang that does not count. The caller holds the state's lock.
    """
    found: set[str] = set()
    for key, placement in view.gangs.kept_domains.exclusive():
        topology = view.topologies.get(placement.topology)
        if key == besides or placement.namespace != namespace or topology is None or topology.waits:
            continue
        level = placement.separation.exclusive if placement.separation is not None else None
        for first, end in ranges_of(placement, topology.tree, _index_of(topology, level)):
            found.update(topology.tree.hosts[first:end])
    return found


def _own(gang: Gang) -> frozenset[GangKey]:
    """Return the keys of a gang: the workloads of one pod group are one gang."""
    members = gang.pod_group.members if gang.pod_group is not None else ()
    return frozenset((gang.key, *members))


def _spread_apart(view: ClusterState, gang: Gang, separation: Separation | None, topology: Topology) -> Bools | None:
    """Return the hosts in domains of gangs that this one is spread from."""
    name = spread_name(gang.workload.namespace, gang.workload.uid, separation)
    own = topology.level_of(separation.spread) if separation is not None else None
    if name is None or own is None:
        return None

    def ranges(placement: Placement) -> Ranges:
        named = placement.separation.spread if placement.separation is not None else None
        if placement.topology == topology.name:
            # Two workloads of one group may name different levels: the coarser one keeps both promises.
            return ranges_of(placement, topology.tree, min(own, _index_of(topology, named)))
        return (*_around(placement, topology, own), *_elsewhere(view, placement, topology, named))

    return view.gangs.kept_domains.hosts(
        name,
        (topology.name, own),
        besides=_own(gang),
        size=len(topology.tree.hosts),
        stamp=view.topologies,
        ranges=ranges,
    )


def _of_exclusive_gangs(view: ClusterState, gang: Gang, topology: Topology, emptied: frozenset[str]) -> Bools | None:
    """Return the hosts in domains that other gangs keep for themselves."""

    def ranges(placement: Placement) -> Ranges:
        level = placement.separation.exclusive if placement.separation is not None else None
        if placement.topology == topology.name:
            return ranges_of(placement, topology.tree, _index_of(topology, level))
        return _elsewhere(view, placement, topology, level)

    kept = view.gangs.kept_domains
    gone = {key for key, placement in kept.exclusive() if _hosts(placement) <= emptied} if emptied else frozenset()
    return kept.hosts(
        None,
        (topology.name,),
        besides=_own(gang) | gone,
        size=len(topology.tree.hosts),
        stamp=view.topologies,
        ranges=ranges,
    )


def _beside_others(
    view: ClusterState, gang: Gang, separation: Separation | None, topology: Topology, emptied: frozenset[str]
) -> Bools | None:
    """Return the hosts in domains with other gangs, if the gang is exclusive; never in domains that it has already."""
    tree = topology.tree
    level = topology.level_of(separation.exclusive) if separation is not None else None
    if level is None:
        return None
    if emptied:
        hosts = view.capacity.gang_hosts.others(_own(gang), topology, len(tree.levels) - 1)
        hosts[[place for host in emptied if (place := tree.index.get(host)) is not None]] = False
        used = tree.any_in(level, hosts)
    else:
        used = view.capacity.gang_hosts.others(_own(gang), topology, level)
    found = tree.hosts_in(level, used)
    for first, end in _with_gone_hosts(view, gang, topology, level):
        found[first:end] = True
    placement = gang.placement
    if placement is not None and placement.assignment is not None and placement.topology == topology.name:
        for first, end in ranges_of(placement, tree, level):
            found[first:end] = False
    return found


def _with_gone_hosts(view: ClusterState, gang: Gang, topology: Topology, level: int) -> Ranges:
    """Return the domains of a level with other gangs on hosts that do not exist now.

    Their nodes may be registered again, with the pods still on them: a Placement tells where they were.
    """
    gone: set[tuple[str, ...]] = set()
    for host, key in view.capacity.gang_hosts.outside(_own(gang), topology, level):
        placement = view.gangs.placement_of(GangKey(ReservationKey(key))) if view.capacity.node(host) is None else None
        if placement is not None and placement.assignment is not None and placement.topology == topology.name:
            slots = (slot for plan in placement.assignment.pod_sets for slot in plan.slots)
            gone.update(slot.domain[: level + 1] for slot in slots if slot.host == host)
    return ranges_of_paths(gone, topology.tree, level)


def _around(placement: Placement, topology: Topology, level: int) -> Ranges:
    """Return the domains of this topology with hosts of a Placement in another one, which may share its nodes."""
    tree = topology.tree
    places = [place for host in _hosts(placement) if (place := tree.index.get(host)) is not None]
    return tuple(tree.range(level, domain) for domain in sorted({tree.domain_of(level, place) for place in places}))


def _elsewhere(view: ClusterState, placement: Placement, topology: Topology, level: str | None) -> Ranges:
    """Return the hosts, here, of a Placement's domains in its own topology."""
    other, index = view.topologies.get(placement.topology), topology.tree.index
    names: set[str] = set(_hosts(placement))
    if other is not None and not other.waits:
        for first, end in ranges_of(placement, other.tree, _index_of(other, level)):
            names.update(other.tree.hosts[first:end])
    return tuple((place, place + 1) for host in sorted(names) if (place := index.get(host)) is not None)


def _index_of(topology: Topology, level: str | None) -> int:
    """Return the index of a level; that of the host where the topology has no such level any more."""
    index = topology.level_of(level)
    return len(topology.tree.levels) - 1 if index is None else index


def _hosts(placement: Placement) -> frozenset[str]:
    return frozenset() if placement.assignment is None else placement.assignment.hosts


def _level(gang: Gang) -> str:
    """Return the level of the domains that a message counts, for a gang that is not exclusive itself."""
    request = gang.request
    named = [request.gang.require if request.gang is not None else None, *[ask.require for ask in request.pod_sets]]
    return next((level for level in named if level not in (None, AUTO)), None) or HOST_LEVEL


def _domains(barred: Barred, topology: Topology, level: str) -> str:
    """Return the domains of a level by what excludes hosts in them; the counts add up."""
    tree, index = topology.tree, _index_of(topology, level)
    left = np.ones(tree.size(index), dtype=np.bool_)
    counts: list[tuple[int, str]] = []
    for why, words in _DOMAINS.items():
        if why in barred:
            there = left & (tree.sums(index, barred[why].astype(np.int64)) > 0)
            counts.append((int(there.sum()), words))
            left &= ~there
    counts.append((int(left.sum()), "without room"))
    shown = [f"{count:,} {words}" for count, words in counts if count]
    return f"{plural(tree.size(index), sanitize(topology.levels[index].name))} = {' + '.join(shown)}"
