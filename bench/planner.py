"""What a decision of the planner costs: cold, warm, and after one host changed, beside plain scans in the same run.

Clusters of 8 racks a block and 16 hosts a rack (8 GPUs each), loaded at random to about 90 %, at several sizes. The
plain scans only answer "which racks have room": one loop in Python, one expression in numpy.
"""

from __future__ import annotations

import gc
import math
import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from bench import results
from engine.api.objects import Node
from engine.api.pod import Shape
from engine.capacity.capacity import Capacity
from engine.planner.plan import Plan, PlanRequest, SlotIndex, plan
from engine.planner.tree import Tree, build_tree
from engine.topology.levels import presets
from engine.topology.topology import build_topology

HOSTS_IN_RACK, RACKS_IN_BLOCK = 16, 8
BLOCK, RACK, HOST = range(3)
GPUS = 8
SIZES = (1_024, 10_240, 100_096)
REQUESTS = {
    "1 pod of 1 GPU": (1, PlanRequest(1)),
    "4 hosts, require rack": (8, PlanRequest(4, require=RACK)),
    "16 hosts, require rack": (8, PlanRequest(16, require=RACK)),
    "64 hosts, require block": (8, PlanRequest(64, require=BLOCK)),
    "32 hosts, prefer rack": (8, PlanRequest(32, prefer=RACK)),
    "256 hosts, prefer rack": (8, PlanRequest(256, prefer=RACK)),
    "64 hosts, unconstrained": (8, PlanRequest(64)),
}
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one request on one size, in microseconds: p50 and p99 where there are two."""

    hosts: int
    request: str
    warm: tuple[float, float]
    cold: float
    update: float
    python_scan: float
    numpy_scan: float
    answer: str


def tree_of(hosts: int) -> Tree:
    """A regular tree of so many hosts."""
    racks = hosts // HOSTS_IN_RACK
    paths = (
        (f"b{rack // RACKS_IN_BLOCK}", f"r{rack}", f"h{rack * HOSTS_IN_RACK + host}")
        for rack in range(racks)
        for host in range(HOSTS_IN_RACK)
    )
    return build_tree(("block", "rack", "host"), paths)


def free_gpus(hosts: int, draw: np.random.Generator) -> Ints:
    """Free GPUs per host: most hosts full, some whole, some in part; one rack in ten nearly empty."""
    free = draw.choice(np.arange(GPUS + 1), size=hosts, p=[0.8, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.01, 0.07])
    quiet = np.repeat(draw.random(hosts // HOSTS_IN_RACK) < 0.1, HOSTS_IN_RACK)
    return np.where(quiet, GPUS, free).astype(np.int64)


def timed(call: Callable[[], object]) -> float:
    """Microseconds of one call."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e6


