"""Slots of a gang that has gone, whose pods may have been made already and are not seen yet: nobody else gets them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.grace import GRACE_SECONDS
from engine.policy.model import parse_policy
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape
from tests.support.leader import Leader

HOST, OTHER = "b0-r0-h0", "b0-r0-h1"


def marked(gang: Workload, rank: int, **more: Any) -> Pod:
    """A pod as our webhook makes it."""
    one = pod(gang, rank, **more)
    labels = {**one.spec.labels, names.GANG: placement(gang, None).name, names.POD_SET: gang.pod_sets[0].name}
    return replace(one, spec=replace(one.spec, labels=labels))


def runs(*pods: Callable[[Workload], Pod], **more: Any) -> tuple[Leader, Workload]:
    """A gang that runs on both hosts of a rack, with these pods of it, and another one that waits for both."""
    leader, gang = Leader(nodes=gpu_nodes(1, 1, 2)), job("first", count=2, **more)
    leader.has(gang, placement(gang, {HOST: 1, OTHER: 1}), *(make(gang) for make in pods))
    leader.has(job("second", count=2, held=True, created=5000.0))
    leader.settle()
    assert leader.workload("second").suspended
    return leader, gang


def free(leader: Leader, host: str = HOST) -> int:
    leader.view.refresh()
    return leader.view.capacity.free(host)["nvidia.com/gpu"]


def end(leader: Leader, gang: Workload, **state: Any) -> None:
    """The watch shows that it has stopped: deleted, or with these fields."""
    newer = replace(leader.workload(gang.name), resource_version=leader.hands.version())
    if state:
        leader.has(replace(newer, **state))
    else:
        leader.stores.workloads.apply("DELETED", newer)
    leader.settle()


@pytest.mark.parametrize(
    "state", [{}, {"deleting": True}, {"suspended": True}], ids=["deleted", "being deleted", "suspended by its user"]
)
def test_slots_without_pods_stay_kept_for_a_moment(state: dict[str, Any]) -> None:
    """Its controller may have made them already; then the room is free, and the loop wakes up for those who wait."""
    leader, gang = runs()
    end(leader, gang, **state)
    leader.later(GRACE_SECONDS - 0.5)
    assert leader.workload("second").suspended
    assert leader.controller._pause() <= 0.5
    leader.later(0.5)
    assert not leader.workload("second").suspended


def test_slots_stay_kept_while_the_policy_counts_devices_in_another_way() -> None:
    leader, gang = runs()
    end(leader, gang)
    assert free(leader) == 0
    leader.view.set_policy(parse_policy("gpu: {overcommit: {core: 2}, vendors: [example.com/gpu]}"))
    assert free(leader) == 0
    leader.later(GRACE_SECONDS)
    assert not leader.workload("second").suspended


def test_slots_whose_pods_were_bound_are_free_at_once() -> None:
    """All pods are known: whoever waits gets the room when they are gone."""
    leader, gang = runs(lambda gang: marked(gang, 0, host=HOST), lambda gang: marked(gang, 1, host=OTHER))
    end(leader, gang)
    for one in leader.stores.pods.values():
        leader.stores.pods.apply("DELETED", one)
    leader.settle()
    assert not leader.workload("second").suspended


def test_the_new_slot_of_a_pod_that_leaves_its_host_stays_kept_for_a_moment() -> None:
    """It may have been evicted already, and the next one may be on its way; its own host is full with it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    gang = job("first", count=2, annotations={names.REQUIRE: "rack", names.REPLACE: "b0-r0-h2"})
    gang = replace(gang, pod_sets=tuple(replace(one, replace="free") for one in gang.pod_sets))
    leader.leading = False
    pods = (marked(gang, 0, host="b0-r0-h2"), marked(gang, 1, host=OTHER))
    leader.has(gang, placement(gang, {HOST: 1, OTHER: 1}), *pods)
    assert free(leader) == 0
    leader.stores.workloads.apply("DELETED", gang)
    assert free(leader) == 0
    leader.now += GRACE_SECONDS
    assert free(leader) == 8


def test_a_gang_that_was_held_leaves_nothing() -> None:
    """It was suspended all the time: no pod of it can exist."""
    leader, gang = Leader(nodes=gpu_nodes(1, 1, 2)), job("first", count=2, held=True)
    leader.leading = False
    leader.has(gang, placement(gang, {HOST: 1, OTHER: 1}))
    leader.settle()
    assert free(leader) == 0
    end(leader, gang)
    assert (free(leader), free(leader, OTHER)) == (8, 8)


def test_a_gang_that_has_ended_by_itself_leaves_nothing() -> None:
    """No pods are made for it any more before it says so; those of ranks that ended were seen to go."""
    leader, gang = runs()
    end(leader, gang, finished=True)
    assert not leader.workload("second").suspended


@pytest.mark.parametrize("seen", [{"pin": HOST}, {"host": HOST}], ids=["let go", "bound"])
def test_a_pod_that_is_seen_late_counts_once(seen: dict[str, Any]) -> None:
    """Instead of the slot that was kept for it; of another gang's host nothing is taken twice."""
    leader, gang = runs()
    end(leader, gang)
    leader.has(marked(gang, 0, **seen))
    assert (free(leader), free(leader, OTHER)) == (0, 0)
    leader.later(GRACE_SECONDS)
    assert (free(leader), free(leader, OTHER)) == (0, 8)
    leader.stores.pods.replace([])
    assert free(leader) == 8


