"""What pod (anti-)affinity and topology spread add to a decision, beside the same gang without them.

A cluster of 8 racks a block and 16 hosts a rack, two pods on each host, some with anti-affinity of their own. Each gang
is planned again and again, with one pod bound or gone before each decision, as a waiting gang is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench import results
from engine.api import names
from engine.api.objects import Node
from engine.api.pod import (
    OwnerRef,
    Pod,
    PodConstraints,
    PodPreferences,
    PodSpec,
    PodTerm,
    SelectorRequirement,
    Shape,
    SpreadConstraint,
    WeightedPodTerm,
)
from engine.api.workload import PodSet, Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.key import key_of
from engine.scheduler.schedule import schedule_gang

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
SHAPE = Shape(requests=(("cpu", 1000), ("memory", 4096), ("nvidia.com/gpu", 1), ("pods", 1)))


def _is(app: str) -> tuple[SelectorRequirement, ...]:
    return (SelectorRequirement("app", "In", (app,)),)


CASES: dict[str, PodConstraints | PodPreferences | None] = {
    "plain": None,
    "podAffinity to running pods, rack": PodConstraints(affinity=(PodTerm(RACK, _is("a0"), ("default",)),)),
    "podAntiAffinity to running pods, rack": PodConstraints(anti_affinity=(PodTerm(RACK, _is("a1"), ("default",)),)),
    "podAntiAffinity to each other, rack": PodConstraints(anti_affinity=(PodTerm(RACK, _is("train"), ("default",)),)),
    "spread over blocks": PodConstraints(spread=(SpreadConstraint(BLOCK, 1, _is("train")),)),
    "spread over hosts": PodConstraints(spread=(SpreadConstraint(names.HOSTNAME, 1, _is("train")),)),
    "preferred podAffinity, rack": PodPreferences((WeightedPodTerm(10, PodTerm(RACK, _is("a0"), ("default",))),)),
    "preferred podAntiAffinity, host": PodPreferences(
        (WeightedPodTerm(-10, PodTerm(names.HOSTNAME, _is("a1"), ("default",))),)
    ),
    "ScheduleAnyway over racks": PodPreferences(spread=(SpreadConstraint(RACK, 1, _is("a1")),)),
}


def spec(app: str, *, host: str = "", constraints: PodConstraints | None = None) -> PodSpec:
    """A pod's spec with one label that selectors see."""
    return PodSpec(
        shape=SHAPE,
        limits=(),
        gates=() if host else (names.GATE,),
        labels={} if host else {names.MANAGED: "true"},
        annotations={},
        node_name=host,
        scheduler_name="",
        priority_class="",
        priority=None,
        runtime_class="",
        has_scheduling_group=False,
        deadline=False,
        unmodelled=(),
        constraints=constraints,
        own_labels=("app", app),
    )


def running(number: int, host: str, app: str, constraints: PodConstraints | None = None) -> Pod:
    """Somebody's pod on a host."""
    return Pod(
        namespace="default",
        name=f"pod-{number}",
        uid=f"u{number}",
        resource_version="1",
        spec=spec(app, host=host, constraints=constraints),
        owner=OwnerRef("apps/v1", "ReplicaSet", app, app, controller=True),
        phase="Running",
        nominated_node="",
        created=0.0,
        deleting=False,
        unschedulable="",
        mirror=False,
    )


def gang(asked: PodConstraints | PodPreferences | None, pods: int) -> Workload:
    """A held Job without a level."""
    template = spec("train", constraints=asked if isinstance(asked, PodConstraints) else None)
    if isinstance(asked, PodPreferences):
        template = replace(template, preferred_pods=asked)
    return Workload(
        api_version="batch/v1",
        kind="Job",
        namespace="default",
        name="train",
        uid="uid-train",
        resource_version="1",
        generation=1,
        labels={},
        annotations={names.UNCONSTRAINED: "true", names.HELD_BY: names.HELD_BY_SUSPEND},
        suspended=True,
        suspendable=True,
        started=False,
        finished=False,
        deleting=False,
        created=0.0,
        owner=None,
        managed_elsewhere=None,
        pod_sets=(PodSet(name="main", template=template, slots=pods, total=pods, remaining=pods, ranked=True),),
    )


