"""What a release is made of: its version, checked wherever it stands, and the commit."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.chart.release import ReleaseError
from hack.plugin.platforms import ROOT, project

# Semantic versions that are Python versions as well: wheel, image and chart have the same one.
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_HEADING: Final = re.compile(r"^## (\S+)(?: \((.+)\))?$", re.MULTILINE)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Source:
    """The sources of a release. A draft may differ from its commit, and its changelog may have no date yet."""

    version: str
    commit: str
    epoch: int
    changes: str
    draft: bool = False


def check_source(
    version: str, *, draft: bool = False, root: Path = ROOT, environment: Mapping[str, str] = os.environ
) -> Source:
    """Return the sources, or raise ReleaseError with everything that is wrong with them."""
    wrong = []
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"VERSION must be three numbers, like 1.4.0, not {version!r}")
    declared = project(root)["version"]
    if version != declared:
        wrong.append(f"pyproject.toml says version {declared}, not {version}: the version is changed there")
    image = re.findall(
        r"^\s+image: topogate:(\S+)$", (root / "manifests/base/deployment.yaml").read_text("utf-8"), re.M
    )
    if image != [declared]:
        wrong.append(f"manifests/base/deployment.yaml names the image of {', '.join(image) or 'no version'}")
    changes = ""
    try:
        changes = changelog_section((root / "CHANGELOG.md").read_text("utf-8"), version, draft=draft)
    except ReleaseError as error:
        wrong.append(str(error))
    if not draft and (changed := _git(root, "status", "--porcelain")):
        lines = changed.splitlines()
        more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""  # noqa: PLR2004
        wrong.append(f"the tree differs from its commit ({', '.join(line[3:] for line in lines[:3])}{more}): commit it")
    epoch = environment.get("SOURCE_DATE_EPOCH", "") or _git(root, "log", "-1", "--format=%ct")
    if not epoch.isdecimal():
        wrong.append(f"SOURCE_DATE_EPOCH must be seconds since 1970, not {epoch!r}")
    if wrong:
        raise ReleaseError("\n".join(wrong))
    return Source(version, _git(root, "rev-parse", "HEAD"), int(epoch), changes, draft)


def changelog_section(text: str, version: str, *, draft: bool = False) -> str:
    """Return the section of a version, its heading included. Raises ReleaseError without one, or if it has no date."""
    headings = list(_HEADING.finditer(text))
    found = [number for number, heading in enumerate(headings) if heading[1] == version]
    if len(found) != 1:
        told = "has no section" if not found else "has several sections"
        raise ReleaseError(f"CHANGELOG.md {told} `## {version} (YYYY-MM-DD)`")
    heading = headings[found[0]]
    if not draft and not _DATE.fullmatch(heading[2] or ""):
        raise ReleaseError(f"CHANGELOG.md: the section of {version} has no date: write `## {version} (YYYY-MM-DD)`")
    end = headings[found[0] + 1].start() if found[0] + 1 < len(headings) else len(text)
    section = text[heading.start() : end].strip()
    if "\n" not in section:
        raise ReleaseError(f"CHANGELOG.md: the section of {version} is empty")
    return section + "\n"


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.rstrip()
