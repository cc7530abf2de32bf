"""The manifest by which krew installs the plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from hack.plugin.archive import Archive
from hack.plugin.platforms import project, python_versions
from hack.plugin.program import PROGRAM, PluginError

MANIFEST: Final = "topogate.yaml"  # krew wants it to be named like the plugin
_DESCRIPTION: Final = """\
Topogate places multi-pod GPU workloads on nodes that are close on the network,
all or nothing, beside the stock kube-scheduler. This plugin shows gangs and why
they wait, what is free, and where a workload would be placed, with the rights of
your kubeconfig; "kubectl topogate simulate" needs no cluster.

It needs Python {versions} on the PATH, and {system}.
"""
_CAVEATS: Final = """\
* It needs Python {versions} on the PATH, and {system}.
* The first start takes some seconds: it unpacks the program to
  ~/.cache/topogate/plugin (360 MB).
* To complete "kubectl topogate ..." in your shell:
    dir="$(dirname "$(command -v kubectl-topogate)")"
    kubectl topogate completion kubectl > "$dir/kubectl_complete-topogate"
    chmod +x "$dir/kubectl_complete-topogate"
"""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def base_of(url: str) -> str:
    """Return the address of the folder that the archives will be downloaded from, without a slash at its end."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.netloc or parts.query or parts.fragment:
        raise PluginError(f"URL: must be the https address of the folder with the archives, not {url!r}")
    return url.rstrip("/")


def manifest(archives: Iterable[Archive], *, url: str) -> str:
    """Return the manifest for these archives below the address `url`."""
    archives = list(archives)
    texts = [f"{major}.{minor}" for major, minor in python_versions()]
    systems = dict.fromkeys(archive.platform.needs for archive in archives)
    told = {"versions": ", ".join(texts[:-1]) + f" or {texts[-1]}", "system": ", or ".join(systems)}
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "topogate"},
        "spec": {
            "version": f"v{project()['version']}",
            "shortDescription": "Show and simulate topology-aware gang placement",
            "description": _DESCRIPTION.format(**told),
            "caveats": _CAVEATS.format(**told),
            "platforms": [_platform(archive, url=base_of(url)) for archive in archives],
        },
    }
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _platform(archive: Archive, *, url: str) -> dict[str, Any]:
    return {
        "selector": {"matchLabels": {"os": archive.platform.os, "arch": archive.platform.arch}},
        "uri": f"{url}/{archive.path.name}",
        "sha256": archive.sha256,
        "bin": PROGRAM,
        "files": [{"from": PROGRAM, "to": "."}, {"from": "LICENSE", "to": "."}],
    }
