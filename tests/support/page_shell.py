"""The shell in which tests run the commands of a page: `topogate` and `kubectl` as a reader has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.cli import without_progress
from tests.support.eventually import eventually
from tests.support.pages import ROOT
from tests.support.transcript import Step, normal, same

SECONDS: Final = 120.0
# Commands that change nothing: run again until what they print is right, as the cluster takes a moment.
READING: Final = re.compile(
    r"(?:kubectl (?:--namespace \S+ |-n \S+ )?(?:get|describe|logs|wait|rollout status)\b"
    r"|kubectl [^|]*--dry-run=|kubectl topogate |topogate (?!release|uninstall|suspend|resume|requeue)|curl )"
)
WRITING: Final = re.compile(r"kubectl (?:apply|create) ")


@dataclass(frozen=True, slots=True)
class Shell:
    """A folder with the examples and manifests of the checkout, in which bash runs; `ports` maps those of pages."""

    folder: Path
    environment: Mapping[str, str]
    ports: Mapping[int, int]

    @classmethod
    def make(
        cls,
        folder: Path,
        *,
        kubectl: Path | None = None,
        kubeconfig: Path | None = None,
        ports: Mapping[int, int] | None = None,
    ) -> Shell:
        """Prepare a folder that is empty or not there."""
        programs = folder / ".programs"
        programs.mkdir(parents=True)
        for name in ("topogate", "kubectl-topogate"):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -m webhook.cli "$@"\n')
            program.chmod(0o755)
        for name in ("examples", "manifests"):
            (folder / name).symlink_to(ROOT / name)
        path = [str(programs), *([str(kubectl.parent)] if kubectl else []), os.environ["PATH"]]
        environment = {
            "PATH": ":".join(path),
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "100",
            "KUBECONFIG": str(kubeconfig or folder / "no-kubeconfig"),
        }
        return cls(folder, environment, ports or {})

    def write(self, files: Mapping[str, str]) -> None:
        """Write files that commands of the page name."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def run(self, command: str) -> tuple[int, str]:
        """Run a command line; its exit status, and what a terminal would show."""
        for shown, port in self.ports.items():
            command = command.replace(f"localhost:{shown}", f"127.0.0.1:{port}")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS * 2,
            check=False,
        )
        return done.returncode, without_progress(done.stdout)

    def follow(self, step: Step) -> None:
        """Run one step of a page; AssertionError unless it prints what is shown, or succeeds where nothing is."""
        if READING.match(step.command):
            eventually(lambda: self._right(step), SECONDS)
            return
        if step.output and WRITING.match(step.command):  # what it prints is a forecast from what the caches show
            trial = re.sub(r"^(kubectl \w+)", r"\1 --dry-run=server", step.command)
            shown = re.sub(r"(?m)^(\S+/\S+ (?:created|configured|unchanged))$", r"\1 (server dry run)", step.output)
            eventually(lambda: self._right(Step(trial, shown)), SECONDS)
        assert self._right(step)

    def _right(self, step: Step) -> bool:
        status, printed = self.run(step.command)
        if not step.output:
            assert status == 0, f"$ {step.command}\nexit status {status}:\n{printed[-3000:]}"
        elif not same(step.output, printed):
            expected, got = "\n".join(normal(step.output)), "\n".join(normal(printed))
            raise AssertionError(f"$ {step.command}\nthe page shows:\n{expected}\nit prints:\n{got}\n\nraw:\n{printed}")
        return True
