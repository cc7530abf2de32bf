"""Helm from its Go module: the version, the checksum, and the build into the user's cache directory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from local.controllers.building import filed_under, unpacked
from local.programs import Program, Progress, build, cache_directory, find_go, locked, told

MODULE: Final = "helm.sh/helm/v4"
VERSION: Final = "v4.3.1"
CHECKSUM: Final = "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g="
SECONDS: Final = 90  # building with empty caches on 2 busy cores


def flags() -> list[str]:
    """Return the flags of `go build`: the version that Helm tells of itself, as its own releases have it."""
    stamps = {"helm.sh/helm/v4/internal/version.version": VERSION}
    linker = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in stamps.items())])
    return ["-trimpath", "-buildvcs=false", "-ldflags", linker]


def ensure_helm(
    *,
    progress: Progress,
    environment: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Path:
    """Return the file of Helm, building it where it is missing.

    Two processes that need it at once: one builds, the other waits for it. Raises ProgramsError.
    """
    directory = (cache or cache_directory(environment)) / filed_under(
        "helm", VERSION, MODULE, VERSION, CHECKSUM, flags()
    )
    program = directory / "helm"
    if program.exists():
        return program
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / ".lock", progress):
        if not program.exists():
            with told(f"helm {VERSION}", SECONDS, progress=progress, clock=clock) as beat:
                _build(directory, find_go(environment), environment=environment, beat=beat)
    return program


def _build(directory: Path, go: str, *, environment: Mapping[str, str], beat: Callable[[], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=".source-", dir=directory) as folder:
        module = unpacked(MODULE, VERSION, checksum=CHECKSUM, go=go, folder=Path(folder), environment=environment)
        program = Program("helm", "./cmd/helm", SECONDS)
        build(program, go, flags(), module=module, into=directory, environment=environment, beat=beat)
