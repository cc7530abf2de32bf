"""Plans a waiting gang on the cluster without running gangs of lower priority, and chooses which of them end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from engine.api.pod import Pod
from engine.api.reasons import REASONS
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, host_of, over
from engine.gang.key import is_gang_key
from engine.gang.slots import request_to_place
from engine.policy.making_room import Protect
from engine.preemption.budgets import within_budgets
from engine.preemption.scopes import has_host_limit, needed_by, scopes_of
from engine.preemption.search import Preemptible, SearchLimits, choose_victims
from engine.preemption.victims import Victim, managed_now, possible_victims
from engine.scheduler.outcome import Outcome, Placed, Waits

_AT_ONCE: Final = 128  # possible victims, read in one hold of the state's lock


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
    limits: SearchLimits = SearchLimits(),  # noqa: B008
    allowed: Callable[[Victim], bool] = lambda _victim: True,
    beside: Sequence[Pod] = (),
) -> Preemption | None:
    """Return the running gangs of lower priority without which a waiting gang fits; None if there are none.

    `plan` plans the gang on the current state of the view. `others`: pods that Topogate does not manage may have to
    end too; `protect`: what the policy spares; `now` in seconds since the epoch; `allowed`: who may end besides;
    `beside`: pods that end for others, and use disruption budgets too.

    The state's lock is taken for one plan at a time. What is found is planned once more at the end: None, too, if the
    gang or a victim has changed meanwhile, or if a disruption budget allows each of the victims to end but not all.
    """
    with view.lock:
        topology = view.topologies.get(gang.request.topology or "")
        if topology is None or topology.waits or not request_to_place(gang).count:
            return None
        # Nor when it joins others that have slots: these may be of a lower priority, and would end for it.
        if gang.shares_group:
            return None
        if not view.pod_shapes.may_preempt(gang.workload):
            return None
        priority = view.pod_shapes.priority_of(gang.workload)
        before = view.gangs.get(gang.key)  # None: it is under review, or only a question
    possible = possible_victims(
        view, others=others, protect=protect, own_namespace=own_namespace, now=now, below=priority, beside=beside
    )
    found = [one for one in _read(view, possible) if gang.key not in one.keys and allowed(one)]
    with view.lock:
        units = dict(enumerate(_together(view, sorted(found, key=_order))))
    gangs = [_in_numbers(f"{number:06}", unit, now) for number, unit in units.items()]
    with view.lock:
        scopes, whole = scopes_of(view, needed_by(view, gang, topology), list(units.values()), gangs)

    def plan_without(gone: frozenset[str]) -> Placed | None:
        with view.lock:
            return _plan_without(view, plan, [one for key in gone for one in units[int(key)]])

    def together(gone: frozenset[str]) -> bool:
        with view.lock:
            return all_within_budgets(view, [one for key in gone for one in units[int(key)]], beside=beside)

    chosen = choose_victims(
        scopes,
        plan_without,
        quality=_quality,
        whole=whole,
        limits=limits,
        together=together,
        monotone=not _needs_others(gang),
    )
    if chosen is None:
        return None
    with view.lock:
        view.refresh()
        victims = [_now(view, one) for key in chosen.gangs for one in units[int(key.key)]]
        known = [one for one in victims if one is not None]
        if len(known) < len(victims) or not _same(before, view.gangs.get(gang.key)):
            return None
        if not all_within_budgets(view, known, beside=beside):
            return None  # each of them alone may end, but not all
        placed = _plan_without(view, plan, known)
        proven = chosen.proven and not has_host_limit(view, gang)
    return Preemption(placed, tuple(known), proven) if placed is not None else None


def victims_may_help(outcome: Outcome) -> bool:
    """Return whether a gang with this outcome may start when others end: for room, or what its namespace may use.

    Also where hosts are kept for a gang that goes first: others may make room elsewhere.
    """
    if not isinstance(outcome, Waits) or outcome.for_hosts:
        return False
    return REASONS[outcome.beside or outcome.reason].by_victims


def in_group(gang: Gang) -> bool:
    """Return whether a gang is planned together with other workloads of its pod group."""
    return gang.pod_group is not None and gang.shares_group and not gang.pod_group.placed


def all_within_budgets(view: ClusterState, victims: Sequence[Victim], *, beside: Sequence[Pod] = ()) -> bool:
    """Return True if the disruption budgets allow all victims to end together; `beside` as in `preemption_for`."""
    return within_budgets(view, [pod for one in victims for pod in one.pods], beside=beside)


def _plan_without(view: ClusterState, plan: Callable[[], Outcome], victims: Sequence[Victim]) -> Placed | None:
    keys = [key for one in victims for key in one.keys]
    pods = [pod for one in victims for pod in one.pods]
    with view.without(keys, pods, uncreated=[pod for one in victims if one.frees_quota for pod in one.pods]):
        outcome = plan()
    return outcome if isinstance(outcome, Placed) else None


def _needs_others(gang: Gang) -> bool:
    """Return whether a gang's pods must be near the pods of others, or spread evenly: the end of those closes hosts."""
    rules = (one.template.constraints for one in gang.workload.pod_sets)
    return any(one is not None and (one.affinity or one.spread) for one in rules)


