"""Watches a namespace during a chaos test and writes down every breach of what the service guarantees.

Each look reads Placements, workloads, pods and nodes as they stood at one revision of the store, so that nothing is
counted twice or missed between two lists. What is held against them: no host is promised twice, no gang starts in part,
no pod leaves the domain that its gang (or slice) requires, pod groups start together, exclusive and spread gangs keep
to themselves, volumes are in reach, no device is given twice, and nobody touches a pod that is not ours.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from local.client import Client
from local.nodes import BLOCK, NODES, RACK
from tests.support.crowd import GANG_LABEL, PER_HOST, SCOPES, Member
from tests.support.gangs import Json
from tests.support.raw_placements import placements_path
from tests.support.raw_pods import ended, gpus, held, host
from tests.support.sights import Sight
from tests.support.turns import Turns

LEVELS = {"block": (BLOCK,), "rack": (BLOCK, RACK)}
MOST_BREACHES = 20
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"


@dataclass(frozen=True, slots=True)
class Scene:
    """One namespace at one revision."""

    revision: str
    gangs: Mapping[str, Sight]  # by name
    others: tuple[Json, ...]  # pods that are not ours
    pods: tuple[Json, ...]
    hosts: frozenset[str]


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
    looks: int = 0
    breaches: list[str] = field(default_factory=list)
    diary: list[tuple[float, str]] = field(default_factory=list)  # monotonic, what became of whom
    _known: dict[str, str] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)

    def turn(self) -> None:
        self.look(self.scene())

    def failed(self, fault: str) -> None:
        self.breaches.append(fault)

    def scene(self) -> Scene:
        """The namespace as it stands."""
        listed: Json = self.client.get(placements_path(self.namespace))
        revision = listed["metadata"]["resourceVersion"]
        at = {"resourceVersion": revision, "resourceVersionMatch": "Exact"}
        workloads = [one for path in self.workloads for one in self.client.get(path, query=at)["items"]]
        pods = self.client.get(f"/api/v1/namespaces/{self.namespace}/pods", query=at)["items"]
        nodes = self.client.get(NODES, query=at)["items"]
        placements = {one["spec"]["workload"]["uid"]: one for one in listed["items"]}
        of: dict[str, list[Json]] = defaultdict(list)
        groups = {
            one["metadata"]["name"]: one["metadata"]["uid"]
            for one in workloads
            if "leaderWorkerTemplate" in one["spec"]
        }
        for pod in pods:
            labels = pod["metadata"].get("labels", {})
            of[labels.get(JOBSET_UID) or groups.get(labels.get(LWS_NAME)) or _owner(pod)].append(pod)
        gangs = {
            one["metadata"]["name"]: Sight(one, placements.get(uid), tuple(of[uid]))
            for one in workloads
            if not _owner(one)
            for uid in (one["metadata"]["uid"],)
        }
        return Scene(
            revision,
            gangs,
            tuple(pod for pod in pods if GANG_LABEL not in pod["metadata"].get("labels", {})),
            tuple(pods),
            frozenset(node["metadata"]["name"] for node in nodes),
        )

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
        self._booked(scene)
        for name, sight in scene.gangs.items():
            self._whole(scene, name, sight)
            if (member := self.members.get(name)) is not None:
                self._together(scene, member, sight)
                self._in_reach(scene, member, sight)
                self._devices_near(scene, member, sight)
        self._groups(scene)
        self._apart(scene)
        self._devices_once(scene)
        self._untouched(scene)

    def _breach(self, scene: Scene, text: str) -> None:
        if len(self.breaches) < MOST_BREACHES:
            self.breaches.append(f"revision {scene.revision}: {text}")
            self.diary.append((time.monotonic(), f"BREACH {text}"))

    def _booked(self, scene: Scene) -> None:
        """Our pods and our slots together never ask more of a host than it has.

        A pod on its way shares the room of one of its gang that is going: it is bound when that one is gone.
        """
        used: Counter[str] = Counter()
        going: Counter[tuple[str, str]] = Counter()
        ours = [pod for pod in scene.pods if GANG_LABEL in pod["metadata"].get("labels", {}) and not ended(pod)]
        for pod in sorted(ours, key=lambda pod: not pod["spec"].get("nodeName")):
            if (where := host(pod)) is None:
                continue
            place = (pod["metadata"]["labels"][GANG_LABEL], where)
            if not pod["spec"].get("nodeName") and going[place]:
                going[place] -= 1
                continue
            used[where] += gpus(pod)
            going[place] += "deletionTimestamp" in pod["metadata"] and bool(pod["spec"].get("nodeName"))
        reserved: Counter[str] = Counter()
        for sight in scene.gangs.values():
            each = gpus(sight.template)
            for where, count in sight.reserved().items():
                reserved[where] += each * count
        for where in scene.hosts & (used.keys() | reserved.keys()):
            if used[where] + reserved[where] > PER_HOST:
                there = [name for name, sight in scene.gangs.items() if where[-8:] in sight.summary()]
                self._breach(
                    scene,
                    f"{where}: {used[where]} GPUs used, {reserved[where]} reserved, by {there or 'deleted gangs'}",
                )

    def _whole(self, scene: Scene, name: str, sight: Sight) -> None:
        """At its first release all of a gang has slots; whatever is released has a pin."""
        released = sight.released
        if not released:
            if sight.suspended or not sight.live:
                self._started.discard(sight.uid)
            return
        if loose := [pod["metadata"]["name"] for pod in released if host(pod) is None]:
            self._breach(scene, f"{name}: released without a pin: {loose}")
        if sight.uid in self._started or sight.suspended or sight.over:
            return
        self._started.add(sight.uid)
        slots = sight.planned
        if slots is None:
            self._breach(scene, f"{name}: starts without slots: {sight.summary()}")
        elif sum(slot["count"] for slot in slots) < min(sight.requested, sight.wanted):
            self._breach(scene, f"{name}: starts with slots for a part of it: {sight.summary()}")

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
        """When the first pods of a pod group start, as many of it have slots as must start together."""
        groups: dict[str, list[tuple[Member, Sight]]] = defaultdict(list)
        for name, sight in scene.gangs.items():
            if (member := self.members.get(name)) is not None and member.group is not None:
                groups[member.group].append((member, sight))
        for group, parts in groups.items():
            if group in self._started or not any(sight.released for _, sight in parts):
                continue
            self._started.add(group)
            slots = sum(slot["count"] for _, sight in parts for slot in sight.planned or ())
            told = "; ".join(sight.summary() for _, sight in parts)
            if slots < parts[0][0].group_least:
                self._breach(scene, f"{group}: starts with {slots} slots of {parts[0][0].group_least}: {told}")

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
        """Pods of others are as they were made, but for their host."""
        for pod in scene.others:
            made = self.strangers.get(pod["metadata"]["name"])
            marks = [key for key in pod["metadata"].get("annotations", {}) if key.startswith("topogate.dev/")]
            if made is None:
                if held(pod) or marks:  # the pod of a DaemonSet
                    self._breach(scene, f"{pod['metadata']['name']} is not ours and was changed")
                continue
            spec, before = pod["spec"], made["spec"]
            same = all(spec.get(key) == before.get(key) for key in ("affinity", "nodeSelector", "schedulingGates"))
            if held(pod) or marks or not same or pod["metadata"].get("labels") != made["metadata"].get("labels"):
                self._breach(scene, f"{pod['metadata']['name']} is not ours and was changed")


def minors(pod: Json) -> list[int]:
    """The GPUs that a pod is told; none where its host reports no devices."""
    told = pod["metadata"].get("annotations", {}).get("scheduling.koordinator.sh/device-allocated")
    return [] if told is None else [int(one["minor"]) for one in json.loads(told).get("gpu", [])]


def _owner(one: Json) -> str:
    """The uid of the controller of an object; "" without one."""
    return next((str(ref["uid"]) for ref in one["metadata"].get("ownerReferences", []) if ref.get("controller")), "")
