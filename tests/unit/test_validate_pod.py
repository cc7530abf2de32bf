"""`/validate` on pods that ask for a topology by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from engine import names
from tests.support.admission import (
    FakeView,
    Json,
    apply,
    gang_view,
    live,
    raw_job,
    raw_pod,
    review,
    with_policy,
)
from webhook.mutate import mutate
from webhook.review import Response
from webhook.validate import validate

ASKS = {names.REQUIRE: "rack"}


def admitted(pod: Json, view: FakeView | None = None, **more: Any) -> Response:
    """The answer after `/mutate` has been there."""
    view = view or FakeView()
    return validate(review(apply(pod, mutate(review(pod, **more), view, 0.0)), **more), view, 0.0)


def owned(kind: str, api_version: str = "apps/v1", **more: Any) -> Json:
    pod = raw_pod(annotations=ASKS, gates=(), **more)
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    ]
    return pod


def test_a_bare_pod_that_asks_is_refused() -> None:
    answer = admitted(raw_pod(annotations=ASKS, gates=()))
    assert answer.code == 422
    assert [cause.field for cause in answer.causes] == [f"metadata.annotations[{names.REQUIRE}]"]
    assert "gangs of plain pods are not available" in answer.message


def test_forged_marks_do_not_get_a_bare_pod_past() -> None:
    pod = raw_pod(annotations=ASKS, labels={names.MANAGED: "true"})
    assert not admitted(pod).allowed


def test_a_pod_of_an_unregistered_owner_that_asks_is_refused() -> None:
    answer = admitted(owned("ReplicaSet"))
    assert answer.code == 422
    assert 'pods of "ReplicaSet" cannot be placed' in answer.message


def test_an_unknown_key_on_a_pod_is_refused() -> None:
    assert not admitted(raw_pod(annotations={"topogate.dev/require-topolgy": "rack"}, gates=())).allowed


def test_an_unknown_key_on_a_pod_is_a_warning_where_the_policy_says_so() -> None:
    annotations = with_policy().annotations.model_copy(update={"unknown": "warn"})
    view = FakeView(policy=with_policy(annotations=annotations))
    answer = admitted(raw_pod(annotations={"topogate.dev/x": "rack"}, gates=()), view)
    assert answer.allowed
    assert answer.warnings == ("topogate: metadata.annotations[topogate.dev/x]: no such annotation",)


def test_a_member_of_a_gang_passes() -> None:
    job = live(raw_job(template=ASKS))
    pod = raw_pod(job, labels={}, annotations=ASKS, gates=())
    assert admitted(pod, gang_view(job)).allowed


def test_a_pod_whose_job_is_not_known_yet_is_held_not_refused() -> None:
    job = live(raw_job(template=ASKS))
    assert admitted(raw_pod(job, labels={}, annotations=ASKS, gates=())).allowed


def test_a_member_that_lost_our_label_on_the_way_is_refused() -> None:
    job = live(raw_job(template=ASKS))
    pod = raw_pod(job, labels={}, annotations=ASKS, gates=())
    answer = validate(review(pod), gang_view(job), 0.0)
    assert (answer.code, answer.reason) == (403, "Forbidden")


def test_a_pod_of_a_job_that_another_system_has_passes() -> None:
    alias = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    job = live(raw_job(template=alias, labels={names.KUEUE_QUEUE: "q"}))
    pod = raw_pod(job, labels={}, annotations=alias, gates=())
    assert admitted(pod, gang_view(job)).allowed


def test_a_pod_that_asks_nothing_passes() -> None:
    assert admitted(raw_pod(labels={names.POD_GROUP_NAME: "g"}, gates=())) == Response(allowed=True)


@pytest.mark.parametrize(
    "pod",
    [
        owned("DaemonSet"),
        owned("ReplicaSet", schedulerName="volcano"),
        owned("ReplicaSet", nodeName="n1"),
    ],
)
def test_what_we_stand_aside_for_passes(pod: Json) -> None:
    assert admitted(pod).allowed


def test_pods_in_exempt_namespaces_pass() -> None:
    assert admitted(raw_pod(annotations=ASKS, gates=()), namespace="kube-system").allowed


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_nothing_is_refused_where_the_policy_does_not_enforce(mode: str) -> None:
    assert admitted(raw_pod(annotations=ASKS, gates=()), FakeView(policy=with_policy(mode=mode))).allowed


def test_an_update_of_a_pod_is_nothing_to_judge() -> None:
    pod = raw_pod(annotations=ASKS)
    assert validate(review(pod, old=pod), FakeView(), 0.0).allowed
