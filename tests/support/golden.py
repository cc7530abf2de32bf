"""Golden files: the exact texts that people read, one file per topic, one paragraph per case.

`UPDATE_GOLDEN=1 pytest ...` rewrites them; the change is then read in the diff.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "unit" / "golden"


def golden(name: str, texts: Mapping[str, str]) -> None:
    """Hold texts by case name against `tests/unit/golden/<name>.txt`."""
    told = "\n".join(f"# {case}\n{text}\n" for case, text in texts.items())
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(told, encoding="utf-8")
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if kept != told:
        raise AssertionError(_unlike(path, kept, told))


def _unlike(path: Path, kept: str, told: str) -> str:
    """What differs, line by line, and what to do about it."""
    file = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    test = os.environ.get("PYTEST_CURRENT_TEST", "tests/unit").rpartition(" (")[0].partition("::")[0] or "tests/unit"
    diff = unified_diff(kept.splitlines(), told.splitlines(), f"{file} (kept)", "what is told now", lineterm="")
    return "\n".join(
        (
            f"texts differ from {file}",
            *diff,
            "",
            f"If this is meant, rewrite the file and read its diff: UPDATE_GOLDEN=1 .venv/bin/pytest {test}",
        )
    )
