"""An UPDATE of an object whose stored version cannot be read: it was wrong, asked for nothing, and is corrected."""

from __future__ import annotations

import math

import pytest

from engine.api import names
from tests.support.admission import UID, FakeView, Json, apply, gpu_container, review
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.mutate_and_check import mutate_and_check
from webhook.handlers.mutate_workload import HELD_AGAIN, LET_GO

ASKS = {names.REQUIRE: "rack"}


def app_wrapper(pods: object, *, asks: bool = False, suspend: bool = True) -> Json:
    spec = {"restartPolicy": "Never", "containers": [gpu_container()]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "part"},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}},
    }
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "train", "namespace": "ml", "uid": UID, "annotations": ASKS if asks else {}},
        "spec": {"suspend": suspend, "components": [{"template": job}]},
    }


def ray_cluster(*groups: str, asks: bool = False, suspend: bool = True) -> Json:
    template = {"spec": {"containers": [gpu_container()]}}
    counts = {"replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "train", "namespace": "ml", "uid": UID, "annotations": ASKS if asks else {}},
        "spec": {
            "suspend": suspend,
            "headGroupSpec": {"template": template},
            "workerGroupSpecs": [{"groupName": name, **counts, "template": template} for name in groups],
        },
    }


def update(old: Json, new: Json) -> tuple[Json, Response]:
    answer = mutate_and_check(review(new, old=old, name="train"), FakeView(), math.inf)
    assert answer.allowed
    return apply(new, answer), answer


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (app_wrapper("four"), app_wrapper(4, asks=True, suspend=False)),
        (ray_cluster("gpu", "gpu"), ray_cluster("gpu", "more", asks=True, suspend=False)),
    ],
    ids=["AppWrapper", "RayCluster"],
)
def test_who_corrects_asks_and_resumes_at_once_is_held(old: Json, new: Json) -> None:
    """As if the stored version had been right; a second time changes nothing."""
    found, answer = update(old, new)
    assert found["metadata"]["labels"][names.REQUESTS_PLACEMENT] == "true"
    assert found["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
    assert found["spec"]["suspend"] is True
    assert HELD_AGAIN in answer.warnings
    assert str(found["spec"]).count(names.GATE) == str(found["spec"]).count("'containers'")
    assert not mutate(review(found, old=old, name="train"), FakeView(), math.inf).patch


def test_one_that_we_held_is_let_go_by_who_resumes_it() -> None:
    """As every held workload is: its pods are made, and wait for their slots."""
    old = ray_cluster("gpu", "gpu")
    old["metadata"]["annotations"] = {**ASKS, names.HELD_BY: names.HELD_BY_SUSPEND}
    new = ray_cluster("gpu", "more", asks=True, suspend=False)
    new["metadata"]["annotations"] = dict(old["metadata"]["annotations"])
    found, answer = update(old, new)
    assert found["spec"]["suspend"] is False
    assert names.HELD_BY not in found["metadata"]["annotations"]
    assert LET_GO in answer.warnings


def test_one_that_runs_is_left_as_it_is() -> None:
    """Its pods exist, and are made from its templates."""
    new = ray_cluster("gpu", "more", asks=True, suspend=False)
    found, _ = update(ray_cluster("gpu", "gpu", suspend=False), new)
    assert found == new


def test_one_that_asks_for_nothing_is_left_as_it_is() -> None:
    found, answer = update(app_wrapper("four"), app_wrapper(4, suspend=False))
    assert found == app_wrapper(4, suspend=False)
    assert not answer.warnings


def test_who_corrects_one_that_runs_and_asks_is_told_that_its_pods_are_not_held() -> None:
    old = ray_cluster("gpu", "gpu", suspend=False)
    _, answer = update(old, ray_cluster("gpu", "more", asks=True, suspend=False))
    assert answer.warnings == (
        "topogate: the request was added after the RayCluster: its pods are not held and stay where they are",
    )
