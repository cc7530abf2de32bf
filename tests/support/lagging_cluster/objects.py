"""What the raw pods and nodes of a lagging cluster say."""

from __future__ import annotations

from typing import Final

from tests.support.fake_api import Json

UID_OF_JOB_SET: Final = "jobset.sigs.k8s.io/jobset-uid"


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


def controller_of(obj: Json) -> Json:
    """The reference to the controller of an object; empty without one."""
    owners: list[Json] = obj["metadata"].get("ownerReferences") or [{}]
    return owners[0]


def owner_of(pod: Json) -> str:
    """The uid of a pod's workload."""
    of_job_set = pod["metadata"].get("labels", {}).get(UID_OF_JOB_SET)
    return str(of_job_set or maker_of(pod))


def maker_of(pod: Json) -> str:
    """The uid of what has made a pod: its workload, or a Job of that."""
    return str(controller_of(pod).get("uid", ""))
