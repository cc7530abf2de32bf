"""The command line as people run it: a program of its own with a kubeconfig in the environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.pages import ROOT

# What a command says that reads for more than two seconds: on a busy machine any of them may.
_PROGRESS: Final = re.compile(r"(?m)^topogate: [a-z ]+, [\d,]+ [a-z]+ so far\n")


def without_progress(text: str) -> str:
    """Return what a command said, without the line that it is still reading."""
    return _PROGRESS.sub("", text)


def topogate(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as somebody with a kubeconfig; its standard error is told without the progress."""
    done = subprocess.run(
        _command(words),
        env=_environment(kubeconfig),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=False,
    )
    done.stderr = without_progress(done.stderr)
    return done


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
