"""The commands of the pages on a real control plane, in page order: they print what the pages show."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.controlplane import ControlPlane
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY
from tests.support.eventually import eventually
from tests.support.page_scenes import OTHER, OWN, SCENES, Stage
from tests.support.page_shell import Shell
from tests.support.pages import Page, pages
from tests.support.transcript import steps_of


def scenes(page: Page) -> list[str]:
    """The scenes of a page that need a cluster, in order."""
    marks = [block.mark.removeprefix("run: ") for block in page.blocks if block.mark.startswith("run: ")]
    return [mark for mark in marks if SCENES[mark].cluster is not None]


# Pages that begin with the same scene follow each other: hosts are changed less often.
PAGES = sorted((page for page in pages().values() if scenes(page)), key=lambda page: scenes(page)[0])


@pytest.fixture(scope="module")
def stages() -> Iterator[list[Stage]]:
    """The stage of this module, once there is one; its hosts go in the end."""
    made: list[Stage] = []
    yield made
    for stage in made:
        stage.reset("", TEST_POLICY)
        for namespace in (OWN, OTHER):
            stage.client.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture
def stage(control_plane: ControlPlane, service: Service, stages: list[Stage]) -> Stage:
    """The cluster of the pages, with the namespaces of two people."""
    if not stages:
        stages.append(Stage(control_plane, service))
        for namespace in (OWN, OTHER):
            control_plane.client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
            account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
            eventually(lambda path=account: control_plane.client.find(path), message=f"there is {account}")
    return stages[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(stage: Stage, page: Page, tmp_path: Path) -> None:
    """One test per page; a block with the scene of the one before goes on where that ended."""
    kubectl, kubeconfig = stage.plane.programs["kubectl"], tmp_path / "kubeconfig"
    shutil.copy(stage.plane.kubeconfig, kubeconfig)
    ports = {8080: stage.service.running()[0].ops_port}
    shell = Shell.make(tmp_path / "folder", kubectl=kubectl, kubeconfig=kubeconfig, ports=ports)
    shell.run(f"kubectl config set-context --current --namespace={OWN}")
    current = ""
    for block in page.blocks:
        kind, _, name = block.mark.partition(": ")
        if kind != "run" or (prepare := SCENES[name].cluster) is None:
            continue
        if name != current:
            prepare(stage)
            shell.write({**page.files, **SCENES[name].files})
            current = name
        for step in steps_of(block):
            shell.follow(step)
