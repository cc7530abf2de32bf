"""Recognizes the head of a review in the form in which API servers send it, with one look at its bytes. Pure.

Go's HTTP client writes the header fields in a fixed order: Host, User-Agent and Content-Length, the others by name, and
Accept-Encoding last. Only this form is recognized. gunicorn's parser reads all others; where both can read a head, both
find the same.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(
    rb"POST /(mutate|validate)(?:\?timeout=([0-9][0-9a-z.]{0,15}))? HTTP/1\.1\r\n"
    rb"Host: [0-9A-Za-z](?:[0-9A-Za-z.-]{0,250}[0-9A-Za-z])?(?::[1-9][0-9]{0,4})?\r\n"
    rb"User-Agent: [!-~][ -~]{0,250}\r\n"
    rb"Content-Length: (0|[1-9][0-9]{0,8})\r\n"
    rb"Accept: [!-~][ -~]{0,250}\r\n"
    rb"(?:Authorization: [!-~][ -~]{0,8000}\r\n)?"  # where --admission-control-config-file gives credentials
    rb"Content-Type: application/json\r\n"
    rb"(?:Traceparent: [!-~][ -~]{0,250}\r\n)?"  # where the API server traces
    rb"(?:Tracestate: [!-~][ -~]{0,1000}\r\n)?"
    rb"Accept-Encoding: gzip\r\n"
    rb"\r\n"
)


class ReviewHead(NamedTuple):
    """A recognized head: `path` is `mutate` or `validate`, `timeout` the value of the query, `size` its own bytes.

    `length` is how many bytes of body follow.
    """

    path: str
    timeout: str | None
    size: int
    length: int


def review_head(buffer: bytes | bytearray) -> ReviewHead | None:
    """Return the head at the start of `buffer`; None if it has another form, or is incomplete."""
    found = _FORM.match(buffer)
    if found is None:
        return None
    path, timeout, length = found.groups()
    return ReviewHead(path.decode("ascii"), timeout.decode("ascii") if timeout else None, found.end(), int(length))
