from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
IMPORT_ALL = """
import importlib, pathlib, pkgutil, sys

here, checkout = map(pathlib.Path, sys.argv[1:3])
sys.path[:] = [str(here), *(path for path in sys.path if path and pathlib.Path(path).resolve() != checkout)]
for package in sys.argv[3:]:
    for module in pkgutil.walk_packages([str(here / package)], f"{package}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
            print(module.name)
"""


def test_every_module_of_the_wheel_can_be_imported_from_it(tmp_path: Path) -> None:
    """A module of the wheel needs nothing that is only in the checkout."""
    for package in WHEEL:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-B", "-c", IMPORT_ALL, str(tmp_path), str(ROOT.resolve()), *WHEEL]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {"webhook.cli", "engine.planner.plan", "certs.authority"} <= set(done.stdout.split())
