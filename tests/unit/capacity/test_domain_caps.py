"""Caps per domain: how slots are cut, in which order, and when a spread constraint's least domain rises."""

from __future__ import annotations

import numpy as np

from engine.capacity.domain_caps import MAX_DOMAINS, DomainCap, Skew, capped, clip
from engine.capacity.label_domains import LabelDomains
from engine.planner.tree import build_tree

TREE = build_tree(("rack", "host"), [(f"r{rack}", f"r{rack}-h{host}") for rack in range(2) for host in range(4)])
PLAIN = (1, 1)


def domains(*codes: int) -> LabelDomains:
    found = np.array(codes, dtype=np.int64)
    return LabelDomains("key", TREE, found, int(found.max(initial=0)) + 1)


def cap(of: LabelDomains, limit: int, skew: Skew | None = None) -> DomainCap:
    return DomainCap("why", of, np.full(of.size, limit, dtype=np.int64), frozenset({"main"}), skew)


def test_a_domain_keeps_its_largest_hosts_up_to_the_limit() -> None:
    """Hosts without the label, and domains below their limit, keep all of their slots."""
    of = domains(1, 1, 1, 1, 2, 2, 0, 2)
    slots = np.array([1, 3, 2, 1, 1, 1, 9, 0])
    assert clip(TREE, slots, of, np.array([0, 4, 4]), PLAIN).tolist() == [0, 3, 1, 0, 1, 1, 9, 0]


def test_whole_slices_stay_whole() -> None:
    """With slices of two on a host no host keeps one, and the limit is rounded down."""
    of = domains(1, 1, 1, 1, 2, 2, 2, 2)
    slots = np.array([2, 3, 2, 0, 2, 2, 2, 2])
    cut = clip(TREE, slots, of, np.array([0, 5, 8]), (1, 2))
    assert cut.tolist() == [2, 2, 0, 0, 2, 2, 2, 2]


def test_finer_domains_are_cut_first_whatever_their_codes_are() -> None:
    """Codes of values that are gone leave a label of two racks with large numbers."""
    hosts, racks = domains(1, 2, 3, 4, 5, 6, 7, 8), domains(*[40] * 4, *[41] * 4)
    slots = np.full(8, 4)
    (cut,) = capped(TREE, slots, [cap(racks, 2), cap(hosts, 1)], count=4, require=None, grain=PLAIN)
    assert cut.tolist() == [1, 1, 0, 0, 1, 1, 0, 0]


def test_the_domain_with_the_fewest_pods_rises_only_as_far_as_it_must() -> None:
    """Two racks, one with a pod: up to two more the present limit is enough, then both racks fill."""
    of = domains(1, 1, 1, 1, 2, 2, 2, 2)
    skew = Skew(np.array([0, 1, 0]), np.array([False, True, True]), 1, fixed=False)
    rule = DomainCap("why", of, skew.limits(skew.least), frozenset({"main"}), skew)
    slots = np.full(8, 2)
    for count, sums in ((1, [0, 1]), (2, [1, 1]), (3, [1, 2]), (5, [2, 3]), (15, [7, 8]), (16, [8, 8])):
        (cut,) = capped(TREE, slots, [rule], count=count, require=None, grain=PLAIN)
        assert TREE.sums(0, cut).tolist() == sums
        assert rule.keeps(cut)
    wide = np.array([2] * 4 + [9] * 4)
    (cut,) = capped(TREE, wide, [rule], count=30, require=None, grain=PLAIN)
    assert int(cut.sum()) < 30  # the full rack holds the other one down


def test_a_domain_outside_the_topology_holds_the_others_down() -> None:
    """No pod of the gang can go to it, so its count is the least for ever."""
    of = LabelDomains("key", TREE, np.array([1, 1, 1, 1, 2, 2, 2, 2]), 4)
    skew = Skew(np.zeros(4, dtype=np.int64), np.array([False, True, True, True]), 2, fixed=False)
    rule = DomainCap("why", of, skew.limits(0), frozenset({"main"}), skew)
    (cut,) = capped(TREE, np.full(8, 2), [rule], count=6, require=None, grain=PLAIN)
    assert TREE.sums(0, cut).tolist() == [2, 2]


def test_inside_a_required_domain_only_the_pods_of_all_count() -> None:
    """A rack is one domain of the label: it takes the gang or not, and its hosts keep their slots."""
    of = domains(1, 1, 1, 1, 2, 2, 2, 2)
    rule = DomainCap("why", of, np.array([0, 3, 8]), frozenset({"main"}))
    cuts = list(capped(TREE, np.full(8, 2), [rule], count=4, require=0, grain=PLAIN))
    assert cuts[0].tolist() == [0, 0, 0, 0, 2, 2, 2, 2]


def test_only_domains_that_can_raise_the_fewest_pods_are_tried_alone() -> None:
    """One pod a host is the limit as long as some host has none: no rack but the one with all of these changes that."""
    skew = Skew(np.array([0, 1, 1, 1, 1, 0, 0, 0, 0]), np.arange(9) > 0, 1, fixed=False)
    hosts = domains(*range(1, 9))
    rule = DomainCap("why", hosts, skew.limits(0), frozenset({"main"}), skew)
    cuts = list(capped(TREE, np.full(8, 3), [rule], count=6, require=0, grain=PLAIN))
    assert [cut.tolist() for cut in cuts[1:]] == [[0, 0, 0, 0, 2, 2, 1, 1]]
    none = Skew(np.zeros(9, dtype=np.int64), np.arange(9) > 0, 1, fixed=False)
    rule = DomainCap("why", hosts, none.limits(0), frozenset({"main"}), none)
    assert len(list(capped(TREE, np.full(8, 3), [rule], count=6, require=0, grain=PLAIN))) == 1


def test_few_domains_are_tried_alone() -> None:
    """Each try costs a plan: one value of a label over all hosts, and as many required domains as there are hosts."""
    tree = build_tree(["host"], [(f"h{number:04}",) for number in range(1_000)])
    skew = Skew(np.array([0, 0]), np.array([False, True]), 1, fixed=False)
    everywhere = LabelDomains("key", tree, np.ones(1_000, dtype=np.int64), 2)
    rule = DomainCap("why", everywhere, skew.limits(0), frozenset({"main"}), skew)
    assert len(list(capped(tree, np.full(1_000, 3), [rule], count=2, require=0, grain=(1,)))) == MAX_DOMAINS + 1
