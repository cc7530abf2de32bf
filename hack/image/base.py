"""The two bases of the image, made from Debian packages: one with pip that builds, one with Python alone that runs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.programs import cache_directory, locked

Progress = Callable[[str], None]

# Debian's stable release. Its Python is one that pyproject.toml allows, and it gets security updates until 2028.
SUITE: Final = "trixie"
PYTHON: Final = "python3.13"
USER: Final = 65532  # as in manifests/base/deployment.yaml
# What the service needs of Debian: an interpreter, numpy's C++ library, and names of protocols and media types.
RUNS: Final = ("base-files", "libstdc++6", "media-types", "netbase", PYTHON)
BUILDS: Final = (*RUNS, "binutils", "coreutils", "dash", f"{PYTHON}-venv")
# Left out of the base that runs: what only people read, what only Debian's own tools use, and what only builds.
# Copyright files stay.
LEFT_OUT: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"usr/share/doc/.*(?<!/copyright)",
        r"usr/share/(bug|debconf|info|lintian|locale|man|menu|perl5|pixmaps|applications|python3?|binfmts)(/.*)?",
        r"usr/lib/[^/]+/gconv(/.*)?",  # character sets of iconv; Python has its own
        r"usr/lib/[^/]+/libmvec\.so.*",  # no package of ours is linked against it
        r"usr/(bin|sbin)/(?!python).*",
        r"usr/lib/valgrind(/.*)?",
        r"usr/lib/python3\.\d+/(config-[^/]+|ensurepip|idlelib|lib2to3|pydoc_data|test|turtledemo)(/.*)?",
        r"usr/lib/python3\.\d+/lib-dynload/_(ctypes_test|test\w*|xxtest\w*)\..*",
        r"etc/(apt|debconf\.conf|default|dpkg|fstab|hostname|init\.d|issue|motd|profile\.d|resolv\.conf|skel|update-motd\.d)"
        r"(/.*)?",
        r"(boot|dev|home|media|mnt|opt|root|srv)(/.*)?",
        r"var/(backups|cache|local|log|mail|opt|spool)(/.*)?",
        r"var/lib/(?!dpkg).*",
        r"var/lib/dpkg/(?!status\.d).*",
        r"var/lib/dpkg/status\.d/(debconf|mawk)",  # nothing of them is left
    )
)
# Vulnerability scanners look here for what an image without a package manager has.
_STATUS: Final = "var/lib/dpkg/status.d"
_NOTE_PACKAGES: Final = (
    f'mkdir -p "$1/{_STATUS}"; for deb in "$1"/var/cache/apt/archives/*.deb; do '
    f'dpkg-deb -f "$deb" > "$1/{_STATUS}/$(dpkg-deb -f "$deb" Package)"; done'
)


class ImageError(Exception):
    """The image could not be built; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Bases:
    """Tar archives of extracted Debian packages: for the base that builds, and for the base that runs."""

    builds: Path
    runs: Path


def missing_tools() -> list[str]:
    """Return what is not on the PATH of that which building an image takes."""
    return [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]


def ensure_bases(*, progress: Progress, fresh: bool = False, cache: Path | None = None) -> Bases:
    """Return the bases; download them, if they are not in the cache or `fresh` ones are wanted. Raises ImageError."""
    folder = (cache or image_cache()) / _key()
    bases = Bases(folder / "builds.tar", folder / "runs.tar")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", progress):
        for target, packages in ((bases.builds, BUILDS), (bases.runs, RUNS)):
            if fresh or not target.is_file():
                _extract(target, packages, progress=progress)
    return bases


def image_cache() -> Path:
    """Where downloads for the image are kept: beside the programs of the local control plane."""
    return cache_directory().parent / "image"


