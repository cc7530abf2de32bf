"""What a release has of manifests: the packed chart, one file for each way to install, and the list of images.

All of it names one image: where the release's image is, by tag or digest. Equal sources make equal bytes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from hack.chart import CHART, MANIFESTS
from hack.chart.files import IMAGES_HEAD, chart_text, files
from hack.plugin.archive import packed

# The files of a release, and the components of manifests/ that each has.
MANIFEST_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "topogate.yaml": (),
    "topogate-high-availability.yaml": ("components/high-availability",),
    "topogate-cert-manager.yaml": ("components/cert-manager",),
}
IMAGES_FILE: Final = "images.txt"
_IMAGE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._:/-]*?)(:(?P<tag>[\w][\w.-]*))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)


class ReleaseError(Exception):
    """A part of the release cannot be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """Where an image is: `name` with registry and path, and a tag, a digest or both."""

    name: str
    tag: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str, *, version: str) -> Image:
        """Return the image that a text names; without tag and digest it is that of the version. Raises ReleaseError."""
        found = _IMAGE.fullmatch(text)
        if found is None:
            raise ReleaseError(f"not the name of an image: {text!r}")
        return cls(found["name"], found["tag"] or version, found["digest"] or "")

    def __str__(self) -> str:
        return f"{self.name}:{self.tag}" + (f"@{self.digest}" if self.digest else "")


def package_chart(version: str, out: Path, *, epoch: int, image: str = "topogate") -> Path:
    """Write the chart of a version, `topogate-VERSION.tgz`, to the folder `out`. Raises ReleaseError.

    `epoch` is the time of its files, in seconds since 1970.
    """
    found = Image.parse(image, version=version)
    content = {str(path.relative_to(CHART)): path.read_bytes() for path in sorted(CHART.rglob("*")) if path.is_file()}
    content["Chart.yaml"] = chart_text(version).encode()
    content["values.yaml"] = _with_image(content["values.yaml"].decode(), found, version=version).encode()
    path = out / f"topogate-{version}.tgz"
    out.mkdir(parents=True, exist_ok=True)
    # Helm reads Chart.yaml first where it only wants to know what it has.
    ordered = sorted(content, key=lambda one: (one != "Chart.yaml", one))
    path.write_bytes(packed([(f"topogate/{name}", 0o644, content[name]) for name in ordered], epoch=epoch))
    return path


def render_manifests(version: str, out: Path, *, kubectl: Path, image: str = "topogate") -> list[Path]:
    """Write the manifests of a version, one file for each way to install, to the folder `out`. Raises ReleaseError."""
    found = Image.parse(image, version=version)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, components in MANIFEST_FILES.items():
        text = _rendered(kubectl, components, image=found)
        (out / name).write_text(
            f"# Topogate {version}: kubectl apply --server-side -f {name}\n{text}", encoding="utf-8"
        )
        written.append(out / name)
    return written


def write_images(version: str, out: Path, *, image: str = "topogate") -> Path:
    """Write the list of the images of a version to the folder `out`. Raises ReleaseError."""
    out.mkdir(parents=True, exist_ok=True)
    (out / IMAGES_FILE).write_text(f"{IMAGES_HEAD}{Image.parse(image, version=version)}\n", encoding="utf-8")
    return out / IMAGES_FILE


def stale_files(root: Path) -> list[str]:
    """Return the generated files of the chart that are not as they would be written: a release must have none."""
    return [
        path
        for path, text in files().items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def _with_image(values: str, image: Image, *, version: str) -> str:
    """Return values.yaml with the image of a release in it; comments stay."""
    for key, value in (
        ("repository", image.name),
        ("tag", "" if image.tag == version else image.tag),
        ("digest", image.digest),
    ):
        values, times = re.subn(rf'(?m)^  {key}: ".*"$', f"  {key}: {json.dumps(value)}", values)
        if times != 1:
            raise ReleaseError(f"values.yaml has {times} lines for image.{key}")
    return values


def _rendered(kubectl: Path, components: tuple[str, ...], *, image: Image) -> str:
    with tempfile.TemporaryDirectory(prefix="topogate-release-") as folder:
        here = Path(folder).resolve()
        relative = [os.path.relpath(MANIFESTS / name, here) for name in ("base", *components)]
        # kustomize takes a tag or a digest, and drops the tag beside a digest.
        place = {"digest": image.digest} if image.digest else {"newTag": image.tag}
        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": relative[:1],
            "components": relative[1:],
            "images": [{"name": "topogate", "newName": image.name, **place}],
        }
        (here / "kustomization.yaml").write_text(yaml.safe_dump(overlay), encoding="utf-8")
        done = subprocess.run([kubectl, "kustomize", str(here)], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise ReleaseError(f"the manifests cannot be rendered: {done.stderr.strip()}")
    return done.stdout
