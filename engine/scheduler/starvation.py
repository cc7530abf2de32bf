"""Nominates hosts for gangs that have waited longer than the policy's patience. Pure.

At most one gang of a topology has nominated hosts, no more than it will use, and only gangs of the same or a lower
priority are planned around them; so the cost of a large gang for the others is bounded by its own size. They are in the
Placement of the gang, from which the next leader restores them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from engine.api.workload import GangKey

# Seconds. Nominations are renewed after this long: pods may have ended on other hosts.
RENEW_EVERY = 5.0
# Gangs of one topology that are tried at a time; one that cannot be helped (quota, broken hosts) delays no other, as
# the next renewal begins with those that were not tried yet.
TRIES = 4


@dataclass(frozen=True, slots=True)
class StarvingGang:
    """A gang that has waited longer than the policy's patience."""

    key: GangKey
    priority: int
    topology: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Nomination:
    """The hosts that are nominated for one gang; `where` describes them in words ("": not known yet).

    `moves_for`: the gang for which this one moves, which respects them at any priority.
    """

    key: GangKey
    name: str  # namespace/name of its workload
    priority: int
    topology: str
    hosts: frozenset[str]
    where: str
    moves_for: GangKey | None = None


Find = Callable[[StarvingGang, Nomination | None, frozenset[str]], Nomination | None]


class Nominator:
    """The current nominations, by topology."""

    def __init__(self) -> None:
        self._nominations: dict[str, Nomination] = {}
        self._tried: set[GangKey] = set()  # since the last complete renewal
        self._missed: set[GangKey] = set()  # could not be helped at their last try
        self._check_at = -inf

    def __len__(self) -> int:
        return len(self._nominations)

    def kept(self) -> list[Nomination]:
        """Return all nominations."""
        return list(self._nominations.values())

    def of(self, key: GangKey) -> Nomination | None:
        """Return the nomination of a gang."""
        return next((nomination for nomination in self._nominations.values() if nomination.key == key), None)

    def restore(self, nomination: Nomination) -> None:
        """Take over the nomination of an earlier leader, unless its topology has one; the next renewal checks it."""
        self._nominations.setdefault(nomination.topology, nomination)

    def before(self, key: GangKey, priority: int) -> list[Nomination]:
        """Return the nominations that a gang must respect: those of others with no lower priority."""
        return [
            nomination
            for nomination in self._nominations.values()
            if nomination.key != key and nomination.priority >= priority
        ]

    def renew(self, waiting: Sequence[StarvingGang], now: float, find: Find) -> bool:
        """Nominate hosts for the first starving gangs, in order; return True if kept hosts were released.

        `find(gang, kept, taken)` returns the hosts to nominate, or None if that would not help the gang; `kept` is its
        current nomination, `taken` the hosts nominated for others. A gang keeps its nomination until one of a higher
        priority starves.
        """
        before = dict(self._nominations)
        present = {gang.key: gang for gang in waiting}
        for topology, nomination in before.items():
            gang = present.get(nomination.key)
            if gang is None or (gang.topology, gang.priority) != (topology, nomination.priority):
                del self._nominations[topology]
        self._missed &= present.keys()
        lost = len(self._nominations) < len(before)
        if lost or now >= self._check_at:
            self._check_at = now + RENEW_EVERY
            self._tried.clear()
        by_topology: dict[str, list[StarvingGang]] = {}
        for gang in waiting:
            by_topology.setdefault(gang.topology, []).append(gang)
        for topology, gangs in by_topology.items():
            self._renew_one(topology, gangs, find)
        return any(
            topology not in self._nominations or self._nominations[topology] != nomination
            for topology, nomination in before.items()
        )

    def _renew_one(self, topology: str, gangs: Sequence[StarvingGang], find: Find) -> None:
        nomination = self._nominations.get(topology)
        ahead = [
            gang
            for gang in gangs
            if nomination is None or gang.key == nomination.key or gang.priority > nomination.priority
        ]
        if all(gang.key in self._missed or (nomination is not None and gang.key == nomination.key) for gang in ahead):
            self._missed.difference_update(gang.key for gang in ahead)
        tries = TRIES - sum(gang.key in self._tried for gang in ahead)
        for gang in self._by_turns(ahead):
            if gang.key in self._tried:
                if nomination is not None and gang.key == nomination.key:
                    return
                continue
            if tries <= 0:
                return
            tries -= 1
            self._tried.add(gang.key)
            taken = [other.hosts for name, other in self._nominations.items() if name != topology]
            found = find(
                gang,
                nomination if nomination is not None and nomination.key == gang.key else None,
                frozenset().union(*taken),
            )
            if found is not None:
                self._nominations[topology] = found
                return
            self._missed.add(gang.key)
            if nomination is not None and gang.key == nomination.key:
                del self._nominations[topology]
                nomination = None

    def _by_turns(self, gangs: Sequence[StarvingGang]) -> list[StarvingGang]:
        """Return the order in which gangs are tried: those without a nomination last time go last, then by priority.

        Among equals the first of each namespace, then the second ones: many gangs that cannot be helped cost those of
        another namespace no more than one would.
        """
        of_namespace: Counter[tuple[int, str]] = Counter()
        turns: list[tuple[bool, int, int, int]] = []
        for place, gang in enumerate(gangs):
            of_namespace[gang.priority, gang.namespace] += 1
            turn = of_namespace[gang.priority, gang.namespace]
            turns.append((gang.key in self._missed, -gang.priority, turn, place))
        return [gangs[place] for *_, place in sorted(turns)]
