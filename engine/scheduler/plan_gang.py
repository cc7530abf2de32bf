"""Plans pods that cannot be planned as equal pods alone: several pod sets at once, and pods that join kept ones.

With one pod set its slots stand for resources, as its pods are equal. Otherwise every requested resource counts, for
pods that request devices also the slots that the host's devices allow, and for pods with different parts of GPUs what
they take of the same GPUs, by whatever name they request them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from engine.api.names import AUTO, REPLACE, REPLAN
from engine.api.placement import GangRequest, PodSetPlan, PodSetRequest, Slot
from engine.api.pod import Shape
from engine.api.rank import join_ranks
from engine.api.reasons import Code
from engine.api.text import join_and, plural, plural_noun, sanitize
from engine.capacity.capacity import Capacity
from engine.capacity.domain_caps import capped_most, clip, limit_of
from engine.capacity.pod_rules import PodRules
from engine.gang.request import PlacementRequest
from engine.planner.gang import GangPlan, GangPlanRequest, HostAssignment, PodSetPlanRequest, Undecided
from engine.planner.plan import NoFit
from engine.planner.plan_gang import plan_gang
from engine.planner.slices import grains
from engine.planner.sums import HostScores
from engine.planner.tree import Bools, Ints64
from engine.policy.model import Policy
from engine.resources.shape import repairable
from engine.scheduler.devices import DeviceConflict, device_conflict, gpu_units
from engine.scheduler.explain import placed_text
from engine.scheduler.outcome import EffectiveLevels, Never, Outcome, Placed, Waits
from engine.topology.topology import Topology

# Ways to choose hosts under the rules among its own pods that are tried.
_WAYS: Final = 16
# Plans that are tried while the resources of hosts suffice for several pod sets but their devices do not.
_DEVICE_TRIES: Final = 16


# The outcome of a plan that was only tried.
UNEXPLAINED: Final = Waits("Fragmented", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """The input of one plan: pod sets that need pods (`asks`), the request of the whole gang (`gang`), and constraints.

    `left_out`: hosts that are left out this time, with the reason; `barred`: words -> more of them, by index; `kept`:
    pod set -> rank -> host of the pods that stay where they are; `profile`: how equally good places are ranked;
    `emptied`: hosts that count as empty; `rules`: what its pods require of those near them; `near`: what they prefer of
    them, as the score of one pod of a pod set by host. `levels`: those that `auto` may stand for; None: all. `hints` as
    of `PlanConditions`.
    """

    asks: tuple[PodSetRequest, ...]
    gang: GangRequest | None
    shapes: Mapping[str, Shape]
    topology: Topology
    left_out: Mapping[str, str]
    kept: Mapping[str, Mapping[int, str]]
    profile: str
    barred: Mapping[str, Bools]
    rules: PodRules
    emptied: frozenset[str]
    levels: tuple[str, ...] | None
    near: Mapping[str, Ints64]
    hints: bool

    def barred_for(self, pod_set: str) -> Mapping[str, Bools]:
        """Return the hosts that a pod set may not use because of other gangs, or of the pods near them."""
        return {**self.barred, **self.rules.barred_for(pod_set)}


@dataclass(frozen=True, slots=True)
class _FreeResources:
    """Free resources by host and column, the requests of each pod set by column, and the hosts that it may use.

    `devices`: the column with the slots of a shape's devices, if there is one.
    """

    free: Ints64
    requests: tuple[tuple[int, ...], ...]
    eligible: tuple[Bools, ...]
    devices: Mapping[Shape, int] = field(default_factory=dict)


def plan_pod_sets(
    inputs: PlanInput,
    *,
    capacity: Capacity,
    policy: Policy,
    scarce: Ints64,
    scores: HostScores | None,
    explain: Callable[[NoFit, PodSetRequest], Outcome] | None,
) -> Outcome:
    """Return slots for every pod set, or for the gang's minimum of pods, or why there are none. Nothing is changed.

    `scarce`: free amount by host of the resource that decides ties, `scores` after it; `explain` returns the outcome
    for a pod set that does not fit even alone; None: nobody asks why.
    """
    tree = inputs.topology.tree
    if outside := _kept_outside(inputs):
        return _waits_for_position(inputs.topology, outside[0])
    gang = _resolved(inputs, capacity, policy)
    resources = _free_resources(inputs, capacity)
    if inputs.emptied:
        vacated = [tree.index[host] for host in inputs.emptied - inputs.left_out.keys()]
        resources.free[vacated] = _free_resources(inputs, capacity, empty=True).free[vacated]
    no_fit: NoFit | None = None
    conflicting = False
    for way in _ways(inputs, resources):
        try:
            answer = _plan_on_devices(inputs, way, gang, capacity=capacity, scarce=scarce, scores=scores)
        except ValueError:  # kept pods are not where the request wants them: another program put them there
            return Waits("Fragmented", "not all running pods are in the required domains; the gang cannot grow")
        if isinstance(answer, GangPlan):
            if inputs.rules.keeps(_new_pods(inputs, answer)):
                sure = way is resources or (len(inputs.asks) == 1 and not inputs.rules.chooses)
                return _placed(inputs, gang, replace(answer, proven=answer.proven and sure))
            answer = NoFit(-1, 1, -1, 0, 0, None, None)
        if answer is None:
            conflicting = True
        elif isinstance(answer, NoFit):
            no_fit = no_fit or answer
        elif not inputs.rules.among_own:
            break
    if no_fit is not None:
        return _not_placed(inputs, gang, no_fit, capacity, explain) if explain is not None else UNEXPLAINED
    if conflicting:
        why = "the free resources of hosts suffice, but no way to share their devices was found"
        again = (
            "it is tried again when capacity is freed; equal parts of devices, or whole ones, in all pod sets avoid it"
        )
        return Waits("SearchLimit", f"{_asked(inputs, gang.require)}; {why}; {again}")
    missing = plural(_count(inputs), "pod")
    limit = f"its limit of {policy.planner.steps:,} steps (policy planner.steps)"
    again = "there may be room: it is tried again when capacity is freed"
    return Waits("SearchLimit", f"the search for room for {missing} reached {limit}; {again}")


def levels_of_pod_sets(inputs: PlanInput, capacity: Capacity, policy: Policy) -> EffectiveLevels | None:
    """Return the levels of `plan_pod_sets`; None where a kept pod is outside the topology, so that it plans nothing."""
    return None if _kept_outside(inputs) else _effective_levels(inputs, _resolved(inputs, capacity, policy))


def _waits_for_position(topology: Topology, host: str) -> Waits:
    """Return the outcome of a gang of which a pod is in no domain, where its level requires it to be in one."""
    why = f" ({sanitize(topology.outside[host])})" if host in topology.outside else ""
    out = f"bring that node back into it, or move the pod ({REPLACE}) or the gang ({REPLAN})"
    return Waits("NodesExcluded", f"a pod of the gang is on {sanitize(host)}, outside the topology{why}: {out}")


def _kept_outside(inputs: PlanInput) -> list[str]:
    """Return the hosts of kept pods that are not in the topology, by name."""
    hosts = (host for ranks in inputs.kept.values() for host in ranks.values())
    return sorted(host for host in hosts if host not in inputs.topology.tree.index)


def _plan_on_devices(
    inputs: PlanInput,
    resources: _FreeResources,
    gang: GangPlanRequest,
    *,
    capacity: Capacity,
    scarce: Ints64,
    scores: HostScores | None,
) -> GangPlan | NoFit | Undecided | None:
    """Return the answer on these resources; None: devices conflict, in every plan that was tried.

    After a conflict fewer pods of one of the shapes are planned on that host, first also on all hosts like it: the next
    plan would meet the same conflict there.
    """
    ways = [resources]
    for tried in range(_DEVICE_TRIES):
        if not ways:
            break
        way = ways.pop()
        answer = plan_gang(inputs.topology.tree, way.free, _with_columns(gang, way), scarce, scores)
        if isinstance(answer, GangPlan):
            conflict = device_conflict(_planned_shapes(inputs, answer), capacity, inputs.emptied)
            if conflict is None:
                return replace(answer, proven=answer.proven and not tried)
            ways += _without_conflict(way, conflict, inputs.topology.tree.index[conflict.host])
        elif not tried:
            return answer
    return None


def _without_conflict(way: _FreeResources, conflict: DeviceConflict, host: int) -> Iterator[_FreeResources]:
    """Yield resources with fewer slots for one of the shapes in conflict, the best guess last."""
    alike: Bools = (way.free == way.free[host]).all(axis=1)
    alone: Bools = np.zeros(len(alike), dtype=np.bool_)
    alone[host] = True
    for hosts in (alone, alike):
        for shape, most in reversed(list(conflict.most.items())):
            free = way.free.copy()
            column = way.devices[shape]
            free[hosts, column] = np.minimum(free[hosts, column], most)
            yield replace(way, free=free)


def _planned_shapes(inputs: PlanInput, answer: GangPlan) -> dict[str, Counter[Shape]]:
    """Return the new pods that request devices, by host and shape."""
    planned: dict[str, Counter[Shape]] = {}
    for name, pods in _new_pods(inputs, answer).items():
        if inputs.shapes[name].devices is not None:
            for host in np.flatnonzero(pods > 0).tolist():
                planned.setdefault(inputs.topology.tree.hosts[host], Counter())[inputs.shapes[name]] += int(pods[host])
    return planned


def _new_pods(inputs: PlanInput, answer: GangPlan) -> dict[str, Ints64]:
    """Return the new pods of each pod set by host."""
    tree, found = inputs.topology.tree, {}
    for ask, assigned in zip(inputs.asks, answer.pod_sets, strict=True):
        pods = np.zeros(len(tree.hosts), dtype=np.int64)
        np.add.at(pods, [host for host in assigned.ranks if host >= 0], 1)
        np.subtract.at(pods, [tree.index[host] for host in inputs.kept.get(ask.name, {}).values()], 1)
        found[ask.name] = pods
    return found


def _ways(inputs: PlanInput, resources: _FreeResources) -> Iterator[_FreeResources]:
    """Yield the resources that the pods may use under the rules, one way after the other; a plan on any will do.

    With several pod sets first all resources: often pods that know nothing of the rules keep to them.
    """
    rules, tree = inputs.rules, inputs.topology.tree
    if not rules.among_own:
        yield resources
        return
    if len(inputs.asks) > 1:
        yield resources
    counts = {ask.name: ask.count - len(inputs.kept.get(ask.name, ())) for ask in inputs.asks}
    slots = {ask.name: _slots_alone(resources, number, counts[ask.name]) for number, ask in enumerate(inputs.asks)}
    for allowed in islice(rules.choices(slots, counts), _WAYS):
        eligible = tuple(
            mine & allowed[ask.name] if ask.name in allowed else mine.copy()
            for ask, mine in zip(inputs.asks, resources.eligible, strict=True)
        )
        usable = {ask.name: np.where(mine, slots[ask.name], 0) for ask, mine in zip(inputs.asks, eligible, strict=True)}
        if len(inputs.asks) == 1:
            ask = inputs.asks[0]
            most, required = max(counts[ask.name], 1), None if inputs.kept else inputs.topology.level_of(ask.require)
            least = max(1, most - max(0, ask.count - ask.min_available))
            for one in (grains(inputs.topology.slices(ask.slices), len(tree.levels)), (1,) * len(tree.levels)):
                caps, free = rules.caps_for(ask.name), usable[ask.name]
                cut = capped_most(tree, free, caps, least=least, most=most, require=required, grain=one)
                yield from (_FreeResources(way[:, None], ((1,),), eligible) for way in islice(cut, _WAYS))
            continue
        for primary in range(len(inputs.asks) + 1):
            yield _with_caps(inputs, replace(resources, eligible=eligible), usable, counts, primary)


def _with_caps(
    inputs: PlanInput,
    resources: _FreeResources,
    slots: Mapping[str, Ints64],
    counts: Mapping[str, int],
    primary: int,
) -> _FreeResources:
    """Return the resources with one more for each cap: so many pods of its pod sets as a host may get.

    Which host of a domain gets them is a guess; `primary` is the number of the guess. The first one takes the hosts
    with room for most pods, the others those with room for one of the pod sets, another one in each domain.
    """
    tree, plain = inputs.topology.tree, (1,) * len(inputs.topology.levels)
    columns, requests = [resources.free], [list(own) for own in resources.requests]
    for cap in inputs.rules.caps:
        names = sorted(cap.pod_sets & slots.keys())
        if not names:
            continue
        room = np.sum([slots[name] for name in names], axis=0)
        if primary:
            turn = (cap.domains.codes + primary) % len(names)
            first = np.choose(turn, [slots[name] for name in names]) if len(names) > 1 else slots[names[0]]
            has = cap.domains.sums(first) > 0
            room = np.where(has[cap.domains.codes] & (first == 0), 0, room)
        limit = limit_of(cap, tree, room, sum(counts[name] for name in names), plain)
        columns.append(clip(tree, room, cap.domains, limit, plain)[:, None])
        for ask, own in zip(inputs.asks, requests, strict=True):
            own.append(int(ask.name in cap.pod_sets))
    free = np.concatenate(columns, axis=1)
    return replace(resources, free=free, requests=tuple(map(tuple, requests)))


def _slots_alone(resources: _FreeResources, number: int, most: int) -> Ints64:
    """Return the slots of one pod set by host, if it had all resources for itself."""
    slots = np.where(resources.eligible[number], most, 0).astype(np.int64)
    for column, amount in enumerate(resources.requests[number]):
        if amount > 0:
            np.minimum(slots, np.maximum(resources.free[:, column], 0) // amount, out=slots)
    return slots


def _free_resources(
    inputs: PlanInput, capacity: Capacity, *, empty: bool = False, repaired: bool = False
) -> _FreeResources:
    """Return the current resources; with `empty` those of empty hosts, with `repaired` of empty and healthy ones."""
    topology = inputs.topology
    empty |= repaired
    shapes = [inputs.shapes[ask.name] for ask in inputs.asks]
    out = np.zeros(len(topology.tree.hosts), dtype=np.bool_)
    if not empty:
        out[[topology.tree.index[host] for host in inputs.left_out]] = True
        for hosts in inputs.barred.values():
            out |= hosts
    if len(shapes) == 1:
        counted = capacity.count(shapes[0], topology)
        slots = counted.built if repaired else counted.empty if empty else counted.free
        out = out | _barred(inputs, inputs.asks[0], empty=empty)
        return _FreeResources(np.where(out, 0, slots)[:, None], ((1,),), (~out,))
    names = sorted({name for shape in shapes for name, amount in shape.requests if amount > 0})
    columns = [capacity.free_of(name, topology, empty=empty) for name in names]
    requests = [[dict(shape.requests).get(name, 0) for name in names] for shape in shapes]
    # Pods of one shape share a column: so the planner takes them as equal, and their ranks continue across pod sets.
    devices: dict[Shape, int] = {}
    for shape in dict.fromkeys(shape for shape in shapes if shape.devices is not None):
        devices[shape] = len(columns)
        counted = capacity.count(shape, topology)
        columns.append(counted.built if repaired else counted.empty if empty else counted.free)
        for other, one in zip(shapes, requests, strict=True):
            one.append(int(other == shape))
    for units in gpu_units(shapes, topology, capacity, empty=empty, repaired=repaired):
        columns.append(units.free)
        for number, one in zip(units.requests, requests, strict=True):
            one.append(number)
    eligible = tuple(
        _eligible_hosts(shape, topology, capacity, repaired=repaired) & ~(out | _barred(inputs, ask, empty=empty))
        for ask, shape in zip(inputs.asks, shapes, strict=True)
    )
    return _FreeResources(np.stack(columns, axis=1), tuple(map(tuple, requests)), eligible, devices)


def _barred(inputs: PlanInput, ask: PodSetRequest, *, empty: bool) -> Bools:
    """Return the hosts that the pods of one pod set may not use because of the pods near them."""
    barred = inputs.rules.barred_for(ask.name)
    nothing = np.zeros(len(inputs.topology.tree.hosts), dtype=np.bool_)
    return nothing if empty or not barred else np.logical_or.reduce(list(barred.values()))


def _eligible_hosts(shape: Shape, topology: Topology, capacity: Capacity, *, repaired: bool) -> Bools:
    if not repaired:
        return capacity.eligible(shape, topology)
    reasons = capacity.reasons(shape, topology)
    return np.array([not reason or repairable(reason) for reason in reasons], dtype=np.bool_)


def _resolved(inputs: PlanInput, capacity: Capacity, policy: Policy) -> GangPlanRequest:
    """Return the gang request with levels as indices and without columns; `auto` becomes the finest level that fits."""
    topology = inputs.topology
    required = {ask.name: topology.level_of(ask.require) for ask in inputs.asks}
    pod_sets = tuple(_pod_set(inputs, ask, required[ask.name]) for ask in inputs.asks)
    whole = inputs.gang
    gang = GangPlanRequest(
        pod_sets,
        require=topology.level_of(whole.require) if whole is not None else None,
        prefer=topology.level_of(whole.prefer) if whole is not None else None,
        min_count=_gang_minimum(inputs),
        profile=inputs.profile,
        steps=policy.planner.steps,
    )
    empty: _FreeResources | None = None
    for number, ask in enumerate(inputs.asks):
        if ask.require == AUTO and pod_sets[number].require is None:
            members_of_level = [
                other
                for other, one in enumerate(inputs.asks)
                if other == number or (ask.colocate is not None and one.colocate == ask.colocate)
            ]
            if len(members_of_level) == 1:
                empty_slots = capacity.empty_slots(inputs.shapes[ask.name], topology)
                level = topology.auto_level(ask.count, ask.slices, empty=empty_slots)
            else:
                empty = empty or _free_resources(inputs, capacity, empty=True)
                level = _finest_level(inputs, gang, empty, members_of_level)
            level = _level_beside_kept(inputs, level, members_of_level)
            pod_sets = tuple(
                replace(one, require=level) if i in members_of_level else one for i, one in enumerate(pod_sets)
            )
    gang = replace(gang, pod_sets=tuple(map(_without_idle_prefer, pod_sets)))
    if whole is not None and whole.require == AUTO:
        empty = empty or _free_resources(inputs, capacity, empty=True)
        every = list(range(len(pod_sets)))
        level = _level_beside_kept(inputs, _finest_level(inputs, gang, empty, every), every)
        gang = replace(gang, require=level)
    if gang.require is not None and gang.prefer is not None and gang.prefer <= gang.require:
        gang = replace(gang, prefer=None)
    return gang


def _pod_set(inputs: PlanInput, ask: PodSetRequest, require: int | None) -> PodSetPlanRequest:
    topology = inputs.topology
    kept = inputs.kept.get(ask.name, {})
    return PodSetPlanRequest(
        count=ask.count,
        remnant=ask.has_remnant,
        ranked=ask.ranked,
        requests=(),
        require=require,
        prefer=topology.level_of(ask.prefer),
        slices=topology.slices(ask.slices),
        colocate=ask.colocate,
        min_count=ask.min_available if ask.min_available < ask.count or _gang_minimum(inputs) is not None else None,
        kept={rank: topology.tree.index[host] for rank, host in kept.items()},
    )


def _gang_minimum(inputs: PlanInput) -> int | None:
    """Return the minimum of the whole gang, if it is less than all of its pods."""
    least = inputs.gang.min_available if inputs.gang is not None else None
    return least if least is not None and 1 <= least < _count(inputs) else None


def _without_idle_prefer(pods: PodSetPlanRequest) -> PodSetPlanRequest:
    """Return the pod set without a preferred level that the required one already implies, as `auto` may be finer."""
    idle = pods.require is not None and pods.prefer is not None and pods.prefer <= pods.require
    return replace(pods, prefer=None) if idle else pods


def _level_beside_kept(inputs: PlanInput, lowest: int, members_of_level: list[int]) -> int:
    """Return the level that `auto` means where `lowest` holds these pod sets, beside the pods of them that stay.

    A rule that came later keeps a running gang from no level that its pods need: what it has lost is replaced.
    """
    level = min(lowest, _shared_level(inputs, members_of_level))
    allowed = inputs.topology.allowed_level(level, inputs.levels)
    return min(level, allowed) if any(inputs.kept.get(inputs.asks[i].name) for i in members_of_level) else allowed


def _shared_level(inputs: PlanInput, members_of_level: list[int]) -> int:
    """Return the finest level with one domain that holds all kept pods of these pod sets; `auto` is no finer."""
    tree = inputs.topology.tree
    hosts = [tree.index[host] for i in members_of_level for host in inputs.kept.get(inputs.asks[i].name, {}).values()]
    for level in range(len(tree.levels) - 1, 0, -1):
        if len({tree.domain_of(level, host) for host in hosts}) <= 1:
            return level
    return 0


def _finest_level(inputs: PlanInput, gang: GangPlanRequest, empty: _FreeResources, members_of_level: list[int]) -> int:
    """Return the finest level with one empty domain that holds these pod sets; the coarsest if none does."""
    tree = inputs.topology.tree
    members = tuple(
        replace(
            gang.pod_sets[i],
            requests=empty.requests[i],
            eligible=empty.eligible[i],
            kept={},
            colocate=None,
            min_count=None,
        )
        for i in members_of_level
    )
    for level in range(len(tree.levels) - 1, -1, -1):
        finer = tuple(
            replace(one, require=None) if one.require is not None and one.require <= level else one for one in members
        )
        if isinstance(
            plan_gang(tree, empty.free, replace(gang, pod_sets=finer, require=level, min_count=None)), GangPlan
        ):
            return level
    return 0


def _with_columns(gang: GangPlanRequest, resources: _FreeResources) -> GangPlanRequest:
    """Return the gang request with the columns of these resources."""
    pod_sets = tuple(
        replace(pods, requests=requests, eligible=eligible)
        for pods, requests, eligible in zip(gang.pod_sets, resources.requests, resources.eligible, strict=True)
    )
    return replace(gang, pod_sets=pod_sets)


def _placed(inputs: PlanInput, gang: GangPlanRequest, answer: GangPlan) -> Placed:
    topology = inputs.topology
    plans = [_plan(ask, assigned, topology) for ask, assigned in zip(inputs.asks, answer.pod_sets, strict=True)]
    used = {one.name: number for one, number in zip(topology.levels, answer.domains_used, strict=True)}
    slots = [slot for plan in plans for slot in plan.slots]
    levels = _effective_levels(inputs, gang)
    own = levels.pod_sets[inputs.asks[0].name] if inputs.gang is None and len(inputs.asks) == 1 else None
    require, prefer = own or levels.whole
    return Placed(
        pod_sets=tuple(plans),
        domains_used=used,
        proven=answer.proven,
        message=placed_text(sum(slot.count for slot in slots), [slot.domain for slot in slots], tuple(used)),
        require=require,
        prefer=prefer,
        levels=levels.pod_sets,
    )


def _effective_levels(inputs: PlanInput, gang: GangPlanRequest) -> EffectiveLevels:
    """Return the levels of a resolved request by alias."""
    alias = inputs.topology.alias_of
    of_sets = zip(inputs.asks, gang.pod_sets, strict=True)
    return EffectiveLevels(
        whole=(alias(gang.require), alias(gang.prefer)),
        pod_sets={ask.name: (alias(pods.require), alias(pods.prefer)) for ask, pods in of_sets},
    )


def _plan(ask: PodSetRequest, assigned: HostAssignment, topology: Topology) -> PodSetPlan:
    """Return the slots in the order of their lowest rank; without ranks in the order of the tree."""
    tree = topology.tree
    ranks: dict[int, list[tuple[int, int]]] = {}
    for rank, host in enumerate(assigned.ranks):
        if host >= 0:
            ranks.setdefault(host, []).append((rank, rank))
    return PodSetPlan(
        ask.name,
        tuple(
            Slot(
                domain=tree.path(len(tree.levels) - 1, host),
                count=len(own),
                ranks=join_ranks(own) if ask.ranked else None,
            )
            for host, own in ranks.items()
        ),
    )


def _not_placed(
    inputs: PlanInput,
    gang: GangPlanRequest,
    answer: NoFit,
    capacity: Capacity,
    explain: Callable[[NoFit, PodSetRequest], Outcome],
) -> Outcome:
    topology = inputs.topology
    if any(inputs.kept.values()):
        return _not_joined(inputs, answer, capacity)
    of_one: Outcome | None = None
    if answer.pod_set is not None:
        ask = inputs.asks[answer.pod_set]
        explained = explain(answer, ask)
        if len(inputs.asks) == 1:
            return explained
        # With a minimum of the gang the pod set need not fit whole: its own numbers would not say what is missing.
        if _gang_minimum(inputs) is None or (isinstance(explained, Never) and ask.min_available):
            of_one = _of_pod_set(ask.name, explained)
        if isinstance(of_one, Never):
            return of_one
    of_all = _wanted(inputs) < _count(inputs)
    repaired = _free_resources(inputs, capacity, repaired=True)
    ever = plan_gang(topology.tree, repaired.free, _with_columns(gang, repaired))
    # Also of a gang with a pod set that does not fit alone now: it must not wait for ever for what can never be.
    never = isinstance(ever, NoFit) and (of_one is None or ever.pod_set is None)
    if of_one is not None and not never:
        other = ever.pod_set if isinstance(ever, NoFit) else None
        found = _never_alone(inputs, gang, other, capacity, explain) if other is not None else None
        return found or _for_hosts(of_one, inputs, gang, repaired, capacity)
    shared = ever.level if of_one is not None and isinstance(ever, NoFit) else answer.level
    asked = _asked(inputs, shared if shared >= 0 else gang.require)
    if never:
        alone = "so many" if of_all else "each pod set fits alone, but all of them"
        return Never("GangTooLarge", f"{asked}; {alone} together do not fit even on empty hosts")
    reason: Code = "Fragmented"
    if answer.level < 0:
        gpus = any("gpu" in name for shape in inputs.shapes.values() for name, _ in shape.requests)
        reason = "InsufficientFreeGPUs" if gpus else "InsufficientFreeHosts"
    alone = "so many do not fit" if of_all else "each pod set fits alone, but not all of them"
    return _for_hosts(Waits(reason, f"{asked}; {alone} together now"), inputs, gang, repaired, capacity)


def _not_joined(inputs: PlanInput, answer: NoFit, capacity: Capacity) -> Outcome:
    """Return the outcome of pods that find no room beside the running ones of their gang, or of their pod set."""
    one = inputs.asks[answer.pod_set] if answer.pod_set is not None and _gang_minimum(inputs) is None else None
    wanted = _wanted(inputs) if one is None else min(one.count, one.min_available)
    running = inputs.kept.values() if one is None else [inputs.kept.get(one.name, {})]
    missing = max(1, wanted - sum(map(len, running)))
    room = _room_beside(inputs, capacity, answer.level)
    has = f", which has room for {room:,}" if room is not None and room < missing else ""
    where = _beside(inputs.topology, answer.level, {host for ranks in running for host in ranks.values()})
    needs = f"needs room for {plural(missing, 'more pod')} in {where}{has}"
    waits = Waits("Fragmented", "; ".join([needs, *_slices_in_words(inputs)]))
    return waits if one is None or len(inputs.asks) == 1 else _of_pod_set(one.name, waits)


def _beside(topology: Topology, level: int, hosts: Collection[str]) -> str:
    """Return in words where pods of a required level join those on `hosts`."""
    if level < 0:
        return "the topology"
    tree, name = topology.tree, topology.levels[level].name
    domains = {tree.paths[tree.index[host]][: level + 1] for host in hosts}
    if not domains:
        return f"one {name}"
    return f"the {name if len(domains) == 1 else plural_noun(name)} of the running pods"


def _slices_in_words(inputs: PlanInput) -> list[str]:
    """Return what keeps new pods from room elsewhere: the slices of a gang with one pod set."""
    layers = inputs.asks[0].slices if len(inputs.asks) == 1 else ()
    return [f"each slice of {size:,} pods shares one {sanitize(level)}" for level, size in layers]


def _for_hosts(
    outcome: Outcome, inputs: PlanInput, gang: GangPlanRequest, repaired: _FreeResources, capacity: Capacity
) -> Outcome:
    """Return the outcome of a gang that fits on `repaired` hosts; it waits for others if not on healthy, empty ones."""
    empty = _free_resources(inputs, capacity, empty=True)
    pairs = ((empty.free, repaired.free), *zip(empty.eligible, repaired.eligible, strict=True))
    if not isinstance(outcome, Waits) or outcome.for_hosts or all(np.array_equal(*pair) for pair in pairs):
        return outcome
    fits = not isinstance(plan_gang(inputs.topology.tree, empty.free, _with_columns(gang, empty)), NoFit)
    return outcome if fits else replace(outcome, for_hosts=True)


def _never_alone(
    inputs: PlanInput,
    gang: GangPlanRequest,
    number: int,
    capacity: Capacity,
    explain: Callable[[NoFit, PodSetRequest], Outcome],
) -> Never | None:
    """Return why one pod set never fits, with the numbers of now; None if that is not known."""
    free = _free_resources(inputs, capacity)
    (pods,) = _with_columns(gang, free).pod_sets[number : number + 1]
    answer = plan_gang(inputs.topology.tree, free.free, replace(gang, pod_sets=(pods,)))
    if not isinstance(answer, NoFit):
        return None
    ask = inputs.asks[number]
    outcome = _of_pod_set(ask.name, explain(answer, ask))
    return outcome if isinstance(outcome, Never) else None


def _asked(inputs: PlanInput, level: int | None) -> str:
    """Return what a gang of several pod sets needs, in words."""
    shares = join_and([f"{ask.count:,} of {ask.name}" for ask in inputs.asks])
    where = f" in one {inputs.topology.alias_of(level)}" if level is not None else ""
    needed = _needed(inputs)
    of_all = f"{needed:,} of " if needed < _count(inputs) else ""
    return f"needs room for {of_all}{plural(_count(inputs), 'pod')} ({shares}){where}"


def _room_beside(inputs: PlanInput, capacity: Capacity, level: int) -> int | None:
    """Return how many more pods fit into the domains of the running ones; None for pod sets that count differently."""
    if len(inputs.asks) != 1:
        return None
    tree = inputs.topology.tree
    slots = np.maximum(_free_resources(inputs, capacity).free[:, 0], 0)
    if level >= 0:
        hosts = [tree.index[host] for ranks in inputs.kept.values() for host in ranks.values()]
        domains = {tree.paths[host][: level + 1] for host in hosts}
        slots = slots[[path[: level + 1] in domains for path in tree.paths]]
    return int(slots.sum())


def _of_pod_set(name: str, outcome: Outcome) -> Outcome:
    """Return the outcome of one pod set as that of its gang: a change that lets it fit may not be enough for all."""
    if isinstance(outcome, Placed):
        return outcome
    short = outcome.shortage
    if short is not None:
        short = replace(short, proposal=None, pod_set=name)
    return replace(outcome, message=f"pod set {name}: {outcome.message}", shortage=short)


def _count(inputs: PlanInput) -> int:
    return sum(ask.count for ask in inputs.asks)


def _needed(inputs: PlanInput) -> int:
    """Return how many slots a gang needs to start."""
    return sum(PlacementRequest(pod_sets=inputs.asks, gang=inputs.gang).first_slots.values())


def _wanted(inputs: PlanInput) -> int:
    """Return how many pods make the gang complete."""
    return _gang_minimum(inputs) or sum(min(ask.count, ask.min_available) for ask in inputs.asks)
