"""The WSGI application: HTTP in, handlers called, every fault an HTTP error."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from engine.api.field import FieldError
from tests.support.replica import review_body
from webhook.admission.review import BadReview, Response, Review, Unavailable, allowed, denied, patched
from webhook.server.app import RECEIVED, create_app
from webhook.server.endpoint import MAX_BODY, Endpoint, Handler
from webhook.server.metrics import Metrics

NOW = 1000.0


def answer_allowed(review: Review, deadline: float) -> Response:
    return allowed()


class Asked:
    """A client of an application with the given handlers, and its metrics."""

    def __init__(self, mutate: Handler = answer_allowed, validate: Handler = answer_allowed, **options: Any) -> None:
        self.metrics = Metrics()
        self.client = Client(
            create_app(Endpoint(mutate=mutate, validate=validate, metrics=self.metrics, clock=lambda: NOW, **options))
        )

    def post(self, path: str = "/mutate", body: bytes | None = None, **options: Any) -> TestResponse:
        options.setdefault("content_type", "application/json")
        return self.client.post(path, data=review_body() if body is None else body, **options)


def deadlines(seen: list[float]) -> Handler:
    def handler(review: Review, deadline: float) -> Response:
        seen.append(deadline)
        return allowed()

    return handler


def test_a_handler_may_find_the_review_bad(caplog: pytest.LogCaptureFixture) -> None:
    """An object that turns out to be malformed is its sender's fault: his status, and no fault in the log."""

    def reads_the_object(review: Review, deadline: float) -> Response:
        raise BadReview(400, "malformed object: $.spec")

    with caplog.at_level(logging.ERROR):
        response = Asked(mutate=reads_the_object).post()
    assert (response.status_code, response.text) == (400, "malformed object: $.spec\n")
    assert caplog.records == []


def test_each_path_calls_its_handler() -> None:
    """/mutate and /validate answer with an AdmissionReview from their own handler."""
    asked = Asked(
        mutate=lambda review, deadline: allowed(["mutated"]), validate=lambda review, deadline: allowed(["validated"])
    )
    for path, warning in (("/mutate", "mutated"), ("/validate?timeout=3s", "validated")):
        response = asked.post(path)
        assert (response.status_code, response.mimetype) == (200, "application/json")
        assert response.json is not None
        assert response.json["response"] == {"uid": "u1", "allowed": True, "warnings": [warning]}


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("?timeout=3s", 2.7),
        ("?timeout=500ms", 0.45),
        ("?timeout=1m", 9.0),
        ("?timeout=1ns", 0.09),
        ("?timeout=0", 0.09),
        ("", 1.8),
        ("?timeout=", 1.8),
        ("?timeout=-1s", 1.8),
        ("?timeout=soon", 1.8),
        ("?timeout=" + "9" * 5000 + "s", 1.8),
        ("?timeout=NaNs", 1.8),
        ("?timeout=%ff%00", 1.8),
    ],
)
def test_the_deadline_is_nine_tenths_of_the_api_servers_timeout(query: str, seconds: float) -> None:
    """A Go duration, kept within 0.1 s and 10 s; what is no duration counts as 2 s."""
    seen: list[float] = []
    assert Asked(mutate=deadlines(seen)).post(f"/mutate{query}").status_code == 200
    assert seen == [pytest.approx(NOW + seconds)]


def test_the_deadline_counts_from_the_requests_first_byte() -> None:
    """Time that a review spent waiting for a thread is gone."""
    seen: list[float] = []
    asked = Asked(mutate=deadlines(seen))
    asked.post("/mutate?timeout=2s", environ_overrides={RECEIVED: NOW - 1})
    assert seen == [pytest.approx(NOW + 0.8)]


def test_a_review_whose_time_ran_out_is_503_and_no_handler_runs() -> None:
    """Nobody listens to the answer any more: the work is saved."""
    seen: list[float] = []
    response = Asked(mutate=deadlines(seen)).post("/mutate?timeout=2s", environ_overrides={RECEIVED: NOW - 2})
    assert (response.status_code, response.headers["Retry-After"], seen) == (503, "1", [])


CHUNKED = {"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked"}


def length(value: object) -> dict[str, str]:
    return {"CONTENT_LENGTH": str(value)}


