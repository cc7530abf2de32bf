"""What objects that ask for nothing cost the API server beside the service: `python -m bench.bystanders --help`.

Two control planes, one of them with the service installed, take turns with the same dry runs: all of admission happens,
nothing is stored. Measured is the CPU of each API server for one request; the service itself gets none of them. The CPU
at rest, before the first request, is a part of each figure: the two API servers differ by the watches and the Lease.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

from bench import processes, results
from bench.jobs import job_body, template
from bench.stage import add_options, stage
from bench.waiting import make_namespace
from engine.api import names
from local.client import Client
from local.controlplane import ControlPlane
from local.nodes import Grid

NAMESPACE = "bystanders"
JOBS, PODS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
DRY = {"dryRun": "All"}
WARM = 50  # requests before the first round
REST = 10.0  # seconds without requests
TURN = 25  # requests to one control plane before the other's: what else the machine does changes by the second


@dataclass(frozen=True, slots=True)
class Request:
    """One sort of request; `send` gets the client and the number of the request."""

    what: str
    send: Callable[[Client, int], Any]


REQUESTS = (
    Request(
        "create a Job", lambda client, _: client.create(JOBS, job_body("job", pods=4, annotations={}), dry_run=True)
    ),
    Request("create a Deployment", lambda client, _: client.create(DEPLOYMENTS, _deployment("other"), dry_run=True)),
    Request(
        "update a Deployment",
        lambda client, number: client.patch(
            f"{DEPLOYMENTS}/known", {"spec": {"minReadySeconds": number % 2}}, query=DRY
        ),
    ),
    Request(
        "create a pod",
        lambda client, _: client.create(PODS, {"metadata": {"name": "pod"}, **template()}, dry_run=True),
    ),
)


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.bystanders", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each request (7)")
    parser.add_argument("--requests", type=int, default=300, help=f"requests in a round, in turns of {TURN} (300)")
    parser.add_argument(
        "--floor", action="store_true", help="conditions that are false for everybody: what the entries cost at least"
    )
    add_options(parser, grid=Grid(1, 1, 4))
    options = parser.parse_args()
    console = results.console(120)
    table = Table(box=None, pad_edge=False, title="CPU of the API server for one request, ms: median (range)")
    for column in ("REQUEST", "WITHOUT US", "WITH US", "MORE", "RATIO BY ROUND"):
        table.add_column(column, justify="left" if column == "REQUEST" else "right")
    report: dict[str, Any] = {}
    console.print("starting two control planes, one with the service")
    with stage(options, console) as bare, stage(options, console) as ours:
        ours.serve(options.replicas)
        if options.floor:
            _never_match(ours.cluster.client)
        clusters = (bare.cluster, ours.cluster)
        for cluster in clusters:
            make_namespace(cluster.client, NAMESPACE)
            cluster.client.create(DEPLOYMENTS, _deployment("known"))
        rest = _at_rest(clusters)
        console.print("CPU at rest, ms a second: {:.0f} without us, {:.0f} with us".format(*rest))
        for request in REQUESTS:
            console.print(f"measuring: {request.what}")
            for cluster in clusters:
                _send(cluster.client, request, WARM)
            rounds = []
            for _ in range(options.rounds):
                turns = max(1, options.requests // TURN)
                pair = [0.0, 0.0]
                for _ in range(turns):
                    for index, cluster in enumerate(clusters):
                        before = _cpu_ms(cluster)
                        _send(cluster.client, request, TURN)
                        pair[index] += (_cpu_ms(cluster) - before) / (turns * TURN)
                rounds.append(tuple(pair))
            without, beside = [pair[0] for pair in rounds], [pair[1] for pair in rounds]
            table.add_row(
                request.what,
                results.spread(without),
                results.spread(beside),
                f"{median(two - one for one, two in rounds):.2f}",
                results.spread([two / one for one, two in rounds]),
            )
            report[request.what] = {"without": without, "with": beside}
    console.print()
    console.print(table)
    console.print(f"\n{results.write('bystanders', {'requests': report, 'rest': rest}).relative_to(results.ROOT)}")
    return 0


def _cpu_ms(cluster: ControlPlane) -> float:
    """Return the CPU that its API server has used so far."""
    return processes.cpu_seconds({"api": [cluster.pids["kube-apiserver"]]})["api"] * 1e3


def _at_rest(clusters: Sequence[ControlPlane]) -> list[float]:
    """Return the CPU of each API server while nobody asks for anything, in ms a second."""
    before = [_cpu_ms(cluster) for cluster in clusters]
    time.sleep(REST)
    return [(_cpu_ms(cluster) - start) / REST for cluster, start in zip(clusters, before, strict=True)]


def _never_match(client: Client) -> None:
    """Replace the conditions of the entries of both configurations, which have the same name."""
    for resource in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        path = f"/apis/admissionregistration.k8s.io/v1/{resource}/{names.MUTATING_CONFIGURATION}"
        hooks = client.get(path)["webhooks"]
        never = [{"name": "never", "expression": "request.userInfo.username == ''"}]
        client.patch(path, {"webhooks": [{**hook, "matchConditions": never} for hook in hooks]})


def _send(client: Client, request: Request, count: int) -> None:
    for number in range(count):
        request.send(client, number)


def _deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    pods = {"metadata": {"labels": labels}, **template(restartPolicy="Always")}
    del pods["spec"]["terminationGracePeriodSeconds"]
    return {"metadata": {"name": name}, "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pods}}


if __name__ == "__main__":
    sys.exit(main())
