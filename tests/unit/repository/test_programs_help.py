"""Every `python -m` program of the checkout says what it does, and does nothing else, when it is asked for help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def programs() -> list[str]:
    """The modules that run as programs."""
    files = [path for top in ("hack", "local", "bench") for path in (ROOT / top).rglob("*.py")]
    found = [path.relative_to(ROOT) for path in files if 'if __name__ == "__main__":' in path.read_text("utf-8")]
    return sorted(".".join(path.with_suffix("").parts).removesuffix(".__main__") for path in found)


def run(module: str, argument: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder)}
    command = [sys.executable, "-m", module, argument]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("module", programs())
def test_help_is_shown_and_nothing_is_done(module: str, tmp_path: Path) -> None:
    done = run(module, "--help", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.lower().startswith(f"usage: python -m {module}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", [one for one in programs() if not one.startswith("bench.")])
def test_an_option_that_does_not_exist_is_refused(module: str, tmp_path: Path) -> None:
    done = run(module, "--no-such-option", tmp_path)
    assert (done.returncode, "--no-such-option" in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []
