"""Plans one pod set: the planner's entry point, and slot sums that are kept between decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from engine.planner.bounds import candidates, lowest_fit, most_even
from engine.planner.cover import cover, cover_of, fewest, fewest_of
from engine.planner.descent import TIGHTEST, Choice, Shares, choice, choose, descend_evenly, divide_within, even_hosts
from engine.planner.search import fewest_domains
from engine.planner.slices import Slices, check_slices, grains, shares, unit_of
from engine.planner.sums import DomainSums, HostScores, domain_sums, slot_sums
from engine.planner.tree import Ints64, Tree

_MOST_PODS = (1 << 31) - 1

Profile = Literal["pack", "spread", "balanced"]
PROFILES: tuple[str, ...] = get_args(Profile)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A gang of `count` equal pods.

    `require` and `prefer` are level indices: all pods in one domain of `require`, as few domains as possible down to
    `prefer`; with neither, as few hosts as possible, or with slices as few domains as possible. `slices` from coarse to
    fine; their sizes divide each other and the count. `profile` breaks ties: "pack" takes the fullest domain that is
    enough, "spread" the emptiest; "balanced" divides the pods as evenly as possible. `steps` bounds the exact search,
    in pairs of partial placements (200,000 take some 0.1 s).
    """

    count: int
    require: int | None = None
    prefer: int | None = None
    profile: str = "pack"
    steps: int = 200_000
    slices: tuple[Slices, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The gang fits: (host index, pods) ascending, so ranks assigned in this order follow the tree.

    `domains_used` counts the touched domains of every level, host last. `proven`: no plan uses fewer, compared level by
    level from the coarsest down (for an unconstrained gang: no plan uses fewer hosts). A balanced gang: no plan uses
    fewer domains down to the preferred level, or to the one that divides the gang, or has more even shares there;
    below, each domain divides its share in the same way.
    """

    hosts: tuple[tuple[int, int], ...]
    domains_used: tuple[int, ...]
    proven: bool


@dataclass(frozen=True, slots=True)
class NoFit:
    """The gang does not fit, with the numbers of the explanation.

    `level`: one domain of it had to hold the gang (-1: the whole topology); `domains`: how many it has; `best`: the one
    with most slots (-1: none has any, or the level is -1); `best_slots`: its slots; `total_slots`: those of the whole
    topology; `fits_level`: the nearest coarser level with a domain that is big enough (-1: the whole topology; None:
    nowhere). `pod_set`: index of a pod set that does not fit even alone, None when each fits but not all together:
    their slots differ, so `best_slots` and `total_slots` are 0 then.
    """

    level: int
    domains: int
    best: int
    best_slots: int
    total_slots: int
    fits_level: int | None
    pod_set: int | None = 0


def plan(
    tree: Tree,
    slots: Ints64,
    request: PlanRequest,
    scarce: Ints64 | None = None,
    scores: HostScores | None = None,
) -> Plan | NoFit:
    """Place a gang on the hosts of `tree`; `slots[i]` of its pods fit on host i (negative: none).

    `scarce` is each host's free amount of the scarce resource (GPUs), which breaks ties together with the slots
    (`DomainSums.preference`); without it the slots are used. `scores` decide between hosts and domains that are equally
    good then, and never cost a domain. Feasibility is exact. Same arguments, same plan. Raises ValueError, which names
    the argument, for invalid arguments.
    """
    check(tree, request, slots=slots, scarce=scarce)
    return plan_on(domain_sums(tree, slots, scarce, spread=request.profile == "spread"), request, scores)


def plan_on(state: DomainSums, request: PlanRequest, scores: HostScores | None = None) -> Plan | NoFit:
    """Place a gang on existing sums (`SlotIndex` keeps them); the request has been checked."""
    if scores is None:
        return _plan_on(state, request)
    found = _plan_on(state.scored(scores, request.count), request)
    if isinstance(found, NoFit) or _certain(found, request):
        return found
    # Another choice between equals may have led to more domains where their number is not proven.
    plain = _plan_on(state, request)
    return found if isinstance(plain, NoFit) or found.domains_used <= plain.domains_used else plain


def _certain(found: Plan, request: PlanRequest) -> bool:
    """Return whether no plan uses fewer domains of any level, compared from the coarsest down."""
    levelled = request.require is not None or request.prefer is not None or bool(request.slices)
    return found.proven and request.profile != "balanced" and levelled


def _plan_on(state: DomainSums, request: PlanRequest) -> Plan | NoFit:
    tree = state.tree
    if request.slices and state.grain is None:
        # The kept sums cannot be used: a slice is lost where it fits into no single domain.
        grain = grains(request.slices, len(tree.levels))
        state = domain_sums(tree, state.slots[-1], state.scarce, spread=state.spread, grain=grain).scored(
            state.scores, state.count
        )
    level = lowest_fit(state, request.count)
    require = -1 if request.require is None else request.require
    if level is None or level < require:
        return no_fit(state, require, level)
    if level == len(tree.levels) - 1:
        return _as_plan(state, one_host(state, request.count), request.count, proven=True)
    levelled = request.require is not None or request.prefer is not None or bool(request.slices)
    if request.profile == "balanced":
        (hosts, pods), proven = even_plan(
            state, level, request.count, levelled=levelled, prefer=request.prefer, steps=request.steps
        )
        return Plan(tuple(zip(hosts.tolist(), pods.tolist(), strict=True)), choice(state, hosts).used, proven)
    if not levelled:
        return _as_plan(state, fewest_hosts(state, level, request.count), request.count, proven=True)
    ordered = candidates(state, level, request.count)
    best, proven = fewest_domains(state, level, ordered, request.count, request.steps)
    return _as_plan(state, best, request.count, proven=proven)


def lowest_level(tree: Tree, slots: Ints64, count: int, slices: tuple[Slices, ...] = ()) -> int | None:
    """Return the finest level with a domain of at least `count` slots (in whole slices), or None."""
    check(tree, PlanRequest(count, slices=slices), slots=slots)
    grain = grains(slices, len(tree.levels)) if slices else None
    level = lowest_fit(domain_sums(tree, slots, None, spread=False, grain=grain), count)
    return None if level == -1 else level


def domain_slots(tree: Tree, slots: Ints64, level: int, slices: tuple[Slices, ...] = ()) -> Ints64:
    """Return the slots of every domain of a level that whole slices can use (-1: the whole topology as one)."""
    grain = grains(slices, len(tree.levels)) if slices else None
    state = domain_sums(tree, slots, None, spread=False, grain=grain)
    return state.slots[level] if level >= 0 else state.slots[0].sum(keepdims=True)


def most_slots(tree: Tree, slots: Ints64, slices: tuple[Slices, ...] = ()) -> tuple[tuple[int, int], ...]:
    """Return the first domain with the most slots that whole slices can use, and these slots, for every level."""
    grain = grains(slices, len(tree.levels)) if slices else None
    sums = domain_sums(tree, slots, None, spread=False, grain=grain).slots
    best = [int(at_level.argmax()) for at_level in sums] if len(slots) else []
    return tuple((domain, int(at_level[domain])) for domain, at_level in zip(best, sums, strict=False))


def one_host(state: DomainSums, count: int) -> Choice:
    """Return the best-fit host for a gang that fits on one: ties go by its scarce amount, then by its rack."""
    host = len(state.slots) - 1
    return choice(state, np.array([state.best(host, state.hosts_with(count))]))


def fewest_hosts(state: DomainSums, lowest: int, count: int) -> Choice:
    """Return the fewest hosts, in the smallest domain that needs no more."""
    host = len(state.slots) - 1
    slots = state.slots[host]
    least, useful = cover(slots, count) if state.tally is None else cover_of(state.tally, count)
    for level in range(lowest, -1, -1):
        domain = _with_fewest(state, level, count, least)
        if domain is not None:
            pool = np.arange(*state.tree.range(level, domain), dtype=np.int64)
            break
    else:
        pool = np.flatnonzero(slots >= useful)
    return choice(state, np.sort(choose(state, host, pool, count, TIGHTEST)))


def even_plan(
    state: DomainSums, lowest: int, count: int, *, levelled: bool, prefer: int | None, steps: int
) -> tuple[Shares, bool]:
    """Return hosts (ascending) and their pods, as even as possible, and whether no plan is better (`Plan.proven`).

    `lowest` is the finest level that fits the gang. `levelled`: levels count, those down to `prefer` before even
    shares; else the fewest hosts count alone, in the smallest domain that allows the most even shares among them.
    """
    if not levelled:
        return _even_on_fewest_hosts(state, lowest, count), True
    domain = most_even(state, lowest, count)
    if prefer is None or prefer <= lowest + 1:
        # The level that divides the gang is the only one with a number of domains that even shares could raise.
        return _divided(state, lowest, domain, count), True
    best, proven = fewest_domains(state, lowest, candidates(state, lowest, count), count, steps)
    within = divide_within(state, lowest, domain, count, best.used[lowest + 2])
    if within is not None:
        (domains, pods), even = within
        free = descend_evenly(state, lowest + 1, domains, pods)
        if choice(state, free[0]).used[: prefer + 1] == best.used[: prefer + 1]:
            return free, even and proven
    among = _even_among(state, lowest, best, count, prefer)
    shares = _shares_at(state, lowest + 1, among)
    return among, proven and shares[-1] - shares[0] <= unit_of(state.grain, lowest + 1)


def _divided(state: DomainSums, lowest: int, domain: int, count: int) -> Shares:
    return descend_evenly(state, lowest, np.array([domain], dtype=np.int64), np.array([count], dtype=np.int64))


def _shares_at(state: DomainSums, level: int, placed: Shares) -> list[int]:
    """Return the pods of each domain of the level that has any, ascending."""
    hosts, pods = placed
    held = np.bincount(state.tree.domains[level][hosts], weights=pods)
    return sorted(int(number) for number in held[held > 0])


def _even_among(state: DomainSums, lowest: int, best: Choice, count: int, prefer: int) -> Shares:
    """Divide the pods among the domains of level `prefer` that hold these hosts, as evenly as these allow."""
    tree = state.tree
    open_ = np.zeros(tree.size(prefer), dtype=np.bool_)
    open_[tree.domains[prefer][best.hosts]] = True
    slots = np.where(open_[tree.domains[prefer]], state.slots[-1], 0)
    some = domain_sums(tree, slots, state.scarce, spread=False, grain=state.grain).scored(state.scores, count)
    return _divided(some, lowest, most_even(some, lowest, count), count)


def _even_on_fewest_hosts(state: DomainSums, lowest: int, count: int) -> Shares:
    host = len(state.slots) - 1
    least = cover(state.slots[host], count)[0] if state.tally is None else cover_of(state.tally, count)[0]
    whole, number = np.zeros(1, dtype=np.int64), np.array([count], dtype=np.int64)
    near: Shares | None = None
    for level in range(lowest, -1, -1):
        domain = _with_fewest(state, level, count, least)
        if domain is not None:
            near = even_hosts(state, level, np.array([domain], dtype=np.int64), number)
            if int(near[1].max()) - int(near[1].min()) <= 1:
                return near
            break
    far = even_hosts(state, -1, whole, number)
    return far if near is None or sorted(far[1].tolist()) > sorted(near[1].tolist()) else near


def _with_fewest(state: DomainSums, level: int, count: int, least: int) -> int | None:
    """Return the first domain of the level by the pack key among those that need only `least` hosts."""
    host = len(state.slots) - 1
    fitting = np.flatnonzero(state.slots[level] >= count)
    if not len(fitting):
        return None
    likely = state.best(level, fitting)
    start, end = state.tree.range(level, likely)
    if fewest_of(state.slots[host][start:end], count) == least:
        return likely
    pool, starts = state.tree.descendants(level, fitting, host)
    fitting = fitting[fewest(state.slots[host][pool], starts, count) == least]
    return state.best(level, fitting) if len(fitting) else None


def _as_plan(state: DomainSums, best: Choice, count: int, *, proven: bool) -> Plan:
    """Fill the hosts in tree order; the last one may stay partly free."""
    if state.grain is not None:
        filled = fill(state, best.hosts, count)
        return Plan(filled, choice(state, np.array([host for host, _ in filled])).used, proven)
    # Each of the fewest hosts is needed, so the surplus comes off the last one and leaves it at least one pod.
    pods = state.slots[-1][best.hosts].tolist()
    last = -1 if state.scores is None else _least_preferred(state.scores, best.hosts)
    pods[last] -= sum(pods) - count
    assert pods[last] > 0, "the chosen hosts hold the gang, and all of them are needed"
    return Plan(tuple(zip(best.hosts.tolist(), pods, strict=True)), best.used, proven)


def _least_preferred(scores: HostScores, hosts: Ints64) -> int:
    """Return the place of the host with the lowest score, of equals the last."""
    return len(hosts) - 1 - int(scores.values[hosts][::-1].argmin())


def fill(state: DomainSums, hosts: Ints64, count: int) -> tuple[tuple[int, int], ...]:
    """Return the pods per host (ascending) when these hosts are filled in tree order, by whole slices if any."""
    there = state.slots[-1][hosts]
    if state.grain is None:  # as `shares`, which passes over every host of the tree
        got: Ints64 = np.clip(count - (np.cumsum(there) - there), 0, there)
    else:
        open_: Ints64 = np.zeros_like(state.slots[-1])
        open_[hosts] = there
        got = shares(state.tree, open_, state.grain, finest=len(state.slots) - 1, count=count)[hosts]
    assert int(got.sum()) == count, "the chosen hosts hold the gang"
    filled = np.flatnonzero(got)
    return tuple(zip(hosts[filled].tolist(), got[filled].tolist(), strict=True))


def no_fit(state: DomainSums, require: int, lowest: int | None) -> NoFit:
    """Return the numbers of a gang that no domain of level `require` holds; `lowest`: the finest level that fits it."""
    total = int(state.slots[0].sum())
    if require < 0:
        return NoFit(-1, 1 if state.tree.hosts else 0, -1, total, total, lowest)
    at_level = state.slots[require]
    best = int(at_level.argmax()) if len(at_level) else -1
    most = int(at_level[best]) if best >= 0 else 0
    return NoFit(require, len(at_level), best if most else -1, most, total, lowest)


def check(tree: Tree, request: PlanRequest, *, slots: Ints64 | None = None, scarce: Ints64 | None = None) -> None:
    """Raise ValueError, naming the argument, for a request or arrays that are invalid on this tree."""
    if not 1 <= request.count <= _MOST_PODS:
        raise ValueError(f"count: {request.count} is not between 1 and {_MOST_PODS}")
    for name, level in (("require", request.require), ("prefer", request.prefer)):
        if level is not None and not 0 <= level < len(tree.levels):
            raise ValueError(f"{name}: no level {level}; the topology has {len(tree.levels)}")
    if request.profile not in PROFILES:
        raise ValueError(f"profile: {request.profile!r} is none of {', '.join(PROFILES)}")
    if request.steps < 0:
        raise ValueError(f"steps: {request.steps} is negative")
    check_slices(request.slices, len(tree.levels), request.count)
    for name, array in (("slots", slots), ("scarce", scarce)):
        if array is None:
            continue
        if array.shape != (len(tree.hosts),):
            raise ValueError(f"{name}: shape {array.shape} for {len(tree.hosts)} hosts")
        if not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"{name}: {array.dtype} is not an integer type")


_MOST_SLOTS = (1 << 31) - 1


class SlotIndex:
    """Free slots and the free scarce resource per host of `tree`, with their sums per domain.

    16 bytes per host and as many per domain. After any history of `set` the answers are those of `plan` on the same
    numbers (property test). Not thread-safe.
    """

    def __init__(self, tree: Tree, slots: Ints64, scarce: Ints64 | None = None) -> None:
        check(tree, PlanRequest(1), slots=slots, scarce=scarce)
        rare = slots if scarce is None else scarce
        # Copies: the arrays are written to.
        state = domain_sums(tree, np.array(slots, dtype=np.int64), np.array(rare, dtype=np.int64), spread=False)
        levels = range(len(tree.levels))
        self._tree = tree
        self._pack = state
        self._spread = DomainSums(tree, state.slots, state.scarce, True)
        self._sums = tuple((tree.domains[level], state.slots[level], state.scarce_of(level)) for level in levels)
        for level in levels:
            self._spread.share_scarce(level, state.scarce_of(level))

    @property
    def slots(self) -> Ints64:
        """The free slots per host, never below 0; do not write to it."""
        return self._pack.slots[-1]

    def set(self, host: int, slots: int, scarce: int | None = None) -> None:
        """Set the free slots of one host (an index), and its free scarce resource (None: as the slots)."""
        _, free, rare = self._sums[-1]
        after, before = min(max(slots, 0), _MOST_SLOTS), int(free[host])
        more = after - before
        if more:
            self._count(after, before)
        richer = max(slots if scarce is None else scarce, 0) - int(rare[host])
        for domains, sums, scarce_sums in self._sums:
            domain = domains[host]
            if more:
                sums[domain] += more
            if richer:
                scarce_sums[domain] += richer

    def _count(self, after: int, before: int) -> None:
        """Move a host in the tally from `before` slots to `after`."""
        tally = self._pack.tally
        if tally is None:
            # Not before the first change: a shape that is requested once needs no tally.
            values, hosts = np.unique(self._pack.slots[-1], return_counts=True)
            tally = dict(zip(values.tolist(), hosts.tolist(), strict=True))
            self._pack.tally = self._spread.tally = tally
        tally[after] = tally.get(after, 0) + 1
        tally[before] -= 1
        if not tally[before]:
            del tally[before]

    def plan(self, request: PlanRequest, scores: HostScores | None = None) -> Plan | NoFit:
        """Return the answer of `plan` for the current numbers."""
        check(self._tree, request)
        return plan_on(self._spread if request.profile == "spread" else self._pack, request, scores)

    def plan_on_slots(self, slots: Ints64, request: PlanRequest, scores: HostScores | None = None) -> Plan | NoFit:
        """Return the answer of `plan` for other free slots per host, and the current scarce resource.

        The scarce resource is not summed up again, which is half of the time of `plan` on 10,000 hosts.
        """
        check(self._tree, request, slots=slots)
        sums = slot_sums(self._tree, slots)
        state = DomainSums(self._tree, sums, self._pack.scarce, request.profile == "spread")
        for level, (_, _, scarce) in enumerate(self._sums):
            state.share_scarce(level, scarce)
        return plan_on(state, request, scores)
