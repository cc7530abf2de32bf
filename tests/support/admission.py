"""Reviews, raw objects and a view made of values, for tests of the admission handlers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jsonpatch

from engine.api import names
from engine.api.device import NodeDevices
from engine.api.objects import Node
from engine.api.placement import Assignment, Placement, PodSetPlan, PodSetRequest, Slot, WorkloadRef
from engine.api.pod import OwnerRef, Pod, Shape
from engine.api.resources import Requests
from engine.api.workload import PodSet, Workload
from engine.decoding import workloads as cluster_workloads
from engine.devices.allocation import Uses, allocation
from engine.gang import key as gang_key
from engine.gang.key import placed_key
from engine.gang.ownership import Key, Link, OwnerResolver, object_key
from engine.gang.request import PlacementRequest
from engine.kinds.registry import Registry
from engine.policy.model import Policy, default_policy
from engine.preemption.preempt import Preemption
from engine.resources.names import Reported
from engine.resources.shape import shape_hash
from engine.scheduler.outcome import Outcome
from engine.topology.topology import Topology, topologies_of
from tests.support.cluster_records import gpu_nodes
from webhook.admission.review import Response, Review, decode_review

US = "system:serviceaccount:topogate-system:topogate"
ALICE = "alice"
UID = "3c7f8a52-0000-4000-8000-000000000001"
NODES = gpu_nodes(2, 2, 4)

Json = dict[str, Any]


def gpu_container(gpus: int = 8) -> Json:
    return {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}


def raw_job(
    annotations: Mapping[str, str] | None = None,
    *,
    template: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    template_labels: Mapping[str, str] | None = None,
    pod_spec: Mapping[str, Any] | None = None,
    namespace: str = "ml",
    **spec: Any,
) -> Json:
    """A Job as the API server sends it; `annotations` its own, `template` those of its pod template."""
    metadata: Json = {"name": "train-7", "namespace": namespace, "creationTimestamp": None}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if labels is not None:
        metadata["labels"] = dict(labels)
    template_metadata: Json = {"creationTimestamp": None}
    if template is not None:
        template_metadata["annotations"] = dict(template)
    if template_labels is not None:
        template_metadata["labels"] = dict(template_labels)
    pods: Json = {"restartPolicy": "Never", "schedulerName": "default-scheduler", "containers": [gpu_container()]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "completionMode": "Indexed",
            "suspend": False,
            "template": {"metadata": template_metadata, "spec": {**pods, **(pod_spec or {})}},
            **spec,
        },
        "status": {},
    }


def rack_job(**more: Any) -> Json:
    return raw_job({names.REQUIRE: "rack"}, **more)


def live(job: Json, *, uid: str = UID, started: bool = False) -> Json:
    """The Job as stored: with a uid."""
    stored = copy.deepcopy(job)
    stored["metadata"]["uid"] = uid
    if started:
        stored["status"]["startTime"] = "2026-11-21T08:00:00Z"
    return stored


def edited(job: Json, **spec: Any) -> Json:
    """The Job with other fields in its spec."""
    new = copy.deepcopy(job)
    new["spec"].update(spec)
    return new


def workload(job: Json) -> Workload:
    return cluster_workloads.job(job)


def raw_pod(
    owner: Json | None = None,
    *,
    index: int | None = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    gates: Sequence[str] = (names.GATE,),
    **spec: Any,
) -> Json:
    """A pod under creation by the Job controller of the (stored) Job `owner`; a bare pod when that is None."""
    metadata: Json = {"generateName": "train-7-0-", "namespace": "ml", "creationTimestamp": None}
    pod_labels = dict(labels or {})
    if owner is not None:
        pod_labels |= {names.MANAGED: "true", names.POD_SET: "main"} if labels is None else {}
        if index is not None:
            pod_labels[names.COMPLETION_INDEX] = str(index)
        metadata["ownerReferences"] = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    if pod_labels:
        metadata["labels"] = pod_labels
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    found: Json = {"restartPolicy": "Never", "containers": [gpu_container()], **spec}
    if gates:
        found["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": found, "status": {}}


def review(
    obj: Any,
    *,
    old: Any = None,
    operation: str | None = None,
    user: str = ALICE,
    groups: Sequence[str] = ("system:authenticated",),
    **more: Any,
) -> Review:
    """A review of an object, as decoded from the wire."""
    kind = obj.get("kind", "Job") if isinstance(obj, dict) else "Job"
    served = obj.get("apiVersion") if isinstance(obj, dict) else None
    group, _, version = (served or ("batch/v1" if kind == "Job" else "v1")).rpartition("/")
    request: Json = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": version, "kind": kind},
        "namespace": "ml",
        "name": "train-7",
        "operation": operation or ("CREATE" if old is None else "UPDATE"),
        "userInfo": {"username": user, "groups": list(groups)},
        "object": obj,
        "oldObject": old,
        **more,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return decode_review(json.dumps(body).encode())


def apply(obj: Json, response: Response) -> Json:
    """The object after the answer's patch, applied as the API server does."""
    assert response.allowed
    result: Json = jsonpatch.apply_patch(json.loads(json.dumps(obj)), [dict(one) for one in response.patch])
    assert response.document == (result if response.document is not None or response.patch else None)
    return result