def cluster_of(hosts: int) -> tuple[Stores, ClusterState]:
    """Nodes, and two pods on each: one of many applications, of which one in eight keeps its like off the host."""
    stores = Stores()
    view = ClusterState(stores)
    nodes = [
        Node(
            name=f"h{number}",
            uid=f"u{number}",
            resource_version="1",
            labels={BLOCK: f"b{number // 128}", RACK: f"r{number // 16}", names.HOSTNAME: f"h{number}"},
            allocatable={"cpu": 96_000, "memory": 1 << 20, "pods": 110, "nvidia.com/gpu": 8},
            taints=(),
            unschedulable=False,
            ready=True,
            settled_at=0.0,
        )
        for number in range(hosts)
    ]
    stores.nodes.replace(nodes)
    away = {
        app: PodConstraints(anti_affinity=(PodTerm(names.HOSTNAME, _is(f"a{app}"), ("default",)),))
        for app in range(0, 256, 8)
    }
    pods = [
        running(number, f"h{number % hosts}", f"a{number % 256}", away.get(number % 256)) for number in range(2 * hosts)
    ]
    stores.pods.replace(pods)
    view.refresh()
    return stores, view


def timed(call: Callable[[], object]) -> float:
    """Microseconds of one call."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e6


def measure(hosts: int, pods: int, rounds: int) -> list[dict[str, Any]]:
    """The median decision of every case, and its ratio to the plain one."""
    stores, view = cluster_of(hosts)
    rows: list[dict[str, Any]] = []
    for name, asked in CASES.items():
        workload = replace(gang(asked, pods), uid=f"uid-{name}")
        stores.workloads.replace([workload])
        view.refresh()
        found = view.gangs.get(key_of(workload))
        assert found is not None
        times, outcome = [], None
        for number in range(rounds):
            extra = running(10_000_000, f"h{number * 7 % hosts}", "a1")
            stores.pods.apply("DELETED" if number % 2 else "ADDED", extra)
            view.refresh()

            def decide() -> None:
                nonlocal outcome
                outcome = schedule_gang(view, found)  # noqa: B023 - called at once

            times.append(timed(decide))
        plain = rows[0]["us"] if rows else median(times)
        rows.append(
            {"case": name, "hosts": hosts, "us": median(times), "ratio": median(times) / plain, "cold": times[0]}
        )
        rows[-1]["answer"] = type(outcome).__name__
    return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hosts", "sizes", multiple=True, type=click.IntRange(16), help="Sizes. Default: 1024, 10240.")
@click.option("--pods", default=8, show_default=True, type=click.IntRange(1), help="Pods of the gang.")
@click.option("--rounds", default=60, show_default=True, type=click.IntRange(4), help="Decisions per figure.")
def main(sizes: tuple[int, ...], pods: int, rounds: int) -> None:
    """Measure decisions for gangs with pod (anti-)affinity and topology spread."""
    console = Console(width=150)
    table = Table(box=None, pad_edge=False)
    for column in ("HOSTS", "GANG", "WARM p50 us", "RATIO", "FIRST us", "ANSWER"):
        table.add_column(column, justify="left" if column in ("GANG", "ANSWER") else "right")
    rows = [row for hosts in sizes or (1_024, 10_240) for row in measure(hosts, pods, rounds)]
    for row in rows:
        figures = f"{row['us']:.0f}", f"{row['ratio']:.2f} x", f"{row['cold']:.0f}"
        table.add_row(f"{row['hosts']:,}", row["case"], *figures, row["answer"])
    console.print(table)
    console.print(f"written to {results.write('pod_rules', {'rows': rows})}", highlight=False)


if __name__ == "__main__":
    main()
