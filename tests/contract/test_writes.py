from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine import metrics
from engine.api import names
from engine.api.placement import GangRequest, Placement, WorkloadRef
from engine.api.pod import Pod, PodSpec, Shape
from engine.api.workload import PodSet, Workload
from engine.cluster import writes
from engine.cluster.client import ApiError, ApiUnavailable, KubeClient
from engine.cluster.lease import NotLeader
from engine.cluster.writes import Conflict, Done, Gone, Refused, Result
from engine.decoding import placements
from engine.decoding.workloads import workload
from engine.kinds.registry import built_in
from tests.support.fake_api import Answer, FakeApi, Hang

JOB = "/apis/batch/v1/namespaces/team/jobs/train"
POD = "/api/v1/namespaces/team/pods/train-0"
PLACEMENT = "/apis/topogate.dev/v1alpha1/namespaces/team/placements/job-train-1"
KEPT = "/api/v1/namespaces/topogate-system/configmaps/topogate-policy-last-good"

SPEC = PodSpec(
    shape=Shape(requests=(("pods", 1),)),
    limits=(),
    gates=(names.GATE,),
    labels={},
    annotations={},
    node_name="",
    scheduler_name="default-scheduler",
    priority_class="",
    priority=None,
    runtime_class="",
    has_scheduling_group=False,
    deadline=False,
    unmodelled=(),
)


def ok() -> None:
    """A fence that lets pass."""


def job(fake: FakeApi, **fields: Any) -> Workload:
    body = fake.put(JOB, **({"spec": {"suspend": True, "template": {"metadata": {}}}} | fields))
    return Workload(
        api_version="batch/v1",
        kind="Job",
        namespace="team",
        name="train",
        uid=body["metadata"]["uid"],
        resource_version=body["metadata"]["resourceVersion"],
        generation=body["metadata"]["generation"],
        labels={},
        annotations=body["metadata"].get("annotations") or {},
        pod_sets=(PodSet("main", SPEC, slots=1, total=1, remaining=1, ranked=True, missing=_missing(body)),),
        suspended=True,
        suspendable=True,
        started=False,
        finished=False,
        deleting=False,
        created=0.0,
        owner=None,
        managed_elsewhere=None,
    )


def _missing(body: Any) -> tuple[str, ...]:
    metadata = body["spec"].get("template", {}).get("metadata")
    return ("metadata", "annotations") if metadata is None else () if "annotations" in metadata else ("annotations",)


def pod(fake: FakeApi, **fields: Any) -> Pod:
    body = fake.put(POD, **fields)
    return Pod(
        namespace="team",
        name="train-0",
        uid=body["metadata"]["uid"],
        resource_version=body["metadata"]["resourceVersion"],
        spec=SPEC,
        owner=None,
        phase="Pending",
        nominated_node="",
        created=0.0,
        deleting=False,
        unschedulable="",
        mirror=False,
    )


def placement(fake: FakeApi, **fields: Any) -> Placement:
    body = fake.put(PLACEMENT, **fields)
    return Placement(
        namespace="team",
        name="job-train-1",
        uid=body["metadata"]["uid"],
        resource_version=body["metadata"]["resourceVersion"],
        workload=WorkloadRef("batch/v1", "Job", "train", "u"),
        topology="default",
        priority=0,
        pod_sets=(),
        assignment=None,
        deleting=False,
        created=0.0,
    )


def stored(fake: FakeApi, path: str) -> dict[str, Any]:
    body = fake.get(path)
    assert body is not None
    return body


def every_write(api: KubeClient, fake: FakeApi, fence: Callable[[], None]) -> dict[str, Callable[[], Result]]:
    a_job, a_pod, a_placement = job(fake), pod(fake), placement(fake)
    return {
        "create_placement": lambda: writes.create_placement(
            api, "team", {"metadata": {"name": "job-train-2"}}, fence=fence
        ),
        "replace_placement_spec": lambda: writes.replace_placement_spec(api, a_placement, {"x": 1}, fence=fence),
        "patch_placement_status": lambda: writes.patch_placement_status(api, a_placement, {"x": 1}, fence=fence),
        "own_placement": lambda: writes.own_placement(api, a_placement, [{"uid": "a"}], fence=fence),
        "delete_placement": lambda: writes.delete_placement(api, a_placement, fence=fence),
        "resume_workload": lambda: writes.resume_workload(api, a_job, placement="p", revision=1, fence=fence),
        "suspend_workload": lambda: writes.suspend_workload(api, a_job, fence=fence),
        "release_pod": lambda: writes.release_pod(api, a_pod, {"spec": {}}, fence=fence),
        "delete_pod": lambda: writes.delete_pod(api, a_pod, fence=fence),
        "keep_policy": lambda: writes.keep_policy(api, "topogate-system", "x", fence=fence),
    }


