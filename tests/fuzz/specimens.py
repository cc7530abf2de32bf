"""Valid inputs, of which all others are made: objects of every kind that we serve, nodes, devices, policies, files."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import Any, Final

import yaml

from bench.gang import JOB, UID, PlacedGang
from engine.api import names
from engine.gang.key import placement_name
from local import nodes as local_nodes
from local.nodes import Grid
from tests.fuzz.schemas import ROOT, drawn, placement_schema, policy_schema, values_of
from tests.support.kinds import FILES, example, merged

Json = dict[str, Any]
GRID: Final = Grid(2, 2, 4)
HOSTS: Final = ("host-000", "host-001", "host-005")  # of the grid, with devices
RACK: Final = {names.REQUIRE: "rack"}
DEVICE_API: Final = "scheduling.koordinator.sh/v1alpha1"


@dataclass(frozen=True)
class Specimens:
    """What the fuzzer starts from; `workloads` are pods too."""

    workloads: list[Json]
    nodes: list[Json]
    devices: list[Json]
    policies: list[Json]
    placements: list[Json]
    others: list[Json]  # what else is watched
    files: list[str]  # YAML of workloads, for simulate


def specimens(chance: int, *, drawn_each: int = 150) -> Specimens:
    """The same ones for the same `chance`, which decides those that the schemas give."""
    rng = random.Random(chance)
    policies = [
        {"topologies": [{"name": "default", "preset": "demo"}], "nodes": {"settle": "0s"}},
        yaml.safe_load(yaml.safe_load((ROOT / "manifests/samples/policy.yaml").read_text())["data"]["policy.yaml"]),
        yaml.safe_load((ROOT / "examples/demo/preempting-policy.yaml").read_text()),
        *drawn(values_of(policy_schema()), count=drawn_each, chance=chance),
    ]
    placements = drawn(values_of(placement_schema()), count=drawn_each, chance=chance)
    return Specimens(
        workloads=_workloads(),
        nodes=[_at_a_time(one) for one in local_nodes.grid_nodes(GRID)],
        devices=[_device_object(rng, host) for host in HOSTS],
        policies=[one for one in policies if isinstance(one, dict)],
        placements=[_named(one) for one in placements],
        others=_others(),
        files=[path.read_text() for path in sorted((ROOT / "examples").glob("*.yaml")) if path.name != "cluster.yaml"],
    )


def _at_a_time(node: Json) -> Json:
    """The node with the same times in every run."""
    times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-11-23T00:00:00Z")
    conditions = [{**one, **times} for one in node["status"]["conditions"]]
    return {**node, "status": {**node["status"], "conditions": conditions}}


def _workloads() -> list[Json]:
    gang = PlacedGang.make(GRID, pods=4, annotations=RACK)
    found: list[Json] = []
    for path in FILES:
        kind = example(path.stem)
        one = kind["object"]
        variants = [merged(one, variant["merge"]) for variant in kind.get("variants", ()) if "merge" in variant]
        for variant in (one, *variants):
            asking = copy.deepcopy(variant)
            asking.setdefault("metadata", {}).setdefault("annotations", {}).update(RACK)
            found += [asking]
        found.append(one)
    new = copy.deepcopy(gang.job)
    new["metadata"] = {"name": "new", "namespace": "ml", "annotations": dict(RACK)}
    new["spec"]["template"]["metadata"] = {"annotations": {names.SLICE_TOPOLOGY: "host", names.SLICE_SIZE: "2"}}
    members = [gang.pod(rank) for rank in (0, 3)]
    alone = gang.pod(1)
    alone["metadata"] = {"name": "alone", "namespace": "ml", "annotations": dict(RACK)}
    grouped = copy.deepcopy(alone)
    grouped["metadata"]["annotations"] |= {names.GANG_NAME: "g", names.GANG_SIZE: "2"}
    shared = copy.deepcopy(alone)
    shared["metadata"]["annotations"] = {
        names.DEVICE_ALLOCATED: '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50"}}]}'
    }
    shared["spec"]["containers"][0]["resources"] = {
        "limits": {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    }
    return [*found, gang.job, new, *members, alone, grouped, shared]


def _device_object(rng: random.Random, host: str) -> Json:
    def device(kind: str, minor: int) -> Json:
        amounts = {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory-ratio": "100",
            "koordinator.sh/gpu-memory": "80Gi",
        }
        return {
            "type": kind,
            "minor": minor,
            "id": f"{kind}-{minor}",
            "health": rng.random() < 0.9,
            "resources": amounts if kind == "gpu" else {"koordinator.sh/rdma": "100"},
            "topology": {
                "socketID": minor // 4,
                "nodeID": minor // 4,
                "pcieID": f"p{minor // 2}",
                "busID": f"0000:0{minor}:00.0",
            },
            "labels": {"model": "a"},
        }

    devices = [*(device("gpu", minor) for minor in range(8)), *(device("rdma", minor) for minor in range(2))]
    devices[-1]["vfGroups"] = [
        {
            "labels": {"type": "fast"},
            "vfs": [{"minor": 0, "busID": "0000:1f:00.2"}, {"minor": 1, "busID": "0000:1f:00.3"}],
        }
    ]
    metadata = {"name": host, "annotations": {"scheduling.koordinator.sh/gpu-partitions": '{"2":[{"minors":[0,1]}]}'}}
    return {"apiVersion": DEVICE_API, "kind": "Device", "metadata": metadata, "spec": {"devices": devices}}


def _named(placement: Json) -> Json:
    """With the metadata that the API server would insist on, of the gang that is there."""
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": JOB, "uid": UID}
    name = placement_name("Job", JOB, UID)
    labels = {names.GANG: name}
    metadata = {"name": name, "namespace": "ml", "uid": "p1", "resourceVersion": "7", "labels": labels}
    spec = {**placement.get("spec", {}), "workload": workload}
    identity = {"apiVersion": names.API_VERSION, "kind": names.PLACEMENT_KIND, "metadata": metadata}
    return {**placement, **identity, "spec": spec}


def _others() -> list[Json]:
    def one(version: str, kind: str, name: str, **fields: Any) -> Json:
        metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "5"}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}

    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    hard = {"pods": "5", "requests.nvidia.com/gpu": "16"}
    scope = {
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    }
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "m", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
    }
    selector = {"matchLabels": {"app": "train"}}
    members = [
        {"type": "Node", "selector": {"exactMatch": {"name": HOSTS[0]}}},
        {"type": "Node", "selector": {"regexMatch": {"pattern": "host-00.*"}}},
    ]
    return [
        one("v1", "ResourceQuota", "quota", spec={"hard": hard, **scope}, status={"hard": hard, "used": {"pods": "1"}}),
        one("apps/v1", "DaemonSet", "agent", spec={"template": template}),
        one("v1", "PersistentVolume", "pv", spec={"nodeAffinity": {"required": terms}}),
        one("v1", "PersistentVolumeClaim", "claim", spec={"volumeName": "pv", "storageClassName": "fast"}),
        one(
            "storage.k8s.io/v1",
            "StorageClass",
            "fast",
            allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
        ),
        one(
            "policy/v1", "PodDisruptionBudget", "budget", spec={"selector": selector}, status={"disruptionsAllowed": 1}
        ),
        one("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000, globalDefault=False),
        one(
            "node.k8s.io/v1",
            "RuntimeClass",
            "kata",
            overhead={"podFixed": {"cpu": "250m"}},
            scheduling={"nodeSelector": {"a": "b"}},
        ),
        one("scheduling.x-k8s.io/v1alpha1", "PodGroup", "group", spec={"minMember": 2}),
        one("topology.volcano.sh/v1alpha1", "HyperNode", "h0", spec={"tier": 1, "members": members}),
        one(
            "kueue.x-k8s.io/v1beta1",
            "Topology",
            "default",
            spec={"levels": [{"nodeLabel": "zone"}, {"nodeLabel": "kubernetes.io/hostname"}]},
        ),
    ]
