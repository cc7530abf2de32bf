"""`/mutate` as it is served: what it checks itself, because `/validate` is not sent the object."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from engine.api import names
from tests.support.admission import (
    FakeView,
    Json,
    apply,
    gang_view,
    live,
    rack_job,
    raw_job,
    raw_pod,
    review,
    with_policy,
)
from webhook.admission.review import BadReview, Response
from webhook.handlers.mutate_and_check import mutate_and_check
from webhook.handlers.validate import validate

LABEL = {names.REQUESTS_PLACEMENT: "true"}
QUEUE = {names.KUEUE_QUEUE: "q"}


def served(sent: Json, view: FakeView | None = None, **more: Any) -> Response:
    return mutate_and_check(review(sent, **more), view or FakeView(), 0.0)


def stored(job: Json) -> Json:
    """The Job as it is stored after its CREATE."""
    return live(apply(job, served(job)))


def with_gpus(amount: str, *, side: str = "limits", **more: Any) -> Json:
    container = {"name": "main", "image": "x", "resources": {side: {"koordinator.sh/gpu": amount}}}
    return raw_job(pod_spec={"containers": [container]}, **more)


def cron_job(annotations: Mapping[str, str]) -> Json:
    job = raw_job(annotations)
    made = {"metadata": {"annotations": job["metadata"]["annotations"]}, "spec": job["spec"]}
    spec = {"schedule": "* * * * *", "jobTemplate": made}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "ml"}, "spec": spec}


@pytest.mark.parametrize("level", ["rack", "rak"])
def test_a_workload_with_a_request_is_labelled_and_left_to_validate(level: str) -> None:
    """Also with a wrong request, so that the user sees its errors beside those of the API server."""
    job = raw_job({names.REQUIRE: level})
    answer = served(job)
    assert answer.allowed
    assert apply(job, answer)["metadata"]["labels"] == LABEL


def test_a_second_call_changes_nothing() -> None:
    """The label is none of a user's, and no reason for a warning."""
    job = stored(rack_job())
    again = served(job)
    assert (again.patch, again.warnings) == ((), ())


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_label_of_a_user_is_removed_where_nothing_is_requested(value: str) -> None:
    """It would have every change of the object wait for the service."""
    job = raw_job(labels={names.REQUESTS_PLACEMENT: value, "app": "x"})
    answer = served(job)
    assert apply(job, answer)["metadata"]["labels"] == {"app": "x"}
    assert answer.warnings == ("topogate: removed, as only topogate sets them: requests-placement",)


def test_a_user_cannot_keep_a_request_from_being_validated() -> None:
    """An update without the label, or with another value, gets it back."""
    old = stored(rack_job())
    for labels in ({}, {names.REQUESTS_PLACEMENT: "no"}):
        new = copy.deepcopy(old)
        new["metadata"]["labels"] = labels
        assert apply(new, served(new, old=old))["metadata"]["labels"] == LABEL


def test_a_workload_from_before_the_label_gets_it_at_its_next_change() -> None:
    old = stored(rack_job())
    del old["metadata"]["labels"]
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = 2
    assert apply(new, served(new, old=old))["metadata"]["labels"] == LABEL


def test_the_label_goes_with_the_request() -> None:
    old = stored(rack_job())
    new = copy.deepcopy(old)
    del new["metadata"]["annotations"][names.REQUIRE]
    assert names.REQUESTS_PLACEMENT not in apply(new, served(new, old=old))["metadata"]["labels"]


def test_what_another_system_places_gets_its_warning_unchanged() -> None:
    answer = served(rack_job(labels=QUEUE))
    assert answer.allowed
    assert answer.patch == ()
    assert any("left alone" in text for text in answer.warnings)
    assert answer.aside == "ManagedByKueue"


def test_errors_in_a_request_for_devices_are_refused() -> None:
    """With the user's own path, and as `/validate` words them."""
    job = with_gpus("0")
    answer = served(job)
    assert not answer.allowed
    assert answer.causes == validate(review(job), FakeView(), 0.0).causes
    assert answer.causes[0].field.startswith("spec.template.spec.containers[0].resources")


