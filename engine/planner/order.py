"""Which of its hosts each lot of a gang gets: the pods that come first in the gang go to the first hosts.

A search places the scarcest pods first, so that the one pod that leads the others (a master, a launcher) may land
behind them for no reason. Here two hosts exchange all that was planned on them, where both are as good.
"""

from __future__ import annotations

import numpy as np

from engine.planner.gang import Room
from engine.planner.joint import cost_of
from engine.planner.lots import Parts
from engine.planner.tree import Bools, Ints64

# Exchanges that are looked at: pods that lead are few.
_TRIES = 64


def in_order(room: Room, parts: Parts, pods: tuple[Ints64, ...]) -> tuple[Ints64, ...]:
    """The same pods per host, exchanged between hosts so that those of the first ranks come first in tree order.

    No exchange breaks what a lot asks for, opens a domain more, or moves pods that come before to the back. Of a gang
    with pods that stay nothing is exchanged: `pods` are those that join them.
    """
    if any(kin.used is not None for kin in parts.kins):
        return pods
    hosts = np.flatnonzero(sum(pods))
    planned = np.stack(pods)[:, hosts]
    order = sorted(range(len(parts.lots)), key=lambda lot: parts.lots[lot].ranks[0])
    tries = _TRIES
    for number, lot in enumerate(order[:-1]):
        before = planned[order[: number + 1]]
        first = 0
        for place in np.flatnonzero(planned[lot]).tolist():
            ahead = np.flatnonzero(_exchangeable(room, parts, planned, hosts, place)[:place])
            ahead = ahead[(ahead >= first) & (before[:, ahead].sum(axis=0) == 0)]
            first = place + 1
            for other in ahead.tolist():
                if tries <= 0:
                    return _spread(room, hosts, planned)
                tries -= 1
                exchanged = planned.copy()
                exchanged[:, [place, other]] = planned[:, [other, place]]
                if _as_good(room, parts, hosts, planned, exchanged):
                    planned, first = exchanged, other + 1
                    before = planned[order[: number + 1]]
                    break
    return _spread(room, hosts, planned)


def _exchangeable(room: Room, parts: Parts, planned: Ints64, hosts: Ints64, place: int) -> Bools:
    """Per host, whether it has room for all that was planned on the one at `place`, and that one for what it has."""
    needs = planned.T @ np.stack([lot.requests for lot in parts.lots])
    free = room.free[hosts]
    eligible = np.stack([lot.eligible[hosts] for lot in parts.lots])
    there = ((needs[place] <= free) | (needs[place] == 0)).all(axis=1) & eligible[planned[:, place] > 0].all(axis=0)
    here = ((needs <= free[place]) | (needs == 0)).all(axis=1)
    found: Bools = there & here & ((planned == 0) | eligible[:, [place]]).all(axis=0)
    return found


def _as_good(room: Room, parts: Parts, hosts: Ints64, before: Ints64, after: Ints64) -> bool:
    """Whether the pods of each lot still share the domains that they have to, and no more domains are opened."""
    tree = room.tree
    for lot, pods in zip(parts.lots, after, strict=True):
        for level, size in enumerate(lot.grain):
            if size > 1 and (np.bincount(tree.domains[level][hosts], weights=pods) % size).any():
                return False
    for tie in parts.ties:
        together = hosts[after[sorted(tie.lots)].sum(axis=0) > 0]
        if len(np.unique(tree.domains[tie.level][together])) > 1:
            return False
    costs = [cost_of(tree, parts, _spread(room, hosts, planned)) for planned in (before, after)]
    return costs[1] <= costs[0]


def _spread(room: Room, hosts: Ints64, planned: Ints64) -> tuple[Ints64, ...]:
    """Pods per host of the whole tree, by lot."""
    pods = np.zeros((len(planned), len(room.tree.hosts)), dtype=np.int64)
    pods[:, hosts] = planned
    return tuple(pods)
