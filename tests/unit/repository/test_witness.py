"""What watches the random schedules sees each breach, and none where there is none."""

from __future__ import annotations

import json

import pytest

from local.client import Client
from tests.support.crowd import Member
from tests.support.gangs import Json
from tests.support.raw_pods import GATE
from tests.support.scene_objects import PLACES, job_of, placement_of, pod_of, scene_of
from tests.support.schedules import ACTS, schedule
from tests.support.sights import Sight
from tests.support.witness import JUST_NOW, Witness


def breaches(*sights: Sight, others: tuple[Json, ...] = (), **members: Member) -> list[str]:
    """What the witness says about one scene."""
    client: Client = None  # type: ignore[assignment]  # it looks at nothing itself here
    strangers = {"other": {"metadata": {"labels": {"app": "other"}}, "spec": {}}}
    witness = Witness(client, "ns", members, strangers, PLACES)
    witness.look(scene_of(*sights, others=others))
    return [line.partition(": ")[2] for line in witness.breaches]


def test_a_gang_in_its_slots_breaches_nothing() -> None:
    """One pod is bound, one is on its way, in the rack that the gang requires."""
    pods = (pod_of("a", 0, bound="host-0"), pod_of("a", 1, pinned="host-1"))
    sight = Sight(job_of("a", pods=2), placement_of("host-0", "host-1"), pods)
    assert breaches(sight, a=Member("a", 2, 8, "rack", (("rack", 2),))) == []


def test_a_gang_outside_its_required_level_is_a_breach() -> None:
    """Two racks where one is required."""
    pods = (pod_of("a", 0, bound="host-1"), pod_of("a", 1, bound="host-2"))
    found = breaches(Sight(job_of("a", pods=2), placement_of("host-1", "host-2"), pods), a=Member("a", 2, 8, "rack"))
    assert [line.partition(":")[0] for line in found] == ["a"]


def test_a_slice_outside_its_level_is_a_breach() -> None:
    """The block is right, but ranks 2 and 3 are in two racks."""
    hosts = ("host-0", "host-1", "host-2", "host-5")
    pods = tuple(pod_of("a", rank, bound=host) for rank, host in enumerate(hosts))
    found = breaches(Sight(job_of("a", pods=4), placement_of(*hosts), pods), a=Member("a", 4, 8, None, (("rack", 2),)))
    assert [line.partition(":")[0] for line in found] == ["slice 1 of a"]


def part(name: str, *hosts: str, least: int, starts: bool = False) -> Sight:
    """A Job of one pod in a pod group, with slots on these hosts."""
    job = job_of(name, pods=1, suspend=not starts)
    job["metadata"]["annotations"] |= {"topogate.dev/pod-group": "g", "topogate.dev/min-available": str(least)}
    pods = (pod_of(name, 0, pinned=hosts[0]),) if starts else ()
    return Sight(job, placement_of(*hosts) if hosts else None, pods)


def test_a_pod_group_that_starts_in_part_is_a_breach() -> None:
    """One of two Jobs has its slots; with those of the other, or when they were not needed, nothing is wrong."""
    for other, least, wrong in (((), 2, True), (("host-1",), 2, False), ((), 1, False)):
        found = breaches(part("a", "host-0", least=least, starts=True), part("b", *other, least=least))
        assert [line.partition(":")[0] for line in found] == ["g"] * wrong


@pytest.mark.parametrize(("later", "wrong"), [(JUST_NOW - 0.1, False), (JUST_NOW, True)])
def test_what_a_part_had_that_was_deleted_just_before_the_start_is_not_known(later: float, wrong: bool) -> None:
    """The group was placed, and one of its Jobs deleted when it started; one that went before does not count."""
    client: Client = None  # type: ignore[assignment]
    left = {"b": (Member("b", 1, 8, None, group="g", group_least=2), 0.0)}
    witness = Witness(client, "ns", {}, {}, PLACES, clock=lambda: later, left=left)
    witness.look(scene_of(part("a", "host-0", least=2, starts=True)))
    assert bool(witness.breaches) == wrong


