"""Gangs that lose pods or nodes while they run: the lost ranks get other hosts beside the rest, which stays."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.api import names
from local.kubelets import fail_pod
from tests.support.eventually import eventually
from tests.support.gang_steps import assigned, delete_job, held_pods, pod_of_index, replaced, status_of
from tests.support.gangs import Namespace, prefer, require
from tests.support.raw_pods import held

pytestmark = pytest.mark.core

RETRIES = {"backoffLimit": 6}


def _delete_pod(gangs: Namespace, name: str) -> None:
    gangs.client.delete(f"/api/v1/namespaces/{gangs.name}/pods/{name}", grace=0)


def _back(gangs: Namespace, job: str, index: int, uid: str) -> str | None:
    """The host of a new pod of an index; None until it is bound."""
    pod = replaced(gangs, job, index, uid)
    return pod["spec"].get("nodeName") if pod else None


def test_a_rank_whose_host_takes_nobody_any_more_goes_to_another_host_of_the_rack(gangs: Namespace) -> None:
    """Cordoned: nobody moves. Then its pod fails: the replacement goes elsewhere in the rack, the others stay."""
    gangs.fleet.grid("1x2x4")
    gangs.submit("train", pods=3, annotations=require("rack"), spec=RETRIES)
    before = gangs.all_bound("train", 3)
    revision = gangs.placement("train")["spec"]["assignment"]["revision"]  # type: ignore[index]
    gangs.fleet.cordon(before[1])
    failed = pod_of_index(gangs, "train", 1)["metadata"]
    fail_pod(gangs.client, gangs.name, failed["name"])
    host = eventually(lambda: _back(gangs, "train", 1, failed["uid"]), message=lambda: gangs.describe("train"))
    after = gangs.bound("train")
    assert host not in before.values()
    assert (after[0], after[2]) == (before[0], before[2])
    assert len({gangs.fleet.rack_of(name) for name in (host, before[0], before[2])}) == 1
    stands = gangs.placement("train")["spec"]["assignment"]  # type: ignore[index]
    assert stands["revision"] > revision
    assert set(assigned(gangs, "train")) == {host, before[0], before[2]}


def test_a_balanced_gang_that_loses_a_rank_stays_on_its_racks(gangs: Namespace) -> None:
    """Three and three of six pods; one that its host takes no more gets another host of these two racks."""
    gangs.fleet.grid("1x3x5")
    gangs.submit("even", pods=6, annotations={**prefer("rack"), names.PROFILE: "balanced"}, spec=RETRIES)
    before = gangs.all_bound("even", 6)
    racks = Counter(gangs.fleet.rack_of(host) for host in before.values())
    assert sorted(racks.values()) == [3, 3]
    gangs.fleet.cordon(before[4])
    failed = pod_of_index(gangs, "even", 4)["metadata"]
    fail_pod(gangs.client, gangs.name, failed["name"])
    host = eventually(lambda: _back(gangs, "even", 4, failed["uid"]), message=lambda: gangs.describe("even"))
    assert host not in before.values()
    assert gangs.fleet.rack_of(host) in racks


def test_several_nodes_at_once_are_one_repair(gangs: Namespace) -> None:
    """Two of four nodes are drained: both ranks move in the same rack, by one new revision."""
    gangs.fleet.grid("1x2x6")
    gangs.submit("train", pods=4, annotations=require("rack"), spec=RETRIES)
    before = gangs.all_bound("train", 4)
    revision = gangs.placement("train")["spec"]["assignment"]["revision"]  # type: ignore[index]
    lost = {index: pod_of_index(gangs, "train", index)["metadata"] for index in (1, 2)}
    for index in lost:
        gangs.fleet.cordon(before[index])
    for pod in lost.values():
        _delete_pod(gangs, pod["name"])
    hosts = {
        index: eventually(
            lambda index=index, pod=pod: _back(gangs, "train", index, pod["uid"]),
            message=lambda: gangs.describe("train"),
        )
        for index, pod in lost.items()
    }
    after = gangs.all_bound("train", 4)
    assert (after[0], after[3]) == (before[0], before[3])
    assert not set(hosts.values()) & set(before.values())
    assert len(gangs.racks(after)) == 1
    assert gangs.placement("train")["spec"]["assignment"]["revision"] <= revision + 2  # type: ignore[index]


def test_a_cordon_a_taint_and_a_flap_move_nobody(gangs: Namespace) -> None:
    """All of it runs on where it is, with the assignment that it has."""
    gangs.fleet.grid("1x1x5")
    gangs.submit("train", pods=3, annotations=require("rack"), spec=RETRIES)
    before = gangs.all_bound("train", 3)
    stood = gangs.placement("train")["spec"]  # type: ignore[index]
    gangs.fleet.cordon(before[0])
    gangs.fleet.patch(before[1], {"spec": {"taints": [{"key": "example.com/x", "effect": "NoSchedule"}]}})
    gangs.fleet.fail(before[2])
    gangs.fleet.recover(before[2])
    gangs.submit("next", pods=1, annotations=require("host"))
    gangs.all_bound("next", 1)
    assert gangs.bound("train") == before
    assert gangs.placement("train")["spec"] == stood  # type: ignore[index]


def test_a_gang_without_room_for_its_lost_rank_says_so_and_goes_on_when_there_is_some(gangs: Namespace) -> None:
    """The rack is full: Incomplete, with the reason; its pod is held, until another gang leaves."""
    gangs.fleet.grid("1x1x3")
    gangs.submit("train", pods=2, annotations=require("rack"), spec=RETRIES)
    before = gangs.all_bound("train", 2)
    gangs.submit("other", pods=1, annotations=require("host"))
    taken = gangs.all_bound("other", 1)[0]
    gangs.fleet.cordon(before[1])
    failed = pod_of_index(gangs, "train", 1)["metadata"]
    _delete_pod(gangs, failed["name"])

    def told() -> bool:
        """Not only that a pod is to come back, which may be told first: that it has nowhere to go."""
        status = status_of(gangs, "train")
        return status.get("phase") == "Incomplete" and bool(status.get("reason")) and before[1] in status["message"]

    eventually(told, message=lambda: gangs.describe("train"))
    again = eventually(lambda: replaced(gangs, "train", 1, failed["uid"]), message=lambda: gangs.describe("train"))
    assert held(again)
    delete_job(gangs, "other")
    host = eventually(lambda: _back(gangs, "train", 1, failed["uid"]), message=lambda: gangs.describe("train"))
    assert host == taken
    eventually(lambda: gangs.phase("train") == "Running", message=lambda: gangs.describe("train"))


def test_a_gang_that_cannot_be_suspended_is_placed_through_its_gates_and_repaired(gangs: Namespace) -> None:
    """A Job that its user resumed while it waited: held by the gate alone, then as any other."""
    hosts = gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=3, annotations=require("rack"), spec=RETRIES)
    gangs.waits("train")
    gangs.client.patch(f"{gangs.jobs_path}/train", {"spec": {"suspend": False}})
    held_pods(gangs, "train", 3)
    gangs.fleet.host("host-extra", block="block-0", rack="rack-00")
    gangs.fleet.host("host-spare", block="block-0", rack="rack-00")
    before = gangs.all_bound("train", 3)
    gangs.fleet.cordon(before[0])
    lost = pod_of_index(gangs, "train", 0)["metadata"]
    _delete_pod(gangs, lost["name"])
    host = eventually(lambda: _back(gangs, "train", 0, lost["uid"]), message=lambda: gangs.describe("train"))
    assert host not in before.values()
    assert len(hosts) == 2
