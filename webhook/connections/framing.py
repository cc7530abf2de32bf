"""Determines how much of an HTTP/1.1 request has arrived, from a scan of its head without parsing. Pure.

This only answers "is all of it here?", so that no thread ever waits for a slow client. gunicorn parses the request,
except where it has the form of the API server's own (`webhook.connections.review_head`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from webhook.connections.review_head import ReviewHead, review_head

MAX_HEAD: Final = 65_536  # bytes; the API server's heads have about 500

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
_UNFRAMED: Final = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_EXPECT: Final = re.compile(rb"\r\nexpect[ \t]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Frame:
    """The extent of the first request in a buffer.

    `size` is how many bytes must have arrived before it can be answered. `whole` is True if these are all of it; when
    it is False (chunked, too long, no readable length) the answer is a refusal, the rest of the body is never read and
    the connection cannot be used again. `refusal` is an answer that needs no parser. `review` is the head of a request
    in the API server's own form, which needs no parser either.
    """

    size: int
    whole: bool
    refusal: tuple[int, str] | None = None
    review: ReviewHead | None = None


def frame(buffer: bytes | bytearray, *, max_body: int) -> Frame | None:
    """Return the frame of the request at the start of `buffer`, or None while its head is incomplete."""
    review = review_head(buffer)
    if review is not None and review.length <= max_body:
        return Frame(size=review.size + review.length, whole=True, review=review)
    end = buffer.find(_HEAD_END, 0, MAX_HEAD)
    if end < 0:
        if len(buffer) < MAX_HEAD:
            return None
        return Frame(size=MAX_HEAD, whole=False, refusal=(431, "Request Header Fields Too Large"))
    head = bytes(buffer[: end + 2])
    size = end + len(_HEAD_END)
    if _EXPECT.search(head):
        # "100-continue" holds the body back. The API server never sends it; curl does, and retries without it.
        return Frame(size=size, whole=False, refusal=(417, "Expectation Failed"))
    lengths = _LENGTH.findall(head)
    if _UNFRAMED.search(head) or len(lengths) > 1:
        return Frame(size=size, whole=False)
    if not lengths:
        return Frame(size=size, whole=True)
    digits = lengths[0].strip()
    if not digits.isdigit() or len(digits) > len(str(max_body)) or int(digits) > max_body:
        return Frame(size=size, whole=False)
    return Frame(size=size + int(digits), whole=True)
