"""`python -m hack.reference [ROOT]` writes every generated file below ROOT (the current directory)."""

from __future__ import annotations

import sys
from pathlib import Path

from hack.reference import pages


def main(root: Path) -> None:
    """Write every generated file below the root of the repository."""
    for path, text in pages().items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
