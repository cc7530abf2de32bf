"""Foreign keys that are known and not read are named, with what helps."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import names
from engine.api.text import MAX_WARNING
from engine.gang.warnings import HELP
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, raw_job, review
from tests.support.golden import golden
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

KEYS = sorted(key for keys in names.UNREAD.values() for key in keys)
SEGMENTS = {"kai.scheduler/segment-size": "4"}
SEGMENT_LEVEL = {"kai.scheduler/segment-topology-required-placement": "rack"}


def told(
    annotations: dict[str, str] | None = None, *, policy: str = "{}", namespace: str = "ml", **job: Any
) -> Response:
    asked = review(raw_job(annotations, **job), namespace=namespace)
    return validate(asked, FakeView(policy=parse_policy(policy)), 0.0)


def test_each_key_is_told_with_what_helps() -> None:
    """A key that asks for what is not there yet is named in a warning, whole, together with what to use instead."""
    assert set(HELP) == set(KEYS)
    answers = {key: told({key: "x"}) for key in KEYS}
    assert all(answer.allowed and len(answer.warnings) == 1 for answer in answers.values())
    assert all(len(f"topogate: {key} {text}") <= MAX_WARNING for key, text in HELP.items())
    golden("unread-keys", {key: "\n".join(answer.warnings) for key, answer in answers.items()})


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_told_wherever_its_tool_reads_it(key: str) -> None:
    """On a template, and on a pod that nobody made; the match conditions send both."""
    named = f"topogate: {key} is ignored"
    assert [text[: len(named)] for text in told(template={key: "x"}).warnings] == [named]
    alone = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {key: "x"}}}
    alone["spec"] = {"containers": [{"name": "main", "image": "example.com/train:1"}]}
    answer = validate(review(alone, namespace="ml"), FakeView(policy=parse_policy("{}")), 0.0)
    assert answer.allowed
    assert [text[: len(named)] for text in answer.warnings] == [named]


def test_beside_a_request_it_is_told_too() -> None:
    """The request is honoured, and the warning says which key of it is not."""
    answer = told({names.REQUIRE: "rack", **SEGMENTS})
    assert answer.warnings[0].startswith("topogate: kai.scheduler/segment-size is ignored")


def test_a_segment_s_size_is_read_beside_its_required_level() -> None:
    """On the workload or its template; a preferred level of segments stays unread."""
    assert (told(SEGMENT_LEVEL, template=SEGMENTS).allowed, told(SEGMENT_LEVEL | SEGMENTS).warnings) == (True, ())
    preferred = {"kai.scheduler/segment-topology-preferred-placement": "rack"}
    keys = [text.split()[1] for text in told(preferred | SEGMENTS).warnings]
    assert keys == ["kai.scheduler/segment-size", "kai.scheduler/segment-topology-preferred-placement"]
    refused = told(SEGMENT_LEVEL)
    assert not refused.allowed
    assert [error.reason for error in refused.errors] == ["MissingValue"]


def test_a_key_on_the_template_and_on_the_workload_is_told_once() -> None:
    """Where it stands makes no difference."""
    assert len(told(SEGMENTS, template=SEGMENTS).warnings) == 1


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"policy": "annotations: {dialects: [topogate, kueue]}"},
        {"pod_spec": {"schedulerName": "kai-scheduler"}},
        {"labels": {names.KUEUE_QUEUE: "q"}},
        {"namespace": "kube-system"},
    ],
    ids=str,
)
def test_whom_somebody_else_places_is_told_nothing(elsewhere: dict[str, Any]) -> None:
    """The key has its meaning where another system reads it, and no business of ours where the dialect is off."""
    assert told(SEGMENTS, **elsewhere).warnings == ()


@pytest.mark.parametrize("annotations", [{names.REQUIRE: "rack"}, {names.KAI_GROUP: "g"}, {}])
def test_a_part_of_a_group_of_kai_is_told_beside_a_request_or_a_group(annotations: dict[str, str]) -> None:
    """Alone it means nothing to KAI either."""
    label = {names.KAI_SUBGROUP: "leaders"}
    named = f"topogate: label {names.KAI_SUBGROUP} is ignored"
    for one in (told(annotations, labels=label), told(annotations, template_labels=label)):
        assert one.allowed
        assert [named in text for text in one.warnings].count(True) == bool(annotations)
        assert all(len(text) <= MAX_WARNING for text in one.warnings)
    without = told(annotations, labels=label, policy="annotations: {dialects: [topogate]}")
    assert not any(named in text for text in without.warnings)


@pytest.mark.parametrize("on_job", [False, True])
def test_the_node_selector_of_an_exclusive_job_set_is_its_own(on_job: bool) -> None:
    """JobSet reads the key beside its exclusive-topology alone; such a JobSet is not ours, so that nobody is warned."""
    keys = {"alpha.jobset.sigs.k8s.io/node-selector": "true", "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    spec = raw_job()["spec"]
    job = {"name": "w", "replicas": 1, "template": {"metadata": {"annotations": keys if on_job else {}}, "spec": spec}}
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "annotations": {} if on_job else keys},
        "spec": {"replicatedJobs": [job]},
    }
    answer = validate(review(job_set, namespace="ml"), FakeView(policy=parse_policy("{}")), 0.0)
    assert (answer.allowed, answer.warnings) == (True, ())
    mutated = mutate(review(job_set, namespace="ml"), FakeView(policy=parse_policy("{}")), 0.0)
    assert not mutated.patch


@pytest.mark.parametrize(
    "key", [names.REQUIRE, names.TOPOLOGY, names.SLICE_SIZE, names.SCHEDULE_TIMEOUT, names.PROFILE]
)
def test_a_value_of_any_length_is_refused_in_the_same_words(key: str) -> None:
    """Though no more than the read part of it is kept."""
    short, long = (told({names.REQUIRE: "rack", key: "x" * length}) for length in (100, 200_000))
    assert not long.allowed
    assert (long.code, long.message) == (short.code, short.message)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (names.SLICES, ",".join(["rack=4"] * 40_000)),
        ("kueue.x-k8s.io/podset-slice-required-topology-constraints", "[" + " " * 200_000 + "]"),
        (names.DEVICE_SELECTOR, ",".join(f"a{at}=b" for at in range(30_000))),
        (names.DEVICE_ALLOCATE_HINT, "{}" + " " * 200_000),
    ],
)
def test_a_list_that_is_too_long_is_refused_for_its_length(key: str, value: str) -> None:
    """What is kept of it would mean something else."""
    answer = told({names.REQUIRE: "rack", key: value}, policy="annotations: {dialects: [topogate, kueue]}")
    assert [error.message for error in answer.errors] == ["must be at most 16,384 characters long"]
