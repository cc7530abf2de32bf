"""JobSets: each makes Jobs, which make its pods. Its status tells only how many of its Jobs have completed."""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOB_SETS
from tests.support.lagging_cluster.jobs import Jobs
from tests.support.lagging_cluster.kinds import Kind, Place
from tests.support.lagging_cluster.objects import UID_OF_JOB_SET, controller_of

REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
_JOBS: Final = Jobs()
_LED: Final = 0.4  # the part of JobSets that have a leader
_FRAGILE: Final = 0.3  # the part of those whose Jobs fail with their first pod


class JobSets(Kind):
    """JobSets of workers, some with a leader of another replicated job."""

    kind = "JobSet"
    api_version = "jobset.x-k8s.io/v1alpha2"
    collection = JOB_SETS
    makes_pods = False
    counts_at_once = True

    def _spec(self, name: str, template: Json, rng: random.Random, *, count: int, more: int) -> Json:
        fragile, led = rng.random() < _FRAGILE, count > 1 and rng.random() < _LED
        workers = count - 1 if led else count
        size = rng.choice([one for one in range(1, workers + 1) if workers % one == 0])
        sizes = [("leader", 1, 1)] if led else []
        return {
            "suspend": False,
            "failurePolicy": {"maxRestarts": rng.choice((0, 2, 1000))},
            "replicatedJobs": [
                _replicated_job(one, jobs, pods, copy.deepcopy(template), retries=0 if fragile else 6)
                for one, jobs, pods in [*sizes, ("workers", workers // size, size)]
            ],
        }

    def counts(self, workload: Json) -> dict[str, int]:
        return {one["name"]: one["replicas"] * pods_of(one) for one in workload["spec"]["replicatedJobs"]}

    def sized(self, workload: Json, count: int) -> Json:
        """It cannot be scaled."""
        return {}

    def template(self, workload: Json, pod_set: str) -> Json:
        one = next(one for one in workload["spec"]["replicatedJobs"] if one["name"] == pod_set)
        return copy.deepcopy(one["template"]["spec"]["template"])  # type: ignore[no-any-return]

    def completed(self, workload: Json, made: Iterable[Json]) -> set[Place]:
        sizes = {one["name"]: pods_of(one) for one in workload["spec"]["replicatedJobs"]}
        found = set()
        for job in made:
            labels = job["metadata"].get("labels", {})
            ours = controller_of(job).get("uid") == workload["metadata"]["uid"]
            if ours and labels[ATTEMPT] == attempt_of(workload):
                name, first = labels[REPLICATED_JOB], int(labels[JOB_INDEX]) * sizes[labels[REPLICATED_JOB]]
                found |= {(name, first + index) for _, index in _JOBS.completed(job, ())}
        return found

    def freed(self, workload: Json, ends: Collection[Place]) -> set[Place]:
        """Those of Jobs that have completed: it may make all Jobs again as long as one of them can fail."""
        return {place for job in _jobs(workload) if job <= set(ends) for place in job}


def attempt_of(job_set: Json) -> str:
    """The label of the Jobs of its current run."""
    return str(job_set["status"].get("restarts", 0))


def pods_of(replicated_job: Json) -> int:
    """The pods of each of its Jobs."""
    return int(replicated_job["template"]["spec"]["parallelism"])


def new_jobs(job_set: Json) -> Iterator[Json]:
    """Every Job of a JobSet, as its controller makes it."""
    for one in job_set["spec"]["replicatedJobs"]:
        for index in range(one["replicas"]):
            labels = {
                "jobset.sigs.k8s.io/jobset-name": job_set["metadata"]["name"],
                UID_OF_JOB_SET: job_set["metadata"]["uid"],
                REPLICATED_JOB: one["name"],
                JOB_INDEX: str(index),
                ATTEMPT: attempt_of(job_set),
            }
            spec = {**copy.deepcopy(one["template"]["spec"]), "suspend": bool(job_set["spec"].get("suspend"))}
            of_template = spec["template"].setdefault("metadata", {})
            of_template["labels"] = {**of_template.get("labels", {}), **labels}
            yield {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": f"{job_set['metadata']['name']}-{one['name']}-{index}",
                    "namespace": "default",
                    "labels": labels,
                    "annotations": {},
                    "ownerReferences": [
                        {
                            "apiVersion": job_set["apiVersion"],
                            "kind": job_set["kind"],
                            "name": job_set["metadata"]["name"],
                            "uid": job_set["metadata"]["uid"],
                            "controller": True,
                        }
                    ],
                },
                "spec": spec,
                "status": {},
            }


def resumed(job: Json, job_set: Json) -> Json:
    """The fields of the spec of a Job that is resumed: what its JobSet's template says now is added to its own."""
    name = job["metadata"]["labels"][REPLICATED_JOB]
    new = next(one for one in job_set["spec"]["replicatedJobs"] if one["name"] == name)["template"]["spec"]["template"]
    metadata = {key: new.get("metadata", {}).get(key, {}) for key in ("labels", "annotations")}
    gates = job["spec"]["template"]["spec"].get("schedulingGates", [])
    added = [one for one in new["spec"].get("schedulingGates", []) if one not in gates]
    spec = {"nodeSelector": new["spec"].get("nodeSelector", {}), "schedulingGates": [*gates, *added]}
    return {"suspend": False, "template": {"metadata": metadata, "spec": spec}}


def _replicated_job(name: str, jobs: int, pods: int, template: Json, *, retries: int) -> Json:
    sizes = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": retries}
    return {"name": name, "replicas": jobs, "template": {"metadata": {}, "spec": {**sizes, "template": template}}}


def _jobs(job_set: Json) -> Iterator[set[Place]]:
    """The places of each Job."""
    for one in job_set["spec"]["replicatedJobs"]:
        size = pods_of(one)
        for index in range(one["replicas"]):
            yield {(one["name"], index * size + pod) for pod in range(size)}
