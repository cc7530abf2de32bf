"""Searches the victims of a preemption: the running gangs without which a waiting gang fits. Pure.

Victims are whole gangs. Of all sets of victims without which the gang fits, the best has, in this order: the lowest
highest priority, the fewest gangs, the fewest pods, the least running time lost, and the best plan for the gang. A few
preemptible gangs are compared completely. Among many the search is bounded by its number of plans: it looks at those of
each domain alone and of all domains together, and gives back the victims that are not needed, many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MAX_PLANS: Final = 256
_MOST_SETS: Final = 20_000  # of gangs, in one list to be sorted
Quality = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Preemptible:
    """A running gang that may be preempted, in numbers.

    `pods` on a host; `lost`: the running time of all its pods in seconds; `domains`: those with pods of it, by index.
    """

    key: str
    priority: int
    pods: int
    lost: float
    domains: frozenset[int]


@dataclass(frozen=True, slots=True)
class Victims(Generic[T]):
    """The gangs to preempt, and the plan of the waiting gang without them; `proven`: no set of victims is better."""

    gangs: tuple[Preemptible, ...]
    plan: T
    proven: bool


@dataclass(frozen=True, slots=True)
class _Found(Generic[T]):
    gangs: tuple[Preemptible, ...]
    plan: T
    cost: tuple[int, int, float, Quality]


class _OutOfPlansError(Exception):
    """The search has made as many plans as it may."""


def choose_victims(
    candidates: Iterable[Preemptible],
    plan: Callable[[frozenset[str]], T | None],
    *,
    quality: Callable[[T], Quality],
    most_plans: int = MAX_PLANS,
) -> Victims[T] | None:
    """Return the victims for a waiting gang; None if it does not even fit without all candidates.

    `plan(gone)` plans it on the cluster without these gangs (keys), and returns None if it does not fit; `quality`
    compares two plans, less is better. More gangs gone are expected to make no plan impossible.
    """
    return _Search(plan, quality, most_plans).best_of(sorted(candidates, key=lambda one: (one.priority, one.key)))


class _Search(Generic[T]):
    def __init__(
        self, plan: Callable[[frozenset[str]], T | None], quality: Callable[[T], Quality], most_plans: int
    ) -> None:
        self._plan_without = plan
        self._quality = quality
        self._left = most_plans
        self._known: dict[frozenset[str], T | None] = {}
        self._best: _Found[T] | None = None

    def best_of(self, candidates: Sequence[Preemptible]) -> Victims[T] | None:
        """Return the best victims of candidates in order of their priority."""
        try:
            if self._plan(candidates) is None:
                return None
            pool = self._lowest(candidates)
        except _OutOfPlansError:
            return None
        try:
            for group in (*_by_domain(pool), pool):
                self._reduce(group)
            self._compare(pool)
            proven = True
        except _OutOfPlansError:
            proven = False
        if self._best is None:
            self._keep(pool)
        assert self._best is not None, "it fits without the whole pool, which is planned already"
        return Victims(self._best.gangs, self._best.plan, proven)

    def _lowest(self, candidates: Sequence[Preemptible]) -> Sequence[Preemptible]:
        """Return the candidates up to the lowest priority with which the gang fits; it fits without all of them."""
        priorities = sorted({one.priority for one in candidates})
        low, high = 0, len(priorities) - 1
        while low < high:
            middle = (low + high) // 2
            if self._plan([one for one in candidates if one.priority <= priorities[middle]]) is None:
                low = middle + 1
            else:
                high = middle
        return [one for one in candidates if one.priority <= priorities[high]]

    def _reduce(self, group: Sequence[Preemptible]) -> None:
        """Try to give back each gang of a group without which the waiting one fits, the dearest first.

        Many at once while that succeeds, which gives back the same gangs as one by one, with fewer plans.
        """
        if self._plan(group) is None:
            return
        gone, at, size = list(group), 0, 1
        order = sorted(group, key=lambda one: (-one.priority, -one.pods, -one.lost, one.key))
        try:
            while at < len(order):
                back = {one.key for one in order[at : at + size]}
                without = [one for one in gone if one.key not in back]
                if self._plan(without) is not None:
                    gone, at, size = without, at + len(back), 2 * size
                elif len(back) > 1:
                    size = len(back) // 2
                else:
                    at += 1
        finally:
            self._keep(gone)

    def _compare(self, pool: Sequence[Preemptible]) -> None:
        """Plan without every set of victims that could be better than the best known one."""
        assert self._best is not None
        needed = [one for one in pool if self._plan([other for other in pool if other is not one]) is None]
        rest = [one for one in pool if one not in needed]
        for size in range(len(self._best.gangs) - len(needed) + 1):
            if size > len(self._best.gangs) - len(needed):
                return  # fewer were enough
            if comb(len(rest), size) > _MOST_SETS:
                raise _OutOfPlansError
            sets = sorted(([*needed, *others] for others in combinations(rest, size)), key=_price)
            for gangs in sets:
                if (len(gangs), *_price(gangs)) > self._best.cost[:3]:
                    break
                self._keep(gangs)

    def _keep(self, gone: Sequence[Preemptible]) -> None:
        """Make victims the best ones, if the waiting gang fits without them and no better ones are known."""
        if (plan := self._plan(gone)) is None:
            return
        cost = (len(gone), *_price(gone), self._quality(plan))
        if self._best is None or cost < self._best.cost:
            self._best = _Found(tuple(sorted(gone, key=lambda one: (one.priority, one.key))), plan, cost)

    def _plan(self, gone: Collection[Preemptible]) -> T | None:
        keys = frozenset(one.key for one in gone)
        if keys not in self._known:
            if not self._left:
                raise _OutOfPlansError
            self._left -= 1
            self._known[keys] = self._plan_without(keys)
        return self._known[keys]


def _price(gangs: Collection[Preemptible]) -> tuple[int, float]:
    return sum(one.pods for one in gangs), sum(one.lost for one in gangs)


def _by_domain(pool: Sequence[Preemptible]) -> list[list[Preemptible]]:
    """Return the candidates of each domain, first the domains with the fewest pods to preempt."""
    found: dict[int, list[Preemptible]] = {}
    for one in pool:
        for domain in one.domains:
            found.setdefault(domain, []).append(one)
    return [group for _, group in sorted(found.items(), key=lambda item: (*_price(item[1]), item[0]))]
