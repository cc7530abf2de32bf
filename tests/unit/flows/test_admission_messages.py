"""What the admission handlers say, word for word."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from engine.api import names
from engine.api.text import MAX_WARNING
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
)
from tests.support.golden import golden
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.mutate_workload import HELD_AGAIN, LET_GO
from webhook.handlers.validate import validate

HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
RACK = {names.REQUIRE: "rack"}

CREATED: Mapping[str, Json] = {
    "a typo in a level": raw_job({names.REQUIRE: "rak"}),
    "a topology that is not there": raw_job(RACK | {names.TOPOLOGY: "west"}),
    "prefer is not finer than require": raw_job(RACK | {names.PREFER: "block"}),
    "a level and unconstrained": raw_job(RACK | {names.UNCONSTRAINED: "true"}),
    "workload and template disagree": raw_job(RACK, template={names.REQUIRE: "block"}),
    "an alias disagrees": raw_job(RACK | {"kueue.x-k8s.io/podset-required-topology": "block"}),
    "a typo in a key": raw_job({"topogate.dev/requires-topology": "rack"}),
    "a key that means nothing": raw_job({"topogate.dev/zzz": "rack"}),
    "a label instead of an annotation": raw_job(labels=RACK),
    "no level": raw_job({names.TOPOLOGY: "default"}),
    "values that are none": raw_job(
        RACK
        | {
            names.SLICE_SIZE: "-2",
            names.RELAX_AFTER: "soon",
            names.COLOCATE: "a b",
            names.UNCONSTRAINED: "yes",
        }
    ),
    "features that are not there yet": raw_job(
        RACK
        | {
            names.SLICE_TOPOLOGY: "rack",
            names.SLICE_SIZE: "2",
            names.MIN_AVAILABLE: "30",
            names.GANG_NAME: "g",
        }
    ),
    "a move of one pod that would count as a failure": raw_job(RACK | {names.REPLACE: "host-7"}),
    "too many pods": rack_job(parallelism=20_000, completions=20_000),
    "a negative count": rack_job(parallelism=-1),
    "a pod without its gang": raw_pod(
        annotations={**RACK, names.GANG_SIZE: "4"}, labels={names.MANAGED: "true"}, gates=()
    ),
}


def lines(answer: Response) -> str:
    return "\n".join(f"{cause.field}: {cause.message}" for cause in answer.causes)


def running() -> Json:
    job = live(apply(rack_job(), mutate(review(rack_job()), FakeView(), 0.0)))
    job["spec"]["suspend"] = False
    del job["metadata"]["annotations"][names.HELD_BY]
    return job


def test_the_texts_of_refusals_at_create() -> None:
    golden("refusals-at-create", {case: lines(validate(review(obj), FakeView(), 0.0)) for case, obj in CREATED.items()})


def test_the_texts_of_refusals_at_update() -> None:
    old = running()
    ours, request = copy.deepcopy(old), copy.deepcopy(old)
    ours["metadata"]["annotations"] |= {names.HELD_BY: "suspend", names.RANK: "1"}
    request["metadata"]["annotations"][names.REQUIRE] = "block"
    cases = {"what is ours": ours, "another request": request}
    view = gang_view(old, HOSTS)
    golden(
        "refusals-at-update", {case: lines(validate(review(new, old=old), view, 0.0)) for case, new in cases.items()}
    )


def test_our_warnings_fit_a_line() -> None:
    claims = [{"name": "gpu"}]
    asked = [
        validate(review(job), FakeView(), 0.0)
        for job in (raw_job(labels={names.POD_GROUP_NAME: "g"}), rack_job(pod_spec={"resourceClaims": claims}))
    ]
    warnings = [HELD_AGAIN, LET_GO, *(text for answer in asked for text in answer.warnings)]
    assert len(warnings) == 4
    assert all(text.startswith("topogate: ") and not text.endswith("…") for text in warnings)
    assert all(len(text) <= MAX_WARNING for text in warnings)
