"""Plans a gang of several pod sets: uniform search, batch by batch, exact search; then the order of its hosts.

A search places the scarcest pods first, so that the one pod that leads the others (a master, a launcher) may come
after them for no reason. `in_order` then swaps all planned pods of two hosts where that costs nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from engine.planner.backtrack import BacktrackingSearch, BatchPlacement, Cost, Layout, cost_of, place
from engine.planner.batches import BatchedGang, PodBatch, lacking_parts, split_gang
from engine.planner.bounds import lowest_fit
from engine.planner.exact import OutOfSteps, Steps
from engine.planner.exact_gang import LEAST_STEPS, ExactGangSearch
from engine.planner.feasibility import domain_bounds, fitting_domains, group_bound, most_pods, shortage
from engine.planner.gang import (
    GangPlan,
    GangPlanRequest,
    HostAssignment,
    HostCapacity,
    PodSetPlanRequest,
    Undecided,
    check_gang,
    divisions,
)
from engine.planner.plan import NoFit, no_fit
from engine.planner.slices import grains
from engine.planner.sums import DomainSums, HostScores, domain_sums
from engine.planner.tree import Bools, Ints64, Tree

# Number of exchanges that are tried: leading pods are few.
_TRIES = 64


def in_order(capacity: HostCapacity, batched: BatchedGang, pods: tuple[Ints64, ...]) -> tuple[Ints64, ...]:
    """Exchange the pods of hosts so that the first ranks come first in tree order; return pods per host by batch.

    No exchange breaks a batch's requirements, opens one more domain, or moves earlier ranks back. A gang with kept pods
    stays unchanged: `pods` join them.
    """
    if any(group.used is not None for group in batched.groups):
        return pods
    hosts = np.flatnonzero(sum(pods))
    planned = np.stack(pods)[:, hosts]
    order = sorted(range(len(batched.batches)), key=lambda batch: batched.batches[batch].ranks[0])
    tries = _TRIES
    for number, batch in enumerate(order[:-1]):
        before = planned[order[: number + 1]]
        first = 0
        for at in np.flatnonzero(planned[batch]).tolist():
            ahead = np.flatnonzero(_exchangeable(capacity, batched, planned, hosts, at)[:at])
            ahead = ahead[(ahead >= first) & (before[:, ahead].sum(axis=0) == 0)]
            first = at + 1
            for other in ahead.tolist():
                if tries <= 0:
                    return _per_host(capacity, hosts, planned)
                tries -= 1
                exchanged = planned.copy()
                exchanged[:, [at, other]] = planned[:, [other, at]]
                if _no_worse(capacity, batched, hosts, planned, exchanged):
                    planned, first = exchanged, other + 1
                    before = planned[order[: number + 1]]
                    break
    return _per_host(capacity, hosts, planned)


def _exchangeable(capacity: HostCapacity, batched: BatchedGang, planned: Ints64, hosts: Ints64, place: int) -> Bools:
    """Return per host whether it and the host at `place` can exchange all pods planned on them."""
    needs = planned.T @ np.stack([batch.requests for batch in batched.batches])
    free = capacity.free[hosts]
    eligible = np.stack([batch.eligible[hosts] for batch in batched.batches])
    there = ((needs[place] <= free) | (needs[place] == 0)).all(axis=1) & eligible[planned[:, place] > 0].all(axis=0)
    here = ((needs <= free[place]) | (needs == 0)).all(axis=1)
    found: Bools = there & here & ((planned == 0) | eligible[:, [place]]).all(axis=0)
    return found


def _no_worse(capacity: HostCapacity, batched: BatchedGang, hosts: Ints64, before: Ints64, after: Ints64) -> bool:
    """Return whether all batches still share their required domains, and no more domains are opened."""
    tree = capacity.tree
    for batch, pods in zip(batched.batches, after, strict=True):
        for level, size in enumerate(batch.grain):
            if size > 1 and (np.bincount(tree.domains[level][hosts], weights=pods) % size).any():
                return False
    for shared in batched.shared_domains:
        used = hosts[after[sorted(shared.batches)].sum(axis=0) > 0]
        if len(np.unique(tree.domains[shared.level][used])) > 1:
            return False
    costs = [cost_of(tree, batched, _per_host(capacity, hosts, planned)) for planned in (before, after)]
    return costs[1] <= costs[0]


def _per_host(capacity: HostCapacity, hosts: Ints64, planned: Ints64) -> tuple[Ints64, ...]:
    """Return the pods per host of the whole tree, by batch."""
    pods = np.zeros((len(planned), len(capacity.tree.hosts)), dtype=np.int64)
    pods[:, hosts] = planned
    return tuple(pods)


_MOST_SLOTS = (1 << 31) - 1


def assemble(capacity: HostCapacity, gang: GangPlanRequest, counts: Sequence[int]) -> GangPlan | NoFit | Undecided:
    """Plan `counts[i]` pods of pod set i; the arguments have been checked."""
    batched = split_gang(capacity, gang, counts)
    capacity = batched.capacity
    if not batched.batches:
        return _assign_ranks(capacity.tree, gang, batched, (), proven=True)
    alone: list[BatchPlacement] = []
    for index, batch in enumerate(batched.batches):
        level = _level(batched, index)
        state = _state(capacity, gang, batched, index)
        levelled = batched.groups[batch.group].counted[0]
        found = place(state, batch.count, level, levelled=levelled, steps=gang.steps, prefer=batch.prefer)
        if found is None:
            return _batch_no_fit(capacity, batch, level)
        alone.append(found)
    if len(alone) == 1:
        return _assign_ranks(capacity.tree, gang, batched, (alone[0].pods,), proven=alone[0].proven)
    return _no_joint_fit(capacity, batched) or _search(capacity, gang, batched, alone)


def _level(batched: BatchedGang, batch: int) -> int:
    return max((shared.level for shared in batched.shared_domains_of(batch)), default=-1)


def _state(capacity: HostCapacity, gang: GangPlanRequest, batched: BatchedGang, index: int) -> DomainSums:
    batch = batched.batches[index]
    state = domain_sums(
        capacity.tree,
        batched.slots[index],
        capacity.scarce,
        spread=gang.profile == "spread",
        grain=batch.grain if batch.sliced else None,
        balanced=gang.profile == "balanced",
        scores=capacity.scores,
        count=batch.count,
    )
    state.used = batched.groups[batch.group].used
    return state


def _search(
    capacity: HostCapacity, gang: GangPlanRequest, batched: BatchedGang, alone: list[BatchPlacement]
) -> GangPlan | NoFit | Undecided:
    goal = _lower_bound(batched, alone)
    steps = Steps(gang.steps)
    with steps.part(gang.steps // 2) as quick:
        best = BacktrackingSearch(batched, profile=gang.profile, steps=quick).run(goal)
    if best is not None and gang.profile == "balanced":
        # Each pod set is divided evenly where the others leave it the room; that is not the best of all divisions.
        return _assign_ranks(capacity.tree, gang, batched, best.pods, proven=False)
    proven = best is not None and best.cost <= goal
    if not proven:
        best, certain = _exact(batched, best, goal, steps)
        if best is None and not certain:
            return Undecided(gang.steps)
        proven = certain and gang.profile != "balanced"
    if best is None:
        return NoFit(-1, 1, -1, 0, 0, None, None)
    return _assign_ranks(capacity.tree, gang, batched, in_order(capacity, batched, best.pods), proven=proven)


# The part of the remaining steps that one of so many domains, or more, may take.
_SHARE = 4


def _exact(batched: BatchedGang, best: Layout | None, goal: Cost, steps: Steps) -> tuple[Layout | None, bool]:
    """Return the cheapest layout, and whether that is certain; else the cheaper one of `best` and what was found.

    First those in one domain of the finest level for which `goal`, a lower bound, allows it: there are few hosts in it.
    """
    search = ExactGangSearch(batched)
    known = _single(batched, best.cost if best is not None else None)
    certain = False
    for level in range(max(known, _single(batched, goal)), known - 1, -1):
        with steps.part(steps.left // 2 if level > known else steps.left) as some:
            best, certain = _in_one_domain(search, batched, best, level=level, goal=goal, steps=some)
        if best is not None and _single(batched, best.cost) >= level:
            break
    return best, certain


def _in_one_domain(
    search: ExactGangSearch, batched: BatchedGang, best: Layout | None, *, level: int, goal: Cost, steps: Steps
) -> tuple[Layout | None, bool]:
    """Return the better one of `best` and the cheapest layout in one domain of `level`, and whether that is certain."""
    domains, bounds = [0], [goal]
    if level >= 0:
        found, lowest = domain_bounds(batched, batched.groups[0], level)
        domains, bounds = found.tolist(), [tuple(bound) for bound in lowest.T.tolist()]
    below = best.cost if best is not None else None
    cheaper = [(domain, bound) for domain, bound in zip(domains, bounds, strict=True) if below is None or bound < below]
    undecided: list[Cost] = []
    for number, (domain, bound) in enumerate(cheaper):
        below = best.cost if best is not None else None
        if below is not None and bound >= below:
            break
        try:
            with steps.part(steps.left // min(_SHARE, len(cheaper) - number)) as share:
                pods = search.run(share, below=below, level=level, domain=domain)
        except OutOfSteps:
            undecided.append(bound)
        else:
            best = best if pods is None else Layout(pods, cost_of(batched.capacity.tree, batched, pods))
        if undecided and steps.left < _SHARE * LEAST_STEPS:
            break  # too few for another domain, and the later ones have no lower bounds
    return best, all(best is not None and bound >= best.cost for bound in undecided)


def _single(batched: BatchedGang, cost: Cost | None) -> int:
    """Return the finest level at which every layout of at most `cost` (None: any layout) is in one domain.

    -1 if there is none. Where `cost` is a lower bound: the finest level at which a layout may be in one domain.
    """
    if len(batched.groups) != 1 or batched.groups[0].used is not None:
        return -1
    of_all = (one.level for one in batched.shared_domains if len(one.batches) == len(batched.batches))
    required = max(of_all, default=-1)
    if cost is None or not all(batched.groups[0].counted):
        return required
    return max(required, next((level for level, number in enumerate(cost) if number > 1), len(cost)) - 1)


def _lower_bound(batched: BatchedGang, alone: list[BatchPlacement]) -> Cost:
    """Return the fewest domains of any plan: of each group at least as many as its largest batch opens alone."""
    total = [0] * len(batched.capacity.tree.levels)
    for group in batched.groups:
        bound, least = group_bound(batched, group)
        for batch in group.batches:
            if alone[batch].proven:
                opened = tuple(n if c else 0 for n, c in zip(alone[batch].opened, group.counted, strict=True))
                bound = max(bound, opened)
        total = [a + b for a, b in zip(total, _raised(bound, least), strict=True)]
    return tuple(total)


def _raised(bound: Cost, least: Cost) -> Cost:
    """Return the lowest cost that is not below `bound`, level by level, and nowhere below `least`."""
    raised: list[int] = []
    for level, (one, other) in enumerate(zip(bound, least, strict=True)):
        raised.append(max(one, other) if raised == list(bound[:level]) else other)
    return tuple(raised)


def _batch_no_fit(capacity: HostCapacity, batch: PodBatch, level: int) -> NoFit:
    """Return the numbers of a batch that does not fit even alone; they name the first pod set that does not fit.

    A batch may hold equal pods of several pod sets; when each of them fits alone, no pod set is named.
    """
    grain = grains(batch.slices, len(capacity.tree.levels)) if batch.slices else None
    state = domain_sums(capacity.tree, batch.slots(capacity.free, _MOST_SLOTS), None, spread=False, grain=grain)
    most = int(state.slots[level].max(initial=0)) if level >= 0 else int(state.slots[0].sum())
    owners = Counter(pod_set for pod_set, _ in batch.ranks)
    large = next((owner for owner, count in sorted(owners.items()) if count > most), None)
    pod_set = large if len(owners) > 1 else next(iter(owners))
    answer = no_fit(state, level, lowest_fit(state, batch.count if pod_set is None else owners[pod_set]))
    return replace(answer, pod_set=pod_set)


def _no_joint_fit(capacity: HostCapacity, batched: BatchedGang) -> NoFit | None:
    """Return a quick proof that batches that fit each alone do not fit together, or None."""
    tree, free = capacity.tree, capacity.free
    if (shortage(tree, -1, batched.batches, free) > 0).any():
        return NoFit(-1, 1, -1, 0, 0, None, None)
    for shared in batched.shared_domains:
        members = [batched.batches[batch] for batch in sorted(shared.batches)]
        if len(members) > 1 and not fitting_domains(batched, shared.level, shared.batches, free).any():
            coarser = (up for up in range(shared.level - 1, -1, -1) if (shortage(tree, up, members, free) <= 0).any())
            best = int(shortage(tree, shared.level, members, free).argmin())
            return NoFit(shared.level, tree.size(shared.level), best, 0, 0, next(coarser, -1), None)
    return None


def _assign_ranks(
    tree: Tree, gang: GangPlanRequest, batched: BatchedGang, pods: tuple[Ints64, ...], *, proven: bool
) -> GangPlan:
    """Assign ranks to hosts, in tree order within every batch."""
    ranks = [np.full(one.count, -1, dtype=np.int64) for one in gang.pod_sets]
    for one, hosts in zip(gang.pod_sets, ranks, strict=True):
        for rank, host in one.kept.items():
            hosts[rank] = host
    for batch, placed in zip(batched.batches, pods, strict=True):
        hosts = np.repeat(np.arange(len(placed)), placed)
        for (pod_set, rank), host in zip(batch.ranks, hosts.tolist(), strict=True):
            ranks[pod_set][rank] = host
    assignments = []
    for hosts in ranks:
        filled, number = np.unique(hosts[hosts >= 0], return_counts=True)
        assignments.append(
            HostAssignment(tuple(zip(filled.tolist(), number.tolist(), strict=True)), tuple(hosts.tolist()))
        )
    used_hosts = np.unique(np.concatenate(ranks))
    used_hosts = used_hosts[used_hosts >= 0]
    used = tuple(len(np.unique(domains[used_hosts])) for domains in tree.domains)
    return GangPlan(tuple(assignments), used, proven)


# Number of divisions of a gang's minimum among its pod sets that are tried; with more of them, a no is not certain.
_MINIMUMS = 64
# Number of plans that are tried for pods that join slices of which some pods are kept.
_JOINS = 64


def plan_gang(
    tree: Tree,
    free: Ints64,
    gang: GangPlanRequest,
    scarce: Ints64 | None = None,
    scores: HostScores | None = None,
) -> GangPlan | NoFit | Undecided:
    """Place the pod sets of a gang on the hosts of `tree`, all or nothing.

    `free` is [host, resource]: the free amounts (negative: nothing), without the kept pods; `scarce` and `scores` as
    for `plan`. NoFit is certain; Undecided means that the search of a gang of different pods needs more than
    `gang.steps`. When fewer than all pods are enough to start, as many as fit are placed. Same arguments, same plan.
    Raises ValueError, which names the argument, for invalid arguments.
    """
    capacity = HostCapacity(tree, free, scarce, scores)
    check_gang(capacity, gang)
    found = _plan_gang(capacity, gang)
    if scores is None or not isinstance(found, GangPlan):
        return found
    # Another choice between equals may have led to more domains, or left room for fewer pods.
    plain = _plan_gang(replace(capacity, scores=None), gang)
    return found if not isinstance(plain, GangPlan) or _merit(found) <= _merit(plain) else plain


def _merit(found: GangPlan) -> tuple[int, tuple[int, ...]]:
    """Return a key that is lower for a plan of more pods, and of as many for one of fewer domains."""
    return -sum(pods for one in found.pod_sets for _, pods in one.hosts), found.domains_used


def _plan_gang(capacity: HostCapacity, gang: GangPlanRequest) -> GangPlan | NoFit | Undecided:
    tree = capacity.tree
    wanted = tuple(pods.count for pods in gang.pod_sets)
    if not tree.hosts:
        return NoFit(-1, 0, -1, 0, 0, None, 0 if len(wanted) == 1 else None)
    whole = assemble(capacity, gang, wanted)
    if isinstance(whole, GangPlan):
        return whole
    waiting = _without_lacking_parts(gang)
    if waiting is not gang:
        found = _plan_minimum(capacity, waiting, whole)
        if isinstance(found, GangPlan) and _is_enough(gang, found):
            return found
    return _plan_minimum(capacity, gang, whole)


def _plan_minimum(
    capacity: HostCapacity, gang: GangPlanRequest, whole: NoFit | Undecided
) -> GangPlan | NoFit | Undecided:
    """Return a plan of as many pods as fit, at least the minimum; `whole` is the answer for all of them."""
    wanted = tuple(pods.most for pods in gang.pod_sets)
    minimums = _min_counts(gang)
    if not _may_wait(gang) and all(low == count for low, count in zip(minimums, wanted, strict=True)):
        return whole
    needed, most = gang.min_count or 0, wanted
    if sum(minimums) < needed:
        bound = most_pods(capacity, gang, minimums)
        if bound.in_all < needed:  # however many divisions there are
            return whole if isinstance(whole, NoFit) else NoFit(-1, 1, -1, 0, 0, None, None)
        most = bound.of_sets
    certain, refused = isinstance(whole, NoFit), whole
    alone = len(gang.pod_sets) == 1
    for tried, counts in enumerate(_minimums(gang, most)):
        if tried == _MINIMUMS:
            return Undecided(gang.steps)
        answer = assemble(capacity, gang, counts)
        if isinstance(answer, GangPlan):
            return _grown(capacity, gang, counts, answer)
        certain &= isinstance(answer, NoFit)
        if tried == 0 and (grown := _grown_to_minimum(capacity, gang, counts)) is not None:
            return grown
        # What lacks is said of the only division: a pod set that starts with fewer need not fit whole.
        refused = whole if tried or alone else answer
    return refused if certain else Undecided(gang.steps)


def _grown_to_minimum(capacity: HostCapacity, gang: GangPlanRequest, even: tuple[int, ...]) -> GangPlan | None:
    """Return a plan of as many pods as fit beside the minimums of the pod sets, None if the gang needs more.

    It takes few plans, where the divisions that fit may be among the last of many.
    """
    minimums = tuple(_min_counts(gang))
    if minimums == even:
        return None
    core = assemble(capacity, gang, minimums)
    if not isinstance(core, GangPlan):
        return None
    grown = _grown(capacity, gang, minimums, core)
    return grown if -_merit(grown)[0] >= (gang.min_count or 0) else None


def _min_counts(gang: GangPlanRequest) -> list[int]:
    """Return the minimum number of pods of every set, in whole slices; at least the kept ones."""
    return [
        len(pods.kept)
        if low <= len(pods.kept) and not _lacking(pods) - pods.waiting
        else max(_whole(pods, low), len(pods.kept))
        for pods, low in zip(gang.pod_sets, _least(gang), strict=True)
    ]


def _lacking(pods: PodSetPlanRequest) -> frozenset[int]:
    """Return the ranks that slices with kept pods lack."""
    return frozenset(rank for parts in lacking_parts(pods) for part in parts for rank in part)


def _least(gang: GangPlanRequest) -> list[int]:
    """Return how many pods of every set must start together."""
    default = 0 if gang.min_count is not None else None
    lows = (pods.min_count if pods.min_count is not None else default for pods in gang.pod_sets)
    return [pods.most if low is None else min(low, pods.most) for low, pods in zip(lows, gang.pod_sets, strict=True)]


def _may_wait(gang: GangPlanRequest) -> bool:
    return any(pods.waiting for pods in gang.pod_sets)


def _without_lacking_parts(gang: GangPlanRequest) -> GangPlanRequest:
    """Return the gang in which all wait that slices with kept pods lack, where not all pods must start together.

    They join afterwards, part by part: that one slice cannot be completed keeps no pod from another one.
    """
    pod_sets = []
    for pods, low in zip(gang.pod_sets, _least(gang), strict=True):
        pod_sets.append(replace(pods, waiting=_lacking(pods)) if pods.ranked and low < pods.count else pods)
    waiting = replace(gang, pod_sets=tuple(pod_sets))
    if not _may_wait(waiting):
        return gang
    least = gang.min_count
    return replace(waiting, min_count=None if least is None else min(least, sum(pods.most for pods in pod_sets)))


def _is_enough(gang: GangPlanRequest, found: GangPlan) -> bool:
    """Return whether a plan has the minimum of every pod set and of the gang."""
    placed = [sum(pods for _, pods in one.hosts) for one in found.pod_sets]
    enough = all(number >= low for number, low in zip(placed, _least(gang), strict=True))
    return enough and sum(placed) >= (gang.min_count or 0)


def _size(pods: PodSetPlanRequest) -> int:
    return pods.slices[0].size if pods.slices else 1


def _whole(pods: PodSetPlanRequest, number: int) -> int:
    return min(pods.most, -(-number // _size(pods)) * _size(pods))


def _minimums(gang: GangPlanRequest, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the smallest numbers of pods per pod set that are enough to start, the most even shares first.

    After these no pod set has more than `most` pods.
    """
    minimums = _min_counts(gang)
    needed = gang.min_count or 0
    if sum(minimums) >= needed:
        yield tuple(minimums)
        return
    counts = [pods.most for pods in gang.pod_sets]
    share = (needed - sum(minimums)) / (sum(counts) - sum(minimums))
    even = [
        _whole(pods, math.floor(n + share * (pods.most - n))) for n, pods in zip(minimums, gang.pod_sets, strict=True)
    ]
    even = [max(n, m) for n, m in zip(even, minimums, strict=True)]
    for i, pods in enumerate(gang.pod_sets):
        missing = max(needed - sum(even), 0)
        even[i] = _whole(pods, even[i] + missing)
    first = tuple(even)
    yield first
    ranges = [range(n, limit + 1, _size(pods)) for n, limit, pods in zip(minimums, most, gang.pod_sets, strict=True)]
    yield from (numbers for numbers in divisions(ranges, needed) if numbers != first)


def _grown(capacity: HostCapacity, gang: GangPlanRequest, counts: tuple[int, ...], core: GangPlan) -> GangPlan:
    """Return the plan with as many more pods as fit, one pod set after the other."""
    best = core
    alone = len(gang.pod_sets) == 1
    if _may_wait(gang):
        gang, capacity, best = _joined(capacity, gang, core)
        counts = tuple(max(count, len(pods.kept)) for count, pods in zip(counts, gang.pod_sets, strict=True))
    for i, pods in enumerate(gang.pod_sets):
        base, left = (gang, capacity) if alone else _keep_placed(capacity, gang, best)
        low, high = counts[i], pods.most
        while low < high:
            middle = min(high, low + _whole(pods, (high - low + 1) // 2))
            answer = assemble(left, base, (*counts[:i], middle, *counts[i + 1 :]))
            if isinstance(answer, GangPlan):
                low = middle
                # Pods that join one pod set after the other may open more domains than all at once would.
                best = answer if alone else replace(answer, proven=False)
            else:
                high = (middle - 1) // _size(pods) * _size(pods)
        counts = (*counts[:i], low, *counts[i + 1 :])
    return best


def _joined(
    capacity: HostCapacity, gang: GangPlanRequest, core: GangPlan
) -> tuple[GangPlanRequest, HostCapacity, GangPlan]:
    """Return the plan with those that wait and fit, the gang in which all these are kept, and the remaining capacity.

    Of each slice all that it lacks at once, or else one part after the other.
    """
    best, tries = core, _JOINS
    gang, capacity = _keep_placed(capacity, gang, core)
    lacking = [(i, parts) for i, pods in enumerate(gang.pod_sets) if pods.waiting for parts in lacking_parts(pods)]
    for i, parts in lacking:
        every = tuple(rank for part in parts for rank in part)
        for ranks in (every, *parts) if len(parts) > 1 else (every,):
            if not tries:
                return gang, capacity, best
            tries -= 1
            pods = replace(gang.pod_sets[i], waiting=gang.pod_sets[i].waiting.difference(ranks))
            trial = replace(gang, pod_sets=(*gang.pod_sets[:i], pods, *gang.pod_sets[i + 1 :]))
            answer = assemble(capacity, trial, [len(one.kept) for one in trial.pod_sets])
            if isinstance(answer, GangPlan):
                best = replace(answer, proven=False)
                gang, capacity = _keep_placed(capacity, trial, answer)
                if ranks is every:
                    break
    return gang, capacity, best


def _keep_placed(capacity: HostCapacity, gang: GangPlanRequest, plan: GangPlan) -> tuple[GangPlanRequest, HostCapacity]:
    """Return the gang with all placed pods kept, and the remaining capacity."""
    left = capacity.free.copy()
    pod_sets = []
    for pods, assignment in zip(gang.pod_sets, plan.pod_sets, strict=True):
        kept = {rank: host for rank, host in enumerate(assignment.ranks) if host >= 0}
        for rank, host in kept.items():
            if rank not in pods.kept:
                left[host] -= np.array(pods.requests, dtype=np.int64)
        pod_sets.append(replace(pods, kept=kept))
    return replace(gang, pod_sets=tuple(pod_sets)), replace(capacity, free=left)