WRITES = [
    "create_placement",
    "replace_placement_spec",
    "patch_placement_status",
    "own_placement",
    "delete_placement",
    "resume_workload",
    "suspend_workload",
    "release_pod",
    "delete_pod",
    "keep_policy",
]


@pytest.mark.parametrize("name", WRITES)
def test_no_write_passes_a_fallen_fence(fake: FakeApi, api: KubeClient, name: str) -> None:
    """When the fence raises, nothing reaches the API server."""

    def fallen() -> None:
        raise NotLeader("no")

    write = every_write(api, fake, fallen)[name]
    with pytest.raises(NotLeader):
        write()
    assert fake.requests == []


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_an_answer_that_would_be_repeated_is_a_refusal(fake: FakeApi, api: KubeClient, name: str, status: int) -> None:
    """Validation, policy and missing rights are results with the server's words."""
    write = every_write(api, fake, ok)[name]
    fake.fault(Answer(status, {"reason": "No", "message": "because"}), times=2)
    assert write() == Refused(status, "because")
    assert len(fake.requests) == (2 if name == "resume_workload" else 1)  # it may have been about the template


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_trouble_of_the_server_is_a_fault(fake: FakeApi, api: KubeClient, name: str, status: int) -> None:
    """What says nothing about the object raises, with the server's Retry-After."""
    write = every_write(api, fake, ok)[name]
    fake.fault(Answer(status, {}, (("Retry-After", "3"),)))
    with pytest.raises(ApiError) as caught:
        write()
    assert caught.value.retry_after == 3.0


@pytest.mark.parametrize("name", WRITES)
def test_a_lost_answer_is_a_fault_and_nothing_is_sent_twice(fake: FakeApi, api: KubeClient, name: str) -> None:
    """A write whose answer is lost raises; whether it was done, the watch will tell."""
    write = every_write(api, fake, ok)[name]
    fake.fault(Hang())
    with pytest.raises(ApiUnavailable):
        write()
    assert len(fake.requests) == 1


@pytest.mark.parametrize("name", [name for name in WRITES if name not in ("create_placement", "keep_policy")])
def test_an_object_that_is_gone_or_another_is_gone(fake: FakeApi, api: KubeClient, name: str) -> None:
    """A write never reaches another object that has come by the same name."""
    write = every_write(api, fake, ok)[name]
    for path in (JOB, POD, PLACEMENT):
        fake.remove(path)
    assert write() == Gone()
    before = {path: fake.put(path, spec={"suspend": True}) for path in (JOB, POD, PLACEMENT)}
    assert isinstance(write(), Gone | Conflict)
    assert {path: fake.get(path) for path in (JOB, POD, PLACEMENT)} == before


@pytest.mark.parametrize("name", ["replace_placement_spec", "resume_workload", "suspend_workload"])
def test_a_changed_object_is_a_conflict(fake: FakeApi, api: KubeClient, name: str) -> None:
    """Somebody changed the object since we decided: nothing is written."""
    write = every_write(api, fake, ok)[name]
    for path in (JOB, PLACEMENT):
        fake.put(path, spec={"changed": True})
    before = (fake.get(JOB), fake.get(PLACEMENT))
    assert isinstance(write(), Conflict)
    assert (fake.get(JOB), fake.get(PLACEMENT)) == before


def test_a_placement_is_created_once(fake: FakeApi, api: KubeClient) -> None:
    """The answer is the object; a second creation meets a conflict."""
    body = {"metadata": {"name": "job-train-1"}, "spec": {"topology": "default"}}
    result = writes.create_placement(api, "team", body, fence=ok)
    assert isinstance(result, Done)
    assert b'"resourceVersion"' in result.body
    assert fake.requests[0].query == {"fieldManager": "topogate"}
    assert isinstance(writes.create_placement(api, "team", body, fence=ok), Conflict)


