"""Fields of other schedulers that ask for places are named, with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import names
from engine.api.text import MAX_WARNING
from tests.support.admission import FakeView, review
from tests.support.plain_objects import BY_NAME, plain
from webhook.admission.review import Response
from webhook.handlers.validate import validate

Json = dict[str, Any]
RACK = {names.REQUIRE: "rack"}
SLICES = {names.SLICE_TOPOLOGY: "host", names.SLICE_SIZE: "1"}
NETWORK = {"mode": "hard", "highestTierAllowed": 2}
GARBAGE = (0, 7, [], ["x"], {}, {"a": None}, "x" * 10_000, "\u202e", True, {"*": {"*": []}})


def volcano(annotations: dict[str, str], *, task: Json | None = None, **spec: Any) -> Json:
    found = plain(BY_NAME["volcano-job"])
    found["metadata"] = {"name": "train", "annotations": annotations}
    found["spec"] |= {"schedulerName": names.DEFAULT_SCHEDULER, **spec}
    if task is not None:
        found["spec"]["tasks"][0] |= task
    return found


def leader_worker_set(annotations: dict[str, str], **template: Any) -> Json:
    found = plain(BY_NAME["leaderworkerset"])
    found["metadata"] = {"name": "serve", "annotations": annotations}
    found["spec"]["leaderWorkerTemplate"] |= {"size": 4, **template}
    return found


def told(found: Json) -> tuple[Response, list[str]]:
    answer = validate(review(found, namespace="ml"), FakeView(), 0.0)
    return answer, [text.removeprefix("topogate: ") for text in answer.warnings if " is ignored: use " in text]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            volcano(RACK, networkTopology=NETWORK),
            "spec.networkTopology is ignored: use topology: hypernodes, with require- or prefer-topology",
        ),
        (
            volcano(RACK, task={"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}),
            "spec.tasks[0].partitionPolicy is ignored: use slice-topology and slice-size",
        ),
        (
            volcano(RACK, task={"topologyPolicy": "single-numa-node"}),
            "spec.tasks[0].topologyPolicy is ignored: use device-scope",
        ),
        (
            leader_worker_set(RACK, subGroupPolicy={"subGroupSize": 2}),
            "spec.leaderWorkerTemplate.subGroupPolicy is ignored: use slice-topology and slice-size",
        ),
    ],
)
def test_a_field_beside_a_request_is_named_with_what_to_write_instead(found: Json, said: str) -> None:
    answer, warnings = told(found)
    assert answer.allowed
    assert warnings == [said]
    assert all(len(text) <= MAX_WARNING for text in answer.warnings)


@pytest.mark.parametrize(
    "found",
    [
        volcano(RACK),
        volcano(RACK, networkTopology=None, task={"topologyPolicy": "none"}),
        volcano({}, networkTopology=NETWORK),  # without a request it is meant for Volcano
        volcano(RACK, networkTopology=NETWORK, schedulerName="volcano"),
        leader_worker_set(RACK),
        leader_worker_set({}, subGroupPolicy={"subGroupSize": 2}),
        leader_worker_set({**RACK, **SLICES}, subGroupPolicy={"subGroupSize": 2}),
    ],
)
def test_nobody_is_told_without_need(found: Json) -> None:
    """Nothing asked, another scheduler's workload, or a request that says what the pods are placed by."""
    answer, warnings = told(found)
    assert (answer.allowed, warnings) == (True, [])


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_such_a_field_changes_no_answer(garbage: Any) -> None:
    """The field is not read: only that it is there matters."""
    assert told(volcano(RACK, networkTopology=garbage))[0].allowed
    assert told(volcano(RACK, task={"partitionPolicy": garbage, "topologyPolicy": garbage}))[0].allowed
    assert told(leader_worker_set(RACK, subGroupPolicy=garbage))[0].allowed


def test_many_tasks_give_one_warning() -> None:
    found = volcano(RACK)
    one = {**found["spec"]["tasks"][0], "partitionPolicy": {"partitionSize": 1}}
    found["spec"]["tasks"] = [{**one, "name": f"t{number}"} for number in range(20)]
    assert told(found)[1] == ["spec.tasks[0].partitionPolicy is ignored: use slice-topology and slice-size"]