def test_a_held_pod_that_was_let_go_as_its_gang_went_keeps_its_room() -> None:
    """The write and the deletion cross: seen without its gate it counts, and until then its slot does."""
    leader, gang = runs(lambda gang: marked(gang, 0, gated=True, name="first-0"))
    end(leader, gang)
    assert free(leader) == 0
    leader.has(marked(gang, 0, pin=HOST, name="first-0"))
    assert free(leader) == 0
    leader.later(GRACE_SECONDS)
    assert free(leader) == 0


def test_an_assignment_that_is_given_back_stays_kept_for_a_moment() -> None:
    """Pods may have been made for it; for those that are held it is free at once."""
    leader, gang = Leader(nodes=gpu_nodes(1, 1, 2)), job("first", count=2)
    leader.leading = False
    leader.has(gang, placement(gang, {HOST: 1, OTHER: 1}), marked(gang, 0, gated=True))
    leader.settle()
    leader.has(placement(gang, None))
    assert (free(leader), free(leader, OTHER)) == (8, 0)
    leader.later(GRACE_SECONDS)
    assert free(leader, OTHER) == 8


def test_a_gang_that_we_suspend_keeps_its_slots_for_a_moment_after_that() -> None:
    """The moment counts from the suspension: what is given back later is free at once."""
    for pause, kept in ((1.0, 0), (GRACE_SECONDS, 8)):
        leader, gang = Leader(nodes=gpu_nodes(1, 1, 1)), job("first", count=1)
        leader.leading = False
        leader.has(gang, placement(gang, {HOST: 1}))
        leader.settle()
        leader.has(replace(job("first", count=1, held=True), suspended=True))
        leader.settle()
        leader.later(pause)
        leader.has(placement(gang, None))
        assert free(leader) == kept
        leader.later(GRACE_SECONDS - pause)
        assert free(leader) == 8


def test_slots_that_a_smaller_gang_has_no_use_for_stay_kept_for_a_moment() -> None:
    """Its controller may have made the pod of the last rank just before."""
    leader, gang = runs(lambda gang: marked(gang, 0, host=HOST))
    leader.has(replace(changed(gang, slots=1, total=1, remaining=1), resource_version=leader.hands.version()))
    leader.settle()
    assert free(leader, OTHER) == 0
    leader.later(GRACE_SECONDS)
    assert free(leader, OTHER) == 8


@pytest.mark.parametrize("started", [False, True])
def test_slots_of_a_gang_that_grows_back_at_once_count_once(started: bool) -> None:
    """They are reserved for it again: kept besides, its host would look taken by others, and it would lose them."""
    leader, gang = Leader(nodes=gpu_nodes(1, 1, 2)), job("first", count=2)
    leader.has(gang, placement(gang, {HOST: 1, OTHER: 1}))
    leader.has(*([marked(gang, 0, host=HOST, name="first-0")] if started else []))
    leader.settle()
    leader.leading = False
    for slots in (1, 2):
        sized = changed(gang, slots=slots, total=slots, remaining=slots)
        leader.has(replace(sized, resource_version=leader.hands.version()))
        assert free(leader, OTHER) == 0
    leader.leading = True
    leader.has(marked(gang, 1, gated=True, name="first-1"))
    leader.settle()
    assert leader.hands.of("release") == ["first-1"]


@pytest.mark.parametrize("late", [False, True], ids=["seen before", "seen after"])
def test_a_pod_on_its_way_to_a_slot_that_a_smaller_gang_has_no_use_for_counts(late: bool) -> None:
    """Released and not bound yet: until it is bound or removed its host is given to nobody, whoever has the slot."""
    leader, gang = Leader(nodes=gpu_nodes(1, 1, 2)), job("first", count=2)
    leader.leading = False
    leader.has(gang, placement(gang, {HOST: 1, OTHER: 1}), marked(gang, 0, host=HOST))
    coming = marked(gang, 1, pin=OTHER, name="first-1")
    smaller = replace(changed(gang, slots=1, total=1, remaining=1), resource_version=leader.hands.version())
    for change in (smaller, coming) if late else (coming, smaller):
        leader.has(change)
        assert free(leader, OTHER) == 0
    leader.now += GRACE_SECONDS
    assert free(leader, OTHER) == 0
    leader.has(placement(smaller, {HOST: 1}))
    assert free(leader, OTHER) == 0
    leader.has(marked(gang, 1, host=OTHER, name="first-1"))
    assert free(leader, OTHER) == 0
    leader.stores.pods.replace([])
    assert free(leader, OTHER) == 8


def test_a_new_leader_keeps_what_a_placement_without_its_workload_names() -> None:
    """The workload went before it looked: what its pods need is not known, so whatever is free there is kept."""
    leader, gang = Leader(nodes=gpu_nodes(1, 1, 2)), job("first", count=1)
    leader.has(placement(gang, {HOST: 1}), job("second", count=2, held=True))
    leader.settle()
    assert leader.workload("second").suspended
    assert free(leader, OTHER) == 8
    leader.later(GRACE_SECONDS)
    assert not leader.workload("second").suspended


def test_a_new_leader_keeps_nothing_where_all_pods_of_such_a_placement_are_seen() -> None:
    """What is bound counts itself; the rest of its host is for others."""
    leader, gang = Leader(nodes=gpu_nodes(1, 1, 2)), job("first", count=1)
    bound = marked(gang, 0, host=HOST)
    small = replace(bound, spec=replace(bound.spec, shape=shape(gpu=1)))
    leader.has(placement(gang, {HOST: 1}), small)
    leader.settle()
    assert free(leader) == 7