def placed(owner: Workload, hosts: Sequence[str], *, revision: int = 1, count: int = 1) -> Placement:
    """A Placement with `count` ranks on each host, in order; no assignment without hosts."""
    slots = tuple(
        Slot((host.split("-")[0], "-".join(host.split("-")[:2]), host), count, ((at * count, at * count + count - 1),))
        for at, host in enumerate(hosts)
    )
    request = PodSetRequest("main", owner.slots, owner.slots, "rack", None, True, shape_hash(owner.template.shape))
    return Placement(
        namespace=owner.namespace,
        name=gang_key.placement_name(owner.kind, owner.name, owner.uid),
        uid="uid-placement",
        resource_version="1",
        workload=WorkloadRef(owner.api_version, owner.kind, owner.name, owner.uid),
        topology="default",
        priority=0,
        pod_sets=(request,),
        assignment=Assignment(revision, (PodSetPlan("main", slots),)) if hosts else None,
        deleting=False,
        created=0.0,
    )


@dataclass
class FakeView:
    """A view of values: what it is given is what it answers."""

    policy: Policy | None = field(default_factory=default_policy)
    nodes: Sequence[Node] = field(default_factory=lambda: NODES)
    workloads: Sequence[Workload] = ()
    pods: Sequence[Pod] = ()
    placements: Sequence[Placement] = ()
    late: Sequence[Placement] = ()  # what comes while `await_revision` waits
    newcomers: Sequence[Workload] = ()  # what comes while `await_owner` waits
    claimed: frozenset[int] = frozenset()
    planned: Shape | None = None
    taken: frozenset[str] = frozenset()
    reported: Reported = field(default_factory=lambda: Reported(frozenset({"nvidia.com/gpu"})))
    devices: Mapping[str, NodeDevices] = field(default_factory=dict)
    outcome: Outcome | Callable[[PlacementRequest], Outcome] | None = None
    preempts: Preemption | None = None
    resources_fixed: bool = False
    own_username: str = US
    own_namespace: str = "topogate-system"
    forecasts: int = 0
    gangs: int = 0
    no_claims: frozenset[str] = frozenset()  # PersistentVolumeClaims that do not exist

    def __post_init__(self) -> None:
        self.topologies: Mapping[str, Topology] = topologies_of(
            (self.policy or default_policy()).topologies, self.nodes
        )

    def topologies_under(self, policy: Policy) -> Mapping[str, Topology]:
        return topologies_of(policy.topologies, self.nodes)

    @property
    def registry(self) -> Registry:
        return (self.policy or default_policy()).registry

    def find(self, key: Key) -> Link | None:
        return next((one for one in self.pods if object_key(one) == key), None) or self.workload(*key)

    def owners(self, policy: Policy) -> OwnerResolver:
        return OwnerResolver(self.find, policy, self.topologies, self.own_namespace)

    def workload(self, group: str, kind: str, namespace: str, name: str) -> Workload | None:
        return next((one for one in self.workloads if one.key == (group, kind, namespace, name)), None)

    def placement_of(self, key: str) -> Placement | None:
        return next((one for one in self.placements if placed_key(one) == key), None)

    def all_placements(self) -> Sequence[Placement]:
        return tuple(self.placements)

    def await_revision(self, namespace: str, key: str, revision: int, deadline: float) -> Placement | None:
        for one in self.late:
            if placed_key(one) == key and one.assignment is not None and one.assignment.revision >= revision:
                return one
        return None

    def await_owner(self, namespace: str, owner: OwnerRef, deadline: float) -> bool:
        self.workloads = [*self.workloads, *self.newcomers]
        return any((one.namespace, one.uid) == (namespace, owner.uid) for one in self.workloads)

    def await_pod(self, namespace: str, name: str, deadline: float) -> Pod | None:
        return None

    def live_claimants(self, placement: Placement, pod_set: PodSet, rank: int) -> int:
        return int(rank in self.claimed)

    def node(self, name: str) -> Node | None:
        return next((one for one in self.nodes if one.name == name), None)

    def gangs_in(self, namespace: str) -> int:
        return self.gangs

    def topology_of(self, placement: Placement) -> Topology | None:
        return self.topologies.get(placement.topology)

    def planned_shape(self, placement: Placement, pod_set: PodSet) -> Shape | None:
        owner = next((one for one in self.workloads if one.uid == placement.workload.uid), None)
        return self.planned or (pod_set.template.shape if owner else None)

    def slot_lost(self, placement: Placement, host: str, requests: Requests) -> bool:
        return host in self.taken

    def reserved_resource(self, pod: Pod, host: str) -> str | None:
        return "nvidia.com/gpu" if host in self.taken else None

    def allocation(self, placement: Placement, host: str, uses: Uses) -> str | None:
        return allocation(uses, self.devices.get(host))

    def preemption(self, workload: Workload, request: PlacementRequest, deadline: float) -> Preemption | None:
        return self.preempts

    def volumes_left_out(self, workload: Workload) -> tuple[str, ...]:
        return ()

    def missing_claims(self, workload: Workload) -> tuple[str, ...]:
        mounted = (claim for one in workload.pod_sets for claim in one.template.volume_claims)
        return tuple(dict.fromkeys(claim for claim in mounted if claim in self.no_claims))

    def forecast(self, workload: Workload, placement_request: PlacementRequest, deadline: float) -> Outcome | None:
        self.forecasts += 1
        return self.outcome(placement_request) if callable(self.outcome) else self.outcome


def with_policy(**changes: Any) -> Policy:
    """The default policy with some fields changed."""
    return default_policy().model_copy(update=changes)


def gang_view(job: Json, hosts: Sequence[str] = (), **more: Any) -> FakeView:
    """A view in which the stored Job lives, with a Placement on these hosts (one rank each) or a waiting one."""
    owner = replace(workload(job), namespace="ml")
    return FakeView(workloads=[owner], placements=[placed(owner, hosts)], **more)
