"""Golden files: the exact texts that people read, one file per topic, one paragraph per case.

`UPDATE_GOLDEN=1 pytest ...` rewrites them; the change is then read in the diff.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "unit" / "golden"


def golden(name: str, texts: Mapping[str, str]) -> None:
    """Hold texts by case name against `tests/unit/golden/<name>.txt`."""
    told = "\n".join(f"# {case}\n{text}\n" for case, text in texts.items())
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(told, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == told, f"texts differ from {path.name}"
