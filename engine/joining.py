"""Slots for the rest of a gang of which a part runs already and no assignment is left to go by.

An admin deleted its Placement, or enforcement was off for a while: the others join the pods that run, inside the
required domain that these use, so that no replacement breaks a level.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from engine.explain import placed_text
from engine.outcomes import Outcome, Placed, Waits
from engine.planner import Gang, GangPlan, NoFit, PodSet, Request, Undecided, plan_gang
from engine.ranks import join_ranks
from engine.records import PodSetPlan, PodSetRequest, Slot
from engine.topology import Topology
from engine.wording import plain, plural

Ints = npt.NDArray[np.int64]


def join(
    kept: Mapping[int, str], ask: PodSetRequest, request: Request, topology: Topology, *, free: Ints, scarce: Ints
) -> Outcome:
    """Slots for the pods that are missing beside those that stay where they are."""
    tree = topology.tree
    astray = sorted(host for host in kept.values() if host not in tree.index)
    if astray:
        return Waits("NodesExcluded", f"a pod of the gang is on {plain(astray[0])}, outside the topology")
    pods = PodSet(
        count=ask.count,
        requests=(1,),  # slots stand for resources: the pods are equal
        require=request.require,
        prefer=request.prefer,
        slices=request.slices,
        kept={rank: tree.index[host] for rank, host in kept.items()},
    )
    gang = Gang((pods,), profile=request.profile, steps=request.steps)
    missing = plural(ask.count - len(kept), "pod")
    level = topology.levels[request.require].name if request.require is not None else None
    match plan_gang(tree, free[:, None], gang, scarce):
        case GangPlan() as answer:
            return _seated(answer, ask, topology, level)
        case NoFit():
            where = f"the {level} of those that run" if level else "the topology"
            return Waits("Fragmented", f"needs room for {missing} more in {where}")
        case Undecided():
            return Waits("SearchLimit", f"the search for {missing} more ran out of its {request.steps:,} steps")


def _seated(answer: GangPlan, ask: PodSetRequest, topology: Topology, level: str | None) -> Placed:
    tree = topology.tree
    ranks: dict[int, list[tuple[int, int]]] = {}
    for rank, host in enumerate(answer.pod_sets[0].ranks):
        ranks.setdefault(host, []).append((rank, rank))
    slots = tuple(
        Slot(
            domain=tree.path(len(tree.levels) - 1, host),
            count=len(own),
            ranks=join_ranks(own) if ask.ranked else None,
        )
        for host, own in ranks.items()  # in the order of the lowest rank
    )
    used = {one.name: number for one, number in zip(topology.levels, answer.domains_used, strict=True)}
    return Placed(
        pod_sets=(PodSetPlan(ask.name, slots),),
        domains_used=used,
        proven=answer.proven,
        message=placed_text(ask.count, [slot.domain for slot in slots], tuple(used)),
        require=level,
        prefer=ask.prefer,
    )
