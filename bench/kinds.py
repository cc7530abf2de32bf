"""What gangs of every kind cost the API server: `python -m bench.kinds --help`.

One run = one gang with the real controller of its kind, from its POST to the binding of its last pod. Our writes are
counted in the API server's audit log until the gang is told to run: what counts is how many there are for each pod, and
how many pods were placed at their creation, without a write of ours. Seconds are told, but nothing is held against
them: they are mostly the kind's own controller.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from bench import audit, results
from bench.bound import BoundWatch
from bench.specimens import REPLICA, SPECIMENS, Specimen
from bench.stage import add_options, some_of, stage
from bench.waiting import make_namespace, told, until
from engine.api import names
from local.controllers.building import ensure_controllers
from local.controllers.catalogue import with_needed
from local.controllers.running import Controllers
from local.controlplane import ControlPlane
from local.nodes import Grid

TIMEOUT = 180.0  # from the POST to the last binding
AFTERWARDS = 30.0  # until "Running" and its Event are written, and they are counted too
GOING = 180.0  # until the pods of a deleted workload are gone: the garbage collector learns of new kinds every 30 s
BOUND = 0.1  # writes a pod until all are bound, of a gang that can be suspended and whose pods have ranks
LARGE = 64  # from so many pods on
ASKED = {names.PREFER: "block"}


@dataclass(frozen=True, slots=True)
class Run:
    """`writes` are ours until the gang is told to run, by verb and resource; `patched` the pods among them."""

    pods: int
    seconds: float
    writes: Mapping[str, int]
    until_bound: int
    patched: int

    @property
    def a_pod(self) -> float:
        """Our writes for each pod."""
        return sum(self.writes.values()) / self.pods


def main() -> int:
    """Measure; exit status 1 when something did not come up, or a kind costs more than it may."""
    options = _options()
    console = results.console(180)
    console.print(f"starting a control plane with {options.grid.size} hosts, and the controllers of the kinds")
    with stage(options, console) as built:
        cluster = built.cluster
        wanted = with_needed(name for kind in options.kinds for name in SPECIMENS[kind].controllers)
        programs = ensure_controllers(wanted, kubectl=cluster.programs["kubectl"], progress=console.print)
        controllers = Controllers(cluster, programs)
        controllers.start(*wanted)
        built.serve(options.replicas)
        found: dict[tuple[str, int], list[Run]] = {}
        with BoundWatch(cluster) as watch:
            for kind in options.kinds:
                for pods in options.pods:
                    found[kind, pods] = []
                    for number in range(options.runs):
                        namespace = f"{kind.lower()}-{pods}-{number}"
                        run = _run(cluster, watch, SPECIMENS[kind], pods, namespace=namespace)
                        found[kind, pods].append(run)
                        console.print(
                            f"  {kind} of {run.pods}: {run.a_pod:.3f} writes a pod, {run.patched} pods patched, "
                            f"{run.seconds:.2f} s; {_listed(run.writes)}"
                        )
                controllers.check()
        return _report(found, options, console)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.kinds", description=__doc__)
    add_options(parser, grid=Grid(2, 18, 8))
    parser.add_argument(
        "--kinds", type=some_of(SPECIMENS, "kind"), default=list(SPECIMENS), help=f"which ({','.join(SPECIMENS)})"
    )
    parser.add_argument(
        "--pods", type=_sizes, default=[64, 128], help=f"pods of a gang, multiples of {REPLICA} (64,128)"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each size (3)")
    return parser.parse_args()


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if any(size < REPLICA or size % REPLICA for size in sizes):
        raise argparse.ArgumentTypeError(f"{text}: numbers of pods are multiples of {REPLICA}")
    return sizes


def _run(cluster: ControlPlane, watch: BoundWatch, specimen: Specimen, pods: int, *, namespace: str) -> Run:
    client = cluster.client
    make_namespace(client, namespace)
    for resource, body in specimen.needs.items():
        client.create(specimen.path(namespace, resource), body)
    total = pods + specimen.beyond
    began, start = time.time(), time.monotonic()
    client.create(specimen.path(namespace), specimen.body(pods, ASKED))
    seconds = watch.wait(namespace, total, TIMEOUT) - start
    until(lambda: told(client, namespace, 1), f"the status of {namespace} says Running", AFTERWARDS)
    ours = audit.read(audit.log_file(cluster.directory), namespaces=[namespace])[namespace]
    run = Run(
        pods=total,
        seconds=seconds,
        writes=dict(audit.our_writes(ours)),
        until_bound=sum(audit.our_writes([one for one in ours if one.end <= began + seconds]).values()),
        patched=audit.patched_pods(ours),
    )
    client.delete(f"{specimen.path(namespace)}/train")
    pods_path = f"/api/v1/namespaces/{namespace}/pods"

    def gone() -> bool:
        if not client.items(pods_path):
            return True
        client.delete(pods_path, grace=0)
        return False

    until(gone, f"the pods of {namespace} are gone", GOING)
    return run


def _report(found: Mapping[tuple[str, int], Sequence[Run]], options: argparse.Namespace, console: Console) -> int:
    table = Table(box=None, pad_edge=False, title="our writes for one gang: median (range)", title_justify="left")
    for column in (
        "KIND",
        "HELD BY",
        "PODS",
        "A POD",
        "A GANG",
        "UNTIL BOUND",
        "PLACED AT CREATION",
        "SECONDS",
        "WHICH",
    ):
        table.add_column(column, justify="left" if column in ("KIND", "HELD BY", "WHICH") else "right")
    above = []
    for (kind, pods), runs in found.items():
        held_by, total = SPECIMENS[kind].held_by, runs[0].pods
        if held_by == "suspend" and pods >= LARGE and median(run.until_bound for run in runs) > BOUND * total:
            above.append(f"{kind} of {total}")
        kinds: Counter[str] = Counter()
        for run in runs:
            kinds.update(run.writes)
        table.add_row(
            kind,
            held_by,
            f"{total}",
            results.spread([run.a_pod for run in runs], 3),
            f"{median(sum(run.writes.values()) for run in runs):g}",
            f"{median(run.until_bound for run in runs):g}",
            f"{1 - sum(run.patched for run in runs) / (total * len(runs)):.1%}",
            results.spread([run.seconds for run in runs]),
            _listed({what: count / len(runs) for what, count in kinds.items()}),
        )
    console.print()
    console.print(table)
    path = results.write(
        "kinds",
        {
            "grid": f"{options.grid}",
            "replicas": options.replicas,
            "kinds": {f"{kind} {pods}": [asdict(run) for run in runs] for (kind, pods), runs in found.items()},
        },
    )
    console.print(f"\n{path.relative_to(results.ROOT)}")
    if above:
        console.print(f"[bold red]more than {BOUND} writes a pod until all are bound:[/] {', '.join(above)}")
    return 1 if above else 0


def _listed(writes: Mapping[str, float]) -> str:
    return ", ".join(f"{count:.3g} {what}" for what, count in sorted(writes.items()))


if __name__ == "__main__":
    sys.exit(main())
