"""Whoever asks and gets nothing is told: what we leave to others, and keys that look like ours."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from engine.api import names
from engine.api.text import MAX_WARNING
from engine.gang.warnings import misplaced, misspelt, misspelt_labels
from engine.resources.names import Reported
from tests.support.admission import FakeView, Json, apply, live, raw_job, raw_pod, review, with_policy
from tests.support.golden import golden
from webhook.admission.budget import REVIEW_CPU
from webhook.admission.review import BadReview
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

ASKS = {names.REQUIRE: "rack"}
ALIAS = {"kueue.x-k8s.io/podset-required-topology": "rack"}
DIALECTS = with_policy().annotations.dialects

ASIDE: dict[str, Json] = {
    "schedulerName, misspelt": raw_job(ASKS, pod_spec={"schedulerName": "default-schedular"}),
    "schedulerName": raw_job(ASKS, pod_spec={"schedulerName": "example.com/of-my-own"}),
    "nodeName": raw_job(ASKS, pod_spec={"nodeName": "host-000"}),
    "managedBy": raw_job(ASKS, managedBy="example.com/mine"),
    "queue": raw_job(ASKS, labels={names.KUEUE_QUEUE: "q"}),
    "admitted by Kueue": raw_job(ASKS, template={names.KUEUE_WORKLOAD: "job-train-7-3f9c2"}),
    "gate of Kueue": raw_job(ASKS, pod_spec={"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}),
    "core gang": raw_job(ASKS, scheduling={"gang": {}}),
    "exclusive": raw_job({**ASKS, "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}),
    "misspelt request": raw_job({"topogate.dev/requiretopology": "rack"}, pod_spec={"nodeName": "host-000"}),
    "request as a label": raw_job(labels={names.REQUIRE: "rack"}, pod_spec={"nodeName": "host-000"}),
}


def told(obj: Json, view: FakeView | None = None) -> tuple[str, ...]:
    """What `/validate` warns of after `/mutate` has been there; nothing is refused."""
    view = view or FakeView()
    answer = validate(review(apply(obj, mutate(review(obj), view, 0.0))), view, 0.0)
    assert answer.allowed
    return answer.warnings


def test_whoever_asks_on_what_others_have_is_told_why() -> None:
    """One warning, whole, about a Job and about a pod of the same making."""
    texts = {}
    for title, job in ASIDE.items():
        (warning,) = told(job)
        assert warning.startswith("topogate: left alone: ")
        assert len(warning) <= MAX_WARNING
        texts[title] = warning
        pod = raw_pod(annotations=job["metadata"].get("annotations"), gates=(), **job["spec"]["template"]["spec"])
        if title in ("schedulerName, misspelt", "schedulerName", "nodeName", "gate of Kueue", "exclusive"):
            (warning,) = told(pod)
            texts[f"{title}, of a pod"] = warning
    golden("left-alone", texts)


def test_the_reason_is_said_for_the_count_too() -> None:
    """Once, when the object is made; of what asks for nothing, and of what is managed, none is said."""
    reasons = {
        "schedulerName": "OtherScheduler",
        "nodeName": "NodeNameSet",
        "managedBy": "OtherController",
        "queue": "ManagedByKueue",
        "core gang": "CoreGang",
        "exclusive": "ExclusiveTopology",
    }
    for title, reason in reasons.items():
        job = ASIDE[title]
        assert validate(review(job), FakeView(), 0.0).aside == reason
        assert validate(review(job, old=live(job)), FakeView(), 0.0).aside is None
    alone = raw_pod(annotations=ASKS, gates=(), schedulerName="example.com/of-my-own")
    assert validate(review(alone), FakeView(), 0.0).aside == "OtherScheduler"
    for managed in (raw_job(ASKS), raw_job(), raw_pod(gates=(), nodeName="host-000"), raw_job(labels={"a": "b"})):
        assert validate(review(managed), FakeView(), 0.0).aside is None


def test_whoever_asks_in_an_exempt_namespace_is_told() -> None:
    view = FakeView(policy=with_policy(namespaces=with_policy().namespaces.model_copy(update={"exempt": ("m*",)})))
    for obj in (raw_job(ASKS), raw_pod(annotations=ASKS, gates=())):
        assert told(obj, view) == ('topogate: left alone: the policy exempts the namespace "ml"',)


@pytest.mark.parametrize("title", ["schedulerName", "queue", "nodeName"])
def test_whoever_asks_in_another_system_s_words_is_not_told(title: str) -> None:
    """He asked that system."""
    job = ASIDE[title]
    job = {**job, "metadata": {**job["metadata"], "annotations": ALIAS}}
    assert told(job) == ()


def test_nothing_is_told_of_what_is_placed() -> None:
    assert told(raw_job(ASKS)) == ()
    assert told(raw_job()) == ()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("topogate.io/require-topology", names.REQUIRE),
        ("topogate/require-topology", names.REQUIRE),
        ("topogate.com/gang-size", names.GANG_SIZE),
        ("topogate.dev.example.com/prefer-topology", names.PREFER),
        ("topogate-require-topology", names.REQUIRE),
        ("require-topology", names.REQUIRE),
        ("required-topology", names.REQUIRE),
        ("preferred-topology", names.PREFER),
        ("example.com/require-topology", names.REQUIRE),
        ("kueue.x-k8s.io/podset-requierd-topology", "podset-required-topology"),
        ("kueue.x-k8s.io/podset-prefered-topology", "podset-preferred-topology"),
        ("kueue.x-k8s.io/podset-slice-require-topology", "podset-slice-required-topology"),
        ("require-topolgy", names.REQUIRE),
        ("requireTopology", names.REQUIRE),
        ("prefer_topology", names.PREFER),
        ("perfer-topology", names.PREFER),
        ("example.com/unconstrained-topolgy", names.UNCONSTRAINED),
        ("gang-name", names.GANG_NAME),
        ("min-available", names.MIN_AVAILABLE),
        ("topgate.dev/relax-after", names.RELAX_AFTER),
        ("topo-gate.dev/min-avaliable", names.MIN_AVAILABLE),
        ("kueue.k8s.io/podset-required-topology", names.REQUIRE),
        ("kueue.x-k8s.io/podset-required-topolgy", "podset-required-topology"),
        ("kueue.x-k8s.io/pod-set-preferred-topology", "podset-preferred-topology"),
        ("kueue.x-k8s.io/podset-slice-sise", "podset-slice-size"),
        ("kai.scheduler/topology-required-placment", "topology-required-placement"),
        ("kai.scheduler/topolgy", "topology"),
        ("kai.scheduler/segment-topology-required", "segment-topology-required-placement"),
        ("gang.scheduling.koordinator.sh/min-availble", "min-available"),
        ("gang.scheduling.koordinator.sh/nmae", "name"),
        ("gang.scheduling.koordinator.sh/total-number", None),
        ("gang.scheduling.koordinator.sh/mode", None),
        ("topology", None),  # a word of everybody
        ("example.com/gang-name", None),
        ("performance-topology", None),
        ("targets.example.com/x", None),
        ("kueue.x-k8s.io/podset", None),
        ("kueue.x-k8s.io/pod-group-serving", None),
        ("kai.scheduler/queue", None),
        ("topogate.io/team", None),
        ("topogate", None),
        ("cloud.google.com/gke-tpu-slice-topology", None),
        ("alpha.jobset.sigs.k8s.io/exclusive-topology", None),
        ("kueue.x-k8s.io/podset-required-topology", None),
        ("kueue.x-k8s.io/podset-topology-spreading", None),
        ("topogate.dev/requiretopology", None),  # refused, with a suggestion of its own
        (f"example.com/{'x' * 200}-topology", None),
    ],
)
def test_a_key_that_looks_like_ours_is_told_with_what_it_should_be_called(key: str, meant: str | None) -> None:
    found = [*misspelt([key], dialects=DIALECTS)]
    assert found == ([f"{key} is ignored; did you mean {meant}?"] if meant is not None else [])
    assert all(len(f"topogate: {one}") <= MAX_WARNING for one in found)


@pytest.mark.parametrize("place", ["annotations", "template"])
def test_a_key_that_looks_like_ours_is_told_wherever_it_stands(place: str) -> None:
    foreign: dict[str, Any] = {place: {"topogate.io/require-topology": "rack"}}
    expected = "topogate: topogate.io/require-topology is ignored; did you mean topogate.dev/require-topology?"
    assert told(raw_job(**foreign)) == (expected,)
    assert told(raw_job(**{**foreign, "annotations": {**foreign.get("annotations", {}), **ASKS}})) == (expected,)
    if place == "annotations":
        assert told(raw_pod(gates=(), **foreign)) == (expected,)


WRONG_PLACES = {
    "kueue.x-k8s.io/podset-required-topology": "labels",
    "kai.scheduler/topology": "labels",
    names.KOORDINATOR_GANG_NAME: "labels",
    names.KOORDINATOR_GANG_MIN: "labels",
    names.POD_GROUP_NAME: "annotations",
    names.POD_GROUP_MIN: "annotations",
    names.SCHEDULER_PLUGINS_POD_GROUP: "annotations",
}


@pytest.mark.parametrize(("key", "place"), WRONG_PLACES.items())
def test_a_key_of_another_system_is_told_where_it_belongs(key: str, place: str) -> None:
    """A label that is read as an annotation, or the reverse; on a workload, its template and a pod."""
    keys = {key: "4"}
    right = "must be an annotation" if place == "labels" else "must be a label"
    expected = f"topogate: {place.removesuffix('s')} {key} is ignored: it {right}"
    template = {"template_labels": keys} if place == "labels" else {"template": keys}
    assert told(raw_job(**{place: keys})) == told(raw_job(**template)) == (expected,)
    assert told(raw_pod(**{place: keys}, gates=())) == (expected,)


def test_only_keys_of_dialects_that_the_policy_reads_are_told_where_they_belong() -> None:
    """What nobody reads is no help elsewhere either; the longest key leaves space for the advice."""
    labels = [key for key, place in WRONG_PLACES.items() if place == "labels"]
    annotations = [key for key, place in WRONG_PLACES.items() if place == "annotations"]
    assert [one.split()[1] for one in misplaced(annotations, labels, dialects=("topogate", "kai"))] == [
        "kai.scheduler/topology"
    ]
    longest = max((key for keys in names.ALIASES.values() for key in keys), key=len)
    (text,) = misplaced((), [longest], dialects=DIALECTS)
    assert len(f"topogate: {text}") <= MAX_WARNING


def test_a_misspelt_label_of_a_pod_group_is_told() -> None:
    """Without its minimum the group asks for nothing."""
    labels = {names.POD_GROUP_NAME: "g", f"{names.POD_GROUP_PREFIX}min-availble": "4"}
    expected = f"topogate: label {names.POD_GROUP_PREFIX}min-availble is ignored; did you mean min-available?"
    assert told(raw_job(labels=labels)) == told(raw_job(template_labels=labels)) == (expected,)
    assert told(raw_job(labels={f"{names.POD_GROUP_PREFIX}match-policy": "x"})) == ()


def test_a_misspelt_label_of_a_pod_group_is_told_after_many_right_ones() -> None:
    """However many labels come first; of many wrong ones the first four."""
    right = [names.POD_GROUP_NAME, *(f"{names.POD_GROUP_PREFIX}x{number}" for number in range(40))]
    wrong = [f"{names.POD_GROUP_PREFIX}min-availabl{number}" for number in range(1_000)]
    dialects = ("topogate", "pod-group")
    assert [one.split()[1] for one in misspelt_labels([*right, wrong[0]], dialects=dialects)] == [wrong[0]]
    assert [one.split()[1] for one in misspelt_labels(wrong, dialects=dialects)] == wrong[:4]


def test_few_keys_of_many_are_told() -> None:
    """An object with thousands of them costs no more than its user reads."""
    many = {f"topogate.io/require-topology{number}": "" for number in range(5_000)}
    assert len(told(raw_job(many))) == 4


@pytest.mark.parametrize(
    "keys",
    [
        [f"req{'top' * 100_000}!"],
        [f"x/req{'top' * 100_000}!"],
        [f"{'t-' * 100_000}gate/{'req' * 100_000}"],
        [f"topogate{number:x}/{'xyz' * 10}" for number in range(50_000)],
        [f"x{number:x}/req{'top' * 19}!" for number in range(20_000)],
    ],
    ids=["long", "long name", "long prefix", "many", "many like a level"],
)
def test_no_keys_keep_the_service_busy(keys: list[str]) -> None:
    """Templates of custom resources carry whatever their user likes: nobody has checked these keys before."""
    begun = time.thread_time()
    assert [*misspelt(keys, dialects=DIALECTS)] == []
    assert time.thread_time() - begun < REVIEW_CPU


def test_a_key_that_only_another_dialect_reads_is_not_suggested() -> None:
    """What the policy does not read is no help."""
    keys = ["kueue.x-k8s.io/podset-requierd-topology", "topogate.io/require-topology"]
    assert [one.split()[0] for one in misspelt(keys, dialects=("topogate",))] == ["topogate.io/require-topology"]
    assert [one.split()[0] for one in misspelt(keys, dialects=("kueue",))] == [
        "kueue.x-k8s.io/podset-requierd-topology"
    ]


def test_a_key_that_is_not_read_is_told_on_a_pod() -> None:
    (warning,) = told(raw_pod(annotations={"kai.scheduler/segment-size": "2"}, gates=()))
    assert warning.startswith("topogate: kai.scheduler/segment-size is ignored")


CONTAINER = {"name": "main", "image": "example.com/train:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"containers": [{**CONTAINER, "image": "example.com/train:2"}]}, "containers[0].image"),
        ({"containers": [{**CONTAINER, "command": ["x"]}]}, "containers[0].command"),
        ({"containers": [CONTAINER, {"name": "side"}]}, "containers"),
        ({"initContainers": [CONTAINER]}, "initContainers"),
        ({"priorityClassName": "high"}, "priorityClassName"),
        ({"unknown\u202e": 1}, "unknown\\u202e"),
        ({"containers": [{**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}, None),
        ({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "a"}], "affinity": {"nodeAffinity": {}}}, None),
        ({"schedulingGates": [{"name": "example.com/theirs"}]}, None),
        ({}, None),
    ],
)
def test_a_change_of_a_waiting_job_that_kubernetes_refuses_is_told_with_its_field(
    changes: dict[str, Any], field: str | None
) -> None:
    """The API server's own refusal is the whole pod spec on one line; what may change in a held Job is not told."""
    job = raw_job(ASKS, pod_spec={"containers": [CONTAINER]})
    held = live(apply(job, mutate(review(job), FakeView(), 0.0)))
    edited = copy.deepcopy(held)
    edited["spec"]["template"]["spec"].update(changes)
    warnings = mutate(review(edited, old=held), FakeView(), 0.0).warnings
    assert len(warnings) == (field is not None)
    for text in warnings:
        assert text.startswith(f"topogate: {field}")
        assert text.endswith(" of a Job is fixed: create it again (kubectl replace --force -f FILE)")
        assert text.isprintable()
        assert len(text) <= MAX_WARNING


