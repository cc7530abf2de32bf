"""A leader whose API server is its own stores: real view, planner and state machine, a clock that tests turn.

Actions wait in `pool` until `work` runs them, so that a test decides what happens between a decision and its write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast
from unittest.mock import patch

from engine.api import names
from engine.api.duration import timestamp
from engine.api.objects import Node, ProvisioningRequest
from engine.api.placement import Assignment, FailedStarts, Placement, ReplanRecord, failed_starts_body, replan_body
from engine.api.pod import FailedPod, Pod
from engine.api.workload import GangKey, Owned, Workload
from engine.autoscaling.attempts import AskForNodes
from engine.autoscaling.demand import NodeDemand
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.client import ApiUnavailable, KubeClient
from engine.cluster.events import Recorder
from engine.cluster.lease import NotLeader
from engine.controller import extension_scheduler, gang_scheduler
from engine.controller.controller import Controller
from engine.controller.executor import ActionExecutor
from engine.controller.gang_events import GangEvents
from engine.controller.node_requests import NodeRequests
from engine.gang.gang import Gang
from engine.gang.relaxation import relaxed
from engine.gang.repair import ExtensionRequest
from engine.gang.slots import SlotAssignment
from engine.history.decision_log import DecisionLog
from engine.lifecycle.actions import Status, Unmanage
from engine.lifecycle.reconcile import request_written
from engine.lifecycle.status import event_text, failures_text, requeued_body
from engine.policy.model import parse_policy
from engine.scheduler.outcome import Outcome, Placed
from engine.scheduler.schedule import new_placement, rewritten, schedule_extension, schedule_gang
from tests.support.cluster_records import pinned

POLICY = "apiVersion: topogate.dev/v1alpha1\nkind: Policy\nnodes: {settle: 0s}\n"


def merged(known: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """What a merge patch leaves of an object."""
    found = dict(known)
    for key, value in patch.items():
        if isinstance(value, dict):
            found[key] = merged(found.get(key) or {}, value)
        else:
            found[key] = value
    return {key: value for key, value in found.items() if value is not None}


class Later(Executor):
    """Runs nothing until it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting.append(lambda: fn(*args, **kwargs))
        return Future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.waiting.clear()


class _HeardEvents(GangEvents):
    """Keeps the Events on pods in lists."""

    def __init__(self, hands: Hands, view: ClusterState) -> None:
        super().__init__(view, cast(Recorder, None), DecisionLog())
        self._hands = hands

    def publish_events(self, gang: Gang, reason: str, message: str, **options: Any) -> None:
        self._hands.notes.append((gang.workload.name, message))
        self._hands.gang_events.append((gang.workload.name, reason))

    def publish_limit(self, gang: Gang, limit: int) -> None:
        self._hands.calls.append(("too many", gang.workload.name))

    def publish_for_pod(self, pod: Pod, reason: str, message: str) -> None:
        self._hands.pod_events.append((pod.name, reason))
        self._hands.notes.append((pod.name, message))


class HeardRequests(NodeRequests):
    """Keeps the requests for nodes in the store; `refuses`: what the API server answers instead."""

    def __init__(self, hands: Hands, view: ClusterState, wall: Callable[[], float]) -> None:
        self._hands = hands
        self._stores = view.stores
        self._wall = wall
        self.refuses = ""
        self.elsewhere: tuple[str, ...] = ()  # of the last request

    def ask(
        self, gang: Gang, demand: NodeDemand, step: AskForNodes, *, version: str, elsewhere: Sequence[str] = ()
    ) -> str:
        self._hands._called("ask", step.name)
        self.elsewhere = tuple(elsewhere)
        if self.refuses:
            return self.refuses
        assert gang.placement is not None
        request = ProvisioningRequest(
            namespace=gang.placement.namespace,
            name=step.name,
            uid=f"uid-{step.name}-{self._hands.version()}",
            gang=gang.placement.name,
            class_name=step.tried.class_name,
            parameters=step.tried.parameters,
            pod_sets=tuple((f"{step.name}-{one.index}", one.count) for one in demand.pods),
            created=self._wall(),
            api_version=f"autoscaling.x-k8s.io/{version}",
            resource_version=self._hands.version(),
        )
        self._stores.provisioning_requests.apply_own_write(request)
        return ""

    def withdraw(self, requests: Iterable[ProvisioningRequest], gang: Gang | None, why: str) -> None:
        for request in requests:
            self._hands._called("withdraw", request.name)
            self._stores.provisioning_requests.apply("DELETED", request)


