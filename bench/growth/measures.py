"""What is measured of a leader in a cluster of one size; each figure is of the processor, in milliseconds."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final

from bench.growth.leader import BenchLeader, Json
from bench.map.cluster import GPUS, HOSTS_OF_A_GANG, Size, bodies, job
from engine.api import names
from engine.api.duration import timestamp
from engine.gang.key import keys_of
from engine.scheduler.schedule import schedule_gang
from webhook.service.runtime import GC_THRESHOLDS

RACK: Final = {names.REQUIRE: "rack"}
BLOCK: Final = {names.REQUIRE: "block"}
HOSTS_OF_A_BLOCK: Final = 1024


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster: hosts in blocks of 32 racks of 32, and gangs that wait for a rack; `full`: gangs use all hosts."""

    hosts: int
    waiting: int
    full: bool = False

    def size(self) -> Size:
        """Return it as blocks, racks and gangs; raises ValueError unless the hosts are whole blocks."""
        blocks, rest = divmod(self.hosts, HOSTS_OF_A_BLOCK)
        if rest or not blocks:
            raise ValueError(f"{self.hosts} hosts are not blocks of {HOSTS_OF_A_BLOCK}")
        groups = self.hosts // HOSTS_OF_A_GANG
        return Size(blocks, 32, 32, placed=groups if self.full else groups * 5 // 8, waiting=0)

    def bodies(self) -> Iterator[Json]:
        """Iterate over its objects."""
        # More hosts than a rack has free, so that they wait; where the cluster is full, those of one freed gang.
        pods = HOSTS_OF_A_GANG if self.full else 32
        # Young ones: those that have waited longer than the policy's patience have hosts kept for them.
        return chain(
            bodies(self.size()),
            (_young(job(f"wait-{at:05}", pods, RACK, gpus=GPUS, waits=True)) for at in range(self.waiting)),
        )


@dataclass(slots=True)
class Figures:
    """Memory in MiB; times in ms: of one pass of the control loop that begins a term or follows an event."""

    hosts: int
    pods: int
    running: int
    waiting: int
    memory: float
    begin: float
    idle: float
    pod_event: float
    node_event: float
    node_joins: float
    plan_rack: float
    plan_block: float
    freed: float | None  # a gang ended, until the first waiting one has its hosts; None where the cluster is not full
    freed_all: float | None  # until the leader is at rest again

    def row(self) -> dict[str, float | None]:
        """Return them by name."""
        return asdict(self)


def _young(body: Json) -> Json:
    return {**body, "metadata": {**body["metadata"], "creationTimestamp": timestamp(time.time())}}


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def measure(scene: Scene, *, rounds: int) -> Figures:
    """Make the cluster, let the leader come to rest, and measure; medians of `rounds`."""
    before = resident()
    leader = BenchLeader()
    leader.read(scene.bodies())
    gc.collect()
    begin = leader.turn()
    leader.write()
    leader.settle()
    gc.collect()
    gc.freeze()  # this and the thresholds as `topogate serve` has them once its caches are full
    gc.set_threshold(*GC_THRESHOLDS)
    memory = resident() - before
    return Figures(
        hosts=scene.hosts,
        pods=len(leader.stores.pods.values()),
        running=sum(one.assignment is not None for one in leader.stores.placements.values()),
        waiting=scene.waiting,
        memory=memory,
        begin=begin * 1e3,
        idle=_median(leader.turn, rounds),
        pod_event=_median(_pod_events(leader), rounds),
        node_event=_median(_node_events(leader), rounds),
        node_joins=_median(_joining_nodes(leader), rounds),
        plan_rack=_median(_plans(leader, 16, RACK), rounds),
        plan_block=_median(_plans(leader, 256, BLOCK), rounds),
        **_freed(leader, rounds) if scene.full else {"freed": None, "freed_all": None},
    )


def _median(once: Callable[[], float], rounds: int) -> float:
    return median(once() for _ in range(rounds)) * 1e3


def _pod_events(leader: BenchLeader) -> Callable[[], float]:
    """A pod of a running gang is written by its kubelet."""
    pods = iter([one for one in leader.stores.pods.values() if names.GANG in one.spec.labels])

    def once() -> float:
        pod = next(pods)
        leader.stores.pods.apply("MODIFIED", replace(pod, resource_version=leader.hands.version(), phase="Pending"))
        took = leader.turn()
        leader.stores.pods.apply("MODIFIED", replace(pod, resource_version=leader.hands.version()))
        leader.settle()
        return took

    return once


def _node_events(leader: BenchLeader) -> Callable[[], float]:
    """A host of a running gang is cordoned, and open again."""
    used = {one.spec.node_name for one in leader.stores.pods.values() if names.GANG in one.spec.labels}
    nodes = iter([one for one in leader.stores.nodes.values() if one.name in used and not one.unschedulable])

    def once() -> float:
        node = next(nodes)
        leader.stores.nodes.apply(
            "MODIFIED", replace(node, resource_version=leader.hands.version(), unschedulable=True)
        )
        took = leader.turn()
        leader.settle()
        leader.stores.nodes.apply("MODIFIED", replace(node, resource_version=leader.hands.version()))
        leader.settle()
        return took

    return once


def _joining_nodes(leader: BenchLeader) -> Callable[[], float]:
    """A node joins that can hold no pod yet, and is gone again."""
    like = next(iter(leader.stores.nodes.values()))

    def once() -> float:
        new = replace(like, name=f"new-{leader.hands.version()}", unschedulable=True)
        leader.stores.nodes.apply("ADDED", replace(new, resource_version=leader.hands.version()))
        took = leader.turn()
        leader.settle()
        leader.stores.nodes.apply("DELETED", replace(new, resource_version=leader.hands.version()))
        leader.settle()
        return took

    return once


def _plans(leader: BenchLeader, pods: int, asks: dict[str, str]) -> Callable[[], float]:
    """One decision for a gang after a change of one host."""
    [record] = [leader.record(job(f"plan-{pods}", pods, asks, gpus=GPUS, waits=True))]
    leader.stores.workloads.apply("ADDED", record)
    leader.state.refresh()
    gang = leader.state.gangs.get(keys_of(record)[0])
    leader.stores.workloads.apply("DELETED", record)
    leader.state.refresh()
    assert gang is not None
    nodes = iter(leader.stores.nodes.values())

    def once() -> float:
        node = next(nodes)
        leader.stores.nodes.apply(
            "MODIFIED", replace(node, resource_version=leader.hands.version(), unschedulable=not node.unschedulable)
        )
        leader.settle()
        began = time.thread_time()
        with leader.state.lock:
            schedule_gang(leader.state, gang)
        took = time.thread_time() - began
        leader.stores.nodes.apply("MODIFIED", replace(node, resource_version=leader.hands.version()))
        leader.settle()
        return took

    return once


def _freed(leader: BenchLeader, rounds: int) -> dict[str, float | None]:
    """A gang finishes: the first waiting one gets its hosts, and the others move up."""
    first, rest = [], []
    for number in range(rounds):
        workload = leader.stores.workloads.get(("batch", "Job", "research", f"train-{number:03}"))
        assert workload is not None
        version = leader.hands.version()
        for pod in [one for one in leader.stores.pods.values() if one.owner and one.owner.uid == workload.uid]:
            leader.stores.pods.apply("MODIFIED", replace(pod, resource_version=version, phase="Succeeded"))
        leader.stores.workloads.apply("MODIFIED", replace(workload, resource_version=version, finished=True))
        known, began = len(leader.hands.of("place")), time.thread_time()
        while len(leader.hands.of("place")) == known:
            leader.turn()
            leader.write()
        first.append(time.thread_time() - began)
        leader.settle()
        rest.append(time.thread_time() - began)
    return {"freed": median(first) * 1e3, "freed_all": median(rest) * 1e3}
