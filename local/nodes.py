"""Simulated GPU nodes: blocks of racks of hosts, made in parallel, and what can happen to a node."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from local.client import Client
from local.commands import SIMULATED

BLOCK: Final = "cloud.provider.com/topology-block"
RACK: Final = "cloud.provider.com/topology-rack"
HOSTNAME: Final = "kubernetes.io/hostname"

NODES: Final = "/api/v1/nodes"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PARALLEL = 16
READY_SECONDS = 180.0
MAX_HOSTS = 20_000
SEEN_SECONDS = 180.0  # kwok sees a node in 20 ms mostly, and on a busy machine seconds later
UNDO_SECONDS = 1.0  # kwok undoes Ready=False in 20 ms
NODE_INFO: Final = {
    "architecture": "amd64",
    "operatingSystem": "linux",
    "kubeletVersion": "simulated",
    **dict.fromkeys(
        (
            "bootID",
            "containerRuntimeVersion",
            "kernelVersion",
            "kubeProxyVersion",
            "machineID",
            "osImage",
            "systemUUID",
        ),
        "",
    ),
}


@dataclass(frozen=True, slots=True)
class HostShape:
    """What one host offers, as Kubernetes quantities; `extended_placement` for any other resource."""

    cpu: str = "96"
    memory: str = "1Ti"
    pods: str = "110"
    gpus: int = 8
    extended: Mapping[str, str] = field(default_factory=dict)

    def resources(self) -> dict[str, str]:
        """Return allocatable (and capacity, which is the same here)."""
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        return {"cpu": self.cpu, "memory": self.memory, "pods": self.pods, **gpus, **self.extended}


@dataclass(frozen=True, slots=True)
class Grid:
    """`blocks` blocks of `racks` racks of `hosts` hosts each; racks and hosts are numbered through."""

    blocks: int
    racks: int
    hosts: int

    def __post_init__(self) -> None:
        """Refuse what no machine can simulate."""
        if min(self.blocks, self.racks, self.hosts) < 1 or self.size > MAX_HOSTS:
            raise ValueError(f"a grid needs 1 to {MAX_HOSTS} hosts, not {self}")

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{self.blocks}x{self.racks}x{self.hosts}"

    @property
    def size(self) -> int:
        """The number of hosts."""
        return self.blocks * self.racks * self.hosts

    @classmethod
    def parse(cls, text: str) -> Grid:
        """Read "2x4x4": 2 blocks of 4 racks of 4 hosts. Raises ValueError."""
        if not (found := re.fullmatch(r"(\d{1,5})x(\d{1,5})x(\d{1,5})", text.strip(), re.ASCII)):
            raise ValueError(f"expected BLOCKSxRACKSxHOSTS such as 2x4x4, got {text[:63]!r}")
        return cls(*map(int, found.groups()))


def grid_nodes(
    grid: Grid,
    *,
    prefix: str = "",
    shape: HostShape | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> list[dict[str, Any]]:
    """Return the bodies of a grid's nodes, in tree order.

    Names and label values ("block-0", "rack-03", "host-012") all start with `prefix`, so that two grids in one cluster
    share no domain.
    """
    per_block = grid.racks * grid.hosts
    bodies = []
    for number in range(grid.size):
        places = {
            BLOCK: f"{prefix}block-{number // per_block}",
            RACK: f"{prefix}rack-{number // grid.hosts:02}",
            **(labels or {}),
        }
        bodies.append(node(f"{prefix}host-{number:03}", shape=shape, labels=places, taints=taints))
    return bodies


def node(
    name: str,
    *,
    shape: HostShape | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return the body of one simulated node, born Ready.

    The API server puts its not-ready taint on every new node all the same, and the node controller takes it off. Nodes
    that kwok has to make Ready first took 6.8 s for 512, these 4.1 s.
    """
    resources = (shape or HostShape()).resources()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                HOSTNAME: name,
                SIMULATED: "fake",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **(labels or {}),
            },
        },
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "127.0.0.1"}],
            "conditions": [_ready_condition(status="True", reason="KubeletReady")],
            "nodeInfo": NODE_INFO,
            "phase": "Running",
        },
    }


