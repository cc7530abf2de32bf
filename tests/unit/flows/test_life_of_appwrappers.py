"""Gangs of AppWrappers with components whose pods no label of their kind tells apart: each pod gets its own slot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.decoding import pods
from engine.gang.gang import is_beside, pod_set_with
from tests.support.admission import FakeView, Json, apply, gpu_container, review
from tests.support.cluster_records import gpu_nodes
from tests.support.kinds import workload_of
from tests.support.leader import Leader
from webhook.handlers.mutate import mutate

SPEC: Json = {"containers": [gpu_container()]}


def component(kind: str, name: str, **spec: Any) -> Json:
    version = {"Pod": "v1", "Job": "batch/v1"}.get(kind, "apps/v1")
    inner = SPEC if kind == "Pod" else {"template": {"spec": SPEC}, **spec}
    return {"template": {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": inner}}


def created(*components: Json) -> Json:
    """An AppWrapper that asks, as the leader has resumed it."""
    metadata = {"name": "wrap", "namespace": "ml", "uid": "uid-wrap", "annotations": {names.REQUIRE: "rack"}}
    spec = {"components": [*components], "suspend": False}
    raw: Json = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": metadata}
    found = apply(raw | {"spec": spec}, mutate(review(raw | {"spec": spec}), FakeView(), 0.0))
    found["spec"]["suspend"] = False
    found["metadata"]["annotations"].pop(names.HELD_BY)
    return found


def pod(wrapper: Json, number: int, component: int, labels: Json) -> Any:
    """A pod as it is made from the marked template of a component."""
    inner = wrapper["spec"]["components"][component]["template"]
    template = inner if inner["kind"] == "Pod" else inner["spec"].get("template")
    if template is None:
        template = inner["spec"].get("rayClusterSpec", inner["spec"])["headGroupSpec"]["template"]
    owner = {"apiVersion": wrapper["apiVersion"], "kind": "AppWrapper", "name": "wrap", "uid": "uid-wrap"}
    metadata = {
        "name": f"p{number}",
        "namespace": "ml",
        "uid": f"uid-{number}",
        "resourceVersion": str(20 + number),
        "labels": {**template["metadata"]["labels"], **labels},
        "ownerReferences": [{**owner, "controller": True}],
    }
    return pods.pod({"metadata": metadata, "spec": template["spec"]})


def of_job(index: int) -> Json:
    return {"batch.kubernetes.io/job-name": "train", names.COMPLETION_INDEX: str(index)}


def ray_job(name: str) -> Json:
    """Nobody knows the name of its cluster before that is made."""
    spec = {"rayClusterSpec": {"headGroupSpec": {"template": {"spec": SPEC}}}}
    return {"template": {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": spec}}


def ray_cluster(name: str) -> Json:
    inner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}}
    return {"template": {**inner, "spec": {"headGroupSpec": {"template": {"spec": SPEC}}}}}


JOB = component("Job", "train", parallelism=2, completions=2, completionMode="Indexed")


@pytest.mark.parametrize(
    ("components", "made"),
    [
        ((component("Pod", "a"), component("Pod", "b")), [(0, {}), (1, {})]),
        ((ray_job("a"), ray_job("b")), [(0, {"ray.io/node-type": "head"}), (1, {"ray.io/node-type": "head"})]),
        (
            (ray_job("a"), ray_cluster("b")),
            [
                (0, {"ray.io/node-type": "head", "ray.io/cluster": "a-x7p2k"}),
                (1, {"ray.io/node-type": "head", "ray.io/cluster": "b"}),
            ],
        ),
        (
            (component("Deployment", "serve", replicas=2), JOB),
            [(0, {}), (0, {}), (1, of_job(0)), (1, of_job(1))],
        ),
        (
            (component("StatefulSet", "servers", replicas=1), component("StatefulSet", "more", replicas=1), JOB),
            [
                (0, {"apps.kubernetes.io/pod-index": "0"}),
                (1, {"apps.kubernetes.io/pod-index": "0"}),
                (2, of_job(0)),
                (2, of_job(1)),
            ],
        ),
    ],
    ids=["Pods", "RayJobs", "RayJob and RayCluster", "Deployment and Job", "StatefulSets and Job"],
)
def test_each_pod_takes_a_slot_of_its_own_component(components: tuple[Json, ...], made: list[tuple[int, Json]]) -> None:
    """The first component would else be taken to have all pods, and those beyond its slots be held for ever."""
    wrapper = created(*components)
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(replace(workload_of(wrapper), resource_version="5"))
    leader.settle()
    leader.has(*(pod(wrapper, number, *one) for number, one in enumerate(made)))
    leader.settle()
    leader.later(20.0)
    assert sorted(leader.hands.of("release")) == [f"p{number}" for number in range(len(made))]
    assert leader.hands.pod_events == []


def test_the_submitter_of_a_ray_job_takes_no_slot_of_a_component_without_a_label() -> None:
    """Its pods are in no gang, also beside a Deployment whose pods have no label that others do not have."""
    ray = ray_job("a")
    ray["template"]["spec"]["submitterPodTemplate"] = {"spec": SPEC}
    workload = workload_of(created(ray, component("Deployment", "serve", replicas=1)))
    labels = {"batch.kubernetes.io/job-name": "a"}
    metadata = {"name": "a-x7p2k", "namespace": "ml", "uid": "uid-a", "resourceVersion": "1", "labels": labels}
    submitter = pods.pod({"metadata": metadata, "spec": SPEC})
    assert is_beside(submitter, workload)
    assert pod_set_with(labels, workload) is None
    served = pod_set_with({names.POD_SET: "1-main"}, workload)
    assert served is not None
    assert served.name == "1-main"
