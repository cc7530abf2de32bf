"""What is read of pod (anti-)affinity and topology spread, and what is named in a warning instead."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from engine.api.pod import PodConstraints, PodTerm, SelectorRequirement, SpreadConstraint
from engine.decoding.pod_constraints import MAX_APART, MAX_LABELS
from engine.decoding.pods import pod

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
RACK = "example.com/rack"
MANY = [str(number) for number in range(50_000)]
IS_WEB = SelectorRequirement("app", "In", ("web",))


def decoded(spec: Json, labels: dict[str, str] | None = None) -> Any:
    body = {"metadata": {"name": "p", "namespace": "team", "labels": labels or {"app": "web"}}, "spec": spec}
    return pod(json.dumps(body).encode()).spec


def near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def apart(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def spread(**more: Any) -> Json:
    one = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [one]}


def term(**more: Any) -> Json:
    return {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "web"}}, **more}


@pytest.mark.parametrize(
    ("names", "crosses"),
    [({}, False), ({"namespaces": []}, False), ({"namespaces": ["team"]}, True), ({"namespaceSelector": {}}, True)],
)
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_a_term_that_names_namespaces_is_under_the_quota_scope_for_them(
    kind: str, names: Json, *, crosses: bool
) -> None:
    """Required or preferred; its own namespace too, by name."""
    required = {"affinity": {kind: {REQUIRED: [term(), term(**names)]}}}
    weighted = [{"weight": 1}, {"weight": 1, "podAffinityTerm": term(**names)}]
    preferred = {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}
    assert (decoded(required).cross_namespace, decoded(preferred).cross_namespace) == (crosses, crosses)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (term(), PodTerm(RACK, (IS_WEB,), ("team",))),
        (term(namespaces=["b", "a"]), PodTerm(RACK, (IS_WEB,), ("a", "b"))),
        (term(namespaceSelector={}), PodTerm(RACK, (IS_WEB,), (), ())),
        (
            term(namespaces=["a"], namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "b"}}),
            PodTerm(RACK, (IS_WEB,), ("a",), (SelectorRequirement("kubernetes.io/metadata.name", "In", ("b",)),)),
        ),
        (term(labelSelector=None), PodTerm(RACK, None, ("team",))),
        (term(labelSelector={}), PodTerm(RACK, (), ("team",))),
        (
            term(labelSelector={"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, matchLabelKeys=["app"]),
            PodTerm(RACK, (SelectorRequirement("tier", "Exists", ()), IS_WEB), ("team",)),
        ),
        (
            term(labelSelector={}, mismatchLabelKeys=["app"]),
            PodTerm(RACK, (SelectorRequirement("app", "NotIn", ("web",)),), ("team",)),
        ),
    ],
)
def test_a_term_is_read_as_the_scheduler_reads_it(written: Json, read: PodTerm) -> None:
    """Namespaces, selectors and the pod's own values; the same for affinity and anti-affinity."""
    assert decoded(near(written)).constraints == PodConstraints(affinity=(read,))
    assert decoded(apart(written)).constraints == PodConstraints(anti_affinity=(read,))
    assert decoded(near(written)).unmodelled == ()


def test_a_spread_constraint_is_read_with_its_policies() -> None:
    """And with the defaults of those that are left out."""
    full = spread(
        labelSelector={"matchLabels": {"app": "web"}},
        minDomains=3,
        nodeAffinityPolicy="Ignore",
        nodeTaintsPolicy="Honor",
        matchLabelKeys=["app"],
    )
    (one,) = decoded(full).constraints.spread
    assert one == SpreadConstraint(RACK, 1, (IS_WEB, IS_WEB), 3, honor_affinity=False, honor_taints=True)
    (plain,) = decoded(spread(labelSelector={"matchLabels": {"app": "web"}})).constraints.spread
    assert plain == SpreadConstraint(RACK, 1, (IS_WEB,))
    assert decoded(spread(whenUnsatisfiable="ScheduleAnyway")).constraints is None


