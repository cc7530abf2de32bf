"""Counts of pods near a host after any history: those of a new leader, and those of looking at every pod."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.pod import Pod, PodConstraints, PodTerm, SelectorRequirement
from engine.api.workload import PodSet
from engine.capacity import nearby_pods
from engine.capacity.nearby_pods import NearbyPods, PodQuery, about, labels_of
from tests.support.cluster_records import job, pod, pod_set, shape, spec

HOSTS = ["", "h0", "h1", "gone"]
ROWS = {"h0": 0, "h1": 1}
# The words are keys as well as values, so that a value may look like a key.
WORDS = ["app", "web", "x"]

requirements = st.one_of(
    st.builds(
        SelectorRequirement,
        st.sampled_from(WORDS),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=2, unique=True).map(tuple),
    ),
    st.builds(SelectorRequirement, st.sampled_from(WORDS), st.sampled_from(["Exists", "DoesNotExist"]), st.just(())),
)
selectors = st.one_of(st.none(), st.lists(requirements, max_size=3).map(tuple))
terms = st.builds(
    PodTerm,
    st.sampled_from(["rack", "zone", "invented"]),
    selectors,
    st.sampled_from([(), ("a",), ("b",), ("a", "b"), tuple(f"n{number}" for number in range(20))]),
    st.sampled_from([None, None, (), (SelectorRequirement("kubernetes.io/metadata.name", "NotIn", ("a",)),)]),
)
queries = st.builds(
    PodQuery, st.lists(terms, min_size=1, max_size=2).map(tuple), live=st.booleans(), attracts=st.booleans()
)
labels = st.dictionaries(st.sampled_from(WORDS), st.sampled_from(WORDS), max_size=3).map(
    lambda found: tuple(word for pair in found.items() for word in pair)
)
away = st.lists(terms, max_size=2).map(tuple)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """A pod of one of four names, at any moment of its life."""
    own = spec(
        shape=shape(),
        node_name=draw(st.sampled_from(HOSTS)),
        own_labels=draw(labels),
        constraints=PodConstraints(anti_affinity=draw(away)),
    )
    return replace(
        pod(job(), None, name=f"p{draw(st.integers(0, 1))}"),
        namespace=draw(st.sampled_from(["a", "b"])),
        uid=str(draw(st.integers(0, 1))),
        nominated_node=draw(st.sampled_from(["", "", "h1"])),
        phase=draw(st.sampled_from(["Pending", "Running", "Failed"])),
        deleting=draw(st.booleans()),
        owner=None,
        spec=own,
    )


@st.composite
def reservations(draw: st.DrawFn) -> tuple[str, str, dict[str, int], PodSet | None]:
    template = spec(shape=shape(), own_labels=draw(labels), constraints=PodConstraints(anti_affinity=draw(away)))
    hosts = draw(st.dictionaries(st.sampled_from(HOSTS[1:]), st.integers(1, 3), max_size=2))
    sets = pod_set("main", count=1, template=template)
    return (
        draw(st.sampled_from(["g1", "g2"])),
        draw(st.sampled_from(["main", "more"])),
        hosts,
        draw(st.sampled_from([sets, sets, None])),
    )


changes = st.one_of(pods(), st.tuples(st.sampled_from("ab"), st.sampled_from(["p0", "p1"])), reservations(), queries)


@given(st.lists(changes, max_size=25), st.lists(queries, max_size=6), st.integers(1, 3))
@settings(max_examples=400, deadline=None)
def test_counts_after_any_history_are_those_of_a_new_leader(
    history: list[object], asked: list[PodQuery], most: int
) -> None:
    """Pods come, are bound, relabelled, replaced, end and go, slots are reserved and given back, selectors dropped."""
    known: dict[tuple[str, str], Pod] = {}
    reserved: dict[tuple[str, str], tuple[dict[str, int], PodSet | None]] = {}
    nearby = NearbyPods(known.values)
    with patch.object(nearby_pods, "MAX_QUERIES", most):
        for change in history:
            match change:
                case Pod():
                    nearby.set_pod(known.get(change.key), change)
                    known[change.key] = change
                case PodQuery():
                    nearby.by_row(change, ROWS, size=2, stamp=0)
                case (str() as namespace, str() as name):
                    if (old := known.pop((namespace, name), None)) is not None:
                        nearby.set_pod(old, None)
                case (key, name, hosts, sets):
                    nearby.reserve(key, name, hosts, namespace="a", pod_set=sets)
                    reserved[key, name] = hosts, sets
        fresh = NearbyPods(known.values)
        for one in known.values():
            fresh.set_pod(None, one)
        for (key, name), (hosts, sets) in reserved.items():
            fresh.reserve(key, name, hosts, namespace="a", pod_set=sets)
        every = [
            (one.spec.node_name or one.nominated_node, one.namespace, one.spec, one.deleting, 1)
            for one in known.values()
            if not one.finished
        ]
        every += [
            (host, "a", sets.template, False, number)
            for hosts, sets in reserved.values()
            if sets is not None
            for host, number in hosts.items()
        ]
        assert len(nearby._queries) <= most
        for query in [*asked, *[one for one in history if isinstance(one, PodQuery)]]:
            counts = Counter[str]()
            for host, namespace, own, deleting, number in every:
                if query.matches(namespace, labels_of(own.own_labels), deleting=deleting):
                    counts[host] += number
            expected = [counts["h0"], counts["h1"]]
            assert nearby.by_row(query, ROWS, size=2, stamp=0).tolist() == expected
            assert fresh.by_row(query, ROWS, size=2, stamp=0).tolist() == expected
    for namespace, flat in [("a", ("app", "web")), ("b", ()), ("b", ("web", "app", "x", "x")), ("n3", ("x", "web"))]:
        own = labels_of(flat)
        expected_away: dict[str, Counter[str]] = {}
        for host, _, spec_of, _, number in every:
            wanted = spec_of.constraints.anti_affinity if spec_of.constraints is not None else ()
            for key in {term.topology_key for term in wanted if about(term, namespace, own)} if host else ():
                expected_away.setdefault(key, Counter())[host] += number
        expected_away.pop("invented", None)
        for one in (nearby, fresh):
            found: dict[str, Counter[str]] = {}
            for term, on_hosts in one.keeping_away(namespace, own, {"rack", "zone"}.__contains__):
                assert about(term, namespace, own)
                found.setdefault(term.topology_key, Counter()).update(on_hosts)
            assert found == expected_away
    for key, name in reserved:
        nearby.reserve(key, name, {}, namespace="a", pod_set=None)
    for one in known.values():
        nearby.set_pod(one, None)
    assert not nearby.keeps_away
    assert not nearby._filed
    assert not nearby._reserved
    assert not any(counted.hosts for counted in nearby._queries.values())
