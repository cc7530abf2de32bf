"""What is accepted in a request and does less than its user may think is told at submit."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from engine.api import names
from engine.api.text import MAX_WARNING
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, Json, apply, raw_job, review
from tests.support.golden import golden
from tests.support.kinds import example, merged
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

RACK = {names.REQUIRE: "rack"}
GROUP = {names.POD_GROUP_NAME: "g", names.POD_GROUP_MIN: "3"}


def other(kind: str, annotations: Mapping[str, str], patch: Json | None = None, **metadata: Any) -> Json:
    """The example of a kind with these annotations, and something merged into it."""
    found: Json = merged(copy.deepcopy(example(kind)["object"]), patch or {})
    return found | {"metadata": {"name": "train", "namespace": "ml", "annotations": dict(annotations), **metadata}}


def preferring(*parts: str) -> Json:
    """A pod spec with these preferences."""
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    spread = [{"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1, "topologyKey": "x"}] if "spread" in parts else []
    affinity = {part: preferred for part in parts if part != "spread"}
    return {"affinity": affinity, "topologySpreadConstraints": spread}


def workers(kind: str, count: int, **pods: Any) -> Json:
    """A patch of the replicas of a Kubeflow job's workers, and of their pods."""
    specs = {"TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs"}[kind]
    return {"spec": {specs: {"Worker": {"replicas": count, "template": pods}}}}


PREFER_AND_RELAX = {names.PREFER: "rack", names.RELAX_AFTER: "10m"}
COLOCATED = {**RACK, names.COLOCATE: "all"}
EVERY_PREFERENCE = preferring("nodeAffinity", "podAffinity", "podAntiAffinity", "spread")
OTHER_NAMESPACES = {"topologyKey": "x", "namespaceSelector": {"matchLabels": {"team": "a"}}}
UNCOUNTED = {
    "affinity": {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": OTHER_NAMESPACES}]
        }
    },
    "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "x"}],
}

TOLD: Mapping[str, Json] = {
    "relax-after beside prefer-topology": raw_job(PREFER_AND_RELAX),
    "relax-after without a level": raw_job({names.UNCONSTRAINED: "true", names.RELAX_AFTER: "10m"}),
    "relax-after in milliseconds": raw_job({**RACK, names.RELAX_AFTER: "10ms"}),
    "slices of one pod": raw_job({**RACK, names.SLICE_TOPOLOGY: "host", names.SLICE_SIZE: "1"}),
    "colocate on a Job": raw_job(COLOCATED),
    "min-available on a Deployment": other("deployment", {**RACK, names.MIN_AVAILABLE: "1"}),
    "a minimum of the kind above its pods": other(
        "pytorchjob", RACK, {"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": 99}}}}
    ),
    "a pod group's minimum that is no number": raw_job(labels={**GROUP, names.POD_GROUP_MIN: "nine"}),
    "a pod group's minimum above the pods": raw_job(labels={**GROUP, names.POD_GROUP_MIN: "9"}),
    "a pod group's minimum beside a request": raw_job(RACK, template_labels=GROUP),
    "a pod group's minimum beside a request for one pod": raw_job(
        RACK, template_labels=GROUP, parallelism=1, completions=1
    ),
    "a pod group's minimum that another template exceeds": other(
        "tfjob", {}, workers("TFJob", 4, metadata={"labels": {**GROUP, names.POD_GROUP_MIN: "5"}}), labels=GROUP
    ),
    "a start-timeout on a kind that cannot be suspended": other("deployment", {**RACK, names.START_TIMEOUT: "10m"}),
    "a recover-timeout where the policy keeps gangs": raw_job({**RACK, names.RECOVER_TIMEOUT: "10m"}),
    "preemptible where nothing is preempted": raw_job({**RACK, names.PREEMPTIBLE: "false"}),
    "preferences that are not counted": raw_job(RACK, pod_spec=UNCOUNTED),
}

UNTOLD: Mapping[str, Json] = {
    "relax-after beside a level of the gang": other("jobset", {**RACK, names.RELAX_AFTER: "10m"}),
    "relax-after beside a level of one template": other(
        "jobset",
        {names.RELAX_AFTER: "10m"},
        {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "a",
                        "template": {
                            "spec": {"template": {"metadata": {"annotations": RACK}, "spec": {"containers": []}}}
                        },
                    }
                ]
            }
        },
    ),
    "preemptible as every gang is": raw_job({**RACK, names.PREEMPTIBLE: "true"}),
    "a start-timeout": raw_job({**RACK, names.START_TIMEOUT: "10m"}),
    "colocate over two pod sets": other("tfjob", {**RACK, names.COLOCATE: "all"}),
    "a pod group's minimum that is read": raw_job(labels=GROUP),
    "a pod group's minimum over several templates": other("tfjob", {}, workers("TFJob", 4), labels=GROUP),
    "a pod group's minimum on several templates": other("tfjob", {}, workers("TFJob", 4, metadata={"labels": GROUP})),
    "a pod group's minimum of all pods": raw_job(labels={**GROUP, names.POD_GROUP_MIN: "4"}),
    "a pod group's minimum without a group": raw_job(RACK, labels={names.POD_GROUP_MIN: "nine"}),
    "every preference": raw_job(RACK, pod_spec=EVERY_PREFERENCE),
    "required node affinity": raw_job(
        RACK,
        pod_spec={
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
                    }
                }
            }
        },
    ),
}


def submitted(found: Json) -> Response:
    """The answer of `/validate` to what `/mutate` has made of a new object."""
    return validate(review(apply(found, mutate(review(found), FakeView(), 0.0))), FakeView(), 0.0)


def test_the_texts() -> None:
    """Each is one warning that fits a line, and nothing is refused."""
    answers = {case: submitted(found) for case, found in TOLD.items()}
    assert all(answer.allowed for answer in answers.values())
    for case, answer in answers.items():
        assert len(answer.warnings) == 1, case
        assert len(answer.warnings[0]) <= MAX_WARNING
        assert not answer.warnings[0].endswith("...")
    golden("request-warnings", {case: answer.warnings[0] for case, answer in answers.items()})


@pytest.mark.parametrize("case", UNTOLD)
def test_what_does_what_it_says_is_not_warned_of(case: str) -> None:
    """There is no warning about a request that is honoured."""
    answer = submitted(UNTOLD[case])
    assert answer.allowed
    assert answer.warnings == ()


@pytest.mark.parametrize(
    ("preemption", "warnings"),
    [
        ("{}", ("topogate: preemptible has no effect: the policy preempts no gangs (preemption.mode: never)",)),
        (
            "{mode: lower-priority}",
            ("topogate: preemptible has no effect: gangs cannot opt out (policy preemption.protect.annotated: false)",),
        ),
        ("{mode: lower-priority, protect: {annotated: true}}", ()),
        ("{protect: {annotated: true}}", ()),
    ],
)
def test_a_gang_that_opts_out_of_preemption_is_warned_where_it_cannot(
    preemption: str, warnings: tuple[str, ...]
) -> None:
    """The policy's `preemption.protect.annotated` decides."""
    view = FakeView(policy=parse_policy(f"preemption: {preemption}"))
    answer = validate(review(raw_job({**RACK, names.PREEMPTIBLE: "false"})), view, 0.0)
    assert answer.allowed
    assert answer.warnings == warnings
