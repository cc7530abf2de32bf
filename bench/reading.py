"""What reading objects costs, beside the ways that were not taken: `python -m bench.reading --help`.

A pod as the API server sends it, from bytes to what we keep of it: our projection, the client library's model of the
same bytes, and json.loads, which keeps everything. Documents of YAML: ours, and PyYAML's own constructor on the same
parser. All take turns in short rounds, so that a busy machine slows them alike; the ratio is the median of the rounds'.
"""

from __future__ import annotations

import argparse
import json
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from bench import results
from bench.gang import PlacedGang
from bench.subjects import Subject, measured
from engine.decoding import pods
from local.nodes import Grid
from webhook.snapshot.yaml_documents import documents

EXAMPLES = Path(__file__).parents[1] / "examples"
COLUMNS = ("CPU us", "ratio", "WALL us p50", "p99", "KiB KEPT")
KEPT = 200  # records held at once when their memory is counted


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.reading", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="rounds (100)")
    options = parser.parse_args()
    gang = PlacedGang.make(Grid(2, 4, 4), pods=8, annotations={"topogate.dev/require-topology": "block"})
    small, large = [_pod(gang, rank, containers=1) for rank in range(8)], [_pod(gang, rank, 4) for rank in range(8)]
    cluster = [(EXAMPLES / "cluster.yaml").read_bytes()]
    printed = [yaml.dump_all([json.loads(body) for body in (*small, *large)], Dumper=yaml.CSafeDumper).encode()]
    scenes = {
        f"a pod of 1 container, {len(small[0])} B": (small, _pods()),
        f"a pod of 4 containers, {len(large[0])} B": (large, _pods()),
        f"32 nodes in YAML as people write them, {len(cluster[0])} B": (cluster, _documents()),
        f"16 pods in YAML as kubectl prints them, {len(printed[0])} B": (printed, _documents()),
    }
    console = results.console(140)
    table = Table(box=None, pad_edge=False, title="reading one body")
    for column in ("WHAT", "HOW", *COLUMNS):
        table.add_column(column, justify="left" if column in ("WHAT", "HOW") else "right")
    report: dict[str, Any] = {}
    for title, (bodies, ways) in scenes.items():
        console.print(f"measuring: {title}")
        subjects = [Subject(name, call) for name, call in ways.items()]
        rounds = options.rounds if len(bodies) > 1 else max(options.rounds // 5, 5)
        for number, (subject, figures) in enumerate(
            zip(subjects, measured(subjects, bodies, rounds=rounds), strict=True)
        ):
            kept = _kept(subject.call, bodies)
            table.add_row("" if number else title, subject.name, *figures.cells, f"{kept / 1024:.1f}")
            report.setdefault(title, {})[subject.name] = {**asdict(figures), "kept": kept}
    console.print()
    console.print(table)
    console.print(f"\n{results.write('reading', {'reading': report}).relative_to(results.ROOT)}")
    return 0


def _pod(gang: PlacedGang, rank: int, containers: int) -> bytes:
    """A pod with what a kubelet and a field manager add to it."""
    body = gang.pod(rank)
    [container] = body["spec"]["containers"][:1]
    names = [f"{container['name']}-{number}" for number in range(containers)]
    env = [{"name": f"VARIABLE_{number}", "value": f"value {number}"} for number in range(10)]
    body["spec"]["containers"] = [{**container, "name": name, "env": env} for name in names]
    body["metadata"]["managedFields"] = [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:containers": {f'k:{{"name":"{name}"}}': {"f:env": {}} for name in names}}},
        }
    ]
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    body["status"] = {
        "phase": "Running",
        "conditions": [{"type": one, "status": "True"} for one in ("PodScheduled", "Initialized", "Ready")],
        "containerStatuses": [
            {"name": name, "ready": True, "restartCount": 0, "image": "x", "imageID": "sha256:0", "state": running}
            for name in names
        ],
    }
    return json.dumps(body).encode()


def _pods() -> dict[str, Callable[[bytes], object]]:
    from kubernetes.client import ApiClient

    client = ApiClient()
    return {
        "ours": pods.pod,
        "json.loads": json.loads,
        "V1Pod": lambda body: client.deserialize(body.decode(), "V1Pod", "application/json"),
    }


def _documents() -> dict[str, Callable[[bytes], object]]:
    return {
        "ours": lambda body: list(documents(body.decode())),
        "yaml.CSafeLoader": lambda body: list(yaml.load_all(body, Loader=yaml.CSafeLoader)),
    }


def _kept(call: Callable[[bytes], object], bodies: Sequence[bytes]) -> float:
    """Bytes that stay allocated for each result, as Python counts them."""
    for body in bodies:
        call(body)
    copies = [bytes(bytearray(body)) for body in bodies] * (KEPT // len(bodies) if len(bodies) > 1 else 1)
    tracemalloc.start()
    kept = [call(body) for body in copies]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(kept)


if __name__ == "__main__":
    sys.exit(main())
