"""Takes out of an environment what the service never uses, and compiles the rest. Runs while the image is built.

`python trim.py --environment FOLDER --target FOLDER`, with the environment's own Python: the environment is moved below
the target, where it lies as at the root, and byte code of the standard library is put beside it. Needs Python alone.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import importlib.util
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# What each of these would be for is not in the service; tests/image imports all that is.
PATHS: Final = (
    # Clients for asyncio, and thousands of models: the service uses configuration, credentials and pools (37.0: each
    # module is loaded when its name is first used).
    "kubernetes/aio",
    "kubernetes/client/api",
    "kubernetes/client/models/*_*.py",
    # Builds extensions; tests the use of instruction sets.
    "numpy/f2py",
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/random/lib",
    "numpy/_core/_simd.*.so",
    "numpy/_core/_*_tests.*.so",
)
# Packages that only the paths above, and colours of source code on a terminal, import.
DISTRIBUTIONS: Final = (
    *("aiohappyeyeballs", "aiohttp", "aiohttp_retry", "aiosignal", "attrs"),
    *("frozenlist", "multidict", "propcache", "yarl"),
    *("markdown_it_py", "mdurl", "pygments"),
)
EVERYWHERE: Final = ("__pycache__", "tests", "*.pyi", "*.pyx", "*.pxd", "*.h", "*.a")
# Loads what a replica loads, so that of the standard library that is compiled which is used.
LOADED: Final = (
    *("webhook.cli", "webhook.service.runtime", "webhook.server.wsgi", "webhook.simulate.run"),
    "kubernetes.config",
)


def main(environment: Path, target: Path) -> None:
    """Trim, compile and move; tell the sizes."""
    packages = Path(sysconfig.get_path("purelib"))
    if not packages.is_relative_to(environment):
        sys.exit(f"{sys.executable} is not the Python of {environment}")
    before = size(environment)
    for name in DISTRIBUTIONS:
        remove_distribution(packages, name)
    for pattern in PATHS:
        remove(packages, pattern)
    for pattern in EVERYWHERE:
        for path in list(packages.rglob(pattern)):
            remove_path(path)
    trimmed = size(environment)
    strip(packages)
    stripped = size(environment)
    # Never compared with the source: the file system is read-only, and dates differ from machine to machine.
    done = compileall.compile_dir(
        packages, quiet=1, workers=0, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    if not done:
        sys.exit("a package cannot be compiled")
    library = compile_library(target)
    moved = target / environment.relative_to("/")
    moved.parent.mkdir(parents=True, exist_ok=True)
    after = size(environment)
    shutil.move(environment, moved)
    print(
        f"environment: {before:.1f} MB, {trimmed:.1f} MB without what is never used, {stripped:.1f} MB stripped, "
        f"{after:.1f} MB compiled; byte code of the standard library: {library:.1f} MB"
    )


def remove(packages: Path, pattern: str) -> None:
    """Remove what the pattern names; end if that is nothing: a new version has it elsewhere."""
    found = list(packages.glob(pattern))
    if not found:
        sys.exit(f"{pattern} is not in {packages}: correct PATHS in hack/image/trim.py")
    for path in found:
        remove_path(path)


def remove_distribution(packages: Path, name: str) -> None:
    """Remove all files of a package, by its own list, and the list."""
    found = list(packages.glob(f"{name}-*.dist-info"))
    if len(found) != 1:
        sys.exit(f"{name} is not in {packages}: correct DISTRIBUTIONS in hack/image/trim.py")
    for line in (found[0] / "RECORD").read_text(encoding="utf-8").splitlines():
        path = packages / line.rsplit(",", 2)[0].strip('"')
        remove_path(path)
        parent = path.parent
        while parent not in (packages, *packages.parents) and parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()
            parent = parent.parent
    remove_path(found[0])


def remove_path(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def strip(packages: Path) -> None:
    """Take symbols out of shared objects, where there is a program for it."""
    program = shutil.which("strip")
    if program is None:
        print("there is no strip (binutils): shared objects stay as they are")
        return
    for path in sorted(packages.rglob("*.so*")):
        subprocess.run([program, "--strip-unneeded", str(path)], check=True)  # noqa: S603


def compile_library(target: Path) -> float:
    """Compile the modules of the standard library that the service loads; return the megabytes.

    Checked against the source: the base that runs may have another patch release than the one that builds.
    """
    for name in LOADED:
        importlib.import_module(name)
    total = 0
    for source in sorted(library_sources()):
        cached = Path(importlib.util.cache_from_source(str(source)))
        made = target / cached.relative_to("/")
        made.parent.mkdir(parents=True, exist_ok=True)
        py_compile.compile(
            str(source), str(made), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
        )
        total += made.stat().st_size
    return total / 1e6


def library_sources() -> Iterator[Path]:
    """Files of the loaded modules of the standard library."""
    library = Path(sysconfig.get_path("stdlib"))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and Path(file).is_relative_to(library):
            yield Path(file)


def size(folder: Path) -> float:
    """Megabytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()) / 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m hack.image.trim", description=__doc__.partition("\n")[0])
    # Not positional: a wrong option would be told as a missing argument.
    parser.add_argument("--environment", type=Path, help="the environment whose Python runs this")
    parser.add_argument("--target", type=Path, help="the folder below which it is moved")
    given = parser.parse_args()
    if given.environment is None or given.target is None:
        parser.error("--environment and --target are needed")
    main(given.environment, given.target)
