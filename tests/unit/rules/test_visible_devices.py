"""`gpu.env` of the policy: containers get `NVIDIA_VISIBLE_DEVICES` from an annotation of their pod."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from engine.resources.names import CORE, GPU, NVIDIA, RATIO, Reported
from tests.support.admission import FakeView, Json, apply, edited, gang_view, live, rack_job, raw_job, raw_pod, review
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate

ENV = names.VISIBLE_DEVICES_VARIABLE
OURS = {
    "name": ENV,
    "valueFrom": {
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['topogate.dev/visible-devices']"}
    },
}
DIMENSIONS = Reported(frozenset({CORE, RATIO}))
HALF = {"limits": {GPU: "50"}}


def view(env: str = "uuid", reported: Reported = DIMENSIONS) -> FakeView:
    return FakeView(policy=parse_policy(f"gpu: {{env: {env}}}"), reported=reported)


def gang(*containers: Json, **spec: Any) -> Json:
    listed = [{"name": f"c{number}", "image": "x", **one} for number, one in enumerate(containers)]
    return rack_job(pod_spec={"restartPolicy": "Never", "containers": listed, **spec})


def create(job: Json, seen: FakeView) -> Json:
    return apply(job, mutate(review(job), seen, 0.0))


def update(old: Json, new: Json, seen: FakeView) -> tuple[Json, Response]:
    answer = mutate(review(new, old=old), seen, 0.0)
    return apply(new, answer), answer


def envs(job: Json, kind: str = "containers") -> list[Any]:
    return [one.get("env") for one in job["spec"]["template"]["spec"][kind]]


@pytest.mark.parametrize("env", ["uuid", "minor"])
def test_containers_that_request_gpus_get_the_variable(env: str) -> None:
    """Init containers too; those without GPUs do not."""
    init = [{"name": "i", "image": "x", "resources": HALF}, {"name": "j", "image": "x"}]
    stored = create(gang({"resources": HALF}, {}, initContainers=init), view(env))
    assert envs(stored) == [[OURS], None]
    assert envs(stored, "initContainers") == [[OURS], None]


def test_whole_gpus_get_it_where_they_become_koordinator_s() -> None:
    """A device plugin that counts GPUs sets the variable by itself."""
    whole = gang({"resources": {"limits": {NVIDIA: "2"}}})
    assert envs(create(whole, view())) == [[OURS]]
    assert envs(create(whole, view(reported=Reported(frozenset({NVIDIA}))))) == [None]


def test_without_the_policy_nothing_is_added() -> None:
    assert envs(create(gang({"resources": HALF}), view("none"))) == [None]


def test_a_variable_of_the_user_stays() -> None:
    """Whatever its value; his other variables stay in their order."""
    own = {"name": ENV, "value": "all"}
    other = {"name": "A", "value": "b"}
    stored = create(gang({"resources": HALF, "env": [own]}, {"resources": HALF, "env": [other]}), view())
    assert envs(stored) == [[own], [other, OURS]]


@pytest.mark.parametrize("own", [{"value": "all"}, {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}])
def test_a_variable_that_its_user_applies_later_is_his(own: Json) -> None:
    """`kubectl apply` merges it into ours by its name; the API server refuses two sources."""
    job = gang({"resources": HALF})
    template = {"metadata": {}, "spec": job["spec"]["template"]["spec"]}
    metadata = {"name": "s", "namespace": "ml", "uid": "u-1", "annotations": {names.REQUIRE: "rack"}}
    stored = create(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": {"template": template}}, view()
    )
    sent = copy.deepcopy(stored)
    (variable,) = envs(sent)[0]
    sources = {"valueFrom": {**OURS["valueFrom"], **own.get("valueFrom", {})}}
    variable |= own | sources
    assert envs(update(stored, sent, view())[0]) == [[{"name": ENV, **own}]]


def test_a_second_pass_and_a_second_apply_change_nothing() -> None:
    """Of a held Job, and of a running one, whose template is immutable."""
    file = gang({"resources": HALF, "env": [{"name": "A", "value": "b"}]})
    stored = create(file, view())
    assert mutate(review(stored), view(), 0.0).patch == ()
    held = live(stored)
    again = copy.deepcopy(held)
    again["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]
    assert update(held, again, view())[0] == held
    running = live(edited(stored, suspend=False), started=True)
    again = copy.deepcopy(running)
    del again["spec"]["template"]["spec"]["containers"][0]["env"][1]
    assert update(running, again, view())[0] == running


@pytest.mark.parametrize("name", [[], {}, None, 1, [names.VISIBLE_DEVICES_VARIABLE]], ids=repr)
def test_a_variable_whose_name_is_no_text_stays_as_it_is(name: Any) -> None:
    """The API server refuses it with a message of its own; kinds without a schema of pods may keep it."""
    odd = {"name": name, "value": "b"}
    stored = create(gang({"resources": HALF, "env": [odd, "none", odd]}), view())
    assert envs(stored) == [[odd, "none", odd, OURS]]
    assert envs(create(stored, view("none"))) == [[odd, "none", odd]]


def test_a_copy_of_a_stored_object_without_a_request_loses_it() -> None:
    """The annotation would be missing, and the container would see no GPU."""
    stored = create(gang({"resources": HALF}), view())
    del stored["metadata"]["annotations"]
    assert not envs(create(stored, view()))[0]
    stored = create(gang({"resources": HALF}), view())
    assert not envs(create(stored, view("none")))[0]


def job_set(job: Json) -> Json:
    """A JobSet with the annotations and the pods of a Job."""
    part = {"name": "w", "replicas": 1, "template": {"spec": {"template": job["spec"]["template"], "parallelism": 4}}}
    spec = {"suspend": job["spec"]["suspend"], "replicatedJobs": [part]}
    metadata = {key: value for key, value in job["metadata"].items() if key != "creationTimestamp"}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def containers(workload: Json) -> Any:
    spec = workload["spec"]
    return (spec.get("replicatedJobs") or [{"template": workload}])[0]["template"]["spec"]["template"]["spec"][
        "containers"
    ]


ASKED = {names.REQUIRE: "rack"}


@pytest.mark.parametrize("of", [dict, job_set], ids=["Job", "JobSet"])
@pytest.mark.parametrize(
    ("first", "then", "was", "now"),
    [
        ({}, ASKED, "uuid", "uuid"),
        (ASKED, {}, "uuid", "uuid"),
        (ASKED, {names.REQUIRE: "block"}, "none", "uuid"),
        (ASKED, {names.REQUIRE: "block"}, "uuid", "none"),
    ],
    ids=["request added", "request removed", "policy wants it", "policy wants it no more"],
)
def test_containers_of_a_suspended_job_stay_as_they_are(of: Any, first: Json, then: Json, was: str, now: str) -> None:
    """The API server refuses every update that would change them; its pods are handled at their creation."""
    file = edited(gang({"resources": HALF, "env": [{"name": "A", "value": "b"}]}), suspend=True)
    file["metadata"]["annotations"] = first
    stored = live({"status": {}, **create(of(file), view(was))})
    change = copy.deepcopy(stored)
    change["metadata"]["annotations"] = then
    assert containers(update(stored, change, view(now))[0]) == containers(stored)


def test_a_pod_of_an_older_template_gets_it_at_its_creation() -> None:
    job = live(raw_job({names.REQUIRE: "rack"}))
    seen = gang_view(job, ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3"), policy=parse_policy("gpu: {env: uuid}"))
    pod = raw_pod(job, index=1)
    pod["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": {CORE: "50", RATIO: "50"}}}]
    stored = apply(pod, mutate(review(pod, name=""), seen, 0.0))
    assert stored["spec"]["containers"][0]["env"] == [OURS]
    assert apply(stored, mutate(review(stored, name=""), seen, 0.0)) == stored


def test_a_pod_that_may_be_of_nobody_gets_no_variable() -> None:
    """Its owner is not known yet; freed as a pod of no gang, it would see no GPU."""
    pod = raw_pod(live(raw_job({})), index=1)
    pod["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": {CORE: "50", RATIO: "50"}}}]
    stored = apply(pod, mutate(review(pod, name=""), view(), 0.0))
    assert "env" not in stored["spec"]["containers"][0]


@pytest.mark.parametrize(("value", "told"), [("guid", "env"), ("true", "env")])
def test_another_value_is_refused_by_the_policy(value: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_policy(f"gpu: {{env: {value}}}")
