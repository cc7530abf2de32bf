"""Preferred pods nearby as a tie-break of plans: which pods count, and what the preference may not cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import (
    OwnerRef,
    Pod,
    PodPreferences,
    PodTerm,
    PreferredTerm,
    SelectorRequirement,
    SelectorTerm,
    SpreadConstraint,
    WeightedPodTerm,
)
from engine.api.workload import Workload
from engine.capacity import pod_preferences
from engine.gang.key import key_of
from engine.scheduler.outcome import Placed, Waits
from engine.scheduler.schedule import new_placement, schedule_gang
from tests.support.cluster_records import gpu_nodes, job, pod, pod_set, shape, spec
from tests.support.small_cluster import SmallCluster

RACK = "cloud.provider.com/topology-rack"


def requirement(app: str) -> tuple[SelectorRequirement, ...]:
    return (SelectorRequirement("app", "In", (app,)),)


def near(app: str, weight: int = 10, key: str = RACK, namespace: str = "default") -> PodPreferences:
    """More of these pods; fewer with a weight below 0."""
    return PodPreferences((WeightedPodTerm(weight, PodTerm(key, requirement(app), (namespace,))),))


def even(app: str, key: str = RACK) -> PodPreferences:
    return PodPreferences(spread=(SpreadConstraint(key, 1, requirement(app)),))


def template(pods: PodPreferences | None = None, gpu: int = 8, app: str = "train", **more: Any) -> Any:
    labels = {names.MANAGED: "true"}
    return spec(
        shape=replace(shape(gpu=gpu), **more),
        gates=(names.GATE,),
        labels=labels,
        own_labels=("app", app),
        preferred_pods=pods,
    )


def gang(preferred: PodPreferences | None, name: str = "train", count: int = 2, **more: Any) -> Workload:
    return job(name, count=count, template=template(preferred), **more)


def other(name: str, host: str, *, gpu: int = 0, **more: Any) -> Pod:
    own = spec(shape=shape(gpu=gpu) if gpu else replace(shape(), requests=(("pods", 1),)), node_name=host)
    labels = ("app", name.partition("-")[0])
    return replace(pod(job("x"), None, host=host, name=name), owner=None, spec=replace(own, own_labels=labels), **more)


class Cluster(SmallCluster):
    """A block of 3 racks of 2 hosts with 8 GPUs."""

    def __init__(self, *workloads: Workload, pods: tuple[Pod, ...] = (), nodes: Any = None) -> None:
        super().__init__(workloads, nodes=gpu_nodes(1, 3, 2) if nodes is None else nodes, pods=pods)

    def racks(self, workload: Workload) -> set[str]:
        return {slot.domain[1] for one in self.placed(workload).pod_sets for slot in one.slots}


WEB = (other("web-1", "b0-r0-h0"), other("db-1", "b0-r1-h0"), other("db-2", "b0-r1-h1"), other("web-2", "b0-r2-h0"))


@pytest.mark.parametrize(
    ("preferred", "rack"),
    [
        (None, "b0-r0"),
        (near("db"), "b0-r1"),
        (near("web", -10), "b0-r1"),
        (near("db", -10), "b0-r0"),
        (near("nobody"), "b0-r0"),
        (near("db", namespace="elsewhere"), "b0-r0"),
        (near("db", key="example.com/nowhere"), "b0-r0"),
        (even("web"), "b0-r1"),
        (even("db"), "b0-r0"),
        (even("web", key="example.com/nowhere"), "b0-r0"),
        (PodPreferences((*near("web", 10).terms, *near("db", 4).terms)), "b0-r0"),
        (PodPreferences((*near("web", 10).terms, *near("db", 6).terms)), "b0-r1"),  # two of them
        (PodPreferences(near("web").terms, even("web").spread), "b0-r0"),  # one against the other
    ],
)
def test_of_equal_racks_the_preferred_one(preferred: PodPreferences | None, rack: str) -> None:
    """By weight times the number of matching pods in the rack."""
    train = gang(preferred)
    assert Cluster(train, pods=WEB).racks(train) == {rack}


def test_both_kinds_of_preferences_add_up() -> None:
    """Node affinity and pod affinity count twice each, and taints three times: no kind beats the others alone."""
    nodes = PreferredTerm(1, SelectorTerm((SelectorRequirement(RACK, "In", ("b0-r2",)),), ()))
    preferred = PodPreferences(near("db").terms, even("web").spread)
    train = gang(None)
    for found, rack in ((None, "b0-r2"), (preferred, "b0-r1")):
        wish = template(found, preferred=(nodes,))
        both = replace(train, pod_sets=(replace(train.pod_sets[0], template=wish),))
        assert Cluster(both, pods=WEB).racks(both) == {rack}


@pytest.mark.parametrize("preferred", [near("web", -10), even("web")])
def test_a_fuller_rack_counts_more(preferred: PodPreferences) -> None:
    """Empty racks stay empty, whoever is in the others."""
    train = gang(preferred, count=1)
    assert Cluster(train, pods=(other("web-1", "b0-r2-h0", gpu=8),)).racks(train) == {"b0-r2"}


def test_no_domain_is_added_and_nobody_waits_for_a_neighbour() -> None:
    """The preferred racks have room for one pod each: the gang goes to another one, or to them if they are all."""
    train = gang(near("db", 100), count=2)
    full = tuple(other(f"db-{at}", f"b0-r{at}-h0", gpu=8) for at in range(2))
    assert Cluster(train, pods=full).racks(train) == {"b0-r2"}
    anyway = replace(gang(near("nobody", 100)), annotations={names.PREFER: "rack"})
    assert len(Cluster(anyway, pods=WEB).racks(anyway)) == 1


def test_reserved_slots_count_like_their_pods() -> None:
    """Those of a placed gang whose pods are not there yet, until it is gone."""
    nothing = replace(template(app="db"), shape=replace(shape(), requests=(("pods", 1),)))
    first = job("first", count=1, template=nothing, require="host")
    train = gang(near("db", -10))
    cluster = Cluster(first, train)
    found, placed = cluster.view.gangs.get(key_of(first)), cluster.placed(first)
    assert found is not None
    assert cluster.racks(first) == cluster.racks(train) == {"b0-r0"}
    cluster.view.assume(key_of(first), new_placement(found, placed, priority=0, now=0.0))
    assert cluster.racks(train) == {"b0-r1"}
    cluster.view.retract(key_of(first))
    assert cluster.racks(train) == {"b0-r0"}


@pytest.mark.parametrize(
    ("preferred", "rack"), [(near("db"), "b0-r1"), (even("db"), "b0-r0")], ids=["affinity", "spread"]
)
def test_terminating_pods_count_for_affinity_and_not_for_spread(preferred: PodPreferences, rack: str) -> None:
    """As in kube-scheduler."""
    train = gang(preferred)
    leaving = tuple(other(f"db-{at}", f"b0-r{at}-h0", deleting=at == 0) for at in (0, 1, 2))
    both = (*leaving, other("db-9", "b0-r1-h0"))
    assert Cluster(train, pods=both).racks(train) == {rack}


def test_the_own_pods_do_not_count() -> None:
    """A gang that is planned again: its terminating pods attract nobody and keep nobody away."""
    for preferred in (near("train", 100), near("train", -100)):
        train = gang(preferred, held=True)
        leaving = pod(train, 0, host="b0-r1-h0", deleting=True)
        owner = OwnerRef("batch/v1", "Job", train.name, train.uid, True)
        own = replace(leaving.spec, own_labels=("app", "train"), shape=replace(shape(), requests=(("pods", 1),)))
        assert Cluster(train, pods=(replace(leaving, owner=owner, spec=own),)).racks(train) == {"b0-r0"}


def test_of_several_templates_all_pods_decide_together() -> None:
    """Two workers outvote their leader, and a template without a preference has no vote."""
    sets = (
        pod_set("leader", count=1, template=template(near("web", 100), gpu=1)),
        pod_set("workers", count=2, template=template(near("db"), gpu=4)),
        pod_set("rest", count=5, template=template(gpu=1)),
    )
    train = replace(job(), pod_sets=sets)
    assert Cluster(train, pods=WEB).racks(train) == {"b0-r1"}
    alone = replace(train, pod_sets=(sets[0], sets[2]))
    assert Cluster(alone, pods=WEB[1:]).racks(alone) == {"b0-r2"}


def test_pods_that_come_and_go_are_counted() -> None:
    train = gang(near("db"))
    cluster = Cluster(train)
    assert cluster.racks(train) == {"b0-r0"}
    db = other("db-1", "b0-r2-h1")
    cluster.stores.pods.apply("ADDED", db)
    cluster.view.refresh()
    assert cluster.racks(train) == {"b0-r2"}
    cluster.stores.pods.apply("DELETED", db)
    cluster.view.refresh()
    assert cluster.racks(train) == {"b0-r0"}


def test_no_more_selectors_than_are_kept_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones of the gang count, the others change nothing."""
    monkeypatch.setattr(pod_preferences, "_MAX_SELECTORS", 1)
    terms = (*near("nobody").terms, *near("db", 100).terms)
    for first in (terms, terms[::-1]):
        train = gang(PodPreferences(first))
        assert Cluster(train, pods=WEB).racks(train) == {"b0-r1" if first is not terms else "b0-r0"}
    both = gang(PodPreferences(terms[1:], even("web").spread))
    assert Cluster(both, pods=WEB).racks(both) == {"b0-r1"}


