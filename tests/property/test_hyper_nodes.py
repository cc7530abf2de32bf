"""HyperNodes against Volcano's own words, and node-name patterns against Python's regular expressions."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from engine.topology.hyper_nodes import HyperNode
from engine.topology.patterns import NameIndex, PatternError, StepBudget
from engine.topology.topology import topologies_of
from tests.support.cluster_records import node

NODES = [f"n{at}" for at in range(8)]


@st.composite
def anything(draw: st.DrawFn) -> list[HyperNode]:
    """Any members anywhere: trees now and then, cycles and doubles mostly."""
    names = [f"s{at}" for at in range(draw(st.integers(1, 6)))]
    return [
        HyperNode(
            name,
            draw(st.integers(0, 4)),
            hyper_nodes=tuple(draw(st.lists(st.sampled_from([*names, "gone"]), max_size=2))),
            nodes=tuple(draw(st.lists(st.sampled_from([*NODES, "gone"]), max_size=4))),
        )
        for name in names
    ]


@st.composite
def forests(draw: st.DrawFn) -> list[HyperNode]:
    """Every node in at most one HyperNode, every HyperNode in at most one other of a higher tier."""
    tiers = sorted(draw(st.lists(st.integers(1, 4), min_size=1, max_size=8)))
    members: list[list[str]] = [[] for _ in tiers]
    for name in NODES:
        at = draw(st.one_of(st.none(), st.integers(0, len(tiers) - 1)))
        if at is not None:
            members[at].append(name)
    children: list[list[str]] = [[] for _ in tiers]
    for at, tier in enumerate(tiers):
        higher = [one for one, other in enumerate(tiers) if other > tier]
        parent = draw(st.sampled_from([None, *higher]))
        if parent is not None:
            children[parent].append(f"s{at}")
    return [
        HyperNode(f"s{at}", tier, hyper_nodes=tuple(children[at]), nodes=tuple(members[at]))
        for at, tier in enumerate(tiers)
    ]


def real_nodes(name: str, known: dict[str, HyperNode]) -> set[str]:
    """Volcano's set of real nodes: its own members and those of the HyperNodes in it."""
    one = known[name]
    return set(one.nodes).union(*(real_nodes(child, known) for child in one.hyper_nodes))


@given(forests())
def test_two_nodes_share_a_domain_where_volcano_has_a_hyper_node_up_to_the_tier(found: list[HyperNode]) -> None:
    """And what is left out is in no HyperNode of the lowest tier."""
    known = {one.name: one for one in found}
    sets = [(one.tier, real_nodes(one.name, known)) for one in found]
    tiers = sorted({one.tier for one in found}, reverse=True)
    topology = topologies_of((), [node(name) for name in NODES], hyper_nodes=found)["hypernodes"]
    paths = {path[-1]: path for path in topology.tree.paths}
    lowest = set().union(*(nodes for tier, nodes in sets if tier == tiers[-1]))
    assert set(paths) == lowest
    for depth, tier in enumerate(tiers):
        for one in paths:
            for other in paths:
                together = any(one in nodes and other in nodes for up_to, nodes in sets if up_to <= tier)
                assert (paths[one][: depth + 1] == paths[other][: depth + 1]) == together


@given(anything())
def test_whatever_the_objects_say_every_domain_is_within_one_hyper_node(found: list[HyperNode]) -> None:
    """Nothing is raised; a node is in the topology or left out with a reason; the order of objects means nothing."""
    topologies = topologies_of((), [node(name) for name in NODES], hyper_nodes=found)
    again = topologies_of((), [node(name) for name in NODES], hyper_nodes=found[::-1])
    tiers = {one.name: one.tier for one in found}
    for name, topology in topologies.items():
        assert topology.tree.paths == again[name].tree.paths
        assert {*topology.tree.hosts, *topology.outside} == set(NODES) or topology.waits
        if not topology.labelled:
            for path in topology.tree.paths:
                assert [tiers[one] for one in path[:-1]] == sorted((tiers[one] for one in path[:-1]), reverse=True)


ATOMS = st.sampled_from(["a", "b", "1", "-", ".", r"\.", "[ab]", "[^a]", r"\d", "[a-c1]", r"\w", "^", "$"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("({})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "{2,}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=12,
)
NAMES = st.lists(st.text("ab1-.", min_size=1, max_size=8), min_size=1, max_size=8)


@given(PATTERNS, NAMES)
def test_a_pattern_matches_the_names_that_a_backtracking_matcher_finds(pattern: str, names: list[str]) -> None:
    wanted = re.compile(pattern.replace("$", r"\Z"))
    expected = [index for index, name in enumerate(names) if wanted.search(name)]
    assert NameIndex(names).find(pattern, StepBudget(10_000_000)) == expected


@given(st.text(st.sampled_from("ab1-.^$()[]{}|*+?\\,:P<>"), max_size=30), NAMES)
def test_whatever_is_written_as_a_pattern_is_matched_or_refused(pattern: str, names: list[str]) -> None:
    try:
        found = NameIndex(names).find(pattern, StepBudget(10_000_000))
    except PatternError as error:
        assert str(error)
    else:
        assert found == sorted(set(found))
