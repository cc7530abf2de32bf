"""Which gangs a PodDisruptionBudget protects from being preempted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine.api.pod import Pod
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding.objects import disruption_budget
from engine.decoding.wire import ProjectionError
from engine.preemption.budgets import jointly_within_budgets, within_budgets
from tests.support.cluster_records import job, pod
from tests.unit.preemption.test_preempt import HOSTS, Cluster


def budget(selector: Any, *, allowed: Any = 0, namespace: str = "default") -> dict[str, Any]:
    status = {} if allowed is None else {"disruptionsAllowed": allowed}
    return {"metadata": {"name": "b", "namespace": namespace}, "spec": {"selector": selector}, "status": status}


def running(count: int, **labels: str) -> list[Pod]:
    flat = tuple(word for pair in sorted(labels.items()) for word in pair)
    made = [pod(job("serve"), rank, host="h0") for rank in range(count)]
    return [replace(one, spec=replace(one.spec, own_labels=flat)) for one in made]


def spared(*budgets: dict[str, Any], pods: list[Pod]) -> bool:
    stores = Stores()
    stores.disruption_budgets.replace([disruption_budget(json.dumps(one).encode()) for one in budgets])
    return not within_budgets(ClusterState(stores), pods)


@pytest.mark.parametrize(
    ("selector", "allowed", "expected"),
    [
        ({"matchLabels": {"app": "serve"}}, 0, True),
        ({"matchLabels": {"app": "serve"}}, 1, True),
        ({"matchLabels": {"app": "serve"}}, 2, False),
        ({"matchLabels": {"app": "serve"}}, None, True),
        ({"matchLabels": {"app": "other"}}, 0, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "serve"]}]}, 1, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, 0, False),
        ({}, 1, True),
        (None, 0, False),
    ],
    ids=str,
)
def test_a_budget_has_to_allow_the_end_of_all_pods_that_it_selects(selector: Any, allowed: Any, expected: bool) -> None:
    """An empty selector selects every pod, no selector none; what its controller has not counted yet is not allowed."""
    assert spared(budget(selector, allowed=allowed), pods=running(2, app="serve")) is expected


def test_every_budget_counts() -> None:
    """One that allows too little is enough."""
    serve = {"matchLabels": {"app": "serve"}}
    other = {**budget(serve, allowed=1), "metadata": {"name": "c", "namespace": "default"}}
    assert spared(budget(serve, allowed=5), other, pods=running(2, app="serve"))


def test_a_pod_that_ends_for_another_gang_uses_its_budget_once() -> None:
    """Beside it one more may end, and not two; those of a namespace without that budget may."""
    first, second, third = running(3, app="serve")
    stores = Stores()
    stores.disruption_budgets.replace([disruption_budget(budget({}, allowed=2))])
    pods = {"ends": [first], "one": [second], "two": [third], "other": [replace(third, namespace="other", uid="o")]}
    allowed = jointly_within_budgets(ClusterState(stores), pods, beside=[first])
    assert allowed(["ends", "one", "other"])
    assert not allowed(["one", "two"])


def test_a_budget_counts_in_its_namespace() -> None:
    """As the API has it."""
    assert not spared(budget({}, namespace="elsewhere"), pods=running(2, app="serve"))


def test_pods_that_terminate_or_wait_are_not_disrupted() -> None:
    """Neither counts."""
    pods = [replace(one, deleting=True) for one in running(2, app="serve")]
    pods += [pod(job("serve"), 5, gated=True)]
    assert not spared(budget({}), pods=pods)


def test_a_budget_that_cannot_be_read_is_an_error_with_its_path() -> None:
    with pytest.raises(ProjectionError, match="disruptionsAllowed"):
        disruption_budget(budget({}, allowed="many"))


@pytest.mark.parametrize(("allowed", "names"), [(2, None), (4, ["left", "right"])])
def test_a_budget_counts_for_all_victims_together(allowed: int, names: list[str] | None) -> None:
    """Two gangs of two pods under one budget: it has to allow four."""
    cluster = Cluster()
    for name, hosts in (("left", HOSTS[:2]), ("right", HOSTS[2:])):
        cluster.runs(name, dict.fromkeys(hosts, 1))
    stored = disruption_budget(budget({}, allowed=allowed))
    cluster.stores.disruption_budgets.apply("ADDED", stored)
    assert cluster.victims(cluster.waiting(4, priority=10, require="block")) == names
