"""Makes the files of a release one after another, in a folder that gets its name when it is complete."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.chart.release import ReleaseError, package_chart, render_manifests, stale_files, write_images
from hack.image.base import LEFT_OUT, ensure_bases, missing_tools, packages_of
from hack.image.build import build_archive
from hack.plugin.platforms import ROOT
from hack.plugin.program import build_wheel
from hack.release.materials import bill_of_materials
from hack.release.project import Source
from local.programs import ensure_programs

Progress = Callable[[str], None]
CHECKSUMS: Final = "SHA256SUMS"
MATERIALS: Final = "topogate-{version}.cdx.json"
IMAGE: Final = "topogate-{version}-image.tar"
CHANGES: Final = "CHANGES.md"


def make_release(source: Source, *, repository: str, into: Path, with_image: bool, progress: Progress) -> Path:
    """Write all files below `into` and return their folder.

    Raises ReleaseError, ImageError, PluginError and ProgramsError.
    """
    target = into / (source.version + ("-draft" if source.draft else ""))
    if target.exists():
        raise ReleaseError(f"{target} is there already: a release is never made over another one; move it away")
    if stale := stale_files(ROOT):
        raise ReleaseError(f"files of the chart are not generated anew ({', '.join(stale)}): run python -m hack.chart")
    into.mkdir(parents=True, exist_ok=True)
    kubectl = ensure_programs(progress=progress, only=["kubectl"])["kubectl"]
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=into) as name:
        folder = Path(name) / target.name
        folder.mkdir()
        progress("1/7 wheel")
        build_wheel(folder, epoch=source.epoch)
        progress("2/7 image")
        digest, debian = _image(folder, source, wanted=with_image, progress=progress)
        image = f"{repository}:{source.version}" + (f"@{digest}" if digest else "")
        progress("3/7 chart")
        package_chart(source.version, folder, epoch=source.epoch, image=image)
        progress("4/7 manifests, and the images that they name")
        render_manifests(source.version, folder, kubectl=kubectl, image=image)
        write_images(source.version, folder, image=image)
        progress("5/7 bill of materials")
        lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
        text = bill_of_materials(source, lock=lock, debian=debian, image=digest)
        (folder / MATERIALS.format(version=source.version)).write_text(text, encoding="utf-8")
        progress("6/7 changelog section")
        (folder / CHANGES).write_text(source.changes, encoding="utf-8")
        progress("7/7 checksums")
        (folder / CHECKSUMS).write_text(checksums(folder), encoding="utf-8")
        os.replace(folder, target)
    return target


def checksums(folder: Path) -> str:
    """Return the lines that `sha256sum --check` reads, for every file of a folder."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def _image(
    folder: Path, source: Source, *, wanted: bool, progress: Progress
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Build the image; return its digest and the Debian packages in it, nothing of both where it cannot be built."""
    missing = missing_tools()
    if not wanted or missing:
        progress(f"    no image: {', '.join(missing) + ' not found' if missing else 'not wanted'}")
        return "", ()
    bases = ensure_bases(progress=lambda line: progress(f"    {line}"))
    archive = folder / IMAGE.format(version=source.version)
    digest = build_archive(
        bases,
        archive,
        version=source.version,
        revision=source.commit,
        epoch=source.epoch,
        progress=lambda line: progress(f"    {line}"),
    )
    return digest, packages_of(bases.runs, left_out=LEFT_OUT)
