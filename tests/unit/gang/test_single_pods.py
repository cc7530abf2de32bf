"""Pods that ask and that no known workload owns: each by itself, near the others of its controller."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Workload
from engine.gang import plain_pods
from tests.support.cluster_records import gpu_nodes, job
from tests.support.families import below, link, plain
from tests.support.leader import POLICY, Leader

THING = OwnerRef("example.com/v1", "Thing", "flow", "uid-flow", True)
RACK = {names.REQUIRE: "rack"}


def single(name: str, *, owner: OwnerRef | None = THING, says: dict[str, str] | None = None, **more: Any) -> Pod:
    """A held pod that asks and names no gang."""
    made = plain(name, size=None, owner=owner, **more)
    annotations = RACK if says is None else says
    return replace(made, uid=f"uid-{name}", spec=replace(made.spec, annotations=annotations))


def led(*pods: Pod, racks: int = 2, hosts: int = 2, policy: str = POLICY) -> Leader:
    leader = Leader(nodes=gpu_nodes(1, racks, hosts), policy=policy)
    leader.has(*pods)
    leader.settle()
    return leader


def hosts_of(leader: Leader) -> list[str]:
    return sorted(
        slot.host
        for placed in leader.view.gangs.placements()
        for plan in (placed.assignment.pod_sets if placed.assignment is not None else ())
        for slot in plan.slots
        for _ in range(slot.count)
    )


def test_the_first_pod_goes_at_once() -> None:
    leader = led(single("a"))
    assert leader.hands.of("release") == ["a"]
    (placed,) = leader.view.gangs.placements()
    assert placed.workload == type(placed.workload)("example.com/v1", "Thing", "flow", "uid-flow")
    assert placed.name.startswith("thing-flow-")


def test_the_others_of_the_controller_come_near_it() -> None:
    """One rack has room for two: the third waits, though the other rack is empty."""
    leader = led(single("a"))
    leader.has(single("b"), single("c"))
    leader.settle()
    assert leader.hands.of("release") == ["a", "b"]
    assert len({host.rpartition("-")[0] for host in hosts_of(leader)}) == 1


def test_pods_of_another_controller_stand_for_themselves() -> None:
    other = replace(THING, name="other", uid="uid-other")
    leader = led(single("a"), single("b"), single("c", owner=other), single("d", owner=other))
    assert sorted(leader.hands.of("release")) == ["a", "b", "c", "d"]
    assert len(leader.view.gangs.placements()) == 2


def test_pods_that_ask_for_something_else_stand_for_themselves() -> None:
    """What one pod requires is never given to another that requires less."""
    leader = led(single("a"), single("b"), single("c", says={names.PREFER: "rack"}))
    assert sorted(leader.hands.of("release")) == ["a", "b", "c"]
    assert sorted(placed.pod_sets[0].require or "" for placed in leader.view.gangs.placements()) == ["", "rack"]


def test_pods_with_another_profile_stand_for_themselves() -> None:
    """A single pod may name one, and its Placement records it."""
    leader = led(single("a"), single("b", says={names.UNCONSTRAINED: "true", names.PROFILE: "spread"}))
    assert sorted(leader.hands.of("release")) == ["a", "b"]
    assert sorted(placed.profile or "" for placed in leader.view.gangs.placements()) == ["", "spread"]


def test_a_pod_without_an_owner_is_alone() -> None:
    leader = led(single("a", owner=None), single("b", owner=None))
    assert sorted(leader.hands.of("release")) == ["a", "b"]
    assert sorted(placed.workload.name for placed in leader.view.gangs.placements()) == ["a", "b"]
    assert {placed.workload.kind for placed in leader.view.gangs.placements()} == {"Pod"}


def test_the_top_most_controller_counts() -> None:
    """A rollout of an own kind makes ReplicaSets: the pods of both are beside each other."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    sets = [replace(link("apps/v1", "ReplicaSet", name), owner=THING) for name in ("old", "new")]
    leader.has(*sets, below(single("a"), sets[0]), below(single("b"), sets[1]))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b"]
    assert [placed.workload.name for placed in leader.view.gangs.placements()] == ["flow"]


def test_one_that_ends_gives_its_slot_back() -> None:
    leader = led(single("a"), single("b"), racks=1)
    ended = leader.stores.pods.get(("default", "a"))
    assert ended is not None
    leader.has(replace(ended, phase="Succeeded", resource_version=leader.hands.version()))
    leader.settle()
    assert len(hosts_of(leader)) == 1
    leader.has(single("c"))
    leader.settle()
    assert leader.hands.of("release")[-1] == "c"


def test_without_pods_its_placement_goes() -> None:
    leader = led(single("a"))
    for one in leader.stores.pods.values():
        leader.stores.pods.apply("DELETED", one)
    leader.settle()
    leader.later(31)
    leader.later(31)
    assert len(leader.hands.of("forget")) == 1
    assert leader.view.gangs.placements() == []


