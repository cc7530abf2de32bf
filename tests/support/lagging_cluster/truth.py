"""What holds in the truth after every write, whatever a replica knew when it wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from engine.api import names
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOBS, NODES, PLACEMENTS, PODS, ClusterApi
from tests.support.lagging_cluster.objects import (
    bound,
    capacity_of,
    completed,
    done,
    elastic,
    owner_of,
    rack_of,
    size_of,
)
from tests.support.raw_placements import ranks
from tests.support.raw_pods import ended, gpus, held

Slots = Mapping[int, str]  # rank -> host


class Truth:
    """No host is promised twice, no gang starts in part, none is scattered over racks when it requires one."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._started: set[str] = set()  # uids of Jobs that have had a released pod

    def excuse(self, job: Json) -> None:
        """A gang has started whose user resumed it in time: the leader may take its slots in this moment."""
        self._started.add(job["metadata"]["uid"])

    def violations(self) -> Iterator[str]:
        jobs = {one["metadata"]["uid"]: one for one in self._api.objects(JOBS)}
        pods = [one for one in self._api.objects(PODS) if not ended(one)]
        placed = {
            one["spec"]["workload"]["uid"]: one
            for one in self._api.objects(PLACEMENTS)
            if one["spec"].get("assignment") and one["spec"]["workload"]["uid"] in jobs
        }
        given = {uid: [*_slots(one)] for uid, one in placed.items()}
        for uid, written in given.items():
            if len(dict(written)) < len(written):
                yield f"{_name(jobs[uid])} has a rank twice: {written}"
        slots = {uid: _needed(jobs[uid], dict(written)) for uid, written in given.items()}
        yield from self._promised(jobs, pods, slots)
        yield from self._started_in_part(jobs, pods, slots, placed)
        for uid, one in slots.items():
            if _needs_one_rack(jobs[uid]) and len({rack_of(host) for host in one.values()}) > 1:
                yield f"{_name(jobs[uid])} is scattered: {one}"

    def _promised(self, jobs: Mapping[str, Json], pods: list[Json], slots: Mapping[str, Slots]) -> Iterator[str]:
        """No host has more slots and pods than it has GPUs: a pod on a slot counts once."""
        use: Counter[str] = Counter()
        there: dict[str, Counter[str]] = {uid: Counter() for uid in slots}
        for pod in filter(bound, pods):
            host = pod["spec"]["nodeName"]
            if owner_of(pod) in slots:
                there[owner_of(pod)][host] += 1
            else:
                use[host] += gpus(pod)
        for uid, one in slots.items():
            hosts = Counter(one.values()) | there[uid]  # the larger number of each host
            for host, number in hosts.items():
                use[host] += number * size_of(jobs[uid])
        capacity = {one["metadata"]["name"]: capacity_of(one) for one in self._api.objects(NODES)}
        for host, number in use.items():
            if number > capacity.get(host, number):
                yield f"host {host} is promised for {number} GPUs of {capacity[host]}"

    def _started_in_part(
        self, jobs: Mapping[str, Json], pods: list[Json], slots: Mapping[str, Slots], placed: Mapping[str, Json]
    ) -> Iterator[str]:
        """The first pod of a gang is released when as many have slots as the gang needs."""
        for pod in pods:
            uid = owner_of(pod)
            if uid not in jobs or uid in self._started or jobs[uid]["spec"]["suspend"] or held(pod):
                continue
            self._started.add(uid)
            needed = _least(jobs[uid], placed.get(uid))
            if len(slots.get(uid, {})) < needed:
                yield f"{pod['metadata']['name']} starts while its gang has the slots {slots.get(uid)} of {needed}"


def _slots(placement: Json) -> Iterator[tuple[int, str]]:
    for pod_set in placement["spec"]["assignment"].get("podSets") or ():
        for slot in pod_set.get("slots") or ():
            for rank in ranks(slot.get("ranks")):
                yield rank, slot["domain"][-1]


def _needed(job: Json, slots: dict[int, str]) -> Slots:
    """The slots that a Job still needs: none of completed pods, and none of ranks that it has no more.

    One that its user has suspended has its slots as long as they are in its Placement.
    """
    if done(job):
        return {}
    if elastic(job):
        left = job["spec"]["completions"] - len(completed(job))
        return {} if left < job["spec"]["parallelism"] else slots  # which ones are free by now only its pods tell
    return {
        rank: host for rank, host in slots.items() if rank not in completed(job) and rank < job["spec"]["completions"]
    }


def _least(job: Json, placement: Json | None) -> int:
    """How many pods of a gang need slots before the first one starts: by its request, and that in its Placement."""
    if elastic(job):
        return 0
    spec = (placement or {}).get("spec") or {}
    planned: int = (spec.get("gang") or {}).get("minAvailable", 0)
    planned = planned or sum(one["minAvailable"] for one in spec.get("podSets", []))
    count = int(job["spec"]["parallelism"])
    asked = int(job["metadata"]["annotations"].get(names.MIN_AVAILABLE, count))
    return min(count, asked, planned if placement is not None else count) - len(completed(job))


def _needs_one_rack(job: Json) -> bool:
    asked: dict[str, Any] = job["metadata"]["annotations"]
    return asked.get(names.REQUIRE) == "rack" and names.RELAX_AFTER not in asked


def _name(job: Json) -> str:
    return str(job["metadata"]["name"])