def test_a_request_for_devices_is_translated_and_checked_as_it_is_then() -> None:
    """A request alone gets limits, as the API server wants them; the warning is of the result."""
    job = with_gpus("50", side="requests")
    answer = served(job)
    resources = apply(job, answer)["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    assert answer.warnings == validate(review(apply(job, answer)), FakeView(), 0.0).warnings != ()
    assert "labels" not in apply(job, answer)["metadata"]


def test_errors_of_a_cron_job_are_refused() -> None:
    """Nothing of it is changed."""
    assert served(cron_job({names.REQUIRE: "rack"})).patch == ()
    refused = served(cron_job({names.REQUIRE: "rak"}))
    assert [cause.field for cause in refused.causes] == [f"spec.jobTemplate.metadata.annotations[{names.REQUIRE}]"]


def test_where_gangs_are_only_observed_the_warnings_come_from_here() -> None:
    """Nothing is labelled there."""
    answer = served(raw_job({names.REQUIRE: "rak"}), FakeView(policy=with_policy(mode="observe")))
    assert answer.allowed
    assert answer.patch == ()
    assert any("would be refused" in text for text in answer.warnings)


def test_the_request_of_a_running_gang_cannot_be_removed_unseen() -> None:
    """Of one from before the label, too: the API server would not send it to `/validate`."""
    old = stored(rack_job())
    old["spec"]["suspend"], old["status"] = False, {"startTime": "2026-11-21T08:00:00Z"}
    del old["metadata"]["labels"], old["metadata"]["annotations"][names.HELD_BY]
    new = copy.deepcopy(old)
    del new["metadata"]["annotations"][names.REQUIRE]
    refused = served(new, gang_view(old, ["b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3"]), old=old)
    assert not refused.allowed
    assert "would lose its slots" in refused.message


@pytest.mark.parametrize(("key", "warned"), [("topogate.io/require-topology", True), ("example.com/x", False)])
def test_a_key_that_resembles_ours_gets_its_warning_on_a_labelled_workload(key: str, warned: bool) -> None:
    """Such a change is not sent to `/validate`, which is for changes of the spec and of our keys."""
    old = stored(rack_job())
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][key] = "rack"
    answer = served(new, old=old)
    assert answer.allowed
    assert any(key in text for text in answer.warnings) == warned


def test_a_change_of_the_spec_is_left_to_validate() -> None:
    old = stored(rack_job())
    new = copy.deepcopy(old)
    new["spec"]["parallelism"] = -1
    new["metadata"]["annotations"][names.REQUIRE] = "rak"
    assert served(new, old=old).allowed


def test_a_pod_that_asks_is_labelled_and_left_to_validate() -> None:
    for level in ("rack", "rak"):
        pod = raw_pod(annotations={names.REQUIRE: level}, gates=())
        answer = served(pod)
        assert answer.allowed
        assert apply(pod, answer)["metadata"]["labels"][names.MANAGED] == "true"


def test_a_pod_without_the_label_is_checked() -> None:
    """Its warning, and its errors in a request for devices."""
    aside = served(raw_pod(annotations={names.REQUIRE: "rack"}, labels=QUEUE, gates=()))
    assert (aside.patch, aside.aside) == ((), "ManagedByKueue")
    assert any("left alone" in text for text in aside.warnings)
    container = {"name": "main", "image": "x", "resources": {"limits": {"koordinator.sh/gpu": "0"}}}
    refused = served(raw_pod(gates=(), containers=[container]))
    assert [cause.field for cause in refused.causes] == ["spec.containers[0].resources.limits[koordinator.sh/gpu]"]


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
def test_a_pod_cannot_choose_its_devices(mode: str) -> None:
    """In no mode, as devices are counted wherever the pod is."""
    forged = {names.DEVICE_ALLOCATED: json.dumps({"gpu": [{"minor": 0}]})}
    refused = served(raw_pod(annotations=forged, gates=()), FakeView(policy=with_policy(mode=mode)))
    assert [cause.field for cause in refused.causes] == [f"metadata.annotations[{names.DEVICE_ALLOCATED}]"]


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_other_operations_pass(operation: str) -> None:
    assert served(rack_job(), operation=operation) == Response(allowed=True)


@pytest.mark.parametrize("metadata", [None, [], {"labels": []}, {"labels": {"a": 1}}])
def test_a_job_with_malformed_metadata_is_a_bad_review(metadata: Any) -> None:
    """HTTP 400, so that the failure policy decides; or it passes to the API server's own validation."""
    job = rack_job()
    job["metadata"] = metadata
    try:
        assert served(job).allowed
    except BadReview as bad:
        assert bad.status == 400


def test_a_number_that_no_reader_takes_is_refused_as_by_validate() -> None:
    """With a request it must not be admitted unread; the body itself is well-formed."""
    job = rack_job()
    body = json.dumps({**job, "spec": {**job["spec"], "parallelism": 7}}).replace(": 7", ": " + "9" * 5_000)
    sent = replace(review(job), object=msgspec.Raw(body.encode()))
    assert mutate_and_check(sent, FakeView(), 0.0) == validate(sent, FakeView(), 0.0)
    assert not mutate_and_check(sent, FakeView(), 0.0).allowed