@pytest.mark.parametrize(
    ("more", "selector"), [({}, None), ({"matchLabelKeys": ["app"]}, (IS_WEB,)), ({"matchLabelKeys": ["hash"]}, None)]
)
def test_an_empty_selector_of_a_spread_constraint_counts_no_pods(more: Json, selector: Any) -> None:
    """The scheduler counts none for it, unless `matchLabelKeys` makes it one that is not empty."""
    (one,) = decoded(spread(labelSelector={}, **more)).constraints.spread
    assert one == SpreadConstraint(RACK, 1, selector)


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        (near(term(topologyKey="")), "pod affinity (no topologyKey)"),
        (near({}), "pod affinity (no topologyKey)"),
        (apart(term(namespaceSelector={"matchLabels": {"team": "x"}})), "pod anti-affinity (namespaceSelector)"),
        (
            near(term(labelSelector={"matchExpressions": [{"key": "app", "operator": "Odd"}]})),
            "pod affinity (invalid selector)",
        ),
        (
            near(term(labelSelector={"matchExpressions": [{"key": "app", "operator": "In"}]})),
            "pod affinity (invalid selector)",
        ),
        (near(term(matchLabelKeys=["hash"])), "pod affinity (matchLabelKeys without such a label)"),
        (spread(maxSkew=0), "topology spread constraints (invalid)"),
        (spread(maxSkew=None), "topology spread constraints (invalid)"),
        (spread(minDomains=0), "topology spread constraints (invalid)"),
        (spread(nodeTaintsPolicy="Perhaps"), "topology spread constraints (invalid)"),
        (
            spread(matchLabelKeys=["hash"], labelSelector={}),
            "topology spread constraints (matchLabelKeys without such a label)",
        ),
    ],
)
def test_what_is_not_taken_into_account_is_named(spec: Json, warning: str) -> None:
    """With the reason; a key that a pod lacks adds nothing, but the rest of the term counts."""
    one = decoded(spec)
    assert one.unmodelled == (warning,)
    assert (one.constraints is not None) == ("matchLabelKeys" in warning)


@pytest.mark.parametrize(
    "spec",
    [
        near(*[term(labelSelector={"matchLabels": {"app": f"web-{number}"}}) for number in range(1000)]),
        apart(term(labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": MANY}]})),
        apart(term(labelSelector={"matchLabels": {"app": "x" * 1_000_000}})),
        apart(term(namespaces=[f"n{number}" for number in range(50_000)])),
        {"topologySpreadConstraints": spread()["topologySpreadConstraints"] * 5_000},
    ],
)
def test_huge_constraints_are_bounded(spec: Json) -> None:
    """A thousand terms, or one with very many words: the first ones count, the rest is named, and it takes no time."""
    started = time.process_time()
    one = decoded(spec)
    assert time.process_time() - started < 1.0
    assert any("too many terms" in name for name in one.unmodelled)
    found = one.constraints or PodConstraints()
    assert len(found.affinity) + len(found.anti_affinity) + len(found.spread) <= 1000


def test_the_first_required_terms_of_anti_affinity_count() -> None:
    """Every plan looks at those of all pods; the others are named."""
    terms = [term(labelSelector={"matchLabels": {"app": f"web-{number}"}}) for number in range(MAX_APART + 1)]
    few, many = decoded(apart(*terms[:-1])), decoded(apart(*terms))
    assert few.constraints is not None
    assert len(few.constraints.anti_affinity) == MAX_APART
    assert many.constraints == few.constraints
    assert (few.unmodelled, many.unmodelled) == ((), ("pod anti-affinity beyond 16 terms",))


def test_pods_of_one_template_share_their_constraints() -> None:
    """Whatever the order in which they were written: nothing is kept twice."""
    first = decoded(apart(term(labelSelector={"matchLabels": {"a": "1", "b": "2"}})))
    second = decoded(apart(term(labelSelector={"matchLabels": {"b": "2", "a": "1"}})))
    assert first.constraints is second.constraints


def test_all_labels_of_a_pod_are_kept_but_not_any_number() -> None:
    """Others select by them; a pod with thousands of labels costs no more than one with many."""
    assert decoded({}, {"app": "web", "tier": "x"}).own_labels == ("app", "web", "tier", "x")
    assert len(decoded({}, {f"k{n}": "v" for n in range(5_000)}).own_labels) == 2 * MAX_LABELS
