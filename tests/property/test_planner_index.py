"""The warm index answers as a cold count does, after any history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner.plan import PlanRequest, SlotIndex, plan
from engine.planner.slices import Slices
from engine.planner.tree import build_tree

HOSTS = [(f"b{b}", f"r{b}{r}", f"h{b}{r}{h}") for b in range(2) for r in range(3) for h in range(1 + (b + r) % 3)]
TREE = build_tree(("block", "rack", "host"), HOSTS)

amount = st.integers(-1, 9)
change = st.tuples(st.integers(0, len(HOSTS) - 1), amount, amount)
ask = st.builds(
    PlanRequest,
    count=st.integers(1, 24),
    require=st.none() | st.integers(0, 2),
    prefer=st.none() | st.integers(0, 2),
    profile=st.sampled_from(["pack", "spread", "balanced"]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(amount, min_size=len(HOSTS), max_size=len(HOSTS)),
    st.lists(st.tuples(change, ask), min_size=1, max_size=12),
)
def test_any_history_of_single_changes_answers_like_counting_afresh(
    start: list[int], history: list[tuple[tuple[int, int, int], PlanRequest]]
) -> None:
    """warm = cold: the same plan, the same numbers of a failure, whatever changed before."""
    slots = np.array(start, dtype=np.int64)
    scarce = np.maximum(slots, 0) * 2
    index = SlotIndex(TREE, slots, scarce)
    for (host, free, rare), request in history:
        slots[host], scarce[host] = free, max(rare, 0)
        index.set(host, free, max(rare, 0))
        assert index.plan(request) == plan(TREE, slots, request, scarce)


numbers = st.lists(amount, min_size=len(HOSTS), max_size=len(HOSTS))
sliced = ask | st.builds(
    lambda request, slices: replace(request, count=request.count * 4, slices=slices),
    ask,
    st.sampled_from([(Slices(1, 2),), (Slices(0, 4), Slices(1, 2)), (Slices(2, 4),)]),
)


@settings(max_examples=200, deadline=None)
@given(numbers, numbers, numbers, st.lists(change, max_size=4), sliced)
def test_other_slots_beside_the_kept_scarce_resource_answer_like_counting_afresh(
    start: list[int], scarce: list[int], other: list[int], history: list[tuple[int, int, int]], request: PlanRequest
) -> None:
    """Hosts that are left out, or count as empty: the same plan, and the index stays as it is."""
    rare = np.maximum(np.array(scarce, dtype=np.int64), 0)
    index = SlotIndex(TREE, np.array(start, dtype=np.int64), rare)
    for host, free, more in history:
        rare[host] = max(more, 0)
        index.set(host, free, max(more, 0))
    before = index.slots.tolist(), index.plan(PlanRequest(1))
    slots = np.array(other, dtype=np.int64)
    assert index.plan_on_slots(slots, request) == plan(TREE, slots, request, rare)
    assert (index.slots.tolist(), index.plan(PlanRequest(1))) == before
    assert slots.tolist() == other


@given(st.lists(st.booleans(), min_size=len(HOSTS), max_size=len(HOSTS)), st.integers(0, 2))
def test_marks_go_from_hosts_to_domains_and_back(marked: list[bool], level: int) -> None:
    """Ragged domains: each host is marked whose domain has a marked one."""
    domains = TREE.any_in(level, np.array(marked))
    paths = {path[: level + 1] for path, one in zip(TREE.paths, marked, strict=True) if one}
    assert {TREE.path(level, one) for one in np.flatnonzero(domains).tolist()} == paths
    assert TREE.hosts_in(level, domains).tolist() == [path[: level + 1] in paths for path in TREE.paths]


def test_the_index_keeps_its_own_numbers() -> None:
    """Writing to the arrays that it was made from changes nothing."""
    slots = np.full(len(HOSTS), 4, dtype=np.int64)
    index = SlotIndex(TREE, slots)
    slots[:] = 0
    assert index.slots.tolist() == [4] * len(HOSTS)
