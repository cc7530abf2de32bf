"""The topologies of a cluster with what is free in every domain, and the largest gang that fits now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from engine.api.duration import timestamp
from engine.api.text import quote
from engine.cache.state import ClusterState
from engine.planner.tree import Ints64
from engine.policy.namespaces import modes_text
from engine.topology.topology import Topology
from webhook.queries import model as output
from webhook.queries.hosts import Holders, Holding, HostTable, holders_of, host_table, shares
from webhook.queries.names import group_of, workload_label
from webhook.snapshot.snapshot import AnswerProblem, Snapshot, chosen_topologies


def topologies(
    snapshot: Snapshot,
    *,
    name: str | None = None,
    level: str | None = None,
    gpus: int | None = None,
    holders: Holders | None = None,
) -> output.TopologiesAnswer:
    """Return the topologies (or the one of that name) with the domains of a level (None: all above the host).

    With the host level the hosts too. `gpus`: of each pod of the gangs that are tried. `holders`: those of the whole
    cluster, where they are known already. Raises AnswerProblem for an unknown topology or level, and where the nodes
    cannot be read.
    """
    view = snapshot.view
    chosen = chosen_topologies(snapshot, name)
    if level is not None and all(one.level_index(level) is None for one in chosen):
        known = dict.fromkeys(found.name for one in chosen for found in one.levels)
        raise AnswerProblem(f"no level {quote(level)}; there are: {', '.join(known)}")
    holders = holders_of(view) if holders is None else holders
    return output.TopologiesAnswer(
        taken_at=timestamp(snapshot.taken),
        mode=modes_text(view.policy),
        policy=view.policy.hash,
        topologies=tuple(topology_answer(snapshot, one, holders, level=level, gpus=gpus) for one in chosen),
        remarks=snapshot.remarks,
    )


def topology_answer(
    snapshot: Snapshot, topology: Topology, holders: Holders, *, level: str | None = None, gpus: int | None = None
) -> output.TopologyAnswer:
    """Return one topology; `holders` are those of the whole cluster."""
    table, known = host_table(snapshot, topology, holders, gpus=gpus), snapshot.capacity_known
    tree, view = topology.tree, snapshot.view
    host_level = len(topology.levels) - 1
    asked = topology.level_index(level) if level is not None else None
    wanted = [one for one in range(host_level) if asked in (None, host_level, one)]
    return output.TopologyAnswer(
        name=topology.name,
        levels=tuple(_level(table, one, known=known) for one in range(host_level + 1)),
        hosts=len(tree.hosts),
        free_hosts=int(table.free_hosts.sum()) if known else None,
        gpus=_counts([int(part.sum()) for part in _parts(table)], known=known),
        largest_gang=int(table.slots.sum()) if known else None,
        pod_gpus=table.pod_gpus,
        waits=topology.waits or None,
        domains=tuple(one for depth in wanted for one in _domains(view, table, depth, known=known))
        if len(tree.hosts)
        else (),
        nodes=tuple(_hosts(view, table, known=known)) if asked == host_level else (),
        left_out=tuple(output.LeftOut(node=node, reason=why) for node, why in sorted(topology.outside.items())),
    )


def _parts(table: HostTable) -> tuple[Ints64, ...]:
    return (table.total, table.used, table.reserved, table.kept, table.out, table.free)


def _counts(parts: Sequence[int], *, known: bool) -> output.GpuCounts:
    total, used, reserved, kept, out, free = parts
    if not known:
        return output.GpuCounts(total=total, used=None, reserved=None, kept=None, out=None, free=None)
    return output.GpuCounts(total=total, used=used, reserved=reserved, kept=kept, out=out, free=free)


def _level(table: HostTable, level: int, *, known: bool) -> output.LevelAnswer:
    tree = table.topology.tree
    name, size = table.topology.levels[level].name, tree.size(level)
    if not known:
        return output.LevelAnswer(level=name, domains=size, largest_gang=None, largest_in=None, fragmentation=None)
    sums = tree.sums(level, table.slots)
    best = int(sums.argmax()) if len(sums) else -1
    largest = int(sums[best]) if best >= 0 else 0
    return output.LevelAnswer(
        level=name,
        domains=size,
        largest_gang=largest,
        largest_in=tree.path(level, best) if largest else None,
        fragmentation=shares(sums.tolist(), largest),
    )


def _domains(view: ClusterState, table: HostTable, level: int, *, known: bool) -> list[output.DomainAnswer]:
    tree = table.topology.tree
    sums = [tree.sums(level, part).tolist() for part in _parts(table)]
    largest = tree.sums(level, table.slots).tolist()
    free_hosts = tree.sums(level, table.free_hosts.astype(np.int64)).tolist()
    found = []
    for domain in range(tree.size(level)):
        first, end = tree.range(level, domain)
        hosts = tree.hosts[first:end]
        kept = dict.fromkeys(label for host in hosts if (label := table.label(view, host)) is not None)
        found.append(
            output.DomainAnswer(
                level=table.topology.levels[level].name,
                path=tree.path(level, domain),
                hosts=end - first,
                free_hosts=free_hosts[domain] if known else None,
                gpus=_counts([part[domain] for part in sums], known=known),
                largest_gang=largest[domain] if known else None,
                out=dict(sorted(Counter(why for why in table.reasons[first:end] if why).items())),
                kept_for=tuple(kept),
            )
        )
    return found


def _hosts(view: ClusterState, table: HostTable, *, known: bool) -> list[output.HostAnswer]:
    columns = [part.tolist() for part in _parts(table)]
    slots = table.slots.tolist()
    names: dict[str, output.HostGang] = {}
    return [
        output.HostAnswer(
            name=host,
            domain=table.topology.tree.paths[index][:-1],
            gpus=_counts([column[index] for column in columns], known=known),
            out=table.reasons[index] or None,
            kept_for=table.label(view, host),
            slots=slots[index] if known else None,
            gangs=tuple(_holding(view, one, names) for one in table.holdings.get(host, ())),
            other_pods=table.others.get(host, 0) if known else None,
        )
        for index, host in enumerate(table.topology.tree.hosts)
    ]


def _holding(view: ClusterState, one: Holding, known: dict[str, output.HostGang]) -> output.HostGang:
    """Return a gang's pods on a host; `known`: the names of gangs found before, as a gang is on many hosts."""
    if one.key not in known:
        workload = view.gangs.workload_of(one.key)
        known[one.key] = output.HostGang(
            namespace=workload.namespace if workload is not None else "",
            workload=workload_label(workload.kind, workload.name) if workload is not None else str(one.key),
            group=group_of(workload, one.key) if workload is not None else None,
            pods=0,
            reserved=0,
            gpus=0,
        )
    return known[one.key].model_copy(update={"pods": one.pods, "reserved": one.reserved, "gpus": one.gpus})
