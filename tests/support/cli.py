"""The command line as people run it: a program of its own with a kubeconfig in the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.pages import ROOT


def topogate(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as somebody with a kubeconfig."""
    return subprocess.run(
        _command(words),
        env=_environment(kubeconfig),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )


@contextmanager
def topogate_running(kubeconfig: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command line until it ends, or the block does; what it says is in its pipe `stdout`."""
    command, pipe = _command(words), subprocess.PIPE
    with subprocess.Popen(
        command, env=_environment(kubeconfig), stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "webhook.cli", *words]


def _environment(kubeconfig: Path) -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if key != "TOPOGATE_NAMESPACE"}
    return {**environment, "KUBECONFIG": str(kubeconfig)}
