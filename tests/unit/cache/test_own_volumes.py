"""Volumes that pods of a StatefulSet have of their own already: one set of hosts for all, or none and a warning."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from engine.api.pod import PodSpec
from engine.api.workload import Workload
from engine.cache.pod_shapes import PodShapes
from engine.cache.stores import Stores
from engine.decoding import objects
from engine.resources.shape import exclusion
from tests.support.cluster_records import changed, job, node

Json = dict[str, Any]
# Zones a and b with two hosts each.
NODES = [node(f"{zone}{one}", labels={"zone": zone}) for zone in "ab" for one in range(2)]
HOSTS = {one.name for one in NODES}
A, B = {"a0", "a1"}, {"b0", "b1"}


def terms(key: str, *values: str) -> Json:
    found = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": found}}}


ZONE_A, ZONE_B, ANYWHERE = terms("zone", "a"), terms("zone", "b"), dict[str, Any]()


def host(*names: str) -> Json:
    return terms("kubernetes.io/hostname", *names)


def shapes_with(claims: dict[str, Json | None], *, classes: dict[str, str] | None = None) -> PodShapes:
    """Claims by name with the place of their volume; None: not bound."""
    stores = Stores()
    stores.nodes.replace(NODES)
    stores.volume_claims.replace(
        objects.persistent_volume_claim(
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {} if place is None else {"volumeName": f"v-{name}"},
            }
        )
        for name, place in claims.items()
    )
    stores.volumes.replace(
        objects.persistent_volume({"metadata": {"name": f"v-{name}"}, "spec": place})
        for name, place in claims.items()
        if place is not None
    )
    stores.storage_classes.replace(
        objects.storage_class(
            {
                "metadata": {"name": name},
                "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}],
            }
        )
        for name, zone in (classes or {}).items()
    )
    return PodShapes(stores)


def stateful_set(pods: int, *series: str, first: int = 0, **template: Any) -> Workload:
    asked = job(count=pods)
    spec: PodSpec = replace(asked.template, **template)
    found = changed(asked, template=spec)
    (pod_set,) = found.pod_sets
    return replace(found, pod_sets=(replace(pod_set, claim_series=series or ("data-web",), first_ordinal=first),))


def hosts(shapes: PodShapes, workload: Workload, *, placed: bool = False) -> set[str]:
    shape = shapes.gang_shapes_of(workload, placed=placed)[workload.pod_sets[0].name]
    return {one.name for one in NODES if exclusion(shape, one) is None}


def left_out(shapes: PodShapes, workload: Workload, *, placed: bool = False) -> str:
    return "; ".join(shapes.volumes_left_out(workload, placed=placed))


def test_volumes_in_one_zone_keep_the_pods_there() -> None:
    shapes = shapes_with({"data-web-0": ZONE_B, "data-web-1": ZONE_B})
    for placed in (False, True):
        assert hosts(shapes, stateful_set(2), placed=placed) == B
        assert left_out(shapes, stateful_set(2), placed=placed) == ""


def test_volumes_that_overlap_leave_the_hosts_that_reach_all() -> None:
    shapes = shapes_with({"data-web-0": host("a0", "a1"), "logs-web-1": host("a1", "b0"), "data-web-1": ANYWHERE})
    assert hosts(shapes, stateful_set(2, "data-web", "logs-web")) == {"a1"}


def test_volumes_in_two_zones_are_left_out_and_named() -> None:
    shapes = shapes_with({"data-web-0": ZONE_A, "data-web-1": ZONE_A, "data-web-2": ZONE_B})
    for placed in (False, True):
        assert hosts(shapes, stateful_set(3), placed=placed) == HOSTS
        said = left_out(shapes, stateful_set(3), placed=placed)
        assert said == "volumes of claims data-web-0 and data-web-2: no host reaches both"
    assert hosts(shapes, stateful_set(2)) == A, "a claim beyond the last pod does not count"
    assert hosts(shapes, stateful_set(1, first=2)) == B, "nor one before the first"


def test_two_claims_are_named_that_really_contradict() -> None:
    shapes = shapes_with({"data-web-0": host("a0", "b0"), "data-web-1": ZONE_A, "data-web-2": ZONE_B})
    assert "data-web-1 and data-web-2" in left_out(shapes, stateful_set(3))


def test_pods_without_a_volume_follow_the_others_before_they_have_slots() -> None:
    """A gang is near itself. Once it has slots, nobody is moved because another pod got a volume."""
    shapes = shapes_with({"data-web-0": ZONE_B, "data-web-1": None})
    assert hosts(shapes, stateful_set(3)) == B
    assert hosts(shapes, stateful_set(3), placed=True) == HOSTS
    assert left_out(shapes, stateful_set(3), placed=True) == ""


def test_a_volume_on_one_host_is_no_rule_for_pods_that_have_none() -> None:
    """Local volumes: theirs will be elsewhere. All of them on that host are one."""
    shapes = shapes_with({"data-web-0": host("b0")})
    assert hosts(shapes, stateful_set(2)) == HOSTS
    said = left_out(shapes, stateful_set(2))
    assert said == "the volume of claim data-web-0: it is on one host, and other pods have none yet"
    both = shapes_with({"data-web-0": host("b0"), "data-web-1": host("b0")})
    assert (hosts(both, stateful_set(2)), left_out(both, stateful_set(2))) == ({"b0"}, "")


def test_a_volume_outside_of_what_the_class_allows_is_named() -> None:
    shapes = shapes_with({"data-web-0": ZONE_A}, classes={"fast": "b"})
    asked = stateful_set(1, volume_classes=("fast",))
    assert hosts(shapes, asked) == B
    assert left_out(shapes, asked) == "the volume of claim data-web-0: no host reaches it and the other volumes"


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"data-web-0": None},
        {"data-web-0": ANYWHERE},
        {"data-web": ZONE_B, "data-web-": ZONE_B, "data-web-00": ZONE_B, "data-web--1": ZONE_B, "data-web-x": ZONE_B},
        {"data-web-\N{ARABIC-INDIC DIGIT ZERO}": ZONE_B, "data-web-0\n": ZONE_B, f"data-web-{'9' * 5000}": ZONE_B},
        {"data-webs-0": ZONE_B, "other-data-web-0": ZONE_B, "-0": ZONE_B, "0": ZONE_B, "data-web-0-0": ZONE_B},
    ],
)
def test_what_is_no_claim_of_a_pod_says_nothing(claims: dict[str, Json | None]) -> None:
    assert hosts(shapes_with(claims), stateful_set(2)) == HOSTS
    assert left_out(shapes_with(claims), stateful_set(2)) == ""


def test_a_volume_that_is_gone_or_of_another_namespace_says_nothing() -> None:
    shapes = shapes_with({"data-web-0": ZONE_B})
    assert hosts(shapes, replace(stateful_set(1), namespace="other")) == HOSTS
    shapes = shapes_with({"data-web-0": ZONE_B})
    shapes._stores.volumes.replace([])
    assert hosts(shapes, stateful_set(1)) == HOSTS


def test_labels_that_change_are_seen() -> None:
    shapes = shapes_with({"data-web-0": ZONE_A, "data-web-1": terms("disk", "x")})
    assert "no host reaches both" in left_out(shapes, stateful_set(2))
    labels = {**NODES[0].labels, "disk": "x"}
    shapes._stores.nodes.apply("MODIFIED", replace(NODES[0], labels=labels, resource_version="999999"))
    assert left_out(shapes, stateful_set(2)) == ""


def test_a_thousand_local_volumes_of_hostile_names_cost_little() -> None:
    """Each on another host; the warning stays one short line."""
    series = "\n" + "\u202e{0}%s" * 10_000 + "-web"
    claims: dict[str, Json | None] = {f"{series}-{one}": host(f"h{one}") for one in range(1_000)}
    shapes, asked = shapes_with(claims), stateful_set(1_000, series)
    begun = time.process_time()
    for _ in range(10):
        shapes.gang_shapes_of(asked, placed=False)
    assert time.process_time() - begun < 2.0
    said = left_out(shapes, asked)
    assert said.isprintable()
    assert len(said) < 400


def test_an_answer_is_kept_until_a_claim_or_a_volume_changes() -> None:
    """A thousand claims are read once, not at every look at their gang."""
    claims: dict[str, Json | None] = {f"data-web-{one}": ZONE_A for one in range(1_000)}
    shapes, asked = shapes_with(claims), stateful_set(1_000)
    assert hosts(shapes, asked) == A
    begun = time.process_time()
    for _ in range(200):
        shapes.gang_shapes_of(asked, placed=False)
    assert time.process_time() - begun < 0.5
    moved = objects.persistent_volume({"metadata": {"name": "v-data-web-7"}, "spec": ZONE_B})
    shapes._stores.volumes.apply("MODIFIED", moved)
    assert "data-web-0 and data-web-7" in left_out(shapes, asked)
    unbound = objects.persistent_volume_claim({"metadata": {"name": "data-web-7", "namespace": "default"}})
    shapes._stores.volume_claims.apply("MODIFIED", unbound)
    assert hosts(shapes, asked) == A
