"""The raw workloads of a lagging cluster: of which kind each is, and what is the same for all kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.api import names
from tests.support.fake_api import Json
from tests.support.lagging_cluster.job_sets import JobSets
from tests.support.lagging_cluster.jobs import Jobs, NonIndexedJobs
from tests.support.lagging_cluster.kinds import Kind, Place
from tests.support.lagging_cluster.objects import controller_of
from tests.support.lagging_cluster.stateful_sets import StatefulSets
from tests.support.lagging_cluster.training_jobs import TrainingJobs
from tests.support.raw_pods import gpus

JOB: Final = "Job"
NON_INDEXED_JOB: Final = "NonIndexedJob"
JOB_SET: Final = "JobSet"
TRAINING_JOB: Final = "PyTorchJob"
STATEFUL_SET: Final = "StatefulSet"
KINDS: Final[Mapping[str, Kind]] = {
    JOB: Jobs(),
    NON_INDEXED_JOB: NonIndexedJobs(),
    JOB_SET: JobSets(),
    TRAINING_JOB: TrainingJobs(),
    STATEFUL_SET: StatefulSets(),
}

_ENDS: Final = ("Complete", "Completed", "Succeeded", "Failed")


def kind_of(workload: Json) -> Kind:
    if workload["spec"].get("completionMode") == "NonIndexed":
        return KINDS[NON_INDEXED_JOB]
    return KINDS[workload["kind"]]


def path_of(workload: Json) -> str:
    return f"{kind_of(workload).collection}/{workload['metadata']['name']}"


def places(workload: Json) -> list[Place]:
    """The places of all pods that have to complete."""
    return kind_of(workload).places(workload)


def at_a_time(workload: Json) -> int:
    """How many pods it has at a time."""
    return sum(kind_of(workload).counts(workload).values())


def size_of(workload: Json) -> int:
    """The GPUs of each of its pods."""
    kind = kind_of(workload)
    return gpus(kind.template(workload, next(iter(kind.counts(workload)))))


def kind_of_pod(pod: Json) -> Kind:
    """The kind whose controller has made a pod."""
    kind = controller_of(pod)["kind"]
    return KINDS[NON_INDEXED_JOB if kind == JOB and names.COMPLETION_INDEX not in pod["metadata"]["labels"] else kind]


def place_of(pod: Json) -> Place:
    return kind_of_pod(pod).place(pod)


def suspended(workload: Json) -> bool:
    return kind_of(workload).suspended(workload)


def suspended_by_user(workload: Json) -> bool:
    return suspended(workload) and names.HELD_BY not in workload["metadata"]["annotations"]


def done(workload: Json) -> bool:
    conditions: list[dict[str, Any]] = workload["status"].get("conditions", [])
    return any(one["type"] in _ENDS and one["status"] == "True" for one in conditions)


def failed(workload: Json) -> bool:
    conditions: list[dict[str, Any]] = workload["status"].get("conditions", [])
    return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)


def elastic(workload: Json) -> bool:
    """True for a Job that has more completions than pods at a time."""
    return len(places(workload)) > at_a_time(workload)
