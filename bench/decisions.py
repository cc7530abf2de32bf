"""What a leader's decision for a gang with `auto`, a profile or a separation costs, beside one for a plain gang.

Clusters of 8 racks a block and 16 hosts a rack with a gang for each 13 hosts or so. Each decision comes after a change:
one of the placed gangs loses its slots, or has them again. `plain` is decided where no gang is kept apart, the others
also where one in ten is exclusive and one in ten is of a spread group.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.table import Table

from bench import results
from engine.api import names
from engine.api.objects import Node
from engine.api.placement import Placement
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding.workloads import workload
from engine.gang.gang import Gang
from engine.gang.key import keys_of
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_gang

HOSTS_IN_RACK, RACKS_IN_BLOCK = 16, 8
HOSTS_A_GANG = 12.8
SIZES = (1_024, 10_240)
RACK = {names.REQUIRE: "rack"}
EXCLUSIVE = {**RACK, names.EXCLUSIVE: "rack"}
SPREAD = {**RACK, names.SPREAD: "rack", names.SPREAD_GROUP: "web"}
PLAIN, APART = "without such gangs", "beside such gangs"

# What is decided, its annotations, where.
DECISIONS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "plain": (RACK, PLAIN),
    "auto": ({names.REQUIRE: names.AUTO}, PLAIN),
    "balanced": ({names.REQUIRE: "block", names.PROFILE: "balanced"}, PLAIN),
    "exclusive": (EXCLUSIVE, PLAIN),
    "spread": (SPREAD, PLAIN),
    "plain, beside": (RACK, APART),
    "exclusive, beside": (EXCLUSIVE, APART),
    "spread, beside": (SPREAD, APART),
}
# The decision that each is held against: as plain as it can be with the same level.
BASES: Mapping[str, Mapping[str, str]] = {"balanced": {names.REQUIRE: "block"}}


@dataclass(slots=True)
class Cluster:
    """A cluster with placed gangs; `change` lets one of them lose its slots, or have them again."""

    state: ClusterState
    placed: list[tuple[GangKey, Placement]]
    rng: random.Random
    gone: tuple[GangKey, Placement] | None = None

    def change(self) -> None:
        """Change the slots of one gang."""
        if self.gone is not None:
            self.state.assume(*self.gone)
            self.gone = None
        else:
            self.gone = self.rng.choice(self.placed)
            self.state.assume(self.gone[0], replace(self.gone[1], assignment=None))

    def submit(self, name: str, pods: int, annotations: Mapping[str, str]) -> Gang:
        """Add a Job that waits; its gang."""
        return submitted(self.state, name, pods, annotations)


def submitted(
    state: ClusterState, name: str, pods: int, annotations: Mapping[str, str], *, priority_class: str | None = None
) -> Gang:
    """Add a Job as our webhook leaves it; its gang."""
    container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    labels = {names.MANAGED: "true", names.POD_SET: "main"}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "schedulingGates": [{"name": names.GATE}], "restartPolicy": "Never"},
    }
    if priority_class is not None:
        template["spec"]["priorityClassName"] = priority_class
    body: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {**annotations, names.HELD_BY: names.HELD_BY_SUSPEND},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "suspend": True,
            "template": template,
        },
    }
    entry = state.registry.find("batch", "Job", "v1")
    assert entry is not None
    found = workload(json.dumps(body).encode(), entry=entry, registry=state.registry)
    state.stores.workloads.apply("ADDED", found)
    state.refresh()
    gang = state.gangs.get(keys_of(found)[0])
    assert gang is not None
    return gang


def nodes(hosts: int) -> Iterator[Node]:
    """The hosts, in blocks and racks."""
    for number in range(hosts):
        rack = number // HOSTS_IN_RACK
        yield Node(
            name=f"h{number}",
            uid=f"u{number}",
            resource_version="1",
            labels={
                "cloud.provider.com/topology-block": f"b{rack // RACKS_IN_BLOCK}",
                "cloud.provider.com/topology-rack": f"r{rack}",
            },
            allocatable={"cpu": 96_000, "memory": 1 << 20, "pods": 110, "nvidia.com/gpu": 8},
            taints=(),
            unschedulable=False,
            ready=True,
            settled_at=0.0,
        )


def cluster(hosts: int, *, apart: bool) -> Cluster:
    """A cluster with its gangs placed; `apart`: one in ten exclusive, one in ten of a spread group."""
    state, rng = ClusterState(Stores()), random.Random(hosts)
    state.stores.nodes.replace(list(nodes(hosts)))
    state.refresh()
    placed = []
    for number in range(round(hosts / HOSTS_A_GANG)):
        asked = {0: EXCLUSIVE, 1: SPREAD}.get(number % 10, RACK) if apart else RACK
        gang = submitted(state, f"placed-{number}", rng.choice((2, 4, 8, 12)), asked)
        outcome = schedule_gang(state, gang)
        if isinstance(outcome, Placed):
            placement = new_placement(gang, outcome, priority=0, now=0.0)
            state.assume(gang.key, placement)
            placed.append((gang.key, placement))
    return Cluster(state, placed, rng)


def microseconds(state: ClusterState, gang: Gang) -> tuple[float, str]:
    """How long one decision takes, and what it says."""
    began = time.perf_counter()
    with state.lock:
        outcome = schedule_gang(state, gang)
    took = (time.perf_counter() - began) * 1e6
    return took, "placed" if isinstance(outcome, Placed) else outcome.reason


def measure(hosts: int, pods: int, rounds: int) -> list[dict[str, Any]]:
    """The median of every decision, and of its ratios to a plain one of the same round."""
    clusters = {PLAIN: cluster(hosts, apart=False), APART: cluster(hosts, apart=True)}
    asked: dict[str, tuple[Cluster, Gang]] = {}
    for name, (asks, where) in DECISIONS.items():
        asked[name] = clusters[where], clusters[where].submit(name.replace(", ", "-"), pods, asks)
        if name in BASES:
            asked[f"{name}/base"] = clusters[where], clusters[where].submit(f"{name}-base", pods, BASES[name])
    times: dict[str, list[float]] = {name: [] for name in asked}
    answers: dict[str, set[str]] = {name: set() for name in asked}
    order = list(asked)
    for number in range(rounds):
        for name in order[number % len(order) :] + order[: number % len(order)]:
            there, gang = asked[name]
            there.change()
            took, answer = microseconds(there.state, gang)
            times[name].append(took)
            answers[name].add(answer)
    return [
        {
            "hosts": hosts,
            "placed": len(asked[name][0].placed),
            "decision": name,
            "pods": pods,
            "us": median(times[name]),
            "ratio": median(times[name]) / median(times[f"{name}/base" if name in BASES else "plain"]),
            "answer": ", ".join(sorted(answers[name])),
        }
        for name in DECISIONS
    ]


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.decisions", description=__doc__)
    parser.add_argument("--hosts", type=int, action="append", help="sizes (1024, 10240)")
    parser.add_argument("--pods", type=int, action="append", help="pods of the gangs that are decided (4, 16)")
    parser.add_argument("--rounds", type=int, default=150, help="decisions of each sort (150)")
    options = parser.parse_args()
    console = results.console(110)
    table = Table(box=None, pad_edge=False)
    for column in ("HOSTS", "GANGS", "PODS", "DECISION", "us", "RATIO", "ANSWER"):
        table.add_column(column, justify="left" if column in ("DECISION", "ANSWER") else "right")
    rows = [
        row
        for hosts in options.hosts or SIZES
        for pods in options.pods or (4, 16)
        for row in measure(hosts, pods, options.rounds)
    ]
    for row in rows:
        cells = (f"{row['hosts']:,}", f"{row['placed']:,}", str(row["pods"]), row["decision"], f"{row['us']:.0f}")
        table.add_row(*cells, f"{row['ratio']:.2f} x", row["answer"])
    console.print(table)
    console.print(f"written to {results.write('decisions', {'rows': rows})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
