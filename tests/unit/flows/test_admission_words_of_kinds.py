"""What the admission handlers say of other kinds than Jobs, word for word."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.placement import Assignment, Placement, PodSetPlan, Slot, WorkloadRef
from engine.api.text import MAX_WARNING
from engine.scheduler.outcome import Placed, Waits
from tests.support.admission import UID, FakeView, Json, apply, review, with_policy
from tests.support.golden import golden
from tests.support.kinds import example, merged, workload_of
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

RACK = {names.REQUIRE: "rack"}


def raw(name: str, annotations: Mapping[str, str] = RACK, patch: Any = None) -> Json:
    found: Json = merged(copy.deepcopy(example(name)["object"]), patch or {})
    found["metadata"] = {"name": "train", "namespace": "ml", "annotations": dict(annotations)}
    return found


def jobset(*, driver: Json | None = None, **annotations: str) -> Json:
    """A JobSet with a driver and workers; `driver` is merged into the driver's pod template."""
    found = raw("jobset", {**RACK, **annotations})
    template = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    template["template"] = merged(template["template"], driver or {})
    return found


def stored(found: Json) -> Json:
    created = apply(found, mutate(review(found), FakeView(), 0.0))
    created["metadata"]["uid"] = UID
    return created


def resumed(found: Json) -> Json:
    created = stored(found)
    created["spec"]["suspend"] = False
    del created["metadata"]["annotations"][names.HELD_BY]
    return created


def placed_view(found: Json) -> FakeView:
    """A view in which every pod set of the stored workload has its slots on one host."""
    owner = workload_of(found)
    plans = tuple(PodSetPlan(one.name, (Slot(("b0", "b0-r0", "b0-r0-h0"), one.slots, None),)) for one in owner.pod_sets)
    placement = Placement(
        namespace="ml",
        name="x",
        uid="u",
        resource_version="1",
        workload=WorkloadRef(owner.api_version, owner.kind, owner.name, owner.uid),
        topology="default",
        priority=0,
        pod_sets=(),
        assignment=Assignment(1, plans),
        deleting=False,
        created=0.0,
    )
    return FakeView(workloads=[replace(owner, namespace="ml")], placements=[placement])


def lines(answer: Response) -> str:
    return "\n".join(f"{cause.field}: {cause.message}" for cause in answer.causes)


def test_the_texts_of_refusals_at_create() -> None:
    template = {"metadata": {"annotations": {names.PREFER: "hots", names.SLICE_SIZE: "x"}}}
    two = {"spec": {"replicatedJobs": [{"name": "a", "replicas": -1, "template": {"spec": {"parallelism": "2"}}}]}}
    ray = {
        "spec": {"workerGroupSpecs": [{"groupName": "a b", "replicas": "3", "template": {"spec": {"containers": 1}}}]}
    }
    cases = {
        "a template of a JobSet": jobset(driver=template),
        "the JobSet and a template disagree": jobset(driver={"metadata": {"annotations": {names.REQUIRE: "block"}}}),
        "a JobSet that nobody can read": raw("jobset", patch=two),
        "a RayCluster that nobody can read": raw("raycluster", patch=ray),
        "too many pods": raw("statefulset", patch={"spec": {"replicas": 20_000}}),
        "a TrainJob": raw("trainjob", {names.REQUIRE: "rak"}),
    }
    golden("refusals-of-kinds", {case: lines(validate(review(one), FakeView(), 0.0)) for case, one in cases.items()})


