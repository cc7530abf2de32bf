"""What a policy would change for what exists, and what `topogate policy check` prints about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from engine.policy.model import parse_policy
from tests.support.golden import golden
from tests.support.simulation import BLOCK, RACK, Json
from tests.support.snapshots import busy_cluster, placed, snapshot, waiting_placement, waits
from webhook.checks.model import PolicyChange
from webhook.checks.policy_change import policy_change
from webhook.checks.policy_text import MOST, change_lines
from webhook.cli import main
from webhook.snapshot.snapshot import Unread

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "policy-check.schema.json").read_text())
LEVELS = (
    f"topologies: [{{name: default, levels: [{{name: block, keys: [{BLOCK}]}}, {{name: rack, keys: [{RACK}]}}]}}]\n"
)
RENAMED = f"topologies: [{{name: default, levels: [{{name: zone, keys: [{BLOCK}]}}, {{name: row, keys: [{RACK}]}}]}}]\n"
MODES = "namespaces: {modes: [{namespaces: [alice], mode: %s}]}\n"


def policy_map(text: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "topogate-policy", "namespace": "topogate-system"},
        "data": {"policy.yaml": text},
    }


def cluster(text: str = LEVELS) -> list[Json]:
    """A gang with slots and gangs that wait, in two namespaces."""
    return [*busy_cluster(), policy_map(text)]


def change(new: str, objects: Sequence[Json] | None = None, **snapshot_fields: Any) -> PolicyChange:
    seen = replace(snapshot(cluster() if objects is None else objects), **snapshot_fields)
    before = seen.view.policy
    found = policy_change(seen, parse_policy(new))
    assert seen.view.policy is before  # as it was
    return found


def fates(found: PolicyChange) -> dict[str, str]:
    return {one.name: one.change for one in found.gangs}


def lines(found: PolicyChange) -> str:
    same = found.in_force.model_copy(update={"hash": "2f03981f5539"})  # any new field changes it
    return "\n".join(change_lines(found.model_copy(update={"in_force": same})))


def test_what_people_read() -> None:
    rule = "namespaces: {rules: [{namespaces: [alice], %s}]}\n"
    golden(
        "policy-change",
        {
            "nothing": lines(change(LEVELS)),
            "other limits of time": lines(change(LEVELS + "timeouts: {bind: 45s}\n")),
            "mode off": lines(change(LEVELS + "mode: off\n")),
            "mode observe in one namespace": lines(change(LEVELS + MODES % "observe")),
            "mode hold": lines(change(LEVELS + "mode: hold\n")),
            "the end of a hold": lines(change(LEVELS, cluster(LEVELS + "mode: hold\n"))),
            "levels with other names": lines(change(RENAMED)),
            "a selector that no node has": lines(
                change(LEVELS.replace("name: default,", "name: default, nodeSelector: {pool: x},"))
            ),
            "another topology": lines(change(LEVELS.replace("name: default", "name: gpus"))),
            "an exempt namespace": lines(change(LEVELS + "namespaces: {exempt: [alice]}\n")),
            "a namespace without requests": lines(change(LEVELS + rule % "allow: false")),
            "limits that are exceeded": lines(change(LEVELS + rule % "maxWaitingGangs: 1, maxReservedHosts: 2")),
            "smaller gangs": lines(change(LEVELS + rule % "maxGangPods: 1")),
        },
    )


def test_what_waits_is_let_go_and_what_runs_is_not_managed_any_more() -> None:
    """By the mode of each gang's own namespace; a gang with slots is told apart."""
    every = fates(change(LEVELS + "mode: off\n"))
    assert every["train"] == "unmanaged"
    assert {every[name] for name in every if name != "train"} == {"released"}
    some = change(LEVELS + MODES % "off")
    assert {one.namespace for one in some.gangs} == {"alice"}
    assert {(one.mode_before, one.mode_after) for one in some.namespaces} == {("enforce", "off")}
    assert fates(change(LEVELS + MODES % "enforce", cluster(LEVELS + "mode: off\n"))) == {}  # only what comes


def test_a_level_that_goes_is_told_with_the_gangs_that_name_it() -> None:
    """Waiting ones stay held with an error; one with slots keeps them."""
    found = change(RENAMED)
    assert [(one.levels_before, one.levels_after) for one in found.topologies] == [
        (("block", "rack", "host"), ("zone", "row", "host"))
    ]
    assert fates(found)["train"] == "exceeds"
    assert {one.reason for one in found.gangs} == {"UnknownLevel"}
    assert set(fates(change(LEVELS, cluster(RENAMED))).values()) == {"unblocked"}


