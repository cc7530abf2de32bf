"""The processor time of one review: where it is looked at, and what happens to the object when it is used up."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from engine.scheduler.outcome import Waits
from tests.support.admission import FakeView, rack_job, raw_job, raw_pod, review, with_policy
from tests.unit.server.test_app import Asked
from webhook.admission.budget import Budget, BudgetExceeded
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

Json = dict[str, Any]
DEADLINE = 10.0
Path = Callable[[Review, Reader, float], Response]


class Processor:
    """Tells nothing until it was asked `free` times, then more than any budget."""

    def __init__(self, free: int = 1_000_000) -> None:
        self.free = free
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return 0.0 if self.asked <= self.free else 100.0

    def budget(self) -> Budget:
        self.asked = -1  # the budget itself asks first
        return Budget(1.0, cpu=self)


def answered(
    path: Path, obj: Json, *, view: FakeView | None = None, free: int = 0, old: Json | None = None
) -> tuple[Response, Processor, Review]:
    processor = Processor(free)
    asked = replace(review(obj, old=old), budget=processor.budget())
    return path(asked, view or FakeView(), DEADLINE), processor, asked


def ray(groups: int, *, asks: bool = True) -> Json:
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
    workers = [
        {"groupName": f"g{i}", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "template": copy.deepcopy(template)}
        for i in range(groups)
    ]
    metadata: Json = {"name": "train-7", "namespace": "ml", "annotations": {names.REQUIRE: "rack"} if asks else {}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata,
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": workers},
    }


def test_a_check_fails_when_the_time_is_used_up() -> None:
    """It says how much that was, and that it happened."""
    budget = Processor(1).budget()
    budget.check()
    assert not budget.exceeded
    with pytest.raises(BudgetExceeded, match="more than 1 s of processor time"):
        budget.check()
    assert budget.exceeded


@pytest.mark.parametrize("path", [mutate, validate])
def test_an_object_that_asks_is_refused_wherever_its_review_is_broken_off(path: Path) -> None:
    """By name and number, with what to do; and not one operation of a patch that was begun."""
    _, processor, _ = answered(path, ray(3), free=1_000)
    assert processor.asked > 3
    for free in range(processor.asked - 2):  # the last ones are before the forecast, which is a courtesy
        answer, _, asked = answered(path, ray(3), free=free)
        assert asked.budget.exceeded
        assert (answer.allowed, answer.code, answer.causes[0].reason) == (False, 403, "ReviewTooCostly"), free
        assert answer.message.startswith("spec: Forbidden: the review takes more than 1 s of processor time; use fewer")
        assert answer.patch == ()


@pytest.mark.parametrize(
    ("path", "update", "checks"), [(mutate, False, 1), (mutate, True, 2), (validate, False, 1), (validate, True, 2)]
)
def test_every_template_is_a_reason_to_look_at_the_time(path: Path, update: bool, checks: int) -> None:
    """So a review ends soon after its time, however many there are."""

    def looks(groups: int) -> int:
        obj = ray(groups)
        return answered(path, obj, free=1_000, old=copy.deepcopy(obj) if update else None)[1].asked

    assert looks(40) - looks(10) == 30 * checks


@pytest.mark.parametrize("path", [mutate, validate])
@pytest.mark.parametrize(
    ("obj", "view"),
    [
        (ray(3, asks=False), FakeView()),
        (raw_pod(None, gates=()), FakeView()),
        (raw_pod(None, annotations={names.REQUIRE: "rack"}), FakeView()),
        (rack_job(labels={names.KUEUE_QUEUE: "team"}), FakeView()),
        (
            rack_job(),
            FakeView(
                policy=parse_policy("apiVersion: topogate.dev/v1alpha1\nkind: Policy\nnamespaces: {exempt: [ml]}\n")
            ),
        ),
    ],
    ids=["asks for nothing", "a plain pod", "a held pod", "has Kueue", "in an exempt namespace"],
)
def test_what_needs_nothing_of_us_goes_through_as_it_is(path: Path, obj: Json, view: FakeView) -> None:
    """As it would while nobody answers."""
    answer, _, asked = answered(path, obj, view=view)
    assert asked.budget.exceeded
    assert (answer.allowed, answer.patch, answer.warnings) == (True, (), ())


def test_an_object_that_is_being_deleted_goes() -> None:
    """Its finalizers can be taken off, however large it is."""
    obj = rack_job()
    obj["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert answered(mutate, obj, old=rack_job())[0].allowed


@pytest.mark.parametrize(
    "obj",
    [
        raw_job({}, template={names.REQUIRE: "rack"}),
        raw_job({}, template={"kueue.x-k8s.io/podset-required-topology": "rack"}),
        raw_pod(None, annotations={names.REQUIRE: "rack"}, gates=()),
    ],
    ids=["on the template", "in an alias", "a pod without our gate"],
)
def test_wherever_it_asks_it_is_refused(obj: Json) -> None:
    """Let through unread, its pods could start apart."""
    assert answered(mutate, obj)[0].causes[0].reason == "ReviewTooCostly"


def test_an_object_of_a_namespace_with_a_default_asks() -> None:
    """What its namespace asks for stands nowhere in it yet."""
    text = (
        "apiVersion: topogate.dev/v1alpha1\nkind: Policy\n"
        "namespaces: {defaults: [{namespaces: [ml], annotations: {topogate.dev/require-topology: rack}}]}\n"
    )
    answer, _, _ = answered(mutate, raw_job({}), view=FakeView(policy=parse_policy(text)))
    assert answer.causes[0].reason == "ReviewTooCostly"


def test_where_the_policy_only_observes_it_is_told() -> None:
    """Nothing is refused there."""
    answer, _, _ = answered(validate, rack_job(), view=FakeView(policy=with_policy(mode="observe")))
    assert answer.allowed
    assert any("processor time" in warning for warning in answer.warnings)


def test_a_forecast_is_left_out_when_nothing_is_left() -> None:
    """It is a courtesy: the object is taken all the same."""
    view = FakeView(outcome=Waits("Fragmented", "no room"))
    answer, processor, _ = answered(validate, rack_job(), view=view, free=1_000)
    assert (view.forecasts, len(answer.warnings)) == (2, 1)
    for spared in (1, 2):
        view = FakeView(outcome=Waits("Fragmented", "no room"))
        answer, _, asked = answered(validate, rack_job(), view=view, free=processor.asked - spared)
        assert answer.allowed
        assert not asked.budget.exceeded
        assert view.forecasts == 2 - spared


def test_the_application_gives_each_review_its_time_and_counts_those_that_used_it_up() -> None:
    """The budget is the setting's, and a new one for every review."""
    asked = Asked(mutate=lambda review, _: spend(review), review_cpu=0.02)
    for _ in range(2):
        assert asked.post().json["response"]["allowed"] is False
    text = asked.metrics.exposition().decode()
    assert 'topogate_reviews_over_budget_total{path="mutate"} 2.0' in text
    assert 'topogate_reviews_over_budget_total{path="validate"} 0.0' in text


def spend(asked: Review) -> Response:
    """Compute until the time is over."""
    for _ in range(10_000_000):
        if asked.budget.spent:
            break
    return mutate(replace(review(rack_job()), budget=asked.budget), FakeView(), DEADLINE)