def test_the_texts_of_refusals_at_update() -> None:
    jobs, sets = resumed(jobset()), stored(raw("statefulset"))
    ours, request, template = copy.deepcopy(jobs), copy.deepcopy(jobs), copy.deepcopy(jobs)
    ours["metadata"]["annotations"][names.HELD_BY] = "suspend"
    request["metadata"]["annotations"][names.REQUIRE] = "block"
    pods = template["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    pods["metadata"]["annotations"] = {**pods["metadata"].get("annotations", {}), names.PREFER: "host"}
    other = copy.deepcopy(sets)
    other["metadata"]["annotations"][names.REQUIRE] = "block"
    cases = {
        "what is ours": (jobs, ours),
        "another request of the gang": (jobs, request),
        "another request of one pod set": (jobs, template),
        "of a kind that is never suspended": (sets, other),
    }
    golden(
        "refusals-of-kinds-at-update",
        {case: lines(validate(review(new, old=old), placed_view(old), 0.0)) for case, (old, new) in cases.items()},
    )


def test_the_texts_of_warnings() -> None:
    path = ("b0", "b0-r0", "b0-r0-h0")
    mpi = stored(raw("mpijob"))
    outcome = Placed(
        pod_sets=tuple(
            PodSetPlan(one.name, (Slot(path, one.slots, ((0, one.slots - 1),)),)) for one in workload_of(mpi).pod_sets
        ),
        domains_used={"block": 1, "rack": 1, "host": 1},
        proven=True,
        message="",
        require="rack",
        prefer=None,
    )
    groups = stored(raw("leaderworkerset"))
    late = copy.deepcopy(raw("statefulset", {}))
    asking = {**late, "metadata": {**late["metadata"], "annotations": dict(RACK)}}
    sets = stored(raw("statefulset"))
    freed = copy.deepcopy(sets)
    del freed["metadata"]["annotations"][names.REQUIRE]
    priorities = jobset(driver={"spec": {"priorityClassName": "high"}})
    answers = {
        "several pod sets": validate(review(mpi), FakeView(outcome=outcome), 0.0),
        "a gang for each replica": validate(review(groups), FakeView(outcome=outcome), 0.0),
        "a CronJob": validate(review(raw("cronjob", {**RACK, names.PREFER: "host"})), FakeView(), 0.0),
        "a request that comes late": validate(review(asking, old=late), FakeView(), 0.0),
        "a request that goes from a kind that is never suspended": validate(
            review(freed, old=sets), placed_view(sets), 0.0
        ),
        "different priorities": validate(review(stored(priorities)), FakeView(), 0.0),
    }
    assert all(answer.allowed for answer in answers.values())
    assert all(len(text) <= MAX_WARNING for answer in answers.values() for text in answer.warnings)
    golden("warnings-of-kinds", {case: "\n".join(answer.warnings) for case, answer in answers.items()})


def test_what_cannot_be_read_and_was_so_before_blocks_no_other_change() -> None:
    old = raw("jobset", patch={"spec": {"replicatedJobs": 7}})
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"] = []
    assert validate(review(new, old=old), FakeView(), 0.0).allowed
    new["spec"]["suspend"] = "no"
    assert [cause.field for cause in validate(review(new, old=old), FakeView(), 0.0).causes] == ["spec.suspend"]
    new["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert validate(review(new, old=old), FakeView(), 0.0).allowed


def test_what_cannot_be_read_and_is_kueues_passes() -> None:
    found = raw("jobset", patch={"spec": {"replicatedJobs": 7}})
    found["metadata"]["labels"] = {names.KUEUE_QUEUE: "q"}
    assert validate(review(found), FakeView(), 0.0).allowed


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        ({}, {names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "2"}),
        ({}, {names.SCHEDULER_PLUGINS_POD_GROUP: "g"}),
        ({names.KOORDINATOR_GANG_NAME: "g", names.KOORDINATOR_GANG_MIN: "2"}, {}),
    ],
)
@pytest.mark.parametrize("on_template", [False, True])
def test_a_new_object_that_cannot_be_read_and_asks_by_a_pod_group_is_refused(
    annotations: Mapping[str, str], labels: Mapping[str, str], on_template: bool
) -> None:
    """Its pods would start apart; at an UPDATE such keys request nothing, and under their own scheduler never."""
    found = raw("raycluster", {})
    old = copy.deepcopy(found)
    group = found["spec"]["workerGroupSpecs"][0]
    found["spec"]["workerGroupSpecs"] = [group, copy.deepcopy(group)]  # one name twice
    place = group["template"] if on_template else found
    place["metadata"] = {**place.get("metadata", {}), "annotations": dict(annotations), "labels": dict(labels)}
    assert [cause.field for cause in validate(review(found), FakeView(), 0.0).causes] == [
        "spec.workerGroupSpecs[1].template"
    ]
    assert validate(review(found, old=old), FakeView(), 0.0).allowed
    group["template"]["spec"]["schedulerName"] = "scheduler-plugins-scheduler"
    assert validate(review(found), FakeView(), 0.0).allowed


def test_a_policy_that_observes_warns_of_what_cannot_be_read() -> None:
    found = raw("jobset", patch={"spec": {"replicatedJobs": 7}})
    answer = validate(review(found), FakeView(policy=with_policy(mode="observe")), 0.0)
    assert answer.allowed
    assert "spec.replicatedJobs" in answer.warnings[1]


def test_a_waiting_gang_that_asks_for_something_else_is_told_what_will_happen() -> None:
    old = stored(jobset())
    new = copy.deepcopy(old)
    assert validate(review(new, old=old), FakeView(outcome=Waits("Fragmented", "no")), 0.0).warnings == ()
    new["metadata"]["annotations"][names.REQUIRE] = "block"
    answer = validate(review(new, old=old), FakeView(outcome=Waits("Fragmented", "needs more")), 0.0)
    assert answer.warnings == ("topogate: would wait: needs more",)
