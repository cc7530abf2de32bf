"""The exact answer for one state, by another way than the planner's: dynamic programming over numbers of pods.

A table says for n = 0 .. N pods the cheapest way to place n of them in a part of the tree; parts join by trying all
splits. Cost counts blocks, then racks, then hosts. Slow (a millisecond and more) and short, so that it can be believed.
"""

from __future__ import annotations

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from engine.planner.tree import Ints64

_BLOCK, _RACK = 1 << 40, 1 << 20
_NEVER = 1 << 60


def fewest(cluster: Cluster, job: Job) -> tuple[int, int, int] | None:
    """The lexicographically fewest (blocks, racks, hosts) for the job now; None when it does not fit.

    The tree has the levels block, rack, host.
    """
    if cluster.tree.levels != ("block", "rack", "host"):
        raise ValueError("optimum: the tree must have the levels block, rack, host")
    slots = cluster.slots(2, job.gpus)
    racks = [_rack(slots[slice(*cluster.tree.range(1, rack))], job.pods) for rack in range(cluster.tree.size(1))]
    if job.required and job.level == 1:
        best = min(_at(table, job.pods) for table in racks) + _BLOCK
    else:
        parents = cluster.tree.ancestors(1, 0).tolist()
        blocks = []
        for block in range(cluster.tree.size(0)):
            table = _join([racks[rack] for rack, parent in enumerate(parents) if parent == block], job.pods)
            table[1:] += _BLOCK
            blocks.append(table)
        whole = [min(_at(table, job.pods) for table in blocks)]
        if not job.required and whole[0] >= _NEVER:
            whole = [_at(_join(blocks, job.pods), job.pods)]
        best = whole[0]
    if best >= _NEVER:
        return None
    return best // _BLOCK, best % _BLOCK // _RACK, best % _RACK


def used(cluster: Cluster, hosts: Ints64) -> tuple[int, int, int]:
    """(blocks, racks, hosts) that these hosts are."""
    blocks, racks = (len(np.unique(cluster.tree.domains[level][hosts])) for level in (0, 1))
    return blocks, racks, len(hosts)


def _rack(slots: Ints64, pods: int) -> Ints64:
    """Hosts needed for 0 .. n pods, largest first, and one rack."""
    reach = np.cumsum(-np.sort(-slots))
    table = np.searchsorted(reach, np.arange(min(pods, int(reach[-1])) + 1)).astype(np.int64) + 1 + _RACK
    table[0] = 0
    return table


def _join(tables: list[Ints64], pods: int) -> Ints64:
    """The cheapest split of every number of pods up to `pods` over all parts."""
    joined = np.zeros(1, dtype=np.int64)
    for table in tables:
        if len(table) > 1:
            short, long = sorted((joined, table), key=len)
            length = min(pods, len(short) + len(long) - 2) + 1
            padded = np.full(length + len(short) - 1, _NEVER, dtype=np.int64)
            take = min(len(long), length)
            padded[len(short) - 1 : len(short) - 1 + take] = long[:take]
            windows = np.lib.stride_tricks.sliding_window_view(padded, len(short))
            joined = (windows + short[::-1]).min(axis=1)
    return joined


def _at(table: Ints64, pods: int) -> int:
    return int(table[pods]) if pods < len(table) else _NEVER
