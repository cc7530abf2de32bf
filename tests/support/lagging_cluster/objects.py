"""What the raw Jobs, pods and nodes of a lagging cluster say."""

from __future__ import annotations

from engine.api import names
from tests.support.fake_api import Json
from tests.support.raw_placements import ranks
from tests.support.raw_pods import gpus


def owner_of(pod: Json) -> str:
    """The uid of a pod's Job."""
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def index_of(pod: Json) -> int:
    return int(pod["metadata"]["labels"][names.COMPLETION_INDEX])


def deleting(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def bound(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


def runs(pod: Json) -> bool:
    """True for a pod that its kubelet has started and nobody ends."""
    return bound(pod) and pod["status"].get("phase") == "Running" and not deleting(pod)


def capacity_of(node: Json) -> int:
    return int(node["status"]["allocatable"]["nvidia.com/gpu"])


def ready(node: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])


def rack_of(host: str) -> str:
    return host.partition("-")[0]


def done(job: Json) -> bool:
    ends = ("Complete", "Failed")
    return any(one["type"] in ends and one["status"] == "True" for one in job["status"].get("conditions", []))


def completed(job: Json) -> set[int]:
    """The indexes of its completed pods."""
    return set(ranks(job["status"].get("completedIndexes")))


def suspended_by_user(job: Json) -> bool:
    return bool(job["spec"]["suspend"]) and names.HELD_BY not in job["metadata"]["annotations"]


def size_of(job: Json) -> int:
    """The GPUs of each of its pods."""
    return gpus(job["spec"]["template"])


def elastic(job: Json) -> bool:
    """True for a Job that has more completions than pods at a time."""
    return bool(job["spec"]["completions"] > job["spec"]["parallelism"])
