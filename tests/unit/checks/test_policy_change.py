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

from engine.api import names
from engine.policy.model import parse_policy
from tests.support.golden import golden
from tests.support.simulation import BLOCK, RACK, Json, grid
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


def queued(patience: str = "10m") -> list[Json]:
    """Three gangs that wait since 00:10, 00:15 and 00:29; room is kept for the second one; bob uses less than alice."""
    found = [*grid(1, 2, 2), *placed("train", {"b0-r0-h0": ("b0/b0-r0", 1)}, bound=1)]
    for name, minute, namespace in (("first", 10, "alice"), ("second", 15, "alice"), ("third", 29, "bob")):
        asks = {"require": "rack"}
        since = f"2026-01-01T00:{minute}:00Z"
        kept = ["b0-r1-h0"] if name == "second" and patience == "10m" else []
        found.append(waits(name, 3, asks, minute=minute, namespace=namespace))
        found[-1]["metadata"]["annotations"][names.SCHEDULE_TIMEOUT] = "2h"
        found.append(waiting_placement(name, namespace=namespace, kept=kept, waitingSince=since))
    return [*found, policy_map(f"{LEVELS}queue: {{patience: {patience}}}\n")]


PREEMPTS = "preemption: {mode: lower-priority, protect: {namespaces: [ali*]}}\n"


def preemptible(mode: str) -> list[Json]:
    """Two gangs with slots, of two namespaces."""
    return [
        *grid(1, 1, 2),
        *placed("train", {"b0-r0-h0": ("b0/b0-r0", 1)}, bound=1),
        *placed("tune", {"b0-r0-h1": ("b0/b0-r0", 1)}, bound=1, namespace="bob"),
        policy_map(f"{LEVELS}preemption: {{mode: {mode}}}\n"),
    ]


def turns(found: PolicyChange) -> dict[str, tuple[int, int, bool, bool]]:
    return {
        one.name: (one.position_before, one.position_after, one.room_kept_before, one.room_kept_after)
        for one in found.queue.gangs
    }


def test_another_order_gives_other_turns() -> None:
    """Fair: the namespace that uses less goes first."""
    found = change(LEVELS + "queue: {fairness: {mode: namespaces}}\n", queued())
    assert {name: one[:2] for name, one in turns(found).items()} == {"third": (3, 1), "first": (1, 2), "second": (2, 3)}
    assert [one.field for one in found.queue.settings] == ["queue.fairness"]


@pytest.mark.parametrize(
    ("queue", "patience", "expected"),
    [
        ("order: strict", "10m", {"second": (2, 2, True, False)}),
        ("patience: 1h", "10m", {"second": (2, 2, True, False)}),
        ("patience: 2m", "1h", {"first": (1, 1, False, True)}),
        ("patience: 12m", "10m", {}),  # the one that has it keeps it
        ("patience: 18m", "10m", {"first": (1, 1, False, True), "second": (2, 2, True, False)}),
    ],
)
def test_who_gains_or_loses_kept_room(queue: str, patience: str, expected: dict[str, Any]) -> None:
    """It is kept for one gang of a topology that has waited longer than the patience, and never in strict order."""
    assert turns(change(f"{LEVELS}queue: {{{queue}}}\n", queued(patience))) == expected


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
            "a strict queue": lines(change(LEVELS + "queue: {order: strict}\n", queued())),
            "less patience": lines(change(LEVELS + "queue: {patience: 2m}\n", queued(patience="1h"))),
            "more patience": lines(change(LEVELS + "queue: {patience: 1h}\n", queued())),
            "a preemption": lines(change(LEVELS + PREEMPTS, preemptible("never"))),
            "a preemption with other rules": lines(
                change(
                    LEVELS + "preemption: {mode: lower-priority, victims: all, after: 5m, protect: "
                    "{runningFor: 1h, namespaces: [bob], annotated: true}}\n",
                    preemptible("lower-priority"),
                )
            ),
            "no preemption": lines(change(LEVELS, preemptible("lower-priority"))),
            "a preemption that stays off": lines(change(LEVELS + "preemption: {after: 5m}\n", preemptible("never"))),
            "a fair queue": lines(change(LEVELS + "queue: {fairness: {mode: namespaces}}\n", queued())),
            "other limits of the queue": lines(
                change(LEVELS + "queue: {onTimeout: giveUp, maxStartAttempts: 1, maxGangPods: 9}\n", queued())
            ),
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
