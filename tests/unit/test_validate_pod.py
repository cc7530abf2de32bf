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


def test_a_bare_pod_that_asks_is_held_with_a_warning() -> None:
    answer = admitted(raw_pod(annotations=ASKS, gates=()))
    assert answer.allowed
    (warning,) = answer.warnings
    assert warning == "topogate: the pod is placed by itself; topogate.dev/gang-name and gang-size make a gang"


def test_a_pod_of_an_unregistered_owner_that_asks_is_held_with_a_warning() -> None:
    """It is no gang: a gang name and a size make one."""
    pod = owned("Thing", "example.com/v1")
    view = FakeView()
    assert {"name": names.GATE} in apply(pod, mutate(review(pod), view, 0.0))["spec"]["schedulingGates"]
    answer = admitted(pod, view)
    assert answer.allowed
    (warning,) = answer.warnings
    assert warning == (
        'topogate: pods of "Thing" are placed one by one, near each other; '
        "topogate.dev/gang-name and gang-size make a gang"
    )


@pytest.mark.parametrize("owner", [None, "Thing"])
@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({names.REQUIRE: "rak"}, names.REQUIRE),
        ({names.REQUIRE: "rack", names.GANG_SIZE: "2"}, names.GANG_SIZE),
        ({names.REQUIRE: "rack", names.MIN_AVAILABLE: "2"}, names.MIN_AVAILABLE),
        ({names.REQUIRE: "rack", names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}, names.SLICE_SIZE),
        ({names.REQUIRE: "rack", names.COLOCATE: "a"}, names.COLOCATE),
        ({names.RELAX_AFTER: "1m"}, names.REQUIRE),
    ],
)
def test_what_a_pod_by_itself_asks_for_wrongly_is_refused(said: dict[str, str], field: str, owner: str | None) -> None:
    pod = raw_pod(annotations=said, gates=()) if owner is None else owned(owner, "example.com/v1")
    pod["metadata"]["annotations"] = said
    answer = admitted(pod)
    assert answer.code == 422
    assert f"metadata.annotations[{field}]" in [cause.field for cause in answer.causes]


def test_a_pod_by_itself_that_lost_our_label_on_the_way_is_refused() -> None:
    """Nobody would hold it."""
    answer = validate(review(owned("Thing", "example.com/v1")), FakeView(), 0.0)
    assert (answer.code, answer.reason) == (403, "Forbidden")


@pytest.mark.parametrize("owner", [None, "Thing"])
@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({names.GANG_NAME: "g"}, names.GANG_SIZE),
        ({names.GANG_NAME: "g", names.GANG_SIZE: "0"}, names.GANG_SIZE),
        ({names.GANG_NAME: "g", names.GANG_SIZE: "many"}, names.GANG_SIZE),
        ({names.GANG_NAME: "g", names.GANG_SIZE: "2", names.REQUIRE: "rak"}, names.REQUIRE),
    ],
)
def test_what_a_pod_of_a_plain_gang_asks_for_wrongly_is_refused(
    said: dict[str, str], field: str, owner: str | None
) -> None:
    pod = raw_pod(annotations=said, gates=()) if owner is None else owned(owner, "example.com/v1")
    pod["metadata"]["annotations"] = said
    answer = admitted(pod)
    assert answer.code == 422
    assert [cause.field for cause in answer.causes] == [f"metadata.annotations[{field}]"]


def test_a_pod_of_a_plain_gang_is_held() -> None:
    """Until as many exist as its gang has."""
    said = {names.GANG_NAME: "g", names.GANG_SIZE: "2"}
    view = FakeView()
    changed = apply(raw_pod(annotations=said, gates=()), mutate(review(raw_pod(annotations=said, gates=())), view, 0.0))
    assert {"name": names.GATE} in changed["spec"]["schedulingGates"]
    assert changed["metadata"]["labels"][names.GANG].startswith("pods-g-")
    assert admitted(raw_pod(annotations=said, gates=())).allowed


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
