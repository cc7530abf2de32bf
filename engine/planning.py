"""From a request and the view of the cluster to an answer: Placed, Waits or Never.

The one way from a workload to the pure planner, used by the leader, by the webhook's forecast and by `simulate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.api.names import AUTO
from engine.api.placement import PodSetPlan, PodSetRequest, Slot
from engine.api.pod import Shape, Toleration
from engine.cache.capacity import Capacity, Count
from engine.device_shortfall import device_name, device_shortfall, full, unreported, without_devices
from engine.devices.resources import CORE, KOORDINATOR, RATIO, whole_names
from engine.explain import placed_text
from engine.gang.request import Understanding
from engine.gang.shape import REFUSED_LATELY, ROOM_KEPT, TAINT, repairable
from engine.outcomes import Never, Outcome, Placed, Waits
from engine.planner.plan import NoFit, Plan, Request, domain_slots, plan
from engine.planner.slices import Slices
from engine.policy.model import Policy
from engine.shortfall import WHOLE_TOPOLOGY, Shortfall, infeasible
from engine.together import Question, plan_together
from engine.topology.topology import Topology

Ints = npt.NDArray[np.int64]

WHOLE_GPU = "nvidia.com/gpu"


def plan_gang(
    understanding: Understanding,
    shapes: Mapping[str, Shape],
    *,
    capacity: Capacity,
    topology: Topology | None,
    policy: Policy,
    settled_before: float | None = None,
    excluded: frozenset[str] = frozenset(),
    kept: Mapping[str, Mapping[int, str]] | None = None,
    room_kept: frozenset[str] = frozenset(),
    emptied: frozenset[str] = frozenset(),
) -> Outcome:
    """Plan the gang of a workload against what is free now. Nothing is changed.

    `shapes`: what a pod of each pod set needs, by name. `settled_before`: nodes that became ready after this time do
    not count yet (None: all count). `excluded` are hosts that are left out this time, `room_kept` those on which room
    is kept for another gang (`engine.patience`); `emptied` count as if nobody were there. `kept`: pod set -> rank ->
    host of pods that run or are pinned already; the others join them, inside the required domain that these use.
    Raises nothing on odd input: the answer says what is missing.
    """
    assert understanding.asks, "only a workload that asks is planned"
    if topology is None:
        return Waits("LabelsMissing", f"no topology {understanding.topology} in this cluster yet", for_hosts=True)
    if topology.waits:
        return Waits("LabelsMissing", topology.waits, for_hosts=True)
    missing = [
        level for level in _levels(understanding) if level not in (None, AUTO) and topology.level_index(level) is None
    ]
    if missing:
        return Waits("LabelsMissing", f"no node carries the labels of level {missing[0]}", for_hosts=True)
    asks = tuple(ask for ask in understanding.asks if ask.count)
    left_out = _left_out(topology, capacity, settled_before, {REFUSED_LATELY: excluded, ROOM_KEPT: room_kept})
    vacated = frozenset(host for host in emptied if host in topology.tree.index)
    standing = {name: hosts for name, hosts in (kept or {}).items() if hosts}
    if not asks:
        found: Outcome = _nothing(understanding.asks[0])
    elif len(asks) == 1 and understanding.gang is None and not standing and asks[0].min_available >= asks[0].count:
        shape = shapes[asks[0].name]
        found = _plan_alike(asks[0], shape, capacity, topology, policy=policy, left_out=left_out, emptied=vacated)
    else:
        question = Question(
            asks=asks,
            gang=understanding.gang,
            shapes=shapes,
            topology=topology,
            left_out=frozenset(left_out),
            kept=standing,
            emptied=vacated,
        )
        scarce = scarce_of(_dearest([shapes[ask.name] for ask in asks]), capacity)
        found = plan_together(
            question,
            capacity=capacity,
            policy=policy,
            scarce=capacity.free_of(scarce, topology),
            explain=lambda answer, ask: _explained(
                answer, ask, shapes[ask.name], topology, capacity=capacity, left_out=left_out
            ),
        )
    if isinstance(found, Placed) and len(asks) < len(understanding.asks):
        plans = {plan.name: plan for plan in found.pod_sets}
        every = tuple(plans.get(ask.name, PodSetPlan(ask.name, ())) for ask in understanding.asks)
        return replace(found, pod_sets=every)
    return found


def _plan_alike(
    ask: PodSetRequest,
    shape: Shape,
    capacity: Capacity,
    topology: Topology,
    *,
    policy: Policy,
    left_out: Mapping[str, str],
    emptied: frozenset[str],
) -> Outcome:
    """Plan equal pods of which none is there yet, on the numbers that are kept between decisions."""
    require = topology.level_of(ask.require)
    if ask.require == AUTO:
        require = topology.auto_level(ask.count, ask.slices, empty=capacity.count(shape, topology).empty)
    prefer = topology.level_of(ask.prefer)
    if require is not None and prefer is not None and prefer <= require:
        prefer = None  # `auto` went below what is preferred: nothing is left to prefer
    request = Request(
        count=ask.count,
        require=require,
        prefer=prefer,
        profile=policy.planner.profile,
        steps=policy.planner.steps,
        slices=topology.slices(ask.slices),
    )
    scarce = scarce_of(shape, capacity)
    warm = capacity.slots(shape, topology, scarce=scarce)
    if left_out or emptied:
        free = warm.slots.copy()
        vacated = [topology.tree.index[host] for host in emptied]
        free[vacated] = capacity.count(shape, topology).empty[vacated] if vacated else 0
        free[[topology.tree.index[host] for host in left_out]] = 0
        answer = plan(topology.tree, free, request, capacity.free_of(scarce, topology))
    else:
        answer = warm.plan(request)
    require_alias = topology.levels[require].name if require is not None else None
    prefer_alias = topology.levels[prefer].name if prefer is not None else None
    match answer:
        case Plan():
            return _placed(answer, ask, topology, require_alias, prefer_alias)
        case NoFit():
            return _explained(answer, ask, shape, topology, capacity=capacity, left_out=left_out)


def _explained(
    answer: NoFit,
    ask: PodSetRequest,
    shape: Shape,
    topology: Topology,
    *,
    capacity: Capacity,
    left_out: Mapping[str, str],
) -> Waits | Never:
    """Why one pod set has no room, beside what is there now."""
    counted = capacity.count(shape, topology)
    reasons = capacity.reasons(shape, topology)
    for host, why in left_out.items():
        place = topology.tree.index[host]
        reasons[place] = reasons[place] or why
    return infeasible(_shortfall(answer, ask, shape, topology, capacity=capacity, counted=counted, reasons=reasons))


def _levels(understanding: Understanding) -> list[str | None]:
    """Every level that the request names."""
    gang = [understanding.gang.require, understanding.gang.prefer] if understanding.gang is not None else []
    own = [[ask.require, ask.prefer, *[level for level, _ in ask.slices]] for ask in understanding.asks]
    return [*gang, *[level for levels in own for level in levels]]


def _nothing(ask: PodSetRequest) -> Placed:
    """The answer for no pods at all."""
    return Placed((PodSetPlan(ask.name, ()),), {}, True, "placed 0 pods", ask.require, ask.prefer)


def _dearest(shapes: Sequence[Shape]) -> Shape:
    """The shape by which ties go: the first one that asks for GPUs, else the first."""
    return next((shape for shape in shapes if any("gpu" in name for name, _ in shape.requests)), shapes[0])


def scarce_of(shape: Shape, capacity: Capacity) -> str:
    """The resource that the pool is bought for, by which ties go: GPUs where there are any, else CPU."""
    asked = [name for name, _ in shape.requests if name.endswith("/gpu")]
    asked += [name for name, _ in shape.requests if name in (CORE, RATIO)]
    return asked[0] if asked else (WHOLE_GPU if capacity.reports(WHOLE_GPU) else "cpu")


def _left_out(
    topology: Topology,
    capacity: Capacity,
    settled_before: float | None,
    others: Mapping[str, frozenset[str]],
) -> dict[str, str]:
    """Hosts that take nothing this time, with the reason as people read it; `others`: reason -> hosts."""
    late = capacity.unsettled(settled_before) if settled_before is not None else []
    found = dict.fromkeys(late, "just joined")
    for why, hosts in others.items():
        found |= dict.fromkeys(hosts, why)
    return {host: why for host, why in found.items() if host in topology.tree.index}


def _placed(answer: Plan, ask: PodSetRequest, topology: Topology, require: str | None, prefer: str | None) -> Placed:
    tree = topology.tree
    slots: list[Slot] = []
    rank = 0
    for host, count in answer.hosts:
        ranks = ((rank, rank + count - 1),) if ask.ranked else None
        slots.append(Slot(domain=tree.path(len(tree.levels) - 1, host), count=count, ranks=ranks))
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


def _shortfall(
    answer: NoFit,
    ask: PodSetRequest,
    shape: Shape,
    topology: Topology,
    *,
    capacity: Capacity,
    counted: Count,
    reasons: list[str],
) -> Shortfall:
    tree = topology.tree
    level = answer.level
    least = max(1, min(ask.count, ask.min_available))
    empty = counted.empty
    sound = np.array([not reason or repairable(reason) for reason in reasons], dtype=np.bool_)
    built = np.where(sound, counted.built, 0)
    slices = topology.slices(ask.slices)
    by_numbers = without_devices(shape, topology, capacity, counted)
    sums_empty = domain_slots(topology.tree, empty, level, slices)
    largest = int(sums_empty.argmax()) if level >= 0 and len(empty) else -1
    exclusions = Counter[str]()
    for index, reason in enumerate(reasons):
        if reason:
            exclusions[reason] += 1
        elif counted.free[index] == 0:
            exclusions[full(tree.hosts[index], index, capacity, counted=counted, by_numbers=by_numbers)] += 1
    for reason in topology.outside.values():
        exclusions[reason] += 1
    per_host = int(empty.max()) if len(empty) else 0
    devices = device_shortfall(shape, topology, capacity, reasons)
    gpu = [name for name, _ in shape.requests if name.endswith("/gpu")]
    host_gpus: int | None
    if devices is not None:
        gpus_per_pod, host_gpus = devices.gpus, devices.most
    else:  # names that the policy's vendors have
        gpus_per_pod = sum(amount for name, amount in shape.requests if name in gpu)
        host_gpus = capacity.largest(gpu[0], topology) if gpu else None
    missing = unreported(shape, capacity)
    return Shortfall(
        count=least,
        whole=ask.count if least < ask.count else None,
        level=topology.levels[level].name if level >= 0 else None,
        domains=answer.domains,
        best=tree.path(level, answer.best)[-1] if answer.best >= 0 and level >= 0 else None,
        best_slots=answer.best_slots,
        total_slots=answer.total_slots,
        capacity_best=int(sums_empty.max()) if len(sums_empty) else 0,
        capacity_total=int(domain_slots(topology.tree, empty, -1, slices).max(initial=0)),
        per_host=per_host or None,
        hosts=len(tree.hosts) + len(topology.outside),
        exclusions=dict(exclusions),
        slices=ask.slices[0] if ask.slices else None,
        limiting=_limiting(shape, capacity, topology, counted=counted, by_numbers=by_numbers),
        fits_level=_fits(answer.fits_level, topology),
        gpus_per_pod=gpus_per_pod,
        ceiling=int(domain_slots(topology.tree, built, level, slices).max(initial=0)),
        largest=(tree.path(level, largest)[-1], _hosts_in(topology, level, largest)) if largest >= 0 else None,
        roomier=_roomier(topology, level, empty, least, slices),
        tolerate=_taint_in_the_way(answer, ask, shape, topology, capacity=capacity, reasons=reasons),
        host_gpus=host_gpus,
        devices=devices,
        too_big=_too_big(shape, capacity, topology),
        unreported=missing,
        reported=tuple(name for name in sorted(whole_names() | KOORDINATOR) if capacity.reports(name))
        if missing
        else (),
    )


def _too_big(shape: Shape, capacity: Capacity, topology: Topology) -> tuple[str, int, int] | None:
    """The first resource of which one pod asks for more than any host has: its name, what is asked, what there is."""
    for name, amount in shape.requests:
        if amount > (most := capacity.largest(name, topology)):
            return name, amount, most
    return None


def _taint_in_the_way(
    answer: NoFit, ask: PodSetRequest, shape: Shape, topology: Topology, *, capacity: Capacity, reasons: list[str]
) -> str | None:
    """The taint that keeps most hosts out, when the gang would fit now on the hosts that carry it too."""
    taints = Counter(reason.removeprefix(TAINT) for reason in reasons if reason.startswith(TAINT))
    for key, _ in taints.most_common(1):
        tolerant = replace(shape, tolerations=(*shape.tolerations, Toleration(key, "Exists", "", "")))
        free = capacity.count(tolerant, topology).free
        most = int(domain_slots(topology.tree, free, answer.level, topology.slices(ask.slices)).max(initial=0))
        if most >= min(ask.count, ask.min_available):
            return key
    return None


def _hosts_in(topology: Topology, level: int, domain: int) -> int:
    first, end = topology.tree.range(level, domain)
    return end - first


def _roomier(
    topology: Topology, level: int, empty: Ints, count: int, slices: tuple[Slices, ...]
) -> tuple[str, int] | None:
    """The nearest coarser level whose largest domain, empty, holds the gang."""
    for coarser in range(level - 1, -1, -1):
        most = int(domain_slots(topology.tree, empty, coarser, slices).max(initial=0))
        if most >= count:
            return topology.levels[coarser].name, most
    return None


def _fits(level: int | None, topology: Topology) -> str | None:
    if level is None:
        return None
    return topology.levels[level].name if level >= 0 else WHOLE_TOPOLOGY


def _limiting(shape: Shape, capacity: Capacity, topology: Topology, *, counted: Count, by_numbers: Count) -> str | None:
    """The requested resource of which the hosts have the fewest pods' worth free."""
    if (name := device_name(shape)) is not None and counted.free.sum() < by_numbers.free.sum():
        return name  # the numbers would do, the devices do not
    worth = [
        (int((capacity.free_of(resource, topology) // amount).sum()), resource)
        for resource, amount in shape.requests
        if amount > 0 and resource != "pods"
    ]
    return min(worth)[1] if worth else None