def test_resources_are_told_where_the_server_keeps_them() -> None:
    """Before Kubernetes 1.36 they are as fixed as an image; what only our translation changed is not told."""
    gpu = {"limits": {"koordinator.sh/gpu": "50"}}
    job = raw_job(ASKS, pod_spec={"containers": [{**CONTAINER, "resources": gpu}]})
    dimensions = Reported(frozenset({"koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"}))
    view = FakeView(resources_fixed=True, reported=dimensions)
    held = live(apply(job, mutate(review(job), view, 0.0)))
    assert "koordinator.sh/gpu-core" in str(held)
    applied = copy.deepcopy(held)
    merged = applied["spec"]["template"]["spec"]["containers"][0]["resources"]
    merged["limits"]["koordinator.sh/gpu"] = "50"
    assert mutate(review(applied, old=held), view, 0.0).warnings == ()
    edited = copy.deepcopy(held)
    edited["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"koordinator.sh/gpu": "25"}}
    assert mutate(review(edited, old=held), FakeView(reported=dimensions), 0.0).warnings == ()
    told = "topogate: containers[0].resources of a Job is fixed: create it again (kubectl replace --force -f FILE)"
    assert mutate(review(edited, old=held), view, 0.0).warnings == (told,)


@pytest.mark.parametrize("key", ["containers", "initContainers"])
@pytest.mark.parametrize("entry", [None, "main", 1])
def test_an_entry_that_is_no_container_is_refused_before_fields_are_compared(key: str, entry: object) -> None:
    """By where it is, in the old object and in the new one."""
    job = raw_job(ASKS, pod_spec={"containers": [CONTAINER], "initContainers": [CONTAINER]})
    held = live(apply(job, mutate(review(job), FakeView(), 0.0)))
    broken = copy.deepcopy(held)
    broken["spec"]["template"]["spec"][key] = [entry]
    for old, new in ((held, broken), (broken, held), (broken, broken)):
        with pytest.raises(BadReview, match=rf"spec\.template\.spec\.{key}\[0\]: Expected `object`"):
            mutate(review(new, old=old), FakeView(), 0.0)


def test_the_fixed_fields_of_other_kinds_are_their_own_business() -> None:
    """A Deployment's image may change at any time."""
    deployment = raw_job(ASKS, pod_spec={"containers": [CONTAINER]})
    deployment |= {"apiVersion": "apps/v1", "kind": "Deployment"}
    edited = copy.deepcopy(deployment)
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/train:2"
    assert mutate(review(edited, old=deployment), FakeView(), 0.0).warnings == ()