class Hands(ActionExecutor):
    """Writes into the stores what the API server would have answered; `broken` says which calls fail, and how."""

    def __init__(self, view: ClusterState, wall: Callable[[], float]) -> None:
        super().__init__(view, cast(KubeClient, None), cast(Recorder, None), fence=lambda: None, wall=wall)
        self.calls: list[tuple[str, str]] = []
        self.told: list[tuple[str, Status]] = []
        self.notes: list[tuple[str, str]] = []  # workload and note of each Event
        self.gang_events: list[tuple[str, str]] = []  # workload and reason of Events beside those of its status
        self.pod_events: list[tuple[str, str]] = []  # pod and reason of each Event
        self.events = _HeardEvents(self, view)
        self.node_requests: HeardRequests = HeardRequests(self, view, wall)
        self.broken: dict[str, Callable[[str], None]] = {}
        self.planned: list[str] = []
        self.deaf = False  # what is asked to go stays
        self.failed: list[FailedPod] = []  # pods that the API server has and no watch shows
        self.drops: Collection[str] = ()  # fields of a status that the CRD does not know
        self._versions = count(10_000_000)

    def of(self, what: str) -> list[str]:
        """Names of the objects of one sort of call, in order."""
        return [name for call, name in self.calls if call == what]

    def _called(self, what: str, name: str) -> None:
        self.calls.append((what, name))
        if (fault := self.broken.get(what)) is not None:
            fault(name)

    def follow(self, before: Hands) -> None:
        """Go on with the versions of another leader: older ones would not be taken."""
        self._versions = before._versions

    def version(self) -> str:
        return str(next(self._versions))

    def put(self, placement: Placement, *, spec: bool = True) -> Placement:
        written = replace(
            placement,
            uid=placement.uid or f"uid-{placement.name}-{self.version()}",
            resource_version=self.version(),
            generation=placement.generation + spec,
            labels=placement.workload.labels if spec else placement.labels,
        )
        self._view.stores.placements.apply_own_write(written)
        return written

    def place(self, gang: Gang, placement: Placement, *, waited: float | None = None) -> None:
        self._called("place", gang.workload.name)
        written = self.put(self._consuming(placement))
        self.events.record_placed(gang, placement, waited)
        if gang.workload.suspended:
            self.resume(replace(gang, placement=written))

    def place_group(
        self, plans: Sequence[tuple[Gang, Placement]], *, waited: Mapping[GangKey, float] | None = None
    ) -> None:
        written = []
        for gang, placement in plans:
            self._called("place", gang.workload.name)
            written.append(replace(gang, placement=self.put(placement)))
        for gang in written:
            if gang.workload.suspended:
                self.resume(gang)

    def resume(self, gang: Gang) -> None:
        self._called("resume", gang.workload.name)
        self._change(gang.workload, suspended=False, started=True, held=False)

    def unplace(
        self,
        gang: Gang,
        status: Status,
        *,
        suspend: bool,
        event: bool,
        failed: FailedStarts | None = None,
        moves: bool = False,
    ) -> None:
        if moves and gang.placement is not None:
            self._called("note move", gang.workload.name)
            known = {**gang.placement.status, "movedAt": timestamp(self._wall())}
            gang = replace(gang, placement=self.put(replace(gang.placement, status=known), spec=False))
        if failed is not None and gang.placement is not None:
            self._called("failed start", gang.workload.name)
            known = {**gang.placement.status, "failedStarts": failed_starts_body(failed)}
            gang = replace(gang, placement=self.put(replace(gang.placement, status=known), spec=False))
        self._called("suspend" if suspend else "give back", gang.workload.name)
        if suspend:
            self._change(gang.workload, suspended=True, held=True)
        assert gang.placement is not None
        placement = self.put(replace(gang.placement, assignment=None))
        self.report(replace(gang, placement=placement), status, None, event=event)

    def rewrite(self, gang: Gang, assignment: Assignment) -> None:
        self._called("shrink", gang.workload.name)
        self.put(rewritten(gang, assignment))

    def extend(self, gang: Gang, placement: Placement, extension: ExtensionRequest, message: str) -> None:
        self._called("grow" if extension.more else "move" if extension.on_request else "repair", gang.workload.name)
        self.notes.append((gang.workload.name, message))
        self.put(placement)
        for pod in extension.replaced:
            self._called("delete", pod.name)
            self._view.stores.pods.apply("DELETED", pod)

    def record_replan(self, gang: Gang, record: ReplanRecord | None) -> None:
        self._called("answer", gang.workload.name)
        self._answer(gang, record)
        if record is not None and record.outcome != "Restarting":
            self.notes.append((gang.workload.name, record.message))

    def restart(self, gang: Gang, record: ReplanRecord) -> None:
        self._called("answer", gang.workload.name)
        gang = self._answer(gang, record)
        self._called("suspend", gang.workload.name)
        self._change(gang.workload, suspended=True, held=True)

    def move(self, gang: Gang, placement: Placement, record: ReplanRecord) -> None:
        self._called("move", gang.workload.name)
        gang = replace(gang, placement=self.put(placement))
        self._called("answer", gang.workload.name)
        gang = self._answer(gang, record)
        self.notes.append((gang.workload.name, record.message))
        self.resume(gang)

    def _answer(self, gang: Gang, record: ReplanRecord | None) -> Gang:
        assert gang.placement is not None
        body = {"replan": replan_body(record) if record is not None else None}
        status = merged(dict(gang.placement.status), body)
        return replace(gang, placement=self.put(replace(gang.placement, status=status), spec=False))

    def remove(self, gang: Gang, pods: tuple[Pod, ...], *, evict: bool, reason: str, message: str) -> None:
        for pod in pods:
            self._called("evict" if evict else "delete", pod.name)
            if self.deaf:
                continue
            if evict:
                self._view.stores.pods.apply("MODIFIED", replace(pod, deleting=True, resource_version=self.version()))
            else:
                self._view.stores.pods.apply("DELETED", pod)

    def evict_others(self, gang: Gang, pods: Sequence[Pod], message: str) -> None:
        self.remove(gang, tuple(pods), evict=True, reason="Preempting", message=message)

    def release(self, gang: Gang, seats: tuple[SlotAssignment, ...]) -> None:
        for seat in seats:
            self._called("release", seat.pod.name)
            rank = {} if seat.rank is None else {names.RANK: str(seat.rank)}
            spec = replace(
                seat.pod.spec,
                shape=pinned(seat.pod.spec.shape, seat.slot.host),
                annotations={**seat.pod.spec.annotations, **rank},
            )
            self._ungate(replace(seat.pod, spec=spec))

    def unmanage(self, gang: Gang, let: Unmanage) -> None:
        self._called("let go", gang.workload.name)
        for pod in let.pods:
            self._ungate(pod)
        if let.resume:
            self._change(gang.workload, suspended=False, started=True, held=False)
        if let.forget and gang.placement is not None:
            self._view.stores.placements.apply("DELETED", gang.placement)
        self.notes.append((gang.workload.name, let.message))

    def free_pod(self, pod: Pod) -> None:
        self._called("free", pod.name)
        self._ungate(pod)

    def forget(self, placement: Placement) -> None:
        self._called("forget", placement.name)
        self._view.stores.placements.apply("DELETED", placement)

    def take_slots(self, placement: Placement) -> None:
        self._called("take slots", placement.name)
        self.put(replace(placement, assignment=None))

    def report(
        self, gang: Gang, status: Status, placed: Placed | None, *, event: bool, since: str | None = None
    ) -> None:
        self._called("tell" if event else "reword", gang.workload.name)
        if event:
            self.told.append((gang.workload.name, status))
            self.notes.append((gang.workload.name, event_text(status, placed, before=gang.placement)))
        placement, priority = gang.placement, self._view.pod_shapes.priority_of(gang.workload)
        if gang.request.asked is not None and (placement is None or not request_written(gang, priority=priority)):
            placement = self.put(new_placement(gang, None, priority=priority, now=self._wall()))
        if placement is not None:
            self._status(gang, placement, status, placed, since)

    def failures(self, gang: Gang) -> str:
        self._called("read failed pods", gang.workload.name)
        return failures_text(self.failed, gang.placement.status) if gang.placement is not None else ""

    def relax(self, gang: Gang) -> None:
        self._called("relax", gang.workload.name)
        softer = replace(gang, request=relaxed(gang.request))
        self.put(new_placement(softer, None, priority=0, now=self._wall()))

    def requeue(self, gang: Gang, message: str, *, event: bool) -> None:
        self._called("requeue", gang.workload.name)
        if event:
            self.notes.append((gang.workload.name, message))
        assert gang.placement is not None
        status = {**gang.placement.status, **requeued_body(gang.placement.status, self._wall())}
        self.put(replace(gang.placement, status=status), spec=False)

    def _status(
        self, gang: Gang, placement: Placement, status: Status, placed: Placed | None, since: str | None
    ) -> None:
        body = self.status_of(gang, placement, status, placed, since=since)
        body = merged({}, {key: value for key, value in body.items() if key not in self.drops})
        self.put(replace(placement, labels=placement.workload.labels, status=body), spec=False)

    def _ungate(self, pod: Pod) -> None:
        gates = tuple(gate for gate in pod.spec.gates if gate != names.GATE)
        self._view.stores.pods.apply_own_write(
            replace(pod, resource_version=self.version(), spec=replace(pod.spec, gates=gates))
        )

    def _change(self, workload: Workload, *, held: bool, **fields: Any) -> None:
        annotations = {key: value for key, value in workload.annotations.items() if key != names.HELD_BY}
        if held:
            annotations[names.HELD_BY] = names.HELD_BY_SUSPEND
        self._view.stores.workloads.apply_own_write(
            replace(
                workload,
                annotations=annotations,
                resource_version=self.version(),
                generation=workload.generation + 1,
                **fields,
            )
        )


