"""Gangs of AppWrappers with components whose pods no label of their kind tells apart: each pod gets its own slot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.decoding import pods
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
        template = inner["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
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


JOB = component("Job", "train", parallelism=2, completions=2, completionMode="Indexed")


@pytest.mark.parametrize(
    ("components", "made"),
    [
        ((component("Pod", "a"), component("Pod", "b")), [(0, {}), (1, {})]),
        ((ray_job("a"), ray_job("b")), [(0, {"ray.io/node-type": "head"}), (1, {"ray.io/node-type": "head"})]),
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
    ids=["Pods", "RayJobs", "Deployment and Job", "StatefulSets and Job"],
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
