"""Preferred pods nearby: the kube-scheduler's scores, one node at a time, and plans that cost nothing more for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.objects import Node, Taint
from engine.api.pod import (
    Pod,
    PodPreferences,
    PodTerm,
    SelectorRequirement,
    Shape,
    SpreadConstraint,
    WeightedPodTerm,
)
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.capacity.other_pods import OtherPods
from engine.capacity.pod_preferences import pod_scores
from engine.gang.key import key_of
from engine.planner.sums import HostScores
from engine.planner.tree import Ints64
from engine.scheduler.outcome import Outcome, Placed
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import gpu_nodes, job, pod, shape, spec
from tests.support.scheduler_oracle import matches

ZONE, ROOM, RACK = "example.com/zone", "example.com/room", "cloud.provider.com/topology-rack"
KEYS = [ZONE, ROOM, RACK, names.HOSTNAME, "example.com/nowhere"]
HOSTS = [one.name for one in gpu_nodes(2, 2, 2)]
KEEP_OUT = Taint("keep", "out", "NoSchedule")
APPS = ["web", "db"]


class Other(NamedTuple):
    """Somebody else's pod."""

    host: str
    app: str
    namespace: str
    deleting: bool


selectors = st.sampled_from(
    [
        (),
        *[(SelectorRequirement("app", "In", (app,)),) for app in APPS],
        (SelectorRequirement("app", "NotIn", ("web",)),),
    ]
)
pod_terms = st.builds(
    PodTerm, st.sampled_from(KEYS), selectors, st.sampled_from([("default",), ("other",), ("default", "other")])
)
weights = st.integers(1, 100).flatmap(lambda weight: st.sampled_from([weight, -weight]))
spreads = st.builds(
    SpreadConstraint,
    st.sampled_from(KEYS),
    st.integers(1, 3),
    selectors,
    honor_affinity=st.booleans(),
    honor_taints=st.booleans(),
)
preferences = st.builds(
    lambda terms, even: PodPreferences(tuple(terms), tuple(even)),
    st.lists(st.builds(WeightedPodTerm, weights, pod_terms), max_size=3),
    st.lists(spreads, max_size=2),
)
others = st.lists(
    st.builds(
        Other, st.sampled_from(HOSTS), st.sampled_from(APPS), st.sampled_from(["default", "other"]), st.booleans()
    ),
    max_size=12,
)


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    """Nodes with labels across the racks or none, and some that are tainted or not of the pool."""
    found = []
    for node in gpu_nodes(2, 2, 2):
        labels = {
            key: value for key in (ZONE, ROOM) if (value := draw(st.sampled_from(["a", "b", "c", None]))) is not None
        }
        pool = {"pool": draw(st.sampled_from(["x", "x", "y"]))}
        taints = (KEEP_OUT,) if draw(st.sampled_from([False, False, True])) else ()
        found.append(replace(node, labels={**node.labels, **labels, **pool}, taints=taints))
    return found


def record(number: int, one: Other) -> Pod:
    own = spec(shape=Shape(requests=(("pods", 1),)), node_name=one.host, own_labels=("app", one.app))
    base = pod(job("x"), None, host=one.host, name=f"other-{number}")
    return replace(base, owner=None, spec=own, namespace=one.namespace, deleting=one.deleting)


def gang(preferred: PodPreferences | None, wants: Shape, **more: object) -> Workload:
    labels = {names.MANAGED: "true"}
    template = spec(
        shape=wants, gates=(names.GATE,), labels=labels, own_labels=("app", "train"), preferred_pods=preferred
    )
    return job("train", template=template, **more)  # type: ignore[arg-type]


def view_of(nodes: Sequence[Node], there: Sequence[Other], workload: Workload) -> ClusterState:
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(list(nodes))
    stores.pods.replace([record(number, one) for number, one in enumerate(there)])
    stores.workloads.replace([workload])
    view.refresh()
    return view


def plan(nodes: Sequence[Node], there: Sequence[Other], workload: Workload) -> Outcome:
    view = view_of(nodes, there, workload)
    found = view.gangs.get(key_of(workload))
    assert found is not None
    return schedule_gang(view, found)


def inter_pod_affinity(
    nodes: Mapping[str, Node], there: Sequence[Other], terms: Sequence[WeightedPodTerm], eligible: list[str]
) -> dict[str, int]:
    """PreScore, Score and NormalizeScore of InterPodAffinity for a pod with these preferred terms."""
    pairs: dict[tuple[str, str], int] = {}
    for one in there:
        for weighted in terms:
            term, value = weighted.term, nodes[one.host].labels.get(weighted.term.topology_key)
            if value is not None and one.namespace in term.namespaces and matches(term.selector, {"app": one.app}):
                pair = (term.topology_key, value)
                pairs[pair] = pairs.get(pair, 0) + weighted.weight
    raw = {name: sum(pairs.get(pair, 0) for pair in nodes[name].labels.items()) for name in eligible}
    least, most = min(raw.values()), max(raw.values())
    if least == most:
        return dict.fromkeys(eligible, 0)
    return {name: int(100 * ((score - least) / (most - least))) for name, score in raw.items()}


