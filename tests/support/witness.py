"""Watches a namespace during a chaos test and writes down every breach of what the service guarantees.

Each look holds what holds for all gangs (invariants.py) against one revision, and what this test knows of its own: no
pod leaves the domain that its gang (or slice) requires, pod groups start together, exclusive and spread gangs keep to
themselves, volumes are in reach, no device is given twice, and nobody touches a pod that is not ours.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from local.client import Client
from local.nodes import BLOCK, RACK
from tests.support.crowd import SCOPES, Member
from tests.support.gangs import Json
from tests.support.invariants import Invariants, Scene, read_scene
from tests.support.raw_pods import ended, host
from tests.support.sights import Sight
from tests.support.turns import Turns

LEVELS = {"block": (BLOCK,), "rack": (BLOCK, RACK)}
MOST_BREACHES = 20
JUST_NOW = 5.0  # seconds: a frozen API server, a watch event, a write, a look


@dataclass
class Witness(Turns):
    """Looks again and again in a thread of its own; `breaches` is what it must not find.

    `members` are the gangs as their users know them, `strangers` the pods of others as they were made, both by name;
    `places` tells the topology labels of each host.
    """

    pause: ClassVar = 0.05
    passing: ClassVar = (404, 410, 429, 500, 503, 504)  # a revision that is compacted away, a frozen server
    outages: ClassVar = True

    client: Client
    namespace: str
    members: Mapping[str, Member]
    strangers: Mapping[str, Json]
    places: Mapping[str, Mapping[str, str]]
    workloads: Sequence[str] = ()  # paths of the collections in which gangs are
    invariants: Invariants = field(default_factory=Invariants)
    looks: int = 0
    breaches: list[str] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    left: Mapping[str, tuple[Member, float]] = field(default_factory=dict)  # who was deleted, and when
    diary: list[tuple[float, str]] = field(default_factory=list)  # monotonic, what became of whom
    _known: dict[str, str] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)

    def turn(self) -> None:
        self.look(self.scene())

    def failed(self, fault: str) -> None:
        self.breaches.append(fault)

    def scene(self) -> Scene:
        """The namespace as it stands."""
        return read_scene(self.client, self.namespace, self.workloads)

    def look(self, scene: Scene) -> None:
        """Hold one scene against the guarantees."""
        self.looks += 1
        now = time.monotonic()
        for name, sight in scene.gangs.items():
            if self._known.get(name) != (line := sight.summary()):
                self._known[name] = line
                self.diary.append((now, f"{name}: {line}"))
        for name in self._known.keys() - scene.gangs.keys():
            del self._known[name]
            self.diary.append((now, f"{name}: gone"))
        for line in self.invariants.moment(scene):
            self._breach(scene, line)
        for name, sight in scene.gangs.items():
            if (member := self.members.get(name)) is not None:
                self._together(scene, member, sight)
                self._in_reach(scene, member, sight)
                self._devices_near(scene, member, sight)
        self._groups(scene)
        self._apart(scene)
        self._devices_once(scene)
        self._untouched(scene)

    def has_seen(self, member: Member) -> bool:
        """Whether a look has seen the start of a gang's pod group: once a part of it is gone, none can be judged."""
        return member.group is None or member.group in self._started

    def _breach(self, scene: Scene, text: str) -> None:
        if len(self.breaches) < MOST_BREACHES:
            self.breaches.append(f"revision {scene.revision}: {text}")
            self.diary.append((time.monotonic(), f"BREACH {text}"))

    def _together(self, scene: Scene, member: Member, sight: Sight) -> None:
        """Live pods that are bound or let go stand in one domain of the required level; those of a slice likewise."""
        parts: list[tuple[str, str, list[Json]]] = []
        pods = list(sight.released)
        if member.level is not None:
            parts.append((member.name, member.level, pods))
        for level, size in member.slices:
            for number in {sight.rank(pod) // size for pod in pods}:
                part = [pod for pod in pods if sight.rank(pod) // size == number]
                parts.append((f"slice {number} of {member.name}", level, part))
        for what, level, group in parts:
            domains = {
                tuple(self.places[where][key] for key in LEVELS[level]) if level in LEVELS else where
                for pod in group
                if (where := host(pod)) in self.places and where is not None
            }
            if len(domains) > 1:
                self._breach(scene, f"{what}: in {len(domains)} domains of {level}: {sight.summary()}")

    def _in_reach(self, scene: Scene, member: Member, sight: Sight) -> None:
        """Pods that are bound or let go can reach their volume."""
        if member.volume is not None:
            racks = self._racks(host(pod) for pod in sight.released)
            if racks - {member.volume}:
                self._breach(scene, f"{member.name}: its volume is in {member.volume}: {sight.summary()}")

    def _groups(self, scene: Scene) -> None:
        """When the first pods of a pod group start, as many of it have slots as must start together.

        Or has given them back already: a host may die between the plan and the first pod. What a part had that its
        user has deleted just before, nobody knows: the leader may not have seen that yet.
        """
        groups: dict[tuple[str, int], dict[str, Sight]] = defaultdict(dict)
        for name, sight in scene.gangs.items():  # one that is being deleted is no member any more
            if sight.group is not None:
                groups[sight.group][name] = sight
        now = self.clock()
        for (group, least), parts in groups.items():
            if group in self._started or not any(sight.released for sight in parts.values()):
                continue
            self._started.add(group)
            slots = sum(slot["count"] for sight in parts.values() for slot in sight.planned or ())
            slots += sum(sight.wanted for sight in parts.values() if sight.gave_back)
            # The test's own thread deletes gangs meanwhile.
            gone = [one for name, one in tuple(self.left.items()) if name not in parts]
            slots += sum(one.pods for one, when in gone if one.group == group and now - when < JUST_NOW)
            told = "; ".join(sight.summary() for sight in parts.values())
            if slots < least:
                self._breach(scene, f"{group}: starts with {slots} slots of {least}: {told}")

    def _apart(self, scene: Scene) -> None:
        """No other gang has a pod or a slot in the racks of an exclusive one; those that are spread share none."""
        racks = {
            name: self._racks([*(host(pod) for pod in sight.released), *sight.reserved()])
            for name, sight in scene.gangs.items()
            if not sight.over
        }
        for one, other in itertools.combinations(sorted(racks), 2):
            members = self.members.get(one), self.members.get(other)
            exclusive = any(member is not None and member.exclusive for member in members)
            spread = all(member is not None and member.spread for member in members)
            if (exclusive or spread) and (shared := racks[one] & racks[other]):
                told = "; ".join(scene.gangs[name].summary() for name in (one, other))
                why = "of which one is exclusive" if exclusive else "which are spread"
                self._breach(scene, f"{one} and {other}, {why}, share {sorted(shared)}: {told}")

    def _devices_once(self, scene: Scene) -> None:
        """No GPU of a host is allocated to two pods that run."""
        taken: dict[tuple[str, int], str] = {}
        for pod in scene.pods:
            if not (where := pod["spec"].get("nodeName")) or ended(pod) or "deletionTimestamp" in pod["metadata"]:
                continue
            for minor in minors(pod):
                name = taken.setdefault((where, minor), pod["metadata"]["name"])
                if name != pod["metadata"]["name"]:
                    self._breach(scene, f"{where}: {name} and {pod['metadata']['name']} have GPU {minor}")

    def _devices_near(self, scene: Scene, member: Member, sight: Sight) -> None:
        """The GPUs of each pod share what it requires."""
        for pod in sight.released if member.scope is not None else ():
            found = minors(pod)
            if not found or len({minor // SCOPES[str(member.scope)] for minor in found}) > 1:
                self._breach(scene, f"{pod['metadata']['name']} has GPUs {found}, which share no {member.scope}")

    def _racks(self, hosts: Iterable[str | None]) -> set[str]:
        return {self.places[where][RACK] for where in hosts if where is not None and where in self.places}

    def _untouched(self, scene: Scene) -> None:
        """Pods that others made are as they were made, but for their host."""
        for pod in scene.others:
            if (made := self.strangers.get(pod["metadata"]["name"])) is None:
                continue  # the pod of a DaemonSet
            spec, before = pod["spec"], made["spec"]
            same = all(spec.get(key) == before.get(key) for key in ("affinity", "nodeSelector"))
            if not same or pod["metadata"].get("labels") != made["metadata"].get("labels"):
                self._breach(scene, f"{pod['metadata']['name']} is not ours and was changed")


def minors(pod: Json) -> list[int]:
    """The GPUs that a pod is told; none where its host reports no devices."""
    told = pod["metadata"].get("annotations", {}).get("scheduling.koordinator.sh/device-allocated")
    return [] if told is None else [int(one["minor"]) for one in json.loads(told).get("gpu", [])]
