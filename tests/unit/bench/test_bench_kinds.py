"""The gangs that are measured for their writes: those that the bound is about."""

from __future__ import annotations

import pytest

from bench.specimens import SPECIMENS, Specimen
from engine.decoding import workloads
from engine.kinds.registry import built_in
from engine.kinds.schema import KindEntry
from local.controllers.catalogue import CONTROLLERS

PODS = 64
# Their controllers do not run here, and the older MPIJob cannot be combined with the other.
ELSEWHERE = {"sparkapplication", "mpijob-v1"}


def entry_of(specimen: Specimen) -> KindEntry:
    found = built_in().entry_of(specimen.body(PODS, {}))
    assert found is not None
    return found


def test_every_kind_that_can_be_suspended_is_measured() -> None:
    """A new one gets a specimen in bench/specimens.py, or stands in ELSEWHERE with the reason."""
    measured = {entry_of(specimen).name for specimen in SPECIMENS.values()}
    suspendable = {entry.name for entry in built_in().entries if entry.suspend is not None}
    assert suspendable - measured == ELSEWHERE


@pytest.mark.parametrize("kind", SPECIMENS)
def test_a_specimen_is_a_gang_of_that_many_ranked_pods(kind: str) -> None:
    """As the service reads it; it can be suspended where the table says so. A TrainJob's pods are its JobSet's."""
    specimen = SPECIMENS[kind]
    entry = entry_of(specimen)
    body = specimen.body(PODS, {})
    body["metadata"]["namespace"] = "ml"
    found = workloads.workload(body, entry=entry, registry=built_in())
    assert found.suspendable is (specimen.held_by == "suspend")
    if kind != "TrainJob":
        assert sum(one.slots for one in found.pod_sets) == PODS + specimen.beyond
        assert all(one.ranked for one in found.pod_sets if one.slots > 1)


@pytest.mark.parametrize("kind", SPECIMENS)
def test_its_controllers_can_be_run(kind: str) -> None:
    assert set(SPECIMENS[kind].controllers) <= CONTROLLERS.keys()
