"""The real krew, built once from its Go module, with its own check of manifests beside it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from local.controllers.building import FLAGS, download
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
        downloaded = download(MODULE, VERSION, checksum=CHECKSUM, go=go, folder=Path(folder), environment=os.environ)
        # A main module of its own, so that its go.sum says what it is built from; the module cache is read-only.
        module = Path(folder) / "module"
        shutil.copytree(downloaded, module, copy_function=shutil.copyfile)
        for path in [module, *module.rglob("*/")]:
            path.chmod(0o755)
        for name in PROGRAMS:
            program = Program(name, f"./cmd/{name}", 10)
            build(program, go, FLAGS, module=module, into=directory, environment=os.environ, beat=lambda: None)
