"""Restarts that make a rack whole, on a real control plane: the steps of docs/tasks/admin/fragmentation.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local.controlplane import ControlPlane
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.cli import topogate
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job, status_of
from tests.support.gangs import Namespace, require

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"


@pytest.fixture
def admin(control_plane: ControlPlane) -> Path:
    return control_plane.kubeconfig


def in_pieces(gangs: Namespace, beside: Namespace) -> dict[str, str]:
    """Two racks of two hosts, on each a running gang of the other namespace; gang -> host."""
    hosts = gangs.fleet.grid("1x2x2")
    on: dict[str, str] = {}
    for name in ("one", "two", "three", "four"):
        beside.submit(name, pods=1, annotations=require("host"))
        on[name] = beside.all_bound(name, 1)[0]
    assert set(on.values()) == set(hosts)
    kept: dict[tuple[str, str], str] = {}
    for name, host in on.items():
        if kept.setdefault(gangs.fleet.rack_of(host), name) != name:
            delete_job(beside, name)
    beside.pods_seen()
    return {name: on[name] for name in kept.values()}


def test_a_proposal_is_shown_and_carried_out(
    gangs: Namespace, beside: Namespace, policy: PolicyInForce, admin: Path
) -> None:
    """Status, Event and command propose one restart; by suspend and resume both gangs are where the command says."""
    policy.set(f"{TEST_POLICY}defragment: {{after: 1s}}\n")
    running = in_pieces(gangs, beside)
    gangs.submit("big", pods=2, annotations=require("rack"))
    gangs.waits("big", "Fragmented")

    def proposed() -> Any:
        placement = gangs.placement("big")
        status = placement["status"] if placement is not None else {}
        return (status.get("proposal") or {}).get("restarts") and status

    status = eventually(proposed, message="the Placement shows a proposal")
    uids = {one["metadata"]["uid"]: name for name in running if (one := beside.placement(name)) is not None}
    assert [(one["uid"] in uids, one["pods"]) for one in status["proposal"]["restarts"]] == [(True, 1)]
    assert "restarted elsewhere" in status["message"]
    named = [f"{beside.name}/", *(f"job/{name}" for name in running), *(f"job-{name}" for name in running)]
    assert not [name for name in named if name in json.dumps(status)]  # the hosts have the namespace in their names

    def told() -> list[str]:
        events = gangs.client.items(EVENTS.format(gangs.name))
        return [one["note"] for one in events if one["reason"] == "RestartsProposed"]

    notes = eventually(told, message="an Event tells of the proposal")
    assert not [note for note in notes for name in named if name in note]

    shown = topogate(admin, "defragment", "--gang", "job/big", "-n", gangs.name, "-o", "json")
    assert (shown.returncode, shown.stderr) == (0, "")
    (proposal,) = json.loads(shown.stdout)["proposals"]
    (moved,) = proposal["restarts"]
    assert moved["name"] in running
    assert moved["namespace"] == beside.name
    assert [tuple(one["path"]) for one in moved["before"]] == [gangs.fleet.rack_of(running[moved["name"]])]

    job = f"job/{moved['name']}"
    assert topogate(admin, "suspend", job, "-n", beside.name).returncode == 0
    bound = gangs.all_bound("big", 2)
    assert gangs.racks(bound) == {tuple(one["path"]) for one in proposal["assignment"]}
    assert topogate(admin, "resume", job, "-n", beside.name).returncode == 0
    again = beside.all_bound(moved["name"], 1)
    assert [gangs.fleet.rack_of(host) for host in again.values()] == [tuple(one["path"]) for one in moved["after"]]
    eventually(
        lambda: (status := status_of(gangs, "big")) and not (status.get("proposal") or {}).get("restarts"),
        message="the Placement of the gang that fits shows no proposal any more",
    )


def test_the_service_carries_it_out_where_the_policy_says_so(
    gangs: Namespace, beside: Namespace, policy: PolicyInForce
) -> None:
    """A gang of the same priority is suspended, both run on other hosts, and it is not moved again."""
    policy.set(f"{TEST_POLICY}defragment: {{mode: act, after: 1s}}\n")
    running = in_pieces(gangs, beside)
    gangs.submit("big", pods=2, annotations=require("rack"))
    bound = gangs.all_bound("big", 2)
    (rack,) = gangs.racks(bound)

    def moved() -> list[str]:
        return [name for name in running if status_of(beside, name).get("movedAt")]

    (name,) = eventually(moved, message="the Placement of the moved gang says so")
    assert gangs.fleet.rack_of(running[name]) == rack
    (stays,) = running.keys() - {name}
    again = beside.all_bound(name, 1)
    assert [gangs.fleet.rack_of(host) for host in again.values()] == [gangs.fleet.rack_of(running[stays])]
    assert beside.all_bound(stays, 1)[0] == running[stays]

    def told() -> set[str]:
        events = beside.client.items(EVENTS.format(beside.name))
        return {one["note"] for one in events if one["reason"] == "Preempted"}

    (note,) = eventually(told, message="the users of the moved gang are told")
    assert note.startswith("restarts elsewhere so that a gang of another namespace fits")
    eventually(
        lambda: (status := status_of(gangs, "big")) and not any(map(status.get, ("preemption", "keptHosts"))),
        message="the Placement of the gang that fits keeps nothing any more",
    )
