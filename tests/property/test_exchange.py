"""Both ways from a request to its answer say the same: directly, and through gunicorn's parser and WSGI."""

from __future__ import annotations

import json
import logging
import re
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

from gunicorn.config import Config
from hypothesis import given
from hypothesis import strategies as st

from engine.api.field import FieldError
from tests.support.replica import api_server_request, review_body
from webhook.admission.review import BadReview, Response, Review, Unavailable, allowed, denied, patched
from webhook.connections.framing import Frame, frame
from webhook.connections.review_head import review_head
from webhook.server.endpoint import Endpoint
from webhook.server.exchange import Exchange, Sent
from webhook.server.metrics import Metrics

NOW = 1000.0
LIMIT = 20_000


def handler(review: Review, deadline: float) -> Response:
    """Does what the review's name says; the deadline is part of the answer."""
    match review.name:
        case "boom":
            raise RuntimeError("the handler is broken")
        case "not-synced":
            raise Unavailable("cache not synced")
        case "malformed":
            raise BadReview(400, "malformed object: $.spec")
        case "patched":
            return patched([{"op": "add", "path": "/a", "value": "é" * 50}], [f"until {deadline:.6f}"])
        case "unserializable":
            return patched([{"value": object()}])
        case "refused":
            return denied([FieldError("spec.a", "Invalid value", "x", "InvalidValue", "no")], review)
    return allowed([f"until {deadline:.6f}"])


class Told(NamedTuple):
    """All that a request left behind: its answer, the log, and the metrics of the web layer."""

    sent: Sent
    log: list[str]
    metrics: list[str]


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(
            f"{record.levelname} {record.name} {record.getMessage()} {record.exc_info and record.exc_info[0]}"
        )


def told(request: bytes, framed: Frame, *, directly: bool, waited: float, busy: bool, last: bool) -> Told:
    metrics, lines = Metrics(), Lines()
    endpoint = Endpoint(mutate=handler, validate=handler, metrics=metrics, clock=lambda: NOW, max_body=LIMIT)
    exchange = Exchange(Config(), endpoint, on_error=Mock(side_effect=AssertionError("the parser refused it")))
    connection: Any = SimpleNamespace(client=("127.0.0.1", 1), server=("127.0.0.1", 2), received=NOW - waited)
    logger = logging.getLogger("webhook")
    logger.addHandler(lines)
    try:
        if directly:
            assert framed.review is not None
            sent = exchange.directly(connection, request, framed.review, busy=busy, last=last)
        else:
            sent = exchange.through_wsgi(connection, request, whole=framed.whole, busy=busy, last=last)
    finally:
        logger.removeHandler(lines)
    counted = [
        line
        for line in metrics.exposition().decode().splitlines()
        if line.startswith("topogate") and "_created" not in line
    ]
    return Told(sent._replace(data=re.sub(rb"\r\nDate: [^\r]+\r\n", b"\r\n", sent.data)), lines.lines, counted)


