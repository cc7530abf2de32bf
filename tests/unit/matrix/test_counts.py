"""The plugin that counts what passed, failed and was skipped: the README's numbers rest on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = """
import pytest

@pytest.fixture
def broken():
    raise OSError

@pytest.fixture
def broken_later():
    yield
    raise OSError

def test_good(): pass
def test_bad(): assert False
def test_without_its_fixture(broken): pass
def test_good_but_not_its_end(broken_later): pass
@pytest.mark.skip(reason="since Kubernetes 9.9")
def test_too_new(): pass
"""


@pytest.mark.parametrize("options", [[], ["--numprocesses=2"]], ids=["alone", "side by side"])
def test_each_test_counts_once(tmp_path: Path, options: list[str]) -> None:
    """A fixture that fails is a failure, also after its test has passed."""
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    counts = tmp_path / "counts.json"
    command = [sys.executable, "-m", "pytest", "-p", "hack.matrix.counts", f"--counts={counts}", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    failed = [f"test_all.py::test_{name}" for name in ("bad", "good_but_not_its_end", "without_its_fixture")]
    assert json.loads(counts.read_text()) == {"passed": 1, "skipped": 1, "failed": failed}
