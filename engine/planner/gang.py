"""The planner's request for a gang of several pod sets, its answers, and how its minimum can be divided among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.planner.plan import PROFILES
from engine.planner.slices import Slices, check_slices
from engine.planner.sums import HostScores
from engine.planner.tree import Bools, Ints64, Tree

_MOST_PODS = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class HostCapacity:
    """The hosts of `tree` with their `free` resources, [host, resource] (negative: nothing).

    `scarce` is each host's free amount of the scarce resource, as for `plan`; None: slots are used instead. `scores` as
    for `plan`, those of all pods together.
    """

    tree: Tree
    free: Ints64
    scarce: Ints64 | None = None
    scores: HostScores | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PodSetPlanRequest:
    """`count` equal pods, their ranks 0 .. count - 1.

    requests   amount of each resource that one pod requests, in the order of the columns of `free`
    eligible   per host, whether it may take such a pod (None: all may); False for hosts excluded this time
    require    level (index): one domain of it holds all pods; prefer: as few domains as possible down to it
    slices     coarse to fine; sizes divide each other and the count
    colocate   pod sets of the same value share one domain of the required level; all of them name it or none
    min_count  how many pods must start together (None: all, or as the gang's `min_count`)
    per_host   maximum number of pods on one host (1: exclusive)
    remnant    the sizes of slices need not divide the count: the last slices are smaller
    kept       rank -> host of the pods that stay where they are; `free` does not include them
    ranked     whether pods have ranks; if not, all slices with kept pods are completed, or nothing is placed
    waiting    ranks of slices with kept pods that get no host this time
    """

    count: int
    requests: tuple[int, ...]
    eligible: Bools | None = None
    require: int | None = None
    prefer: int | None = None
    slices: tuple[Slices, ...] = ()
    colocate: str | None = None
    min_count: int | None = None
    per_host: int | None = None
    remnant: bool = False
    kept: Mapping[int, int] = field(default_factory=dict)
    ranked: bool = True
    waiting: frozenset[int] = frozenset()

    @property
    def most(self) -> int:
        """The number of pods that may have a host."""
        return self.count - len(self.waiting)


@dataclass(frozen=True, slots=True, eq=False)
class GangPlanRequest:
    """The pod sets that start all or nothing.

    `require` and `prefer` hold for all pods together; `min_count` pods are enough to start (None: all of them, or as
    each pod set's `min_count`). `profile` and `steps` as for `PlanRequest`.
    """

    pod_sets: tuple[PodSetPlanRequest, ...]
    require: int | None = None
    prefer: int | None = None
    min_count: int | None = None
    profile: str = "pack"
    steps: int = 200_000


@dataclass(frozen=True, slots=True)
class HostAssignment:
    """The hosts of one pod set: `hosts` (host index, pods) ascending, `ranks[r]` the host of rank r.

    -1: a rank beyond the minimum that does not fit near the gang.
    """

    hosts: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GangPlan:
    """The gang fits: one `HostAssignment` per pod set, kept pods included.

    `domains_used` counts the domains of each level that the whole gang touches. `proven`: no plan opens fewer domains,
    compared level by level from the coarsest down; pod sets count together where they share a domain or the gang has
    a level of its own, else separately; domains of kept pods are open already. A balanced gang: as for `Plan`, and only
    where its pods are alike.
    """

    pod_sets: tuple[HostAssignment, ...]
    domains_used: tuple[int, ...]
    proven: bool


@dataclass(frozen=True, slots=True)
class Undecided:
    """Neither a plan nor a proof that there is none was found within `steps`."""

    steps: int


def check_gang(capacity: HostCapacity, gang: GangPlanRequest) -> None:
    """Raise ValueError, naming the argument, for a gang or arrays that are invalid on this tree."""
    free, scarce = capacity.free, capacity.scarce
    hosts, levels = len(capacity.tree.hosts), len(capacity.tree.levels)
    if free.ndim != 2 or free.shape[0] != hosts:  # noqa: PLR2004
        raise ValueError(f"free: shape {free.shape} for {hosts} hosts")
    if not np.issubdtype(free.dtype, np.integer):
        raise ValueError(f"free: {free.dtype} is not an integer type")
    if scarce is not None and (scarce.shape != (hosts,) or not np.issubdtype(scarce.dtype, np.integer)):
        raise ValueError(f"scarce: shape {scarce.shape} of {scarce.dtype} for {hosts} hosts")
    if not gang.pod_sets:
        raise ValueError("pod_sets: a gang has at least one")
    if gang.profile not in PROFILES:
        raise ValueError(f"profile: {gang.profile!r} is none of {', '.join(PROFILES)}")
    if gang.steps < 0:
        raise ValueError(f"steps: {gang.steps} is negative")
    _check_levels(gang.require, gang.prefer, levels)
    total = sum(pods.count for pods in gang.pod_sets)
    if total > _MOST_PODS:
        raise ValueError(f"count: {total} pods are more than {_MOST_PODS}")
    if gang.min_count is not None and not 1 <= gang.min_count <= total:
        raise ValueError(f"min_count: {gang.min_count} is not between 1 and {total}")
    for pods in gang.pod_sets:
        _check_pod_set(pods, hosts, levels, free.shape[1])
    _check_colocated(gang.pod_sets)


def _check_pod_set(pods: PodSetPlanRequest, hosts: int, levels: int, resources: int) -> None:
    if not 1 <= pods.count <= _MOST_PODS:
        raise ValueError(f"count: {pods.count} is not between 1 and {_MOST_PODS}")
    if len(pods.requests) != resources:
        raise ValueError(f"requests: {len(pods.requests)} amounts for {resources} resources")
    if min(pods.requests, default=0) < 0:
        raise ValueError(f"requests: {min(pods.requests)} is negative")
    if pods.eligible is not None and (pods.eligible.shape != (hosts,) or pods.eligible.dtype != np.bool_):
        raise ValueError(f"eligible: shape {pods.eligible.shape} of {pods.eligible.dtype} for {hosts} hosts")
    _check_levels(pods.require, pods.prefer, levels)
    check_slices(pods.slices, levels, None if pods.remnant else pods.count)
    if pods.min_count is not None and not 0 <= pods.min_count <= pods.count:
        raise ValueError(f"min_count: {pods.min_count} is not between 0 and {pods.count}")
    if pods.per_host is not None and pods.per_host < 1:
        raise ValueError(f"per_host: {pods.per_host} is less than 1")
    for rank, host in pods.kept.items():
        if not (0 <= rank < pods.count and 0 <= host < hosts):
            raise ValueError(f"kept: rank {rank} on host {host}, of {pods.count} ranks and {hosts} hosts")


def _check_levels(require: int | None, prefer: int | None, levels: int) -> None:
    for name, level in (("require", require), ("prefer", prefer)):
        if level is not None and not 0 <= level < levels:
            raise ValueError(f"{name}: no level {level}; the topology has {levels}")


def _check_colocated(pod_sets: tuple[PodSetPlanRequest, ...]) -> None:
    named: dict[str, int] = {}
    for pods in pod_sets:
        if pods.colocate is not None and pods.require is not None:
            level = named.setdefault(pods.colocate, pods.require)
            if level != pods.require:
                raise ValueError(f"colocate: {pods.colocate!r} with required levels {level} and {pods.require}")


def divisions(ranges: Sequence[range], needed: int) -> Iterator[tuple[int, ...]]:
    """Yield in ascending order one number of each range (steps are positive), together at least `needed`.

    No number could be one step lower: it would be below its range, or the sum below `needed`. What the last ranges can
    still add is known before the first number is chosen, so no choice is a dead end, however many there are.
    """
    reachable = [1]
    for numbers in reversed(ranges):
        reachable.append(_sums(reachable[-1], numbers))
    reachable.reverse()
    missing = needed - sum(numbers.start for numbers in ranges)
    most = reachable[0].bit_length() - 1
    if missing > most:
        return
    chosen: list[int] = []
    open_choices = [_choices(ranges[0], reachable[1], missing, most - missing + 1)]
    while open_choices:
        del chosen[len(open_choices) - 1 :]
        choice = next(open_choices[-1], None)
        if choice is None:
            open_choices.pop()
            continue
        number, missing, spare = choice
        chosen.append(number)
        at = len(chosen)
        if at == len(ranges):
            yield tuple(chosen)
        else:
            open_choices.append(_choices(ranges[at], reachable[at + 1], missing, spare))


def _sums(sums: int, numbers: range) -> int:
    """Return what a range and the later ones add to their starts: bit n is set where they can add n together."""
    covered = 1
    while covered < len(numbers):
        more = min(covered, len(numbers) - covered)
        sums |= sums << more * numbers.step
        covered += more
    return sums


def _choices(numbers: range, later: int, missing: int, spare: int) -> Iterator[tuple[int, int, int]]:
    """Yield the numbers with which the later ranges can complete the division, with `missing` and `spare` after them.

    `missing`: pods that are needed beyond the starts of this and the later ranges. The sum of all numbers is to be less
    than `spare` beyond what is needed, or one of the numbers so far could be lower.
    """
    step = numbers.step
    first = max(0, -(-(missing - later.bit_length() + 1) // step))
    last = max(0, (missing + step - 1) // step)
    for number in numbers[first : last + 1]:
        left = missing - (number - numbers.start)
        most = min(spare, step) if number > numbers.start else spare
        if _can_add(later, left, left + most):
            yield number, left, most


def _can_add(sums: int, least: int, below: int) -> bool:
    """Return whether one of `sums` is in range(least, below)."""
    return below > 0 and bool(sums >> max(0, least) & (1 << below - max(0, least)) - 1)