def pod_topology_spread(
    nodes: Mapping[str, Node], there: Sequence[Other], constraints: Sequence[SpreadConstraint], eligible: list[str]
) -> dict[str, int]:
    """PreScore, Score and NormalizeScore of PodTopologySpread, for a pod of namespace default and pool x."""

    def labelled(name: str) -> bool:
        return all(one.topology_key in nodes[name].labels for one in constraints)

    scored = [name for name in eligible if labelled(name)]
    raw = dict.fromkeys(scored, 0.0)
    for one in constraints:
        values = {nodes[name].labels[one.topology_key] for name in scored}
        counts = dict.fromkeys(values, 0)
        for other in there:
            node = nodes[other.host]
            included = labelled(other.host)
            included &= not one.honor_affinity or node.labels["pool"] == "x"
            included &= not one.honor_taints or not node.taints
            same = other.namespace == "default" and not other.deleting and matches(one.selector, {"app": other.app})
            if included and same and (value := node.labels[one.topology_key]) in counts:
                counts[value] += 1
        for name in scored:
            raw[name] += counts[nodes[name].labels[one.topology_key]] * math.log(len(values) + 2) + one.max_skew - 1
    rounded = {name: math.floor(score + 0.5) for name, score in raw.items()}
    if not rounded:
        return dict.fromkeys(eligible, 0)
    least, most = min(rounded.values()), max(rounded.values())
    return {
        name: (100 * (most + least - rounded[name]) // most if most else 100) if name in rounded else 0
        for name in eligible
    }


def scores_of(train: Workload, wants: Shape, view: ClusterState) -> Mapping[str, Ints64]:
    return pod_scores(
        train.pod_sets,
        {"main": wants},
        OtherPods(view.nearby, view.capacity, key=key_of(train), pods=()),
        namespace="default",
        topology=view.topologies["default"],
    )


@given(clusters(), others, preferences)
@settings(max_examples=300, deadline=None)
def test_scores_are_those_of_each_node(nodes: list[Node], there: list[Other], preferred: PodPreferences) -> None:
    """With labels across the racks, missing labels, other namespaces, terminating pods and nodes that are left out."""
    wants = Shape(requests=(("pods", 1),), node_selector=(("pool", "x"),))
    train = gang(preferred, wants)
    view = view_of(nodes, there, train)
    topology = view.topologies["default"]
    found = scores_of(train, wants, view)
    by_name = {node.name: node for node in nodes}
    eligible = [node.name for node in nodes if node.labels["pool"] == "x" and not node.taints]
    expected: dict[str, int] = {}
    if eligible:
        near = inter_pod_affinity(by_name, there, preferred.terms, eligible)
        even = pod_topology_spread(by_name, there, preferred.spread, eligible) if preferred.spread else {}
        expected = {name: 2 * near[name] + 2 * even.get(name, 0) for name in eligible}
    if len(set(expected.values())) < 2:
        assert found == {}
        return
    least = min(expected.values())
    assert found["main"].tolist() == [expected.get(host, least) for host in topology.tree.hosts]


@given(
    others,
    preferences,
    st.tuples(st.integers(1, 9), st.sampled_from([1, 4, 8])),
    st.sampled_from([{names.REQUIRE: "rack"}, {names.PREFER: "rack"}, {names.UNCONSTRAINED: "true"}]),
    st.lists(st.sampled_from(HOSTS), max_size=5),
)
@settings(max_examples=150, deadline=None)
def test_a_preference_costs_no_domain_and_no_plan(
    there: list[Other],
    preferred: PodPreferences,
    size: tuple[int, int],
    asks: dict[str, str],
    used: list[str],
) -> None:
    """On hosts with 8 GPUs, of which some are in use: as many domains of each level as without."""
    nodes = gpu_nodes(2, 2, 2)
    for place, host in enumerate(HOSTS):
        taken = min(used.count(host), 8)
        nodes[place] = replace(
            nodes[place], allocatable={**nodes[place].allocatable, "nvidia.com/gpu": 8 - 4 * min(taken, 2)}
        )
    count, wants = size[0], shape(gpu=size[1])
    plain, found = (
        plan(nodes, there, replace(gang(one, wants, count=count, require=None), annotations=asks))
        for one in (None, preferred)
    )
    assert isinstance(plain, Placed) == isinstance(found, Placed)
    if isinstance(plain, Placed) and isinstance(found, Placed):
        assert plain.proven
        used_by_plain, used_now = plain.domains_used, found.domains_used
        if names.UNCONSTRAINED in asks:
            assert used_now["host"] == used_by_plain["host"]
        else:
            assert used_now == used_by_plain


@given(others, preferences, st.integers(1, 2))
@settings(max_examples=150, deadline=None)
def test_of_equal_racks_the_one_with_the_best_hosts(there: list[Other], preferred: PodPreferences, count: int) -> None:
    """All hosts are free: the pods' scores add up to the most that any rack offers."""
    nodes, wants = gpu_nodes(2, 2, 2), shape(gpu=8)
    train = gang(preferred, wants, count=count)
    view = view_of(nodes, there, train)
    topology = view.topologies["default"]
    scores = scores_of(train, wants, view)
    told = HostScores.of(scores["main"]) if scores else None
    by_host = dict(
        zip(topology.tree.hosts, (told.values if told else np.zeros(8, dtype=np.int64)).tolist(), strict=True)
    )
    outcome = plan(nodes, there, train)
    assert isinstance(outcome, Placed)
    hosts = [slot.host for slot in outcome.pod_sets[0].slots]
    best = max(
        sum(by_host[host] for host in chosen)
        for rack in (HOSTS[start : start + 2] for start in range(0, 8, 2))
        for chosen in combinations(rack, count)
    )
    assert sum(by_host[host] for host in hosts) == best
