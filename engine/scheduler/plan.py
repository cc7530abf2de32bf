"""From a request and the cluster state to an outcome: Placed, Waits or Never.

The only way from a workload to the pure planner, used by the leader, by the webhook's forecast and by `simulate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from engine.api.device import SCOPES, DeviceRequest
from engine.api.names import AUTO
from engine.api.placement import PodSetPlan, PodSetRequest, Slot, named_levels
from engine.api.pod import Shape
from engine.api.text import plural
from engine.capacity.capacity import Capacity
from engine.capacity.pod_rules import PodRules
from engine.gang.request import PlacementRequest
from engine.planner.plan import NoFit, Plan, PlanRequest, lowest_level
from engine.planner.slices import grains
from engine.planner.tree import Bools, Ints64
from engine.policy.model import Policy
from engine.resources.names import CORE, RATIO
from engine.resources.shape import FAILED_LATELY, JUST_JOINED, KEPT_FOR_OTHERS, TAINT, TO_BE_LEFT, within_scope
from engine.scheduler.explain import infeasible, placed_text
from engine.scheduler.outcome import EffectiveLevels, Never, Outcome, Placed, Waits
from engine.scheduler.plan_gang import UNEXPLAINED, PlanInput, levels_of_pod_sets, plan_pod_sets
from engine.scheduler.shortfall import shortfall_of
from engine.topology.topology import Topology

WHOLE_GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConditions:
    """What holds for one plan beside the request, the free resources and the policy; by default nothing.

    settled_before  nodes that became ready after this time do not count yet; None: all count
    excluded        hosts that are left out this time
    nominated       hosts that are nominated for another gang (`engine.scheduler.starvation`)
    emptied         hosts that count as empty
    barred          words -> hosts of the topology, by index, that the gang may not use because of other gangs
                    (`engine.scheduler.separation`)
    kept            pod set -> rank -> host of pods that are running or bound already; the others join them, inside the
                    required domain that these use
    rules           what the pods require of those near them
    near            what they prefer of them: the score of one pod of a pod set, by host
    hints           whether an outcome tells changes with which there would be room; a limit of hosts may forbid them
    """

    settled_before: float | None = None
    excluded: frozenset[str] = frozenset()
    nominated: frozenset[str] = frozenset()
    emptied: frozenset[str] = frozenset()
    barred: Mapping[str, Bools] = field(default_factory=dict)
    kept: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    rules: PodRules = field(default_factory=PodRules)
    near: Mapping[str, Ints64] = field(default_factory=dict)
    hints: bool = True


def plan_placement(
    request: PlacementRequest,
    shapes: Mapping[str, Shape],
    *,
    capacity: Capacity,
    topology: Topology | None,
    policy: Policy,
    conditions: PlanConditions | None = None,
) -> Outcome:
    """Plan the gang of a workload on the resources that are free now. Nothing is changed.

    `shapes`: the resources of a pod of each pod set, by name. Never raises for malformed input: the outcome names what
    is missing.
    """
    assert request.pod_sets, "only a workload that asks is planned"
    if topology is None:
        return Waits("LabelsMissing", f"no topology {request.topology} in this cluster yet", for_hosts=True)
    if missing := _missing_labels(request, topology):
        return Waits("LabelsMissing", missing, for_hosts=True)
    conditions = conditions or PlanConditions()
    plan_with = partial(
        _plan_shapes, request, capacity=capacity, topology=topology, policy=policy, conditions=conditions
    )
    found = plan_with(shapes)
    if isinstance(found, Placed) and not conditions.emptied and (scopes := capacity.device_scopes):
        plan_with = partial(plan_with, explained=False)
        return _with_near_devices(found, shapes, scopes, plan_with, capacity=capacity, kept=conditions.kept)
    return found


def _with_near_devices(
    found: Placed,
    shapes: Mapping[str, Shape],
    scopes: frozenset[str],
    plan_with: Callable[[Mapping[str, Shape]], Outcome],
    *,
    capacity: Capacity,
    kept: Mapping[str, Mapping[int, str]],
) -> Placed:
    """Return the plan, or one as good in which the GPUs of every pod share a scope: the nearest that is possible.

    As good: as many pods, and on no level more domains. Only which of the equally good hosts are taken may change.
    """
    for scope in SCOPES:
        near = {
            name: shape if shape.devices is None or shape.devices.scope else within_scope(shape, scope)
            for name, shape in shapes.items()
        }
        if near == shapes:
            return found
        if scope not in scopes:
            continue
        if _near_already(found, near, capacity, kept):
            return found
        other = plan_with(near)
        if isinstance(other, Placed) and _as_good(other, found):
            return other
    return found


def _near_already(
    found: Placed, near: Mapping[str, Shape], capacity: Capacity, kept: Mapping[str, Mapping[int, str]]
) -> bool:
    """Return whether the new pods of a plan fit on their hosts within the scopes of these shapes."""
    wanted: dict[str, list[tuple[DeviceRequest, int]]] = {}
    for plan_of_set in found.pod_sets:
        devices = near[plan_of_set.name].devices
        kept_hosts = Counter(kept.get(plan_of_set.name, {}).values())
        for slot in plan_of_set.slots if devices is not None and devices.gpus else ():
            if devices is not None and (count := slot.count - kept_hosts[slot.host]) > 0:
                wanted.setdefault(slot.host, []).append((devices, count))
    return all(
        capacity.devices_near(host, requests)
        for host, requests in wanted.items()
        if any(request.scope for request, _ in requests)
    )


def _as_good(other: Placed, found: Placed) -> bool:
    return (
        other.count >= found.count
        and (other.require, other.prefer, other.levels) == (found.require, found.prefer, found.levels)
        and all(number <= found.domains_used.get(level, 0) for level, number in other.domains_used.items())
    )


def _missing_labels(request: PlacementRequest, topology: Topology) -> str:
    """Return, in words, the labels of nodes without which a gang cannot be planned; "" if it can."""
    if topology.waits:
        return topology.waits
    named = named_levels(request.pod_sets, request.gang, request.separation)
    missing = [level for level in named if level != AUTO and topology.level_index(level) is None]
    if not missing:
        return ""
    if not topology.labelled:
        return f"no node is in a HyperNode of level {missing[0]}"
    nodes = plural(len(topology.tree.hosts) + len(topology.outside), "node")
    return f"none of {nodes} has the label of level {missing[0]}; the cluster's admin must label them"


def _plan_shapes(
    request: PlacementRequest,
    shapes: Mapping[str, Shape],
    *,
    capacity: Capacity,
    topology: Topology,
    policy: Policy,
    conditions: PlanConditions,
    explained: bool = True,
) -> Outcome:
    """Plan pods of these shapes; without `explained` the outcome of one that does not fit says nothing, and costs
    nothing.
    """
    inputs = _plan_input(request, shapes, capacity=capacity, topology=topology, policy=policy, conditions=conditions)
    if not inputs.asks:
        return _with_every_pod_set(_placed_without_pods(request.pod_sets[0]), request)
    explain = partial(_no_fit_reason, inputs=inputs, capacity=capacity, policy=policy) if explained else None
    if _of_equal_pods(inputs):
        found = _plan_equal_pods(inputs, capacity=capacity, policy=policy, explain=explain)
    else:
        scarce = scarce_of(_tie_breaking_shape([shapes[ask.name] for ask in inputs.asks]), capacity)
        found = plan_pod_sets(
            inputs,
            capacity=capacity,
            policy=policy,
            scarce=capacity.free_of(scarce, topology),
            scores=capacity.scores(_pods_by_shape(inputs.asks, shapes), topology, _near_all(inputs.asks, inputs.near)),
            explain=explain,
        )
    return _with_every_pod_set(found, request)


def effective_levels(
    request: PlacementRequest,
    shapes: Mapping[str, Shape],
    *,
    capacity: Capacity,
    topology: Topology | None,
    policy: Policy,
    conditions: PlanConditions,
) -> EffectiveLevels:
    """Return the levels that `plan_placement` requires and prefers; as they are requested where it plans nothing."""
    whole = (request.gang.require, request.gang.prefer) if request.gang is not None else (None, None)
    asked = EffectiveLevels(whole, {ask.name: (ask.require, ask.prefer) for ask in request.pod_sets})
    if topology is None or _missing_labels(request, topology):
        return asked
    inputs = _plan_input(request, shapes, capacity=capacity, topology=topology, policy=policy, conditions=conditions)
    if not inputs.asks:
        return asked
    found: EffectiveLevels | None
    if _of_equal_pods(inputs):
        require, prefer = _levels_of_equal_pods(inputs, capacity)
        own = (topology.alias_of(require), topology.alias_of(prefer))
        found = EffectiveLevels(whole, {inputs.asks[0].name: own})
    else:
        found = levels_of_pod_sets(inputs, capacity, policy)
    return replace(found, pod_sets={**asked.pod_sets, **found.pod_sets}) if found is not None else asked


def _plan_input(
    request: PlacementRequest,
    shapes: Mapping[str, Shape],
    *,
    capacity: Capacity,
    topology: Topology,
    policy: Policy,
    conditions: PlanConditions,
) -> PlanInput:
    others = {
        FAILED_LATELY: conditions.excluded,
        KEPT_FOR_OTHERS: conditions.nominated,
        TO_BE_LEFT: request.leave_hosts,
    }
    return PlanInput(
        asks=tuple(ask for ask in with_shared_levels(request.pod_sets) if ask.count),
        gang=request.gang,
        shapes=shapes,
        topology=topology,
        left_out=_left_out(topology, capacity, conditions.settled_before, others, settle=policy.nodes.settle),
        barred=conditions.barred,
        rules=conditions.rules,
        kept={name: hosts for name, hosts in conditions.kept.items() if hosts},
        emptied=frozenset(host for host in conditions.emptied if host in topology.tree.index),
        levels=request.levels,
        profile=request.profile or policy.profile_of(request.topology),
        near=conditions.near,
        hints=conditions.hints,
    )


def with_shared_levels(asks: tuple[PodSetRequest, ...]) -> tuple[PodSetRequest, ...]:
    """Return the requests with the required level copied to all that share its domain.

    The one that names it may have no pods to place: the others share a domain nevertheless.
    """
    named = {one.colocate: one.require for one in asks if one.colocate is not None and one.require is not None}
    return tuple(
        replace(one, require=named[one.colocate]) if one.require is None and one.colocate in named else one
        for one in asks
    )


def _of_equal_pods(inputs: PlanInput) -> bool:
    """Return True if the pods are equal and all needed, and no others of the gang exist: numbers of slots suffice."""
    (ask, *others) = inputs.asks
    together = not others and inputs.gang is None and ask.min_available >= ask.count
    return together and not inputs.kept and not ask.has_remnant


def _with_every_pod_set(found: Outcome, request: PlacementRequest) -> Outcome:
    """Return a plan with the pod sets without pods, too, in the order of the request."""
    if not isinstance(found, Placed) or len(found.pod_sets) == len(request.pod_sets):
        return found
    plans = {plan.name: plan for plan in found.pod_sets}
    every = tuple(plans.get(ask.name, PodSetPlan(ask.name, ())) for ask in request.pod_sets)
    return replace(found, pod_sets=every)


def _plan_equal_pods(
    inputs: PlanInput,
    *,
    capacity: Capacity,
    policy: Policy,
    explain: Callable[[NoFit, PodSetRequest], Outcome] | None,
) -> Outcome:
    """Plan equal pods without existing ones, on numbers that are cached between decisions."""
    (ask,), topology = inputs.asks, inputs.topology
    shape, near = inputs.shapes[ask.name], inputs.near.get(ask.name)
    warm = capacity.slots(shape, topology, scarce=scarce_of(shape, capacity))
    require, prefer = _levels_of_equal_pods(inputs, capacity)
    request = PlanRequest(
        count=ask.count,
        require=require,
        prefer=prefer,
        profile=inputs.profile,
        steps=policy.planner.steps,
        slices=topology.slices(ask.slices),
    )
    scores = None
    if shape.preferred or capacity.soft_taints or near is not None:
        scores = capacity.scores({shape: 1}, topology, near)
    rules = inputs.rules
    if inputs.left_out or inputs.emptied or inputs.barred_for(ask.name) or rules.among_own:
        free = _usable_slots(inputs, warm.slots, capacity, shape)
        grain = grains(request.slices, len(topology.levels))
        ways = rules.ways(ask.name, topology.tree, free, count=ask.count, require=require, grain=grain)
        answer = _first_plan(warm.plan_on_slots(slots, request, scores) for slots in ways)
        if isinstance(answer, NoFit) and rules.among_own and explain is not None:
            # The rules leave room for all pods or for none: where room is short too, the numbers are of the room.
            without_rules = warm.plan_on_slots(free, request, scores)
            answer = without_rules if isinstance(without_rules, NoFit) else answer
    else:
        answer = warm.plan(request, scores)
    if isinstance(answer, NoFit):
        return explain(answer, ask) if explain is not None else UNEXPLAINED
    if rules.chooses:
        answer = replace(answer, proven=False)
    return _placed(answer, ask, topology, topology.alias_of(require), topology.alias_of(prefer))


def _levels_of_equal_pods(inputs: PlanInput, capacity: Capacity) -> tuple[int | None, int | None]:
    """Return the index of the required and of the preferred level of equal pods."""
    (ask,), topology = inputs.asks, inputs.topology
    require, prefer = topology.level_of(ask.require), topology.level_of(ask.prefer)
    if ask.require == AUTO:
        empty = capacity.empty_slots(inputs.shapes[ask.name], topology)
        require = topology.allowed_level(_auto_level(inputs, empty), inputs.levels)
    if require is not None and prefer is not None and prefer <= require:
        prefer = None  # `auto` is finer than the preferred level: nothing is left to prefer
    return require, prefer


def _auto_level(inputs: PlanInput, empty: Ints64) -> int:
    """Return the level that `auto` means for equal pods; `empty`: the slots of empty hosts.

    It is the lowest level with an empty domain for them all, also by the rules among them: one pod for each host never
    fits on one host. Without any such level only the room decides.
    """
    (ask,), topology, rules = inputs.asks, inputs.topology, inputs.rules
    lowest = topology.auto_level(ask.count, ask.slices, empty=empty)
    slices = topology.slices(ask.slices)
    grain = grains(slices, len(topology.levels))
    for level in range(lowest, -1, -1) if rules.among_own else ():
        ways = rules.ways(ask.name, topology.tree, empty, count=ask.count, require=level, grain=grain)
        found = (lowest_level(topology.tree, slots, ask.count, slices) for slots in ways)
        if any(one is not None and one >= level for one in found):
            return level
    return lowest


def _usable_slots(inputs: PlanInput, slots: Ints64, capacity: Capacity, shape: Shape) -> Ints64:
    """Return the slots of equal pods by host: those of an empty host on emptied ones, none where they may not go."""
    (ask,), index = inputs.asks, inputs.topology.tree.index
    free = slots.copy()
    if inputs.emptied:  # counting all hosts takes longer than most plans
        vacated = [index[host] for host in inputs.emptied]
        free[vacated] = capacity.count(shape, inputs.topology).empty[vacated]
    free[[index[host] for host in inputs.left_out]] = 0
    for hosts in inputs.barred_for(ask.name).values():
        np.copyto(free, 0, where=hosts)
    return free


def _first_plan(answers: Iterable[Plan | NoFit]) -> Plan | NoFit:
    """Return the first plan; without any the first answer."""
    first: NoFit | None = None
    for answer in answers:
        if isinstance(answer, Plan):
            return answer
        first = first or answer
    assert first is not None, "there is a way, and be it one without slots"
    return first


def _no_fit_reason(
    answer: NoFit, ask: PodSetRequest, *, inputs: PlanInput, capacity: Capacity, policy: Policy
) -> Waits | Never:
    """Return why one pod set does not fit beside the current pods."""
    shape, topology = inputs.shapes[ask.name], inputs.topology
    counted = capacity.count(shape, topology)
    reasons = capacity.reasons(shape, topology)
    left_out = [(topology.tree.index[host], why) for host, why in inputs.left_out.items()]
    barred = (
        (place, why) for why, hosts in inputs.barred_for(ask.name).items() for place in np.flatnonzero(hosts).tolist()
    )
    for place, why in (*left_out, *barred):
        if not reasons[place] or reasons[place].startswith(TAINT):  # a toleration alone would not open it
            reasons[place] = why
    return infeasible(
        shortfall_of(
            answer,
            ask,
            shape,
            topology,
            capacity=capacity,
            counted=counted,
            reasons=reasons,
            names_hosts=policy.messages.nodes == "all",
            hints=inputs.hints and not inputs.rules.among_own,
        )
    )


def _placed_without_pods(ask: PodSetRequest) -> Placed:
    """Return the outcome for a request of no pods."""
    return Placed((PodSetPlan(ask.name, ()),), {}, True, "placed 0 pods", ask.require, ask.prefer)


def _pods_by_shape(asks: Iterable[PodSetRequest], shapes: Mapping[str, Shape]) -> dict[Shape, int]:
    pods: dict[Shape, int] = {}
    for ask in asks:
        pods[shapes[ask.name]] = pods.get(shapes[ask.name], 0) + ask.count
    return pods


def _near_all(asks: Iterable[PodSetRequest], near: Mapping[str, Ints64]) -> Ints64 | None:
    """Return the scores of all pods together because of the pods near them, by host; None without any."""
    found = [near[ask.name] * ask.count for ask in asks if ask.name in near]
    total: Ints64 | None = np.sum(found, axis=0) if found else None
    return total


def _tie_breaking_shape(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that decides ties: the first one that requests GPUs, else the first."""
    return next((shape for shape in shapes if any("gpu" in name for name, _ in shape.requests)), shapes[0])


