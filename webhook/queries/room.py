"""What the pods of a gang find on each host and level now, and what is in the way where they nearly fit.

Counted as the planner counts: hosts that are kept for others, have just joined or are barred by other gangs and pods
have no room, whatever is free on them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from engine.api.duration import timestamp
from engine.api.placement import PodSetRequest, kept_hosts
from engine.api.pod import Pod, Shape
from engine.gang.gang import Gang
from engine.gang.key import is_gang_key
from engine.gang.slots import request_to_place
from engine.planner.plan import domain_slots
from engine.planner.tree import Ints64
from engine.resources.shape import JUST_JOINED, KEPT_FOR_OTHERS
from engine.scheduler.precedence import precedence_of, queued_at
from engine.scheduler.schedule import kept_assignment, levels_in_force
from engine.scheduler.separation import barred_hosts, pods_around, rules_for
from engine.scheduler.shortfall import DEVICES_SHORT, IN_USE, full_hosts, without_devices
from engine.topology.topology import Topology
from webhook.queries import model as output
from webhook.queries.forecast import endings, owner_label
from webhook.queries.names import gang_label
from webhook.snapshot.snapshot import Snapshot

WITH_ROOM: Final = "with room"
_MOST_BEST: Final = 3
_MOST_OBSTACLES: Final = 10


@dataclass(frozen=True, slots=True)
class PodRoom:
    """The slots for pods of one template on the hosts of a topology, in the order of its tree.

    `first`: how many slots they get, if the gang starts with its minimum; `required`: the index of the level that they
    require, None without one; `free`: now; `empty`: without other pods, on hosts that take the pods at all; `states`:
    why a host has no room, "" where it has.
    """

    ask: PodSetRequest
    first: int
    required: int | None
    topology: Topology
    free: Ints64
    empty: Ints64
    states: Sequence[str]

    @property
    def needed(self) -> int:
        """The pods that must fit into one domain."""
        return max(1, self.first)

    def sums(self, slots: Ints64, level: int) -> Ints64:
        """Return the slots of every domain of a level (-1: the topology), whole slices alone."""
        return domain_slots(self.topology.tree, slots, level, self.topology.slices(self.ask.slices))

    def nodes(self) -> dict[str, int]:
        """Return the nodes of the topology by state, those with room first; they add up to all of them."""
        counts = Counter(state or WITH_ROOM for state in self.states)
        counts.update(self.topology.outside.values())
        return dict(sorted(counts.items(), key=lambda one: (one[0] != WITH_ROOM, -one[1], one[0])))


def rooms_of(snapshot: Snapshot, gang: Gang) -> list[PodRoom]:
    """Return the room for the pods of each template of a gang; none where its levels are not known."""
    view = snapshot.view
    topology = view.topologies.get(gang.request.topology or "")
    if topology is None or topology.waits or not len(topology.tree.hosts):
        return []
    kept = {name: {rank: one.host for rank, one in slots.items()} for name, slots in kept_assignment(gang).items()}
    words = dict.fromkeys(view.unsettled(snapshot.taken), JUST_JOINED)
    created = queued_at(gang.workload, gang.placement)
    for nomination in precedence_of(view, gang, created=created).nominations:
        words |= dict.fromkeys(nomination.hosts, KEPT_FOR_OTHERS)
    barred = dict(barred_hosts(view, gang, gang.request.separation, topology))
    rules = rules_for(gang, topology, kept=kept, others=pods_around(view, gang))
    request = request_to_place(gang)
    found, first, levels = [], request.first_slots, levels_in_force(view, gang)
    for ask in request.pod_sets:
        closed = barred | dict(rules.barred_for(ask.name)) if rules is not None else barred
        states = {topology.tree.index[host]: why for host, why in words.items() if host in topology.tree.index}
        for why, hosts in closed.items():
            for place in np.flatnonzero(hosts).tolist():
                states.setdefault(place, why)
        required = topology.level_of(levels.pod_sets[ask.name][0] or levels.whole[0])
        shape, pods = gang.shapes[ask.name], first[ask.name]
        found.append(_room(snapshot, ask, shape, pods, required=required, topology=topology, closed=states))
    return found


def _room(
    snapshot: Snapshot,
    ask: PodSetRequest,
    shape: Shape,
    first: int,
    *,
    required: int | None,
    topology: Topology,
    closed: dict[int, str],
) -> PodRoom:
    capacity = snapshot.view.capacity
    counted = capacity.count(shape, topology)
    free = counted.free.copy()
    free[list(closed)] = 0
    by_numbers = without_devices(shape, topology, capacity, counted)
    states = capacity.reasons(shape, topology)
    for place, why in closed.items():
        states[place] = states[place] or why
    open_hosts = np.fromiter((not why for why in states), dtype=np.bool_, count=len(states))
    for why, places in full_hosts(
        shape, topology, capacity, eligible=open_hosts, counted=counted, by_numbers=by_numbers
    ):
        for place in places.tolist():
            states[place] = why
    return PodRoom(ask, first, required, topology, free, counted.empty, states)


def levels_of(room: PodRoom) -> Iterator[output.LevelRoom]:
    """Yield needed, have and the best domains of every level, the whole topology first."""
    topology, required = room.topology, room.required
    for level in range(-1, len(topology.levels)):
        free, most = room.sums(room.free, level), room.sums(room.empty, level)
        order = np.argsort(-free, kind="stable")[:_MOST_BEST].tolist() if level >= 0 else []
        yield output.LevelRoom(
            pod_set=room.ask.name,
            level=topology.levels[level].name if level >= 0 else None,
            required=level == (-1 if required is None else required),
            needed=room.needed,
            have=int(free.max(initial=0)),
            most=int(most.max(initial=0)),
            domains=len(free) if level >= 0 else 1,
            best=tuple(
                output.FitDomain(path=topology.tree.path(level, one), pods=int(free[one]))
                for one in order
                if free[one] > 0
            ),
        )


class Running:
    """The pods that run, by node, and the known ends of what runs, by its name; each looked up when it is asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @cached_property
    def pods(self) -> Mapping[str, Sequence[Pod]]:
        """The pods of each node that are not finished."""
        found: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self._snapshot.view.stores.pods.values():
            if pod.spec.node_name and not pod.finished:
                found[pod.spec.node_name].append(pod)
        return found

    @cached_property
    def ends(self) -> Mapping[str, float]:
        """When something ends at the latest, in seconds since the epoch."""
        return {one.name: one.at for one in endings(self._snapshot)}