def test_a_slot_that_nobody_needs_any_more_keeps_no_exclusive_gang_out() -> None:
    """Two pods of a Job have succeeded, and the last one runs on another host than their slots."""
    job = job_of("a", pods=3)
    job["spec"] |= {"completionMode": "NonIndexed", "completions": 3}
    job["status"] = {"succeeded": 2}
    done = Sight(job, placement_of("host-0", "host-1", "host-2"), (pod_of("a", 0, bound="host-2"),))
    alone = Sight(job_of("b", pods=1, suspend=True), placement_of("host-1"), ())
    assert breaches(done, alone, a=Member("a", 3, 8, None), b=Member("b", 1, 8, None, exclusive=True)) == []


@pytest.mark.parametrize("held", [True, False], ids=["a slot", "a pod"])
def test_another_gang_in_the_rack_of_an_exclusive_one_is_a_breach(held: bool) -> None:
    """By a slot whose pod is still to come, or by a pod; in another rack it may be."""
    alone = Sight(job_of("a", pods=1), placement_of("host-0"), (pod_of("a", 0, bound="host-0"),))
    for host, wrong in (("host-1", True), ("host-2", False)):
        pods = () if held else (pod_of("b", 0, bound=host),)
        other = Sight(job_of("b", pods=1, suspend=held), placement_of(host), pods)
        found = breaches(alone, other, a=Member("a", 1, 8, None, exclusive=True), b=Member("b", 1, 8, None))
        assert [line.partition(":")[0] for line in found] == (
            ["a and b, of which one is exclusive, share ['rack-0']"] * wrong
        )
        assert breaches(alone, other, a=Member("a", 1, 8, None), b=Member("b", 1, 8, None)) == []


def test_two_spread_gangs_in_one_rack_are_a_breach() -> None:
    """A gang that is not spread may be there as well."""
    both = [Sight(job_of(name, pods=1), placement_of(host), ()) for name, host in (("a", "host-0"), ("b", "host-1"))]
    spread, other = (Member(name, 1, 8, "rack", spread=True) for name in ("a", "b"))
    found = breaches(*both, a=spread, b=other)
    assert [line.partition(":")[0] for line in found] == ["a and b, which are spread, share ['rack-0']"]
    assert breaches(*both, a=spread, b=Member("b", 1, 8, "rack")) == []


def test_a_pod_out_of_reach_of_its_volume_is_a_breach() -> None:
    """Let go to a host of another rack."""
    sight = Sight(job_of("a", pods=1), placement_of("host-2"), (pod_of("a", 0, pinned="host-2"),))
    assert len(breaches(sight, a=Member("a", 1, 8, "rack", volume="rack-0"))) == 1
    assert breaches(sight, a=Member("a", 1, 8, "rack", volume="rack-1")) == []


def told(*minors: int) -> dict[str, str]:
    devices = {"gpu": [{"minor": minor} for minor in minors]}
    return {"scheduling.koordinator.sh/device-allocated": json.dumps(devices)}


def test_a_device_that_is_given_twice_is_a_breach() -> None:
    """Two pods on one host have the same GPU; on two hosts, or when one of them is going, they may."""
    first = pod_of("a", 0, bound="host-0", gpus=2, annotations=told(0, 1))
    for host, going, wrong in (
        ("host-0", {}, True),
        ("host-1", {}, False),
        ("host-0", {"deletionTimestamp": "x"}, False),
    ):
        second = pod_of("a", 1, bound=host, gpus=2, annotations=told(1, 2), **going)
        sight = Sight(job_of("a", pods=2, gpus=2), placement_of("host-0", host), (first, second))
        assert breaches(sight, a=Member("a", 2, 2, None)) == ["host-0: a-0 and a-1 have GPU 1"] * wrong


@pytest.mark.parametrize(("minors", "wrong"), [((2, 3), False), ((3, 4), True), ((), True)])
def test_a_pod_whose_devices_are_apart_is_a_breach(minors: tuple[int, ...], wrong: bool) -> None:
    """It requires a PCIe scope, of two GPUs each; without known GPUs nobody knows."""
    sight = Sight(
        job_of("a", pods=1, gpus=2),
        placement_of("host-0"),
        (pod_of("a", 0, bound="host-0", gpus=2, annotations=told(*minors) if minors else {}),),
    )
    assert len(breaches(sight, a=Member("a", 1, 2, "rack", scope="pcie"))) == wrong


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
