"""The commands on a real control plane: from an annotated Job to what people see, as an admin and as a tenant."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local.controlplane import ControlPlane
from local.service import ROOT
from tests.support.callers import caller, rule
from tests.support.cli import topogate
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, job_body, require

pytestmark = pytest.mark.core


def answer(kubeconfig: Path, *words: str) -> dict[str, Any]:
    done = topogate(kubeconfig, *words, "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(gangs: Namespace, kubeconfig: Path, *words: str) -> dict[str, dict[str, Any]]:
    """The rows of `topogate gangs` in the test's namespace, by name."""
    found = answer(kubeconfig, "gangs", "-n", gangs.name, *words)
    return {one["name"]: one for one in found["gangs"]}


@pytest.fixture
def admin(control_plane: ControlPlane) -> Path:
    return control_plane.kubeconfig


def test_the_racks_the_gangs_and_what_fits(gangs: Namespace, admin: Path) -> None:
    """Two racks of two hosts: one gang runs with a deadline, two wait behind it, a cordon is counted."""
    hosts = gangs.fleet.grid("1x2x2")
    gangs.submit("runs", pods=2, annotations=require("rack"), spec={"activeDeadlineSeconds": 3600})
    bound = gangs.all_bound("runs", 2)
    other = next(host for host in hosts if gangs.fleet.rack_of(host) not in gangs.racks(bound))
    gangs.fleet.cordon(other)
    gangs.submit("wait-1", pods=2, annotations=require("rack"))
    gangs.waits("wait-1")
    gangs.submit("wait-2", pods=2, annotations=require("rack"))
    gangs.waits("wait-2")

    def settled() -> dict[str, dict[str, Any]] | None:
        found = rows(gangs, admin)
        return found if found.get("runs", {}).get("phase") == "Running" else None

    found = eventually(settled, message="the gang is shown as running")
    assert found["runs"]["pods"] == {"bound": 2, "wanted": 2}
    assert found["runs"]["place"] == "/".join(gangs.fleet.rack_of(bound[0]))
    assert set(found["runs"]["hosts"]) == set(bound.values())
    assert [(found[name]["position"], found[name]["queued"]) for name in ("wait-1", "wait-2")] == [(1, 2), (2, 2)]
    assert found["wait-1"]["start"]["after"] == [f"{gangs.name}/job/runs"]
    assert found["wait-1"]["start"]["by"] > found["runs"]["createdAt"]
    assert found["wait-2"]["start"]["by"] is None
    assert found["wait-1"]["fitsNow"] is False

    (topology,) = answer(admin, "topology", "show", "--level", "host")["topologies"]
    assert topology["gpus"] == {"total": 32, "used": 16, "reserved": 0, "kept": 0, "out": 8, "free": 8}
    assert {node["name"] for node in topology["nodes"] if node["out"] == "cordoned"} == {other}
    assert {node["name"] for node in topology["nodes"] if node["gangs"]} == set(bound.values())
    shown = topogate(admin, "topology", "show")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "1 cordoned" in shown.stdout

    one = topogate(admin, "fits", "-n", "1", "--require", "rack")
    assert (one.returncode, one.stdout.splitlines()[0].rpartition(": ")[2]) == (0, "fits now")
    two = topogate(admin, "fits", "-n", "2", "--require", "rack")
    assert two.returncode == 1
    assert "best is" in two.stdout


def test_what_fits_is_what_happens(gangs: Namespace, admin: Path) -> None:
    """The largest gang that is shown starts when it is submitted, on the domains that are told; a larger one waits."""
    gangs.fleet.grid("1x2x3")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    found = eventually(
        lambda: (one := answer(admin, "fits", "-n", "3", "--require", "rack"))["levels"][0]["largestGang"] == 1 and one,
        message="the first gang's pods count",
    )
    assert found["fits"] is True
    assert [level["largestGang"] for level in found["levels"]] == [1, 3, 4, 4]
    gangs.submit("second", pods=3, annotations=require("rack"))
    bound = gangs.all_bound("second", 3)
    (rack,) = gangs.racks(bound)
    assert tuple(found["assignment"][0]["path"]) == rack
    gangs.submit("third", pods=2, annotations=require("rack"))
    gangs.waits("third", "Fragmented" if answer(admin, "fits", "-n", "2")["fits"] else None)


