"""What a Placement says of a request reads as it was written: else it would be corrected for ever."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.api import names
from engine.decoding.placements import placement, placement_body
from engine.decoding.workloads import workload
from engine.gang.gang import Gang
from engine.kinds.registry import built_in
from engine.lifecycle.reconcile import request_written
from engine.scheduler.schedule import new_placement
from tests.support.cluster_records import gpu_nodes
from tests.support.kinds import FILES, example, merged
from tests.support.leader import Leader

ASKS = (
    {names.REQUIRE: "rack"},
    {names.REQUIRE: "block", names.PREFER: "rack"},
    {names.PREFER: "auto"},
    {names.UNCONSTRAINED: "true"},
    {names.REQUIRE: "block", names.MIN_AVAILABLE: "1"},
    {names.REQUIRE: "rack", names.RELAX_AFTER: "10m"},
    {names.SLICES: "rack=1,host=1", names.PROFILE: "balanced"},
)
# A CronJob asks through its Jobs, a TrainJob through its JobSet; pods have tests of their own.
KINDS = sorted({path.stem for path in FILES} - {"cronjob", "trainjob", "pod"})


@pytest.mark.parametrize("asks", ASKS, ids=lambda asks: ",".join(key.partition("/")[2] for key in asks))
@pytest.mark.parametrize("name", KINDS)
def test_a_request_that_was_written_stands_as_it_is_asked(name: str, asks: dict[str, str]) -> None:
    """Of every kind, with every sort of request."""
    leader = Leader(nodes=gpu_nodes(2, 2, 4))
    leader.view.refresh()
    registry = built_in()
    raw = merged(example(name)["object"], {"metadata": {"uid": "uid", "annotations": asks}})
    group, _, version = raw["apiVersion"].rpartition("/")
    entry = registry.find(group, raw["kind"], version)
    assert entry is not None
    found = workload(json.dumps(raw).encode(), entry=entry, registry=registry)
    asked = leader.view.request_of(found)
    assert asked.pod_sets
    gang = Gang(found, asked, None, (), leader.view.pod_shapes.shapes_of(found))
    body = placement_body(new_placement(gang, None, priority=7, now=0.0))
    body["metadata"] |= {"uid": "p", "resourceVersion": "1"}
    read = placement(json.dumps(body).encode())
    assert request_written(replace(gang, placement=read), priority=7)
    assert not request_written(replace(gang, placement=read), priority=8)
