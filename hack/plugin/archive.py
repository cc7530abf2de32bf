"""The archive of one platform: the program and the licence, the same bytes whenever it is packed."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hack.plugin.platforms import ROOT, Platform
from hack.plugin.program import PROGRAM


@dataclass(frozen=True, slots=True)
class Archive:
    """A written archive, and whom it is for."""

    platform: Platform
    path: Path
    sha256: str


def pack(program: Path, platform: Platform, *, version: str, into: Path, epoch: int) -> Archive:
    """Write the archive of a program to the folder `into`."""
    path = into / f"{PROGRAM}_v{version}_{platform.os}_{platform.arch}.tar.gz"
    content = packed(
        [("LICENSE", 0o644, (ROOT / "LICENSE").read_bytes()), (PROGRAM, 0o755, program.read_bytes())], epoch=epoch
    )
    path.write_bytes(content)
    return Archive(platform, path, hashlib.sha256(content).hexdigest())


def packed(files: Iterable[tuple[str, int, bytes]], *, epoch: int) -> bytes:
    """Return a compressed tar archive of files: name, mode and content of each, in this order."""
    into = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=into, mtime=epoch) as compressed,
        tarfile.open(mode="w", fileobj=compressed, format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, mode, content in files:
            member = tarfile.TarInfo(name)
            member.mode, member.mtime, member.size = mode, epoch, len(content)
            archive.addfile(member, io.BytesIO(content))
    return into.getvalue()
