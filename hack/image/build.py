"""Builds the image with buildah: root, no daemon, no registry; everything that it keeps goes when it is done."""

from __future__ import annotations

import json
import os
import re
import ssl
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.image.base import LEFT_OUT, Bases, ImageError, Progress, image_cache, run, write_base
from hack.plugin.platforms import ROOT

NAME: Final = "topogate"
# Settings of pip that the build takes over from who builds. They are mounted, and so in no layer: an index may need a
# password.
_PIP: Final = ("index-url", "extra-index-url", "find-links", "proxy", "trusted-host", "retries", "timeout")
_AUTHORITIES: Final = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True, slots=True)
class Storage:
    """Images and containers in a folder of their own, apart from those of the machine."""

    folder: Path

    def buildah(self, command: str, *arguments: str) -> str:
        """Run a command of buildah. Raises ImageError."""
        where = ("--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run"))
        # vfs and chroot: they need no kernel module and no namespaces, so that it works inside a container as well.
        # The configuration of this machine might look for names of images elsewhere.
        environment = {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(self.folder)}
        return run(
            ["buildah", *where, "--storage-driver", "vfs", command, *arguments],
            f"buildah {command}",
            environment=environment,
        )

    def add_base(self, packages: Path, name: str, *, epoch: int, left_out: Sequence[re.Pattern[str]] = ()) -> str:
        """Make a base of extracted packages; return the name of its image. Raises ImageError."""
        archive = self.folder / f"{name}.tar"
        write_base(packages, archive, left_out=left_out)
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", container, str(archive), "/")
        archive.unlink()
        self.buildah("commit", "--quiet", "--rm", "--timestamp", str(epoch), container, name)
        return f"localhost/{name}:latest"


@contextmanager
def storage() -> Iterator[Storage]:
    """Storage that is gone afterwards."""
    if os.geteuid() != 0:
        raise ImageError("building an image needs root: buildah works without namespaces of its own here")
    with tempfile.TemporaryDirectory(prefix="topogate-image-") as folder:
        yield Storage(Path(folder))


def build(where: Storage, bases: Bases, *, version: str, revision: str = "", epoch: int, progress: Progress) -> str:
    """Build the Dockerfile on the bases; return the name of the image. Raises ImageError."""
    progress("importing the bases")
    builds = where.add_base(bases.builds, "topogate-base-builds", epoch=epoch)
    runs = where.add_base(bases.runs, "topogate-base-runs", epoch=epoch, left_out=LEFT_OUT)
    name = f"localhost/{NAME}:{version}"
    labels = [f"--label=org.opencontainers.image.version={version}"]
    if revision:
        labels.append(f"--label=org.opencontainers.image.revision={revision}")
    pip = image_cache() / "pip"
    pip.mkdir(parents=True, exist_ok=True)
    progress("building the image; about 1 min")
    said = where.buildah(
        "bud",
        *("--pull-never", "--format", "oci", "--timestamp", str(epoch), "--tag", name),
        *("--build-arg", f"BUILD={builds}", "--build-arg", f"BASE={runs}"),
        *labels,
        *(part for source, target in _mounts(where.folder).items() for part in ("--volume", f"{source}:{target}:ro")),
        *("--volume", f"{pip}:/root/.cache/pip"),
        *("--file", str(ROOT / "Dockerfile"), str(ROOT)),
    )
    for line in said.splitlines():
        if line.startswith("environment:"):
            progress(line)
    return name


def write_archive(where: Storage, name: str, target: Path) -> None:
    """Write an image as an OCI archive: the same image makes the same bytes."""
    layout = where.folder / "layout"
    tag = name.rpartition("/")[2]
    where.buildah("push", "--quiet", "--format", "oci", name, f"oci:{layout}:{tag}")
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(layout.rglob("*")):
            member = tarfile.TarInfo(str(path.relative_to(layout)))
            if path.is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
            else:
                member.size, member.mode = path.stat().st_size, 0o644
                with path.open("rb") as file:
                    archive.addfile(member, file)


def build_archive(
    bases: Bases, target: Path, *, version: str, revision: str = "", epoch: int, progress: Progress
) -> str:
    """Build the image, write it as an OCI archive to `target`, and return its digest. Raises ImageError."""
    with storage() as where:
        name = build(where, bases, version=version, revision=revision, epoch=epoch, progress=progress)
        write_archive(where, name, target)
    return digest_of(target)


def digest_of(archive: Path) -> str:
    """Return the digest by which a registry will know the image of an OCI archive."""
    with tarfile.open(archive) as layout:
        file = layout.extractfile("index.json")
        assert file is not None
        index: Mapping[str, Any] = json.loads(file.read())
    digest: str = index["manifests"][0]["digest"]
    return digest


@contextmanager
def root_of(where: Storage, name: str) -> Iterator[Path]:
    """The file system of an image, as a folder."""
    container = where.buildah("from", "--pull-never", name).strip()
    try:
        yield Path(where.buildah("mount", container).strip())
    finally:
        where.buildah("rm", container)


def _mounts(folder: Path) -> dict[Path, str]:
    """Files of this machine that the build needs to download packages, by where it sees them."""
    authorities = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    authorities = authorities or _AUTHORITIES
    settings = ["[global]"]
    mounts = {}
    for line in run([sys.executable, "-m", "pip", "config", "list"], "pip").splitlines():
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2].replace("_", "-")
        value = value.strip("'")
        if option == "find-links" and Path(value).is_dir():
            mounts[Path(value)] = value
        if option in _PIP:
            settings.append(f"{option} = {value}")
    # Debian's pip looks for them here; the base has none, as nothing of Debian's is set up there.
    mounts[Path(authorities).resolve()] = _AUTHORITIES
    settings.append(f"cert = {_AUTHORITIES}")
    written = folder / "pip.conf"
    written.write_text("\n".join(settings) + "\n", encoding="utf-8")
    mounts[written] = "/etc/pip.conf"
    return mounts