def test_a_new_spec_takes_away_what_it_does_not_name(fake: FakeApi, api: KubeClient) -> None:
    """A spec without an assignment gives the slots back."""
    known = placement(fake, spec={"topology": "a", "assignment": {"revision": 3}, "podSets": [1, 2]})
    assert isinstance(writes.replace_placement_spec(api, known, {"topology": "b", "podSets": [3]}, fence=ok), Done)
    assert stored(fake, PLACEMENT)["spec"] == {"topology": "b", "podSets": [3]}


def test_parts_of_a_request_that_its_user_took_back_are_taken_away(fake: FakeApi, api: KubeClient) -> None:
    """A body as the engine writes it, over one with everything that a request may have."""
    gang = {"require": "rack", "prefer": None, "minAvailable": None, "relaxed": "rack"}
    apart = {"exclusive": "rack", "spread": None, "spreadGroup": None}
    known = placement(fake, spec={"profile": "spread", "separation": apart, "gang": gang, "podSets": []})
    softer = replace(known, gang=GangRequest("block", None, None))
    body = placements.placement_body(softer)
    assert isinstance(writes.replace_placement_spec(api, known, body["spec"], fence=ok), Done)
    spec = stored(fake, PLACEMENT)["spec"]
    assert not {"profile", "separation"} & spec.keys()
    assert spec["gang"] == {"require": "block"}


def test_owners_are_written_as_a_whole_list_at_any_version(fake: FakeApi, api: KubeClient) -> None:
    """With a new spec too; a spec that is written without owners leaves them as they are."""
    known = placement(fake, spec={"topology": "a"}, metadata={"ownerReferences": [{"uid": "p0"}, {"uid": "p1"}]})
    fake.put(PLACEMENT, metadata={"labels": {"a": "b"}})
    result = writes.own_placement(api, known, [{"uid": "p2"}], fence=ok)
    assert isinstance(result, Done)
    assert stored(fake, PLACEMENT)["metadata"]["ownerReferences"] == [{"uid": "p2"}]
    for owners, then in (([], [{"uid": "p2"}]), ([{"uid": "p3"}], [{"uid": "p3"}])):
        known = replace(known, resource_version=stored(fake, PLACEMENT)["metadata"]["resourceVersion"])
        result = writes.replace_placement_spec(api, known, {"topology": "b"}, owners=owners, fence=ok)
        assert isinstance(result, Done)
        assert stored(fake, PLACEMENT)["metadata"]["ownerReferences"] == then


def test_status_is_written_beside_the_spec_whatever_its_version(fake: FakeApi, api: KubeClient) -> None:
    """A status goes to the subresource, leaves the spec alone, and a None takes a field away."""
    known = placement(fake, spec={"topology": "a"}, status={"phase": "Waiting", "waitingSince": "x"})
    fake.put(PLACEMENT, metadata={"labels": {"a": "b"}})
    status = {"phase": "Placed", "waitingSince": None}
    assert isinstance(writes.patch_placement_status(api, known, status, fence=ok), Done)
    body = stored(fake, PLACEMENT)
    assert body["status"] == {"phase": "Placed"}
    assert body["spec"] == {"topology": "a"}


def test_resuming_says_where_the_pods_belong(fake: FakeApi, api: KubeClient) -> None:
    """One PATCH runs the Job, forgets that we held it, and names Placement and revision in the template."""
    held = job(
        fake,
        metadata={"annotations": {names.HELD_BY: "suspend", "mine": "1"}},
        spec={"suspend": True, "template": {"metadata": {"annotations": {"theirs": "2"}}, "spec": {"x": 1}}},
    )
    assert isinstance(writes.resume_workload(api, held, placement="job-train-1", revision=7, fence=ok), Done)
    body = stored(fake, JOB)
    assert body["metadata"]["annotations"] == {"mine": "1"}
    assert body["spec"] == {
        "suspend": False,
        "template": {
            "metadata": {"annotations": {"theirs": "2", names.PLACEMENT: "job-train-1", names.REVISION: "7"}},
            "spec": {"x": 1},
        },
    }
    assert len(fake.requests) == 1


