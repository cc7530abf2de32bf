"""Plans a waiting gang on the cluster without running gangs of lower priority, and chooses which of them end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.cache.state import ClusterState
from engine.gang.gang import Gang, host_of
from engine.planner.tree import Bools
from engine.policy.making_room import Protect
from engine.preemption.search import Preemptible, Victims, choose_victims
from engine.preemption.victims import Victim, possible_victims
from engine.scheduler.nomination import level_to_compare
from engine.scheduler.outcome import Outcome, Placed
from engine.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Preemption:
    """The plan of a waiting gang, and the running ones that end for it; `proven`: no choice of them is better."""

    placed: Placed
    victims: tuple[Victim, ...]
    proven: bool


def preemption_for(
    view: ClusterState,
    gang: Gang,
    *,
    plan: Callable[[], Outcome],
    others: bool,
    protect: Protect,
    own_namespace: str,
    now: float,
) -> Preemption | None:
    """Return the running gangs of lower priority without which a waiting gang fits; None if there are none.

    `plan` plans the gang on the current state of the view. `others`: pods that Topogate does not manage may have to
    end too; `protect`: what the policy spares; `now` in seconds since the epoch. The caller holds the state's lock.
    """
    topology = view.topologies.get(gang.request.topology or "")
    if topology is None or topology.waits or not gang.request.count or not view.pod_shapes.may_preempt(gang.workload):
        return None
    priority = view.pod_shapes.priority_of(gang.workload)
    found = [
        one
        for one in possible_victims(view, others=others, protect=protect, own_namespace=own_namespace, now=now)
        if one.priority < priority and gang.key not in one.keys
    ]
    numbered = {f"{number:06}": one for number, one in enumerate(sorted(found, key=_order))}
    useful = _useful_hosts(view, gang, topology)
    level = level_to_compare(gang.request, gang.shapes, view.capacity, topology)
    candidates = []
    for key, one in numbered.items():
        places = {place for host in _hosts(view, one) if (place := topology.tree.index.get(host)) is not None}
        if any(useful[place] for place in places):
            domains = frozenset(topology.tree.domain_of(level, place) if level >= 0 else 0 for place in places)
            candidates.append(Preemptible(key, one.priority, one.count, _lost(one), domains))

    def plan_without(gone: frozenset[str]) -> Placed | None:
        keys = [key for one in gone for key in numbered[one].keys]
        pods = [pod for one in gone for pod in numbered[one].pods]
        with view.without(keys, pods):
            outcome = plan()
        return outcome if isinstance(outcome, Placed) else None

    chosen: Victims[Placed] | None = choose_victims(candidates, plan_without, quality=_quality)
    if chosen is None:
        return None
    return Preemption(chosen.plan, tuple(numbered[one.key] for one in chosen.gangs), chosen.proven)


def _order(one: Victim) -> tuple[str, ...]:
    return (one.namespace, one.kind, one.name, one.group or "")


def _hosts(view: ClusterState, one: Victim) -> set[str]:
    reserved = {host for key in one.keys for host in view.capacity.reserved(key)}
    return reserved | {host for pod in one.pods if not pod.finished and (host := host_of(pod)) is not None}


def _lost(one: Victim) -> float:
    """Return the running time that is lost, less the same for every pod of all victims: only differences count."""
    return -one.started * one.count


def _useful_hosts(view: ClusterState, gang: Gang, topology: Topology) -> Bools:
    """Return the hosts that a gang may need: where its pods fit when they are empty; all, where gangs keep domains."""
    if gang.request.separation is not None or any(True for _ in view.gangs.kept_domains.exclusive()):
        return np.ones(len(topology.tree.hosts), dtype=np.bool_)
    found = [view.capacity.count(gang.shapes[ask.name], topology).empty > 0 for ask in gang.request.pod_sets]
    useful: Bools = np.any(found, axis=0)
    return useful


def _quality(placed: Placed) -> tuple[int, ...]:
    return tuple(placed.domains_used.values())
