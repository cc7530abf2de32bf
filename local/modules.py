"""The Go modules that programs are built from: download one, copy it, change a text of its source."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final


class ProgramsError(Exception):
    """The programs could not be found or built; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Substitution:
    """One change of a module's source before it is built: `old` stands in `file` exactly once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Patch:
    """A change in a module that a program's own module requires."""

    module: str
    change: Substitution

    @property
    def digest(self) -> str:
        """Short name of this patch, for what is built with it."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]


# kwok 0.8 renews no Lease any more once a node was in its queue twice: the second entry takes the place of the first in
# the heap's index, the first can never be removed, and as soon as it is due it blocks all entries behind it. It happens
# where a node is deleted while its Lease is being renewed, and comes back within ten seconds. All nodes become NotReady
# after 40 s then, and all of their pods stay unready.
KWOK_QUEUE: Final = Patch(
    "sigs.k8s.io/kwok",
    Substitution(
        file="pkg/utils/heap/heap.go",
        old="\tentry := &waitEntry[K, T]{key: key, data: data}\n",
        new="\th.Remove(data)\n\tentry := &waitEntry[K, T]{key: key, data: data}\n",
    ),
)


def go_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a Go command runs with: the user's proxy and checksum settings, nothing that changes the result."""
    return {**environment, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GO111MODULE": "on"}


def run_go(go: str, *arguments: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a Go command in a folder and return its output, whatever its status."""
    command, settings = [go, *arguments], go_environment(environment)
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)


def downloaded(module: str, *, go: str, folder: Path, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return Go's answer for a module in its cache, where it is now: `Dir` and `Sum`. Raises ProgramsError.

    `module`: with its version, or without where the module of `folder` requires it.
    """
    asked = run_go(go, "mod", "download", "-json", module, folder=folder, environment=environment)
    try:
        answer: Mapping[str, Any] = json.loads(asked.stdout)
    except ValueError:
        answer = {}
    if asked.returncode != 0 or "Dir" not in answer:
        raise ProgramsError(f"{module} cannot be downloaded: {answer.get('Error') or asked.stderr.strip()}")
    return answer


def copied(module: Path, into: Path) -> Path:
    """Return a copy of a module that may be changed, in a folder: Go's cache of modules is read-only."""
    copy = into / "module"
    shutil.copytree(module, copy, copy_function=shutil.copyfile)
    for path in [copy, *copy.rglob("*/")]:
        path.chmod(0o755)
    return copy


def substitute(change: Substitution, copy: Path, *, module: str) -> None:
    """Change the source in a copy of a module. Raises ProgramsError where it is not as the change expects it.

    The fault may be mended there, or the change is to be looked at: nothing is guessed about another version.
    """
    path = copy / change.file
    text = path.read_text()
    if text.count(change.old) != 1:
        raise ProgramsError(f"{module}: {change.file} is not as expected")
    path.write_text(text.replace(change.old, change.new))


@contextmanager
def patched(patch: Patch, go: str, *, folder: Path, environment: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the flags with which `go build` takes a patched copy of a module; `folder`: of the module that requires it.

    Raises ProgramsError.
    """
    source = Path(downloaded(patch.module, go=go, folder=folder, environment=environment)["Dir"])
    with tempfile.TemporaryDirectory() as made:
        copy, requirements = copied(source, Path(made)), Path(made) / "go.mod"
        substitute(patch.change, copy, module=patch.module)
        requirements.write_text(f"{(folder / 'go.mod').read_text()}\nreplace {patch.module} => {copy}\n")
        shutil.copyfile(folder / "go.sum", Path(made) / "go.sum")
        yield ["-modfile", str(requirements)]