def add(
    client: Client,
    bodies: Iterable[Mapping[str, Any]],
    *,
    wait: bool = True,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Create nodes in parallel; with `wait`, return once all are Ready and schedulable, and kwok has their Leases.

    Returns their names.
    """
    wanted = list(bodies)
    with ThreadPoolExecutor(PARALLEL) as pool:
        names = [made["metadata"]["name"] for made in pool.map(lambda body: client.create(NODES, body), wanted)]
    deadline = clock() + READY_SECONDS
    while wait and (late := unready(client, names)):
        if clock() > deadline:
            shown = ", ".join(sorted(late)[:5])
            raise TimeoutError(f"{len(late)} of {len(names)} nodes are not Ready after {READY_SECONDS:.0f} s: {shown}")
        sleep(0.1)
    return names


def unready(client: Client, names: Iterable[str]) -> set[str]:
    """Return those of `names` that are absent, not Ready, without a kubelet, or still carry the taint of a new node.

    kwok starts no pod of a node without its Lease, and does not always come back to the pods that it left. A node that
    returns under its name has the Lease of the one before at first, which the garbage collector takes away.
    """
    leases = {lease["metadata"]["name"]: _owner(lease) for lease in client.items(LEASES)}

    def able(body: Mapping[str, Any]) -> bool:
        meta = body["metadata"]
        simulated = meta.get("labels", {}).get(SIMULATED) == "fake"
        return _ready(body) and (not simulated or leases.get(meta["name"]) == meta["uid"])

    return set(names) - {body["metadata"]["name"] for body in client.items(NODES) if able(body)}


def _owner(lease: Mapping[str, Any]) -> str | None:
    """The uid of the node that a Lease belongs to."""
    return next((owner["uid"] for owner in lease["metadata"].get("ownerReferences", ())), None)


def remove(client: Client, names: Iterable[str]) -> None:
    """Delete nodes and their Leases in parallel.

    Their pods stay bound to nothing until the garbage collector takes them. A Lease that it has to take as well would
    keep a node that returns under its name without a kubelet for ten seconds.
    """

    def gone(name: str) -> None:
        client.delete(f"{NODES}/{name}")
        client.delete(f"{LEASES}/{name}")

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(gone, names))


def cordon(client: Client, name: str) -> None:
    """Let no new pod come."""
    client.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})


def uncordon(client: Client, name: str) -> None:
    """Let pods come again."""
    client.patch(f"{NODES}/{name}", {"spec": {"unschedulable": False}})


def fail(
    client: Client,
    name: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make a node NotReady as if its host had died: its Lease ages, and its pods neither start nor terminate."""
    leave(client, name)
    await_seen(client, name, clock=clock, sleep=sleep)
    keep_failed(client, name)


def leave(client: Client, name: str) -> None:
    """Take the label from a node that kwok goes by, which then leaves the node and its pods alone once it sees that."""
    client.patch(f"{NODES}/{name}", {"metadata": {"labels": {SIMULATED: None}}})


def await_seen(
    client: Client,
    name: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once kwok has seen all that was written to nodes before: it makes a node Ready that came after it.

    `name`: a node that was written, for the probe's name and the error.
    """
    probe = f"probe-{name}"
    client.create(NODES, {**node(probe, shape=HostShape(gpus=0)), "spec": {"unschedulable": True}})
    try:
        deadline = clock() + SEEN_SECONDS
        while not _made_ready(client, probe, clock=clock, sleep=sleep):
            if clock() > deadline:
                raise TimeoutError(f"kwok has not seen in {SEEN_SECONDS:.0f} s what was written to {name}")
    finally:
        client.delete(f"{NODES}/{probe}")


def _made_ready(client: Client, name: str, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> bool:
    """Make a node NotReady; True when kwok undoes that in a second."""
    _set_ready(client, name, status="False", reason="KubeletNotReady")
    deadline = clock() + UNDO_SECONDS
    while clock() < deadline:
        if _condition(client.get(f"{NODES}/{name}")) == "True":
            return True
        sleep(0.02)
    return False


def keep_failed(client: Client, name: str) -> None:
    """Make a node that kwok leaves alone NotReady, if it is not."""
    if _condition(client.get(f"{NODES}/{name}")) == "True":
        _set_ready(client, name, status="False", reason="KubeletNotReady")


def recover(client: Client, name: str) -> None:
    """Undo `fail`: Ready at once; kwok takes up the node and its pods again when it sees it."""
    client.patch(f"{NODES}/{name}", {"metadata": {"labels": {SIMULATED: "fake"}}})
    _set_ready(client, name, status="True", reason="KubeletReady")


def _set_ready(client: Client, name: str, *, status: str, reason: str) -> None:
    conditions = [_ready_condition(status=status, reason=reason)]
    client.patch(f"{NODES}/{name}/status", {"status": {"conditions": conditions}}, kind="strategic")


def _ready_condition(*, status: str, reason: str) -> dict[str, str]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    stamps = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": "Ready", "status": status, "reason": reason, "message": "set by local/nodes.py", **stamps}


def _ready(body: Mapping[str, Any]) -> bool:
    taints = body["spec"].get("taints", [])
    return _condition(body) == "True" and not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in taints)


def _condition(body: Mapping[str, Any]) -> str | None:
    conditions = body["status"].get("conditions", [])
    return next((condition["status"] for condition in conditions if condition["type"] == "Ready"), None)