def test_a_workload_that_is_not_held_is_no_gang() -> None:
    """It runs since before its request; no mode lets it go."""
    free = waits("free", 2, {"require": "rack"})
    free["spec"]["suspend"] = False
    free["metadata"]["annotations"] = {"topogate.dev/require-topology": "rack"}
    assert "free" not in fates(change(LEVELS + "mode: off\n", [*cluster(), free]))


def test_without_nodes_no_topology_is_said_to_be_empty() -> None:
    """Who may not list nodes gets what follows from the rest, and is told."""
    found = change(RENAMED, unread=(Unread("nodes"),))
    assert found.topologies == ()
    assert any("nodes" in one for one in found.remarks)


def test_long_lists_are_cut_and_hostile_names_are_harmless() -> None:
    """JSON has all of them."""
    many = [waits(f"w{number:03}", 1, {"require": "rack"}) for number in range(MOST + 5)]
    many[0]["metadata"]["name"] = "a\x1b[31mb"
    found = change(LEVELS + "mode: off\n", [*cluster(), *many])
    text = lines(found)
    assert "\x1b" not in text
    assert "more (-o json)" in text
    assert len(found.gangs) > MOST


def test_the_command_compares_with_the_policy_among_the_files(tmp_path: Path) -> None:
    """The tables go to standard error, beside manifests to apply; -o json prints all on standard output."""
    listed = tmp_path / "cluster.json"
    listed.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster()}))
    new = tmp_path / "policy.yaml"
    new.write_text(LEVELS + "mode: observe\n")
    shown = CliRunner().invoke(main, ["policy", "check", str(new), "--cluster", str(listed)])
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "waiting gangs are let go:" in shown.stderr
    done = CliRunner().invoke(main, ["policy", "check", str(new), "--cluster", str(listed), "-o", "json"])
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, SCHEMA)
    assert (done.exit_code, answer["good"], answer["change"]["inForce"]["mode"]) == (0, True, "enforce")
    assert len(answer["change"]["gangs"]) == len(change(LEVELS + "mode: observe\n").gangs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LEVELS.replace("name: default,", "name: default, nodeSelector: {pool: x},"), "matches no node"),
        (
            LEVELS + "namespaces: {defaults: [{namespaces: [a], annotations: {topogate.dev/prefer-topology: zone}}]}\n",
            "refused",
        ),
        ("mode: of\n", "refused, 1 error"),
    ],
)
def test_no_nodes_and_errors_are_a_negative_answer(tmp_path: Path, text: str, said: str) -> None:
    """Status 1, in each format."""
    listed = tmp_path / "cluster.json"
    listed.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster()}))
    new = tmp_path / "policy.yaml"
    new.write_text(text)
    words = ["policy", "check", str(new), "--cluster", str(listed)]
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 1
    assert said in shown.stderr
    done = CliRunner().invoke(main, [*words, "-o", "yaml"])
    assert (done.exit_code, done.stdout.startswith("good: false\n")) == (1, True)


def test_a_live_cluster_and_files_exclude_each_other(tmp_path: Path) -> None:
    """One line, status 2."""
    new = tmp_path / "policy.yaml"
    new.write_text("{}")
    shown = CliRunner().invoke(main, ["policy", "check", str(new), "--cluster", "x.json", "--cluster"])
    assert shown.exit_code == 2
    assert shown.stderr == "topogate: --cluster reads either the cluster of the kubeconfig or files\n"


def test_a_gang_of_a_dialect_that_is_switched_off() -> None:
    """Nobody reads its request any more."""
    asks = waits("kueue", 2, {})
    asks["metadata"]["annotations"] |= {"kueue.x-k8s.io/podset-required-topology": "rack"}
    objects = [*cluster(), asks, waiting_placement("kueue"), *placed("other", {"b1-r1-h0": ("b1/b1-r1", 1)}, bound=1)]
    found = change(LEVELS + "annotations: {dialects: [topogate]}\n", objects)
    assert [(one.name, one.change, one.reason) for one in found.gangs] == [("kueue", "released", "NoTopologyRequested")]
