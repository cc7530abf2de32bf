"""The archive of one platform: the program and the licence, the same bytes whenever it is packed."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
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
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as compressed,
        tarfile.open(mode="w", fileobj=compressed, format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, mode, content in (
            ("LICENSE", 0o644, (ROOT / "LICENSE").read_bytes()),
            (PROGRAM, 0o755, program.read_bytes()),
        ):
            member = tarfile.TarInfo(name)
            member.mode, member.mtime, member.size = mode, epoch, len(content)
            archive.addfile(member, io.BytesIO(content))
    path.write_bytes(packed.getvalue())
    return Archive(platform, path, hashlib.sha256(packed.getvalue()).hexdigest())