def test_resuming_without_a_placement_leaves_the_template(fake: FakeApi, api: KubeClient) -> None:
    """A workload that is let go keeps its template."""
    held = job(fake, spec={"suspend": True, "template": {"spec": {}}})
    assert isinstance(writes.resume_workload(api, held, fence=ok), Done)
    assert "template" not in fake.requests[0].json()["spec"]


def test_a_server_with_a_fixed_template_is_asked_without_it(fake: FakeApi, api: KubeClient) -> None:
    """An older server that refuses the template of a re-suspended Job: resumed without; the fence is asked again."""
    fenced: list[int] = []
    held = job(fake, spec={"suspend": True})
    causes = [{"field": "spec.template", "message": "field is immutable"}]
    fake.fault(Answer(422, {"reason": "Invalid", "details": {"causes": causes}}))
    result = writes.resume_workload(api, held, placement="p", revision=2, fence=lambda: fenced.append(1))
    assert isinstance(result, Done)
    assert stored(fake, JOB)["spec"] == {"suspend": False}
    assert len(fenced) == 2


def test_a_refusal_of_something_else_is_not_asked_again(fake: FakeApi, api: KubeClient) -> None:
    """The causes name fields, and none of them is in a template."""
    held = job(fake, spec={"suspend": True})
    causes = [{"field": "spec.suspend", "message": "may not be"}]
    fake.fault(Answer(422, {"reason": "Invalid", "details": {"causes": causes}}))
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=2, fence=ok), Refused)
    assert len(fake.requests) == 1


JOBSET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/train"
TRAINING = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/train"
TRAINJOB = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/train"
APPWRAPPER = "/apis/workload.codeflare.dev/v1beta2/namespaces/team/appwrappers/train"
TOLD = {names.PLACEMENT: "jobset-train-1", names.REVISION: "7"}


def held_object(fake: FakeApi, path: str, kind: str, spec: dict[str, Any]) -> Workload:
    """A workload of a kind, stored and read as the caches do."""
    _, _, group, version, *_ = path.split("/")
    raw = fake.put(
        path,
        apiVersion=f"{group}/{version}",
        kind=kind,
        metadata={"annotations": {names.HELD_BY: names.HELD_BY_SUSPEND}},
        spec=spec,
    )
    entry = built_in().find(group, kind, version)
    assert entry is not None
    return workload(raw, entry=entry, registry=built_in())


def a_jobset(fake: FakeApi) -> Workload:
    """Two replicated jobs, the template of the second has annotations."""
    other = {"metadata": {"annotations": {"theirs": "1"}}, "spec": {"containers": []}}
    templates: list[Any] = [{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}, other]
    jobs = [{"name": f"j{at}", "template": {"spec": {"template": one}}} for at, one in enumerate(templates)]
    return held_object(fake, JOBSET, "JobSet", {"suspend": True, "replicatedJobs": jobs})


def templates_of_jobset(fake: FakeApi) -> list[Any]:
    return [one["template"]["spec"]["template"] for one in stored(fake, JOBSET)["spec"]["replicatedJobs"]]


def test_templates_in_a_list_are_told_one_by_one(fake: FakeApi, api: KubeClient) -> None:
    """One JSON Patch: runs, forgets that we held it, and names Placement and revision in every template."""
    held = a_jobset(fake)
    assert isinstance(writes.resume_workload(api, held, placement="jobset-train-1", revision=7, fence=ok), Done)
    body = stored(fake, JOBSET)
    assert (body["spec"]["suspend"], body["metadata"]["annotations"]) == (False, {})
    first, second = templates_of_jobset(fake)
    assert first["metadata"] == {"labels": {"a": "b"}, "annotations": TOLD}
    assert second["metadata"]["annotations"] == {"theirs": "1"} | TOLD
    assert fake.requests[0].headers["content-type"] == "application/json-patch+json"
    assert len(fake.requests) == 1


