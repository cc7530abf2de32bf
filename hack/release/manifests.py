"""The manifests of a release: one file each way of installing, which needs no checkout; and the images they name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from hack.plugin.platforms import ROOT
from hack.release.project import ReleaseError

# File name -> folder below manifests/. Those that are not there are left out.
FILES: Final = {
    "topogate.yaml": "base",
    "topogate-high-availability.yaml": "overlays/high-availability",
    "topogate-cert-manager.yaml": "overlays/cert-manager",
    "topogate-monitoring.yaml": "monitoring",
}
_HEAD: Final = "# Topogate {version}. Review it, then: kubectl apply --filename {name}\n"


def write_manifests(into: Path, *, version: str, image: str, kubectl: Path, root: Path = ROOT) -> list[Path]:
    """Write each file of FILES with the image's name. Raises ReleaseError."""
    written = []
    for name, folder in FILES.items():
        source = root / "manifests" / folder
        if not source.is_dir():
            continue
        text = render(source, kubectl=kubectl).replace(f"image: topogate:{version}\n", f"image: {image}\n")
        path = into / name
        path.write_text(_HEAD.format(version=version, name=name) + text, encoding="utf-8")
        written.append(path)
    return written


def render(folder: Path, *, kubectl: Path) -> str:
    """Return what kustomize makes of a folder. Raises ReleaseError."""
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise ReleaseError(f"kubectl kustomize {folder} failed: {done.stderr.strip()}")
    return done.stdout


def images_of(texts: list[str]) -> list[str]:
    """Return every image that a container of these manifests names, once, in order of the alphabet."""
    found = set()
    for text in texts:
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader):
            found |= set(_images(document))
    return sorted(found)


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("containers", "initContainers") and isinstance(inner, list):
                yield from (
                    one["image"] for one in inner if isinstance(one, dict) and isinstance(one.get("image"), str)
                )
            yield from _images(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _images(inner)