@dataclass
class Leader:
    """The controller under test. `leading` and `now` are turned by the test."""

    nodes: Iterable[Node] = ()
    policy: str = POLICY
    leading: bool = True
    now: float = 1000.0
    begun: int = 0
    begins: bool = True
    stores: Stores = field(default_factory=Stores)
    hidden: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.view = ClusterState(self.stores, parse_policy(self.policy), clock=lambda: self.now)
        self.stores.nodes.replace(self.nodes)
        self.hands = Hands(self.view, wall=lambda: 1_800_000_000.0 + self.now)
        self.pool = Later()
        self.controller = Controller(
            self.view,
            self.hands,
            leads=lambda: self.leading,
            begin_term=self._begin,
            hidden=lambda: self.hidden,
            monotonic=lambda: self.now,
            wall=lambda: 1_800_000_000.0 + self.now,
            pool=self.pool,
        )

    def _begin(self) -> bool:
        self.begun += 1
        return self.begins

    def has(self, *records: Workload | Owned | Pod | Placement | Node) -> None:
        """Let the watch show objects."""
        for record in records:
            match record:
                case Workload():
                    self.stores.workloads.apply("MODIFIED", record)
                case Owned():
                    self.stores.owned.apply("MODIFIED", record)
                case Pod():
                    self.stores.pods.apply("MODIFIED", record)
                case Placement():
                    self.stores.placements.apply("MODIFIED", record)
                case Node():
                    self.stores.nodes.apply("MODIFIED", record)

    def turn(self) -> None:
        """One turn; actions wait. Plans are noted in `hands.planned`, and fail as `hands.broken` says."""
        with (
            patch.object(gang_scheduler, schedule_gang.__name__, self._plan),
            patch.object(extension_scheduler, schedule_extension.__name__, self._extend),
        ):
            self.controller.turn()

    def _plan(self, view: ClusterState, gang: Gang, **options: Any) -> Outcome:
        self._planned(gang)
        return schedule_gang(view, gang, **options)

    def _extend(self, view: ClusterState, gang: Gang, extension: ExtensionRequest, **options: Any) -> Outcome:
        self._planned(gang)
        return schedule_extension(view, gang, extension, **options)

    def _planned(self, gang: Gang) -> None:
        self.hands.planned.append(gang.workload.name)
        if (fault := self.hands.broken.get("plan")) is not None:
            fault(gang.workload.name)

    def work(self) -> None:
        """Run the actions that wait now."""
        waiting, self.pool.waiting[:] = list(self.pool.waiting), []
        for action in waiting:
            action()

    def settle(self, turns: int = 12) -> int:
        """Turn and work until nothing is left to do at this moment; how many turns had something to do."""
        for done in range(turns):
            self.turn()
            if not self.pool.waiting and not self.view.changed.is_set():
                return done
            self.work()
        return turns

    def later(self, seconds: float) -> None:
        """Let time pass, then settle."""
        self.now += seconds
        self.settle()

    def workload(self, name: str = "train") -> Workload:
        found = self.stores.workloads.get(("batch", "Job", "default", name))
        assert found is not None
        return found

    def status(self, name: str = "train") -> tuple[str, str]:
        """Phase and reason, as they were told last."""
        found = self.placed(name)
        status = found.status if found is not None else {}
        return (str(status.get("phase", "")), str(status.get("reason", "")))

    def placed(self, name: str = "train") -> Placement | None:
        return self.view.gangs.placement_of(f"uid-{name}")


def unavailable(_name: str) -> None:
    """The API server did not answer."""
    raise ApiUnavailable("no answer")


def not_leader(_name: str) -> None:
    """The Lease is lost."""
    raise NotLeader("does not lead")


def crash(_name: str) -> None:
    """A fault of ours."""
    raise KeyError("a poisoned gang")
