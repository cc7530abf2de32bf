"""Is all of a request here? Answered from its first bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.connections.framing import MAX_HEAD, Frame, frame

LIMIT = 1000


def request(*headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join(["POST /mutate HTTP/1.1", *headers, "", ""]).encode() + body


def test_an_incomplete_head_has_no_frame_yet() -> None:
    """Until the blank line is here, nothing is known."""
    data = request("Host: t", "Content-Length: 2")
    assert all(frame(data[:cut], max_body=LIMIT) is None for cut in range(len(data)))


def test_the_frame_ends_with_the_body() -> None:
    """The size is the head's and the body's; more bytes belong to the next request."""
    head = request("content-LENGTH:  5 ")
    assert frame(head, max_body=LIMIT) == Frame(size=len(head) + 5, whole=True)
    assert frame(head + b"hello GET / HTTP/1.1", max_body=LIMIT) == Frame(size=len(head) + 5, whole=True)


def test_a_request_without_a_length_ends_with_its_head() -> None:
    """No Content-Length and no Transfer-Encoding: no body."""
    head = request("Host: t")
    assert frame(head, max_body=LIMIT) == Frame(size=len(head), whole=True)


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 1001",),
        ("Content-Length: " + "9" * 5000,),
        ("Content-Length: -1",),
        ("Content-Length: 0x10",),
        ("Content-Length:",),
        ("Content-Length: ٣",),
        ("Content-Length: 2", "Content-Length: 2"),
        ("Transfer-Encoding: chunked",),
        ("Transfer-Encoding: chunked", "Content-Length: 2"),
    ],
)
def test_a_body_that_is_not_going_to_be_read_ends_the_connection(headers: tuple[str, ...]) -> None:
    """Too long, unreadable, contradictory or chunked: only the head is taken and the rest is never waited for."""
    head = request(*headers)
    assert frame(head, max_body=LIMIT) == Frame(size=len(head), whole=False)


def test_expect_is_refused() -> None:
    """A client that waits for 100-continue would wait for a thread."""
    found = frame(request("Expect: 100-continue", "Content-Length: 2"), max_body=LIMIT)
    assert found is not None
    assert (found.whole, found.refusal) == (False, (417, "Expectation Failed"))


def test_an_endless_head_is_refused() -> None:
    """A head of more than 64 KiB is refused without its end."""
    assert frame(b"x" * (MAX_HEAD - 1), max_body=LIMIT) is None
    found = frame(b"x" * MAX_HEAD, max_body=LIMIT)
    assert found is not None
    assert (found.size, found.whole, found.refusal) == (MAX_HEAD, False, (431, "Request Header Fields Too Large"))


@given(st.binary(max_size=300))
def test_any_bytes_have_a_frame_or_none(data: bytes) -> None:
    """Whatever arrives, a frame is at least the head and never more than the limits allow."""
    found = frame(data + b"\r\n\r\n", max_body=LIMIT)
    assert found is not None
    assert 4 <= found.size <= MAX_HEAD + LIMIT
