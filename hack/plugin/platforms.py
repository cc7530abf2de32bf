"""The platforms of the plugin, and the Python versions: which wheels fit there."""

from __future__ import annotations

import json
import platform
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.tags import compatible_tags, cpython_tags, mac_platforms

ROOT: Final = Path(__file__).parents[2]
# What wheels of the lock may need at most. glibc 2.28 (cryptography, numpy) is in Debian 10, RHEL 8 and Ubuntu 20.04.
_GLIBC: Final = range(28, 16, -1)
_MACOS: Final = (14, 0)  # numpy has faster wheels from here on


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and an architecture, in the words of krew, and of Python where they differ."""

    os: str
    arch: str
    system: str
    machine: str

    @property
    def name(self) -> str:
        """Both as krew writes them: linux/amd64."""
        return f"{self.os}/{self.arch}"

    @property
    def needs(self) -> str:
        """What the operating system must have."""
        return f"macOS {_MACOS[0]} or newer" if self.os == "darwin" else f"Linux with glibc 2.{_GLIBC[0]} or newer"

    def target(self, python: tuple[int, int]) -> str:
        """Return pex's description of CPython of this version here: the values of markers, and the tags of wheels."""
        interpreter = f"cp{python[0]}{python[1]}"
        where = list(self._tags())
        tags = [*cpython_tags(python, [interpreter], where), *compatible_tags(python, interpreter, where)]
        return json.dumps({"marker_environment": self.markers(python), "compatible_tags": [str(tag) for tag in tags]})

    def markers(self, python: tuple[int, int]) -> dict[str, str]:
        """Return the values of a requirement's markers for CPython of this version here."""
        major, minor = python
        full = f"{major}.{minor}.0"
        return {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": self.system,
            "python_full_version": full,
            "python_version": f"{major}.{minor}",
            "sys_platform": self.os,
        }

    def _tags(self) -> Iterator[str]:
        if self.os == "darwin":
            yield from mac_platforms(_MACOS, self.machine)
            return
        for minor in _GLIBC:
            yield f"manylinux_2_{minor}_{self.machine}"
        yield f"manylinux2014_{self.machine}"  # the older name of 2_17


# Not darwin/amd64: cryptography has no wheels for it any more.
PLATFORMS: Final = {
    one.name: one
    for one in (
        Platform("linux", "amd64", "Linux", "x86_64"),
        Platform("linux", "arm64", "Linux", "aarch64"),
        Platform("darwin", "arm64", "Darwin", "arm64"),
    )
}


def this_platform() -> Platform | None:
    """Return the platform of this machine, None if there is no plugin for it."""
    here = (platform.system(), platform.machine())
    return next((one for one in PLATFORMS.values() if (one.system, one.machine) == here), None)


def project(root: Path = ROOT) -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def python_versions() -> tuple[tuple[int, int], ...]:
    """Return the versions of Python that the project supports, by its classifiers, lowest first."""
    found = re.findall(r"^Programming Language :: Python :: (\d+)\.(\d+)$", "\n".join(project()["classifiers"]), re.M)
    return tuple(sorted((int(major), int(minor)) for major, minor in found))
