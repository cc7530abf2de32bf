"""Every request key: wrong values, wrong objects, contradictions, changes at UPDATE, and aliases beside it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, Json, apply, gang_view, gpu_container, live, raw_pod, review
from tests.support.admission import raw_job as job_of_gpus
from tests.support.kinds import example
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
NO_NAMES = ("", " ", "a b", "-1", "a/b", "\u202e", "x" * 64, "[]", "a\n")
NO_VALUES = (*NO_NAMES, "0", "null", "TRUE", "9" * 40, "1e9", "x" * 10_000)
NO_HOSTS = ("", " ", "a b", "-1", "a/b", "\u202e", "x" * 254, "[]", "a\n", "A", "a,", "a,,b", ".", "a..b", "x" * 10_000)
NO_TOKENS = ("", " ", "a b", "-1", "a/b", "\u202e", "x" * 64, "[]", "a\n", "x" * 10_000)
NO_SELECTORS = ("", " ", "a b", "-1", "\u202e", "x" * 64, "[]", "a,", "a in b", "a in (b", "a=b=c", "x" * 10_000)
RACK = {names.REQUIRE: "rack"}


def raw_job(annotations: Mapping[str, str] | None = None, **more: Json) -> Json:
    """A Job whose evicted pods are no failures; they have GPUs and a part of an RDMA device, unless it is said what."""
    job = job_of_gpus(annotations, **more)
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    job["spec"]["podFailurePolicy"] = {"rules": [ignored]}
    if "pod_spec" not in more:
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["koordinator.sh/rdma"] = "1"
    return job


@dataclass(frozen=True)
class Key:
    """A good value of a key and another one, what the key needs beside it, and whether a running gang may change it."""

    good: str
    other: str
    beside: Mapping[str, str] = field(default_factory=lambda: RACK)
    wrong: tuple[str, ...] = NO_VALUES
    free: bool = False


KEYS: Mapping[str, Key] = {
    names.REQUIRE: Key("rack", "block", {}),
    names.PREFER: Key("host", "rack", {}),
    names.UNCONSTRAINED: Key("true", "false", {}, free=True),  # "false" takes the request back
    names.TOPOLOGY: Key("default", "west"),
    names.SLICE_TOPOLOGY: Key("host", "rack", {**RACK, names.SLICE_SIZE: "2"}),
    names.SLICE_SIZE: Key("2", "1", {**RACK, names.SLICE_TOPOLOGY: "host"}),
    names.SLICES: Key("host=2", "rack=2", wrong=(*NO_VALUES, "rack", "rack=0", "rack=4,", "rack=3", "host=2,rack=4")),
    names.PROFILE: Key("pack", "balanced"),
    names.COLOCATE: Key("a", "b", wrong=NO_NAMES),
    names.EXCLUSIVE: Key("rack", "block", wrong=(*NO_VALUES, "auto")),
    names.SPREAD: Key("rack", "block", wrong=(*NO_VALUES, "auto")),
    names.SPREAD_GROUP: Key("a", "b", {**RACK, names.SPREAD: "rack"}, wrong=NO_NAMES),
    names.RELAX_AFTER: Key("1m", "2m", free=True),
    names.MIN_AVAILABLE: Key("3", "2", wrong=(*NO_VALUES, "5"), free=True),
    names.SCHEDULE_TIMEOUT: Key("1m", "2m", wrong=(*NO_VALUES, "9s", "none"), free=True),
    names.START_TIMEOUT: Key("1m", "none", wrong=(*NO_VALUES, "169h"), free=True),
    names.RECOVER_TIMEOUT: Key("1m", "none", wrong=(*NO_VALUES, "169h"), free=True),
    names.REPLACE: Key("host-7", "host-7,host-8", wrong=(*NO_HOSTS, ",".join(f"h{i}" for i in range(33))), free=True),
    names.REPLAN: Key("true", "2026-11-23T10:00:00Z", wrong=NO_TOKENS, free=True),
    names.PREEMPTIBLE: Key("false", "true", wrong=tuple(one for one in NO_VALUES if one != "true"), free=True),
    names.GANG_NAME: Key("a", "b", {names.GANG_SIZE: "4"}, wrong=NO_NAMES),
    names.GANG_SIZE: Key("4", "3", {names.GANG_NAME: "a"}),
    names.POD_GROUP: Key("a", "b", {**RACK, names.MIN_AVAILABLE: "4"}, wrong=NO_NAMES, free=True),
    names.DEVICE_SCOPE: Key("pcie", "numa"),
    names.GPU_STRATEGY: Key("spread", "binpack"),
    names.DEVICE_SELECTOR: Key("model=a", "model=b", wrong=(*NO_VALUES, "model", "a=b,a=c", "=x")),
    names.RDMA_SELECTOR: Key("pool=a", "pool!=a", wrong=NO_SELECTORS),
    names.VF_SELECTOR: Key("type=a", "*", wrong=NO_SELECTORS),
    names.RDMA_SCOPE: Key("pcie", "pcie-preferred", wrong=(*NO_VALUES, "numa", "SamePCIe")),
}
OF_PODS = (names.GANG_NAME, names.GANG_SIZE)
OF_WORKLOADS = sorted(KEYS.keys() - {*OF_PODS})
# Aliases have the same forms of values, but for layers of slices.
LAYERS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
ALIASES = [
    *((key, about, dialect) for dialect, keys in names.ALIASES.items() for key, about in keys.items()),
    *((key, about, "kai") for key, (_, about) in names.ALIASES_BESIDE.items()),
]


def asked(key: str, value: str | None = None) -> dict[str, str]:
    return {**KEYS[key].beside, key: KEYS[key].good if value is None else value}


def check(found: Json, **more: Json) -> Response:
    return validate(review(found, **more), FakeView(), 0.0)


def fields(answer: Response) -> list[str]:
    return [cause.field for cause in answer.causes]


def test_every_key_has_a_case() -> None:
    """A new key gets a line in `KEYS`."""
    assert KEYS.keys() == names.REQUEST_KEYS


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, case in KEYS.items() for value in case.wrong])
def test_a_wrong_value_is_refused_at_its_path(key: str, value: str) -> None:
    """On a workload, whatever else it says; the message shows the value and what may stand there instead."""
    answer = check(raw_job(asked(key, value)))
    (cause,) = [one for one in answer.causes if one.field == f"metadata.annotations[{key}]"]
    assert cause.message.startswith(("Invalid value: ", "Unsupported value: "))
    assert any(word in cause.message for word in ("must be", "allowed: ", "must divide", "twice", "not a finer"))
    assert len(cause.message) < 500


@pytest.mark.parametrize("key", OF_WORKLOADS)
def test_a_good_value_is_accepted(key: str) -> None:
    """So the refusals above are about the value."""
    assert check(raw_job(asked(key))).allowed


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_key_that_is_written_as_a_label_is_refused(key: str) -> None:
    """It would be ignored."""
    answer = check(raw_job(RACK, labels={key: "a"}))
    assert fields(answer) == [f"metadata.labels[{key}]"]
    assert answer.causes[0].message == "Forbidden: must be an annotation, not a label"


@pytest.mark.parametrize(
    "key", [key for key, about, _ in ALIASES if about == names.UNCONSTRAINED] + [names.UNCONSTRAINED]
)
def test_a_request_that_is_taken_back_changes_nothing(key: str) -> None:
    """Neither the object nor, without a workload, the pod is held: it may be created while nobody serves."""
    pod = {"containers": [{"name": "main", "image": "x"}]}
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {key: "false"}}, "spec": pod}
    for one in (raw_job({key: "false"}, pod_spec=pod), raw_job(template={key: "false"}, pod_spec=pod), bare):
        answer = mutate(review(one), FakeView(), 0.0)
        assert (answer.allowed, [*answer.patch], [*answer.warnings]) == (True, [], [])
        assert check(one).allowed
        held = copy.deepcopy(one)
        (held["metadata"].get("annotations") or held["spec"]["template"]["metadata"]["annotations"])[key] = "true"
        assert mutate(review(held), FakeView(), 0.0).patch


@pytest.mark.parametrize("key", sorted(KEYS))
def test_on_a_cron_job_it_is_told_where_it_belongs(key: str) -> None:
    """A CronJob is not placed, its Jobs are."""
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "annotations": {key: KEYS[key].good}},
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": raw_job()["spec"]}},
    }
    answer = check(cron)
    assert answer.allowed
    told = f"topogate: {key.partition('/')[2]} belongs in spec.jobTemplate.metadata.annotations"
    assert [text for text in answer.warnings if text.startswith(told)] == list(answer.warnings[:1])


@pytest.mark.parametrize("key", sorted(KEYS))
def test_on_a_job_of_a_job_set_it_is_told_where_it_belongs(key: str) -> None:
    """The gang is the JobSet."""
    made = {"name": "w", "replicas": 1, "template": {"metadata": {"annotations": {key: KEYS[key].good}}}}
    made["template"]["spec"] = raw_job()["spec"]
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "annotations": RACK},
        "spec": {"replicatedJobs": [made]},
    }
    answer = check(job_set)
    assert answer.allowed
    assert answer.warnings[0].startswith("topogate: spec.replicatedJobs[0].template.metadata has no effect: ")


@pytest.mark.parametrize("key", OF_PODS)
def test_keys_of_plain_pods_are_refused_on_a_workload(key: str) -> None:
    """A workload is a gang by itself."""
    answer = check(raw_job({**RACK, **asked(key)}))
    assert f"metadata.annotations[{key}]" in fields(answer)


@pytest.mark.parametrize(
    "key",
    [
        *(names.DEVICE_SCOPE, names.GPU_STRATEGY, names.DEVICE_SELECTOR),
        *(names.RDMA_SELECTOR, names.VF_SELECTOR, names.RDMA_SCOPE),
    ],
)
def test_keys_of_devices_are_refused_on_pods_without_any(key: str) -> None:
    """They would have no effect."""
    answer = check(raw_job(asked(key), pod_spec={"containers": [{"name": "main", "image": "x"}]}))
    assert fields(answer) == [f"metadata.annotations[{key}]"]


@pytest.mark.parametrize(
    "key", [names.MIN_AVAILABLE, names.SPREAD, names.START_TIMEOUT, names.RECOVER_TIMEOUT, names.COLOCATE]
)
def test_on_a_deployment_a_key_without_full_effect_is_told(key: str) -> None:
    """Its pods are placed one by one, and it cannot be suspended."""
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "annotations": asked(key)},
        "spec": {"replicas": 4, "template": {"spec": {"containers": [gpu_container()]}}},
    }
    answer = check(deployment)
    assert answer.allowed
    assert any(key.partition("/")[2] in text for text in answer.warnings)


@pytest.mark.parametrize("key", OF_WORKLOADS)
def test_a_template_that_says_something_else_is_refused_and_the_same_is_not(key: str) -> None:
    """The message names both places."""
    same, other = KEYS[key].good, KEYS[key].other
    assert check(raw_job(asked(key), template={key: same})).allowed
    answer = check(raw_job(asked(key), template={key: other}))
    (cause,) = [one for one in answer.causes if one.field.startswith("spec.template.metadata.annotations")]
    if other != "west":  # a topology that does not exist
        assert cause.message.endswith(f"contradicts metadata.annotations[{key}]; keep one of them")


@pytest.mark.parametrize(("key", "about", "dialect"), ALIASES)
def test_an_alias_beside_the_key_says_the_same_or_is_refused(key: str, about: str, dialect: str) -> None:
    """It is read while the policy lists its dialect."""
    case = KEYS[about]
    same, other = case.good, case.other
    if key == LAYERS:
        same, other = (json.dumps([{"topology": level, "size": 2}]) for level in ("host", "rack"))
    # The alias of a slice's size is read beside that of its level.
    beside = {alias: KEYS[names.SLICE_TOPOLOGY].good for alias, _ in [names.ALIASES_BESIDE.get(key, ("", ""))] if alias}
    assert check(raw_job({**asked(about), **beside, key: same})).allowed
    answer = check(raw_job({**asked(about), **beside, key: other}))
    assert not answer.allowed
    assert any(key in cause.field or key in cause.message for cause in answer.causes)
    without = parse_policy(
        f"annotations: {{dialects: {[one for one in ('topogate', 'kueue', 'kai') if one != dialect]}}}"
    )
    unread = raw_job({**asked(about), **beside, key: other})
    assert validate(review(unread), FakeView(policy=without), 0.0).allowed


def running(annotations: Mapping[str, str]) -> Json:
    job = live(apply(raw_job(annotations), mutate(review(raw_job(annotations)), FakeView(), 0.0)))
    job["spec"]["suspend"] = False
    del job["metadata"]["annotations"][names.HELD_BY]
    return job


@pytest.mark.parametrize("key", OF_WORKLOADS)
def test_a_running_gang_keeps_what_would_need_another_placement(key: str) -> None:
    """Times and minimums may change, the rest is refused with the way to change it; a held gang may change all."""
    case, old = KEYS[key], running(asked(key))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][key] = case.other
    answer = validate(review(new, old=old), gang_view(old, HOSTS), 0.0)
    assert answer.allowed == case.free
    if not case.free:
        assert fields(answer) == [f"metadata.annotations[{key}]"]
    if not case.free and case.other != "west":
        assert answer.causes[0].message.endswith(
            "the gang is placed and running; suspend the Job, change it and resume it"
        )
    held = live(apply(raw_job(asked(key)), mutate(review(raw_job(asked(key))), FakeView(), 0.0)))
    edit = copy.deepcopy(held)
    edit["metadata"]["annotations"][key] = case.other
    assert validate(review(edit, old=held), gang_view(held), 0.0).allowed == (case.other != "west")


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_wrong_value_on_a_plain_pod_is_refused_at_its_path(key: str) -> None:
    """Those of a gang by name have no other object to write it on."""
    gang = {names.GANG_NAME: "a", names.GANG_SIZE: "4"} if key != names.POD_GROUP else {names.MIN_AVAILABLE: "4"}
    pod = raw_pod(annotations={**gang, key: " "}, labels={names.MANAGED: "true"}, owner=None)
    assert f"metadata.annotations[{key}]" in fields(check(pod))


def kind_of(name: str, annotations: Mapping[str, str]) -> Json:
    """An example of a kind with a request."""
    found = copy.deepcopy(example(name)["object"])
    found["metadata"] = {**found["metadata"], "annotations": {**RACK, **annotations}}
    return found


@pytest.mark.parametrize(
    ("kind", "key", "told"),
    [
        ("job", names.REPLACE, "a deleted pod counts as a failure of the Job; use topogate.dev/replan or a podFailure"),
        ("jobset", names.REPLACE, "a deleted pod counts as a failure of the JobSet; use topogate.dev/replan"),
        ("leaderworkerset", names.REPLACE, "deleting one pod restarts its whole group; remove it"),
        (
            "deployment",
            names.REPLAN,
            "a Deployment cannot be suspended and placed again as a whole; topogate.dev/",
        ),
        (
            "statefulset",
            names.REPLAN,
            "a StatefulSet cannot be suspended and placed again as a whole; topogate.dev/",
        ),
        ("leaderworkerset", names.REPLAN, "a LeaderWorkerSet cannot be suspended and placed again as a whole; create "),
    ],
)
def test_a_move_that_the_kind_cannot_make_is_refused_with_what_to_do(kind: str, key: str, told: str) -> None:
    """At CREATE and when the annotation is added later; the same object without it is fine."""
    answer = check(kind_of(kind, {key: "host-7"}))
    (cause,) = answer.causes
    assert (cause.field, answer.code) == (f"metadata.annotations[{key}]", 422)
    assert cause.message.startswith(f"Forbidden: {told}")
    plain = kind_of(kind, {})
    assert check(plain).allowed
    assert not check(kind_of(kind, {key: "host-7"}), old=plain).allowed


@pytest.mark.parametrize("kind", ["deployment", "statefulset", "pytorchjob"])
def test_a_move_that_the_kind_can_make_is_accepted(kind: str) -> None:
    """Deleting one of its pods costs no more than the pod's work."""
    assert check(kind_of(kind, {names.REPLACE: "host-7"})).allowed


