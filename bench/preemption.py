"""What the search for victims costs, by the number of gangs that may be preempted: `python -m bench.preemption --help`.

Clusters of 8 racks a block and 16 hosts a rack, full of gangs of 1 to 8 whole hosts that prefer a rack, of two priority
classes and of any age up to six hours. Then a gang of higher priority waits. The search is the leader's, with its
limits, on the leader's own state. Beside it: one plan of the same gang, which does not fit; and a plain search, which
takes all gangs away and gives back one after the other, as kube-scheduler does with the pods of a host.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.table import Table

from bench import results
from bench.decisions import HOSTS_IN_RACK, RACK, nodes, submitted
from engine.api import names
from engine.api.objects import PriorityClass
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import Gang
from engine.policy.making_room import Protect
from engine.preemption.preempt import preemption_for
from engine.preemption.victims import Victim, managed
from engine.scheduler.outcome import Outcome, Placed
from engine.scheduler.schedule import new_placement, schedule_gang

GANGS = (10, 40, 160, 640, 2_560)
MOST_PLAIN = 160  # gangs beyond which the plain search is left out: each makes a plan
HOSTS_A_GANG = 4.5
NOW = 100_000.0
OLDEST = 21_600.0
CLASSES = (PriorityClass("low", 0, default=True), PriorityClass("normal", 100, default=False))
URGENT = PriorityClass("urgent", 1_000, default=False)
# The waiting gang: its pods of a whole host, and its annotations.
WAITING: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "4 hosts, require rack": (4, RACK),
    "16 hosts, require rack": (16, RACK),
    "32 hosts, require block": (32, {names.REQUIRE: "block"}),
    "32 hosts, anywhere": (32, {names.UNCONSTRAINED: "true"}),
}


@dataclass(slots=True)
class Counted:
    """The leader's planning of one gang, and how often it was asked."""

    state: ClusterState
    gang: Gang
    plans: int = 0

    def __call__(self) -> Outcome:
        self.plans += 1
        return schedule_gang(self.state, self.gang)


@dataclass(frozen=True, slots=True)
class Search:
    """One search: seconds of the processor, plans, victims (None: none found), and whether none are better."""

    seconds: float
    plans: int
    victims: int | None
    proven: bool = False


