"""What a large request costs beside its own bytes, between its connection and the application."""

from __future__ import annotations

import time
import tracemalloc
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from gunicorn.config import Config

from tests.support.replica import api_server_request, review_body
from webhook.admission.review import Response, Review, allowed
from webhook.connections.framing import frame
from webhook.server.endpoint import Endpoint
from webhook.server.exchange import Exchange
from webhook.server.metrics import Metrics

SIZE = 4 * 1024 * 1024


@pytest.mark.parametrize("extra", ["", "X-Other: 1\r\n"], ids=["directly", "through WSGI"])
def test_a_body_is_copied_once_on_its_way_to_its_handler(extra: str) -> None:
    """Once, to split it from its head; each copy is made while all other threads wait for the interpreter."""
    peaks: list[int] = []

    def review(review: Review, _deadline: float) -> Response:
        assert review.object is not None
        peaks.append(tracemalloc.get_traced_memory()[1])
        return allowed()

    exchange = Exchange(Config(), Endpoint(mutate=review, validate=review, metrics=Metrics()), on_error=Mock())
    request = api_server_request(review_body(size=SIZE), extra=extra)
    framed = frame(request, max_body=2 * SIZE)
    assert framed is not None
    assert (framed.review is None) is bool(extra)
    connection: Any = SimpleNamespace(
        client=("127.0.0.1", 1), server=("127.0.0.1", 2), received=time.monotonic(), proven=False
    )
    tracemalloc.start()
    try:
        assert exchange.answer(connection, request, framed, busy=False, last=False).reviewed
    finally:
        tracemalloc.stop()
    assert [round(peak / SIZE) for peak in peaks] == [1]