def test_templates_in_a_mapping_are_told_each(fake: FakeApi, api: KubeClient) -> None:
    """By the same JSON Patch; the field that suspends is the kind's own."""
    template = {"metadata": {}, "spec": {"containers": []}}
    replicas = {kind: {"replicas": 1, "template": template} for kind in ("Master", "Worker")}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas}
    held = held_object(fake, TRAINING, "PyTorchJob", spec)
    assert isinstance(writes.resume_workload(api, held, placement="jobset-train-1", revision=7, fence=ok), Done)
    body = stored(fake, TRAINING)["spec"]
    assert body["runPolicy"] == {"suspend": False}
    for kind in ("Master", "Worker"):
        assert body["pytorchReplicaSpecs"][kind]["template"]["metadata"] == {"annotations": TOLD}
        assert body["pytorchReplicaSpecs"][kind]["replicas"] == 1
    assert len(fake.requests) == 1


def test_what_is_placed_through_another_just_runs(fake: FakeApi, api: KubeClient) -> None:
    """Its pod sets are the other one's, and so are the paths of their templates."""
    held = replace(held_object(fake, TRAINJOB, "TrainJob", {"suspend": True}), pod_sets=a_jobset(fake).pod_sets)
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Done)
    assert stored(fake, TRAINJOB)["spec"] == {"suspend": False}


def test_templates_that_nobody_may_change_are_left_alone(fake: FakeApi, api: KubeClient) -> None:
    """An AppWrapper's webhook refuses every change of a component: one PATCH, not two."""
    inner = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": []}}}}
    held = held_object(fake, APPWRAPPER, "AppWrapper", {"suspend": True, "components": [{"template": inner}]})
    assert [one.templated for one in held.pod_sets] == [True]
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Done)
    assert stored(fake, APPWRAPPER)["spec"] == {"suspend": False, "components": [{"template": inner}]}
    assert len(fake.requests) == 1


def test_a_template_that_is_missing_is_not_made(fake: FakeApi, api: KubeClient) -> None:
    """Only what the object has is told."""
    held = a_jobset(fake)
    first, second = held.pod_sets
    held = replace(held, pod_sets=(replace(first, templated=False), second))
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Done)
    told = templates_of_jobset(fake)
    assert "annotations" not in told[0]["metadata"]
    assert told[1]["metadata"]["annotations"][names.REVISION] == "7"


def test_a_resume_binds_to_what_was_decided_on(fake: FakeApi, api: KubeClient) -> None:
    """A status or a label that was written meanwhile is no conflict; another spec is one, and nothing is written."""
    held = a_jobset(fake)
    fake.put(JOBSET, metadata={"labels": {"a": "b"}}, status={"conditions": []})
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Done)
    assert len(fake.requests) == 1
    other = a_jobset(fake)
    fake.put(JOBSET, spec={"replicatedJobs": [{"name": "another"}]})
    before = fake.get(JOBSET)
    assert isinstance(writes.resume_workload(api, other, placement="p", revision=7, fence=ok), Conflict)
    assert len(fake.requests) == 2
    assert fake.get(JOBSET) == before


@pytest.mark.parametrize("key", [names.REQUIRE, "kai.scheduler/topology-required-placement"])
@pytest.mark.parametrize("level", ["block", None])
def test_a_resume_binds_to_the_request(fake: FakeApi, api: KubeClient, key: str, level: str | None) -> None:
    """The level is changed, or removed, before the watch has shown it: annotations are no new generation."""
    held = job(fake, metadata={"annotations": {names.HELD_BY: "suspend", key: "rack"}})
    fake.put(JOB, metadata={"annotations": {key: level}})
    before = fake.get(JOB)
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Conflict)
    assert fake.get(JOB) == before
    fake.put(JOB, metadata={"annotations": dict(held.annotations)})
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Done)


def test_a_resume_does_not_bind_to_what_is_too_long(fake: FakeApi, api: KubeClient) -> None:
    """A record has only a part of such a value, which is no valid one."""
    stored = job(fake, metadata={"annotations": {names.REQUIRE: "r" * 20_000}})
    held = replace(stored, annotations={names.REQUIRE: "r" * 16_385})
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Done)


def test_a_resume_of_what_is_not_counted_binds_to_its_version(fake: FakeApi, api: KubeClient) -> None:
    """A server of one's own need not keep generations."""
    known = a_jobset(fake)
    held = replace(known, generation=0)
    assert isinstance(writes.resume_workload(api, held, placement="jobset-train-1", revision=7, fence=ok), Done)
    assert templates_of_jobset(fake)[0]["metadata"]["annotations"] == TOLD
    assert isinstance(writes.resume_workload(api, held, placement="jobset-train-1", revision=7, fence=ok), Conflict)
    assert len(fake.requests) == 2


