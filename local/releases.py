"""The versions of Kubernetes that a local control plane can have: one Go module each.

The module beside this file has the version that everything is developed on, with etcd and kwok. A folder
`kubernetes/1.30` has a go.mod of another version, with the programs of Kubernetes alone; `make test-matrix` runs the
core of the cluster tests on each.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).parent
FOLDER: Final = MODULE / "kubernetes"


class UnknownRelease(Exception):
    """No Go module names this version of Kubernetes; the text lists those that there are."""


def versions(module: Path = MODULE) -> dict[str, str]:
    """Return module -> version as a go.mod requires them ("k8s.io/kubernetes" -> "v1.36.3")."""
    text = (module / "go.mod").read_text()
    return dict(re.findall(r"^(?:require )?\s*(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE))


def patch_version(minor: str) -> str:
    """Return the whole version of a minor one: "1.36" -> "v1.36.3"."""
    return versions(module_of(minor))["k8s.io/kubernetes"]


def module_of(minor: str) -> Path:
    """Return the folder of the Go module of one minor version; raises UnknownRelease."""
    try:
        return RELEASES[minor]
    except KeyError:
        raise UnknownRelease(f"no Kubernetes {minor} here; there are {', '.join(RELEASES)}") from None


def _minor(module: Path) -> str:
    return ".".join(versions(module)["k8s.io/kubernetes"].removeprefix("v").split(".")[:2])


def number(minor: str) -> tuple[int, ...]:
    """Return a minor version as what it sorts by: 1.9 is before 1.30."""
    return tuple(int(part) for part in minor.split("."))


DEFAULT: Final = _minor(MODULE)
_OTHERS = {path.parent.name: path.parent for path in FOLDER.glob("*/go.mod")}
# By minor version, the oldest first.
RELEASES: Final = {minor: (_OTHERS | {DEFAULT: MODULE})[minor] for minor in sorted({*_OTHERS, DEFAULT}, key=number)}
