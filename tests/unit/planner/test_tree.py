"""The tree: order, ranges, sums."""

from __future__ import annotations

import numpy as np
import pytest

from engine.planner.tree import build_tree

LEVELS = ("block", "rack", "host")
PATHS = [("b2", "r1", "n10"), ("b2", "r1", "n9"), ("b10", "r1", "n1"), ("b2", "r10", "n3"), ("b2", "r2", "n2")]


def test_siblings_are_in_natural_order() -> None:
    """Numbers inside names count as numbers, so rack 2 comes before rack 10 and host 9 before host 10."""
    assert build_tree(LEVELS, PATHS).hosts == ("n9", "n10", "n2", "n3", "n1")


def test_the_same_name_in_another_block_is_another_domain() -> None:
    """A domain is a path: r1 of b2 is not r1 of b10."""
    tree = build_tree(LEVELS, PATHS)
    assert [tree.path(1, rack) for rack in range(tree.size(1))] == [
        ("b2", "r1"),
        ("b2", "r2"),
        ("b2", "r10"),
        ("b10", "r1"),
    ]


def test_domains_are_ranges_of_hosts() -> None:
    """Every domain is a contiguous range of host indices, at every level."""
    tree = build_tree(LEVELS, PATHS)
    assert [tree.range(0, block) for block in range(2)] == [(0, 4), (4, 5)]
    assert [tree.range(1, rack) for rack in range(4)] == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert tree.range(2, 3) == (3, 4)
    assert [tree.domain_of(1, host) for host in range(5)] == [0, 0, 1, 2, 3]
    assert tree.index["n3"] == 3
    assert tree.starts[1].tolist() == [0, 2, 3, 4]


def test_sums_per_domain() -> None:
    """Per-host amounts add up per domain; at the host level they stay as they are."""
    tree = build_tree(LEVELS, PATHS)
    amounts = np.array([1, 2, 4, 8, 16], dtype=np.int64)
    assert [tree.sums(level, amounts).tolist() for level in range(3)] == [[15, 16], [3, 4, 8, 16], [1, 2, 4, 8, 16]]


def test_children_and_descendants() -> None:
    """The children of domains are domains of the next level; level -1 stands for the whole topology."""
    tree = build_tree(LEVELS, PATHS)
    assert tree.children(-1, np.zeros(1, dtype=np.int64)).tolist() == [0, 1]
    assert tree.children(0, np.array([1])).tolist() == [3]
    assert tree.children(1, np.array([2, 0])).tolist() == [0, 1, 3]
    inside, starts = tree.descendants(0, np.array([0, 1]), 2)
    assert (inside.tolist(), starts.tolist()) == ([0, 1, 2, 3, 4], [0, 4])


def test_a_tree_without_hosts() -> None:
    """No paths give a tree with no domains at any level."""
    tree = build_tree(LEVELS, [])
    assert (tree.hosts, [tree.size(level) for level in range(3)]) == ((), [0, 0, 0])
    assert tree.sums(0, np.empty(0, dtype=np.int64)).tolist() == []


@pytest.mark.parametrize(
    ("levels", "paths", "message"),
    [
        (LEVELS, [("b", "r", "n"), ("b", "s", "n")], "host 'n' appears more than once"),
        (LEVELS, [("b", "n")], "2 values for 3 levels"),
        ((), [], "at least the host level"),
    ],
)
def test_bad_paths_are_refused(levels: tuple[str, ...], paths: list[tuple[str, ...]], message: str) -> None:
    """A host twice, a path of the wrong length or no level at all is refused with what was seen."""
    with pytest.raises(ValueError, match=message):
        build_tree(levels, paths)


def test_numbers_of_any_length_and_zeros_sort() -> None:
    """Names with thousands of digits, leading zeros or none of either have one order, whatever order they come in."""
    names = ["n" + "9" * 5000, "n01", "n1", "n", "x", "1", "²"]
    orders = {build_tree(("host",), [(name,) for name in some]).hosts for some in (names, names[::-1], sorted(names))}
    assert len(orders) == 1
