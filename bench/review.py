"""What one review of a gang's pod costs: `python -m bench.review --help`.

In this process, without network and TLS: the handlers alone (bytes in, bytes out) and the whole WSGI application, as
ratios to json.loads of the same body, which is the least that any Python webhook does. All take turns in short rounds,
so that a busy machine slows them alike; what is said is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import cycle
from typing import Any

from rich.table import Table

from bench import results
from bench.cluster import SCENES, Scene
from bench.gang import CONTROLLER, PlacedGang, review_body
from bench.subjects import COLUMNS, Subject, measured
from engine.decoding import pods
from local.nodes import Grid
from webhook.admission.review import decode_review, encode
from webhook.handlers.mutate import mutate
from webhook.server.app import create_app
from webhook.server.endpoint import Endpoint
from webhook.server.metrics import Metrics


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.review", description=__doc__)
    parser.add_argument("--grid", type=Grid.parse, default=Grid(8, 8, 8), help="BLOCKSxRACKSxHOSTS (8x8x8)")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of 20 reviews each (200)")
    options = parser.parse_args()
    console = results.console(140)
    table = Table(box=None, pad_edge=False, title="one mutating review of a pod; half of its gang exists already")
    for column in ("GANG", "BODY", "WHAT", *COLUMNS):
        table.add_column(column, justify="left" if column in ("GANG", "WHAT") else "right")
    report: dict[str, Any] = {}
    scenes = (one for one in SCENES.values() if isinstance(one, Scene) and one.gangs == 1)
    for scene in (one for one in scenes if one.pods <= options.grid.size):
        console.print(f"measuring: {scene.title}")
        gang = PlacedGang.make(options.grid, pods=scene.pods, annotations=scene.annotations)
        subjects, bodies = _subjects(gang)
        found = measured(subjects, bodies, rounds=options.rounds)
        for number, (subject, figures) in enumerate(zip(subjects, found, strict=True)):
            first = ("", "") if number else (scene.title, f"{len(bodies[0])} B")
            table.add_row(*first, subject.name, *figures.cells)
            report.setdefault(scene.title, {})[subject.name] = asdict(figures)
    console.print()
    console.print(table)
    console.print(f"\n{results.write('review', {'reviews': report}).relative_to(results.ROOT)}")
    return 0


def _subjects(gang: PlacedGang) -> tuple[list[Subject], list[bytes]]:
    """What is measured, and the reviews of 20 pods (or as many as there are) of a gang of which half exists."""
    half = gang.pods // 2
    gang.view.stores.pods.replace([pods.pod(gang.stored(rank)) for rank in range(half)])
    gang.view.refresh()
    ranks = cycle(range(half, gang.pods))
    bodies = [review_body(gang.pod(next(ranks)), group="", user=CONTROLLER) for _ in range(20)]
    endpoint = Endpoint(
        mutate=lambda review, deadline: mutate(review, gang.live, deadline),
        validate=lambda review, deadline: mutate(review, gang.live, deadline),
        metrics=Metrics(),
    )
    app = create_app(endpoint)

    def handlers(body: bytes) -> bytes:
        review = decode_review(body)
        response = mutate(review, gang.live, math.inf)
        assert response.patch, "the pod was not placed"
        return encode(response, review.uid)

    def served(body: bytes) -> bytes:
        return b"".join(app.wsgi_app(_environ(body), _start_response))

    assert json.loads(served(bodies[0]))["response"]["patch"], "the pod was not placed"
    return [Subject("json.loads", json.loads), Subject("handlers", handlers), Subject("WSGI", served)], bodies


def _environ(body: bytes) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/mutate",
        "SCRIPT_NAME": "",
        "QUERY_STRING": "timeout=2s",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8443",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.url_scheme": "https",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.version": (1, 0),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def _start_response(status: str, headers: object, exc_info: object = None) -> Callable[[bytes], object]:
    assert status.startswith("200"), status
    return lambda _: None


if __name__ == "__main__":
    sys.exit(main())