@pytest.mark.parametrize(("zoned", "rack"), [(False, "b0-r0"), (True, "b0-r1")])
def test_spread_counts_pods_on_hosts_with_all_labels(zoned: bool, rack: str) -> None:
    """Of two constraints: the pod on a host without the other one's label counts for neither, as in kube-scheduler."""
    zone = "example.com/zone"
    without = () if zoned else ("b0-r0-h1",)
    nodes = [
        one if one.name in without else replace(one, labels={**one.labels, zone: "a"}) for one in gpu_nodes(1, 3, 2)
    ]
    train = gang(PodPreferences(spread=(*even("web").spread, *even("nobody", zone).spread)), count=1)
    assert Cluster(train, pods=(other("web-1", "b0-r0-h1"),), nodes=nodes).racks(train) == {rack}


def test_a_skew_beyond_every_number_is_no_error() -> None:
    """Templates of other kinds are not checked by the API server."""
    train = gang(PodPreferences(spread=(SpreadConstraint(RACK, 10**400, requirement("web")),)))
    assert Cluster(train, pods=WEB).racks(train) <= {"b0-r0", "b0-r1", "b0-r2"}


def test_what_does_not_fit_says_nothing_of_preferences() -> None:
    train = gang(near("db"), count=3)
    found = Cluster(train).view.gangs.get(key_of(train))
    assert found is not None
    outcome = schedule_gang(Cluster(train).view, found)
    assert not isinstance(outcome, Placed | Waits)
