"""Preferred pod (anti-)affinity and ScheduleAnyway: what is read, how much of it, and what is said of the rest."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from engine.api.pod import PodPreferences, PodSpec, PodTerm, SelectorRequirement, SpreadConstraint, WeightedPodTerm
from engine.decoding.pod_constraints import MAX_PREFERRED
from engine.decoding.pods import pod
from engine.decoding.wire import ProjectionError

Json = dict[str, Any]
RACK = "example.com/rack"
IS_WEB = SelectorRequirement("app", "In", ("web",))
TERM = PodTerm(RACK, (IS_WEB,), ("team",))
LISTED = "preferredDuringSchedulingIgnoredDuringExecution"


def read(near: Any = None, apart: Any = None, spread: Any = None) -> PodSpec:
    affinity = {"podAffinity": {LISTED: near}, "podAntiAffinity": {LISTED: apart}}
    meta = {"name": "p", "namespace": "team", "labels": {"app": "web"}}
    return pod(
        json.dumps({"metadata": meta, "spec": {"affinity": affinity, "topologySpreadConstraints": spread}}).encode()
    ).spec


def term(**more: Any) -> Json:
    return {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "web"}}, **more}


def weighted(weight: Any = 7, **more: Any) -> Json:
    return {"weight": weight, "podAffinityTerm": term(**more)}


def even(**more: Any) -> Json:
    return {"maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway", **term(), **more}


def test_all_three_are_read() -> None:
    """Anti-affinity has a weight below 0; what is required stays apart."""
    found = read([weighted(7)], [weighted(9, namespaces=["b"])], [even(), even(whenUnsatisfiable="DoNotSchedule")])
    assert found.preferred_pods == PodPreferences(
        (WeightedPodTerm(7, TERM), WeightedPodTerm(-9, PodTerm(RACK, (IS_WEB,), ("b",)))),
        (SpreadConstraint(RACK, 2, (IS_WEB,)),),
    )
    assert found.constraints is not None
    assert found.constraints.spread == (SpreadConstraint(RACK, 2, (IS_WEB,)),)
    assert (found.preferences, found.unmodelled) == ((), ())


@pytest.mark.parametrize(
    ("preferred", "weights"),
    [
        (None, []),
        ([], []),
        ([weighted(1_000)], [100]),
        ([weighted(10**30)], [100]),
        ([weighted(0), weighted(-5), weighted(None), {"weight": 7}, {"weight": 7, "podAffinityTerm": None}], []),
        ([weighted(7, labelSelector=None)], []),  # it selects nothing
        ([weighted(7, labelSelector={})], [7]),
        ([weighted(7, namespaceSelector={})], [7]),
        ([weighted(7, matchLabelKeys=["app"])], [7]),
    ],
)
def test_terms_with_a_weight_and_a_selector_count(preferred: Any, weights: list[int]) -> None:
    """The API server refuses pods with other weights; templates of other kinds may have them."""
    for found, sign in ((read(preferred), 1), (read(None, preferred), -1)):
        terms = found.preferred_pods.terms if found.preferred_pods is not None else ()
        assert [one.weight for one in terms] == [sign * weight for weight in weights]
        assert (found.preferences, found.unmodelled) == ((), ())


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"topologyKey": ""}, "no topologyKey"),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "namespaceSelector"),
        ({"matchLabelKeys": ["pod-template-hash"]}, "matchLabelKeys without such a label"),
        ({"mismatchLabelKeys": ["tenant"]}, "matchLabelKeys without such a label"),
        (
            {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}},
            "invalid selector",
        ),
        ({"namespaces": [str(number) for number in range(50_000)]}, "too many terms"),
    ],
)
def test_a_term_that_is_not_counted_is_named(more: Json, why: str) -> None:
    """As a preference: it keeps no pod off a host. The others count."""
    found = read([weighted(), weighted(**more)], [weighted(**more)])
    assert found.preferred_pods == PodPreferences((WeightedPodTerm(7, TERM),))
    assert found.preferences == (f"pod affinity ({why})", f"pod anti-affinity ({why})")
    assert found.unmodelled == ()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"maxSkew": 0}, "invalid"),
        ({"maxSkew": None}, "invalid"),
        ({"nodeTaintsPolicy": "maybe"}, "invalid"),
        ({"matchLabelKeys": ["pod-template-hash"]}, "matchLabelKeys without such a label"),
    ],
)
def test_a_spread_that_is_not_counted_is_named(more: Json, why: str) -> None:
    found = read(spread=[even(**more)])
    assert found.preferred_pods is None
    assert found.preferences == (f"topology spread constraints ({why})",)


def test_so_many_terms_count_and_the_rest_is_told() -> None:
    """Of all sorts together."""
    some = MAX_PREFERRED // 2
    within = read([weighted()] * some, [weighted()] * (some - 1), [even()])
    assert within.preferred_pods is not None
    assert (len(within.preferred_pods.terms), len(within.preferred_pods.spread)) == (MAX_PREFERRED - 1, 1)
    assert within.preferences == ()
    beyond = read([weighted()] * some, [weighted()] * (some + 1), [even()])
    assert beyond.preferred_pods is not None
    assert (len(beyond.preferred_pods.terms), beyond.preferred_pods.spread) == (MAX_PREFERRED, ())
    told = ("pod anti-affinity beyond 100 terms", "topology spread constraints beyond 100 terms")
    assert beyond.preferences == told


def test_a_hostile_list_costs_no_time() -> None:
    start = time.thread_time()
    found = read([weighted()] * 50_000, [weighted()] * 50_000, [even()] * 50_000)
    assert found.preferred_pods is not None
    assert len(found.preferred_pods.terms) <= MAX_PREFERRED
    assert time.thread_time() - start < 10


@pytest.mark.parametrize(
    ("preferred", "path"),
    [
        ("x", LISTED),
        ([7], f"{LISTED}[0]"),
        ([{"weight": "7"}], f"{LISTED}[0].weight"),
        ([{"weight": 1, "podAffinityTerm": []}], f"{LISTED}[0].podAffinityTerm"),
        ([weighted(namespaces="all")], f"{LISTED}[0].podAffinityTerm.namespaces"),
    ],
)
def test_what_is_no_list_of_terms_is_an_error_with_its_path(preferred: Any, path: str) -> None:
    for near, apart in ((preferred, None), (None, preferred)):
        with pytest.raises(ProjectionError) as raised:
            read(near, apart)
        assert path in str(raised.value)