@pytest.mark.parametrize("key", [names.REPLACE, names.REPLAN])
def test_a_plain_pod_is_not_moved(key: str) -> None:
    """Nobody creates it again."""
    gang = {names.GANG_NAME: "a", names.GANG_SIZE: "4", **RACK}
    pod = raw_pod(annotations={**gang, key: "host-7"}, labels={names.MANAGED: "true"}, owner=None)
    assert fields(check(pod)) == [f"metadata.annotations[{key}]"]


@pytest.mark.parametrize("key", [names.REPLACE, names.REPLAN])
def test_a_move_of_a_workload_without_a_request_is_refused(key: str) -> None:
    """It has no gang."""
    answer = check(raw_job({key: "host-7"}))
    assert fields(answer) == [f"metadata.annotations[{names.REQUIRE}]"]


def test_a_replan_that_is_false_asks_for_nothing() -> None:
    """Also on a kind that could not."""
    assert check(kind_of("deployment", {names.REPLAN: "false"})).allowed


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        (HOSTS[1], []),
        ("b0-r0-h11", ["topogate: replace: none of its pods is on b0-r0-h11"]),
        (f"x1,x2,{HOSTS[0]}", ["topogate: replace: none of its pods is on x1 and 1 more"]),
        ("x" * 253, [f"topogate: replace: none of its pods is on {'x' * 60}..."]),
    ],
)
def test_a_host_that_the_gang_does_not_use_is_told(hosts: str, told: list[str]) -> None:
    """Mostly a typo; without slots nothing is known about its hosts."""
    old = running(RACK)
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][names.REPLACE] = hosts
    answer = validate(review(new, old=old), gang_view(old, HOSTS), 0.0)
    assert (answer.allowed, [text for text in answer.warnings if "replace" in text]) == (True, told)
    assert all(len(text) <= 120 for text in answer.warnings)
    assert validate(review(new, old=new), gang_view(new, HOSTS), 0.0).warnings == ()
