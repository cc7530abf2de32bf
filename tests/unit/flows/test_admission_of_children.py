"""Both webhooks on what the controller of a workload makes of it: gate and labels, never a suspension of its own."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.placement import WorkloadRef
from tests.support.admission import UID, FakeView, Json, apply, live, placed, raw_job, raw_pod, review
from tests.support.kinds import example, workload_of
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

CHILD_UID = "3c7f8a52-0000-4000-8000-000000000002"
COPIED = {names.PLACEMENT: "jobset-x", names.REVISION: "1"}


def stored(name: str, **annotations: str) -> Json:
    raw: Json = copy.deepcopy(example(name)["object"])
    raw["metadata"] = {"name": "parent", "namespace": "ml", "uid": UID, "annotations": annotations}
    return raw


def owned(raw: Json, parent: Json) -> Json:
    reference = {"apiVersion": parent["apiVersion"], "kind": parent["kind"], "controller": True}
    raw["metadata"]["ownerReferences"] = [{**reference, "name": "parent", "uid": parent["metadata"]["uid"]}]
    return raw


def child(name: str, parent: Json, **annotations: str) -> Json:
    raw: Json = copy.deepcopy(example(name)["object"])
    raw["metadata"] = {"name": "child", "namespace": "ml", "annotations": annotations}
    return owned(raw, parent)


def job_of(parent: Json, **more: Any) -> Json:
    """A Job as the JobSet controller makes it of a template that we marked."""
    labels = {names.MANAGED: "true", names.POD_SET: "workers"}
    return owned(raw_job(template_labels=labels, pod_spec={"schedulingGates": [{"name": names.GATE}]}, **more), parent)


def view(*parents: Json) -> FakeView:
    return FakeView(workloads=[workload_of(parent) for parent in parents])


def create(raw: Json, seen: FakeView) -> Json:
    return apply(raw, mutate(review(raw), seen, 0.0))


def template(job: Json) -> Json:
    found: Json = job["spec"]["template"]
    return found


def test_the_jobset_of_a_trainjob_that_asks_is_marked_and_not_suspended() -> None:
    parent = stored("trainjob", **{names.REQUIRE: "rack"})
    created = create(child("jobset", parent), view(parent))
    assert not workload_of(created).suspended
    assert names.HELD_BY not in created["metadata"]["annotations"]
    for one in workload_of(created).pod_sets:
        assert one.template.labels == {names.MANAGED: "true", names.POD_SET: one.name}
        assert one.template.gates == (names.GATE,)
    assert mutate(review(created), view(parent), 0.0).patch == ()
    assert validate(review(created), view(parent), 0.0).warnings == ()


def test_the_cluster_of_a_rayjob_carries_its_annotation_and_is_not_suspended() -> None:
    parent = stored("rayjob", **{names.REQUIRE: "rack"})
    created = create(child("raycluster", parent, **{names.REQUIRE: "rack", names.HELD_BY: "suspend"}), view(parent))
    assert not workload_of(created).suspended
    assert created["metadata"]["annotations"] == {names.REQUIRE: "rack"}
    assert {one.template.labels[names.POD_SET] for one in workload_of(created).pod_sets} == {
        one.name for one in workload_of(parent).pod_sets
    }


def test_the_job_of_a_jobset_keeps_the_pod_set_and_the_revision_of_its_parents_template() -> None:
    parent = stored("jobset", **{names.REQUIRE: "rack"})
    sent = job_of(parent, template=dict(COPIED), suspend=True)
    created = create(sent, view(parent))
    assert template(created)["metadata"]["labels"][names.POD_SET] == "workers"
    assert {key: template(created)["metadata"]["annotations"][key] for key in COPIED} == COPIED
    assert created["spec"]["suspend"] is True
    assert names.HELD_BY not in (created["metadata"].get("annotations") or {})


def test_a_jobset_controller_that_resumes_its_job_with_our_revision_is_let_through() -> None:
    parent = stored("jobset", **{names.REQUIRE: "rack"})
    old = live(create(job_of(parent, suspend=True), view(parent)), uid=CHILD_UID)
    new = copy.deepcopy(old)
    new["spec"]["suspend"] = False
    template(new)["metadata"]["annotations"] = {**(template(new)["metadata"].get("annotations") or {}), **COPIED}
    answer = mutate(review(new, old=old), view(parent), 0.0)
    changed = apply(new, answer)
    assert changed["spec"]["suspend"] is False
    assert answer.warnings == ()
    assert validate(review(changed, old=old), view(parent), 0.0).allowed


def test_what_is_wrong_with_the_request_is_told_to_the_parent_alone() -> None:
    """A pod set's slices may be those of all Jobs: for one Job they need not divide."""
    parent = stored("jobset", **{names.REQUIRE: "rack"})
    sent = job_of(parent, template={names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "3"})
    assert not validate(
        review(create({**sent, "metadata": {"name": "x", "namespace": "ml"}}, view())), view(), 0.0
    ).allowed
    assert validate(review(create(sent, view(parent))), view(parent), 0.0).allowed


