"""Objects of one tenant that are large, or many, cost the leader no more than others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from engine.api import names
from engine.api.objects import DisruptionBudget, Quota
from engine.api.pod import LabelSelector, Pod, PodConstraints, PodTerm, SelectorRequirement
from engine.api.workload import Workload
from engine.capacity import nearby_pods
from engine.capacity import quota as quotas
from engine.capacity.daemon_sets import MAX_WEIGHT
from engine.capacity.nearby_pods import NearbyPods
from engine.decoding import objects, pods, workloads
from engine.preemption.budgets import MAX_BUDGETS, within_budgets
from tests.support.cluster_records import gpu_nodes, job, pod, spec
from tests.support.leader import Leader


def leader_worker_set(leader: Leader, replicas: int) -> Workload:
    registry = leader.view.registry
    entry = next(one for one in registry.entries if one.match.kind == "LeaderWorkerSet")
    template = {"spec": {"containers": [{"name": "c"}], "schedulerName": "default-scheduler"}}
    body = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "many", "namespace": "default", "uid": "uid-many", "resourceVersion": str(replicas),
                     "labels": {names.MANAGED: "true"}, "annotations": {names.REQUIRE: "rack"}},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
    }  # fmt: skip
    return workloads.workload(json.dumps(body).encode(), entry=entry, registry=registry)


def test_of_very_many_replicas_those_without_pods_are_no_gangs_yet() -> None:
    """But for the first ones: their Placements say why no pod of them exists."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(leader_worker_set(leader, 10_000))
    leader.settle()
    first = [f"uid-many/{index}" for index in range(64)]
    assert sorted(leader.view.gangs.keys()) == sorted(first) == sorted(leader.controller._term.gang_state)


def daemon_set(terms: int) -> dict[str, Any]:
    never = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    here = {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
    required = {"nodeSelectorTerms": [*[never] * terms, here]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": "agent", "namespace": "evil", "uid": "uid-agent"},
        "spec": {"template": {"spec": {"containers": [container], "affinity": affinity}}},
    }


@pytest.mark.parametrize(("terms", "expected"), [(1, True), (MAX_WEIGHT, False)])
def test_pods_of_a_daemon_set_with_too_many_requirements_are_not_expected(terms: int, expected: bool) -> None:
    leader, body = Leader(nodes=gpu_nodes(1, 1, 2)), daemon_set(terms)
    leader.stores.daemon_sets.apply("ADDED", objects.daemon_set(json.dumps(body).encode()))
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": True}
    first = {
        "metadata": {"name": "agent-0", "namespace": "evil", "uid": "uid-0", "ownerReferences": [owner]},
        "spec": {"nodeName": "b0-r0-h0", "containers": body["spec"]["template"]["spec"]["containers"]},
    }
    leader.stores.pods.apply("ADDED", pods.pod(json.dumps(first).encode()))
    leader.settle()
    assert bool(leader.view._daemon_pods._expected.get("uid-agent")) == expected


ANYWHERE: LabelSelector = ()


def anti_affine(*terms: PodTerm) -> Pod:
    """A pod of nobody on a host, with required anti-affinity."""
    one = pod(job("other"), 0, host="b0-r0-h0")
    return replace(one, owner=None, spec=replace(one.spec, constraints=PodConstraints(anti_affinity=terms)))


def keyed(*operators: str, key: str = "rack", number: int = 0) -> PodTerm:
    """A term about pods of any namespace, by labels of its own."""
    rules = tuple(SelectorRequirement(f"k{number}-{one}", one, ()) for one in operators)
    return PodTerm(key, rules, (), ANYWHERE)


@pytest.mark.parametrize(
    ("terms", "looked_at", "found"),
    [
        ([keyed("Exists", number=number) for number in range(9)], 0, 0),
        ([keyed("DoesNotExist", number=number) for number in range(9)], 1, 1),
        ([keyed("DoesNotExist", key=f"invented-{number}") for number in range(9)], 0, 0),
    ],
)
def test_of_many_terms_of_anti_affinity_a_plan_looks_at_those_that_can_make_a_difference(
    terms: list[PodTerm], looked_at: int, found: int
) -> None:
    """Not at those about other labels, at a second one about the same domain, nor at domains that no host is in."""
    nearby = NearbyPods(list)
    nearby.set_pod(None, anti_affine(*terms))
    with patch("engine.capacity.nearby_pods.about", wraps=nearby_pods.about) as looks:
        assert len(list(nearby.keeping_away("default", {"app": "web"}, {"rack"}.__contains__))) == found
    assert looks.call_count == looked_at


def test_a_term_about_many_namespaces_and_values_is_filed_in_few_places() -> None:
    """Every pod of a tenant may have one of its own."""
    several = tuple(str(number) for number in range(8))
    nearby = NearbyPods(list)
    nearby.set_pod(None, anti_affine(PodTerm("rack", (SelectorRequirement("app", "In", several),), several)))
    assert len(nearby._filed) <= len(several)


def budget(name: str, *values: str) -> DisruptionBudget:
    rule = {"key": "a", "operator": "NotIn", "values": list(values)}
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchExpressions": [rule]}},
        "status": {"disruptionsAllowed": 5},
    }
    return objects.disruption_budget(json.dumps(body).encode())


def test_a_budget_with_a_huge_selector_is_taken_as_one_of_all_pods() -> None:
    assert budget("huge", *map(str, range(1_001))).selector == ()
    assert budget("small", "b").selector != ()


@pytest.mark.parametrize(("count", "allowed"), [(MAX_BUDGETS, True), (MAX_BUDGETS + 1, False)])
def test_nothing_ends_in_a_namespace_with_very_many_budgets(count: int, allowed: bool) -> None:
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    for number in range(count):
        leader.stores.disruption_budgets.apply("ADDED", budget(f"b{number}", "b"))
    running = pod(job("train"), 0, host="b0-r0-h0")
    assert within_budgets(leader.view, [running]) is allowed
    assert within_budgets(leader.view, [replace(running, namespace="other")])


def test_pending_pods_are_counted_by_what_a_quota_tells_apart() -> None:
    limit = Quota(
        namespace="default", name="q", hard={"pods": 10, **{f"requests.x/{number}": 1 for number in range(9)}},
        used={"pods": 2}, scopes=(("PriorityClass", "In", ("high",)),), uid="", resource_version="",
    )  # fmt: skip
    high, low = spec(priority_class="high"), spec(priority_class="low")
    pending = [(high, 3), (low, 5), (high, 4)]
    assert quotas.shortfall([limit], [(high, 1)], pending) is None
    assert quotas.shortfall([limit], [(high, 2)], pending) == "quota q leaves 1 of pods, 2 pods need 2"
    assert quotas.shortfall([limit], [(high, 2)], pending, [high]) is None
    assert quotas.minimum_shortfall([limit], [(high, 0, 4)], 2, pending) is not None
    assert quotas.lacking([limit], [(high, 2, 2)], 2, pending) == [(limit, "pods", 1)]
