"""Mends in the sources of the programs that we build: one text of one file of a Go module each.

For faults of released versions that make tests fail at random. A patch whose text is not in the source any more stops
the build: the fault is mended there, or the patch is to be looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final


class PatchError(Exception):
    """A patch cannot be applied; the text says why."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One text to replace in the file `path` of a Go module."""

    module: str
    path: str
    old: str
    new: str

    @property
    def digest(self) -> str:
        """Short name of this patch, for what is built with it."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]


# kwok 0.8 renews no Lease any more once a node was in its queue twice: the second entry takes the place of the first in
# the heap's index, the first can never be removed, and as soon as it is due it blocks all entries behind it. It happens
# where a node is deleted while its Lease is being renewed, and comes back within ten seconds. All nodes become NotReady
# after 40 s then, and all of their pods stay unready.
KWOK_QUEUE: Final = Patch(
    module="sigs.k8s.io/kwok",
    path="pkg/utils/heap/heap.go",
    old="\tentry := &waitEntry[K, T]{key: key, data: data}\n",
    new="\th.Remove(data)\n\tentry := &waitEntry[K, T]{key: key, data: data}\n",
)


@contextmanager
def patched(patch: Patch, go: str, *, folder: Path, environment: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the flags with which `go build` takes a patched copy of a module; `folder`: of the module that requires it.

    Downloads the module if it is not there. Raises PatchError.
    """
    asked = subprocess.run(
        [go, "mod", "download", "-json", patch.module],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        raise PatchError(f"go mod download {patch.module}: {asked.stderr.strip() or asked.stdout.strip()}")
    source = Path(json.loads(asked.stdout)["Dir"])
    text = (source / patch.path).read_text()
    if text.count(patch.old) != 1:
        raise PatchError(f"{patch.module}: {patch.path} is not as its patch in local/patches.py expects it")
    with tempfile.TemporaryDirectory() as made:
        # Go replaces no single file of its module cache, which is read-only.
        copy, requirements = Path(made) / "module", Path(made) / "go.mod"
        shutil.copytree(source, copy, copy_function=shutil.copyfile)
        for at, _, _ in os.walk(copy):
            Path(at).chmod(0o755)
        (copy / patch.path).write_text(text.replace(patch.old, patch.new))
        requirements.write_text(f"{(folder / 'go.mod').read_text()}\nreplace {patch.module} => {copy}\n")
        shutil.copyfile(folder / "go.sum", Path(made) / "go.sum")
        yield ["-modfile", str(requirements)]