def scarce_of(shape: Shape, capacity: Capacity) -> str:
    """Return the resource that decides ties: GPUs if there are any, else CPU."""
    asked = [name for name, _ in shape.requests if name.endswith("/gpu")]
    asked += [name for name, _ in shape.requests if name in (CORE, RATIO)]
    return asked[0] if asked else (WHOLE_GPU if capacity.reports(WHOLE_GPU) else "cpu")


def _left_out(
    topology: Topology,
    capacity: Capacity,
    settled_before: float | None,
    others: Mapping[str, frozenset[str]],
    *,
    settle: float,
) -> dict[str, str]:
    """Return the hosts that are left out this time, with the reason as text; `others`: reason -> hosts."""
    late = capacity.unsettled(settled_before, settle=settle) if settled_before is not None else []
    found = dict.fromkeys(late, JUST_JOINED)
    for why, hosts in others.items():
        found |= dict.fromkeys(hosts, why)
    return {host: why for host, why in found.items() if host in topology.tree.index}


def _placed(answer: Plan, ask: PodSetRequest, topology: Topology, require: str | None, prefer: str | None) -> Placed:
    tree = topology.tree
    slots: list[Slot] = []
    rank = 0
    for host, count in answer.hosts:
        ranks = ((rank, rank + count - 1),) if ask.ranked else None
        slots.append(Slot(domain=tree.paths[host], count=count, ranks=ranks))
        rank += count
    used = {level.name: number for level, number in zip(topology.levels, answer.domains_used, strict=True)}
    paths = [slot.domain for slot in slots]
    return Placed(
        pod_sets=(PodSetPlan(ask.name, tuple(slots)),),
        domains_used=used,
        proven=answer.proven,
        message=placed_text(ask.count, paths, tuple(used)),
        require=require,
        prefer=prefer,
    )
