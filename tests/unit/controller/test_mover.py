"""The leader proposes restarts to gangs that wait for room which is there in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from engine.api import names
from engine.api.placement import Assignment, Placement, PodSetPlan, Slot
from engine.api.workload import Workload
from engine.controller import mover
from engine.policy.model import parse_policy
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod
from tests.support.leader import POLICY, Leader

A0, A1, B0, B1 = (f"b0-r{rack}-h{host}" for rack in range(2) for host in range(2))


def runs(leader: Leader, name: str, hosts: Mapping[str, int], *, namespace: str = "bob", priority: int = 0) -> None:
    """A running gang with eight GPUs a pod; host -> pods."""
    workload = job(name, count=sum(hosts.values()), require=None, namespace=namespace)
    workload = replace(workload, annotations={names.UNCONSTRAINED: "true"})
    workload = changed(workload, template=replace(workload.template, priority=priority))
    slots, rank = [], 0
    for host, count in hosts.items():
        slots.append(Slot(("b0", host.rpartition("-")[0], host), count, ((rank, rank + count - 1),)))
        leader.has(*(pod(workload, rank + one, host=host, namespace=namespace) for one in range(count)))
        rank += count
    plan = replace(placement(workload, hosts, created=1_800_000_900.0, priority=priority), namespace=namespace)
    leader.has(workload, replace(plan, assignment=Assignment(1, (PodSetPlan("main", tuple(slots)),))))


def leader_of(policy: str = "", *, priority: int = 0) -> Leader:
    """Two racks of two hosts with a gang on each rack."""
    leader = Leader(gpu_nodes(1, 2, 2), policy=f"{POLICY}{policy}")
    runs(leader, "left", {A0: 1}, priority=priority)
    runs(leader, "right", {B0: 1}, priority=priority)
    leader.settle()
    return leader


def waiting(count: int = 2) -> Workload:
    return job("train", count=count, held=True, created=1_800_001_000.0)


def proposal(leader: Leader) -> Any:
    placed = leader.placed()
    assert placed is not None
    return placed.status.get("proposal")


def message(leader: Leader) -> str:
    placed = leader.placed()
    assert placed is not None
    return str(placed.status.get("message"))


def searches(leader: Leader, seconds: int) -> int:
    """How often restarts are searched for within a time."""
    with patch.object(mover, "room_in_total", wraps=mover.room_in_total) as search:
        for _ in range(seconds):
            leader.later(1)
    return search.call_count


def test_a_gang_that_has_waited_learns_which_restarts_would_help() -> None:
    """After a minute: numbers and uids, and no names, as the gang that would restart is another namespace's."""
    leader = leader_of()
    leader.has(waiting())
    leader.settle()
    leader.later(59)
    assert not (proposal(leader) or {}).get("restarts")
    for _ in range(20):
        leader.later(2)
    (restart,) = proposal(leader)["restarts"]
    assert restart["pods"] == 1
    assert restart["uid"] in {"uid-placement-left", "uid-placement-right"}
    assert leader.status() == ("Waiting", "Fragmented")
    assert message(leader).endswith("; would fit if 1 running gang (1 pod) restarted elsewhere")
    text = repr(leader.placed()) + repr([note for name, note in leader.hands.notes if name == "train"])
    assert "bob" not in text
    assert "job/left" not in text


def test_the_event_comes_once() -> None:
    """However often the search finds something, and also for the next leader."""
    leader = leader_of()
    leader.has(waiting())
    for step in range(300):
        leader.later(2)
        if step == 150:
            leader.leading = False
            leader.turn()
            leader.leading = True
    told = [note for name, note in leader.hands.notes if name == "train" and "restarted elsewhere" in note]
    assert leader.hands.gang_events.count(("train", "RestartsProposed")) == 1
    assert "it would fit if 1 running gang (1 pod) restarted elsewhere (admins: topogate defragment)" in told


def test_the_proposal_goes_when_the_gang_is_placed() -> None:
    """And with it the end of the message."""
    leader = leader_of()
    leader.has(waiting())
    for _ in range(80):
        leader.later(1)
    assert proposal(leader)["restarts"]
    gone = next(one for one in leader.stores.pods.values() if one.name == "left-0")
    leader.stores.pods.apply("DELETED", gone)
    leader.has(replace(_workload(leader, "left"), finished=True, resource_version="9000000"))
    for _ in range(40):
        leader.later(1)
    placed = leader.placed()
    assert placed is not None
    assert placed.assignment is not None
    assert not (placed.status.get("proposal") or {}).get("restarts")


