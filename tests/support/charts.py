"""The chart rendered by the real Helm, and the manifests by kubectl, as objects by kind, namespace and name."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hack.chart import CHART, MANIFESTS

Json = dict[str, Any]
Objects = dict[tuple[str, str, str], Json]


class HelmRefused(Exception):
    """Helm ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm, with its files in `folder` instead of the user's; `kubeconfig` for what asks a cluster."""

    program: Path
    folder: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Return what a command prints. Raises HelmRefused."""
        given = ("--values", "-") if values is not None else ()
        done = subprocess.run(
            [self.program, *arguments, *given],
            input=json.dumps(values) if values is not None else None,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise HelmRefused(done.stderr)
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command: nothing of the user's."""
        folders = {f"HELM_{name}_HOME": str(self.folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.kubeconfig or self.folder / "none"),
            "HELM_PLUGINS": str(self.folder / "plugins"),
            **folders,
        }

    def template(self, values: Mapping[str, Any], *options: str, chart: Path = CHART) -> Objects:
        """Return the objects of the chart. Raises HelmRefused."""
        return objects(self.run("template", "topogate", str(chart), *options, values=values))


def objects(text: str) -> Objects:
    """Return the objects of a rendered text; a comparison of two of these names the objects that differ."""
    found: Objects = {}
    for one in yaml.load_all(text, yaml.CSafeLoader):
        if one:
            key = (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])
            assert key not in found
            found[key] = one
    return found


def kustomized(kubectl: Path, folder: Path, *components: str) -> Objects:
    """Return the objects of the base with these components (folders below manifests/)."""
    here = folder.resolve()
    relative = [os.path.relpath(MANIFESTS / name, here) for name in ("base", *components)]
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": relative[:1],
        "components": relative[1:],
    }
    (here / "kustomization.yaml").write_text(json.dumps(overlay))
    done = subprocess.run([kubectl, "kustomize", str(here)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)
