"""Reviews while the caches of a large cluster receive events: `python -m bench.scale.load --help`.

One replica leads on 10,240 nodes and 100,000 pods. It is sent reviews of a placed gang's pods by the clock, each
counted from the moment at which it was due: alone, then while watches receive events, then also with reviews of new
Jobs, whose answers tell a forecast. These loads take turns, so that a busy machine slows all of them.

  python -m bench.scale.load
  python -m bench.scale.load --reviews 400 --events 2000 --seconds 30
  python -m bench.scale.load --grid 4x4x8 --pods 2000 --rounds 1     # a look at the program itself
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from statistics import quantiles
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import processes, results
from bench.gang import CONTROLLER, pod_of, review_body
from bench.jobs import job_body
from bench.scale.calls import Call, Caller, Port, Rates, Reviews
from bench.scale.events import Written, writer
from bench.scale.generator import Generator, Period
from bench.scale.large_cluster import LIMIT, add_options, fill, replica_pids, standing_still
from bench.scale.storage import etcd_url
from bench.stage import Stage, stage
from bench.waiting import make_namespace, until
from engine.api import names
from local.client import Client
from local.nodes import Grid
from local.service import CONFIGURATIONS, Replica

NAMESPACE: Final = "ml"
JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
GANG_PODS: Final = 64
PODS, FORECAST = "pods", "Jobs with a forecast"
NICE: Final = -5  # of what sends the reviews: it stands for an API server with processors of its own
CAUGHT_UP: Final = 60.0  # seconds, at most, for the last events
REST: Final = 0.5  # seconds between two periods
RECEIVED: Final = re.compile(r'^topogate_watch_events_total\{resource="(?:nodes|pods)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Load:
    """What a period has beside the reviews of pods."""

    name: str
    events: bool
    jobs: bool


LOADS: Final = (
    Load("reviews alone", events=False, jobs=False),
    Load("and events", events=True, jobs=False),
    Load("and Jobs", events=True, jobs=True),
)


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from when reviews were due to their answers; `sent` is the 99th percentile of how late they left.

    `waited` for a connection; `bare` have no pin, or no forecast, in their answer: it was not made, or not in time.
    """

    count: int
    p50: float
    p99: float
    most: float
    sent: float
    waited: int
    bare: int

    @classmethod
    def of(cls, calls: Sequence[Call]) -> Latency:
        """Of at least two calls."""
        took = [(call.answered - call.due) * 1000 for call in calls]
        late = [(call.sent - call.due) * 1000 for call in calls]
        waited, bare = sum(call.waited for call in calls), sum(not call.whole for call in calls)
        return cls(len(calls), quantiles(took, n=2)[0], _p99(took), max(took), _p99(late), waited, bare)


@dataclass(frozen=True, slots=True)
class Measured:
    """One period: latencies by sort of review, events a second, and the processors that each program kept busy."""

    load: str
    latency: Mapping[str, Latency]
    written: float
    received: float
    caught_up: float  # seconds after the end until the last event was received
    cpu: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Scene:
    """The replica, what makes its load, and the processes of each program."""

    replica: Replica
    calls: Generator[Rates, list[Call]]
    events: Generator[int, Written]
    groups: Mapping[str, Sequence[int]]


