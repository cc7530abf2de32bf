"""Gangs beside the floor on a real control plane: `python -m bench.cluster --help`.

One run = one Job or several, from the POST of the first to the binding of the last pod, told by a watch. Gangs and the
same Jobs without any annotation (the floor: the Job controller and the scheduler alone) take turns, so that both meet
the same machine; what is said is their ratio, pair by pair. Our writes are counted in the API server's audit log.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import audit, processes, results, reviews
from bench.bound import BoundWatch
from bench.churn import Churn
from bench.jobs import job_body
from bench.stage import add_options, some_of, stage
from bench.waiting import make_namespace, told, until
from engine.api import names
from local.client import Client
from local.controlplane import ControlPlane
from local.nodes import Grid
from local.service import Service

TIMEOUT = 120.0  # seconds from the last POST to the last binding
# The leader writes "Running" and an Event after the last pod is bound: they are counted when they are there.
AFTERWARDS = 20.0
GONE = 60.0  # until the pods of a run are gone
EACH = 0.1  # more, for each pod


@dataclass(frozen=True, slots=True)
class Scene:
    """Gangs that are submitted at once: how many pods of one whole host each has, and what they ask for."""

    pods: int
    annotations: Mapping[str, str]
    gangs: int = 1

    @property
    def title(self) -> str:
        """What it is, for people."""
        (key, level), *_ = self.annotations.items()
        asked = f"{self.pods} pods, {key.rpartition('/')[2].removesuffix('-topology')} {level}"
        return asked if self.gangs == 1 else f"{self.gangs} x {asked}"

    @property
    def total(self) -> int:
        """The pods of all gangs."""
        return self.gangs * self.pods

    def bodies(self, *, gang: bool) -> list[dict[str, Any]]:
        """The Jobs; without any annotation for the floor."""
        annotations = self.annotations if gang else {}
        return [job_body(f"train{number}", pods=self.pods, annotations=annotations) for number in range(self.gangs)]

    def submit(self, client: Client, jobs: str, bodies: list[dict[str, Any]], *, hosts: int) -> dict[str, float]:
        """Create them one after the other; name -> when it was sent (monotonic)."""
        sent = {}
        for body in bodies:
            sent[body["metadata"]["name"]] = time.monotonic()
            client.create(jobs, body)
        return sent


SCENES: dict[str, Scene | Churn] = {
    "4": Scene(4, {names.REQUIRE: "rack"}),
    "64": Scene(64, {names.REQUIRE: "block"}),
    "256": Scene(256, {names.PREFER: "block"}),
    "512": Scene(512, {names.PREFER: "block"}),
    "4096": Scene(4096, {names.PREFER: "block"}),
    "100x4": Scene(4, {names.REQUIRE: "rack"}, gangs=100),
    "churn": Churn(),
}


@dataclass(slots=True)
class Run:
    """`seconds` from the first POST to the last binding, `median` of single Jobs; CPU seconds of each program."""

    namespace: str
    gang: bool
    seconds: float
    median: float
    slowest: float  # nine of ten Jobs took at most this
    first: float
    posted: float
    began: float
    ended: float
    others: float  # processors that were busy with other things than this benchmark, on average
    cpu: dict[str, float]
    writes: dict[str, int] = field(default_factory=dict)
    writes_until_bound: int = 0
    patched: int = 0
    reviews: dict[str, float] = field(default_factory=dict)  # "mutate Job" -> how many
    handshakes: float = 0.0
    review_seconds: float = 0.0  # mean, from a review's first byte to its answer

    @property
    def all_cpu(self) -> float:
        """CPU seconds of the control plane and the replicas together."""
        return sum(self.cpu.values())


def main() -> int:
    """Measure; exit status 1 when something did not come up."""
    options = _options()
    console = results.console(180)
    console.print(f"starting a control plane with {options.grid.size} hosts and {options.replicas} replicas")
    with stage(options, console) as built:
        service = built.serve(options.replicas)
        console.print("ready; one line per run: seconds from create to all bound")
        found = {name: _measure(built.cluster, service, SCENES[name], options, console) for name in options.gangs}
        _report(found, options, console)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    add_options(parser, grid=Grid(8, 16, 8))
    parser.add_argument(
        "--gangs",
        type=some_of(SCENES, "scene"),
        help=f"what to measure, of {','.join(SCENES)} (all that fit the grid; 4096 needs one such as 8x16x40)",
    )
    parser.add_argument("--pairs", type=int, default=7, help="measured pairs of each size (7); one more warms up")
    options = parser.parse_args()
    large = [name for name, scene in SCENES.items() if isinstance(scene, Scene) and scene.total > options.grid.size]
    if asked := [name for name in large if name in (options.gangs or ())]:
        parser.error(f"the grid {options.grid} has {options.grid.size} hosts: too few for {', '.join(asked)}")
    options.gangs = options.gangs or [name for name in SCENES if name not in large]
    return options


def _measure(
    cluster: ControlPlane, service: Service, scene: Scene | Churn, options: argparse.Namespace, console: Console
) -> list[tuple[Run, Run]]:
    """Pairs of (gang, floor); the pair that warmed up is left out."""
    groups = {
        "replicas": [pid for replica in service.running() for pid in processes.group(replica.child.process.pid)],
        **{name: [pid] for name, pid in cluster.pids.items()},
    }
    pairs = []
    with BoundWatch(cluster) as watch:
        for number in range(options.pairs + 1):
            pair = tuple(
                _run(
                    service,
                    watch,
                    scene,
                    groups,
                    namespace=f"{kind}-{scene.gangs}-{scene.total}-{number}",
                    hosts=options.grid.size,
                    gang=kind == "gang",
                )
                for kind in ("gang", "floor")
            )
            gang, floor = pair
            console.print(
                f"  {scene.title}: gang {gang.seconds:6.2f}, floor {floor.seconds:6.2f}, "
                f"ratio {gang.seconds / floor.seconds:5.2f}, others use {gang.others:.1f} and {floor.others:.1f} "
                f"processors{'' if number else '  (warms up, not counted)'}"
            )
            pairs.append((pair[0], pair[1]))
    counted = pairs[1:]
    _count(audit.log_file(cluster.directory), [one for pair in counted for one in pair])
    return counted


def _run(
    service: Service,
    watch: BoundWatch,
    scene: Scene | Churn,
    groups: Mapping[str, Sequence[int]],
    *,
    namespace: str,
    hosts: int,
    gang: bool,
) -> Run:
    client = service.control_plane.client
    make_namespace(client, namespace)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    bodies = scene.bodies(gang=gang)
    # What the run before left behind (controllers clean up after its Jobs) is not this one's cost.
    until(lambda: processes.at_rest(groups), "the control plane is at rest")
    told_before = reviews.told(service)
    before, machine = processes.cpu_seconds(groups), processes.machine_seconds()
    began, start = time.time(), time.monotonic()
    sent = scene.submit(client, jobs, bodies, hosts=hosts)
    posted = time.monotonic() - start
    end = watch.wait(namespace, scene.total, TIMEOUT + EACH * scene.total)
    after = processes.cpu_seconds(groups)
    busy = processes.machine_seconds() - machine
    spent_here = sum(after.values()) - sum(before.values())
    each = sorted(_job_seconds(watch.bound(namespace), sent))
    run = Run(
        namespace=namespace,
        gang=gang,
        seconds=end - start,
        median=median(each),
        slowest=each[(len(each) - 1) * 9 // 10],
        first=min(watch.bound(namespace).values()) - start,
        posted=posted,
        began=began,
        ended=began + end - start,
        others=max(0.0, busy - spent_here) / (time.monotonic() - start),
        cpu={name: after[name] - before[name] for name in after},
    )
    told_after = reviews.told(service)
    run.reviews = {what: count - told_before.answered.get(what, 0) for what, count in told_after.answered.items()}
    run.review_seconds = (told_after.seconds - told_before.seconds) / max(1.0, sum(run.reviews.values()))
    run.handshakes = told_after.handshakes - told_before.handshakes
    if gang:
        what = f"the status of every gang of {namespace} says Running or Finished"
        until(lambda: told(client, namespace, scene.gangs), what, AFTERWARDS + EACH * scene.total)
    for name in sent:
        client.delete(f"{jobs}/{name}")
    left = f"/api/v1/namespaces/{namespace}/pods"
    until(lambda: not client.items(left), f"the pods of {namespace} are gone", GONE + EACH * scene.total)
    return run


def _job_seconds(bound: Mapping[str, float], sent: Mapping[str, float]) -> list[float]:
    """Of each Job, the seconds from its POST to its last binding; pods are called <job>-<index>-<random>."""
    last: dict[str, float] = {}
    for pod, when in bound.items():
        job = pod.split("-")[0]
        last[job] = max(when, last.get(job, 0.0))
    return [last[job] - began for job, began in sent.items()]


def _count(log: Path, runs: Sequence[Run]) -> None:
    """Add to each run what we wrote for it (the clean-up after it is told apart by its verb: we delete nothing)."""
    requests = audit.read(log, namespaces=[run.namespace for run in runs])
    for run in runs:
        ours = requests[run.namespace]
        run.writes = dict(audit.our_writes(ours))
        run.writes_until_bound = sum(audit.our_writes([one for one in ours if one.end <= run.ended]).values())
        run.patched = audit.patched_pods(ours)


def _report(found: Mapping[str, list[tuple[Run, Run]]], options: argparse.Namespace, console: Console) -> None:
    times = Table(box=None, pad_edge=False, title="create -> all bound: median (range)", title_justify="left")
    for column in ("GANG", "SECONDS", "FLOOR", "RATIO BY PAIR", "MEDIAN JOB, RATIO", "OUR CPU s", "ALL CPU, RATIO"):
        times.add_column(column, justify="left" if column == "GANG" else "right")
    writes = Table(box=None, pad_edge=False, title="our writes for one gang (median)", title_justify="left")
    for column in ("GANG", "A POD", "A GANG", "UNTIL BOUND", "PLACED AT CREATION", "WHICH"):
        writes.add_column(column, justify="left" if column in ("GANG", "WHICH") else "right")
    flow = Table(box=None, pad_edge=False, title="flow and waiting: gangs | floor (median)", title_justify="left")
    for column in ("GANG", "PODS A SECOND", "RATIO", "HALF WAIT s", "NINE OF TEN WAIT s"):
        flow.add_column(column, justify="left" if column == "GANG" else "right")
    answers = Table(box=None, pad_edge=False, title="reviews until all are bound (median)", title_justify="left")
    for column in ("GANG", "A POD", "MEAN ms", "HANDSHAKES", "WHICH"):
        answers.add_column(column, justify="left" if column in ("GANG", "WHICH") else "right")
    programs = Table(box=None, pad_edge=False, title="CPU seconds, gang | floor (median)", title_justify="left")
    programs.add_column("GANG")
    for program in next(iter(found.values()))[0][0].cpu:
        programs.add_column(program.upper(), justify="right")
    for name, pairs in found.items():
        scene = SCENES[name]
        gangs, floors = [gang for gang, _ in pairs], [floor for _, floor in pairs]
        title = scene.title
        times.add_row(
            title,
            results.spread([run.seconds for run in gangs]),
            results.spread([run.seconds for run in floors]),
            results.spread([gang.seconds / floor.seconds for gang, floor in pairs]),
            results.spread([gang.median / floor.median for gang, floor in pairs]),
            results.spread([run.cpu["replicas"] for run in gangs]),
            results.spread([gang.all_cpu / max(floor.all_cpu, 0.01) for gang, floor in pairs]),
        )
        programs.add_row(
            title,
            *(_both(lambda run, program=program: run.cpu[program], pairs) for program in gangs[0].cpu),  # type: ignore[misc]
        )
        if scene.gangs > 1:
            flow.add_row(
                title,
                _both(lambda run, total=scene.total: total / run.seconds, pairs),  # type: ignore[misc]
                results.spread([floor.seconds / gang.seconds for gang, floor in pairs]),
                _both(lambda run: run.median, pairs),
                _both(lambda run: run.slowest, pairs),
            )
        total = median(sum(run.writes.values()) for run in gangs)
        kinds: Counter[str] = Counter()
        for run in gangs:
            kinds.update(run.writes)
        writes.add_row(
            title,
            f"{total / scene.total:.3f}",
            f"{total / scene.gangs:g}",
            f"{median(run.writes_until_bound for run in gangs):g}",
            f"{1 - sum(run.patched for run in gangs) / (scene.total * len(gangs)):.1%}",
            ", ".join(f"{count / len(gangs):g} {what}" for what, count in sorted(kinds.items())),
        )
        kept = {what: median(run.reviews.get(what, 0) for run in gangs) for run in gangs for what in run.reviews}
        answers.add_row(
            title,
            f"{sum(kept.values()) / scene.total:.2f}",
            results.spread([run.review_seconds * 1e3 for run in gangs]),
            results.spread([run.handshakes for run in gangs]),
            ", ".join(f"{count:g} {what}" for what, count in sorted(kept.items()) if count),
        )
    for table in (times, programs, flow, writes, answers):
        if not table.row_count:
            continue
        console.print()
        console.print(table)
    path = results.write(
        "cluster",
        {
            "grid": f"{options.grid}",
            "replicas": options.replicas,
            "scenes": {
                SCENES[name].title: [{"gang": asdict(gang), "floor": asdict(floor)} for gang, floor in pairs]
                for name, pairs in found.items()
            },
        },
    )
    console.print(f"\n{path.relative_to(results.ROOT)}")


def _both(value: Callable[[Run], float], pairs: Sequence[tuple[Run, Run]]) -> str:
    return " | ".join(f"{median(value(pair[side]) for pair in pairs):.2f}" for side in (0, 1))


if __name__ == "__main__":
    sys.exit(main())
