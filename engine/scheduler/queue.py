"""Gangs that wait for room: who is planned next. Highest priority first, then oldest, then by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from math import inf

from engine.api.names import AUTO
from engine.api.pod import Shape
from engine.gang.request import PlacementRequest
from engine.scheduler.outcome import Never, Waits


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One waiting gang; not planned before `not_before`, impatient from `patient_until` on (monotonic seconds)."""

    priority: int
    created: float
    name: str
    not_before: float = 0.0
    patient_until: float = inf
    topology: str = ""

    @property
    def namespace(self) -> str:
        """The namespace of its workload."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class PlanKey:
    """What is asked of the planner: `about` all that the answer rests on but how many pods want room.

    `count` decides whether they fit, `whole` is told beside it: they differ where a gang has a minimum.
    """

    about: tuple[object, ...]
    count: int
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a question has no answer now; `first`: the gang (namespace/name) that its room is kept for."""

    outcome: Waits | Never
    first: str = ""


def plan_key(understanding: PlacementRequest, shapes: Mapping[str, Shape], *beside: object) -> PlanKey:
    """The question of a gang; `beside`: what else decides, such as hosts that are left out.

    More pods never fit better, but that can be told of equal pods alone: for several pod sets, and where the
    number decides which level `auto` is, only the very same question has the same answer.
    """
    asks, gang = understanding.pod_sets, understanding.gang
    about = [
        (ask.name, ask.require, ask.prefer, ask.slices, ask.colocate, ask.ranked, shapes[ask.name]) for ask in asks
    ]
    counts = [(ask.count, ask.min_available) for ask in asks]
    if len(asks) > 1 or gang is not None or asks[0].require == AUTO:
        return PlanKey((understanding.topology, gang, *about, *counts, *beside), 0)
    return PlanKey((understanding.topology, *about, *beside), min(counts[0]), counts[0][0])


class GangQueue:
    """Waiting gangs by key. `room` says that one that did not fit may fit now."""

    def __init__(self) -> None:
        self.room = False
        self._entries: dict[str, QueueEntry] = {}
        self._fresh: set[str] = set()  # not planned since they came in or were put back
        self._put_off: dict[str, None] = {}  # were to be planned and were not, in the order of that
        self._for_hosts: set[str] = set()  # no room helps them on the hosts there are
        self._misses: dict[tuple[object, ...], tuple[float, Miss]] = {}
        self._answers: dict[PlanKey, Miss] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        """Every gang that waits, in no order."""
        return iter(self._entries)

    def add(self, key: str, entry: QueueEntry) -> None:
        """Put a gang in (again): it is planned at the next turn."""
        self._entries[key] = entry
        self._fresh.add(key)
        self._for_hosts.discard(key)

    def requeue(self, key: str) -> None:
        """Have a gang planned at the next turn, without the others."""
        if key in self._entries:
            self._fresh.add(key)

    def drop(self, key: str) -> None:
        """Take a gang out."""
        self._entries.pop(key, None)
        self._fresh.discard(key)
        self._put_off.pop(key, None)
        self._for_hosts.discard(key)

    @property
    def behind(self) -> bool:
        """True when gangs are put off that are to be planned as soon as can be."""
        return bool(self._put_off)

    def put_off(self, key: str) -> None:
        """Have a gang planned at a later turn: its namespace has had its share of this one."""
        self._fresh.add(key)
        self._put_off.setdefault(key, None)

    def planned(self, key: str) -> None:
        """Take in that a gang has its turn."""
        self._put_off.pop(key, None)

    def longest_put_off(self, keys: Iterable[str]) -> list[str]:
        """Sort gangs: who was put off first goes first, who was not goes last and in the order given."""
        places = {key: place for place, key in enumerate(self._put_off)}
        return sorted(keys, key=lambda key: places.get(key, len(places)))

    def waits_for_hosts(self, key: str) -> None:
        """Take in that a gang fits on no room of the hosts there are: it is not planned before they change."""
        if key in self._entries:
            self._for_hosts.add(key)

    @property
    def for_hosts(self) -> Set[str]:
        """The gangs that fit on no room of the hosts there are."""
        return self._for_hosts

    def hosts_changed(self) -> None:
        """Take in that hosts, devices or topologies are others now."""
        self._for_hosts.clear()

    def entry(self, key: str) -> QueueEntry | None:
        """The entry of a gang that waits."""
        return self._entries.get(key)

    def impatient(self, now: float) -> list[str]:
        """Gangs that have waited for room for longer than the policy's patience and could go now, in order."""
        waited = [
            key
            for key, one in self._entries.items()
            if one.patient_until <= now and one.not_before <= now and key not in self._for_hosts
        ]
        return sorted(waited, key=self._order)

    def take(self, now: float, *, strict: bool) -> list[str]:
        """Gangs to plan now, in order: all that room may help when some appeared, else those that are new.

        With `strict` the order binds: a new gang is only planned when none ahead of it waits, so all are taken.
        """
        self._misses.clear()
        self._answers.clear()
        wanted = set(self._entries) if strict and (self.room or self._fresh) else set(self._fresh)
        if self.room and not strict:
            wanted |= self._entries.keys() - self._for_hosts
        ready = {key for key in wanted if self._entries[key].not_before <= now}
        self.room = False
        self._fresh -= ready
        return sorted(ready, key=self._order)

    def later_than(self, key: str) -> list[str]:
        """Gangs behind one in the queue."""
        mine = self._order(key)
        return sorted((other for other in self._entries if self._order(other) > mine), key=self._order)

    def stop_behind(self, key: str) -> None:
        """Everything behind a gang waits for it: what is new there is planned when there is room."""
        self._fresh -= set(self.later_than(key))

    def known_miss(self, question: PlanKey) -> Miss | None:
        """What the same question with no more pods was answered earlier in this turn; None when nobody asked it."""
        count, miss = self._misses.get(question.about, (inf, None))
        return miss if question.count >= count else None

    def answered(self, question: PlanKey) -> Miss | None:
        """What the very same question was answered earlier in this turn; None when nobody asked it."""
        return self._answers.get(question)

    def record_miss(self, question: PlanKey, miss: Miss) -> None:
        """Remember that it did not fit, and why; valid until the next `take`, as plans only use room up."""
        self._answers.setdefault(question, miss)
        if self.known_miss(question) is None:
            self._misses[question.about] = (question.count, miss)

    def _order(self, key: str) -> tuple[int, float, str]:
        entry = self._entries[key]
        return (-entry.priority, entry.created, entry.name)
