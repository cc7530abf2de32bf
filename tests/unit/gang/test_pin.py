from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from engine.api.placement import Assignment, ConsumedRequest, PodSetPlan, Slot
from engine.api.pod import Pod, SelectorRequirement, SelectorTerm
from engine.decoding.placements import placement, placement_body
from engine.decoding.pods import pod
from engine.gang.pin import added_selector, pinned_terms, placed_pod, release_patch, unpinned
from tests.support.cluster_records import job, shape
from tests.support.cluster_records import placement as placed_gang

_PIN = {"key": "metadata.name", "operator": "In", "values": ["host-1"]}
_ZONE = SelectorRequirement("zone", "In", ("a", "b"))
_FAST = SelectorRequirement("fast", "Exists", ())
_OTHER = SelectorRequirement("metadata.name", "NotIn", ("host-9",))


def held(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "team", "uid": "u-1"},
        "spec": {"schedulingGates": [{"name": "topogate.dev/placement"}], **spec},
    }


def released(
    record: Pod,
    labels: Mapping[str, str] = MappingProxyType({}),
    *,
    domain: tuple[str, ...] = ("host-1",),
    rank: int | None = 0,
    placement: str = "g",
    slices: tuple[tuple[str, int], ...] = (),
) -> dict[str, Any]:
    """The PATCH that places a held pod."""
    slot = Slot(domain, 1, None if rank is None else ((rank, rank),))
    gang = job(count=16)
    planned = replace(
        placed_gang(gang, {domain[-1]: 1}),
        name=placement,
        pod_sets=tuple(replace(one, slices=slices) for one in placed_gang(gang, None).pod_sets),
        assignment=Assignment(7, (PodSetPlan("main", (slot,)),)),
    )
    placed = placed_pod(record, slot, placement=planned, pod_set="main", rank=rank, pin_labels=labels)
    return release_patch(record, placed)


def test_a_pod_without_affinity_gets_one_term() -> None:
    """The pin is a term of its own."""
    assert pinned_terms(None, "host-1") == [{"matchFields": [_PIN]}]


def test_every_term_is_pinned_behind_what_it_said() -> None:
    """Terms are ORed, so each one is pinned; what stood there keeps its place, as the API server demands."""
    terms = (SelectorTerm((_ZONE, _FAST), ()), SelectorTerm((), (_OTHER,)))
    assert pinned_terms(terms, "host-1") == [
        {
            "matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                {"key": "fast", "operator": "Exists"},
            ],
            "matchFields": [_PIN],
        },
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["host-9"]}, _PIN]},
    ]


def test_an_empty_term_stays_empty() -> None:
    """It matches nothing; filled, it would match the host, and the API server refuses that."""
    assert pinned_terms((SelectorTerm((), ()), SelectorTerm((_FAST,), ())), "host-1")[0] == {}


def test_pinning_twice_changes_nothing() -> None:
    """A term that is pinned to the host already stays as it is."""
    once = pinned_terms((SelectorTerm((_ZONE,), ()),), "host-1")
    pinned = SelectorTerm((_ZONE,), (SelectorRequirement("metadata.name", "In", ("host-1",)),))
    assert pinned_terms((pinned,), "host-1") == once


@pytest.mark.parametrize(
    "affinity", [None, (SelectorTerm((_ZONE,), ()), SelectorTerm((), ()), SelectorTerm((), (_OTHER,)))]
)
def test_unpinning_undoes_the_pin_and_nothing_else(affinity: tuple[SelectorTerm, ...] | None) -> None:
    """A label that the gang is planned with stays, and so does one of our keys with another value."""
    labels = {"block": "b-0", "rack": "r-7", "row": "w-1"}
    planned = replace(shape(), node_selector=(("block", "b-0"),))
    before = replace(shape(), node_selector=(("block", "b-0"), ("row", "w-2")), affinity=affinity)
    terms = {"nodeSelectorTerms": pinned_terms(affinity, "host-1")}
    pinned = pod(held(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})).spec.shape
    after = replace(before, affinity=pinned.affinity, node_selector=(("block", "b-0"), ("rack", "r-7"), ("row", "w-2")))
    assert unpinned(after, "host-1", pin_labels=labels, planned=planned) == before
    assert unpinned(before, "host-1", pin_labels=labels, planned=planned) == before


@pytest.mark.parametrize(
    "rules",
    [
        {"node_selector": (("rack", "r-7"),)},
        {"affinity": (SelectorTerm((_ZONE,), (SelectorRequirement("metadata.name", "In", ("host-1",)),)),)},
    ],
)
def test_rules_that_equal_a_part_of_the_pin_cannot_be_told_from_it(rules: dict[str, Any]) -> None:
    """Unpinning takes them off, so that who pins can ask beforehand."""
    own = replace(shape(), **rules)
    assert unpinned(own, "host-1", pin_labels={"rack": "r-7"}, planned=shape()) != own


