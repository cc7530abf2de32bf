"""Searches the fewest gangs to move so that another gang fits, each of them to a place of its own. Pure.

Sets of gangs are tried from the cheapest on: the fewest gangs, then the fewest pods, then the least running time lost.
The first sets are those that may free enough slots in one domain, by an upper bound of what each gang can free. A set
that is not enough is extended: by gangs of the same domain where the waiting gang still does not fit, by gangs that
are in the way of a moved gang where that fits nowhere. Whoever plans the attempts bounds their number.
Gangs that may not restart together are in no set.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MOST_SETS: Final = 20_000  # of gangs, that are to be tried
_MOST_STEPS: Final = 200_000  # to find these


@dataclass(frozen=True, slots=True)
class MoveCost:
    """A gang that may be moved, in numbers; `lost`: the running time of all its pods in seconds."""

    key: str
    pods: int
    lost: float


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """The slots that a gang needs in one of some domains.

    `free`: the slots of each domain now; `gains`: domain -> gang -> host -> at most so many slots more without it.
    """

    count: int
    free: Mapping[int, int]
    gains: Mapping[int, Mapping[str, Mapping[int, int]]]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The waiting gang does not fit, although all gangs of the set have left their hosts."""


@dataclass(frozen=True, slots=True)
class NoPlace:
    """A moved gang fits nowhere beside the others; `need`: what would let it fit."""

    need: SlotNeed


@dataclass(frozen=True, slots=True)
class FoundMoves(Generic[T]):
    """The gangs to move, and the plan for all of them; `proven`: with fewer gangs the waiting one does not fit."""

    gangs: tuple[str, ...]
    plan: T
    proven: bool


class OutOfPlansError(Exception):
    """The attempts have made as many plans as they may."""


Attempt = Callable[[tuple[str, ...]], T | NoRoom | NoPlace]
_Cost = tuple[int, int, float]


def choose_moves(
    candidates: Iterable[MoveCost],
    need: SlotNeed,
    attempt: Attempt[T],
    *,
    most_gangs: int,
    together: Callable[[Iterable[str]], bool] = lambda _keys: True,
) -> FoundMoves[T] | None:
    """Return the fewest gangs to move so that the waiting gang (`need`) fits; None if no such set was found.

    `attempt` plans the waiting gang without these gangs (keys), and then each of them beside it. It may raise
    OutOfPlansError. `together`: whether these gangs may restart together; if not, no others may with them.
    """
    try:
        return _MoveSearch(candidates, attempt, most_gangs, together).find(need)
    except OutOfPlansError:
        return None


class _MoveSearch(Generic[T]):
    def __init__(
        self,
        candidates: Iterable[MoveCost],
        attempt: Attempt[T],
        most_gangs: int,
        together: Callable[[Iterable[str]], bool],
    ) -> None:
        self._costs = {one.key: one for one in candidates}
        self._attempt = attempt
        self._most_gangs = most_gangs
        self._together = together
        self._heap: list[tuple[_Cost, tuple[str, ...], SlotNeed, int]] = []
        self._seen: set[tuple[str, ...]] = set()
        self._steps = _MOST_STEPS
        self._complete = True  # no set was left out
        self._without_place: int | None = None  # the size of the smallest set with a moved gang that fits nowhere

    def find(self, need: SlotNeed) -> FoundMoves[T] | None:
        """Return the cheapest set that works."""
        for size in range(1, self._most_gangs + 1):
            for domain in need.free:
                for keys in self._sets(need, domain, size):
                    self._push(keys, need, domain)
                    if not self._complete:
                        break
            while self._heap and self._heap[0][0][0] <= size:
                _, keys, of, domain = heapq.heappop(self._heap)
                answer = self._attempt(keys)
                if isinstance(answer, NoRoom):
                    self._extend(keys, of.gains.get(domain, {}), of, domain)
                elif isinstance(answer, NoPlace):
                    if self._without_place is None:
                        self._without_place = len(keys)
                    for other, gains in answer.need.gains.items():
                        if self._may_fit(answer.need, other, keys):
                            self._extend(keys, gains, need, domain)
                else:
                    fewest = self._without_place is None or self._without_place >= len(keys)
                    return FoundMoves(keys, answer, self._complete and fewest)
        return None

    def _sets(self, need: SlotNeed, domain: int, size: int) -> Iterator[tuple[str, ...]]:
        """Yield the sets of so many gangs that may free enough slots of a domain, each of which is needed for that."""
        gains = need.gains.get(domain, {})
        missing = need.count - need.free[domain]
        of_gang = {key: sum(hosts.values()) for key, hosts in gains.items() if key in self._costs}
        order = sorted((key for key, gain in of_gang.items() if gain > 0), key=lambda key: (-of_gang[key], key))
        if missing <= 0:  # the bound knows nothing of what is in the way
            yield from ((key,) for key in order if size == 1)
            return

        def more(first: int, chosen: tuple[str, ...], gained: int) -> Iterator[tuple[str, ...]]:
            left = size - len(chosen)
            for place in range(first, len(order) - left + 1):
                if gained + left * of_gang[order[place]] < missing:
                    return  # the rest gain less
                self._steps -= 1
                if self._steps < 0:
                    self._complete = False
                    return
                following = (*chosen, order[place])
                enough = _gained(gains, following) >= missing
                if left > 1:
                    if not enough and self._together(following):  # else the others are not needed, or may not
                        yield from more(place + 1, following, gained + of_gang[order[place]])
                elif enough:
                    yield following

        yield from more(0, (), 0)

    def _may_fit(self, need: SlotNeed, domain: int, keys: tuple[str, ...]) -> bool:
        """Return False if a domain could not have room for a moved gang, however many may still be moved."""
        gains = sorted((sum(hosts.values()) for key, hosts in need.gains[domain].items()), reverse=True)
        return need.free[domain] + sum(gains[: self._most_gangs - len(keys)]) >= need.count

    def _extend(
        self, keys: tuple[str, ...], more: Mapping[str, Mapping[int, int]], need: SlotNeed, domain: int
    ) -> None:
        if len(keys) < self._most_gangs:
            for key, hosts in more.items():
                if key in self._costs and key not in keys and any(hosts.values()):
                    self._push((*keys, key), need, domain)

    def _push(self, keys: tuple[str, ...], need: SlotNeed, domain: int) -> None:
        keys = tuple(sorted(keys))
        if keys in self._seen or not self._together(keys):
            return
        if len(self._seen) >= _MOST_SETS:
            self._complete = False
            return
        self._seen.add(keys)
        cost = (len(keys), sum(self._costs[key].pods for key in keys), sum(self._costs[key].lost for key in keys))
        heapq.heappush(self._heap, (cost, keys, need, domain))


def _gained(gains: Mapping[str, Mapping[int, int]], keys: Sequence[str]) -> int:
    hosts: dict[int, int] = {}
    for key in keys:
        hosts |= gains[key]
    return sum(hosts.values())
