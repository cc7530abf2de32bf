"""`topogate topology doctor`: of a cluster with or without Topogate, of files, and with few rights."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.support.fake_api import FakeApi
from tests.support.simulation import RACK, grid
from tests.unit.commands.conftest import Topogate, forbid


def test_a_cluster_is_checked_without_topogate_and_without_reading_what_runs(
    topogate: Topogate, server: FakeApi
) -> None:
    server.uninstall("topogate.dev/v1alpha1", "placements")
    done = topogate("topology", "doctor")
    assert (done.exit_code, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "ok    topology default: 16 of 17 nodes, levels block, rack, host"
    assert lines[1] == "warn  topology default: leaves out 1 node with no label block: stray"
    assert lines[2].startswith("        -> label them with cloud.provider.com/topology-block, or ")
    assert "1 warning" in lines
    assert not [one.path for one in server.requests if one.path.endswith(("/pods", "/jobs"))]


def test_what_is_printed_as_data_has_the_same(topogate: Topogate) -> None:
    found = json.loads(topogate("topology", "doctor", "-o", "json").stdout)
    assert found == yaml.safe_load(topogate("topology", "doctor", "-o", "yaml").stdout)
    assert found["good"] is False
    assert found["topologies"][0]["leftOut"] == [
        {"reason": "no label block", "count": 1, "gpus": True, "nodes": ["stray"]}
    ]
    assert [one["name"] for one in found["presets"] if one["fits"]] == ["demo"]


def test_files_are_checked_without_a_cluster(topogate: Topogate, server: FakeApi, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": grid(2, 2, 2)}))
    done = topogate("topology", "doctor", "--cluster", str(nodes))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "all good"
    assert server.requests == []
    lacks = grid(2, 2, 2)
    del lacks[0]["metadata"]["labels"][RACK]
    nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": lacks}))
    done = topogate("topology", "doctor", "--cluster", str(nodes))
    assert (done.exit_code, done.stderr) == (1, "")


def test_what_cannot_be_asked_ends_with_one_line(topogate: Topogate, server: FakeApi, tmp_path: Path) -> None:
    for words, told in (
        (("--topology", "no"), 'no topology "no"; there are: default'),
        (("--cluster", str(tmp_path / "none")), "No such file"),
        (("--cluster", "-", "--cluster", "-"), "can be read only once"),
    ):
        done = topogate("topology", "doctor", *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert told in done.stderr
    forbid(server, "nodes")
    done = topogate("topology", "doctor")
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "nodes cannot be read" in done.stderr
