"""Domains, nodes and pods that are kept between plans are those found afresh; a cut takes the largest places."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.objects import Taint
from engine.api.pod import Pod, PodTerm, SelectorRequirement, Shape, Toleration
from engine.capacity import eligibility
from engine.capacity.capacity import Capacity
from engine.capacity.domain_caps import clip
from engine.capacity.label_domains import LabelDomains
from engine.capacity.nearby_pods import NearbyPods, PodQuery
from engine.planner.slices import unit_of, whole_slots
from engine.planner.tree import Tree, build_tree
from engine.topology.levels import presets
from engine.topology.topology import build_topology
from tests.support.cluster_records import job, node, pod

BLOCK, RACK, ZONE = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack", "zone"
HOSTS = [f"h{number}" for number in range(6)]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    racks = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    paths = [
        (f"b{rack // 2}", f"r{rack}", f"h{rack}-{host}") for rack, hosts in enumerate(racks) for host in range(hosts)
    ]
    return build_tree(("block", "rack", "host"), paths)


def largest_first(sizes: list[int], most: int) -> list[int]:
    """What each takes of `most`, the largest first, of equals the first."""
    taken = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        taken[place] = min(sizes[place], most)
        most -= taken[place]
    return taken


@settings(deadline=None)
@given(st.data(), trees(), st.booleans())
def test_a_cut_takes_the_largest_of_every_domain(data: st.DataObject, tree: Tree, huge: bool) -> None:
    """Level by level below the domains of the label; hosts of no domain, and domains within the limit, stay."""
    level = data.draw(st.integers(0, 2))
    codes = np.array(data.draw(st.lists(st.integers(0, 4), min_size=tree.size(level), max_size=tree.size(level))))
    number = len(tree.hosts)
    slots = np.array(data.draw(st.lists(st.integers(0, 9), min_size=number, max_size=number)), dtype=np.int64)
    slots *= 1 << 55 if huge else 1  # a size and a place do not fit into one number
    grain = data.draw(st.sampled_from([(1, 1, 1), (1, 1, 2), (1, 2, 1), (6, 3, 1)])) if not huge else (1, 1, 1)
    limit = np.array(data.draw(st.lists(st.integers(0, 12), min_size=5, max_size=5))) * (1 << 54 if huge else 1)
    domains = LabelDomains("key", tree, codes[tree.domains[level]].astype(np.int64), 5)
    at = domains.level
    if at == 2 and domains.single and unit_of(grain, 2) > 1:
        return  # single hosts are cut to the limit; the planner takes whole slices of them
    sums = [[int(one) for one in whole_slots(tree, slots, grain, 2)[each]] for each in range(3)]
    unit, wanted = unit_of(grain, at), list(sums[at])
    over = [False] * 5
    for code in range(1, 5):
        inside = [place for place in range(tree.size(at)) if int(domains.level_codes[place]) == code]
        if sum(sums[at][place] for place in inside) > limit[code]:
            over[code] = True
            shares = largest_first([sums[at][place] for place in inside], int(limit[code]) // unit * unit)
            for place, share in zip(inside, shares, strict=True):
                wanted[place] = share
    for below in range(at + 1, 3):
        above, wanted = wanted, []
        for place, amount in enumerate(above):
            first, end = tree.inside(below - 1, place, below)
            inside_of = sums[below][first:end]
            wanted += inside_of if amount == sums[below - 1][place] else largest_first(inside_of, amount)
    expected = [wanted[host] if over[code] else int(slots[host]) for host, code in enumerate(domains.codes.tolist())]
    assert clip(tree, slots, domains, limit, grain).tolist() == expected


@settings(deadline=None)
@given(trees(), st.data())
def test_domains_tell_what_their_hosts_do(tree: Tree, data: st.DataObject) -> None:
    """Sums, number and masks by code, wherever in the tree the label is."""
    level = data.draw(st.integers(0, 2))
    found = data.draw(st.lists(st.integers(0, 5), min_size=tree.size(level), max_size=tree.size(level)))
    codes = np.array(found, dtype=np.int64)[tree.domains[level]]
    domains = LabelDomains("key", tree, codes, 6)
    slots = np.arange(1, len(codes) + 1, dtype=np.int64)
    assert domains.sums(slots).tolist() == [int(slots[codes == code].sum()) for code in range(6)]
    assert domains.number == len({*codes.tolist()} - {0})
    assert domains.every == (0 not in codes)
    marked = np.array([False, True, False, True, False, True])
    assert domains.hosts_in(marked).tolist() == marked[codes].tolist()


shapes = st.sampled_from(
    [
        Shape(requests=()),
        Shape(requests=(), node_selector=(("tier", "gold"),)),
        Shape(requests=(), tolerations=(Toleration("spot", "Exists", "", ""),)),
    ]
)
changes = st.tuples(
    st.sampled_from(HOSTS),
    st.none() | st.dictionaries(st.sampled_from([BLOCK, RACK, ZONE, "tier"]), st.sampled_from(["gold", "b", "c"])),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(changes, max_size=12), shapes, st.booleans(), st.booleans(), st.booleans())
def test_kept_domains_and_nodes_are_those_found_afresh(
    history: list[tuple[str, dict[str, str] | None, bool]], shape: Shape, affinity: bool, taints: bool, few: bool
) -> None:
    """Labels and taints that change, nodes that come and go, values numbered anew, and columns that are dropped."""
    kept, nodes = Capacity(), {}
    with patch.object(eligibility, "SPARE", 1), patch.object(eligibility, "MAX_CELLS", 1 if few else 10_000):
        for host, labels, tainted in history:
            nodes.pop(host, None)
            if labels is not None:
                nodes[host] = node(host, labels=labels, taints=(Taint("spot", "", "NoSchedule"),) if tainted else ())
            kept.set_node(host, nodes.get(host))
            topology = build_topology("default", presets()["demo"], list(nodes.values()))
            fresh = Capacity()
            for one in nodes.values():
                fresh.set_node(one.name, one)
            for key in (RACK, ZONE, "absent"):
                there = [found.domains(key, topology) for found in (kept, fresh)]
                groups = [[tuple(one.codes == code) for code in one.codes] for one in there]
                assert groups[0] == groups[1]
                assert [bool(code) for code in there[0].codes] == [
                    key in nodes[host].labels for host in topology.tree.hosts
                ]
                both = [
                    found.spread_nodes(shape, key, (key, RACK), affinity=affinity, taints=taints)
                    for found in (kept, fresh)
                ]
                selected = [
                    {name for name in nodes if mask[found.row_of(name) or 0]}
                    for found, (mask, _) in zip((kept, fresh), both, strict=True)
                ]
                assert selected[0] == selected[1]
                assert both[0][1].sum() == both[1][1].sum()
                codes = kept.label_codes(key)
                assert set(np.flatnonzero(both[0][1]).tolist()) == set(codes[both[0][0]].tolist()) - {0}


TERM = PodTerm(RACK, (SelectorRequirement("app", "In", ("a",)),), ("default",))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", *HOSTS]), st.booleans(), st.booleans()), max_size=30))
def test_pods_by_row_are_those_counted_afresh(history: list[tuple[int, str, bool, bool]]) -> None:
    """Asked after some changes or none, and after hosts have got other rows."""
    pods: dict[str, Pod] = {}
    nearby, query = NearbyPods(lambda: list(pods.values())), PodQuery((TERM,))
    for stamp, (number, host, moved, asked) in enumerate(history):
        name = f"p{number}"
        base = pod(job(), None, name=name, host=host)
        new = replace(base, spec=replace(base.spec, own_labels=("app", "a" if number % 2 else "b"))) if host else None
        nearby.set_pod(pods.get(name), new)
        if new is not None:
            pods[name] = new
        else:
            pods.pop(name, None)
        if asked:
            order = HOSTS[::-1] if moved else HOSTS
            rows = {each: row for row, each in enumerate(order)}
            found = nearby.by_row(query, rows, size=len(rows), stamp=(stamp if len(pods) % 2 else -1, moved))
            wanted = [
                sum(one.spec.node_name == each and int(key[1:]) % 2 for key, one in pods.items()) for each in order
            ]
            assert found.tolist() == wanted
