"""The commands that install, upgrade and remove Topogate, as the pages show them, on a cluster that never had it."""

from __future__ import annotations

import shutil
from pathlib import Path

from local import nodes
from local.controlplane import ControlPlane
from local.nodes import Grid
from tests.support.page_scenes import SCENES
from tests.support.page_shell import Shell
from tests.support.pages import ROOT, pages
from tests.support.transcript import steps_of

MARKS = tuple(f"run: {name}" for name, scene in SCENES.items() if scene.new)
# In order: the README installs it, the page for emergencies lets go what is held, that of the installation removes it.
PAGES = [name for name, page in pages().items() if any(block.mark in MARKS for block in page.blocks)]


def test_the_pages_install_upgrade_and_remove_it(plane: ControlPlane, tmp_path: Path) -> None:
    """The kubelets are simulated: pods become ready without an image. Nothing of ours is left in the end."""
    nodes.add(plane.client, nodes.grid_nodes(Grid.parse("1x1x2")))
    shell = Shell.make(tmp_path / "folder", kubectl=plane.programs["kubectl"], kubeconfig=plane.kubeconfig)
    shutil.copytree(ROOT / "manifests", shell.folder / "topogate" / "manifests")
    for name in PAGES:
        page = pages()[name]
        shell.write(page.files)
        for block in page.blocks:
            if block.mark in MARKS:
                for step in steps_of(block):
                    shell.follow(step)
        if name.endswith("install.md"):
            kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations,crds,clusterroles,namespaces"
            left = plane.kubectl("get", kinds, "-o", "name").stdout.split()
            assert [one for one in left if "topogate" in one] == []
