"""Topogate's moves: the product's own search of the fewest gangs that restart elsewhere so that a waiting one fits.

The plans are those of `engine.preemption.moves`, on the GPUs of the simulation: the waiting gang first, then every
moved one beside it, the largest first; one that finds no place goes first then. A moved gang that prefers a level uses
no more domains of it than before. Another place is tried for the waiting gang where the moved ones find none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.preemption.rules.running import Preemption, Running, without
from bench.placement.rules import ours
from engine.preemption.move_search import MoveCost, NoPlace, NoRoom, OutOfPlansError, SlotNeed, choose_moves
from engine.preemption.moves import MAX_PLANS, MoveLimits

_MOST_PLACES = 3  # of the waiting gang, for one set of moved gangs, as in `engine.preemption.moves`

_Moved = tuple[Placement, dict[int, Placement]]


def move(
    cluster: Cluster, job: Job, running: Mapping[int, Running], now: float, *, young_for: float = math.inf
) -> Preemption | None:
    """The gangs that restart elsewhere for a waiting one, and where; of those that run for less than `young_for`."""
    if cluster.free.sum() < job.size:
        return None  # moves free nothing
    movable = {f"{one.job.number:09}": one for one in running.values() if now - one.since < young_for}
    search = _Moves(cluster, job, movable)
    costs = [MoveCost(key, one.job.pods, (now - one.since) * one.job.pods) for key, one in movable.items()]
    need = need_of(cluster, job, movable)
    found = choose_moves(costs, need, search.attempt, most_gangs=MoveLimits().gangs)
    if found is None:
        return None
    placement, moved = found.plan
    return Preemption(placement, {number: running[number].placement for number in moved}, moved)


def need_of(cluster: Cluster, job: Job, others: Mapping[str, Running]) -> SlotNeed:
    """The slots that a job lacks in each domain that could hold it, and where it gains some without which gang."""
    level = job.level if job.required and job.level is not None else None
    empty, free = cluster.gpus // job.gpus, cluster.free // job.gpus
    domains = np.zeros(len(empty), dtype=np.int64) if level is None else cluster.tree.domains[level]
    total, now = (np.bincount(domains, slots).astype(np.int64) for slots in (empty, free))
    possible = np.flatnonzero(total >= job.pods).tolist()
    gain, domain_of, may = (empty - free).tolist(), domains.tolist(), set(possible)
    gains: dict[int, dict[str, dict[int, int]]] = {}
    for key, other in others.items():
        for host, _ in other.placement:
            domain = domain_of[host]
            if gain[host] and domain in may:
                gains.setdefault(domain, {}).setdefault(key, {})[host] = gain[host]
    return SlotNeed(job.pods, {domain: int(now[domain]) for domain in possible}, gains)


class _Moves:
    """The attempts of one search."""

    def __init__(self, cluster: Cluster, job: Job, movable: Mapping[str, Running]) -> None:
        self._cluster = cluster
        self._job = job
        self._movable = movable
        self._plans = MAX_PLANS

    def attempt(self, keys: tuple[str, ...]) -> _Moved | NoRoom | NoPlace:
        """Plan the waiting gang without these, and then each of them beside it."""
        moved = sorted((self._movable[key] for key in keys), key=lambda one: (-one.job.pods, one.job.number))
        left = without(self._cluster, moved)
        stuck: NoRoom | NoPlace = NoRoom()
        out: set[int] = set()
        for _ in range(_MOST_PLACES):
            placement = self._place(left, self._job, out)
            if placement is None:
                return stuck
            beside = without(left, ())
            beside.take(self._job, placement)
            answer = self._beside(beside, moved)
            if not isinstance(answer, NoPlace):
                return placement, answer
            stuck = answer
            out |= self._hosts(placement)
        return stuck

    def _beside(self, beside: Cluster, moved: Sequence[Running]) -> dict[int, Placement] | NoPlace:
        order, went_first = list(moved), set[int]()
        while True:
            left, done = without(beside, ()), dict[int, Placement]()
            for one in order:
                placement = self._place(left, one.job, ())
                if placement is None or not _as_close(left, one, placement):
                    break
                left.take(one.job, placement)
                done[one.job.number] = placement
            else:
                return done
            if one is order[0] or one.job.number in went_first:
                others = {key: other for key, other in self._movable.items() if other not in moved}
                return NoPlace(need_of(left, one.job, others))
            went_first.add(one.job.number)
            order.remove(one)
            order.insert(0, one)

    def _place(self, left: Cluster, job: Job, out: Collection[int]) -> Placement | None:
        if not self._plans:
            raise OutOfPlansError
        self._plans -= 1
        if out:
            left = without(left, ())
            left.free[list(out)] = 0
        return ours.place(left, job) if left.fits(job) else None

    def _hosts(self, placement: Placement) -> set[int]:
        """The hosts of the domain that takes the gang; its own where no domain has to."""
        if not self._job.required or self._job.level is None:
            return {host for host, _ in placement}
        level, tree = self._job.level, self._cluster.tree
        return set(range(*tree.range(level, int(tree.domains[level][placement[0][0]]))))


def _as_close(cluster: Cluster, one: Running, placement: Placement) -> bool:
    """Whether a gang that prefers a level uses no more domains than now, from the coarsest level down to that one."""
    if one.job.level is None or one.job.required:
        return True
    before, after = (
        [len({int(domain_of[host]) for host, _ in hosts}) for domain_of in cluster.tree.domains[: one.job.level + 1]]
        for hosts in (one.placement, placement)
    )
    return after <= before
