"""The warm index answers as a cold count does, after any history."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner.plan import PlanRequest, SlotIndex, plan
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


def test_the_index_keeps_its_own_numbers() -> None:
    """Writing to the arrays that it was made from changes nothing."""
    slots = np.full(len(HOSTS), 4, dtype=np.int64)
    index = SlotIndex(TREE, slots)
    slots[:] = 0
    assert index.slots.tolist() == [4] * len(HOSTS)