def _workload(leader: Leader, name: str) -> Workload:
    found = leader.stores.workloads.get(("batch", "Job", "bob", name))
    assert found is not None
    return found


def test_the_proposal_goes_when_it_would_not_help_any_more() -> None:
    """The free hosts of the other rack are taken by a third gang."""
    leader = leader_of()
    leader.has(waiting())
    for _ in range(80):
        leader.later(1)
    assert proposal(leader)["restarts"]
    runs(leader, "more", {B1: 1})
    runs(leader, "most", {A1: 1})
    for _ in range(140):
        leader.later(1)
    assert not (proposal(leader) or {}).get("restarts")
    assert "restarted elsewhere" not in message(leader)


@pytest.mark.parametrize(
    ("policy", "priority"),
    [
        ("defragment: {mode: never}\n", 0),
        ("defragment: {protect: {namespaces: [bob]}}\n", 0),
        ("defragment: {after: 1h}\n", 0),
        ("", 1),
    ],
)
def test_there_is_no_proposal(policy: str, priority: int) -> None:
    """Switched off, protected, too early, or only gangs of a higher priority could restart."""
    leader = leader_of(policy, priority=priority)
    leader.has(waiting())
    for _ in range(80):
        leader.later(2)
    assert not (proposal(leader) or {}).get("restarts")
    assert ("train", "RestartsProposed") not in leader.hands.gang_events


def test_nothing_is_searched_while_nothing_waits_or_nothing_changes() -> None:
    """A gang that waits in vain is looked at again only after a change of the cluster, less and less often."""
    leader = leader_of()
    assert searches(leader, 100) == 0
    leader.has(waiting())
    assert 1 <= searches(leader, 120) <= 4
    assert searches(leader, 300) <= 1
    runs(leader, "more", {B1: 1})
    assert 1 <= searches(leader, 120) <= 3


def test_a_gang_that_waits_for_something_else_is_not_searched_for() -> None:
    """One that is too large for the topology, for instance."""
    leader = leader_of()
    leader.has(waiting(count=5))
    assert searches(leader, 100) == 0


def test_a_policy_that_stops_it_takes_the_proposal_back() -> None:
    """With the next plan of the gang."""
    leader = leader_of()
    leader.has(waiting())
    for _ in range(80):
        leader.later(1)
    assert proposal(leader)["restarts"]
    leader.view.set_policy(parse_policy(f"{POLICY}defragment: {{mode: never}}\n"))
    for _ in range(15):
        leader.later(1)
    assert not (proposal(leader) or {}).get("restarts")


def test_a_failing_search_does_not_keep_others_from_being_planned() -> None:
    """It is counted as a fault, and another gang that fits is placed."""
    leader = leader_of()
    leader.has(waiting())
    with patch.object(mover, "moves_for_waiting", side_effect=RuntimeError):
        for _ in range(70):
            leader.later(1)
        leader.has(job("small", count=1, held=True, created=1_800_001_050.0))
        for _ in range(5):
            leader.later(1)
    placed = leader.placed("small")
    assert isinstance(placed, Placement)
    assert placed.assignment is not None


def test_a_gang_that_restarts_anyway_takes_the_better_place() -> None:
    """Split over two racks when it was placed, it gets one of them when its user suspends and resumes it."""
    leader = Leader(gpu_nodes(1, 2, 2), policy=POLICY)
    runs(leader, "apart", {A0: 1, B0: 1})
    known = _workload(leader, "apart")
    leader.has(replace(known, annotations={names.PREFER: "rack"}, resource_version="9000000"))
    leader.settle()
    leader.has(replace(_workload(leader, "apart"), suspended=True, started=False, resource_version="9000001"))
    for record in [*leader.stores.pods.values()]:
        leader.stores.pods.apply("DELETED", record)
    for _ in range(40):
        leader.later(1)
    placed = leader.placed("apart")
    assert placed is not None
    assert placed.assignment is None
    leader.has(replace(_workload(leader, "apart"), suspended=False, resource_version="9900000"))
    for _ in range(5):
        leader.later(1)
    placed = leader.placed("apart")
    assert placed is not None
    assert placed.assignment is not None
    assert len({slot.domain[1] for slot in placed.assignment.pod_sets[0].slots}) == 1
