"""Answers one review, however its request was read: time limits, decoding, the handler, metrics and faults.

Free of HTTP libraries. Every failure is an HTTP error, never a denial, so that the webhook's failurePolicy decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple

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


class Answer(NamedTuple):
    """The answer to a request: an AdmissionReview with status 200, else a line of plain text."""

    status: int
    body: bytes

    @property
    def content_type(self) -> str:
        """Return the media type of the body."""
        return "application/json" if self.status == HTTPStatus.OK else "text/plain; charset=utf-8"

    @property
    def retry(self) -> bool:
        """Return True if the answer has the header Retry-After: the API server then retries inside its time limit."""
        return self.status == HTTPStatus.SERVICE_UNAVAILABLE


class Endpoint:
    """The two paths of the service, `mutate` and `validate`.

    A handler gets the review and its deadline, in seconds of `clock`: the API server's `?timeout=` counted from the
    request's arrival. An exception from a handler is answered with 500, BadReview with its own status, Unavailable with
    503. A review that ran out of time in the queue is answered with 503 and Retry-After. The server decides how many
    run at a time. `review_cpu` is the processor time in seconds that one review may use.
    """

    def __init__(
        self,
        *,
        mutate: Handler,
        validate: Handler,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        max_body: int = MAX_BODY,
        review_cpu: float = REVIEW_CPU,
    ) -> None:
        self.clock = clock
        self.max_body = max_body
        self._handlers = {"mutate": mutate, "validate": validate}
        self._metrics = metrics
        self._review_cpu = review_cpu

    def answer(
        self, path: str, read: Callable[[], bytes], *, received: float, timeout: str | None, busy: bool = False
    ) -> Answer:
        """Answer the review on `path` with the body that `read` returns, or whose fault it raises as BadReview.

        `received` is when its first byte came, on `clock`; `timeout` the API server's time limit, a Go duration.
        `busy`: refuse it, because it is one of too many large ones.
        """
        try:
            return Answer(200, self._review(path, read, received=received, timeout=timeout, busy=busy))
        except BadReview as bad:
            return self.refuse(path, bad.status, bad.message)
        except Unavailable as fault:
            return self.refuse(path, 503, str(fault))
        except _HandlerFault as fault:
            log.error("review %s on %s failed", fault.uid, path, exc_info=fault.__cause__)
        except Exception:
            log.exception("a review on %s failed", path)
        return self.refuse(path, 500, "internal error")

    def refuse(self, path: str, status: int, message: str) -> Answer:
        """Count and return an HTTP error."""
        self._metrics.refused(path, status)
        return Answer(status, f"{message}\n".encode())

    def _review(
        self, path: str, read: Callable[[], bytes], *, received: float, timeout: str | None, busy: bool
    ) -> bytes:
        if busy:
            raise Unavailable("too many large reviews at a time")
        deadline = received + USABLE * _seconds(timeout)
        if self.clock() >= deadline:
            raise Unavailable("the review waited longer than its time limit")
        review = decode_review(read(), Budget(self._review_cpu))
        try:
            with self._metrics.in_flight.track_inprogress():
                response = self._handlers[path](review, deadline)
                encoded = encode(response, review.uid)
            if review.budget.exceeded:
                self._metrics.over_budget(path)
        except (BadReview, Unavailable):
            raise
        except Exception as fault:
            raise _HandlerFault(review.uid) from fault
        if response.allowed and response.aside is not None and not review.dry_run:
            self._metrics.left_alone(response.aside)
        self._metrics.answered(
            path,
            operation=review.operation,
            kind=review.kind,
            outcome=response.outcome,
            seconds=max(0.0, self.clock() - received),
        )
        return encoded


class _HandlerFault(Exception):
    """A handler raised an unexpected exception, which is the cause of this one."""

    def __init__(self, uid: str) -> None:
        super().__init__(uid)
        self.uid = uid


def _seconds(timeout: str | None) -> float:
    """Return the seconds of the API server's time limit, within TIMEOUT_BOUNDS.

    A value that cannot be parsed gives the default.
    """
    try:
        seconds = parse_duration(timeout or "")
    except DurationError:
        return DEFAULT_TIMEOUT
    low, high = TIMEOUT_BOUNDS
    return min(max(seconds, low), high)
