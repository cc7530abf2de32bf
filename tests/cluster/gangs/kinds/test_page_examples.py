"""The manifests on the pages for researchers, submitted as they stand."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from engine.kinds.registry import built_in
from tests.support.kind_gangs import Gangs, told_right
from tests.support.pages import pages
from tests.support.workloads import KINDS, RESOURCES

# Page, the block's number among its YAML blocks, the pods that take part, the controllers that it needs.
EXAMPLES = [
    ("jobs", 0, 4, ()),
    ("jobset-and-trainjob", 0, 5, ("jobset",)),
    ("serving", 0, 8, ("lws",)),
    ("serving", 1, 4, ()),
    ("kubeflow-and-mpi", 0, 4, ("training-operator",)),
    ("kubeflow-and-mpi", 1, 5, ("mpi-operator",)),
    ("ray", 0, 4, ("kuberay",)),
    ("spark-volcano-appwrapper", 0, 4, ("spark",)),
    ("spark-volcano-appwrapper", 1, 4, ("volcano",)),
    ("spark-volcano-appwrapper", 2, 4, ("appwrapper",)),
    ("plain-pods", 0, 2, ()),
]


def blocks(page: str) -> list[list[dict[str, Any]]]:
    """The documents of every YAML block of a page."""
    found = pages()[f"docs/tasks/researcher/{page}.md"].blocks
    return [list(yaml.safe_load_all(block.text)) for block in found if block.language == "yaml"]


def resource(document: dict[str, Any]) -> str:
    """What tests.support.workloads calls its kind."""
    return next(
        name
        for name, path in RESOURCES.items()
        if path.startswith(f"{document['apiVersion']}/") and KINDS.get(name, name) == document["kind"]
    )


def test_every_example_is_submitted() -> None:
    """Every YAML block of the pages by family, and every family that there is a page for."""
    families = {page for page, *_ in EXAMPLES}
    assert {(page, number) for page, number, *_ in EXAMPLES} == {
        (page, number) for page in families for number in range(len(blocks(page)))
    }
    shown = [built_in().entry_of(document) for page in families for block in blocks(page) for document in block]
    assert None not in shown


@pytest.mark.parametrize(
    ("page", "number", "pods"),
    [
        pytest.param(page, number, pods, id=f"{page}-{number}", marks=pytest.mark.controllers(*controllers))
        for page, number, pods, controllers in EXAMPLES
    ],
)
def test_an_example_runs(gangs: Gangs, page: str, number: int, pods: int) -> None:
    """All of its pods run where they were planned; a CronJob's example by one Job of it."""
    gangs.fleet.grid("2x2x8")
    for document in blocks(page)[number]:
        gangs.client.create(gangs.path(resource(document)), document)
        if document["kind"] == "CronJob":
            template = document["spec"]["jobTemplate"]
            body = {"apiVersion": "batch/v1", "kind": "Job", **template}
            body["metadata"] = {"name": "by-hand", **template["metadata"]}
            gangs.client.create(gangs.path("Job"), body)
    gangs.all_run(pods)
    assert told_right(gangs) == []
