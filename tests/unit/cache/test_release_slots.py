"""Slots that a gang has lost are free for their successors while these are looked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.placement import Assignment
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from tests.support.cluster_records import gpu_nodes, job, placement

GANG = job("train", count=2)
WRITTEN = placement(GANG, {"b0-r0-h0": 1, "b0-r0-h1": 1})


def placed() -> ClusterState:
    """Three whole hosts, and a gang on two of them of which no pod is there yet."""
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 1, 3))
    stores.workloads.replace([GANG])
    stores.placements.replace([WRITTEN])
    view.refresh()
    return view


def first_slot() -> Assignment:
    assignment = WRITTEN.assignment
    assert assignment is not None
    plan = assignment.pod_sets[0]
    return replace(assignment, pod_sets=(replace(plan, slots=plan.slots[:1]),))


def free_gpus(view: ClusterState) -> list[int]:
    """By host."""
    return list(view.capacity.free_of("nvidia.com/gpu", view.topologies["default"]))


def test_what_does_not_stay_is_free_until_others_are_found() -> None:
    """The plan in force is the same all the time: nothing is decided yet."""
    view = placed()
    assert free_gpus(view) == [0, 0, 8]
    with view.release_slots(GANG.uid, stays=first_slot()):
        assert free_gpus(view) == [0, 8, 8]
        assert view.gangs.plan_of(GANG.uid) == WRITTEN
    assert free_gpus(view) == [0, 0, 8]


def test_a_plan_that_is_held_meanwhile_is_what_is_reserved_afterwards() -> None:
    """The other slots were found."""
    view = placed()
    with view.release_slots(GANG.uid, stays=first_slot()):
        view.assume(GANG.uid, placement(GANG, {"b0-r0-h0": 1, "b0-r0-h2": 1}))
    assert free_gpus(view) == [0, 8, 0]


def test_a_fault_gives_no_slot_away() -> None:
    """Whatever happens while they are looked for."""
    view = placed()
    with pytest.raises(KeyError), view.release_slots(GANG.uid, stays=first_slot()):
        raise KeyError("a poisoned gang")
    assert free_gpus(view) == [0, 0, 8]
