"""Hosts that would rather have no pods (PreferNoSchedule): the scheduler avoids them, a plan with a pin does not."""

from __future__ import annotations

from collections.abc import Callable

from engine.api.objects import Node
from engine.api.text import plain, plural
from engine.api.workload import Workload
from engine.gang.shape import tolerates
from engine.scheduler.outcome import Placed


def soft_taints(placed: Placed, workload: Workload, node: Callable[[str], Node | None]) -> str | None:
    """Return a sentence about the hosts of a plan with such taints that its pods do not tolerate; None without any."""
    tolerations = {one.name: one.template.shape.tolerations for one in workload.pod_sets}
    hosts: set[str] = set()
    avoided: dict[str, str] = {}
    for plan in placed.pod_sets:
        for host in {slot.host for slot in plan.slots}:
            hosts.add(host)
            there = node(host)
            for taint in there.taints if there is not None else ():
                if taint.effect == "PreferNoSchedule" and not tolerates(tolerations.get(plan.name, ()), taint):
                    avoided.setdefault(host, f"{taint.key}={taint.value}" if taint.value else taint.key)
    if not avoided:
        return None
    of = f"{len(avoided):,} of {plural(len(hosts), 'host')}"
    return f"{of} prefer no pods (taint {plain(min(avoided.values()), 40)}): pinned pods go there all the same"
