"""The files of the command line: read within bounds, `-` is standard input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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

    with click.open_file(file, "rb") as stream:
        content: bytes = stream.read(limit + 1)
    if len(content) > limit:
        raise FileProblem(f"{file}: larger than {limit:,} bytes")
    return content


def one_line(error: Exception) -> str:
    """Return an error in one line: for errors of the operating system only the file and the cause."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)
