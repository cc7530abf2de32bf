"""The order of candidate domains, in which the first one is found without a look at the others."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner.bounds import candidates, lowest_fit
from engine.planner.cover import fewest_of
from engine.planner.sums import domain_sums
from engine.planner.tree import build_tree

HOSTS = [
    (f"b{b}", f"r{b}-{r}", f"h{b}-{r}-{h}") for b in range(4) for r in range(1 + b) for h in range(1 + (b + r * 2) % 4)
]
TREE = build_tree(("block", "rack", "host"), HOSTS)


@given(
    st.lists(st.sampled_from([0, 1, 2, 4, 4, 8]), min_size=len(HOSTS), max_size=len(HOSTS)),
    st.integers(1, 40),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_candidates_come_best_bound_first_then_by_the_pack_key(slots: list[int], count: int, spread: bool) -> None:
    """Of the domains that need fewest children each comes once: by bound, then by the pack key, then by index."""
    state = domain_sums(TREE, np.array(slots, dtype=np.int64), None, spread=spread)
    level = lowest_fit(state, count)
    if level is None or level == 2:
        return
    listed = []
    for one in range(TREE.size(level) if level >= 0 else 1):
        if level >= 0 and state.slots[level][one] < count:
            continue
        bound = tuple(
            fewest_of(state.slots[below][slice(*TREE.inside(level, one, below))], count)
            for below in range(level + 1, 3)
        )
        key = [int(values[0]) for values in state.preference(level, np.array([one]))]
        listed.append((bound, key, one))
    least = min(bound[0] for bound, _, _ in listed)
    expected = [(one, bound) for bound, _, one in sorted(listed) if bound[0] == least]
    assert [(one.domain, one.bound) for one in candidates(state, level, count)] == expected
