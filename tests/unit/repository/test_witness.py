"""What watches the random schedules sees each breach, and none where there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local.client import Client
from local.nodes import BLOCK, RACK
from tests.support.crowd import GANG_LABEL, Member
from tests.support.gangs import INDEX, Json, job_body
from tests.support.raw_pods import GATE
from tests.support.schedules import ACTS, schedule
from tests.support.sights import Sight
from tests.support.witness import Scene, Witness

PLACES = {f"host-{number}": {BLOCK: f"block-{number // 4}", RACK: f"rack-{number // 2}"} for number in range(8)}


def job(name: str, *, pods: int, suspend: bool = False, gpus: int = 8) -> Json:
    body = job_body(name, pods=pods, gpus=gpus)
    body["metadata"] |= {"uid": name, "annotations": {"topogate.dev/held-by": "suspend"} if suspend else {}}
    body["spec"]["suspend"] = suspend
    return body


def placement(*hosts: str, count: int | None = None) -> Json:
    slots = [
        {"domain": [PLACES[host][BLOCK], PLACES[host][RACK], host], "count": 1, "ranks": str(rank)}
        for rank, host in enumerate(hosts)
    ]
    pod_set = {"name": "main", "minAvailable": len(hosts) if count is None else count}
    return {
        "spec": {"podSets": [pod_set], "assignment": {"revision": 1, "podSets": [{"name": "main", "slots": slots}]}}
    }


def pod(
    gang: str, index: int, *, bound: str = "", pinned: str = "", held: bool = False, gpus: int = 8, **metadata: Any
) -> Json:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pinned]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return {
        "metadata": {"name": f"{gang}-{index}", "labels": {GANG_LABEL: gang, INDEX: str(index)}, **metadata},
        "spec": {
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
            **({"nodeName": bound} if bound else {}),
            **({"affinity": affinity} if pinned else {}),
            **({"schedulingGates": [{"name": GATE}]} if held else {}),
        },
        "status": {"phase": "Pending"},
    }


def breaches(*sights: Sight, others: tuple[Json, ...] = (), **members: Member) -> list[str]:
    """What the witness says about one scene."""
    client: Client = None  # type: ignore[assignment]  # it looks at nothing itself here
    strangers = {"other": {"metadata": {"labels": {"app": "other"}}, "spec": {}}}
    witness = Witness(client, "ns", members, strangers, PLACES)
    gangs = {sight.workload["metadata"]["name"]: sight for sight in sights}
    pods = tuple(one for sight in sights for one in sight.pods)
    witness.look(Scene("1", gangs, others, pods, frozenset(PLACES)))
    return [line.partition(": ")[2] for line in witness.breaches]


def test_a_gang_in_its_slots_breaches_nothing() -> None:
    """One pod is bound, one is on its way, in the rack that the gang requires."""
    pods = (pod("a", 0, bound="host-0"), pod("a", 1, pinned="host-1"))
    sight = Sight(job("a", pods=2), placement("host-0", "host-1"), pods)
    assert breaches(sight, a=Member("a", 2, 8, "rack", (("rack", 2),))) == []


def test_a_pod_that_is_going_shares_its_slot_with_its_replacement() -> None:
    """Its rank counts once on the host of both."""
    going = pod("a", 0, bound="host-0", deletionTimestamp="2026-11-21T00:00:00Z")
    assert breaches(Sight(job("a", pods=1), placement("host-0"), (going,))) == []
    coming = pod("a", 0, pinned="host-0")
    assert breaches(Sight(job("a", pods=1), placement("host-0"), (going, coming))) == []
    bound = {**coming, "spec": {**coming["spec"], "nodeName": "host-0"}}
    assert len(breaches(Sight(job("a", pods=1), placement("host-0"), (going, bound)))) == 1


def test_two_reservations_of_one_host_are_a_breach() -> None:
    """Two gangs are to be resumed to the same host."""
    found = breaches(*(Sight(job(name, pods=1, suspend=True), placement("host-0"), ()) for name in ("a", "b")))
    assert found == ["host-0: 0 GPUs used, 16 reserved, by ['a', 'b']"]


def test_a_bound_pod_and_a_reservation_of_its_host_are_a_breach() -> None:
    """The pod of a deleted gang is still there, and somebody else is promised its room."""
    waiting = Sight(job("b", pods=1, suspend=True), placement("host-0"), ())
    leaving = Sight({**job("a", pods=1), "metadata": {"name": "a", "uid": "a", "deletionTimestamp": "x"}}, None, ())
    leaving = Sight(leaving.workload, None, (pod("a", 0, bound="host-0"),))
    assert breaches(waiting, leaving) == ["host-0: 8 GPUs used, 8 reserved, by ['b', 'a']"]


@pytest.mark.parametrize("slots", [None, placement("host-0", count=2)], ids=["none", "one of two"])
def test_a_gang_that_starts_without_all_its_slots_is_a_breach(slots: Json | None) -> None:
    """A pod is let go while the gang as a whole has no room."""
    found = breaches(Sight(job("a", pods=2), slots, (pod("a", 0, pinned="host-0"), pod("a", 1, held=True))))
    assert len(found) == 1
    assert found[0].startswith("a: starts with")


def test_a_pod_that_is_let_go_without_a_pin_is_a_breach() -> None:
    """It may land anywhere."""
    assert breaches(Sight(job("a", pods=1), placement("host-0"), (pod("a", 0),))) == [
        "a: released without a pin: ['a-0']"
    ]


def test_a_gang_outside_its_required_level_is_a_breach() -> None:
    """Two racks where one is required."""
    pods = (pod("a", 0, bound="host-1"), pod("a", 1, bound="host-2"))
    found = breaches(Sight(job("a", pods=2), placement("host-1", "host-2"), pods), a=Member("a", 2, 8, "rack"))
    assert [line.partition(":")[0] for line in found] == ["a"]


def test_a_slice_outside_its_level_is_a_breach() -> None:
    """The block is right, but ranks 2 and 3 are in two racks."""
    hosts = ("host-0", "host-1", "host-2", "host-5")
    pods = tuple(pod("a", rank, bound=host) for rank, host in enumerate(hosts))
    found = breaches(Sight(job("a", pods=4), placement(*hosts), pods), a=Member("a", 4, 8, None, (("rack", 2),)))
    assert [line.partition(":")[0] for line in found] == ["slice 1 of a"]


def group(name: str, pods: int, least: int) -> Member:
    return Member(name, pods, 8, None, group="g", group_least=least)


def test_a_pod_group_that_starts_in_part_is_a_breach() -> None:
    """One of two Jobs has its slots; with those of the other, or when they were not needed, nothing is wrong."""
    parts = Sight(job("a", pods=1), placement("host-0"), (pod("a", 0, pinned="host-0"),))
    waits, placed = (Sight(job("b", pods=1, suspend=True), slots, ()) for slots in (None, placement("host-1")))
    assert [line.partition(":")[0] for line in breaches(parts, waits, a=group("a", 1, 2), b=group("b", 1, 2))] == ["g"]
    assert breaches(parts, placed, a=group("a", 1, 2), b=group("b", 1, 2)) == []
    assert breaches(parts, waits, a=group("a", 1, 1), b=group("b", 1, 1)) == []


@pytest.mark.parametrize("held", [True, False], ids=["a slot", "a pod"])
def test_another_gang_in_the_rack_of_an_exclusive_one_is_a_breach(held: bool) -> None:
    """By a slot whose pod is still to come, or by a pod; in another rack it may be."""
    alone = Sight(job("a", pods=1), placement("host-0"), (pod("a", 0, bound="host-0"),))
    for host, wrong in (("host-1", True), ("host-2", False)):
        pods = () if held else (pod("b", 0, bound=host),)
        other = Sight(job("b", pods=1, suspend=held), placement(host), pods)
        found = breaches(alone, other, a=Member("a", 1, 8, None, exclusive=True), b=Member("b", 1, 8, None))
        assert [line.partition(":")[0] for line in found] == (
            ["a and b, of which one is exclusive, share ['rack-0']"] * wrong
        )
        assert breaches(alone, other, a=Member("a", 1, 8, None), b=Member("b", 1, 8, None)) == []


def test_two_spread_gangs_in_one_rack_are_a_breach() -> None:
    """A gang that is not spread may be there as well."""
    both = [Sight(job(name, pods=1), placement(host), ()) for name, host in (("a", "host-0"), ("b", "host-1"))]
    spread, other = (Member(name, 1, 8, "rack", spread=True) for name in ("a", "b"))
    found = breaches(*both, a=spread, b=other)
    assert [line.partition(":")[0] for line in found] == ["a and b, which are spread, share ['rack-0']"]
    assert breaches(*both, a=spread, b=Member("b", 1, 8, "rack")) == []


def test_a_pod_out_of_reach_of_its_volume_is_a_breach() -> None:
    """Let go to a host of another rack."""
    sight = Sight(job("a", pods=1), placement("host-2"), (pod("a", 0, pinned="host-2"),))
    assert len(breaches(sight, a=Member("a", 1, 8, "rack", volume="rack-0"))) == 1
    assert breaches(sight, a=Member("a", 1, 8, "rack", volume="rack-1")) == []


def told(*minors: int) -> dict[str, str]:
    devices = {"gpu": [{"minor": minor} for minor in minors]}
    return {"scheduling.koordinator.sh/device-allocated": json.dumps(devices)}


def test_a_device_that_is_given_twice_is_a_breach() -> None:
    """Two pods on one host have the same GPU; on two hosts, or when one of them is going, they may."""
    first = pod("a", 0, bound="host-0", gpus=2, annotations=told(0, 1))
    for host, going, wrong in (
        ("host-0", {}, True),
        ("host-1", {}, False),
        ("host-0", {"deletionTimestamp": "x"}, False),
    ):
        second = pod("a", 1, bound=host, gpus=2, annotations=told(1, 2), **going)
        sight = Sight(job("a", pods=2, gpus=2), placement("host-0", host), (first, second))
        assert breaches(sight, a=Member("a", 2, 2, None)) == ["host-0: a-0 and a-1 have GPU 1"] * wrong


@pytest.mark.parametrize(("minors", "wrong"), [((2, 3), False), ((3, 4), True), ((), True)])
def test_a_pod_whose_devices_are_apart_is_a_breach(minors: tuple[int, ...], wrong: bool) -> None:
    """It requires a PCIe scope, of two GPUs each; without known GPUs nobody knows."""
    sight = Sight(
        job("a", pods=1, gpus=2),
        placement("host-0"),
        (pod("a", 0, bound="host-0", gpus=2, annotations=told(*minors) if minors else {}),),
    )
    assert len(breaches(sight, a=Member("a", 1, 2, "rack", scope="pcie"))) == wrong


def test_a_mark_on_the_pod_of_a_daemon_set_is_a_breach() -> None:
    """Nobody made it by hand."""
    pod_of_daemon_set = {"metadata": {"name": "agent-x", "labels": {"app": "agent"}}, "spec": {}, "status": {}}
    assert breaches(others=(pod_of_daemon_set,)) == []
    marked = {**pod_of_daemon_set, "spec": {"schedulingGates": [{"name": GATE}]}}
    assert breaches(others=(marked,)) == ["agent-x is not ours and was changed"]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"schedulingGates": [{"name": GATE}]}},
        {"metadata": {"name": "other", "labels": {"app": "other", "topogate.dev/managed": "true"}}},
        {"metadata": {"name": "other", "labels": {"app": "other"}, "annotations": {"topogate.dev/rank": "0"}}},
    ],
    ids=["gate", "label", "annotation"],
)
def test_a_change_of_a_stranger_is_a_breach(change: Json) -> None:
    """Pods that are not ours stay as they were made."""
    other = {"metadata": {"name": "other", "labels": {"app": "other"}}, "spec": {}, "status": {}, **change}
    assert breaches(others=(other,)) == ["other is not ours and was changed"]


def test_a_schedule_is_its_seed_s() -> None:
    """The same seed draws the same steps, another seed others; a long one has every act."""
    assert schedule(7, 10.0) == schedule(7, 10.0) != schedule(8, 10.0)
    assert {step.act for step in schedule(7, 200.0)} == set(ACTS)
