"""Gangs of Jobs as the API server would show them, for tests of what looks at scenes: eight hosts, two in each rack."""

from __future__ import annotations

from typing import Any

from local.nodes import BLOCK, RACK
from tests.support.gangs import INDEX, Json, job_body
from tests.support.invariants import GANG_LABEL, Scene
from tests.support.raw_pods import GATE
from tests.support.sights import Sight

PLACES = {f"host-{number}": {BLOCK: f"block-{number // 4}", RACK: f"rack-{number // 2}"} for number in range(8)}
GPUS = 8


def job_of(name: str, *, pods: int, suspend: bool = False, gpus: int = GPUS) -> Json:
    """A Job, suspended by us or running."""
    body = job_body(name, pods=pods, gpus=gpus)
    body["metadata"] |= {"uid": name, "annotations": {"topogate.dev/held-by": "suspend"} if suspend else {}}
    body["spec"]["suspend"] = suspend
    return body


def placement_of(*hosts: str, count: int | None = None, **status: str) -> Json:
    """A Placement with a slot on each of these hosts; `count` pods must start together."""
    slots = [
        {"domain": [PLACES[host][BLOCK], PLACES[host][RACK], host], "count": 1, "ranks": str(rank)}
        for rank, host in enumerate(hosts)
    ]
    pod_set = {"name": "main", "minAvailable": len(hosts) if count is None else count}
    assignment = {"revision": 1, "podSets": [{"name": "main", "slots": slots}]}
    return {"spec": {"podSets": [pod_set], "assignment": assignment}, "status": status}


def waiting(count: int, **status: str) -> Json:
    """The Placement of a gang that waits."""
    told = {"phase": "Waiting", "reason": "Fragmented", "message": "needs more", **status}
    return {"spec": {"podSets": [{"name": "main", "minAvailable": count}]}, "status": told}


def pod_of(
    gang: str, index: int, *, bound: str = "", pinned: str = "", held: bool = False, gpus: int = 8, **metadata: Any
) -> Json:
    """A pod of a gang; `pinned` is where its affinity lets it go."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pinned]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return {
        "metadata": {"name": f"{gang}-{index}", "labels": {GANG_LABEL: gang, INDEX: str(index)}, **metadata},
        "spec": {
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
            **({"nodeName": bound} if bound else {}),
            **({"affinity": affinity} if pinned else {}),
            **({"schedulingGates": [{"name": GATE}]} if held else {}),
        },
        "status": {"phase": "Pending"},
    }


def scene_of(*sights: Sight, others: tuple[Json, ...] = ()) -> Scene:
    """These gangs, and pods of nobody's, on all hosts."""
    gangs = {sight.workload["metadata"]["name"]: sight for sight in sights}
    pods = tuple(one for sight in sights for one in sight.pods) + others
    return Scene("1", gangs, others, pods, dict.fromkeys(PLACES, GPUS))