@pytest.mark.parametrize(
    ("call", "status"),
    [
        pytest.param(lambda asked: asked.post(body=b"{"), 400, id="no JSON"),
        pytest.param(lambda asked: asked.post(body=b"", environ_overrides=length(0)), 400, id="empty"),
        pytest.param(lambda asked: asked.post(body=b"[" * 100_000), 400, id="nesting bomb"),
        pytest.param(lambda asked: asked.post(content_type="text/plain"), 415, id="another type"),
        pytest.param(lambda asked: asked.post(content_type=""), 415, id="no type"),
        pytest.param(lambda asked: asked.post(environ_overrides=length(MAX_BODY + 1)), 413, id="too long"),
        pytest.param(lambda asked: asked.post(environ_overrides=length("x")), 400, id="unreadable length"),
        pytest.param(lambda asked: asked.post(environ_overrides=CHUNKED), 411, id="chunked"),
        pytest.param(lambda asked: asked.post(environ_overrides=length(5000)), 400, id="cut short"),
        pytest.param(lambda asked: asked.post("/mutate/"), 404, id="another path"),
        pytest.param(lambda asked: asked.post("/"), 404, id="the root"),
        pytest.param(lambda asked: asked.client.get("/mutate"), 405, id="GET"),
        pytest.param(lambda asked: asked.client.head("/mutate"), 405, id="HEAD"),
        pytest.param(lambda asked: asked.client.options("/mutate"), 405, id="OPTIONS"),
    ],
)
def test_what_is_no_review_is_an_http_error(call: Callable[[Asked], TestResponse], status: int) -> None:
    """Each fault of a request has its status, a short plain text and a count, and no handler runs."""
    seen: list[float] = []
    asked = Asked(mutate=deadlines(seen))
    response = call(asked)
    assert (response.status_code, response.mimetype, seen) == (status, "text/plain", [])
    assert len(response.get_data()) < 200
    assert f'status="{status}"}} 1.0' in asked.metrics.exposition().decode()


def test_a_json_type_with_a_charset_is_accepted() -> None:
    """Content-Type parameters do not matter."""
    assert Asked().post(content_type="application/json; charset=utf-8").status_code == 200


@pytest.mark.parametrize("fault", [RuntimeError("secret"), MemoryError(), RecursionError(), KeyError("x")])
def test_a_handlers_exception_is_500_and_logged_once(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The answer tells nothing; the log has the review's uid and one traceback."""

    def broken(review: Review, deadline: float) -> Response:
        raise fault

    with caplog.at_level(logging.ERROR):
        response = Asked(mutate=broken).post()
    assert (response.status_code, response.text) == (500, "internal error\n")
    assert "allowed" not in response.text
    (record,) = caplog.records
    assert "review u1 on mutate failed" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is fault


def test_an_answer_that_cannot_be_encoded_is_500(caplog: pytest.LogCaptureFixture) -> None:
    """A patch that holds no JSON is the handler's fault too."""
    response = Asked(mutate=lambda review, deadline: patched([{"value": object()}])).post()
    assert response.status_code == 500


def test_an_unavailable_handler_is_503() -> None:
    """A handler may say that it cannot answer yet."""

    def unready(review: Review, deadline: float) -> Response:
        raise Unavailable("cache not synced")

    response = Asked(mutate=unready).post()
    assert (response.status_code, response.text, response.headers["Retry-After"]) == (503, "cache not synced\n", "1")


def test_reviews_are_counted_by_path_operation_kind_and_outcome() -> None:
    """A kind that nobody registered shares one label: a client cannot make series."""
    errors = [FieldError("spec.a", "Invalid value", "x", "InvalidValue", "no")]
    asked = Asked(validate=lambda review, deadline: denied(errors, review))
    asked.post("/mutate")
    asked.post("/validate", body=review_body().replace(b'"Pod"', b'"Evil-1"'))
    text = asked.metrics.exposition().decode()
    counted = 'topogate_reviews_total{kind="%s",operation="CREATE",outcome="%s",path="%s"} 1.0'
    assert counted % ("Pod", "allowed", "mutate") in text
    assert counted % ("other", "invalid", "validate") in text
    assert "Evil" not in text
    assert 'topogate_review_duration_seconds_count{outcome="allowed",path="mutate"} 1.0' in text
    assert 'topogate_review_duration_seconds_count{outcome="invalid",path="validate"} 1.0' in text
    assert "topogate_reviews_in_flight 0.0" in text


@pytest.mark.parametrize(("dry_run", "refused", "count"), [(False, False, 1), (True, False, 0), (False, True, 0)])
def test_what_is_left_alone_is_counted_by_its_reason(dry_run: bool, refused: bool, count: int) -> None:
    """A question and a refusal are none; every reason has its series from the start."""
    errors = [FieldError("spec.a", "Invalid value", "x", "InvalidValue", "no")]

    def left_alone(review: Review, deadline: float) -> Response:
        return replace(denied(errors, review) if refused else allowed(), aside="OtherScheduler")

    asked = Asked(validate=left_alone)
    body = json.loads(review_body())
    body["request"]["dryRun"] = dry_run
    asked.post("/validate", body=json.dumps(body).encode())
    text = asked.metrics.exposition().decode()
    assert f'topogate_aside_total{{reason="OtherScheduler"}} {count}.0' in text
    assert 'topogate_aside_total{reason="ManagedByKueue"} 0.0' in text
    assert 'topogate_aside_total{reason="NoTopologyRequested"}' not in text
