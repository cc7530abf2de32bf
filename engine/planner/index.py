"""The slots of one shape, kept summed up: a change of one host costs a few additions, a decision no recount."""

from __future__ import annotations

import numpy as np

from engine.planner.amounts import Amounts, amounts
from engine.planner.plan import NoFit, Plan, Request, check, plan_on
from engine.planner.tree import Ints64, Tree

_MOST_SLOTS = (1 << 31) - 1


class SlotIndex:
    """Free slots and the free scarce resource per host of `tree`, with their sums per domain.

    16 bytes per host and as many per domain. After any history of `set` the answers are those of `plan` on the same
    numbers (property test). Not thread-safe.
    """

    def __init__(self, tree: Tree, slots: Ints64, scarce: Ints64 | None = None) -> None:
        check(tree, Request(1), slots=slots, scarce=scarce)
        rare = slots if scarce is None else scarce
        # Copies: the arrays are written to.
        state = amounts(tree, np.array(slots, dtype=np.int64), np.array(rare, dtype=np.int64), spread=False)
        levels = range(len(tree.levels))
        self._tree = tree
        self._pack = state
        self._spread = Amounts(tree, state.slots, state.scarce, True)
        self._sums = tuple((tree.domains[level], state.slots[level], state.scarce_of(level)) for level in levels)
        for level in levels:
            self._spread.share_scarce(level, state.scarce_of(level))

    @property
    def slots(self) -> Ints64:
        """Free slots per host, never below 0; not to be written to."""
        return self._pack.slots[-1]

    def set(self, host: int, slots: int, scarce: int | None = None) -> None:
        """Change one host (an index): its free slots, and its free scarce resource (None: as the slots)."""
        _, free, rare = self._sums[-1]
        room, before = min(max(slots, 0), _MOST_SLOTS), int(free[host])
        more = room - before
        if more:
            self._count(room, before)
        richer = max(slots if scarce is None else scarce, 0) - int(rare[host])
        for domains, sums, scarce_sums in self._sums:
            domain = domains[host]
            if more:
                sums[domain] += more
            if richer:
                scarce_sums[domain] += richer

    def _count(self, room: int, before: int) -> None:
        """Take a host from those with `before` slots to those with `room`."""
        tally = self._pack.tally
        if tally is None:
            # Not before the first change: a shape that is asked for once needs no tally.
            values, hosts = np.unique(self._pack.slots[-1], return_counts=True)
            tally = dict(zip(values.tolist(), hosts.tolist(), strict=True))
            self._pack.tally = self._spread.tally = tally
        tally[room] = tally.get(room, 0) + 1
        tally[before] -= 1
        if not tally[before]:
            del tally[before]

    def plan(self, request: Request) -> Plan | NoFit:
        """The same answer as `engine.planner.plan` on the present numbers."""
        check(self._tree, request)
        return plan_on(self._spread if request.profile == "spread" else self._pack, request)
