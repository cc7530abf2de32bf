"""Clusters in memory as commands see them: hosts, what runs with and without a deadline, and gangs that wait."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.api import names
from tests.support.simulation import BLOCK, RACK, Json, grid, job, node, pod
from webhook.snapshot.files import read_objects
from webhook.snapshot.snapshot import Snapshot, snapshot_of_files

TAKEN = 1_767_227_400.0  # 2026-01-01T00:30:00Z
START = "2026-01-01T00:00:00Z"


def snapshot(objects: Sequence[Json], *, taken: float = TAKEN) -> Snapshot:
    """The snapshot of objects as `kubectl get -o json` prints them."""
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}).encode()
    return snapshot_of_files(read_objects(content, name="cluster.json"), taken=taken)


def runs(name: str, hosts: Sequence[str], *, deadline: int | None = None, namespace: str = "others") -> list[Json]:
    """A Job of no gang with a pod of eight GPUs on each host; `deadline` in seconds after midnight."""
    spec = {} if deadline is None else {"activeDeadlineSeconds": deadline}
    owner = job(name, len(hosts), **spec) | {"status": {"startTime": START}}
    owner["metadata"] |= {"uid": name, "namespace": namespace, "creationTimestamp": START}
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
    pods = [pod(f"{name}-{number}", host, ownerReferences=[reference]) for number, host in enumerate(hosts)]
    for one in pods:
        one["metadata"] |= {"namespace": namespace, "uid": one["metadata"]["name"]}
    return [owner, *pods]


def waits(
    name: str, pods: int, asks: Mapping[str, str], *, minute: int = 10, namespace: str = "alice", **options: Any
) -> Json:
    """A Job that Topogate holds, created in that minute after midnight."""
    found = job(name, pods, asks, **options)
    found["metadata"]["annotations"][names.HELD_BY] = names.HELD_BY_SUSPEND
    found["metadata"] |= {"uid": name, "namespace": namespace, "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z"}
    found["spec"]["suspend"] = True
    return found


def placed(
    name: str, slots: Mapping[str, tuple[str, int]], *, bound: int, namespace: str = "alice", **status: Any
) -> list[Json]:
    """A gang with slots: host -> (domain path, pods); the first `bound` of its pods have their nodes.

    A Job, its Placement and its pods; each pod has eight GPUs.
    """
    count = sum(pods for _, pods in slots.values())
    owner = job(name, count, {"require": "rack"}) | {"status": {"startTime": START, "active": count}}
    owner["metadata"] |= {"uid": name, "namespace": namespace, "creationTimestamp": START}
    listed, rank = [], 0
    hosts: list[str] = []
    for host, (path, pods) in slots.items():
        listed.append(
            {
                "domain": [*path.split("/"), host],
                "count": pods,
                "ranks": f"{rank}-{rank + pods - 1}" if pods > 1 else str(rank),
            }
        )
        hosts += [host] * pods
        rank += pods
    placement = {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {"name": f"job-{name}", "namespace": namespace, "uid": f"p-{name}", "creationTimestamp": START},
        "spec": {
            "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name},
            "topology": "default",
            "priority": 0,
            "podSets": [{"name": "main", "count": count, "minAvailable": count, "require": "rack", "ranked": True}],
            "assignment": {"revision": 1, "podSets": [{"name": "main", "slots": listed}]},
        },
        "status": {"phase": "Running", "message": f"{bound} pods bound", **status},
    }
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
    made = []
    for number in range(bound):
        one = pod(f"{name}-{number}", hosts[number], ownerReferences=[reference])
        one["metadata"] |= {
            "namespace": namespace,
            "uid": f"{name}-{number}",
            "labels": {names.MANAGED: "true", names.GANG: f"job-{name}", names.COMPLETION_INDEX: str(number)},
        }
        made.append(one)
    return [owner, placement, *made]


def waiting_placement(name: str, *, namespace: str = "alice", kept: Sequence[str] = (), **status: Any) -> Json:
    """The Placement of a Job that waits, as the leader has written it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {"name": f"job-{name}", "namespace": namespace, "uid": f"p-{name}", "creationTimestamp": START},
        "spec": {
            "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name},
            "topology": "default",
            "priority": 0,
            "podSets": [{"name": "main", "count": 1, "minAvailable": 1, "require": "rack", "ranked": True}],
        },
        "status": {"phase": "Waiting", "reason": "Fragmented", "message": "old", "keptHosts": list(kept), **status},
    }


def busy_cluster() -> list[Json]:
    """Two blocks of two racks of four hosts: a gang, others with and without a deadline, a cordon, three that wait."""
    nodes = grid(2, 2, 4)
    nodes[9]["spec"]["unschedulable"] = True  # b1-r0-h1
    nodes.append(nodes[0] | {"metadata": {"name": "stray", "labels": {}}})
    return [
        *nodes,
        *placed(
            "train", {"b0-r0-h0": ("b0/b0-r0", 1), "b0-r0-h1": ("b0/b0-r0", 1), "b0-r0-h2": ("b0/b0-r0", 1)}, bound=2
        ),
        *runs("fill", ["b0-r1-h0", "b0-r1-h1", "b0-r1-h2"], deadline=3600),
        *runs("endless", ["b1-r0-h0", "b1-r1-h0", "b1-r1-h1"]),
        waits("wide", 4, {"require": "rack"}, minute=10),
        waiting_placement("wide", waitingSince="2026-01-01T00:10:05Z"),
        waits("later", 4, {"require": "rack"}, minute=15, namespace="bob"),
        waits("small", 2, {"require": "rack"}, minute=20),
        waits("huge", 40, {"require": "rack"}, minute=25),
    ]


def cluster_of_the_pages() -> list[Json]:
    """The cluster that the pages for people show: two blocks of two racks of four hosts."""
    nodes = []
    for number in range(16):
        block, rack = f"block-{number // 8}", f"rack-{number // 4:02}"
        nodes.append(node(f"host-{number:03}", {BLOCK: block, RACK: rack}))
    nodes[14]["spec"]["unschedulable"] = True
    return [
        *nodes,
        *placed("train", {f"host-{one:03}": ("block-0/rack-00", 1) for one in range(4)}, bound=4),
        *runs("tune", ["host-004", "host-005", "host-006"], deadline=3600, namespace="bob"),
        *runs("serve", ["host-008", "host-009", "host-012"], namespace="bob"),
        waits("next", 4, {"require": "rack"}, minute=20),
        waits("more", 4, {"require": "rack"}, minute=25, namespace="bob"),
    ]
