"""What is imported is declared: a library that only another one brings may go with that one's next release."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = {path.parent.name for path in ROOT.glob("[a-z]*/*.py")}
SHIPPED = ("webhook", "engine", "certs")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*, dev: bool) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = project["project"]["dependencies"] + (project["dependency-groups"]["dev"] if dev else [])
    found = [NAME.match(one) for one in wanted]
    return {normal(match.group()) for match in found if match}


def imported(package: str) -> dict[str, str]:
    """Modules of others that a package of ours imports, each with a file that does."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in OURS:
                    found.setdefault(top, str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize("package", sorted(OURS))
def test_every_library_that_is_imported_is_declared(package: str) -> None:
    """What is shipped rests on `dependencies` alone; tests and tools also on the group `dev`."""
    known = declared(dev=package not in SHIPPED)
    pod_index = packages_distributions()
    undeclared = {
        f"{module} ({where})"
        for module, where in imported(package).items()
        if not known & {normal(home) for home in pod_index.get(module, [module])}
    }
    assert undeclared == set()
