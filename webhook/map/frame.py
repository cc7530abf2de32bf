"""The map's data of one snapshot: topologies with all hosts, gangs, what fits now, and explanations. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.gang.gang import Gang
from webhook.explanations.explain import explain
from webhook.map.model import MapFrame, PodSize
from webhook.queries.gangs import GangTable, gang_table
from webhook.queries.hosts import Holders, holders_of
from webhook.queries.model import ExplainedGang, TopologyAnswer
from webhook.queries.subject import Subject
from webhook.queries.topologies import topologies, topology_answer
from webhook.snapshot.snapshot import Snapshot

SIZES: Final = (1, 2, 4, 8)
MOST_WAITING: Final = 20  # gangs explained, the first of the queue: each costs several plans
MOST_PLANS: Final = 150  # of the forecast, which a live page needs every few seconds
MOST_PODS: Final = 5_000  # listed one by one, those of small gangs first


def map_frame(snapshot: Snapshot) -> MapFrame:
    """Return what the map shows of a snapshot. Raises AnswerProblem where the nodes cannot be read."""
    holders = holders_of(snapshot.view)
    shown = topologies(snapshot, level="host", holders=holders)
    table = gang_table(snapshot, plans=MOST_PLANS)
    return MapFrame(
        taken_at=shown.taken_at,
        mode=shown.mode,
        policy=shown.policy,
        topologies=shown.topologies,
        gangs=tuple(table.rows.values()),
        sizes=tuple(_sizes(snapshot, holders, shown.topologies)),
        explained=tuple(_explained(snapshot, table)),
        remarks=snapshot.remarks,
    )


def _sizes(snapshot: Snapshot, holders: Holders, shown: tuple[TopologyAnswer, ...]) -> Iterator[PodSize]:
    """Yield what fits for pods of each size that some host of a topology can have."""
    for one in shown:
        topology = snapshot.view.topologies[one.name]
        largest = max((host.gpus.total for host in one.nodes), default=0)
        for gpus in [size for size in SIZES if size <= largest] or [0]:
            found = topology_answer(snapshot, topology, holders, level=topology.levels[0].name, gpus=gpus)
            yield PodSize(topology=one.name, pod_gpus=gpus, levels=found.levels, largest_gang=found.largest_gang)


def _explained(snapshot: Snapshot, table: GangTable) -> Iterator[ExplainedGang]:
    """Yield the first waiting gangs with what is in their way, and gangs with slots with their pods."""
    subjects = [Subject(keys=(one.gang.key,)) for one in table.waiting[:MOST_WAITING]]
    subjects += [Subject(keys=(gang.key,)) for gang in _listed(snapshot, table)]
    for one in explain(snapshot, subjects, table=table).gangs:
        yield one.model_copy(update={"gang": None})  # it is among the gangs


def _listed(snapshot: Snapshot, table: GangTable) -> Iterator[Gang]:
    """Yield the gangs whose pods are listed: the smallest ones, as long as all of them have MOST_PODS at most."""
    found = (snapshot.view.gangs.get(key) for key, row in table.rows.items() if row.hosts)
    left = MOST_PODS
    for gang in sorted((one for one in found if one is not None), key=lambda one: (one.workload.slots, one.key)):
        left -= gang.workload.slots
        if left < 0:
            return
        yield gang
