"""What one review of a request for GPUs costs, by the number of containers: `python -m bench.mutation --help`.

In this process, without network and TLS, as ratios to json.loads of the same body in the same rounds. Three reviews:
a Job whose GPU requests are rewritten, the same Job called for again with nothing left to do, and a pod that belongs to
nobody. Beside each, the same object without GPUs: what a review costs anyway.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench import results
from bench.gang import CONTROLLER, NAMESPACE, POLICY, Json, live_view, review_body
from bench.subjects import COLUMNS, Subject, measured
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding import objects
from engine.policy.model import parse_policy
from engine.resources.names import CORE, GPU, MEMORY, RATIO
from local import nodes
from local.nodes import Grid, HostShape
from webhook.admission.live_reader import LiveReader
from webhook.admission.review import decode_review, encode
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

SIZES = (1, 8, 50)
TOLD = HostShape(gpus=0, extended={CORE: "800", RATIO: "800", MEMORY: "640Gi"})


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.mutation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="rounds of 10 reviews each (100)")
    options = parser.parse_args()
    console = results.console(140)
    table = Table(box=None, pad_edge=False, title="one review of a request for GPUs")
    for column in ("CONTAINERS", "BODY", "WHAT", *COLUMNS):
        table.add_column(column, justify="left" if column == "WHAT" else "right")
    live = _view()
    report: dict[str, Any] = {}
    for size in SIZES:
        console.print(f"measuring: {size} containers")
        for what, answer, body in _reviews(live, size):
            floor, subject = Subject("json.loads", json.loads), Subject(what, answer)
            _, figures = measured((floor, subject), [body] * 10, rounds=options.rounds)
            table.add_row(str(size), f"{len(body)} B", what, *figures.cells)
            report[f"{what}, {size}"] = asdict(figures)
    console.print()
    console.print(table)
    console.print(f"\n{results.write('mutation', {'reviews': report}).relative_to(results.ROOT)}")
    return 0


def _view() -> LiveReader:
    """A cluster of 512 hosts that report Koordinator's dimensions."""
    view = ClusterState(Stores(), parse_policy(POLICY))
    bodies = nodes.grid_nodes(Grid(8, 8, 8), shape=TOLD)
    view.stores.nodes.replace([objects.node(json.dumps(body).encode()) for body in bodies])
    view.refresh()
    return live_view(view)


def _reviews(live: LiveReader, size: int) -> list[tuple[str, Callable[[bytes], object], bytes]]:
    """What is measured: its name, how it is answered, and the bytes of the review."""

    def mutated(body: bytes) -> bytes:
        review = decode_review(body)
        return encode(mutate(review, live, math.inf), review.uid)

    def validated(body: bytes) -> bytes:
        review = decode_review(body)
        return encode(validate(review, live, math.inf), review.uid)

    plain, asking = _job(size, gpus=False), _job(size, gpus=True)
    translated = mutate(decode_review(_body(asking, "batch")), live, math.inf).document or asking
    assert CORE in json.dumps(translated)
    pod, plain_pod = _pod(asking), _pod(plain)
    return [
        ("mutate: a Job without GPUs", mutated, _body(plain, "batch")),
        ("mutate: a Job, rewritten", mutated, _body(asking, "batch")),
        ("mutate: the same again", mutated, _body(translated, "batch")),
        ("validate: the Job", validated, _body(translated, "batch")),
        ("mutate: a pod without GPUs", mutated, _body(plain_pod, "")),
        ("mutate: a pod, rewritten", mutated, _body(pod, "")),
    ]


def _body(document: Json, group: str) -> bytes:
    return review_body(document, group=group, user="alice" if group else CONTROLLER)


def _job(size: int, *, gpus: bool) -> Json:
    containers = [_container(number, gpus=gpus) for number in range(size)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": NAMESPACE},
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": containers}},
        },
    }


def _pod(job: Json) -> Json:
    metadata = {"generateName": "one-", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job["spec"]["template"]["spec"]}


def _container(number: int, *, gpus: bool) -> Json:
    """A container as the API server sends it, with what it fills in."""
    asked = {GPU: "100"} if gpus else {}
    return {
        "name": f"worker-{number}",
        "image": "registry.example.com/team/trainer:2026.11",
        "command": ["python", "-m", "train", "--config", "/etc/train/config.yaml"],
        "env": [{"name": "RANK", "value": str(number)}, {"name": "NCCL_DEBUG", "value": "WARN"}],
        "resources": {"requests": {"cpu": "8", "memory": "64Gi", **asked}, "limits": {"memory": "64Gi"}},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "kube-api-access-x7k2p", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io"},
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


if __name__ == "__main__":
    sys.exit(main())
