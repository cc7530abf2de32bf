"""Results as a file that a later run can be held against, and as numbers that fit on a line."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, Any]:
    """Where and what was measured: the processors, Python, the commit, how busy the machine is."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": commit or "unknown",
        "load": os.getloadavg()[0],
    }


def write(name: str, content: Mapping[str, Any]) -> Path:
    """Write a result as JSON; the file's path."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}-{time.strftime('%Y%m%dT%H%M%S')}.json"
    path.write_text(json.dumps({"machine": machine(), **content}, indent=1) + "\n", encoding="utf-8")
    return path


def console(width: int) -> Console:
    """Where results are printed: as wide as the terminal, and so wide where there is none."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else width)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and range: "1.31 (1.20-1.45)"."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"
