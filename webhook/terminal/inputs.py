"""The files of the command line: read within bounds, `-` is standard input."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from webhook.snapshot.files import FileObject


def objects_of(files: Sequence[str]) -> list[FileObject]:
    """Return the Kubernetes objects of files. Raises OSError; FileProblem for what cannot be read."""
    from webhook.snapshot.files import MAX_BYTES, read_objects

    return [one for file in files for one in read_objects(content_of(file, limit=MAX_BYTES), name=file)]


def content_of(file: str, *, limit: int) -> bytes:
    """Return the bytes of a file. Raises OSError; FileProblem if there are more than `limit`."""
    from webhook.snapshot.files import FileProblem

    with open_input(file) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise FileProblem(f"{file}: larger than {limit:,} bytes")
    return content


def open_input(file: str) -> IO[bytes]:
    """Open a file. Raises OSError, also for standard input that the caller has closed (`<&-`)."""
    if file == "-" and sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed", "standard input (-)")
    stream: IO[bytes] = click.open_file(file, "rb")
    return stream


def one_line(error: OSError) -> str:
    """Return an error of the operating system in one line: only the file, if it is of one, and the cause."""
    cause = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return cause
    return f"{error.filename or 'a file without a name'}: {cause}"