@pytest.mark.parametrize("asks", [{}, {names.REQUIRE: "rack"}])
def test_while_the_parent_is_not_known_what_is_marked_stays_held(asks: dict[str, str]) -> None:
    created = create(job_of(stored("jobset"), annotations=asks), view())
    assert created["spec"]["suspend"] is False
    assert template(created)["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert template(created)["metadata"]["labels"][names.POD_SET] == "workers"


def test_the_statefulset_of_a_leader_pod_stays_held() -> None:
    """LeaderWorkerSet: the leader's pod owns the StatefulSet of its workers."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"uid": UID}}
    sent = child("statefulset", pod)
    sent["spec"]["template"]["spec"]["schedulingGates"] = [{"name": names.GATE}]
    assert workload_of(create(sent, view())).pod_sets[0].template.gates == (names.GATE,)


def test_a_child_of_a_parent_that_asks_nothing_asks_for_itself() -> None:
    parent = stored("jobset")
    asking = owned(raw_job({names.REQUIRE: "rack"}), parent)
    created = create(asking, view(parent))
    assert created["spec"]["suspend"] is False
    assert template(created)["metadata"]["labels"] == {names.MANAGED: "true", names.POD_SET: "main"}
    plain = job_of(parent)
    assert (
        "schedulingGates" not in template(create(plain, view(parent)))["spec"]
        or not template(create(plain, view(parent)))["spec"]["schedulingGates"]
    )


def test_a_reference_to_another_object_of_that_name_leads_nowhere() -> None:
    parent = stored("jobset", **{names.REQUIRE: "rack"})
    sent = child("jobset", parent)
    sent["metadata"]["ownerReferences"][0]["uid"] = CHILD_UID
    assert workload_of(create(sent, view(parent))).pod_sets[0].template.gates == ()


def test_a_child_of_what_somebody_else_places_is_left_to_him() -> None:
    parent = stored("jobset", **{names.REQUIRE: "rack", names.KUEUE_QUEUE: "q"})
    created = create(job_of(parent, annotations={names.REQUIRE: "rak"}), view(parent))
    assert created["spec"]["suspend"] is False
    assert not template(created)["spec"]["schedulingGates"]
    assert validate(review(created), view(parent), 0.0).allowed


def test_the_request_of_a_running_trainjob_may_not_change() -> None:
    parent = stored("trainjob", **{names.REQUIRE: "rack"})
    parent["spec"]["suspend"] = False
    child_of = child("jobset", parent)
    child_of["metadata"]["name"] = "parent"
    jobset, owner = workload_of(child_of), workload_of(parent)
    placement = replace(
        placed(jobset, ["b0-r0-h0"]), workload=WorkloadRef(owner.api_version, owner.kind, owner.name, owner.uid)
    )
    seen = FakeView(workloads=[owner, jobset], placements=[placement])
    changed = copy.deepcopy(parent)
    changed["metadata"]["annotations"][names.REQUIRE] = "block"
    answer = validate(review(changed, old=parent), seen, 0.0)
    assert [cause.field for cause in answer.causes] == [f"metadata.annotations[{names.REQUIRE}]"]
    assert "suspend the TrainJob" in answer.causes[0].message


def test_a_trainjob_whose_runtime_has_an_invalid_request_is_held_when_its_user_resumes_it() -> None:
    """As at its creation: the leader tells what is wrong. `/validate` takes our own mark for nobody else's."""
    parent = stored("trainjob", **{names.REQUIRE: "block"})
    parent["spec"]["suspend"] = True
    made = child("jobset", parent)
    made["metadata"]["name"] = "parent"
    pods = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pods["metadata"] = {"annotations": {names.REQUIRE: "rak"}}
    seen = FakeView(workloads=[replace(workload_of(one), namespace="ml") for one in (parent, made)])
    resumed = copy.deepcopy(parent)
    resumed["spec"]["suspend"] = False
    resumed = apply(resumed, mutate(review(resumed, old=parent), seen, 0.0))
    assert resumed["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
    assert validate(review(resumed, old=parent), seen, 0.0).allowed


def service_with_a_cluster(*hosts: str) -> tuple[Json, FakeView]:
    """A RayService that asks, and a view in which its RayCluster has slots on these hosts, or waits."""
    parent = stored("rayservice", **{names.REQUIRE: "rack"})
    made = child("raycluster", parent)
    made["metadata"]["uid"] = CHILD_UID
    cluster, owner = (replace(workload_of(one), namespace="ml") for one in (made, parent))
    return parent, FakeView(workloads=[owner, cluster], placements=[placed(cluster, hosts)])


def test_the_request_of_a_rayservice_with_a_running_cluster_may_not_change() -> None:
    parent, seen = service_with_a_cluster("b0-r0-h0")
    changed = copy.deepcopy(parent)
    changed["metadata"]["annotations"][names.REQUIRE] = "block"
    answer = validate(review(changed, old=parent), seen, 0.0)
    assert [cause.field for cause in answer.causes] == [f"metadata.annotations[{names.REQUIRE}]"]
    assert "delete the RayService and create it again" in answer.causes[0].message
    parent, waiting = service_with_a_cluster()
    assert validate(review(changed, old=parent), waiting, 0.0).allowed


def test_one_that_gives_up_its_request_is_told_what_becomes_of_its_cluster() -> None:
    parent, seen = service_with_a_cluster("b0-r0-h0")
    changed = copy.deepcopy(parent)
    changed["metadata"]["annotations"] = {}
    assert validate(review(changed, old=parent), seen, 0.0).warnings == (
        "topogate: the request was removed: the gang's slots are released, and new pods may run anywhere",
    )


def test_slots_of_the_cluster_of_another_rayservice_bind_nobody() -> None:
    parent, seen = service_with_a_cluster("b0-r0-h0")
    changed = copy.deepcopy(parent)
    changed["metadata"] |= {"uid": "another", "annotations": {names.REQUIRE: "block"}}
    before = {**parent, "metadata": {**parent["metadata"], "uid": "another"}}
    assert validate(review(changed, old=before), seen, 0.0).allowed


def test_the_jobset_of_a_trainjob_that_is_not_known_yet_is_marked() -> None:
    """Its template has no marks to keep: unmarked, its pods would go before the gang is planned."""
    parent = stored("trainjob", **{names.REQUIRE: "rack"})
    created = create(child("jobset", parent), FakeView())
    assert not workload_of(created).suspended
    assert all(one.template.gates == (names.GATE,) for one in workload_of(created).pod_sets)


SHARED: Json = {"resources": {"limits": {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}}}


def ray_with_a_job(kind: str, job_labels: Json, **spec: Any) -> tuple[Json, Json, FakeView]:
    """A Job that KubeRay makes for a Ray object that asks, and a pod of that Job, with our marks in its template."""
    parent = stored(kind, **{names.REQUIRE: "rack"})
    parent["metadata"]["name"] = "tune"
    parent["spec"] |= spec
    labels = {**job_labels, names.MANAGED: "true", names.POD_SET: "headgroup"}
    made = owned(raw_job(template_labels=labels, pod_spec={"schedulingGates": [{"name": names.GATE}]}), parent)
    made["metadata"]["ownerReferences"][0]["name"] = "tune"
    job = live(made, uid=CHILD_UID)
    pod = raw_pod(job, index=None, labels=labels)
    known = [replace(workload_of(one), namespace="ml") for one in (parent, job)]
    return job, pod, FakeView(workloads=known)


@pytest.mark.parametrize("annotations", [None, {names.REQUIRE: "rack"}])
def test_the_submitter_of_a_rayjob_is_not_held(annotations: dict[str, str] | None) -> None:
    """It is in no gang: it starts when the cluster runs, whatever is written on it."""
    template = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    name = {"batch.kubernetes.io/job-name": "tune"}
    _, pod, seen = ray_with_a_job("rayjob", name, submitterPodTemplate=template)
    pod["metadata"]["annotations"] = annotations
    pod["spec"]["containers"] = [{"name": "main", "image": "x", **SHARED}]
    created = create(pod, seen)
    assert created["metadata"]["labels"] == name
    assert not created["spec"]["schedulingGates"]
    assert validate(review(created), seen, 0.0).allowed


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("raycluster", {"gcsFaultToleranceOptions": {"redisAddress": "r"}}),
        (
            "rayjob",
            {"rayClusterSpec": {"gcsFaultToleranceOptions": {}, "headGroupSpec": {"template": {"spec": {}}}}},
        ),
    ],
)
def test_the_pod_that_cleans_up_after_a_ray_cluster_is_not_held(kind: str, spec: Json) -> None:
    """KubeRay makes it from the head's template, with our gate, and keeps the cluster until its Job has ended."""
    role = {"ray.io/node-type": "redis-cleanup"}
    _, pod, seen = ray_with_a_job(kind, role, **spec)
    created = create(pod, seen)
    assert created["metadata"]["labels"] == role
    assert not created["spec"]["schedulingGates"]


def test_a_pod_of_no_pod_set_is_held() -> None:
    """Its labels may be a mistake of its kind's entry: it must not start outside of the gang's places."""
    _, pod, seen = ray_with_a_job("raycluster", {"ray.io/node-type": "worker", "ray.io/group": "gone"})
    assert create(pod, seen)["spec"]["schedulingGates"] == [{"name": names.GATE}]
