"""Claim templates of StatefulSets and LeaderWorkerSets: the StorageClasses that narrow the hosts of their pods."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine.api.workload import Workload
from tests.support.kinds import example, merged, workload_of

Json = dict[str, Any]


def template(name: Any, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": spec}


def stateful_set(*templates: Any, pod: Json | None = None, **spec: Any) -> Workload:
    patch = {"metadata": {"name": "web"}, "spec": {"volumeClaimTemplates": list(templates), **spec}}
    raw = merged(example("statefulset")["object"], patch)
    raw["spec"]["template"]["spec"].update(pod or {})
    return workload_of(raw)


def classes(workload: Workload) -> list[tuple[str | None, ...]]:
    return [one.template.volume_classes for one in workload.pod_sets]


def test_each_template_has_its_class_or_the_default_one() -> None:
    found = stateful_set(
        template("data", storageClassName="fast"), template("logs"), template("none", storageClassName="")
    )
    assert classes(found) == [("fast", None, "")]
    assert found.pod_sets[0].claim_series == ("data-web", "logs-web", "none-web")


def test_classes_join_those_of_ephemeral_volumes_once_each() -> None:
    ephemeral = [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "local"}}}}]
    templates = [template(name, storageClassName=one) for name, one in (("a", "fast"), ("b", "local"), ("c", "fast"))]
    assert classes(stateful_set(*templates, pod={"volumes": ephemeral})) == [("local", "fast")]


def test_a_claim_replaces_the_volume_of_its_name() -> None:
    """As its controller does: the pods never have the volume of the template."""
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": f"old-{name}"}} for name in ("data", "other")]
    found = stateful_set(template("data", storageClassName="fast"), pod={"volumes": volumes})
    assert found.template.volume_claims == ("old-other",)
    assert stateful_set(pod={"volumes": volumes}).template.volume_claims == ("old-data", "old-other")


def test_ordinals_may_start_anywhere() -> None:
    assert stateful_set(template("data"), ordinals=None).pod_sets[0].first_ordinal == 0
    assert stateful_set(template("data"), ordinals={"start": 5}).pod_sets[0].first_ordinal == 5


def test_leaders_and_workers_have_the_claims_of_their_set() -> None:
    """Each group has other claims: their names are not looked for."""
    of_set = {
        "leaderTemplate": example("leaderworkerset")["object"]["spec"]["leaderWorkerTemplate"]["workerTemplate"],
        "volumeClaimTemplates": [template("data", storageClassName="fast")],
    }
    raw = merged(example("leaderworkerset")["object"], {"spec": {"leaderWorkerTemplate": of_set}})
    found = workload_of(raw)
    assert classes(found) == [("fast",), ("fast",)]
    assert [one.claim_series for one in found.pod_sets] == [(), ()]


def test_a_stateful_set_inside_of_another_object_has_its_own_names() -> None:
    """A component of an AppWrapper."""
    inner = merged(
        example("statefulset")["object"],
        {"metadata": {"name": "web"}, "spec": {"volumeClaimTemplates": [template("data", storageClassName="fast")]}},
    )
    found = workload_of(merged(example("appwrapper")["object"], {"spec": {"components": [{"template": inner}]}}))
    assert classes(found) == [("fast",)]
    assert found.pod_sets[0].claim_series == ("data-web",)


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        7,
        "data",
        [],
        [["data"]],
        {},
        {"metadata": None, "spec": None},
        {"metadata": "data", "spec": {}},
        {"metadata": {"name": 7}, "spec": {}},
        {"metadata": {"name": ""}},
        {"metadata": {"name": ["data"]}},
        {"metadata": {"name": "bad"}, "spec": {"storageClassName": 7}},
        {"metadata": {"name": "bad"}, "spec": {"storageClassName": {"name": "fast"}}},
    ],
)
def test_what_is_no_template_is_left_out(garbage: Any) -> None:
    """The others count, and the object is read: its API server is the judge of it."""
    assert classes(stateful_set(garbage, template("data", storageClassName="fast"), garbage)) == [("fast",)]
    assert classes(stateful_set(garbage)) == [()]


@pytest.mark.parametrize("garbage", [None, 7, "data", True, {"metadata": {"name": "data"}}])
def test_templates_that_are_no_list_are_none(garbage: Any) -> None:
    raw = merged(example("statefulset")["object"], {"spec": {"volumeClaimTemplates": garbage}})
    assert classes(workload_of(raw)) == [()]


@pytest.mark.parametrize("volumes", [None, 7, "data", {}, [None], [7], [{"name": ["data"]}], [{"name": None}]])
def test_volumes_that_are_none_do_no_harm_beside_templates(volumes: Any) -> None:
    """What the decoder of every pod says of them stays the same."""

    def seen(*templates: Json) -> Any:
        try:
            return stateful_set(*templates, pod={"volumes": volumes}).template.volume_claims
        except ValueError as error:
            return str(error)

    assert seen(template("data")) == seen()


def test_a_thousand_templates_are_named_and_cost_nothing() -> None:
    begun = time.process_time()
    found = stateful_set(*(template(f"data-{one}", storageClassName=f"class-{one}") for one in range(1_000)))
    assert time.process_time() - begun < 1.0
    assert len(found.template.volume_classes) == len(found.pod_sets[0].claim_series) == 64
    assert found.template.unmodelled == ("claim templates beyond 64",)


@pytest.mark.parametrize("name", ["\n", "../../etc", "a" * 1_000_000, "\ud800", "{0}%s", "data-7", "-"])
def test_hostile_names_are_text(name: str) -> None:
    found = stateful_set(template(name, storageClassName=name))
    assert classes(found) == [(name,)]
    assert found.pod_sets[0].claim_series == (f"{name}-web",)


@pytest.mark.parametrize("start", [-1, "5", 2**31, None, [], True])
def test_a_start_that_is_none_breaks_no_class(start: Any) -> None:
    """Where the ranks do not need it. An object that its rank cannot be read of is refused for that."""
    try:
        found = stateful_set(template("data", storageClassName="fast"), ordinals={"start": start})
    except ValueError as error:
        assert "spec.ordinals.start" in str(error)
    else:
        assert classes(found) == [("fast",)]
