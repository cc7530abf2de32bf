"""What holds in the truth after every write, whatever a replica knew when it wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import count, islice
from typing import Any

from engine.api import names
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import NODES, PLACEMENTS, PODS, ClusterApi
from tests.support.lagging_cluster.kinds import Place
from tests.support.lagging_cluster.objects import bound, capacity_of, controller_of, deleting, owner_of, rack_of
from tests.support.lagging_cluster.workloads import (
    KINDS,
    at_a_time,
    done,
    elastic,
    kind_of,
    places,
    size_of,
    suspended,
)
from tests.support.raw_placements import ranks
from tests.support.raw_pods import ended, gpus, held

Slots = Mapping[Place, str]  # place in the workload -> host


class Truth:
    """No host is promised twice, no gang starts in part, none is scattered over racks when it requires one."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._started: set[str] = set()  # uids of workloads that have had a released pod
        # Places of completed pods by uid, of workloads with slots. The slot of such a pod is free for others, even if
        # the pod is made again: a PyTorchJob does that when it is deleted, a Job when it is scaled down and up again,
        # and a JobSet when it restarts.
        self._ends: dict[str, set[Place]] = {}

    def excuse(self, workload: Json) -> None:
        """A gang has started whose user resumed it in time: the leader may take its slots in this moment."""
        self._started.add(workload["metadata"]["uid"])

    def violations(self) -> Iterator[str]:
        every = [one for kind in KINDS.values() for one in self._api.objects(kind.collection)]
        workloads = {one["metadata"]["uid"]: one for one in every if not controller_of(one)}
        all_pods = self._api.objects(PODS)
        pods = [one for one in all_pods if not ended(one)]
        placed = {
            one["spec"]["workload"]["uid"]: one
            for one in self._api.objects(PLACEMENTS)
            if one["spec"].get("assignment") and one["spec"]["workload"]["uid"] in workloads
        }
        self._ends = {uid: self._freed(workloads[uid], [*all_pods, *every]) for uid in placed}
        given = {uid: [*_slots(one)] for uid, one in placed.items()}
        for uid, written in given.items():
            if len(dict(written)) < len(written):
                yield f"{_name(workloads[uid])} has a rank twice: {written}"
        slots = {uid: _needed(workloads[uid], dict(written), self._ends[uid]) for uid, written in given.items()}
        yield from self._promised(workloads, pods, slots)
        ranked = {uid: slots[uid] if kind_of(workloads[uid]).ranked else dict(given[uid]) for uid in slots}
        yield from self._started_in_part(workloads, pods, ranked, placed)
        for uid, one in slots.items():
            if _needs_one_rack(workloads[uid], placed[uid]) and len({rack_of(host) for host in one.values()}) > 1:
                yield f"{_name(workloads[uid])} is scattered: {one}"

    def _freed(self, workload: Json, made: list[Json]) -> set[Place]:
        kind, before = kind_of(workload), self._ends.get(workload["metadata"]["uid"], set())
        return before | kind.freed(workload, kind.completed(workload, made))

    def _promised(self, workloads: Mapping[str, Json], pods: list[Json], slots: Mapping[str, Slots]) -> Iterator[str]:
        """No host has more slots and pods than it has GPUs: a pod on a slot counts once.

        One that terminates shares its slot with its successor: the next pod for this host waits until it is gone.
        """
        use: Counter[str] = Counter()
        there: dict[str, Counter[str]] = {uid: Counter() for uid in slots}
        leaving: dict[str, Counter[str]] = {uid: Counter() for uid in slots}
        for pod in filter(bound, pods):
            host = pod["spec"]["nodeName"]
            if owner_of(pod) in slots:
                (leaving if deleting(pod) else there)[owner_of(pod)][host] += 1
            else:
                use[host] += gpus(pod)
        for uid, one in slots.items():
            here = Counter(one.values())
            hosts = (here | there[uid]) + (leaving[uid] - here)  # of slots and pods the larger number of each host
            for host, number in hosts.items():
                use[host] += number * size_of(workloads[uid])
        capacity = {one["metadata"]["name"]: capacity_of(one) for one in self._api.objects(NODES)}
        for host, number in use.items():
            if number > capacity.get(host, number):
                yield f"host {host} is promised for {number} GPUs of {capacity[host]}"

    def _started_in_part(
        self, workloads: Mapping[str, Json], pods: list[Json], slots: Mapping[str, Slots], placed: Mapping[str, Json]
    ) -> Iterator[str]:
        """The first pod of a gang is released when as many have slots as the gang needs."""
        for pod in pods:
            uid = owner_of(pod)
            if uid not in workloads or uid in self._started or suspended(workloads[uid]) or held(pod):
                continue
            self._started.add(uid)
            needed = _least(workloads[uid], placed.get(uid), self._ends.get(uid, ()))
            if len(slots.get(uid, {})) < needed:
                yield f"{pod['metadata']['name']} starts while its gang has the slots {slots.get(uid)} of {needed}"


def _slots(placement: Json) -> Iterator[tuple[Place, str]]:
    for pod_set in placement["spec"]["assignment"].get("podSets") or ():
        unranked = count()
        for slot in pod_set.get("slots") or ():
            for rank in ranks(slot.get("ranks")) or islice(unranked, slot["count"]):
                yield (pod_set["name"], rank), slot["domain"][-1]


def _needed(workload: Json, slots: dict[Place, str], ends: Collection[Place]) -> Slots:
    """The slots that a workload still needs: none of completed pods, and none of ranks that it has no more.

    One that its user has suspended has its slots as long as they are in its Placement.
    """
    if done(workload):
        return {}
    every = places(workload)
    if not kind_of(workload).ranked:
        # Which of them are free after pods have completed, or it was scaled down, only its pods tell.
        return slots if len(slots) <= min(at_a_time(workload), kind_of(workload).left(workload, ends)) else {}
    if elastic(workload):
        return (
            {} if len(every) - len(ends) < at_a_time(workload) else slots
        )  # which ones are free by now only its pods tell
    return {place: host for place, host in slots.items() if place in every and place not in ends}


def _least(workload: Json, placement: Json | None, ends: Collection[Place]) -> int:
    """How many pods of a gang need slots before the first one starts: by its request, and that in its Placement."""
    if elastic(workload):
        return 0
    spec = (placement or {}).get("spec") or {}
    planned: int = (spec.get("gang") or {}).get("minAvailable", 0)
    planned = planned or sum(one["minAvailable"] for one in spec.get("podSets", []))
    size = at_a_time(workload)
    asked = int(workload["metadata"]["annotations"].get(names.MIN_AVAILABLE, size))
    return min(size, asked, planned if placement is not None else size) - len(ends)


def _needs_one_rack(workload: Json, placement: Json) -> bool:
    """Return whether its slots have to share a rack; a waiting one may have been edited after they were planned."""
    asked: dict[str, Any] = workload["metadata"]["annotations"]
    spec = placement["spec"]
    planned = {one.get("require") for one in (spec.get("gang") or {}, *spec.get("podSets", []))}
    edited = suspended(workload) and "rack" not in planned
    return asked.get(names.REQUIRE) == "rack" and names.RELAX_AFTER not in asked and not edited


def _name(workload: Json) -> str:
    return str(workload["metadata"]["name"])
