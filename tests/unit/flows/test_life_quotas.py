"""Gangs that may start with a part, in namespaces whose ResourceQuota admits a part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.workload import Workload
from engine.gang.key import key_of
from tests.support.cluster_records import gpu_nodes, job, pod, pod_set
from tests.support.gang_oracles import ranks_of
from tests.support.leader import Leader
from tests.unit.controller.test_pod_group_gangs import assigned, member, message


def with_quota(pods: int, *, used: int = 0, racks: int = 1) -> Leader:
    leader = Leader(nodes=gpu_nodes(1, racks, 8))
    allow(leader, pods, used=used)
    return leader


def allow(leader: Leader, pods: int, *, used: int = 0) -> None:
    leader.stores.quotas.replace([Quota("default", "team", hard={"pods": pods}, used={"pods": used}, scopes=())])


def elastic(least: int, *, count: int = 8, **more: str) -> Workload:
    asked = {names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: str(least), names.HELD_BY: names.HELD_BY_SUSPEND}
    return job(count=count, held=True, require=None, annotations=asked | more)


def reserved(leader: Leader) -> int:
    return sum(leader.view.capacity.reserved_by(key_of(leader.workload())).values())


def test_a_gang_keeps_no_slots_for_pods_that_the_quota_refuses() -> None:
    """It starts with as many as are admitted, says what the others wait for, and grows when the quota is raised."""
    leader = with_quota(5)
    leader.has(elastic(4))
    leader.settle()
    assert assigned(leader, "train") == 5
    gang = leader.workload()
    leader.has(
        *(pod(gang, rank, host=host, phase="Running") for rank, host in ranks_of(leader.placed("train")).items())
    )
    allow(leader, 5, used=5)
    leader.settle()
    leader.later(30)
    assert (assigned(leader, "train"), reserved(leader)) == (5, 0)
    assert leader.status("train")[1] == "QuotaExceeded"
    assert "quota team leaves 0 of pods, 3 pods need 3" in message(leader, "train")
    allow(leader, 7, used=5)
    leader.settle()
    leader.later(30)
    assert assigned(leader, "train") == 7


@pytest.mark.parametrize(("pods", "slots"), [(3, 0), (4, 4), (7, 4), (8, 8)])
def test_slices_are_whole_within_a_quota(pods: int, slots: int) -> None:
    leader = with_quota(pods)
    leader.has(elastic(4, **{names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"}))
    leader.settle()
    assert assigned(leader, "train") == slots


@pytest.mark.parametrize(("pods", "slots"), [(5, 0), (6, 6), (7, 7), (20, 8)])
def test_the_minimum_of_a_gang_of_several_templates_has_to_be_admitted(pods: int, slots: int) -> None:
    """It is about all of them, each with one pod at least."""
    leader = with_quota(pods)
    gang = elastic(6)
    template = gang.pod_sets[0].template
    leader.has(replace(gang, pod_sets=tuple(pod_set(name, count=4, template=template) for name in ("a", "b"))))
    leader.settle()
    assert assigned(leader, "train") == slots
    assert (leader.status("train")[1] == "QuotaExceeded") == (not slots)


@pytest.mark.parametrize("pods", [5, 8])
def test_a_pod_group_starts_if_the_quota_admits_its_minimum(pods: int) -> None:
    """Two Jobs of four pods, which have to start together."""
    leader = with_quota(pods)
    leader.has(member("a"), member("b"))
    leader.settle()
    if pods == 8:
        assert (assigned(leader, "a"), assigned(leader, "b")) == (4, 4)
        return
    assert (assigned(leader, "a"), assigned(leader, "b")) == (0, 0)
    assert leader.status("a") == ("Waiting", "QuotaExceeded")
    assert "quota team leaves 1 of pods, 4 pods need 4" in message(leader, "a")
