"""Requests in the metadata of what a controller will make, judged when its maker is submitted."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from engine.api import names
from engine.api.text import MAX_WARNING
from tests.support.admission import FakeView, Json, apply, review, with_policy
from tests.support.golden import golden
from tests.support.kinds import example
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

RACK = {names.REQUIRE: "rack"}
TYPO = {names.REQUIRE: "rak", "topogate.dev/min-avaliable": "2"}


def cronjob(annotations: Mapping[str, str] = {}, *, job: Any = None, pods: Any = None, **spec: Any) -> Json:
    """A CronJob with annotations of its own, of its Jobs and of their pods; `spec` goes into its Jobs'."""
    found: Json = copy.deepcopy(example("cronjob")["object"])
    found["metadata"]["annotations"] = dict(annotations)
    template = found["spec"]["jobTemplate"]
    template["metadata"] = {"annotations": dict(job or {})}
    template["spec"] |= spec
    template["spec"]["template"]["metadata"] = {"annotations": dict(pods or {})}
    return found


def scheduled(found: Json, scheduler: str) -> Json:
    """The CronJob with a scheduler for its pods."""
    found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["schedulerName"] = scheduler
    return found


def jobset(annotations: Mapping[str, str] = {}, *, job: Any = None, **metadata: Any) -> Json:
    """A JobSet with annotations of its own and of the Jobs of its first replicated job."""
    found: Json = copy.deepcopy(example("jobset")["object"])
    found["metadata"] = {"name": "train", "namespace": "ml", "annotations": dict(annotations), **metadata}
    found["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"annotations": dict(job or {})}
    return found


def appwrapper(annotations: Mapping[str, str] = {}, *, job: Any = None) -> Json:
    """An AppWrapper with annotations of its own and of its first component."""
    found: Json = copy.deepcopy(example("appwrapper")["object"])
    found["metadata"] = {"name": "train", "namespace": "ml", "annotations": dict(annotations)}
    inner = found["spec"]["components"][0]["template"]
    inner.setdefault("metadata", {})["annotations"] = dict(job or {})
    return found


def rayjob(annotations: Mapping[str, str] = {}, *, submitter: Any = None) -> Json:
    """A RayJob with annotations of its own and of the pod that submits it."""
    found: Json = copy.deepcopy(example("rayjob")["object"])
    found["metadata"] = {"name": "train", "namespace": "ml", "annotations": dict(annotations)}
    pods = {"containers": [{"name": "main", "image": "x"}]}
    found["spec"]["submitterPodTemplate"] = {"metadata": {"annotations": dict(submitter or {})}, "spec": pods}
    return found


def carrying(kind: str, *steps: str | int, annotations: Any, own: Any = None, under: str = "annotations") -> Json:
    """The example of a kind with annotations (or labels) in a part of it, and with some of its own."""
    found: Json = copy.deepcopy(example(kind)["object"])
    found["metadata"] = {"name": "train", "namespace": "ml", "annotations": dict(own or {})}
    part: Any = found
    for step in steps:
        part = part[step] if isinstance(step, int) else part.setdefault(step, {})
    part[under] = dict(annotations)
    return found


def patched_runtime(annotations: Mapping[str, str]) -> Json:
    """A TrainJob that patches the metadata of the JobSet that is made for it."""
    found = carrying("trainjob", annotations={}, own={})
    template = {"metadata": {"annotations": dict(annotations)}}
    found["spec"]["runtimePatches"] = [{"manager": "me", "trainingRuntimeSpec": {"template": template}}]
    return found


def patched_jobs(annotations: Mapping[str, str], own: Mapping[str, str] = {}) -> Json:
    """A TrainJob that patches the metadata of the Jobs of the JobSet that is made for it."""
    found: Json = copy.deepcopy(example("trainjob")["object"])
    found["metadata"] = {"name": "train", "namespace": "ml", "annotations": dict(own)}
    job = {"name": "node", "template": {"metadata": {"annotations": dict(annotations)}}}
    runtime = {"template": {"spec": {"replicatedJobs": [job]}}}
    found["spec"]["runtimePatches"] = [{"manager": "me", "trainingRuntimeSpec": runtime}]
    return found


def configured(settings: Any, own: Mapping[str, str] = {}) -> Json:
    """A SparkApplication with settings of Spark."""
    found: Json = copy.deepcopy(example("sparkapplication")["object"])
    found["metadata"] = {"name": "train", "namespace": "ml", "annotations": dict(own)}
    found["spec"]["sparkConf"] = settings
    return found


def with_claims(kind: str, *steps: str, part: str = "annotations", keys: Mapping[str, str] = RACK) -> Json:
    """The example of a kind with a request in the metadata of the claims that it makes."""
    found: Json = copy.deepcopy(example(kind)["object"])
    found["metadata"] = {"name": "train", "namespace": "ml"}
    at: Any = found["spec"]
    for step in steps[:-1]:
        at = at[step]
    claims = [{"metadata": {"name": "data", part: dict(keys)}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    at[steps[-1]] = [{"templates": claims}] if kind == "jobset" else claims
    return found


def wrapped(*inner: Json, own: Mapping[str, str] = {}) -> Json:
    """An AppWrapper around some objects."""
    found: Json = copy.deepcopy(example("appwrapper")["object"])
    found["metadata"] = {"name": "train", "namespace": "ml", "annotations": dict(own)}
    found["spec"]["components"] = [{"template": one} for one in inner]
    return found


def service(annotations: Mapping[str, str]) -> Json:
    """A Service, which has no pods."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "annotations": dict(annotations)}}


def ray(kind: str, *steps: str | int, **more: Any) -> Json:
    """A kind of Ray with a request in a part of it."""
    cluster = {"raycluster": (), "rayjob": ("rayClusterSpec",), "rayservice": ("rayClusterConfig",)}[kind]
    return carrying(kind, "spec", *cluster, *steps, **more)


def submitted(found: Json, view: FakeView | None = None, **more: Any) -> Response:
    view = view or FakeView()
    return validate(review(apply(found, mutate(review(found, **more), view, 0.0)), **more), view, 0.0)


def lines(answer: Response) -> str:
    refused = [f"{cause.field}: {cause.message}" for cause in answer.causes]
    return "\n".join((*refused, *answer.warnings)) or "-"


CASES: Mapping[str, Json] = {
    "a CronJob whose Jobs ask": cronjob(job=RACK),
    "a CronJob with typos in the Jobs' metadata": cronjob(job=TYPO),
    "a CronJob with a typo in the pods' metadata": cronjob(pods={names.REQUIRE: "rak"}),
    "a CronJob whose Jobs are too large": cronjob(job=RACK, parallelism=20_000),
    "a CronJob that asks itself": cronjob(RACK),
    "a CronJob whose Jobs name another scheduler": scheduled(cronjob(job=RACK), "default-schedular"),
    "a CronJob with a misspelt foreign key": cronjob(job={"kueue.x-k8s.io/podset-requierd-topology": "rack"}),
    "a CronJob that itself has foreign keys that are not read": cronjob(
        {"kai.scheduler/segment-size": "4", "volcano.sh/network-topology-mode": "hard"}
    ),
    "a CronJob that itself asks for KAI's segments": cronjob(
        {"kai.scheduler/segment-size": "4", "kai.scheduler/segment-topology-required-placement": "rack"}
    ),
    "a CronJob that itself asks for layers of slices and a profile": cronjob(
        {names.SLICES: "rack=4", names.PROFILE: "balanced"}
    ),
    "a CronJob with a foreign key that is not read": cronjob(job={**RACK, "kai.scheduler/segment-size": "4"}),
    "a JobSet whose Jobs ask": jobset(job=RACK),
    "a JobSet with typos in its Jobs' metadata": jobset(job=TYPO),
    "a JobSet with layers of slices and a profile in its Jobs' metadata": jobset(
        RACK, job={names.SLICES: "rack=4", names.PROFILE: "balanced"}
    ),
    "a JobSet with another tool's topology in its Jobs' metadata": jobset(
        RACK, job={"volcano.sh/network-topology-mode": "hard", "kai.scheduler/pod-index-label": "x"}
    ),
    "a JobSet that asks, and so do its Jobs": jobset(RACK, job=RACK),
    "a JobSet that asks, with typos in its Jobs' metadata": jobset(RACK, job=TYPO),
    "a RayJob whose submitter asks": rayjob(submitter=RACK),
    "a RayJob that asks, and so does its submitter": rayjob(RACK, submitter=RACK),
    "a RayJob that asks, whose submitter is Kueue's": rayjob(RACK, submitter={names.KUEUE_WORKLOAD: "w"}),
    "a RayJob whose submitter has a foreign key that is not read": rayjob(
        submitter={"kai.scheduler/segment-size": "4"}
    ),
    "a RayJob that asks": rayjob(RACK),
    "an AppWrapper whose component asks": appwrapper(job=RACK),
    "an AppWrapper with typos in a component's metadata": appwrapper(job=TYPO),
    "a request in an AppWrapper's component": carrying("appwrapper", "spec", "components", 0, annotations=RACK),
    "a request in a pod set of a component": carrying(
        "appwrapper", "spec", "components", 1, "podSets", 0, annotations=RACK
    ),
    "a request in a driver's annotations": carrying("sparkapplication", "spec", "driver", annotations=RACK),
    "a request in a driver's labels": carrying("sparkapplication", "spec", "driver", annotations=RACK, under="labels"),
    "a typo in executors' annotations, of what asks": carrying(
        "sparkapplication", "spec", "executor", annotations=TYPO, own=RACK
    ),
    "an alias in executors' annotations": carrying(
        "sparkapplication", "spec", "executor", annotations={"kueue.x-k8s.io/podset-required-topology": "rack"}
    ),
    "a foreign key that is not read in executors' annotations": carrying(
        "sparkapplication", "spec", "executor", annotations={"kai.scheduler/segment-size": "4"}
    ),
    "another prefix in executors' annotations": carrying(
        "sparkapplication", "spec", "executor", annotations={"topogate.io/require-topology": "rack"}
    ),
    "other annotations of a driver": carrying("sparkapplication", "spec", "driver", annotations={"example.com/x": "y"}),
    "annotations that are none": carrying("sparkapplication", "spec", annotations={})
    | {"spec": {"driver": {"annotations": 3}}},
    "a gang of Koordinator's with a minimum that is no text": carrying(
        "sparkapplication",
        "spec",
        "driver",
        annotations={
            names.KOORDINATOR_GANG_NAME: "g",
            names.KOORDINATOR_GANG_MIN: 2,
            names.KOORDINATOR_GANG_WAIT: None,
        },
    ),
    "a RayJob whose submitter has one": rayjob(
        submitter={names.KOORDINATOR_GANG_NAME: "g", names.KOORDINATOR_GANG_MIN: 2}
    ),
    "a request in a TrainJob's spec": carrying("trainjob", "spec", annotations=RACK),
    "a request in a TrainJob's patch of its runtime": patched_runtime(RACK),
    "a request in a TrainJob's patch of its Jobs": patched_jobs(RACK),
    "a request in the patch of the Jobs of a TrainJob that asks": patched_jobs(RACK, own=RACK),
    "a typo in a TrainJob's patch of its Jobs": patched_jobs({names.REQUIRE: "rak"}),
    "a request in the claims of a StatefulSet": with_claims("statefulset", "volumeClaimTemplates"),
    "a request in the labels of the claims of a StatefulSet": with_claims(
        "statefulset", "volumeClaimTemplates", part="labels"
    ),
    "a typo in the claims of a StatefulSet": with_claims(
        "statefulset", "volumeClaimTemplates", keys={"topogate.dev/requier-topology": "rack"}
    ),
    "other annotations in the claims of a StatefulSet": with_claims(
        "statefulset", "volumeClaimTemplates", keys={"example.com/x": "y"}
    ),
    "a request in the claims of a LeaderWorkerSet": with_claims(
        "leaderworkerset", "leaderWorkerTemplate", "volumeClaimTemplates"
    ),
    "a request in the claims of a JobSet": with_claims("jobset", "volumeClaimPolicies"),
    "a request in the labels of a RayCluster's head": ray(
        "raycluster", "headGroupSpec", annotations=RACK, under="labels"
    ),
    "a pod group in the labels of a RayCluster's workers": ray(
        "raycluster", "workerGroupSpecs", 0, annotations={names.POD_GROUP_NAME: "g"}, under="labels"
    ),
    "a request in the labels of a RayJob's workers": ray(
        "rayjob", "workerGroupSpecs", 0, annotations=RACK, under="labels"
    ),
    "a request in the Service of a RayJob's head": ray(
        "rayjob", "headGroupSpec", "headService", "metadata", annotations=RACK
    ),
    "a request in the Service of a RayService": carrying(
        "rayservice", "spec", "serveService", "metadata", annotations=RACK
    ),
    "an AppWrapper with a JobSet whose Jobs ask": wrapped(jobset(job=RACK)),
    "an AppWrapper with a JobSet that asks, and so do its Jobs": wrapped(jobset(RACK, job=RACK)),
    "an AppWrapper that asks, with a JobSet whose Jobs ask": wrapped(jobset(job=RACK), own=RACK),
    "an AppWrapper with a typo in the Jobs of a JobSet": wrapped(jobset(job=TYPO)),
    "an AppWrapper with a Service that asks": wrapped(jobset(), service(RACK)),
    "an AppWrapper with a Service without a request": wrapped(jobset(), service({"example.com/x": "y"})),
    "an AppWrapper with a Service whose metadata is none": wrapped(jobset(), service({}) | {"metadata": [3]}),
    "requests in Spark's settings": configured(
        {f"spark.kubernetes.{pod}.annotation.{names.REQUIRE}": "rack" for pod in ("driver", "executor")}
    ),
    "a misspelt and a foreign key in the settings of an application that asks": configured(
        {
            "spark.kubernetes.driver.annotation.topogate.dev/requier-topology": "rack",
            "spark.kubernetes.executor.annotation.kueue.x-k8s.io/podset-required-topology": "rack",
        },
        own=RACK,
    ),
    "other settings of Spark": configured({"spark.kubernetes.driver.annotation.example.com/x": "y", "spark.x": "1"}),
    "settings that are none": configured([1]),
    "a setting that is no text": configured({f"spark.kubernetes.driver.annotation.{names.REQUIRE}": 3}),
}


def test_the_texts() -> None:
    """What is wrong is refused at its path in the maker; what is right and does something else is a warning."""
    answers = {case: submitted(found) for case, found in CASES.items()}
    assert all(len(text) <= MAX_WARNING for answer in answers.values() for text in answer.warnings)
    assert not any(text.endswith("...") for answer in answers.values() for text in answer.warnings)
    golden("made-requests", {case: lines(answer) for case, answer in answers.items()})


def test_a_cronjobs_gpus_are_checked_with_its_request() -> None:
    """What every Job of it would be refused for is told once, at submit."""
    found = cronjob(job=RACK)
    container = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"koordinator.sh/gpu-core": "50"}}
    answer = submitted(found)
    assert [cause.field for cause in answer.causes] == [
        "spec.jobTemplate.spec.template.spec.containers[0].resources.limits[koordinator.sh/gpu-core]"
    ]


@pytest.mark.parametrize(
    "found",
    [
        cronjob(job=TYPO) | {"metadata": {"name": "c", "namespace": "ml"}},
        jobset(job=TYPO, labels={names.KUEUE_QUEUE: "q"}),
    ],
    ids=["in an exempt namespace", "of Kueue"],
)
def test_what_others_place_is_none_of_our_business(found: Json) -> None:
    """Exempt namespaces and objects of other systems are told nothing."""
    policy = with_policy(namespaces=with_policy().namespaces.model_copy(update={"exempt": ("ml",)}))
    view = FakeView(policy=policy) if found["kind"] == "CronJob" else FakeView()
    assert lines(submitted(found, view)) == "-"


@pytest.mark.parametrize("make", [cronjob, jobset])
def test_an_old_fault_does_not_block_other_changes(make: Any) -> None:
    """A typo that is stored already stops no change; a new one is refused."""
    old, new = make(job=TYPO), make(job=TYPO)
    new["spec"]["suspend"] = True
    assert validate(review(new, old=old), FakeView(), 0.0).allowed
    assert not validate(review(new, old=make()), FakeView(), 0.0).allowed