def main() -> int:
    """Measure and report; exit status 1 when something did not come up."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--reviews", type=float, default=200.0, help="reviews of pods a second (200)")
    parser.add_argument("--events", type=int, default=1000, help="events a second (1000)")
    parser.add_argument("--jobs", type=float, default=10.0, help="reviews of Jobs a second (10)")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a period (20)")
    parser.add_argument("--rounds", type=int, default=3, help="periods of each load (3)")
    options = parser.parse_args()
    console = results.console(150)
    with stage(options, console, hosts=False) as built:
        found = _measure(built, options, console)
    console.print(_latencies(found, options))
    console.print()
    console.print(_shares(found))
    named = {name: str(value) for name, value in vars(options).items()}
    report = {"options": named, "periods": list(map(asdict, found))}
    console.print(f"\n{results.write('load', report).relative_to(results.ROOT)}")
    return 0


def _measure(built: Stage, options: argparse.Namespace, console: Console) -> list[Measured]:
    cluster = built.cluster
    make_namespace(cluster.client, NAMESPACE)
    service = built.install()
    with standing_still(cluster), ExitStack() as generators:
        fill(cluster, options.grid, options.pods, console)
        (replica,) = service.start(1)
        until(lambda: "read afresh in" in replica.log(), "the replica leads", LIMIT)
        job = _placed_job(cluster.client)
        sorts = {PODS: _pod_reviews(job), FORECAST: _job_reviews(cluster.client, options.grid)}
        port = Port(service.port, _ca(cluster.client))
        calls = generators.enter_context(Generator(partial(Caller, port, sorts), nice=NICE))
        events = generators.enter_context(Generator(writer(etcd_url(cluster), options.grid, options.pods)))
        until(lambda: processes.at_rest({"replica": replica_pids(replica)}), "the replica is at rest", LIMIT)
        groups = {
            "replica": replica_pids(replica),
            "API server": [cluster.pids["kube-apiserver"]],
            "etcd": [cluster.pids["etcd"]],
            "generators": [calls.pid, events.pid],
        }
        scene = Scene(replica, calls, events, groups)
        _period(LOADS[-1], scene, options, seconds=5.0)  # warms up
        found = []
        for number in range(options.rounds):
            for load in LOADS:
                console.print(f"round {number + 1} of {options.rounds}: {load.name}", style="dim")
                found.append(_period(load, scene, options, seconds=options.seconds))
        return found


def _period(load: Load, scene: Scene, options: argparse.Namespace, *, seconds: float) -> Measured:
    calls, events, replica, groups = scene.calls, scene.events, scene.replica, scene.groups
    rates: Rates = {PODS: options.reviews, **({FORECAST: options.jobs} if load.jobs else {})}
    before = _received(replica)
    begin = time.monotonic() + REST
    due = Period(begin, begin + seconds, rates)
    changes = Period(begin - REST / 2, begin + seconds, options.events)
    used, busy = processes.cpu_seconds(groups), processes.machine_seconds()
    calls.begin(due)
    if load.events:
        events.begin(changes)
    made = calls.result(due)
    written = events.result(changes) if load.events else Written(0, 0.0)
    ended = time.monotonic()
    until(lambda: _received(replica) >= before + written.count, "all events were received", CAUGHT_UP)
    caught_up = time.monotonic() - ended
    wall = ended - begin + REST
    cpu = {name: (now - used[name]) / wall for name, now in processes.cpu_seconds(groups).items()}
    others = (processes.machine_seconds() - busy) / wall - sum(cpu.values())
    length = changes.end - changes.begin
    return Measured(
        load.name,
        {what: Latency.of([call for call in made if call.what == what]) for what in rates},
        written=written.count / length,
        received=(_received(replica) - before) / length if load.events else 0.0,
        caught_up=caught_up,
        cpu={**cpu, "others": max(0.0, others)},
    )


def _placed_job(client: Client) -> dict[str, Any]:
    """Submit a gang and return its Job once the leader has resumed it."""
    client.create(JOBS, job_body("train", pods=GANG_PODS, annotations={names.PREFER: "block"}))
    path = f"{JOBS}/train"
    until(lambda: not client.get(path)["spec"]["suspend"], "the gang is placed", LIMIT)
    found: dict[str, Any] = client.get(path)
    return found


def _pod_reviews(job: Mapping[str, Any]) -> Reviews:
    bodies = [review_body(pod_of(dict(job), rank), group="", user=CONTROLLER) for rank in range(GANG_PODS)]
    return Reviews("mutate", bodies, b'"patch"')


def _job_reviews(client: Client, grid: Grid) -> Reviews:
    """Reviews of new Jobs for half a rack and half a block, as the API server sends them after every mutation."""
    bodies = []
    for pods, level in ((grid.hosts // 2, "rack"), (grid.racks * grid.hosts // 2, "block")):
        sent = job_body(f"next-{pods}", pods=pods, annotations={names.REQUIRE: level})
        bodies.append(review_body(client.create(JOBS, sent, dry_run=True), group="batch", user="alice"))
    return Reviews("validate", bodies, b"would place ")


def _ca(client: Client) -> str:
    """Return the CA of the replicas' certificates, from the webhook configuration."""
    webhook = client.get(CONFIGURATIONS[0])["webhooks"][0]
    return base64.b64decode(webhook["clientConfig"]["caBundle"]).decode("ascii")


def _received(replica: Replica) -> int:
    """Return how many events of nodes and pods the replica has received so far."""
    return round(sum(map(float, RECEIVED.findall(replica.page("/metrics")[1]))))


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98]


def _latencies(found: Sequence[Measured], options: argparse.Namespace) -> Table:
    title = f"{options.grid.size:,} nodes, {options.pods:,} pods, {options.reviews:.0f} reviews of pods a second; ms"
    table = Table(box=None, pad_edge=False, title=title)
    for column in ("LOAD", "REVIEWS OF", "p50", "p99", "LONGEST", "SENT LATE, p99", "WAITED", "BARE"):
        table.add_column(column, justify="left" if column in ("LOAD", "REVIEWS OF") else "right")
    for load in LOADS:
        periods = [one for one in found if one.load == load.name]
        for what in periods[0].latency:
            all_of_it = [one.latency[what] for one in periods]
            figures = ([getattr(one, name) for one in all_of_it] for name in ("p50", "p99", "most", "sent"))
            waited, bare = sum(one.waited for one in all_of_it), sum(one.bare for one in all_of_it)
            total = sum(one.count for one in all_of_it)
            table.add_row(load.name, what, *map(results.spread, figures), f"{waited} of {total}", str(bare))
    return table


def _shares(found: Sequence[Measured]) -> Table:
    table = Table(box=None, pad_edge=False, title="events a second, and processors that were busy")
    for column in ("LOAD", "WRITTEN", "RECEIVED", *(name.upper() for name in found[0].cpu)):
        table.add_column(column, justify="left" if column == "LOAD" else "right")
    for load in LOADS:
        periods = [one for one in found if one.load == load.name]
        cpu = ([one.cpu[name] for one in periods] for name in periods[0].cpu)
        events = ([one.written for one in periods], [one.received for one in periods])
        table.add_row(load.name, *(results.spread(one, 0) for one in events), *map(results.spread, cpu))
    return table


if __name__ == "__main__":
    sys.exit(main())