def packages_of(archive: Path, *, left_out: Sequence[re.Pattern[str]] = ()) -> tuple[tuple[str, str], ...]:
    """Return name and version of the Debian packages that a base notes, written without what `left_out` names."""
    found = []
    with tarfile.open(archive) as base:
        for name, member in _members(base).items():
            if member.isfile() and name.startswith(_STATUS) and not _matches(name, left_out):
                file = base.extractfile(member)
                assert file is not None
                fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", file.read().decode(), re.MULTILINE))
                found.append((fields["Package"], fields["Version"]))
    return tuple(sorted(found))


def write_base(source: Path, target: Path, *, left_out: Sequence[re.Pattern[str]] = ()) -> None:
    """Write the archive of a base from extracted packages: sorted, without what `left_out` names.

    The service's user and the name python3 are added. The same packages make the same bytes.
    """
    with tarfile.open(source) as old, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as new:
        members = _members(old)
        for name in sorted(members):
            if _matches(name, left_out):
                continue
            member = members[name]
            member.name, member.mtime, member.pax_headers = name, 0, {}
            member.uname = member.gname = ""
            if member.islnk():
                member.linkname = member.linkname.removeprefix("./")
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
        for name, text in _own_files().items():
            own = tarfile.TarInfo(name)
            own.size, own.mode = len(text), 0o644
            new.addfile(own, io.BytesIO(text))
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, PYTHON, 0o777
        new.addfile(link)
        # Where somebody mounts something: the file system is read-only, so they must be there.
        for name, mode in (("dev", 0o755), ("proc", 0o555), ("sys", 0o555), ("run", 0o755), ("tmp", 0o1777)):
            if name not in members or name == "dev":
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, mode
                new.addfile(folder)


def _members(archive: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """Return what an archive holds by its path; mmdebstrap begins the names with `./`."""
    members = {member.name.removeprefix("./").rstrip("/"): member for member in archive}
    return {name: member for name, member in members.items() if name not in ("", ".")}


def _matches(name: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)


def _own_files() -> dict[str, bytes]:
    passwd = f"root:x:0:0:root:/root:/sbin/nologin\ntopogate:x:{USER}:{USER}:topogate:/tmp:/sbin/nologin\n"
    return {
        "etc/passwd": passwd.encode(),
        "etc/group": f"root:x:0:\ntopogate:x:{USER}:\n".encode(),
        "etc/nsswitch.conf": b"hosts: files dns\n",
    }


def _key() -> str:
    recipe = json.dumps([SUITE, RUNS, BUILDS, _NOTE_PACKAGES])
    return hashlib.sha256(recipe.encode()).hexdigest()[:16]


def _extract(target: Path, packages: Iterable[str], *, progress: Progress) -> None:
    """Extract packages and what they depend on; put the archive in place at once, so that none is taken half-written.

    They are not installed: their scripts set up a machine, and nothing here is one.
    """
    progress(f"downloading Debian packages for the base that {target.stem}; 1 to 4 min")
    with tempfile.TemporaryDirectory(prefix="topogate-base-", dir=target.parent) as folder:
        made = Path(folder) / "made.tar"
        run(
            [
                "mmdebstrap",
                *("--quiet", "--format=tar", "--variant=extract", f"--include={','.join(packages)}"),
                *(f"--aptopt={one}" for one in ('Acquire::Languages "none"', 'Acquire::Retries "3"')),
                f"--extract-hook={_NOTE_PACKAGES}",
                *("--skip=output/dev", SUITE, str(made)),
            ],
            "mmdebstrap",
        )
        os.replace(made, target)


def run(command: list[str], name: str, *, environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program and return what it printed. Raises ImageError with the end of what it said."""
    try:
        done = subprocess.run(  # noqa: S603
            command, env={**os.environ, **(environment or {})}, cwd=cwd, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ImageError(
            f"{name} is not on the PATH; on Debian and Ubuntu, install the packages buildah and mmdebstrap"
        ) from None
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-20:])
        raise ImageError(f"{name} failed with status {done.returncode}:\n{last}")
    return done.stdout
