"""What a replica costs on a large cluster: `python -m bench.scale --help`.

The objects are written into etcd itself, while scheduler, controllers and simulated kubelets stand still. Then one
replica is started: how long until it is ready, and until it leads, what CPU that took, and what memory it keeps. At
last the API server is restarted, and the replica has to follow it again.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import processes, results
from bench.scale.large_cluster import LIMIT, add_options, fill, replica_pids, standing_still
from bench.stage import Stage, stage
from bench.waiting import make_namespace, until
from local.controlplane import ControlPlane
from local.nodes import NODES
from local.service import Replica

AGE: Final = re.compile(r'^topogate_cache_age_seconds\{collection="([^"]+)"\} (\S+)$', re.MULTILINE)


def main() -> int:
    """Measure and report; exit status 1 when something did not come up."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    add_options(parser)
    options = parser.parse_args()
    console = results.console(120)
    with stage(options, console, hosts=False) as built:
        report = _measure(built, options, console)
    table = Table(box=None, pad_edge=False, title=f"{options.grid.size:,} nodes, {options.pods:,} pods, one replica")
    for column in ("STEP", "SECONDS", "CPU s"):
        table.add_column(column, justify="left" if column == "STEP" else "right")
    for step, row in report["steps"].items():
        table.add_row(step, f"{row['seconds']:.1f}", f"{row['cpu']:.1f}")
    console.print(table)
    memory = report["memory"]
    parts = ", ".join(f"{name} {size:.0f}" for name, size in memory.items())
    console.print(f"memory: {sum(memory.values()):.0f} MiB (PSS: {parts}); lists after the restart: {report['lists']}")
    console.print(f"\n{results.write('scale', report).relative_to(results.ROOT)}")
    return 0


def _measure(built: Stage, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    cluster = built.cluster
    make_namespace(cluster.client, "scale-0")  # nobody asks for those of the other pods
    service = built.install()
    with standing_still(cluster):
        fill(cluster, options.grid, options.pods, console)
        began = time.monotonic()
        (replica,) = service.start(1, wait=False)
        steps: dict[str, dict[str, float]] = {}

        def step(name: str, done: Callable[[], bool]) -> None:
            until(done, name, LIMIT)
            steps[name] = {"seconds": time.monotonic() - began, "cpu": _cpu(replica)}

        step("ready", replica.ready)
        step("leading", lambda: "read afresh in" in replica.log())
        until(lambda: processes.at_rest({"replica": replica_pids(replica)}), "rest", LIMIT)
        memory = _memory(replica)
        used, listed = _cpu(replica), _lists(replica)
        cluster.restart_api_server()
        began = time.monotonic()
        _change(cluster)
        step("following a restarted API server", lambda: _follows(replica, since=began))
        steps["following a restarted API server"]["cpu"] -= used
        return {"steps": steps, "memory": memory, "lists": _lists(replica) - listed, "pods": options.pods}


def _change(cluster: ControlPlane) -> None:
    """Change a node and a pod, for a watch that goes on where it was."""
    label = {"metadata": {"labels": {"topogate-bench/changed": "true"}}}
    for collection in (NODES, "/api/v1/namespaces/scale-0/pods"):
        name = cluster.client.request("GET", collection, query={"limit": "1"})["items"][0]["metadata"]["name"]
        cluster.client.patch(f"{collection}/{name}", label)


def _cpu(replica: Replica) -> float:
    return processes.cpu_seconds({"replica": replica_pids(replica)})["replica"]


def _memory(replica: Replica) -> dict[str, float]:
    """Return the proportional set size of the arbiter and the worker (MiB)."""
    found = {}
    for pid in replica_pids(replica):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        (size,) = (int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        found["arbiter" if pid == replica.child.process.pid else f"worker {pid}"] = size / 1024
    return found


def _lists(replica: Replica) -> int:
    """Return how many collections were listed again because their version was refused."""
    return replica.log().count("listing again")


def _follows(replica: Replica, *, since: float) -> bool:
    """Return whether the watches of nodes and pods have received something since then."""
    ages = dict(AGE.findall(replica.page("/metrics")[1]))
    passed = time.monotonic() - since
    return all(0 <= float(ages[name]) < passed for name in ("nodes", "pods"))


if __name__ == "__main__":
    sys.exit(main())