def test_a_template_without_metadata_gets_some(fake: FakeApi, api: KubeClient) -> None:
    """Nobody marked it, and its pods are told all the same."""
    template = {"spec": {"containers": []}}
    jobs = [{"name": "a", "template": {"spec": {"template": template}}}]
    held = held_object(fake, JOBSET, "JobSet", {"suspend": True, "replicatedJobs": jobs})
    assert isinstance(writes.resume_workload(api, held, placement="jobset-train-1", revision=7, fence=ok), Done)
    assert templates_of_jobset(fake) == [{"metadata": {"annotations": TOLD}} | template]
    assert len(fake.requests) == 1


def test_a_resume_of_what_we_hold_no_more_is_a_conflict(fake: FakeApi, api: KubeClient) -> None:
    """Its user took it back by the annotation, which no generation counts: nothing is written."""
    held = a_jobset(fake)
    fake.put(JOBSET, metadata={"annotations": {names.HELD_BY: None}})
    before = fake.get(JOBSET)
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Conflict)
    assert fake.get(JOBSET) == before


def test_a_json_patch_whose_place_is_gone_is_a_conflict(fake: FakeApi, api: KubeClient) -> None:
    """The server calls it invalid, in words of its own for that."""
    held = a_jobset(fake)
    fake.put(JOBSET, spec={"replicatedJobs": []})
    before = fake.get(JOBSET)
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Conflict)
    assert len(fake.requests) == 1
    assert fake.get(JOBSET) == before


@pytest.mark.parametrize("status", [403, 422])
def test_a_webhook_that_keeps_templates_fixed_is_asked_without_them(
    fake: FakeApi, api: KubeClient, status: int
) -> None:
    """It denies in its own words, mostly without naming a field."""
    held = a_jobset(fake)
    fake.fault(Answer(status, {"reason": "Forbidden", "message": "admission webhook denied: immutable"}))
    assert isinstance(writes.resume_workload(api, held, placement="p", revision=7, fence=ok), Done)
    body = stored(fake, JOBSET)
    assert (body["spec"]["suspend"], body["metadata"]["annotations"]) == (False, {})
    assert "annotations" not in templates_of_jobset(fake)[0]["metadata"]


def test_a_suspension_of_another_kind_is_its_own_field(fake: FakeApi, api: KubeClient) -> None:
    """Whatever stands around it stays."""
    spec = {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {}}}}, "runPolicy": {"cleanPodPolicy": "None"}}
    running = held_object(fake, TRAINING, "PyTorchJob", spec)
    assert isinstance(writes.suspend_workload(api, running, fence=ok), Done)
    body = stored(fake, TRAINING)
    assert body["spec"] == spec | {"runPolicy": {"cleanPodPolicy": "None", "suspend": True}}
    assert body["metadata"]["annotations"] == {names.HELD_BY: "suspend"}


def test_suspending_remembers_that_it_was_us(fake: FakeApi, api: KubeClient) -> None:
    """One PATCH suspends and annotates."""
    running = job(fake, spec={"suspend": False})
    assert isinstance(writes.suspend_workload(api, running, fence=ok), Done)
    body = stored(fake, JOB)
    assert body["spec"]["suspend"] is True
    assert body["metadata"]["annotations"] == {names.HELD_BY: "suspend"}


def test_a_release_is_strategic_and_bound_to_the_pod(fake: FakeApi, api: KubeClient) -> None:
    """Only our gate goes; the uid is a precondition also when the body forgot it; twice is done twice."""
    held = pod(fake, spec={"schedulingGates": [{"name": "theirs"}, {"name": names.GATE}]})
    body = {"spec": {"schedulingGates": [{"$patch": "delete", "name": names.GATE}]}}
    assert isinstance(writes.release_pod(api, held, body, fence=ok), Done)
    assert stored(fake, POD)["spec"]["schedulingGates"] == [{"name": "theirs"}]
    assert fake.requests[0].headers["content-type"] == "application/strategic-merge-patch+json"
    assert fake.requests[0].json()["metadata"]["uid"] == held.uid
    assert isinstance(writes.release_pod(api, held, body, fence=ok), Done)


