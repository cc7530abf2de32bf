"""Explanations of any cluster: a change that is promised to place a gang places it, and the numbers agree."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import names
from tests.property.test_queries import clusters
from tests.support.simulation import grid, policy_map, priority_class
from tests.support.snapshots import snapshot, waiting_placement, waits
from webhook.explanations.explain import explain
from webhook.queries.model import ExplainedGang, WayOut
from webhook.queries.subject import subject_of

Json = dict[str, Any]


def explained(cluster: list[Json], name: str) -> ExplainedGang:
    found = snapshot(cluster)
    (one,) = explain(found, [subject_of(found, f"job/{name}", namespace="alice")]).gangs
    return one


def waiting(cluster: list[Json]) -> list[str]:
    return [one["metadata"]["name"] for one in cluster if one["kind"] == "Job" and one["spec"].get("suspend")]


def applied(cluster: list[Json], name: str, way: WayOut) -> list[Json]:
    """The cluster in which somebody has done what a way out says."""
    changed = copy.deepcopy(cluster)
    job = next(one for one in changed if one["kind"] == "Job" and one["metadata"]["name"] == name)
    template, annotations = job["spec"]["template"]["spec"], job["metadata"]["annotations"]
    match way.change:
        case "level":
            annotations[names.REQUIRE] = way.to
        case "prefer":
            annotations[names.PREFER] = annotations.pop(names.REQUIRE)
        case "pods":
            job["spec"] |= {"parallelism": int(way.to or 0), "completions": int(way.to or 0)}
        case "toleration":
            template["tolerations"] = [{"key": way.to, "operator": "Exists"}]
        case "selector":
            template.pop("nodeSelector", None)
        case "priority":
            template["priorityClassName"] = way.to
    return changed


@st.composite
def crowded(draw: st.DrawFn) -> list[Json]:
    """A cluster with waiting gangs, some of them with a priority or a selector that some hosts match."""
    found = [*draw(clusters()), priority_class("high", 1000), priority_class("higher", 2000)]
    if draw(st.booleans()):
        found.append({**found[0], **{"metadata": {"name": "stray", "labels": {}}}})
    for one in found:
        if one["kind"] == "Job" and one["spec"].get("suspend"):
            template = one["spec"]["template"]["spec"]
            if draw(st.integers(0, 3)) == 0:
                template["priorityClassName"] = "high"
            if draw(st.integers(0, 5)) == 0:
                template["nodeSelector"] = {"kubernetes.io/hostname": "none"}
    if draw(st.booleans()):
        for one in [one for one in found if one["kind"] == "Job" and one["spec"].get("suspend")]:
            name = one["metadata"]["name"]
            if name != "kept":
                known = waiting_placement(name)
                high = one["spec"]["template"]["spec"].get("priorityClassName")
                known["spec"]["priority"] = 1000 if high else 0
                found.append(known)
        text = "queue:\n  order: strict\n"
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": names.POLICY_NAME, "namespace": names.NAMESPACE},
                "data": {names.POLICY_KEY: text},
            }
        )
    return found


@settings(max_examples=60, deadline=None)
@given(crowded())
def test_a_way_out_that_is_promised_places_the_gang(cluster: list[Json]) -> None:
    for name in waiting(cluster):
        found = explained(cluster, name)
        for way in found.ways_out:
            if way.change == "wait":
                continue
            after = explained(applied(cluster, name, way), name)
            assert after.verdict == "fits", (name, way, after.message)


@settings(max_examples=60, deadline=None)
@given(crowded())
def test_one_pod_more_than_promised_does_not_fit(cluster: list[Json]) -> None:
    """The promised number of pods is the largest."""
    for name in waiting(cluster):
        found = explained(cluster, name)
        for way in found.ways_out:
            if way.change == "pods" and int(way.to or 0) + 1 < found.asks[0].pods:
                more = way.model_copy(update={"to": str(int(way.to or 0) + 1)})
                assert explained(applied(cluster, name, more), name).verdict != "fits"


@settings(max_examples=60, deadline=None)
@given(crowded())
def test_levels_and_verdict_agree(cluster: list[Json]) -> None:
    """It fits where its required level has what it needs, unless the order is strict; the nodes add up."""
    nodes = sum(1 for one in cluster if one["kind"] == "Node")
    strict = any(one["kind"] == "ConfigMap" for one in cluster)
    for name in waiting(cluster):
        found = explained(cluster, name)
        if not found.levels:
            continue
        (required,) = (level for level in found.levels if level.required)
        if not (strict and found.reason == "QueuedBehind"):
            assert (found.verdict == "fits") == (required.have >= required.needed), found
        assert sum(found.nodes.values()) == nodes
        assert required.have <= required.most or required.most == 0
        assert all(best.pods <= level.have for level in found.levels for best in level.best)
        on = [host for item in found.in_the_way for host in item.hosts]
        assert len(on) == len(set(on)) or any(item.kind != "host" for item in found.in_the_way)


@settings(max_examples=30, deadline=None)
@given(crowded())
def test_asking_again_gives_the_same_answer(cluster: list[Json]) -> None:
    """Every trial is taken back."""
    found = snapshot(cluster)
    subjects = [subject_of(found, f"job/{name}", namespace="alice") for name in waiting(cluster)]
    first = explain(found, subjects)
    assert explain(found, subjects) == first


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=2, max_size=4), st.booleans())
def test_a_priority_that_is_promised_goes_first(gangs: list[tuple[int, bool]], strict: bool) -> None:
    """On one free rack each gang that waits for others is told a priority, and starts with it."""
    cluster: list[Json] = [*grid(1, 1, 3), priority_class("high", 1000), priority_class("higher", 2000)]
    for number, (pods, high) in enumerate(gangs):
        job, known = waits(f"w{number}", pods, {"require": "rack"}, minute=number), waiting_placement(f"w{number}")
        if high:
            job["spec"]["template"]["spec"]["priorityClassName"] = "high"
            known["spec"]["priority"] = 1000
        cluster += [job, known]
    if strict:
        cluster.append(policy_map("queue:\n  order: strict\n"))
    for name in waiting(cluster):
        found = explained(cluster, name)
        told = [way for way in found.ways_out if way.change == "priority"]
        if found.verdict == "waits":
            assert told, found
        for way in told:
            assert explained(applied(cluster, name, way), name).verdict == "fits"