@pytest.mark.parametrize("selector", [{"rack": "r-9"}, (("rack", "r-9"),)])
def test_a_key_that_the_user_set_is_never_touched(selector: Any) -> None:
    """Only labels that the nodeSelector does not name are added, whatever their value."""
    assert added_selector({"block": "b-0", "rack": "r-7"}, selector) == {"block": "b-0"}


def test_the_release_patch() -> None:
    """One write: precondition, gang, domain and rank, the pin, and our gate off."""
    record = pod(held(nodeSelector={"rack": "r-7", "pool": "gpu"}))
    patch = released(record, {"block": "b-0", "rack": "r-7"}, domain=("b-0", "r-7", "host-1"), placement="job-train-1")
    assert patch == {
        "metadata": {
            "uid": "u-1",
            "labels": {
                "topogate.dev/gang": "job-train-1",
                "topogate.dev/managed": "true",
                "topogate.dev/pod-set": "main",
            },
            "annotations": {
                "topogate.dev/placement": "job-train-1",
                "topogate.dev/revision": "7",
                "topogate.dev/domain": "b-0/r-7/host-1",
                "topogate.dev/rank": "0",
            },
        },
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": "topogate.dev/placement"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [_PIN]}]}
                }
            },
            "nodeSelector": {"block": "b-0"},
        },
    }


def test_an_unranked_pod_gets_no_rank() -> None:
    """No rank annotation, and one that stands there goes."""
    record = pod(held())
    patch = released(record, rank=None)
    assert "topogate.dev/rank" not in patch["metadata"]["annotations"]
    assert "nodeSelector" not in patch["spec"]
    forged = held()
    forged["metadata"]["annotations"] = {"topogate.dev/rank": "3"}
    patch = released(pod(forged), rank=None)
    assert patch["metadata"]["annotations"]["topogate.dev/rank"] is None


@pytest.mark.parametrize(
    ("slices", "rank", "index"),
    [((), 5, None), ((("rack", 4),), 5, "1"), ((("rack", 8), ("host", 2)), 5, "0/2"), ((("rack", 4),), None, None)],
)
def test_a_pod_in_slices_gets_the_number_of_each(
    slices: tuple[tuple[str, int], ...], rank: int | None, index: str | None
) -> None:
    """Coarse to fine; none without a rank, since such a pod is in no slice of consecutive ranks."""
    patch = released(pod(held()), rank=rank, slices=slices)
    assert patch["metadata"]["annotations"].get("topogate.dev/slice-index") == index


def test_the_release_keeps_the_rest_of_the_affinity() -> None:
    """The patch names nothing but required node affinity; the user's own terms are all in it."""
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "fast", "operator": "Exists"}]}]
            },
        },
    }
    raw = held(affinity=copy.deepcopy(affinity))
    patch = released(pod(raw), rank=1)
    assert set(patch["spec"]["affinity"]) == {"nodeAffinity"}
    required = patch["spec"]["affinity"]["nodeAffinity"]
    assert required == {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "fast", "operator": "Exists"}], "matchFields": [_PIN]},
            ]
        }
    }


def test_pods_on_provisioned_nodes_name_the_request() -> None:
    """At their creation and at their release alike, so that the autoscaler counts them once; others name none."""
    record, slot = pod(held()), Slot(("host-1",), 1, ((0, 0),))
    gang = placed_gang(job(count=1), {"host-1": 1})
    assert gang.assignment is not None
    used = replace(gang.assignment, consumes=ConsumedRequest("job-train-1", "some.class"))
    written: dict[bool, Mapping[str, str | None]] = {}
    for uses, assignment in ((True, used), (False, gang.assignment)):
        planned = replace(gang, assignment=assignment)
        placed = placed_pod(record, slot, placement=planned, pod_set="main", rank=0, pin_labels={})
        assert release_patch(record, placed)["metadata"]["annotations"].keys() <= placed.annotations.keys()
        written[uses] = placed.annotations
    assert written[True].items() - written[False].items() == {
        ("autoscaling.x-k8s.io/consume-provisioning-request", "job-train-1"),
        ("autoscaling.x-k8s.io/provisioning-class-name", "some.class"),
    }


def test_the_request_that_pods_use_is_part_of_the_plan() -> None:
    """Every replica reads it with the slots; a plan without one removes it."""
    gang = placed_gang(job(count=1), {"host-1": 1})
    assert gang.assignment is not None
    used = replace(gang, assignment=replace(gang.assignment, consumes=ConsumedRequest("job-train-1", "some.class")))
    for plan in (used, gang):
        body = placement_body(plan)
        read = placement(json.dumps({**body, "metadata": {**body["metadata"], "namespace": "team"}}).encode())
        assert read.assignment == plan.assignment
    assert placement_body(gang)["spec"]["assignment"]["provisioningRequest"] is None
