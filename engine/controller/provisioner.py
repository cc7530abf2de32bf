"""Requests nodes for the gangs that wait for them: looks at each of them, and has requests made and withdrawn.

All of it follows from the gangs and their ProvisioningRequests: a new leader goes on where the last one has stopped.
Costs nothing while the policy names no class and no request is left.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import partial
from itertools import chain
from typing import Final

from engine import metrics
from engine.api import names
from engine.api.event_reasons import EventReason
from engine.api.objects import ProvisioningRequest
from engine.api.placement import waiting_since
from engine.api.reasons import Why, reason_of
from engine.api.workload import GangKey
from engine.autoscaling.attempts import (
    AskForNodes,
    Keep,
    LastRequest,
    Withdraw,
    attempt_of,
    last_request,
    next_step,
)
from engine.autoscaling.demand import NodeDemand, demand_of, waits_for_nodes
from engine.autoscaling.state import State, state_of
from engine.autoscaling.text import new_nodes_text, request_body, request_text
from engine.cache.state import ClusterState
from engine.cluster.client import ApiFault
from engine.controller.executor import ActionExecutor
from engine.controller.reporter import StatusReporter
from engine.controller.term import LeaderTerm
from engine.controller.writer import StaleObject
from engine.decoding.wire import ProjectionError
from engine.gang.gang import Gang, over
from engine.gang.key import placed_key
from engine.history.record import GangEvent
from engine.lifecycle.actions import NodesNote, Status
from engine.lifecycle.gang_state import GangState
from engine.policy.autoscaling import ProvisioningRequests

log = logging.getLogger("topogate.controller")

# Seconds between two looks at all gangs, if nothing changes.
LOOK_EVERY: Final = 1.0
# A gang that waits for something else for this long (seconds) has its request withdrawn: the order of the queue may
# change for a moment only.
UNWANTED_AFTER: Final = 30.0
# Gangs with a request that no autoscaler has answered yet, in each class, and with one that has not ended; gangs at the
# end of the queue wait. An autoscaler handles requests one after the other. Those for which it has found nothing so far
# must not keep others waiting: it may go on for days. Nor must those of a class of which no autoscaler runs.
MOST_OPEN: Final = 100
MOST_REQUESTS: Final = 1000
# Hosts that a template excludes: some 30 KB of names.
MOST_EXCLUDED: Final = 500
# A refused request is tried again after this long, doubling (seconds).
REFUSED_FIRST: Final = 30.0
REFUSED_MOST: Final = 1800.0
# So is a write that failed otherwise, or a withdrawal.
FAILED_FIRST: Final = 2.0
FAILED_MOST: Final = 60.0

_REPORTS: Final[dict[State, tuple[EventReason, GangEvent, str]]] = {
    "Accepted": ("ProvisioningRequestAccepted", "NodesAccepted", "accepted"),
    "Provisioned": ("ProvisioningRequestProvisioned", "NodesProvisioned", "provisioned"),
    "Failed": ("ProvisioningRequestFailed", "NodesNotProvisioned", "failed"),
    "BookingExpired": ("BookingExpired", "NodesLost", "booking_expired"),
    "CapacityRevoked": ("CapacityRevoked", "NodesLost", "capacity_revoked"),
}
_NOT_SERVED: Final = NodesNote("no nodes are requested: the cluster serves no ProvisioningRequests")


class _Pauses:
    """The pauses of gangs after a failure: each twice as long as the one before."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._known: dict[GangKey, tuple[float, float]] = {}  # until when, and the last pause

    def over(self, key: GangKey, now: float) -> bool:
        """Return True unless a gang pauses."""
        return now >= self._known.get(key, (0.0, 0.0))[0]

    def begin(self, key: GangKey, now: float) -> float:
        """Begin the next pause of a gang, and return its length in seconds."""
        pause = min(max(self._first, self._known.get(key, (0.0, 0.0))[1] * 2), self._most)
        self._known[key] = (now + pause, pause)
        return pause

    def forget(self, key: GangKey) -> None:
        """Begin again with the shortest pause."""
        self._known.pop(key, None)

    def keep(self, keys: Container[GangKey]) -> None:
        """Forget all gangs but these."""
        for key in [one for one in list(self._known) if one not in keys]:
            self._known.pop(key, None)


