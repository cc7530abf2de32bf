"""One gang as it looks from outside at one moment: its workload, its Placement, its pods."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.support.gangs import INDEX, Json
from tests.support.raw_placements import ranks
from tests.support.raw_pods import ended, held, host

OVER = frozenset({"Complete", "Completed", "Failed", "SuccessCriteriaMet", "FailureTarget"})
ORDINAL = "apps.kubernetes.io/pod-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"


@dataclass(frozen=True, slots=True)
class Sight:
    """One gang at one moment; its workload is a Job, a StatefulSet, a JobSet of one replicated Job,
    or a LeaderWorkerSet of one group.
    """

    workload: Json
    placement: Json | None
    pods: tuple[Json, ...]

    @property
    def uid(self) -> str:
        return str(self.workload["metadata"]["uid"])

    @property
    def over(self) -> bool:
        """It has ended, or is being deleted."""
        conditions = self.workload.get("status", {}).get("conditions", [])
        return (
            bool(OVER & {one["type"] for one in conditions if one["status"] == "True"})
            or "deletionTimestamp" in self.workload["metadata"]
        )

    @property
    def held_by_us(self) -> bool:
        annotations = self.workload["metadata"].get("annotations", {})
        return self.suspended and annotations.get("topogate.dev/held-by") == "suspend"

    @property
    def group(self) -> tuple[str, int] | None:
        """The pod group that its workload names, and how many pods of that start together."""
        annotations = self.workload["metadata"].get("annotations", {})
        name = annotations.get("topogate.dev/pod-group")
        return None if name is None else (name, int(annotations["topogate.dev/min-available"]))

    @property
    def suspended(self) -> bool:
        return bool(self.workload["spec"].get("suspend"))

    @property
    def wanted(self) -> int:
        """Pods that should run at a time."""
        spec = self.workload["spec"]
        if (jobs := replicated(self.workload)) is not None:
            done = sum(pod["status"].get("phase") == "Succeeded" for pod in self.pods)
            return max(0, int(jobs["replicas"]) * int(jobs["template"]["spec"]["parallelism"]) - done)
        if (group := spec.get("leaderWorkerTemplate")) is not None:
            return int(group["size"])
        if "replicas" in spec:
            return int(spec["replicas"])
        left = int(spec["completions"]) - int(self.workload.get("status", {}).get("succeeded", 0))
        return max(0, min(int(spec["parallelism"]), left))

    @property
    def ranked(self) -> bool:
        """Each of its slots is one index."""
        jobs = replicated(self.workload)
        spec = self.workload["spec"] if jobs is None else jobs["template"]["spec"]
        return "replicas" in spec or (
            spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
        )

    @property
    def template(self) -> Json:
        """The template of its pods."""
        jobs, group = replicated(self.workload), self.workload["spec"].get("leaderWorkerTemplate")
        if group is not None:
            leader: Json = group["workerTemplate"]
            return leader
        found: Json = (self.workload["spec"] if jobs is None else jobs["template"]["spec"])["template"]
        return found

    def rank(self, pod: Json) -> int:
        """The rank of one of its pods; -1 without one."""
        labels, jobs = pod["metadata"]["labels"], replicated(self.workload)
        index = int(labels.get(INDEX, labels.get(WORKER_INDEX, labels.get(ORDINAL, -1))))
        if jobs is None or index < 0:
            return index
        return int(labels[JOB_INDEX]) * int(jobs["template"]["spec"]["parallelism"]) + index

    @property
    def live(self) -> tuple[Json, ...]:
        """Pods that have not ended and are not going."""
        return tuple(pod for pod in self.pods if "deletionTimestamp" not in pod["metadata"] and not ended(pod))

    @property
    def released(self) -> tuple[Json, ...]:
        """Live pods without our gate."""
        return tuple(pod for pod in self.live if not held(pod))

    @property
    def bound(self) -> tuple[Json, ...]:
        """Live pods that have a host."""
        return tuple(pod for pod in self.live if pod["spec"].get("nodeName"))

    @property
    def planned(self) -> list[Json] | None:
        """The slots of its assignment; None without one."""
        assignment = ((self.placement or {}).get("spec") or {}).get("assignment")
        return None if assignment is None else [slot for one in assignment["podSets"] for slot in one["slots"]]

    @property
    def gave_back(self) -> bool:
        """Whether it has no slots now, but its Placement was written again after its creation: it may have had some."""
        return self.planned is None and int((self.placement or {}).get("metadata", {}).get("generation", 0)) > 1

    @property
    def requested(self) -> int:
        """How many pods its Placement was asked for at the least."""
        spec = self.placement["spec"] if self.placement else {}
        each = sum(int(one["minAvailable"]) for one in spec.get("podSets", []))
        return int((spec.get("gang") or {}).get("minAvailable") or each)

    @property
    def told(self) -> tuple[str, str, str]:
        """Phase, reason and message of its Placement."""
        status = (self.placement or {}).get("status") or {}
        return status.get("phase") or "", status.get("reason") or "", status.get("message") or ""

    def reserved(self) -> Counter[str]:
        """Host -> slots whose pod is still to come there."""
        slots = self.planned
        if slots is None or self.over or (self.suspended and not self.held_by_us):
            return Counter()
        there = [(pod, where) for pod in self.pods if not ended(pod) and (where := host(pod))]
        leaving = [(pod, where) for pod, where in there if "deletionTimestamp" in pod["metadata"]]
        staying = [(pod, where) for pod, where in there if "deletionTimestamp" not in pod["metadata"]]
        if self.ranked:
            filled = {self.rank(pod) for pod, _ in staying}
            filled |= {self.rank(pod) for pod in self.pods if pod["status"].get("phase") == "Succeeded"}
            shared = {(self.rank(pod), where) for pod, where in leaving}
            places = [(one, slot["domain"][-1]) for slot in slots for one in ranks(slot["ranks"])]
            return Counter(
                where for one, where in places if one not in filled and (one, where) not in shared and one < self.wanted
            )
        still = max(0, self.wanted - len(staying))
        here = Counter(where for _, where in there)
        found: Counter[str] = Counter()
        for slot in slots:
            free = min(max(0, slot["count"] - here[slot["domain"][-1]]), still)
            found[slot["domain"][-1]] += free
            still -= free
        return +found

    def summary(self) -> str:
        """On one line."""
        slots = {slot["domain"][-1][-8:]: slot["count"] for slot in self.planned or ()}
        pods = Counter(_state(pod) for pod in self.pods)
        pause = "held " if self.held_by_us else "suspended " if self.suspended else "over " if self.over else ""
        return f"{pause}wants {self.wanted}, slots {slots or '-'}, pods {dict(pods) or '-'}, says {self.told[:2]}"


def replicated(workload: Json) -> Json | None:
    """The replicated Job of a JobSet; None for a Job."""
    jobs = workload["spec"].get("replicatedJobs")
    return jobs[0] if jobs else None


def _state(pod: Json) -> str:
    where = (host(pod) or "nowhere")[-8:]
    going = " going" if "deletionTimestamp" in pod["metadata"] else ""
    if ended(pod):
        return str(pod["status"]["phase"])
    return ("held" if held(pod) else f"bound {where}" if pod["spec"].get("nodeName") else f"released {where}") + going
