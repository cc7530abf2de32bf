"""What watches the random schedules sees each breach, and none where there is none."""

from __future__ import annotations

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
