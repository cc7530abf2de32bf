"""The real krew, built once from its Go module, with its own check of manifests beside it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from local.controllers.building import FLAGS, unpacked
from local.programs import Program, build, cache_directory, find_go, locked

MODULE = "sigs.k8s.io/krew"
VERSION = "v0.4.4"
CHECKSUM = "h1:9lL9N7gbRpk/nG73b07IeNAGqsneD/mAiw0jmtjtnFs="
PROGRAMS = ("krew", "validate-krew-manifest")


def ensure_krew() -> Path:
    """Return the folder with krew and validate-krew-manifest, building them where they are missing (20 s)."""
    directory = cache_directory() / f"krew-{VERSION}"
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / ".lock", print):
        if not all((directory / name).exists() for name in PROGRAMS):
            _build(directory)
    return directory


def _build(directory: Path) -> None:
    go = find_go(os.environ)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        module = unpacked(MODULE, VERSION, checksum=CHECKSUM, go=go, folder=Path(folder), environment=os.environ)
        for name in PROGRAMS:
            program = Program(name, f"./cmd/{name}", 10)
            build(program, go, FLAGS, module=module, into=directory, environment=os.environ, beat=lambda: None)
