"""Searches the victims of a preemption: the running gangs without which a waiting gang fits. Pure.

Victims are whole gangs. Of all sets of victims without which the gang fits, the best has, in this order: the lowest
highest priority, the fewest gangs, the fewest pods, the least running time lost, and the best plan for the gang.

First comes what counting shows: in which domains there is room at all without the gangs up to a priority, and which of
them are enough there. Plans confirm it. Then smaller and cheaper sets are tried, in order of their price, until no
better one is left. The search is bounded by its number of plans and by time: then it returns the best that it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from engine.planner.tree import Bools

T = TypeVar("T")

MAX_PLANS: Final = 256
MAX_SECONDS: Final = 0.5
Quality = tuple[int, ...]
Price = tuple[int, float]  # pods, running time lost


@dataclass(frozen=True, slots=True)
class Preemptible:
    """A running gang that may be preempted, in numbers.

    `pods` on a host; `lost`: the running time of all its pods in seconds.
    """

    key: str
    priority: int
    pods: int
    lost: float


class RoomWithout(Protocol):
    """What counting shows of the room without some gangs, by masks; true may be wrong, false never is."""

    def fits(self, gone: Bools) -> bool:
        """Return False if the waiting gang has no room without these gangs."""

    def reachable(self, gone: Bools, rest: Bools, more: int) -> bool:
        """Return False if it has no room without these gangs and any `more` of the rest."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Gangs of which some may be enough together, such as those in one domain; `room` has their order."""

    gangs: Sequence[Preemptible]
    room: RoomWithout


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How many plans a search may make, and for how long it may run (seconds of `clock`)."""

    plans: int = MAX_PLANS
    seconds: float = MAX_SECONDS
    clock: Callable[[], float] = time.thread_time


@dataclass(frozen=True, slots=True)
class SearchResult(Generic[T]):
    """The gangs to preempt, and the plan of the waiting gang without them; `proven`: no set of gangs is better."""

    gangs: tuple[Preemptible, ...]
    plan: T
    proven: bool


@dataclass(frozen=True, slots=True)
class _Found(Generic[T]):
    gangs: tuple[Preemptible, ...]
    plan: T
    cost: tuple[int, int, float, Quality]


class _LimitReachedError(Exception):
    """The search has made as many plans as it may, or has taken as long."""


def choose_victims(
    scopes: Iterable[Scope],
    plan: Callable[[frozenset[str]], T | None],
    *,
    quality: Callable[[T], Quality],
    whole: Scope | None = None,
    limits: SearchLimits = SearchLimits(),
    together: Callable[[frozenset[str]], bool] = lambda _gone: True,
    monotone: bool = True,
) -> SearchResult[T] | None:
    """Return the victims for a waiting gang; None if it does not fit without the gangs of any scope.

    `plan(gone)` plans it on the cluster without these gangs (keys), and returns None if it does not fit; `quality`
    compares two plans, less is better. `whole`: all gangs, if those of several scopes may have to end together.
    `together`: whether these gangs may end together. `monotone`: more gangs gone make no plan impossible; else, and
    where some may not end together, all sets are tried if no better way finds one.
    """
    every = _Part.of(whole) if whole is not None else None
    return _Search(plan, quality, limits, together, monotone=monotone).best_of([_Part.of(one) for one in scopes], every)


class _Part:
    """Gangs of a scope, by index in the order of their price, and how many of them at least have to end."""

    def __init__(self, scope: Scope, order: Sequence[int]) -> None:
        self.gangs = scope.gangs
        self.room = scope.room
        self.order = order
        self._scope = scope
        self._fewest: int | None = None

    @classmethod
    def of(cls, scope: Scope) -> _Part:
        """Return all gangs of a scope."""
        return cls(
            scope, sorted(range(len(scope.gangs)), key=lambda one: (*_price_of(scope.gangs[one]), scope.gangs[one].key))
        )

    def __len__(self) -> int:
        """Return the number of gangs."""
        return len(self.order)

    def up_to(self, priority: int) -> _Part:
        """Return the gangs up to a priority."""
        return _Part(self._scope, [one for one in self.order if self.gangs[one].priority <= priority])

    def mask(self, chosen: Sequence[int]) -> Bools:
        """Return the mask of some of the gangs of the scope."""
        gone = np.zeros(len(self.gangs), dtype=np.bool_)
        gone[list(chosen)] = True
        return gone

    def taken(self, chosen: Iterable[int]) -> list[Preemptible]:
        """Return some of the gangs of the scope."""
        return [self.gangs[one] for one in chosen]

    def fewest(self) -> int:
        """Return how many gangs have to end at least, as far as counting shows; all of them are enough."""
        if self._fewest is None:
            none, every = self.mask(()), self.mask(self.order)
            low, high = 0, len(self.order)
            while low < high:
                middle = (low + high) // 2
                if self.room.reachable(none, every, middle):
                    high = middle
                else:
                    low = middle + 1
            self._fewest = high
        return self._fewest


class _Search(Generic[T]):
    def __init__(
        self,
        plan: Callable[[frozenset[str]], T | None],
        quality: Callable[[T], Quality],
        limits: SearchLimits,
        together: Callable[[frozenset[str]], bool],
        *,
        monotone: bool,
    ) -> None:
        self._together = together
        self._monotone = monotone  # false too once gangs were enough that may not end together
        self._plan_without = plan
        self._quality = quality
        self._left = limits.plans
        self._clock = limits.clock
        self._until = limits.clock() + limits.seconds
        self._known: dict[frozenset[str], T | None] = {}
        self._best: _Found[T] | None = None

    def best_of(self, scopes: Sequence[_Part], whole: _Part | None) -> SearchResult[T] | None:
        """Return the best victims; with `whole` those of several scopes together count too."""
        proven = False
        try:
            parts = self._with_room(scopes if whole is None else [*scopes, whole])
            every = parts if whole is None else [whole]
            self._compare(self._start(parts, every))
            if self._best is None and not self._monotone:
                self._try_all(every)
            proven = self._monotone
        except _LimitReachedError:
            pass
        return SearchResult(self._best.gangs, self._best.plan, proven) if self._best is not None else None

    def _start(self, parts: Sequence[_Part], every: Sequence[_Part]) -> Sequence[_Part]:
        """Find victims of the lowest highest priority; return the parts (of `every`) in which better ones may be.

        `every`: parts of which one has enough gangs if any gangs are enough.
        """
        priorities = sorted({one.priority for part in every for one in part.gangs})
        if not priorities:
            return ()
        low = self._first(priorities, 0, lambda one: any(map(_has_room, _up_to(one, every))))
        if low is None:
            return ()
        self._seed(self._with_room(_up_to(priorities[low], parts)))
        if self._best is None:  # the planner refuses what counting allows
            low = self._first(priorities, low, lambda one: any(map(self._fits_without_all, _up_to(one, every))))
            if low is None:
                return ()
            self._seed(self._with_room(_up_to(priorities[low], parts)))
        allowed = self._with_room(_up_to(priorities[low], every))
        if self._best is None:
            for part in allowed:
                self._reduce(part)
        return allowed

    def _try_all(self, every: Sequence[_Part]) -> None:
        """Plan without all sets of gangs, those of the lowest highest priority first."""
        for priority in sorted({one.priority for part in every for one in part.gangs}):
            self._compare(self._with_room(_up_to(priority, every)))
            if self._best is not None:
                return

    def _first(self, priorities: Sequence[int], low: int, holds: Callable[[int], bool]) -> int | None:
        """Return the index from `low` on of the lowest priority for which something holds, as for all above it."""
        high = len(priorities) - 1
        if not holds(priorities[high]):
            return None
        while low < high:
            self._in_time()
            middle = (low + high) // 2
            low, high = (low, middle) if holds(priorities[middle]) else (middle + 1, high)
        return high

    def _with_room(self, parts: Iterable[_Part]) -> list[_Part]:
        """Return the parts with room, first those of which the fewest gangs may be enough."""
        found = []
        for number, part in enumerate(parts):
            self._in_time()
            if _has_room(part):
                found.append((part.fewest(), number, part))
        return [part for _, _, part in sorted(found, key=lambda one: one[:2])]

    def _seed(self, parts: Sequence[_Part]) -> None:
        """Plan without the gangs of each part that counting leaves when the others are given back."""
        for part in parts:
            if self._best is not None and part.fewest() >= len(self._best.gangs):
                return
            for order in (_dearest_first, _smallest_first):
                self._keep(part.taken(self._given_back(part, order)))

    def _given_back(self, part: _Part, order: Callable[[Preemptible], tuple[object, ...]]) -> Sequence[int]:
        """Return gangs of which counting needs every one: the others are given back in this order."""

        def room(gone: Sequence[int]) -> bool:
            self._in_time()
            return part.room.fits(part.mask(gone))

        return _fewer(sorted(part.order, key=lambda one: order(part.gangs[one])), room)

    def _fits_without_all(self, part: _Part) -> bool:
        return _has_room(part) and self._plan(part.taken(part.order)) is not None

    def _reduce(self, part: _Part) -> None:
        """Give back each gang of a part without which the waiting one fits, the dearest first; keep the others."""
        if not self._fits_without_all(part):
            return
        gone = part.order

        def fits(fewer: Sequence[int]) -> bool:
            nonlocal gone
            if not part.room.fits(part.mask(fewer)) or self._plan(part.taken(fewer)) is None:
                return False
            gone = fewer
            return True

        try:
            _fewer(sorted(part.order, key=lambda one: _dearest_first(part.gangs[one])), fits)
        finally:
            self._keep(part.taken(gone))

    def _compare(self, parts: Sequence[_Part]) -> None:
        """Plan without every set of victims that could be better than the best known one, the cheapest first."""
        for size in range(min((part.fewest() for part in parts), default=0), 1 + max(map(len, parts), default=0)):
            if self._best is not None and size > len(self._best.gangs):
                return
            self._compare_of(size, [part for part in parts if part.fewest() <= size <= len(part)])

    def _compare_of(self, size: int, parts: Sequence[_Part]) -> None:
        """Do so for sets of so many gangs: those taken so far, and others from a place in the order of prices on."""
        serial = count()
        heap: list[tuple[Price, int, int, _Part, tuple[int, ...], int]] = []

        def add(part: _Part, taken: tuple[int, ...], at: int) -> None:
            more = size - len(taken)
            if more <= len(part.order) - at:
                least = _price(part.taken([*taken, *part.order[at : at + more]]))
                heappush(heap, (least, -len(taken), next(serial), part, taken, at))

        for part in parts:
            add(part, (), 0)
        while heap:
            self._in_time()
            least, _, _, part, taken, at = heappop(heap)
            if self._best is not None and (size, *least) > self._best.cost[:3]:
                return
            gone, more = part.mask(taken), size - len(taken)
            if not more:
                if part.room.fits(gone):
                    self._keep(part.taken(taken))
            elif part.room.reachable(gone, part.mask(part.order[at:]), more):
                add(part, (*taken, part.order[at]), at + 1)
                add(part, taken, at + 1)

    def _keep(self, gone: Sequence[Preemptible]) -> None:
        """Make victims the best ones, if the waiting gang fits without them and no better ones are known."""
        if self._best is not None and (len(gone), *_price(gone)) > self._best.cost[:3]:
            return
        if (plan := self._plan(gone)) is None:
            return
        if not self._together(frozenset(one.key for one in gone)):
            self._monotone = False
            return
        cost = (len(gone), *_price(gone), self._quality(plan))
        if self._best is None or cost < self._best.cost:
            self._best = _Found(tuple(sorted(gone, key=lambda one: (one.priority, one.key))), plan, cost)

    def _plan(self, gone: Collection[Preemptible]) -> T | None:
        keys = frozenset(one.key for one in gone)
        if keys not in self._known:
            if not self._left:
                raise _LimitReachedError
            self._in_time()
            self._left -= 1
            self._known[keys] = self._plan_without(keys)
        return self._known[keys]

    def _in_time(self) -> None:
        if self._clock() > self._until:
            raise _LimitReachedError


def _fewer(order: Sequence[int], enough: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Return gangs of which every one is needed: the others are given back in this order, if the rest is enough.

    Many at once while that succeeds, which gives back the same gangs as one by one.
    """
    gone, at, size = list(order), 0, 1
    while at < len(order):
        back = set(order[at : at + size])
        rest = [one for one in gone if one not in back]
        if enough(rest):
            gone, at, size = rest, at + len(back), 2 * size
        elif len(back) > 1:
            size = len(back) // 2
        else:
            at += 1
    return gone


def _up_to(priority: int, parts: Iterable[_Part]) -> Iterator[_Part]:
    return (part.up_to(priority) for part in parts)


def _has_room(part: _Part) -> bool:
    return bool(part.order) and part.room.fits(part.mask(part.order))


def _price_of(gang: Preemptible) -> Price:
    return gang.pods, gang.lost


def _price(gangs: Collection[Preemptible]) -> Price:
    return sum(one.pods for one in gangs), sum(one.lost for one in gangs)


def _dearest_first(gang: Preemptible) -> tuple[object, ...]:
    return (-gang.priority, -gang.pods, -gang.lost, gang.key)


def _smallest_first(gang: Preemptible) -> tuple[object, ...]:
    """Return what gives back gangs of few pods first: so the fewest are left."""
    return (gang.pods, -gang.priority, -gang.lost, gang.key)
