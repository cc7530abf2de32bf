"""The WSGI application: two paths, strict about HTTP, independent of the handlers' decisions.

Every failure here is an HTTP error, never a denial, so that the webhook's failurePolicy decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from flask import Flask, request
from flask import Response as HttpResponse
from werkzeug.exceptions import HTTPException

from engine.api.duration import DurationError, parse_duration
from webhook.admission.budget import REVIEW_CPU, Budget
from webhook.admission.review import BadReview, Response, Review, Unavailable, decode_review, encode
from webhook.server.metrics import Metrics

log = logging.getLogger(__name__)

Handler = Callable[[Review, float], Response]

MAX_BODY: Final = 7 * 1024 * 1024  # two objects of at most 3 MiB and the envelope
DEFAULT_TIMEOUT: Final = 2.0  # seconds, where the API server names none
TIMEOUT_BOUNDS: Final = (0.1, 10.0)
USABLE: Final = 0.9  # of the API server's time: the rest is for the way back
# WSGI environ, both optional: the monotonic second of the request's first byte; whether to refuse the request.
RECEIVED: Final = "topogate.received"
BUSY: Final = "topogate.busy"


def create_app(
    *,
    mutate: Handler,
    validate: Handler,
    metrics: Metrics,
    clock: Callable[[], float] = time.monotonic,
    max_body: int = MAX_BODY,
    review_cpu: float = REVIEW_CPU,
) -> Flask:
    """Return the application with POST /mutate and POST /validate.

    A handler gets the review and its deadline, in seconds of `clock`: the API server's `?timeout=` counted from the
    request's arrival. An exception from a handler is answered with 500, BadReview with its own status, Unavailable with
    503. A review that ran out of time in the queue is answered with 503 and Retry-After. The server decides how many
    run at a time. `review_cpu` is the processor time in seconds that one review may use.
    """
    app = Flask("topogate", static_folder=None)

    def answer(path: str, handler: Handler) -> HttpResponse:
        if request.environ.get(BUSY):
            raise Unavailable("too many large reviews at a time")
        received = request.environ.get(RECEIVED, clock())
        deadline = received + USABLE * _timeout(request.args.get("timeout"))
        if clock() >= deadline:
            raise Unavailable("the review waited longer than its time limit")
        body = _body(max_body)
        review = decode_review(body, Budget(review_cpu))
        try:
            with metrics.in_flight.track_inprogress():
                response = handler(review, deadline)
                encoded = encode(response, review.uid)
            if review.budget.exceeded:
                metrics.over_budget(path)
        except (BadReview, Unavailable):
            raise
        except Exception as fault:
            raise _HandlerFault(review.uid) from fault
        if response.allowed and response.aside is not None and not review.dry_run:
            metrics.left_alone(response.aside)
        metrics.answered(
            path,
            operation=review.operation,
            kind=review.kind,
            outcome=response.outcome,
            seconds=max(0.0, clock() - received),
        )
        return HttpResponse(encoded, mimetype="application/json")

    def guarded(path: str, handler: Handler) -> HttpResponse:
        try:
            return answer(path, handler)
        except BadReview as bad:
            return _error(metrics, path, bad.status, bad.message)
        except Unavailable as fault:
            return _error(metrics, path, 503, str(fault))
        except _HandlerFault as fault:
            log.error("review %s on %s failed", fault.uid, path, exc_info=fault.__cause__)
            return _error(metrics, path, 500, "internal error")

    @app.post("/mutate", provide_automatic_options=False)
    def _mutate() -> HttpResponse:
        return guarded("mutate", mutate)

    @app.post("/validate", provide_automatic_options=False)
    def _validate() -> HttpResponse:
        return guarded("validate", validate)

    @app.errorhandler(HTTPException)
    def _http_error(error: HTTPException) -> HttpResponse:
        status = error.code or 500
        response = _error(metrics, "other", status, error.name.lower())
        response.headers.extend((key, value) for key, value in error.get_headers() if key == "Allow")
        return response

    return app


class _HandlerFault(Exception):
    """A handler raised an unexpected exception, which is the cause of this one."""

    def __init__(self, uid: str) -> None:
        super().__init__(uid)
        self.uid = uid


def _body(limit: int) -> bytes:
    """Return the request's body. Raises BadReview if it has no length, is too long, of another type or incomplete."""
    length = request.content_length
    if length is None:
        raise BadReview(411, "Content-Length is required")
    if length > limit:
        raise BadReview(413, f"the body may have {limit} bytes")
    if request.mimetype != "application/json":
        raise BadReview(415, "Content-Type must be application/json")
    try:
        body = request.get_data(cache=False)
    except HTTPException:
        body = b""
    if len(body) != length:
        raise BadReview(400, "the body ended early")
    return body


def _timeout(text: str | None) -> float:
    """Return the seconds of the API server's `?timeout=` (a Go duration), within TIMEOUT_BOUNDS.

    A value that cannot be parsed gives the default.
    """
    try:
        seconds = parse_duration(text or "")
    except DurationError:
        return DEFAULT_TIMEOUT
    low, high = TIMEOUT_BOUNDS
    return min(max(seconds, low), high)


def _error(metrics: Metrics, path: str, status: int, message: str) -> HttpResponse:
    metrics.refused(path, status)
    response = HttpResponse(f"{message}\n", status=status, mimetype="text/plain")
    if status == 503:  # noqa: PLR2004 - with this header the API server retries inside its own time limit
        response.headers["Retry-After"] = "1"
    return response
