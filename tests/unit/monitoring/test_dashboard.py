"""The Grafana dashboard shows what the service exports, and its panels have a place each."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.pages import ROOT, pages
from tests.support.promql import names

METRICS = dict(re.findall(r"^\| `(topogate_\w+)` \| (.+)$", pages()["docs/reference/metrics.md"].text, re.MULTILINE))
DASHBOARD: dict[str, Any] = json.loads((ROOT / "manifests/monitoring/topogate-dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [(panel["title"], target["expr"], target) for panel in PANELS for target in panel.get("targets", ())]
# Of the Prometheus client of Python.
COMMON = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


@pytest.mark.parametrize(("title", "expression", "target"), QUERIES, ids=lambda value: str(value)[:50])
def test_a_query_reads_metrics_and_labels_that_exist(title: str, expression: str, target: dict[str, Any]) -> None:
    read = {name if name in METRICS else re.sub(r"_(bucket|count|sum)$", "", name) for name in names(expression)}
    assert read - COMMON <= set(METRICS), title
    labels = {label for name in read - COMMON for label in re.findall(r"`(\w+)`", METRICS[name].split("|")[1])}
    labels |= {"le", "pod", "instance"}
    used = {label for group in re.findall(r"(?:by|on) \(([\w, ]+)\)", expression) for label in group.split(", ")}
    used |= set(re.findall(r"[{,] ?(\w+)=", expression))
    used |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
    assert used <= labels, title


def test_histograms_are_read_by_their_buckets() -> None:
    for title, expression, _ in QUERIES:
        for name in names(expression):
            histogram = re.sub(r"_(bucket|count|sum)$", "", name)
            if histogram != name:
                assert METRICS[histogram].startswith("histogram"), title


def test_panels_have_a_place_and_a_number_each() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & mine, panel["title"]
        cells |= mine
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)


def test_every_query_asks_the_chosen_data_source() -> None:
    """No data source of the cluster where it was made."""
    assert {target["datasource"]["uid"] for _, _, target in QUERIES} == {"${datasource}"}
