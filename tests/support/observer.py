"""Watches, from outside, that the pods and the slots of managed gangs never ask more of a host than it has.

Each look reads Placements, Jobs and pods as they stood at one revision of the store, so that nothing is counted
twice or missed between two lists.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, ClassVar

from local.client import Client
from tests.support.gangs import INDEX, Json
from tests.support.raw_placements import placements_path, ranks
from tests.support.raw_pods import ended
from tests.support.turns import Turns

RESOURCES = ("nvidia.com/gpu", "cpu")
Sums = dict[str, Counter[str]]


@dataclass(frozen=True)
class Snapshot:
    """One namespace at one revision."""

    revision: str
    placements: list[Json]
    jobs: list[Json]
    pods: list[Json]

    def usage(self) -> Sums:
        """Host -> resources of the pods that are bound there and have not ended.

        A pod that terminates shares its slot with its replacement: a Job that is suspended and resumed at once keeps
        its slots, and has both for a moment.
        """
        sums: Sums = defaultdict(Counter)
        there = [pod for pod in self.pods if pod["spec"].get("nodeName") and not ended(pod)]
        live = {_slot(pod) for pod in there if "deletionTimestamp" not in pod["metadata"]}
        for pod in there:
            if "deletionTimestamp" not in pod["metadata"] or _slot(pod) not in live:
                sums[pod["spec"]["nodeName"]].update(_requests(pod["spec"]))
        return sums

    def reservations(self) -> Sums:
        """Host -> resources of the slots whose rank is still to be bound; Indexed Jobs, one rank per slot."""
        jobs = {job["metadata"]["uid"]: job for job in self.jobs}
        sums: Sums = defaultdict(Counter)
        for placement in self.placements:
            job = jobs.get(placement["spec"]["workload"]["uid"])
            if job is None or "deletionTimestamp" in job["metadata"] or _over(job):
                continue
            filled = {
                int(pod["metadata"]["labels"][INDEX])
                for pod in self.pods
                if _owner(pod) == job["metadata"]["uid"]
                and (pod["spec"].get("nodeName") or pod["status"]["phase"] == "Succeeded")
            }
            for pod_set in (placement["spec"].get("assignment") or {}).get("podSets", ()):
                for slot in pod_set["slots"]:
                    still = len(set(ranks(slot["ranks"])) - filled)
                    for resource, amount in _requests(job["spec"]["template"]["spec"]).items():
                        sums[slot["domain"][-1]][resource] += amount * still
        return sums


@dataclass
class Observer(Turns):
    """Looks at one namespace again and again in a thread of its own; `excesses` is what it must not find."""

    pause: ClassVar = 0.02
    passing: ClassVar = (404, 410)  # a revision that is compacted away

    client: Client
    namespace: str
    allocatable: Counter[str]
    looks: int = 0
    reserving: int = 0  # looks at which something was reserved
    fullest: int = 0  # the most GPUs of one host that were in use or reserved
    excesses: list[str] = field(default_factory=list)

    def turn(self) -> None:
        self.look(self._snapshot())

    def failed(self, fault: str) -> None:
        self.excesses.append(fault)

    def look(self, seen: Snapshot) -> None:
        """Compare one snapshot with what the hosts have."""
        usage, reserved = seen.usage(), seen.reservations()
        self.looks += 1
        self.reserving += any(any(sums.values()) for sums in reserved.values())
        for host in usage.keys() | reserved.keys():
            total = usage[host] + reserved[host]
            self.fullest = max(self.fullest, total["nvidia.com/gpu"])
            for resource in RESOURCES:
                if total[resource] > self.allocatable[resource]:
                    self.excesses.append(
                        f"revision {seen.revision}: {host} has {self.allocatable[resource]} {resource}, "
                        f"{usage[host][resource]} used + {reserved[host][resource]} reserved\n{_story(seen, host)}"
                    )

    def _snapshot(self) -> Snapshot:
        listed: Json = self.client.get(placements_path(self.namespace))
        revision = listed["metadata"]["resourceVersion"]
        at = {"resourceVersion": revision, "resourceVersionMatch": "Exact"}
        jobs = self.client.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", query=at)["items"]
        pods = self.client.get(f"/api/v1/namespaces/{self.namespace}/pods", query=at)["items"]
        return Snapshot(revision, listed["items"], jobs, pods)


def _over(job: Json) -> bool:
    """True when a Job has ended: it reserves nothing. Its user's suspension alone takes no slots from its Placement."""
    kinds = {one["type"] for one in job.get("status", {}).get("conditions", []) if one["status"] == "True"}
    return bool(kinds & {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})


def _owner(pod: Json) -> str:
    return next((str(owner["uid"]) for owner in pod["metadata"].get("ownerReferences", [])), "")


def _slot(pod: Json) -> tuple[str, str, str]:
    """Owner, index and host."""
    return (_owner(pod), pod["metadata"].get("labels", {}).get(INDEX, pod["metadata"]["name"]), pod["spec"]["nodeName"])


def _requests(spec: dict[str, Any]) -> Counter[str]:
    """GPUs and whole cores of a pod with one container."""
    resources = spec["containers"][0]["resources"]
    merged = {**resources.get("limits", {}), **resources.get("requests", {})}
    return Counter({resource: int(merged.get(resource, 0)) for resource in RESOURCES})


def _story(seen: Snapshot, host: str) -> str:
    pods = [
        f"  pod {pod['metadata']['name']} {pod['status'].get('phase')} {pod['metadata'].get('deletionTimestamp', '')}"
        for pod in seen.pods
        if pod["spec"].get("nodeName") == host
    ]
    slots = [
        f"  {placement['spec']['workload']['name']}: {slot}"
        for placement in seen.placements
        for pod_set in (placement["spec"].get("assignment") or {}).get("podSets", ())
        for slot in pod_set["slots"]
        if slot["domain"][-1] == host
    ]
    return "\n".join(pods + slots)
