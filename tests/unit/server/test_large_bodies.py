"""What a large request costs beside its own bytes, between its connection and the application."""

from __future__ import annotations

import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

from gunicorn.config import Config

from tests.support.replica import request_bytes, review_body
from webhook.admission.review import Response, Review, allowed
from webhook.server.app import create_app
from webhook.server.metrics import Metrics
from webhook.server.worker import ParkingWorker, _Outbox

SIZE = 4 * 1024 * 1024


class Answering(ParkingWorker):
    """A worker that only answers: no process, no poller."""

    def __init__(self, wsgi: Any) -> None:
        self.cfg = Config()
        self.alive = True
        self.wsgi = wsgi


def test_a_body_is_copied_once_on_its_way_to_its_handler() -> None:
    """Once, to split it from its head; each copy is made while all other threads wait for the interpreter."""
    peaks: list[int] = []

    def review(review: Review, _deadline: float) -> Response:
        assert review.object is not None
        peaks.append(tracemalloc.get_traced_memory()[1])
        return allowed()

    worker = Answering(create_app(mutate=review, validate=review, metrics=Metrics()))
    request = request_bytes(review_body(size=SIZE))
    connection: Any = SimpleNamespace(
        client=("127.0.0.1", 1), server=("127.0.0.1", 2), received=time.monotonic(), proven=False
    )
    tracemalloc.start()
    try:
        assert worker._respond(connection, request, _Outbox(), whole=True, busy=False)
    finally:
        tracemalloc.stop()
    assert [round(peak / SIZE) for peak in peaks] == [1]
