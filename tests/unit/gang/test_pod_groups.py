"""Gangs of plain pods that name a pod group: a minimum that starts together, and any number that joins it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.gang.annotations import AnnotationSource, pod_group_of
from tests.support.cluster_records import gpu_nodes
from tests.support.families import plain
from tests.support.leader import Leader

DIALECTS = ("topogate", "pod-group")


def member(name: str, *, least: str | None = "2", group: str = "mesh", **says: str) -> Pod:
    """A held pod of a pod group, which asks for no level."""
    pod = plain(name)
    annotations = {names.POD_GROUP: group, **({names.MIN_AVAILABLE: least} if least is not None else {}), **says}
    return replace(pod, spec=replace(pod.spec, annotations=annotations))


def led(*pods: Pod, hosts: int = 4) -> Leader:
    leader = Leader(nodes=gpu_nodes(1, 1, hosts))
    leader.has(*pods)
    leader.settle()
    return leader


def told(leader: Leader) -> list[str]:
    leader.later(5)
    return [f"{status.reason}: {status.message}" for name, status in leader.hands.told if name == "mesh"]


def test_its_pods_wait_for_the_minimum_and_start_together() -> None:
    leader = led(member("a", least="3"), member("b", least="3"))
    assert leader.hands.of("release") == []
    assert "2 of 3 pods of pod group mesh exist" in told(leader)[0]
    leader.has(member("c", least="3"))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b", "c"]


def test_without_room_for_the_minimum_nothing_starts() -> None:
    leader = led(*(member(name, least="3") for name in "abcd"), hosts=2)
    assert leader.hands.of("release") == []
    assert told(leader)[0].startswith("GangTooLarge: ")


def test_more_pods_than_the_minimum_start_as_far_as_there_is_room() -> None:
    """And the rest when there is some."""
    leader = led(*(member(name) for name in "abcd"), hosts=3)
    assert len(leader.hands.of("release")) == 3
    leader.has(*gpu_nodes(1, 1, 4))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b", "c", "d"]


def test_pods_that_come_later_join() -> None:
    leader = led(member("a"), member("b"))
    assert sorted(leader.hands.of("release")) == ["a", "b"]
    leader.has(member("c"))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b", "c"]
    (placed,) = leader.view.gangs.placements()
    assert placed.assignment is not None
    assert sum(slot.count for plan in placed.assignment.pod_sets for slot in plan.slots) == 3


def test_the_minimum_may_ask_for_a_level() -> None:
    """It holds for those that join, too."""
    says = {names.REQUIRE: "rack"}
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    leader.has(*(member(name, **says) for name in "ab"))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b"]
    leader.has(member("c", **says))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b"]


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ((member("a"), member("b", least="3")), "GangSizeMismatch: "),
        ((member("a", least=None), member("b", least=None)), "MissingValue: "),
        ((member("a", least="two"), member("b", least="two")), "InvalidValue: "),
        ((member("a"), member("b", **{names.REQUIRE: "rack"})), "ConflictingAnnotations: "),
        ((member("a", **{names.GANG_SIZE: "2"}), member("b", **{names.GANG_SIZE: "2"})), "ConflictingAnnotations: "),
        ((member("a"), plain("b", says={})), "ConflictingAnnotations: "),
    ],
    ids=["minimums", "none", "no number", "requests", "a size as well", "a gang of the same name"],
)
def test_pods_that_contradict_each_other_stay_held(pods: tuple[Pod, ...], reason: str) -> None:
    leader = led(*pods)
    assert leader.hands.of("release") == []
    assert told(leader)[0].startswith(reason)


G, MIN = names.POD_GROUP_NAME, names.POD_GROUP_MIN
K, K_MIN, K_WAIT = names.KOORDINATOR_GANG_NAME, names.KOORDINATOR_GANG_MIN, names.KOORDINATOR_GANG_WAIT


@pytest.mark.parametrize(
    ("labels", "annotations", "request_"),
    [
        ({G: "g"}, {}, {names.POD_GROUP: "g"}),
        ({G: "g", MIN: "3"}, {}, {names.POD_GROUP: "g", names.MIN_AVAILABLE: "3"}),
        ({G: "g", MIN: "all"}, {}, {names.POD_GROUP: "g"}),
        ({MIN: "3"}, {}, {}),
        ({}, {K: "k", K_MIN: "3"}, {names.POD_GROUP: "k", names.MIN_AVAILABLE: "3"}),
        ({}, {K: "k", K_WAIT: "10m"}, {names.POD_GROUP: "k", names.SCHEDULE_TIMEOUT: "10m"}),
        ({}, {K: "k", K_WAIT: "1s"}, {names.POD_GROUP: "k"}),  # shorter than any time that we count
        ({}, {K: "k", K_WAIT: "soon"}, {names.POD_GROUP: "k"}),
        ({G: "g"}, {K: "k", K_MIN: "3"}, {names.POD_GROUP: "k", names.MIN_AVAILABLE: "3"}),
        ({G: "g", MIN: "3", names.MANAGED: "true"}, {}, {}),
        ({names.GANG: "g"}, {K: "g", K_MIN: "3"}, {}),
        ({names.SCHEDULER_PLUGINS_POD_GROUP: "s"}, {}, {names.POD_GROUP: "s"}),
        ({names.SCHEDULER_PLUGINS_POD_GROUP: "s", G: "g"}, {}, {names.POD_GROUP: "s"}),
        (
            {names.SCHEDULER_PLUGINS_POD_GROUP: "s", G: "g", MIN: "3"},
            {},
            {names.POD_GROUP: "g", names.MIN_AVAILABLE: "3"},
        ),
    ],
)
def test_the_keys_of_other_systems_as_ours(
    labels: Mapping[str, str], annotations: Mapping[str, str], request_: Mapping[str, str]
) -> None:
    """Those beside our own labels are our own."""
    assert pod_group_of([AnnotationSource("metadata", annotations, labels)], dialects=DIALECTS) == request_
    assert pod_group_of([AnnotationSource("metadata", annotations, labels)], dialects=("topogate",)) == {}
