"""A plugin of pytest: `-p hack.matrix.counts --counts FILE` writes how many tests passed, and which failed, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--counts`."""
    parser.addoption("--counts", type=Path, metavar="FILE", help="write what passed, failed and was skipped here")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the file. A test that failed and whose fixtures then failed too counts once."""
    target: Path | None = config.option.counts
    if target is None:
        return
    stats = terminalreporter.stats
    failed = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())}
    passed = {report.nodeid for report in stats.get("passed", ())} - failed
    skipped = {report.nodeid for report in stats.get("skipped", ())} - failed
    counts = {"passed": len(passed), "skipped": len(skipped), "failed": sorted(failed)}
    target.write_text(json.dumps(counts), encoding="utf-8")
