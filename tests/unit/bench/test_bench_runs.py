"""The benchmarks of single calls run to their end, with their own sizes and as few rounds as possible."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from bench import results


@pytest.mark.parametrize("words", ["fairness --seeds 1", "mutation", "reading", "review"])
def test_a_benchmark_runs_with_its_own_sizes(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scene that does not fit, or a name that is gone, would be noticed by nobody else."""
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    name, *few = words.split()
    monkeypatch.setattr(sys, "argv", [name, "--rounds", "1", *few])
    assert importlib.import_module(f"bench.{name}").main() == 0
    assert capsys.readouterr().out
