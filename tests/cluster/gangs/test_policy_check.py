"""`topogate policy check --cluster` on a real control plane: what it says is what then happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from local.controlplane import ControlPlane
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.cluster.gangs.test_commands import topogate
from tests.support.callers import caller, rule
from tests.support.eventually import eventually
from tests.support.gang_steps import assigned
from tests.support.gangs import Namespace, require


def checked(kubeconfig: Path, file: Path, gangs: Namespace) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Exit status, answer, and what becomes of the gangs of the test's namespace."""
    done = topogate(kubeconfig, "policy", "check", str(file), "--cluster", "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    found = (answer["change"] or {}).get("gangs", [])
    return done.returncode, answer, {one["name"]: one["change"] for one in found if one["namespace"] == gangs.name}


def test_what_the_command_says_is_what_the_policy_then_does(
    gangs: Namespace, policy: PolicyInForce, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """One gang runs and one waits: told before, let go and left alone after; and a policy for no node is refused."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("runs", pods=2, annotations=require("rack"))
    gangs.all_bound("runs", 2)
    eventually(lambda: assigned(gangs, "runs"), message="the gang has its slots")
    gangs.submit("waits", pods=2, annotations=require("rack"))
    gangs.waits("waits")
    new = tmp_path / "policy.yaml"
    new.write_text(f"{TEST_POLICY}namespaces: {{modes: [{{namespaces: [{gangs.name}], mode: observe}}]}}\n")
    admin = control_plane.kubeconfig
    status, answer, gangs_then = checked(admin, new, gangs)
    assert (status, answer["good"], gangs_then) == (0, True, {"runs": "unmanaged", "waits": "released"})
    shown = topogate(admin, "policy", "check", str(new), "--cluster")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert f"namespace {gangs.name} (1 waiting, 1 with slots): mode enforce -> observe" in shown.stderr
    none = tmp_path / "none.yaml"
    none.write_text("topologies: [{name: default, preset: demo, nodeSelector: {example.com/pool: none}}]\n")
    status, answer, _ = checked(admin, none, gangs)
    assert (status, answer["good"]) == (1, False)
    (topology,) = answer["change"]["topologies"]
    assert (topology["nodesAfter"], "nodeSelector" in topology["empty"]) == (0, True)
    assert gangs.phase("waits") == "Waiting"  # nothing was changed
    policy.set(new.read_text())
    eventually(lambda: gangs.job("waits")["spec"]["suspend"] is False, message="the waiting gang is let go")
    eventually(lambda: gangs.placement("runs") is None, message="the running gang is not managed any more")
    assert checked(admin, new, gangs)[2] == {}


def test_who_may_not_read_the_policy_is_told_so(gangs: Namespace, control_plane: ControlPlane, tmp_path: Path) -> None:
    """The policy itself is checked all the same, and nothing is made up."""
    tenant = caller(control_plane, tmp_path, namespace=gangs.name, in_namespace=[rule("pods")])
    new = tmp_path / "policy.yaml"
    new.write_text("mode: off\n")
    status, answer, _ = checked(tenant, new, gangs)
    assert (status, answer["change"], answer["topologies"]) == (0, None, [])
    assert "the policy in force cannot be read, so nothing is compared with it" in answer["remarks"]
