"""Pod by pod onto the fullest host, as bin-packing schedulers do, told in whole hosts.

A host that gets a pod is fuller than before, so under a bin-packing score it stays the best until nothing fits: going
pod by pod and filling host by host are the same.
"""

from __future__ import annotations

from bench.placement.jobs import Placement
from engine.planner.tree import Ints64


def fill(ordered: Ints64, slots: Ints64, pods: int) -> Placement | None:
    """`pods` onto the hosts in this order, each up to its `slots`; None when they do not suffice."""
    taken = []
    for host, room in zip(ordered.tolist(), slots[ordered].tolist(), strict=True):
        if room:
            taken.append((host, min(room, pods)))
            pods -= min(room, pods)
        if not pods:
            return tuple(sorted(taken))
    return None