def _read(view: ClusterState, possible: Iterator[Victim]) -> list[Victim]:
    found: list[Victim] = []
    while True:
        with view.lock:
            part = list(islice(possible, _AT_ONCE))
        found += part
        if not part:
            return found


def _together(view: ClusterState, victims: Sequence[Victim]) -> Iterator[tuple[Victim, ...]]:
    """Yield what ends as one: the gangs of a pod group together, or none of them if one with slots is no victim."""
    known = {key: one for one in victims for key in one.keys}
    seen: set[GangKey] = set()
    for one in victims:
        members = view.gangs.in_group_with(filter(is_gang_key, one.keys))
        if len(members) <= 1:
            yield (one,)
            continue
        placed = sorted(key for key in members if _has_slots(view, key))
        if seen.isdisjoint(members) and all(key in known for key in placed):
            yield tuple(known[key] for key in placed)
        seen |= members


def _has_slots(view: ClusterState, key: GangKey) -> bool:
    """Return whether a gang has slots and has not ended: the Placement of one that has keeps its assignment."""
    plan, workload = view.gangs.plan_of(key), view.gangs.workload_of(key)
    return plan is not None and plan.assignment is not None and workload is not None and not over(workload)


def _same(before: Gang | None, now: Gang | None) -> bool:
    if before is None or now is None:
        return before is now
    return (before.workload, before.request, _hosts(before.pods)) == (now.workload, now.request, _hosts(now.pods))


def _now(view: ClusterState, victim: Victim) -> Victim | None:
    """Return a victim as it is now; None if it is not the same any more."""
    if not (keys := [key for key in victim.keys if is_gang_key(key)]):
        pods = tuple(pod for one in victim.pods if (pod := view.pod_now(one)) is not None)
        return victim if _hosts(pods) == _hosts(victim.pods) else None
    found = managed_now(view, keys[0])
    same = found is not None and (found.priority, found.count) == (victim.priority, victim.count)
    return found if found is not None and same and _hosts(found.pods) == _hosts(victim.pods) else None


def _hosts(pods: Iterable[Pod]) -> frozenset[tuple[str, str | None]]:
    return frozenset((pod.uid, host_of(pod)) for pod in pods if not pod.finished)


def _in_numbers(key: str, unit: Sequence[Victim], now: float) -> Preemptible:
    return Preemptible(
        key, max(one.priority for one in unit), sum(one.count for one in unit), sum(_lost(one, now) for one in unit)
    )


def _lost(one: Victim, now: float) -> float:
    """Return the running time that is lost, of all pods."""
    return max(0.0, now - one.started) * one.count


def _order(one: Victim) -> tuple[str, ...]:
    return (one.namespace, one.kind, one.name, one.group or "")


def _quality(placed: Placed) -> tuple[int, ...]:
    return tuple(placed.domains_used.values())
