"""Records for tests, with only what a test cares about spelled out."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from engine.api import names
from engine.api.objects import Node
from engine.api.placement import Assignment, Placement, PodSetPlan, PodSetRequest, Slot, WorkloadRef
from engine.api.pod import OwnerRef, Pod, PodSpec, SelectorRequirement, SelectorTerm, Shape
from engine.api.resources import is_claim
from engine.api.workload import PodSet, Workload
from engine.resources.shape import shape_hash

POD_SET_FIELDS = ("template", "slots", "total", "remaining", "ranked", "finished_ranks")
_serial = itertools.count(1)
GPU_HOST = {"cpu": 96_000, "memory": 1_048_576, "pods": 110, "nvidia.com/gpu": 8}


def shape(**requests: int) -> Shape:
    """A shape from planner units; `gpu=8` stands for nvidia.com/gpu."""
    amounts = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in requests.items()}
    return Shape(requests=tuple(sorted({"pods": 1, **amounts}.items())))


def node(
    name: str, *, labels: dict[str, str] | None = None, allocatable: dict[str, int] | None = None, **more: Any
) -> Node:
    fields: dict[str, Any] = {
        "uid": f"uid-{name}",
        "resource_version": str(next(_serial)),
        "labels": {"kubernetes.io/hostname": name, **(labels or {})},
        "allocatable": dict(GPU_HOST if allocatable is None else allocatable),
        "taints": (),
        "unschedulable": False,
        "ready": True,
        "settled_at": 0.0,
    }
    return Node(name=name, **(fields | more))


def gpu_nodes(blocks: int, racks: int, hosts: int) -> list[Node]:
    """Nodes with the demo labels: b0 .. / b0-r0 .. / b0-r0-h0 .."""
    return [
        node(
            f"b{block}-r{rack}-h{host}",
            labels={
                "cloud.provider.com/topology-block": f"b{block}",
                "cloud.provider.com/topology-rack": f"b{block}-r{rack}",
            },
        )
        for block in range(blocks)
        for rack in range(racks)
        for host in range(hosts)
    ]


def spec(**more: Any) -> PodSpec:
    fields: dict[str, Any] = {
        "shape": shape(gpu=8),
        "limits": (),
        "gates": (),
        "labels": {},
        "annotations": {},
        "node_name": "",
        "scheduler_name": "default-scheduler",
        "priority_class": "",
        "priority": None,
        "runtime_class": "",
        "has_scheduling_group": False,
        "deadline": False,
        "unmodelled": (),
    }
    return PodSpec(**(fields | more))


def job(
    name: str = "train", *, count: int = 4, require: str | None = "rack", held: bool = False, **more: Any
) -> Workload:
    """A Job as our webhook leaves it: gated template, labels; `held` when it is still suspended by us."""
    annotations = {names.REQUIRE: require} if require else {}
    if held:
        annotations[names.HELD_BY] = names.HELD_BY_SUSPEND
    fields: dict[str, Any] = {
        "api_version": "batch/v1",
        "kind": "Job",
        "namespace": "default",
        "uid": f"uid-{name}",
        "resource_version": str(next(_serial)),
        "generation": 1,
        "labels": {},
        "annotations": annotations,
        "suspended": held,
        "suspendable": True,
        "started": not held,
        "finished": False,
        "deleting": False,
        "created": 1000.0,
        "owner": None,
        "managed_elsewhere": None,
    }
    of_pods = {key: more.pop(key) for key in POD_SET_FIELDS if key in more}
    fields["pod_sets"] = (pod_set("main", count=count, **of_pods),)
    return Workload(name=name, **(fields | more))


def pod_set(name: str, *, count: int, **more: Any) -> PodSet:
    """A pod set with a gated template, as our webhook leaves it."""
    fields: dict[str, Any] = {
        "template": spec(gates=(names.GATE,), labels={names.MANAGED: "true", names.POD_SET: name}),
        "slots": count,
        "total": count,
        "remaining": count,
        "ranked": True,
    }
    return PodSet(name=name, **(fields | more))


def changed(workload: Workload, **more: Any) -> Workload:
    """The workload with other fields, of its own or of its first pod set."""
    of_pods = {key: more.pop(key) for key in POD_SET_FIELDS if key in more}
    first, *rest = workload.pod_sets
    return replace(workload, pod_sets=(replace(first, **of_pods), *rest), **more)


def pinned(base: Shape, host: str) -> Shape:
    return replace(base, affinity=(SelectorTerm((), (SelectorRequirement("metadata.name", "In", (host,)),)),))


# The scheduler's own words about a pod that it does not bind.
REFUSAL = "0/8 nodes are available: 7 node(s) didn't match Pod's node affinity/selector, 1 Insufficient cpu."


def pod(
    workload: Workload,
    rank: int | None,
    *,
    host: str = "",
    pin: str = "",
    gated: bool = False,
    phase: str = "Pending",
    **more: Any,
) -> Pod:
    """A pod of a Job: `host` bound there, `pin` pinned there, `gated` still held."""
    name = more.pop("name", f"{workload.name}-{rank if rank is not None else next(_serial)}")
    labels = {} if rank is None else {names.COMPLETION_INDEX: str(rank)}
    base = workload.template.shape
    target = pin or host
    fields: dict[str, Any] = {
        "namespace": workload.namespace,
        "uid": f"uid-{name}-{next(_serial)}",
        "resource_version": str(next(_serial)),
        "spec": spec(
            shape=pinned(base, target) if target else base,
            labels={names.MANAGED: "true", **labels},
            gates=(names.GATE,) if gated else (),
            node_name=host,
        ),
        "owner": OwnerRef("batch/v1", "Job", workload.name, workload.uid, True),
        "phase": "Running" if host and phase == "Pending" else phase,
        "nominated_node": "",
        "created": float(next(_serial)),
        "deleting": False,
        "unschedulable": "",
        "mirror": False,
    }
    return Pod(name=name, **(fields | more))


def placement(workload: Workload, hosts: dict[str, int] | None, *, ranked: bool = True, **more: Any) -> Placement:
    """The Placement of a Job; `hosts` maps host -> count in rank order, None while waiting."""
    slots: list[Slot] = []
    first = 0
    for host, count in (hosts or {}).items():
        ranks = ((first, first + count - 1),) if ranked else None
        slots.append(Slot(("b0", "b0-r0", host), count, ranks))
        first += count
    requests = tuple(one for one in workload.template.shape.requests if not is_claim(one[0]))
    fields: dict[str, Any] = {
        "namespace": workload.namespace,
        "name": f"job-{workload.name}-00000000",
        "uid": f"uid-placement-{workload.name}",
        "resource_version": str(next(_serial)),
        "workload": WorkloadRef("batch/v1", "Job", workload.name, workload.uid),
        "topology": "default",
        "priority": 0,
        "pod_sets": (
            PodSetRequest(
                name="main",
                count=workload.slots,
                min_available=workload.slots,
                require=workload.annotations.get(names.REQUIRE),
                prefer=None,
                ranked=workload.pod_sets[0].ranked,
                shape_hash=shape_hash(workload.template.shape),
            ),
        ),
        "assignment": Assignment(1, (PodSetPlan("main", tuple(slots), requests),)) if hosts is not None else None,
        "deleting": False,
        "created": 1000.0,
    }
    return Placement(**(fields | more))
