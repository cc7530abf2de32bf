"""Earlier states of the service that people may run, and their files: commits of this repository."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "data" / "releases.json"
PARTS = ("certs", "engine", "manifests", "webhook")  # what a replica runs, and what an admin applies


@dataclass(frozen=True, slots=True)
class Release:
    """One of them, by its commit."""

    name: str
    commit: str

    @property
    def known(self) -> bool:
        """False in a clone without history."""
        done = subprocess.run(
            ["git", "cat-file", "-e", f"{self.commit}^{{commit}}"], cwd=ROOT, check=False, capture_output=True
        )
        return done.returncode == 0

    def unpack(self, folder: Path) -> Path:
        """Write its files to a folder, and return that."""
        archive = subprocess.run(["git", "archive", self.commit, *PARTS], cwd=ROOT, check=True, capture_output=True)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        return folder


def releases() -> list[Release]:
    """All of them, oldest first."""
    return [Release(**one) for one in json.loads(LIST.read_bytes())]
