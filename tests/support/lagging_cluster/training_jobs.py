"""PyTorchJobs: their status tells only how many pods have completed; one that is deleted after that is made again."""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Iterable
from typing import Final

from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import TRAINING_JOBS
from tests.support.lagging_cluster.kinds import Kind, Place
from tests.support.lagging_cluster.objects import owner_of

_TYPE: Final = "training.kubeflow.org/replica-type"
_INDEX: Final = "training.kubeflow.org/replica-index"


class TrainingJobs(Kind):
    """PyTorchJobs with a master, whose end is that of the workload, and workers."""

    kind = "PyTorchJob"
    api_version = "kubeflow.org/v1"
    collection = TRAINING_JOBS
    cleans = True

    def _spec(self, name: str, template: Json, rng: random.Random, *, count: int, more: int) -> Json:
        types: Json = {"Master": {"replicas": 1, "template": template}}
        if count > 1:
            types["Worker"] = {"replicas": count - 1, "template": copy.deepcopy(template)}
        return {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": types}

    def counts(self, workload: Json) -> dict[str, int]:
        return {name.lower(): int(one["replicas"]) for name, one in workload["spec"]["pytorchReplicaSpecs"].items()}

    def sized(self, workload: Json, count: int) -> Json:
        """It keeps its master, and its workers if it has any."""
        types = workload["spec"]["pytorchReplicaSpecs"]
        return {"pytorchReplicaSpecs": {"Worker": {"replicas": max(1, count - 1)}} if "Worker" in types else {}}

    def template(self, workload: Json, pod_set: str) -> Json:
        return copy.deepcopy(workload["spec"]["pytorchReplicaSpecs"][pod_set.title()]["template"])  # type: ignore[no-any-return]

    def labels(self, workload: Json, place: Place) -> dict[str, str]:
        name = workload["metadata"]["name"]
        return {"training.kubeflow.org/job-name": name, _TYPE: place[0], _INDEX: str(place[1])}

    def place(self, pod: Json) -> Place:
        labels = pod["metadata"]["labels"]
        return labels[_TYPE], int(labels[_INDEX])

    def suspended(self, workload: Json) -> bool:
        return bool(workload["spec"]["runPolicy"].get("suspend"))

    def suspending(self, suspend: bool) -> Json:
        return {"runPolicy": {"suspend": suspend}}

    def completed(self, workload: Json, made: Iterable[Json]) -> set[Place]:
        uid = workload["metadata"]["uid"]
        ends = [pod for pod in made if owner_of(pod) == uid and pod["status"].get("phase") == "Succeeded"]
        return {self.place(pod) for pod in ends} & set(self.places(workload))

    def counted(self, workload: Json, ends: Collection[Place]) -> Json:
        by_type = {name: sum(pod_set == name for pod_set, _ in ends) for name in self.counts(workload)}
        return {"replicaStatuses": {name.title(): {"succeeded": number} for name, number in by_type.items()}}

    def all_completed(self, workload: Json, ends: Collection[Place], there: Collection[Place]) -> bool:
        return ("master", 0) in ends

    def ending(self) -> Json:
        return {"type": "Succeeded", "status": "True"}
