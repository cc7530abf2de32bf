"""A large cluster as the API server lists it: gangs with slots and gangs that wait, pods of no gang, DaemonSets."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.api import names
from webhook.snapshot.files import FileObject

GPUS: Final = 8
START: Final = "2026-01-01T00:00:00Z"
TAKEN: Final = 1_767_227_400.0  # 00:30 of that day
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
HOSTS_OF_A_GANG: Final = 16
DAEMON_PODS: Final = 5
LEVELS: Final = (
    {names.REQUIRE: "rack"},
    {names.REQUIRE: "block"},
    {names.PREFER: "rack"},
    {names.UNCONSTRAINED: "true"},
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """Blocks, racks of each, hosts of each; gangs with slots and gangs that wait."""

    blocks: int
    racks: int
    hosts: int
    placed: int
    waiting: int

    @property
    def all_hosts(self) -> int:
        """The number of hosts."""
        return self.blocks * self.racks * self.hosts


LARGE: Final = Size(10, 32, 32, placed=400, waiting=100)  # 10,240 hosts, 100,000 pods
SMALL: Final = Size(2, 4, 16, placed=5, waiting=3)


def objects(size: Size) -> list[FileObject]:
    """The objects of the cluster as files hold them."""
    return [_listed(one) for one in bodies(size)]


def bodies(size: Size) -> Iterator[Json]:
    """The objects of the cluster one by one, the same in every run: nodes first, then gangs, then other pods.

    Half of the gangs have a pod for each host, half one for each GPU. A quarter of all hosts serve: eight pods of no
    gang. The others are free, some cordoned. Each host has pods of DaemonSets.
    """
    draw = random.Random(size.all_hosts)
    hosts = [
        (f"b{block}", f"b{block}-r{rack:02}", f"b{block}-r{rack:02}-h{host:02}")
        for block in range(size.blocks)
        for rack in range(size.racks)
        for host in range(size.hosts)
    ]
    groups = [hosts[at : at + HOSTS_OF_A_GANG] for at in range(0, len(hosts), HOSTS_OF_A_GANG)]
    draw.shuffle(groups)
    gangs = list(enumerate(groups[: size.placed]))
    left = [host for group in groups[size.placed :] for host in group]
    draw.shuffle(left)
    serving = left[: size.all_hosts // 4 - size.all_hosts // 200]
    cordoned = {name for _, _, name in left[-size.all_hosts // 100 :]}
    yield from (_node(path, cordoned=path[2] in cordoned) for path in hosts)
    for number, members in gangs:
        yield from _placed(f"train-{number:03}", members, each=GPUS if number % 2 else 1)
    for number in range(size.waiting):
        pods = draw.choice((4, 16, 32, 64, 256, 1024))
        yield job(f"next-{number:03}", pods, LEVELS[number % len(LEVELS)], gpus=GPUS, waits=True)
    for number, (_, _, host) in enumerate(serving):
        yield from (
            _pod(f"serve-{number}-{at}", host, gpus=1, owner=("apps/v1", "ReplicaSet", f"serve-{number % 40}"))
            for at in range(GPUS)
        )
    for _, _, host in hosts:
        yield from (
            _pod(
                f"agent-{at}-{host}",
                host,
                gpus=0,
                owner=("apps/v1", "DaemonSet", f"agent-{at}"),
                namespace="kube-system",
            )
            for at in range(DAEMON_PODS)
        )


def _listed(one: Json) -> FileObject:
    group, _, version = one["apiVersion"].rpartition("/")
    return FileObject(
        group=group, version=version, kind=one["kind"], where=one["kind"], source=json.dumps(one).encode()
    )


def _node(path: Sequence[str], *, cordoned: bool) -> Json:
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": path[2],
            "uid": path[2],
            "labels": {BLOCK: path[0], RACK: path[1], "kubernetes.io/os": "linux"},
        },
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _pod(
    name: str,
    host: str,
    *,
    gpus: int,
    owner: tuple[str, str, str],
    namespace: str = "serving",
    labels: Mapping[str, str] | None = None,
) -> Json:
    api, kind, of = owner
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": limits}
    reference = {"apiVersion": api, "kind": kind, "name": of, "uid": f"uid-{of}", "controller": True}
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": dict(labels or {"app": of}),
        "ownerReferences": [reference],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": host, "containers": [{"name": "main", "image": "x", "resources": resources}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def job(name: str, pods: int, asks: Mapping[str, str], *, gpus: int, waits: bool) -> Json:
    """A Job of so many pods with annotations: one that waits, or one that runs."""
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": str(gpus)}}
    number = int(name.rpartition("-")[2])
    held = {names.HELD_BY: names.HELD_BY_SUSPEND} if waits else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "research",
            "uid": f"uid-{name}",
            "creationTimestamp": START,
            "annotations": {**asks, **held},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "suspend": waits,
            # A third declares an end within the next hours, so that there is something to forecast.
            **({} if number % 3 else {"activeDeadlineSeconds": 7_200 + 600 * (number % 30)}),
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "x", "resources": resources}],
                }
            },
        },
        "status": {} if waits else {"startTime": START, "active": pods},
    }


def _placed(name: str, hosts: Sequence[Sequence[str]], *, each: int) -> Iterator[Json]:
    """A gang with a pod of `each` GPUs in every slot: its Job, its Placement and its pods."""
    pods = GPUS // each
    slots = [
        {"domain": list(path), "count": pods, "ranks": f"{at * pods}-{(at + 1) * pods - 1}" if pods > 1 else str(at)}
        for at, path in enumerate(hosts)
    ]
    count = pods * len(hosts)
    yield job(name, count, {names.REQUIRE: "block"}, gpus=each, waits=False)
    yield {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {
            "name": f"job-{name}",
            "namespace": "research",
            "uid": f"uid-p-{name}",
            "creationTimestamp": START,
        },
        "spec": {
            "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}"},
            "topology": "default",
            "priority": 0,
            "podSets": [{"name": "main", "count": count, "minAvailable": count, "require": "block", "ranked": True}],
            "assignment": {"revision": 1, "podSets": [{"name": "main", "slots": slots}]},
        },
        "status": {"phase": "Running", "message": f"{count} pods bound"},
    }
    labels = {names.MANAGED: "true", names.GANG: f"job-{name}"}
    for rank in range(count):
        yield _pod(
            f"{name}-{rank}",
            hosts[rank // pods][2],
            gpus=each,
            owner=("batch/v1", "Job", name),
            namespace="research",
            labels={**labels, names.COMPLETION_INDEX: str(rank)},
        )