def cluster(gangs: int, seed: int) -> tuple[ClusterState, int]:
    """A state whose hosts are full of so many gangs or a few less, and their number."""
    rng = random.Random(f"{gangs} {seed}")
    sizes = [rng.randint(1, 8) for _ in range(gangs)]
    state = ClusterState(Stores())
    state.stores.priority_classes.replace([*CLASSES, URGENT])
    state.stores.nodes.replace(list(nodes(-(-sum(sizes) // HOSTS_IN_RACK) * HOSTS_IN_RACK)))
    state.refresh()
    placed = 0
    for number, size in enumerate([*sizes, *([1] * HOSTS_IN_RACK)]):  # the last ones fill what is left
        own = rng.choice(CLASSES)
        gang = submitted(state, f"gang-{number}", size, {names.PREFER: "rack"}, priority_class=own.name)
        outcome = schedule_gang(state, gang)
        if isinstance(outcome, Placed):
            plan = new_placement(gang, outcome, priority=own.value, now=NOW - rng.uniform(0, OLDEST))
            state.assume(gang.key, plan)
            placed += 1
        else:
            state.stores.workloads.apply("DELETED", gang.workload)
    state.refresh()
    return state, placed


def leaders(state: ClusterState, gang: Gang) -> Search:
    """The search of the leader."""
    counted = Counted(state, gang)
    began = time.thread_time()
    found = preemption_for(
        state, gang, plan=counted, others=False, protect=Protect(), own_namespace="topogate-system", now=NOW
    )
    took = time.thread_time() - began
    if found is None:
        return Search(took, counted.plans, None)
    return Search(took, counted.plans, len(found.victims), found.proven)


def plain(state: ClusterState, gang: Gang) -> Search:
    """Take away all gangs of lower priority, and give back each without which the waiting one still fits."""
    counted = Counted(state, gang)
    began = time.thread_time()
    with state.lock:
        below = state.pod_shapes.priority_of(gang.workload)
        order = sorted(managed(state, below=below), key=lambda one: (-one.priority, one.started, one.name))
        gone: list[Victim] = list(order)
        fits = _fits(state, counted, gone)
        for one in order if fits else ():
            fewer = [other for other in gone if other is not one]
            if _fits(state, counted, fewer):
                gone = fewer
    return Search(time.thread_time() - began, counted.plans, len(gone) if fits else None)


def _fits(state: ClusterState, plan: Callable[[], Outcome], gone: Sequence[Victim]) -> bool:
    with state.without([key for one in gone for key in one.keys], [pod for one in gone for pod in one.pods]):
        return isinstance(plan(), Placed)


def one_plan(state: ClusterState, gang: Gang) -> float:
    """Seconds of the processor for one plan, the median of five."""
    times = []
    for _ in range(5):
        began = time.thread_time()
        with state.lock:
            schedule_gang(state, gang)
        times.append(time.thread_time() - began)
    return median(times)


def measure(gangs: int, *, seeds: int, most_plain: int = MOST_PLAIN) -> list[dict[str, Any]]:
    """A row for each waiting gang: medians over the seeds, and of the ratios of the same seed."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in WAITING}
    placed = []
    for seed in range(seeds):
        state, count = cluster(gangs, seed)
        placed.append(count)
        for name, (pods, asks) in WAITING.items():
            gang = submitted(state, f"urgent-{pods}-{seed}", pods, asks, priority_class=URGENT.name)
            plan, search = one_plan(state, gang), leaders(state, gang)
            other = plain(state, gang) if count <= most_plain else None
            found[name].append({"plan": plan, "search": search, "plain": other})
            state.stores.workloads.apply("DELETED", replace(gang.workload))
            state.refresh()
    return [_row(name, placed, rows) for name, rows in found.items()]


def _row(name: str, placed: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    searches: list[Search] = [row["search"] for row in rows]
    plains: list[Search] = [row["plain"] for row in rows if row["plain"] is not None]
    return {
        "gangs": round(median(placed)),
        "waiting": name,
        "ms": median(one.seconds for one in searches) * 1e3,
        "plans": median(one.plans for one in searches),
        "to one plan": median(row["search"].seconds / row["plan"] for row in rows),
        "victims": [one.victims for one in searches],
        "proven": sum(one.proven for one in searches),
        "seeds": len(searches),
        "plain plans": median(one.plans for one in plains) if plains else None,
        "plain to this": median(b.seconds / a.seconds for a, b in zip(searches, plains, strict=True))
        if plains
        else None,
        "plain victims": [one.victims for one in plains],
    }


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.preemption", description=__doc__)
    parser.add_argument("--gangs", type=int, action="append", help=f"sizes ({', '.join(map(str, GANGS))})")
    parser.add_argument("--seeds", type=int, default=5, help="clusters of each size (5)")
    options = parser.parse_args()
    if options.seeds < 1 or min(options.gangs or GANGS) < 1:
        parser.error("--seeds and --gangs have to be at least 1")
    console = results.console(130)
    table = Table(box=None, pad_edge=False)
    columns = (
        "GANGS",
        "WAITING",
        "ms",
        "PLANS",
        "TO ONE PLAN",
        "VICTIMS",
        "PROVEN",
        "PLAIN, PLANS",
        "PLAIN, TIME",
        "VICTIMS",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "WAITING" else "right")
    rows = [row for gangs in options.gangs or GANGS for row in measure(gangs, seeds=options.seeds)]
    for row in rows:
        table.add_row(
            f"{row['gangs']:,}",
            row["waiting"],
            f"{row['ms']:.1f}",
            f"{row['plans']:.0f}",
            f"{row['to one plan']:.0f} x",
            _victims(row["victims"]),
            f"{row['proven']} of {row['seeds']}",
            "-" if row["plain plans"] is None else f"{row['plain plans']:.0f}",
            "-" if row["plain to this"] is None else f"{row['plain to this']:.1f} x",
            _victims(row["plain victims"]),
        )
    console.print(table)
    console.print(f"written to {results.write('preemption', {'rows': rows})}")
    return 0


def _victims(found: Sequence[int | None]) -> str:
    """Their mean number where some were found, and how often none were."""
    some = [one for one in found if one is not None]
    if not found:
        return "-"
    none = f", none in {len(found) - len(some)}" if len(some) < len(found) else ""
    return f"{sum(some) / len(some):.1f}{none}" if some else "none"


if __name__ == "__main__":
    sys.exit(main())
