"""Packs the files of a bundle, and the page that says what they are, into one archive."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from webhook.bundle.excerpts import scrubbed
from webhook.bundle.reading import BundleFile

MOST_BYTES: Final = 64 * 1024 * 1024  # of one file
_ABOUT: Final = """\
# Support bundle of Topogate

Made {when} by `topogate support-bundle` {version}, with the rights of the person who ran it.

## What is in it
| folder | content |
|---|---|
| `cluster` | version of the API server, definition of Placements; nodes: labels, taints, capacity, conditions |
| `policy` | the policy in the ConfigMap, and the last valid one, with their comments |
| `admission` | webhook configurations (CA bundles only as digests) and admission policies |
| `gangs` | what `topogate gangs` and `topology show` answer, workloads, Placements, managed pods, Events |
| `service` | Deployment, pods, Leases and Events of the service; of each replica its log, metrics and status |

## What is left out
- Secrets are never read, nor other ConfigMaps than the policy.
- Of pods and the service's Deployment: environment, commands, arguments and volumes; of users' pods also images.
- All annotations and labels of workloads and pods but those that Topogate reads or writes.
- Specifications of workloads: only the number of pods, their requests and gates.
- In all text: JSON Web Tokens, bearer tokens, private keys, and passwords in URLs are replaced by `[removed]`.

Names of namespaces, workloads, pods and nodes, labels of nodes, and messages of Events are in it.
Look through it before you pass it on.

## What could not be read
{unread}
"""


def about(members: Sequence[BundleFile], *, when: str, version: str, remarks: Sequence[str] = ()) -> str:
    """Return the page about a bundle: its content, what is left out, and what could not be read."""
    lines = [f"- `{one.name}`: {one.problem}" for one in members if one.problem or one.absent]
    lines += [f"- {remark}" for remark in remarks]
    unread = "\n".join(map(scrubbed, lines)) or "Everything was read."
    return _ABOUT.format(when=when, version=version, unread=unread)


def write_archive(file: Path, members: Sequence[BundleFile], *, folder: str, mtime: float) -> int:
    """Write the archive, readable by its owner alone; return its size. Raises OSError, also if the file exists."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with (
            os.fdopen(descriptor, "wb") as stream,
            tarfile.open(fileobj=stream, mode="w:gz", format=tarfile.PAX_FORMAT) as archive,
        ):
            for one in members:
                if one.text:
                    content = one.text.encode("utf-8", "replace")[:MOST_BYTES]
                    entry = tarfile.TarInfo(f"{folder}/{one.name}")
                    entry.size, entry.mtime, entry.mode = len(content), int(mtime), 0o600
                    archive.addfile(entry, io.BytesIO(content))
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return file.stat().st_size