def percentile(values: list[float], share: float) -> float:
    """The value that so many of the others do not exceed."""
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def measure(hosts: int, tree: Tree, name: str, rounds: int) -> Row:
    """One request on one cluster, with a random host changed before each decision."""
    size, request = REQUESTS[name]
    draw, pick = np.random.default_rng(hosts), random.Random(hosts)
    gpus = free_gpus(hosts, draw)
    slots = gpus // size
    index = SlotIndex(tree, slots, gpus)
    warm, update = [], []
    answer: object = None

    def decide() -> None:
        nonlocal answer
        answer = index.plan(request)

    decide()
    for _ in range(rounds):
        host, free = pick.randrange(hosts), pick.choice((0, GPUS))
        gpus[host], slots[host] = free, free // size
        update.append(timed(lambda host=host, free=free: index.set(host, free // size, free)))  # type: ignore[misc]
        warm.append(timed(decide))
    assert answer == plan(tree, slots, request, gpus), "warm and cold give the same plan"
    few = max(5, rounds // 10)
    cold = [timed(lambda: plan(tree, gpus // size, request, gpus)) for _ in range(few)]
    listed, racks = gpus.tolist(), tree.domains[RACK].tolist()
    count = request.count

    def python_scan() -> list[int]:
        room: dict[int, int] = {}
        for rack, free in zip(racks, listed, strict=True):
            room[rack] = room.get(rack, 0) + free // size
        return [rack for rack, slots in room.items() if slots >= count]

    def numpy_scan() -> Ints:
        return np.flatnonzero(np.add.reduceat(gpus // size, tree.starts[RACK]) >= count)

    return Row(
        hosts=hosts,
        request=name,
        warm=(median(warm), percentile(warm, 0.99)),
        cold=median(cold),
        update=median(update),
        python_scan=median([timed(python_scan) for _ in range(5)]),
        numpy_scan=median([timed(numpy_scan) for _ in range(few)]),
        answer="placed" if isinstance(answer, Plan) else "no room",
    )


def cold_count(hosts: int) -> tuple[float, float, float]:
    """The ledger: microseconds of counting a shape on all hosts, of a warm question, bytes per host and shape."""
    capacity = Capacity()
    nodes = [
        Node(
            name=f"h{number}",
            uid=f"u{number}",
            resource_version="1",
            labels={
                "cloud.provider.com/topology-block": f"b{number // HOSTS_IN_RACK // RACKS_IN_BLOCK}",
                "cloud.provider.com/topology-rack": f"r{number // HOSTS_IN_RACK}",
            },
            allocatable={"cpu": 96_000, "memory": 1 << 20, "pods": 110, "nvidia.com/gpu": GPUS},
            taints=(),
            unschedulable=False,
            ready=True,
            settled_at=0.0,
        )
        for number in range(hosts)
    ]
    for node in nodes:
        capacity.set_node(node.name, node)
    topology = build_topology("bench", presets()["demo"], nodes)

    def shape(gpus: int, cpu: int) -> Shape:
        return Shape(requests=(("cpu", cpu), ("memory", 4096), ("nvidia.com/gpu", gpus), ("pods", 1)))

    capacity.count(shape(8, 1000), topology)
    cold = median([timed(lambda cpu=cpu: capacity.count(shape(8, cpu), topology)) for cpu in range(1001, 1012)])  # type: ignore[misc]
    capacity.slots(shape(8, 1000), topology, scarce="nvidia.com/gpu")
    warm = []
    for number in range(200):
        # One host at a time: room is taken, then given back.
        taken = {} if number % 2 else {f"h{number * 7 % hosts}": 1}
        capacity.reserve("gang", taken, shape(8, 1000).requests)
        warm.append(timed(lambda: capacity.slots(shape(8, 1000), topology, scarce="nvidia.com/gpu")))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    shapes = 8
    for cpu in range(shapes):
        capacity.slots(shape(4, 2000 + cpu), topology, scarce="nvidia.com/gpu")
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return cold, median(warm), used / shapes / hosts


def exponent(rows: list[Row]) -> float:
    """The power of the number of hosts by which warm decisions grow, between the smallest and the largest size."""
    small, large = min(rows, key=lambda row: row.hosts), max(rows, key=lambda row: row.hosts)
    if small.hosts == large.hosts:
        return math.nan
    return math.log(large.warm[0] / small.warm[0]) / math.log(large.hosts / small.hosts)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hosts", "sizes", multiple=True, type=click.IntRange(16), help="Sizes. Default: 1024, 10240, 100096.")
@click.option("--rounds", default=300, show_default=True, type=click.IntRange(10), help="Decisions per figure.")
def main(sizes: tuple[int, ...], rounds: int) -> None:
    r"""Measure decisions of the planner, cold and warm, and changes of single hosts.

    \b
    Example:
      python -m bench.planner --hosts 10240 --rounds 1000
    """
    console = Console(width=150)
    rows: list[Row] = []
    ledgers: list[dict[str, Any]] = []
    for hosts in sizes or SIZES:
        console.print(f"{hosts:,} hosts", highlight=False)
        tree = tree_of(hosts // HOSTS_IN_RACK * HOSTS_IN_RACK)
        for name in REQUESTS:
            rows.append(measure(len(tree.hosts), tree, name, rounds))
        cold, warm, size = cold_count(len(tree.hosts))
        ledgers.append({"hosts": len(tree.hosts), "cold_us": cold, "warm_us": warm, "bytes": size})
    table = Table(box=None, pad_edge=False)
    columns = (
        "HOSTS",
        "REQUEST",
        "WARM p50 us",
        "p99",
        "COLD us",
        "UPDATE us",
        "PYTHON SCAN / WARM",
        "NUMPY SCAN / WARM",
    )
    for column in (*columns, "ANSWER"):
        table.add_column(column, justify="left" if column in ("REQUEST", "ANSWER") else "right")
    for row in rows:
        table.add_row(
            f"{row.hosts:,}",
            row.request,
            f"{row.warm[0]:.0f}",
            f"{row.warm[1]:.0f}",
            f"{row.cold:.0f}",
            f"{row.update:.1f}",
            f"{row.python_scan / row.warm[0]:.1f} x",
            f"{row.numpy_scan / row.warm[0]:.1f} x",
            row.answer,
        )
    console.print(table)
    for name in REQUESTS:
        power = exponent([row for row in rows if row.request == name])
        if not math.isnan(power):
            console.print(f"{name}: a warm decision grows with hosts^{power:.2f}", highlight=False)
    for ledger in ledgers:
        console.print(
            f"{ledger['hosts']:,} hosts: counting a shape afresh {ledger['cold_us']:.0f} us, asking for it again after "
            f"one host changed {ledger['warm_us']:.1f} us, {ledger['bytes']:.0f} bytes per host and shape",
            highlight=False,
        )
    content = {"rows": [{name: getattr(row, name) for name in Row.__slots__} for row in rows], "ledger": ledgers}
    console.print(f"written to {results.write('planner', content)}", highlight=False)


if __name__ == "__main__":
    main()