def test_a_tenant_sees_own_gangs_and_what_is_not_known(
    gangs: Namespace, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Real RBAC: the rights of one namespace, then of the nodes too, then of all that is needed."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("mine", pods=2, annotations=require("rack"))
    gangs.all_bound("mine", 2)
    gangs.submit("waits", pods=2, annotations=require("rack"))
    gangs.waits("waits")
    own = [rule("pods"), rule("jobs", group="batch"), rule("placements", group="topogate.dev")]
    tenant = caller(control_plane, tmp_path, namespace=gangs.name, name="tenant", in_namespace=own)
    done = topogate(tenant, "gangs")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["job/waits", "job/mine"]
    assert f"pods of namespaces other than {gangs.name} cannot be read: free capacity is not known" in done.stderr
    assert "Traceback" not in done.stderr
    asked = topogate(tenant, "fits", "-n", "2")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "free capacity is not known" in asked.stderr
    every = [
        *(rule("nodes", "pods", "resourcequotas", "configmaps"), rule("jobs", group="batch")),
        rule("placements", group="topogate.dev"),
    ]
    reader = caller(control_plane, tmp_path, namespace=gangs.name, name="reader", everywhere=every)
    found = rows(gangs, reader)
    assert (found["waits"]["position"], found["waits"]["queued"]) == (1, 1)
    assert topogate(reader, "fits", "-n", "2").returncode == 1
    (told,) = answer(reader, "explain", "job/waits")["gangs"]
    assert [item["name"] for item in told["inTheWay"]] == [f"{gangs.name}/job/mine"]
    own_only = topogate(tenant, "explain", "job/waits")
    assert (own_only.returncode, "as the leader last wrote: " in own_only.stdout) == (1, True)
    assert f"events of namespace {gangs.name} cannot be read" in own_only.stderr


def test_what_explain_tells_is_what_happens(
    gangs: Namespace, admin: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A gang that waits is told a command; run as it is printed, it places the gang where explain then says it is."""
    gangs.fleet.grid("1x2x2")
    gangs.submit("runs", pods=1, annotations=require("rack"), spec={"activeDeadlineSeconds": 3600})
    gangs.all_bound("runs", 1)
    gangs.submit("wide", pods=3, annotations=require("rack"))
    gangs.waits("wide")

    def explained(name: str) -> dict[str, Any]:
        (found,) = answer(admin, "explain", name, "-n", gangs.name)["gangs"]
        return dict(found)

    found = explained("job/wide")
    assert found["verdict"] in ("waits", "never")
    ways = {way["change"]: way for way in found["waysOut"]}
    assert (ways["level"]["to"], ways["pods"]["to"]) == ("block", "2")
    waits = topogate(admin, "explain", "job/wide", "-n", gangs.name)
    assert (waits.returncode, waits.stderr) == (1, "")
    assert ways["level"]["command"] in waits.stdout

    file = tmp_path / "fresh.json"
    fresh = job_body("fresh", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    file.write_text(json.dumps(fresh))
    (of_file,) = answer(admin, "explain", "-f", str(file), "-n", gangs.name)["gangs"]
    assert of_file["verdict"] == "fits"

    kubectl = str(control_plane.programs["kubectl"])
    words = shlex.split(ways["level"]["command"])
    subprocess.run([kubectl, "--kubeconfig", str(admin), *words[1:]], check=True, capture_output=True, timeout=300)
    bound = gangs.all_bound("wide", 3)

    def settled() -> dict[str, Any] | None:
        one = explained("job/wide")
        ready = one["pods"] and all(pod["state"] == "ready" for pod in one["pods"])
        return one if ready and "Running" in {past["reason"] for past in one["history"]} else None

    placed = eventually(settled, message="all pods are shown as ready, and the Event about it")
    assert (placed["verdict"], placed["proven"], [pod["rank"] for pod in placed["pods"]]) == ("placed", True, [0, 1, 2])
    assert {pod["rank"]: pod["host"] for pod in placed["pods"]} == bound
    assert placed["history"][0]["reason"] == "Created"
    (pod,) = explained(f"pod/{placed['pods'][1]['pod']}")["pods"]
    assert pod == placed["pods"][1]


def test_a_kubectl_plugin(gangs: Namespace, control_plane: ControlPlane, tmp_path: Path) -> None:
    """`kubectl topogate ...` finds the program by its second name and passes the words on."""
    gangs.fleet.grid("1x1x1")
    plugin = tmp_path / "kubectl-topogate"
    plugin.write_text(
        f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m webhook.cli "$@"\n',
    )
    plugin.chmod(0o755)
    done = subprocess.run(
        [str(control_plane.programs["kubectl"]), "topogate", "topology", "show", "-o", "json"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(control_plane.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["topologies"][0]["hosts"] == 1
