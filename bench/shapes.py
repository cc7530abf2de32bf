"""What a plan for pods of two or three shapes costs, beside a plan for as many equal pods in the same run.

Clusters of 8 racks a block and 16 hosts a rack (8 GPUs each): free, busy in whole racks with some fragments between
them, busy with no order, and with 0 to 8 free GPUs on each host. A leader with a GPU or without one, parts of hosts,
and whole hosts, in gangs of different sizes, each once with each level.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from bench import results
from bench.planner import BLOCK, GPUS, HOSTS_IN_RACK, RACK, tree_of
from engine.planner.gang import GangPlan, GangPlanRequest, PodSetPlanRequest
from engine.planner.plan_gang import plan_gang

Ints = npt.NDArray[np.int64]
# Per GPU of a host: cores (thousandths) and MiB; pods leave some of both.
CPU, MEMORY = 6_000, 56_000
SPARE = (16_000, 64_000)
SHAPES: Mapping[str, tuple[int, int, int]] = {
    "cpu": (4_000, 8_000, 0),
    "1 GPU": (4_000, 16_000, 1),
    "2 GPUs": (8_000, 50_000, 2),
    "4 GPUs": (16_000, 100_000, 4),
    "8 GPUs": (32_000, 400_000, 8),
}
# Pod sets by their shape and number; None: the size of the gang.
GANGS: Mapping[str, tuple[tuple[str, int | None], ...]] = {
    "equal pods": (("8 GPUs", None),),
    "cpu leader": (("cpu", 1), ("8 GPUs", None)),
    "leader with a GPU": (("1 GPU", 1), ("8 GPUs", None)),
    "half and whole hosts": (("4 GPUs", None), ("8 GPUs", None)),
    "three shapes": (("cpu", 1), ("2 GPUs", 4), ("8 GPUs", None)),
}
SIZES = (2, 8, 16, 64)
ASKED = ((None, RACK), (BLOCK, RACK), (RACK, None))  # require, prefer
CLUSTERS = ("free", "whole racks", "no order", "fragments")


@dataclass(frozen=True, slots=True)
class Row:
    """Plans of one sort of gang in one sort of cluster: milliseconds, and how many of those found are proven."""

    cluster: str
    gang: str
    plans: int
    median: float
    most: float
    ratio: float
    found: int
    proven: int


def free_on(cluster: str, hosts: int, draw: np.random.Generator) -> Ints:
    """The free resources of each host."""
    parts = draw.integers(0, GPUS + 1, hosts)
    mostly_whole = np.where(draw.random(hosts) < 0.7, GPUS, parts)
    match cluster:
        case "free":
            gpus = np.full(hosts, GPUS)
        case "whole racks":
            gpus = np.where(np.repeat(draw.random(hosts // HOSTS_IN_RACK) < 0.7, HOSTS_IN_RACK), 0, mostly_whole)
        case "no order":
            gpus = np.where(draw.random(hosts) < 0.85, 0, mostly_whole)
        case _:
            gpus = parts
    return np.column_stack((SPARE[0] + CPU * gpus, SPARE[1] + MEMORY * gpus, gpus)).astype(np.int64)


def measure(hosts: int) -> list[Row]:
    """Plan every gang in every cluster; those of equal pods are what the others are held against."""
    tree, rows = tree_of(hosts), []
    for cluster in CLUSTERS:
        free = free_on(cluster, hosts, np.random.default_rng(hosts))
        scarce = np.ascontiguousarray(free[:, 2])
        plain = 0.0
        for name, sets in GANGS.items():
            took, answers = [], []
            for size in SIZES:
                pods = tuple(PodSetPlanRequest(count or size, SHAPES[shape]) for shape, count in sets)
                for require, prefer in ASKED:
                    gang = GangPlanRequest(pods, require=require, prefer=prefer)
                    began = time.perf_counter()
                    answers.append(plan_gang(tree, free, gang, scarce))
                    took.append((time.perf_counter() - began) * 1e3)
            plans = [answer for answer in answers if isinstance(answer, GangPlan)]
            median = statistics.median(took)
            plain = plain or median
            proven = sum(plan.proven for plan in plans)
            rows.append(Row(cluster, name, len(took), median, max(took), median / plain, len(plans), proven))
    return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hosts", default=10_240, show_default=True, type=click.IntRange(128), help="Hosts of each cluster.")
def main(hosts: int) -> None:
    """Measure plans for pods of several shapes in free and fragmented clusters."""
    table = Table(box=None, pad_edge=False)
    for column in ("CLUSTER", "GANG", "ms", "MOST", "RATIO", "FOUND", "PROVEN"):
        table.add_column(column, justify="left" if column in ("CLUSTER", "GANG") else "right")
    rows = measure(hosts)
    for row in rows:
        cells = (row.cluster, row.gang, f"{row.median:.1f}", f"{row.most:.0f}", f"{row.ratio:.1f} x")
        table.add_row(*cells, f"{row.found} of {row.plans}", str(row.proven))
    console = Console()
    console.print(table)
    console.print(f"written to {results.write('shapes', {'hosts': hosts, 'rows': [asdict(row) for row in rows]})}")


if __name__ == "__main__":
    main()