def obstacles(
    snapshot: Snapshot, gang: Gang, room: PodRoom, running: Running
) -> tuple[tuple[str, ...] | None, tuple[output.Obstacle, ...]]:
    """Return the domain of the required level that is nearest to having room, and what takes room there.

    Nearest: of those that hold the gang without other pods, else of all, the one with most room now. Its path is empty
    for the whole topology.
    """
    topology, required = room.topology, room.required
    level = -1 if required is None else required
    free, empty = room.sums(room.free, level), room.sums(room.empty, level)
    if not len(free):
        return None, ()
    best = int(np.lexsort((-free, empty < room.needed))[0])
    path = topology.tree.path(level, best) if level >= 0 else ()
    first, end = topology.tree.range(level, best) if level >= 0 else (0, len(topology.tree.hosts))
    in_use = {topology.tree.hosts[place] for place in range(first, end) if _is_used(room, place)}
    states: defaultdict[str, list[str]] = defaultdict(list)
    for place in range(first, end):
        host, why = topology.tree.hosts[place], room.states[place]
        if why and host not in in_use:
            states[_kept_for(snapshot, host) if why == KEPT_FOR_OTHERS else why].append(host)
    found = [output.Obstacle(kind="host", name=why, hosts=tuple(hosts), ends=None) for why, hosts in states.items()]
    found += _running(snapshot, gang, in_use, running)
    found.sort(key=lambda one: (-len(one.hosts), one.name))
    return path, tuple(found[:_MOST_OBSTACLES])


def _is_used(room: PodRoom, place: int) -> bool:
    """Return whether the pods of others are the reason why a host has less room than it could have."""
    if room.states[place]:
        return room.empty[place] > 0 and room.free[place] < room.empty[place] and room.states[place] in _USED
    return bool(room.free[place] < room.empty[place])


_USED: Final = frozenset({IN_USE, DEVICES_SHORT})


def _kept_for(snapshot: Snapshot, host: str) -> str:
    for key, _, placement in snapshot.view.gangs.keeping():
        if host in kept_hosts(placement.status):
            return f"kept for {gang_label(snapshot.view, key)}"
    return KEPT_FOR_OTHERS


def _running(snapshot: Snapshot, gang: Gang, hosts: set[str], running: Running) -> Iterator[output.Obstacle]:
    """Yield the gangs and the pods of no gang on some hosts, with their known ends."""
    view = snapshot.view
    of_gangs: defaultdict[str, set[str]] = defaultdict(set)
    others: defaultdict[str, set[str]] = defaultdict(set)
    for pod in (pod for host in hosts for pod in running.pods.get(host, ())):
        key = view.gangs.gang_of(pod)
        if key is not None and view.gangs.placed(key):
            if key != gang.key:
                of_gangs[gang_label(view, key)].add(pod.spec.node_name)
        elif pod.owner is None or pod.owner.kind != "DaemonSet":
            others[owner_label(pod)].add(pod.spec.node_name)
    for of, host, _ in view.capacity.reservations():
        if host in hosts and is_gang_key(of) and of != gang.key:
            of_gangs[gang_label(view, of)].add(host)
    for kind, held in (("gang", of_gangs), ("pods", others)):
        for name, on in held.items():
            at = running.ends.get(name)
            yield output.Obstacle(
                kind="gang" if kind == "gang" else "pods",
                name=name,
                hosts=tuple(sorted(on)),
                ends=timestamp(at) if at is not None else None,
            )