class Provisioner:
    """Keeps the ProvisioningRequests of one term."""

    def __init__(
        self,
        view: ClusterState,
        executor: ActionExecutor,
        term: LeaderTerm,
        reporter: StatusReporter,
        *,
        wall: Callable[[], float],
    ) -> None:
        self._view = view
        self._executor = executor
        self._term = term
        self._reporter = reporter
        self._wall = wall
        self._looked_at = float("-inf")
        self._free = 0  # requests that may be made in this pass
        self._unanswered = Counter[str]()  # gangs with a request that was not answered, by class
        self._asking: dict[GangKey, str] = {}  # gangs with a request that is just being made, and its class
        self._noted: set[GangKey] = set()  # gangs whose message says something about nodes
        self._refused = _Pauses(REFUSED_FIRST, REFUSED_MOST)
        self._failed = _Pauses(FAILED_FIRST, FAILED_MOST)
        self._orphans: dict[tuple[str, str], float] = {}  # requests without a Placement, and since when

    @property
    def due(self) -> float | None:
        """When to look again at the latest (monotonic seconds); None while there is nothing to request."""
        return self._looked_at + LOOK_EVERY if self._active else None

    @property
    def _active(self) -> bool:
        return self._view.policy.autoscaling.on or bool(len(self._view.stores.provisioning_requests) or self._noted)

    def plan(self, now: float, *, changed: bool) -> None:
        """Decide about all gangs that wait for nodes or have requests; `changed`: gangs were reconciled."""
        if not self._active or (not changed and now < self._looked_at + LOOK_EVERY):
            return
        self._looked_at = now
        self._noted &= self._term.gang_state.keys()
        self._refused.keep(self._term.gang_state)
        self._failed.keep(self._term.gang_state)
        # Before the requests are read: one that is made meanwhile is found there.
        self._asking = {key: name for key, name in self._asking.items() if key in self._term.busy}
        by_gang = self._by_gang(now)
        found = [key for key, state in self._term.gang_state.items() if key in by_gang or self._concerns(key, state)]
        wall = self._wall()
        live, unanswered = set(self._asking), {key: {name} for key, name in self._asking.items()}
        for key, each in by_gang.items():
            for one in each:
                if not state_of(one, None, now=wall).ended:
                    live.add(key)
                    if "Provisioned" not in one.conditions:
                        unanswered.setdefault(key, set()).add(one.class_name)
        self._unanswered = Counter(chain.from_iterable(unanswered.values()))
        self._free = MOST_REQUESTS - len(live)
        for key in sorted(found, key=self._order):
            if key not in self._term.busy:  # the end of its write brings it back
                self._term.guarded(key, now, partial(self._decide, key, by_gang.get(key, []), now))

    def _by_gang(self, now: float) -> dict[GangKey, list[ProvisioningRequest]]:
        """Return our requests by gang; those without a Placement are withdrawn after a while."""
        found: dict[GangKey, list[ProvisioningRequest]] = {}
        orphans: dict[tuple[str, str], float] = {}
        for request in self._view.stores.provisioning_requests.values():
            if request.deleting or attempt_of(request) is None:
                continue
            placement = self._view.stores.placements.get((request.namespace, request.gang))
            if placement is not None:
                found.setdefault(placed_key(placement), []).append(request)
                continue
            since = orphans[request.key] = self._orphans.get(request.key, now)
            if now >= since + UNWANTED_AFTER:
                orphans[request.key] = now
                why = "its gang is gone"
                self._term.send_for_orphan(partial(self._executor.node_requests.withdraw, (request,), None, why))
        self._orphans = orphans
        return found

    def _concerns(self, key: GangKey, gang_state: GangState) -> bool:
        """Return True if a gang may need nodes, or its message says something about them."""
        status = gang_state.current
        waits = status is not None and status.phase == "Waiting" and waits_for_nodes(_wait_of(gang_state, status))
        return waits or key in self._noted

    def _order(self, key: GangKey) -> tuple[int, float, str]:
        entry = self._term.queue.entry(key)
        return (1, 0.0, key) if entry is None else (-entry.priority, entry.created, key)

    def _decide(self, key: GangKey, requests: list[ProvisioningRequest], now: float) -> None:
        view, gang_state = self._view, self._term.of(key)
        with view.lock:
            gang = view.gangs.get(key)
        status = gang_state.current
        if gang is None or gang.placement is None or status is None:
            return
        rules, assignment = view.policy.autoscaling.of(gang.request.topology), gang.placement.assignment
        if assignment is not None and not over(gang.workload):
            gang_state.nodes_unwanted_since = None
            # Nodes stay booked for the pods that use them until these are bound: they might be removed as unused.
            unbound = status.phase in ("Waiting", "Placed")
            used = assignment.consumes.name if assignment.consumes is not None and unbound else ""
            self._end(key, gang, [one for one in requests if one.name != used], "it has its slots", now)
        elif over(gang.workload) or rules is None or status.phase != "Waiting":
            self._end(key, gang, requests, "none is wanted for it any more", now)
        elif not waits_for_nodes(reason := _wait_of(gang_state, status)):
            since = gang_state.nodes_unwanted_since = gang_state.nodes_unwanted_since or now
            if now >= since + UNWANTED_AFTER:
                self._end(key, gang, requests, f"it waits for something else ({reason})", now)
        else:
            gang_state.nodes_unwanted_since = None
            demand = demand_of(gang, self._node_selector(gang))
            if isinstance(demand, NodeDemand):
                self._ask(gang, demand, rules, requests, now)
                return
            if requests:
                self._withdraw(key, gang, requests, demand)
            self._note(key, gang, gang_state, NodesNote(f"no nodes are requested: {demand}"), now)

    def _end(self, key: GangKey, gang: Gang, requests: list[ProvisioningRequest], why: str, now: float) -> None:
        """Withdraw requests of a gang that gets no further one now."""
        if requests:
            self._withdraw(key, gang, requests, why)
        self._note(key, gang, self._term.of(key), None, now)

    def _ask(
        self,
        gang: Gang,
        demand: NodeDemand,
        rules: ProvisioningRequests,
        requests: list[ProvisioningRequest],
        now: float,
    ) -> None:
        key, gang_state = gang.key, self._term.of(gang.key)
        assert gang.placement is not None
        wall, version = self._wall(), self._view.stores.provisioning_version
        last = last_request(requests, demand.digest, rules, now=wall)
        self._report_last(key, gang, gang_state, last, now)
        began = gang_state.wait.since - now + wall if gang_state.wait is not None else waiting_since(gang.status)
        asks_at = (wall if began is None else began) + rules.after
        match next_step(requests, gang.placement.name, demand.digest, rules, asks_at=asks_at, now=wall):
            case Withdraw(requests=outdated):
                self._withdraw(key, gang, list(outdated), "another one is about its current pods")
            case AskForNodes() as step:
                if not version:
                    self._note(key, gang, gang_state, _NOT_SERVED, now)
                elif self._may_ask(key, step.tried.class_name, now):
                    self._free -= 1
                    self._unanswered[step.tried.class_name] += 1
                    self._asking[key] = step.tried.class_name
                    elsewhere = self._free_hosts(gang, demand)
                    self._send(key, partial(self._make, gang, demand, step, version, elsewhere))
            case Keep():
                return

    def _may_ask(self, key: GangKey, class_name: str, now: float) -> bool:
        if not (self._refused.over(key, now) and self._failed.over(key, now)):
            return False  # it takes no place of another one meanwhile
        return self._free > 0 and self._unanswered[class_name] < MOST_OPEN

    def _free_hosts(self, gang: Gang, demand: NodeDemand) -> list[str]:
        """Return the host names of nodes with room for some of the pods that need one domain.

        None if there are very many: then an autoscaler may count them.
        """
        topology = self._view.topologies.get(gang.request.topology or "")
        together = [one for one in demand.pods if one.together]
        if not together or topology is None:
            return []
        found: set[str] = set()
        with self._view.lock:
            for one in together:
                free = self._view.capacity.count(gang.shapes[one.pod_set.name], topology).free
                found.update(topology.tree.hosts[place] for place in free.nonzero()[0].tolist())
        if len(found) > MOST_EXCLUDED:
            return []
        nodes = [self._view.stores.nodes.get(host) for host in sorted(found)]
        return [node.labels.get(names.HOSTNAME, node.name) for node in nodes if node is not None]

    def _make(self, gang: Gang, demand: NodeDemand, step: AskForNodes, version: str, elsewhere: Sequence[str]) -> None:
        """Make a request; in a thread of the pool. A refusal delays the next one, not the gang."""
        key, gang_state = gang.key, self._term.of(gang.key)
        problem = self._executor.node_requests.ask(gang, demand, step, version=version, elsewhere=elsewhere)
        if not problem:
            self._refused.forget(key)
            gang_state.nodes_reported = (step.name, "Pending")
            return
        self._refused.begin(key, self._looked_at)
        gang_state.nodes = NodesNote(problem)
        self._noted.add(key)

    def _withdraw(self, key: GangKey, gang: Gang, requests: list[ProvisioningRequest], why: str) -> None:
        self._send(key, partial(self._executor.node_requests.withdraw, tuple(requests), gang, why))

    def _send(self, key: GangKey, write: Callable[[], None]) -> None:
        if self._failed.over(key, self._looked_at):
            self._term.send(key, partial(self._try, key, write))

    def _try(self, key: GangKey, write: Callable[[], None]) -> None:
        """Write about the requests of a gang; in a thread of the pool. A failure delays the next one, not the gang."""
        try:
            write()
        except (ApiFault, ProjectionError, StaleObject) as error:
            pause = self._failed.begin(key, self._looked_at)
            log.warning("a write about the request for nodes of %s failed, again in %g s: %s", key, pause, error)
        else:
            self._failed.forget(key)

    def _node_selector(self, gang: Gang) -> dict[str, str]:
        specs = (spec for spec in self._view.policy.topologies if spec.name == gang.request.topology)
        return next((dict(spec.node_selector) for spec in specs), {})

    def _report_last(
        self, key: GangKey, gang: Gang, gang_state: GangState, last: LastRequest | None, now: float
    ) -> None:
        """Report the state of a gang's last request: in its message, and as an Event when it has changed."""
        if last is None:
            if gang_state.nodes is None or gang_state.nodes.body is not None:
                self._note(key, gang, gang_state, None, now)
            return
        nodes = self._new_nodes(gang, last) if last.state.state in ("Provisioned", "BookingExpired") else ""
        text = request_text(last, nodes)
        current = (last.request.name, last.state.state)
        if gang_state.nodes_reported is None:
            known = gang.status.get("provisioning") or {}
            gang_state.nodes_reported = (str(known.get("name", "")), str(known.get("state", "")))
        if gang_state.nodes_reported != current:
            gang_state.nodes_reported = current
            if (meaning := _REPORTS.get(last.state.state)) is not None:
                reason, happened, result = meaning
                metrics.provisioning_requests.labels(result).inc()
                self._executor.events.publish(gang, reason, happened, text, pods=last.request.pods)
        self._note(key, gang, gang_state, NodesNote(text, request_body(last)), now)

    def _note(self, key: GangKey, gang: Gang | None, gang_state: GangState, note: NodesNote | None, now: float) -> None:
        """Have the message of a gang end with a note about nodes, or no longer with one."""
        if note is None:
            self._noted.discard(key)
            gang_state.nodes_reported = None
        else:
            self._noted.add(key)
        if gang_state.nodes == note:
            return
        gang_state.nodes = note
        if gang is not None and (plain := gang_state.plain_status) is not None and plain.phase == "Waiting":
            self._reporter.report(key, gang, plain, now)

    def _new_nodes(self, gang: Gang, last: LastRequest) -> str:
        view = self._view
        topology = view.topologies.get(gang.request.topology or "")
        if topology is None:
            return ""
        asks = [gang.request.gang.require if gang.request.gang is not None else None]
        asks += [ask.require for ask in gang.request.pod_sets]
        settled = view.settled_before(self._wall())
        nodes = [node for node in view.stores.nodes.values() if node.ready and node.settled_at <= settled]
        level = next((one for one in asks if one), None)
        return new_nodes_text(nodes, topology, level, since=last.request.created)


def _wait_of(gang_state: GangState, status: Status) -> Why:
    """Return why a gang waits.

    Where hosts are kept for it, why they have to be: they are free when the pods there have ended, which may take days,
    and new nodes may come before that.
    """
    known = reason_of(status.reason)
    return gang_state.lacks if known is not None and known.until == "kept hosts" else status.reason