NAMES = st.sampled_from(
    ["train", "boom", "not-synced", "malformed", "patched", "unserializable", "refused", "x" * 300, ""]
)
REVIEWS = st.builds(lambda name, uid: review_body(uid, name=name), NAMES, st.sampled_from(["u1", "", "é", "u" * 200]))
BODIES = st.one_of(
    REVIEWS,
    REVIEWS.map(lambda body: body[:-5]),
    st.sampled_from([b"", b"{", b"null", b"[" * 1000, b"\xff", json.dumps({"kind": "AdmissionReview"}).encode()]),
    st.binary(max_size=50),
)
TIMEOUTS = st.one_of(
    st.just(""),
    st.sampled_from(["1s", "3s", "10s", "500ms", "0", "1.5s", "2m0s", "1e3s", "9" * 15, "3", "1ns"]).map(
        "?timeout={}".format
    ),
)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)
WORDS = st.lists(VALUES, min_size=1, max_size=3).map(" ".join)
HOSTS = st.from_regex(r"[0-9A-Za-z]([0-9A-Za-z.-]{0,20}[0-9A-Za-z])?(:[1-9][0-9]{0,4})?", fullmatch=True)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request in the API server's own form, with any values."""
    path = draw(st.sampled_from(["/mutate", "/validate"])) + draw(TIMEOUTS)
    request = api_server_request(draw(BODIES), path=path, host=draw(HOSTS)).decode("latin-1")
    request = request.replace("kube-apiserver-admission", draw(WORDS), 1).replace(
        "application/json, */*", draw(WORDS), 1
    )
    if draw(st.booleans()):
        request = request.replace("Content-Type", f"Authorization: {draw(WORDS)}\r\nContent-Type", 1)
    if draw(st.booleans()):
        request = request.replace("Accept-Enc", f"Traceparent: {draw(WORDS)}\r\nAccept-Enc", 1)
    return request.encode("latin-1")


@given(requests(), st.sampled_from([0.0, 0.05, 1.0, 30.0]), st.booleans(), st.booleans())
def test_a_request_in_the_api_servers_form_gets_the_same_answer_both_ways(
    request: bytes, waited: float, busy: bool, last: bool
) -> None:
    """Bytes, log lines and metrics, also of refusals, faults, deadlines and the last request of a connection."""
    framed = frame(request, max_body=LIMIT)
    assert framed is not None
    assert framed.review is not None
    directly, general = (
        told(request, framed, directly=way, waited=waited, busy=busy, last=last) for way in (True, False)
    )
    assert directly == general


LINES = st.sampled_from(
    [
        "Content-Length: 5",
        "Content-Length: 05",
        "Content-Length: +5",
        "content-length: 5",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "Content-Type: text/plain",
        "Content-Type: application/json; charset=utf-8",
        "Host: other",
        "Host:",
        "X_Y: z",
        " folded",
        "Connection: close",
        "Accept-Encoding: br",
        "",
    ]
)
OTHERS = ["\n", "\r", "\0", "\x7f", "é", ":", " ", "\t", "?", "%41"]
SPLICES = st.one_of(LINES.map("\r\n{}".format), st.sampled_from(OTHERS))


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Such a request with something put in, doubled or cut out of its head."""
    request = draw(requests())
    head, _, body = request.partition(b"\r\n\r\n")
    at = draw(st.integers(0, len(head)))
    end = min(len(head), at + draw(st.integers(0, 30)))
    middle = draw(st.one_of(SPLICES.map(lambda text: text.encode("latin-1")), st.just(b""), st.just(head[at:end] * 2)))
    return head[:at] + middle + head[end if draw(st.booleans()) else at :] + b"\r\n\r\n" + body


@given(spoiled())
def test_a_request_in_another_form_is_never_taken_for_one_in_the_api_servers(request: bytes) -> None:
    """What is answered directly is what the parser would read: the same extent, and the same answer."""
    framed = frame(request, max_body=LIMIT)
    if framed is None or framed.review is None:
        return
    assert b"\r\n\r\n" not in request[: framed.review.size - 2]
    whole = request[: framed.size].ljust(framed.size, b" ")
    assert told(whole, framed, directly=True, waited=0.0, busy=False, last=False) == told(
        whole, framed, directly=False, waited=0.0, busy=False, last=False
    )


@given(st.integers(0, 10**10), st.integers(0, 3))
def test_a_body_beyond_the_limit_is_left_to_the_parser(length: int, zeros: int) -> None:
    """And so is a length in another form."""
    request = api_server_request(b"").replace(b"Content-Length: 0", f"Content-Length: {'0' * zeros}{length}".encode())
    framed = frame(request, max_body=LIMIT)
    assert framed is not None
    assert (framed.review is not None) is (length <= LIMIT and zeros == 0)
    assert framed.review is None or framed.review == review_head(request)
