"""The one file that people without a checkout get: what it runs on, and what it says elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.plugin.platforms import project, python_versions
from hack.plugin.program import DEFAULT_EPOCH, PROGRAM, PluginError, build_program, source_date_epoch

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def pex_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where pex keeps what it unpacks: not in the cache of whoever runs the tests."""
    root = tmp_path_factory.mktemp("pex")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEX_ROOT", str(root))
        yield root


@pytest.fixture(scope="module")
def program(pex_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with our wheel alone: the libraries come from the environment of the tests, nothing is downloaded."""
    path = tmp_path_factory.mktemp("program") / PROGRAM
    build_program(path, platform=None, lock=None)
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program is unpacked at its first start."""
    return tmp_path_factory.mktemp("cache")


def run(program: Path, *arguments: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with no other PATH than `path`."""
    return subprocess.run(
        ["/bin/sh", program, *arguments],
        env={"PATH": str(path), **environment},
        cwd=path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def with_libraries(program: Path, *arguments: str, path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    libraries = sysconfig.get_path("purelib")
    return run(program, *arguments, path=path, XDG_CACHE_HOME=str(cache), PEX_EXTRA_SYS_PATH=libraries)


def folder_with(folder: Path, python: str) -> Path:
    """A folder for the PATH: python3, which is no name that says the version, and rm."""
    (folder / "python3").write_text(f'#!/bin/sh\n{python} "$@"\n')
    (folder / "python3").chmod(0o755)
    (folder / "rm").symlink_to("/bin/rm")
    return folder


def test_it_answers_from_one_file(program: Path, cache: Path, tmp_path: Path) -> None:
    """Called as a plugin, without the checkout: its version, its help, and a simulation of files."""
    path = folder_with(tmp_path, sys.executable)
    version = with_libraries(program, "--version", path=path, cache=cache)
    assert (version.returncode, version.stdout) == (0, f"topogate, version {project()['version']}\n"), version.stderr
    shown = with_libraries(program, "--help", path=path, cache=cache)
    assert shown.stdout.startswith("Usage: kubectl topogate [OPTIONS] COMMAND")
    files = ("--cluster", str(ROOT / "examples/cluster.yaml"), "-f", str(ROOT / "examples/train-rack.yaml"))
    simulated = with_libraries(program, "simulate", *files, path=path, cache=cache)
    assert simulated.returncode == 0, simulated.stderr
    assert "placed 4 pods in block-0 / rack-00" in simulated.stdout


def test_an_upgrade_of_python_does_not_break_it(program: Path, cache: Path, tmp_path: Path) -> None:
    """The Python that it was unpacked for is gone: it is unpacked for another one."""
    path = folder_with(tmp_path, sys.executable)
    assert with_libraries(program, "--version", path=path, cache=cache).returncode == 0
    (venv,) = (cache / "topogate/plugin/venvs").glob("*/*/*/pyvenv.cfg")
    links = [link for link in (venv.parent / "bin").glob("python*") if link.readlink().is_absolute()]
    assert links, "the unpacked program runs on a Python outside of it"
    for link in links:
        link.unlink()
        link.symlink_to(tmp_path / "gone")
    again = with_libraries(program, "--version", path=path, cache=cache)
    assert (again.returncode, again.stdout) == (0, f"topogate, version {project()['version']}\n"), again.stderr


def test_equal_sources_make_equal_bytes(program: Path, tmp_path: Path) -> None:
    """What is published can be built again and compared."""
    build_program(tmp_path / "again", platform=None, lock=None)
    assert (tmp_path / "again").read_bytes() == program.read_bytes()


@pytest.mark.parametrize(
    ("python", "told"),
    [
        (None, "python3 is not found"),
        ('case "$1" in -c) case "$2" in *sys.exit*) exit 1;; *) echo is 3.9.6;; esac;; esac; #', "python3 is 3.9.6"),
    ],
    ids=["none", "3.9"],
)
def test_without_a_python_that_fits_it_says_which_ones_do(
    python: str | None, told: str, program: Path, tmp_path: Path
) -> None:
    """One line on standard error with the versions to install, and exit status 2."""
    path = tmp_path if python is None else folder_with(tmp_path, python)
    done = run(program, "--version", path=path)
    names = [f"{major}.{minor}" for major, minor in python_versions()]
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{PROGRAM}: needs Python {', '.join(names[:-1])} or {names[-1]}, {told}: "
        f"put one of {' '.join(f'python{name}' for name in names)} on the PATH\n"
    )


def test_it_runs_no_file_of_the_working_directory(program: Path, tmp_path: Path) -> None:
    """People call it in folders of others: a file named like a module of the library is not run."""
    # The name alone decides what is run here: the question whether this Python fits is answered with no.
    path = folder_with(tmp_path, f'case "$2" in *sys.exit*) exit 1;; esac; {sys.executable}')
    for module in ("platform", "sys", "site", "os"):
        (tmp_path / f"{module}.py").write_text("open('ran', 'w').close()\n")
    done = run(program, "--version", path=path)
    assert done.returncode == 2
    assert f"python3 is {sys.version.split()[0]}: " in done.stderr
    assert not (tmp_path / "ran").exists()


def test_it_runs_on_the_versions_that_the_project_supports() -> None:
    """The lowest of the classifiers is the lowest of `requires-python`, and this Python is one of them or newer."""
    lowest = python_versions()[0]
    assert project()["requires-python"] == f">={lowest[0]}.{lowest[1]}"
    assert sys.version_info[:2] >= lowest


def test_files_get_the_time_of_source_date_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed time without it; anything but seconds is refused."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert source_date_epoch() == DEFAULT_EPOCH
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert source_date_epoch() == 1700000000
    for wrong in ("yesterday", "-1", "1.5"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", wrong)
        with pytest.raises(PluginError, match="SOURCE_DATE_EPOCH: must be seconds since 1970"):
            source_date_epoch()


def test_a_build_that_fails_says_why(tmp_path: Path, pex_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lines of the program that failed; no file is left that looks whole."""
    lock = tmp_path / "requirements.lock"
    lock.write_text("no such requirement\n")
    monkeypatch.setitem(os.environ, "PIP_NO_INDEX", "1")
    with pytest.raises(PluginError, match="-m pex failed:\n"):
        build_program(tmp_path / PROGRAM, platform=None, lock=lock)
    assert not (tmp_path / PROGRAM).exists()