def test_deleting_is_bound_to_the_uid(fake: FakeApi, api: KubeClient) -> None:
    """A Placement is deleted only when it is the very one that was meant."""
    known = placement(fake)
    assert writes.delete_placement(api, replace(known, uid="another"), fence=ok) == Gone()
    assert fake.get(PLACEMENT) is not None
    assert isinstance(writes.delete_placement(api, known, fence=ok), Done)
    assert fake.get(PLACEMENT) is None
    assert writes.delete_placement(api, known, fence=ok) == Gone()


def test_a_pod_without_a_host_goes_at_once_and_only_the_very_one(fake: FakeApi, api: KubeClient) -> None:
    """No grace period: nobody is there to end it; the uid is a precondition."""
    known = pod(fake)
    assert writes.delete_pod(api, replace(known, uid="another"), fence=ok) == Gone()
    assert fake.get(POD) is not None
    assert isinstance(writes.delete_pod(api, known, fence=ok), Done)
    assert fake.requests[0].json()["gracePeriodSeconds"] == 0


def test_an_eviction_names_the_very_pod_and_leaves_it_its_grace_period(fake: FakeApi, api: KubeClient) -> None:
    """The eviction API looks at disruption budgets; a no of theirs is a refusal, trouble of the server a fault."""
    known = pod(fake)
    fake.fault(Answer(201, {}))
    assert isinstance(writes.evict_pod(api, known, fence=ok), Done)
    assert fake.requests[0].path == f"{POD}/eviction"
    assert fake.requests[0].json() == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": known.name, "namespace": "team"},
        "deleteOptions": {"preconditions": {"uid": known.uid}},
    }
    fake.fault(Answer(429, {"message": "the budget needs 2 healthy pods"}))
    assert writes.evict_pod(api, known, fence=ok) == Refused(429, "the budget needs 2 healthy pods")
    for status, result in ((404, Gone()), (409, Gone()), (403, Refused(403, "no"))):
        fake.fault(Answer(status, {"message": "no"}))
        assert writes.evict_pod(api, known, fence=ok) == result
    fake.fault(Answer(500, {}))
    with pytest.raises(ApiError):
        writes.evict_pod(api, known, fence=ok)


def test_the_policy_in_force_is_kept_and_kept_again(fake: FakeApi, api: KubeClient) -> None:
    """The leader's ConfigMap is made when missing and overwritten when there, by server-side apply."""
    for text in ("one", "two"):
        assert isinstance(writes.keep_policy(api, "topogate-system", text, fence=ok), Done)
        assert stored(fake, KEPT)["data"] == {"policy.yaml": text}
    assert fake.requests[0].query == {"fieldManager": "topogate", "force": "true"}


def count(what: str, result: str) -> float:
    return metrics.registry.get_sample_value("topogate_writes_total", {"what": what, "result": result}) or 0.0


def test_an_eviction_that_a_budget_forbids_is_counted_as_refused(fake: FakeApi, api: KubeClient) -> None:
    """As TopogateWritesRefused says; a fault would call the API server overloaded (TopogateWritesFail)."""
    what = "POST pods/eviction"
    refused, faults = count(what, "Refused"), count(what, "Fault")
    fake.fault(Answer(429, {"message": "the budget needs 2 healthy pods"}))
    writes.evict_pod(api, pod(fake), fence=ok)
    assert (count(what, "Refused"), count(what, "Fault")) == (refused + 1, faults)


def test_every_write_is_counted_by_what_it_did_and_how_it_ended(fake: FakeApi, api: KubeClient) -> None:
    """The metric topogate_writes names the resource and the result, never an object."""
    done, gone = count("PATCH jobs", "Done"), count("PATCH placements/status", "Gone")
    known = placement(fake)
    writes.suspend_workload(api, job(fake), fence=ok)
    fake.remove(PLACEMENT)
    writes.patch_placement_status(api, known, {"phase": "Placed"}, fence=ok)
    assert count("PATCH jobs", "Done") == done + 1
    assert count("PATCH placements/status", "Gone") == gone + 1