def elsewhere(pod: Pod, *, marked: bool) -> Pod:
    """The pod, bound for hosts that are not there."""
    changed = replace(pod, spec=replace(pod.spec, shape=replace(pod.spec.shape, node_selector=(("pool", "none"),))))
    labels = {**pod.spec.labels, names.POD_SET: plain_pods.mark_of(changed if marked else pod)}
    return replace(changed, spec=replace(changed.spec, labels=labels))


def test_pods_that_may_go_elsewhere_hold_up_nobody() -> None:
    """A step of a workflow that waits for hosts of another pool."""
    other = elsewhere(single("b"), marked=True)
    leader = led(other, single("a"))
    assert leader.hands.of("release") == ["a"]


def test_a_pod_that_was_changed_after_its_admission_gets_no_slot_of_others() -> None:
    one = single("a")
    one = replace(one, spec=replace(one.spec, labels={**one.spec.labels, names.POD_SET: plain_pods.mark_of(one)}))
    other = replace(elsewhere(single("b"), marked=False), created=one.created + 1)
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(other, one)
    leader.turn()
    assert ("b", "HeldWithoutSlot") in leader.hands.pod_events
    leader.settle()
    assert leader.hands.of("release") == ["a"]


def test_a_forged_uid_joins_no_workload() -> None:
    """The pod says that something else with the uid of a Job owns it: it is none of the Job's pods."""
    one = job("train", count=2)
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    leader.has(one, single("a", owner=replace(THING, uid=one.uid)))
    leader.settle()
    assert leader.view.gangs.pods_of(one.uid) == ()
    assert sorted({placed.workload.kind for placed in leader.view.gangs.placements()}) == ["Job", "Thing"]


def test_pods_of_another_namespace_are_not_beside_them() -> None:
    leader = led(single("a"), single("b", namespace="elsewhere"))
    assert sorted(placed.namespace for placed in leader.view.gangs.placements()) == ["default", "elsewhere"]


def test_switched_off_its_pods_are_freed() -> None:
    leader = led(single("a"), single("b"), single("c"), racks=1)
    leader.view.set_policy(leader.view.policy.model_copy(update={"mode": "off"}))
    leader.settle()
    assert all(names.GATE not in pod.spec.gates for pod in leader.stores.pods.values())
    assert leader.view.gangs.placements() == []


@pytest.mark.parametrize(
    "change",
    [
        {"owner": OwnerRef("apps/v1", "DaemonSet", "d", "u", True)},
        {"mirror": True},
        {"says": {names.GANG_NAME: "g", names.REQUIRE: "rack"}},
        {"says": {}},
        {"owner": replace(THING, uid="")},
        {"owner": replace(THING, uid="pods/elsewhere")},
        {"owner": replace(THING, uid="uid-train/0")},
    ],
)
def test_these_are_no_single_pods(change: dict[str, Any]) -> None:
    leader = led(single("a", **change))
    assert not any(map(plain_pods.is_single, leader.view.gangs.keys()))
    assert not any(key.startswith("pods/elsewhere") for key in leader.view.gangs.keys())  # noqa: SIM118 - no mapping


def test_a_pod_that_had_its_host_before_anybody_asked_us_is_left_alone() -> None:
    one = single("a")
    leader = led(replace(one, spec=replace(one.spec, gates=(), labels={}, node_name="h")))
    assert leader.view.gangs.keys() == []


def test_whose_a_pod_is_is_told_without_looking_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for every held pod of a controller that may have made thousands."""
    leader = led(single("a"), single("b"))
    monkeypatch.setattr("engine.gang.plain_pods.in_turn", None)
    assert leader.view.gangs.gang_of(single("a")) is not None


def test_other_gangs_are_not_looked_at_for_a_quota_that_is_not_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand pods that are placed alone, each plan would make the workload of every other one."""
    leader = led(*(single(f"p{number}", owner=None) for number in range(3)))
    made: list[str] = []
    build = plain_pods.single_workload

    def noted(owner: OwnerRef | None, pods: Sequence[Pod], *, dialects: Collection[str]) -> Workload:
        made.append(pods[0].namespace)
        return build(owner, pods, dialects=dialects)

    monkeypatch.setattr("engine.gang.plain_pods.single_workload", noted)
    gang = leader.view.gangs.get(next(iter(leader.view.gangs.keys())))
    assert gang is not None
    made.clear()
    elsewhere = replace(gang, workload=replace(gang.workload, namespace="elsewhere"))
    assert leader.view.gangs.pending(elsewhere, leader.view.capacity) == []
    assert made == []


@pytest.mark.parametrize("namespace", ["team", "pods", "pods-of-team", "pods-0123456789abcdef"])
def test_a_plain_gang_is_none_of_them_whatever_its_namespace_is_called(namespace: str) -> None:
    """A namespace that begins as the key of single pods does made each pod of a gang one by itself."""
    for gang in ("mesh", "pods-0123456789abcdef"):
        assert not plain_pods.is_single(plain_pods.gang_key(namespace, gang))
