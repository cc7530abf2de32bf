"""`topogate simulate`: admission and planning of workloads on a cluster out of files, by the service's own functions.

Each workload is created (`webhook.submission`), read back, decided upon as the leader decides, planned, and, when it is
placed, held in the view, so that the next one sees less room. Nothing is written anywhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from engine import names
from engine.annotations import meanings
from engine.aside import exempt, template_aside
from engine.cluster import projections
from engine.cluster.projections import ProjectionError
from engine.explain import forecast
from engine.gangs import Gang, Timers, decide
from engine.gangs import Plan as PlanIt
from engine.members import suspended_by_user
from engine.outcomes import FieldError, Outcome, Placed, Waits
from engine.proposal import plan_in_view, proposed
from engine.reasons import REASONS
from engine.view import View
from webhook import simulation_output as output
from webhook.objects import WORKLOADS
from webhook.objects_file import FileObject, FileProblem
from webhook.offline import OfflineCluster, OfflineView
from webhook.patch import Operation
from webhook.simulation_answer import About, held, ignored, planned, rejected
from webhook.submission import Submitted, as_sent, submit

_POD: Final = ("", "Pod")
_TEMPLATE: Final = "spec.template.spec"
_UIDS: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "simulate.topogate.dev")
_YOUNGEST: Final = float("inf")
_MAX_SEARCHED: Final = 100_000  # values of one object that are searched for a pod template

Json = dict[str, Any]
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Simulated:
    """What happened to one workload: the answer, the object as it would be stored (None: refused), and our patch."""

    gang: output.Gang
    stored: Mapping[str, Any] | None
    patch: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A workload as it is sent; `key` is kind, namespace and name, `created` its age where the file tells one."""

    one: FileObject
    sent: Json
    key: Key
    priority: int
    created: float
    serial: int


def simulate(
    cluster: OfflineCluster,
    workloads: Iterable[FileObject],
    *,
    queue: bool = False,
    independent: bool = False,
    namespace: str = "default",
    clock: Callable[[], int],
) -> list[Simulated]:
    """Answer for every workload, in file order or (`queue`) by priority, age and name.

    With `independent` every one starts from the cluster as it was. Objects without a pod template are left out.
    `clock` counts nanoseconds. Raises FileProblem when there is no workload, or one stands twice.
    """
    entries = _entries(workloads, cluster.view, namespace=namespace)
    if queue:
        entries.sort(key=lambda entry: (-entry.priority, entry.created, entry.key[1:]))
        entries = [replace(entry, serial=place) for place, entry in enumerate(entries)]
    run = _Run(cluster.view, independent=independent, clock=clock)
    return [run.one(entry) for entry in entries]


def facts(cluster: OfflineCluster) -> output.ClusterFacts:
    """What the answer says of the cluster itself."""
    topologies = list(cluster.view.topologies.values())
    return output.ClusterFacts(
        nodes=cluster.nodes,
        nodes_in_topology=len({host for topology in topologies for host in topology.tree.hosts}),
        levels=tuple(level.name for level in topologies[0].levels),
    )


class _Run:
    """One run over a view; what waits is remembered, as a strict queue lets nobody pass it."""

    def __init__(self, view: View, *, independent: bool, clock: Callable[[], int]) -> None:
        self._view = view
        self._independent = independent
        self._clock = clock
        self._waiting: list[_Entry] = []

    def one(self, entry: _Entry) -> Simulated:
        """Submit, decide, plan, hold."""
        one, about = entry.one, About(*entry.key)
        if one.what == _POD:
            projection, template = projections.pod, "spec"
        elif one.what in WORKLOADS:
            projection, template = WORKLOADS[one.what], _TEMPLATE  # type: ignore[assignment]
        else:
            return self._unregistered(entry, about)
        offline = OfflineView(self._view)
        submitted = submit(one, entry.sent, offline, projection=projection, template=template)
        about = replace(about, warnings=submitted.warnings)
        if submitted.errors:
            return Simulated(rejected(about, submitted.errors), None, ())
        if one.what == _POD:
            gang = self._pod(about, submitted, offline)
        else:
            gang = self._workload(entry, about, submitted, offline)
        return Simulated(gang, submitted.stored, submitted.patch)

    def _workload(self, entry: _Entry, about: About, submitted: Submitted, offline: OfflineView) -> output.Gang:
        view = self._view
        uid = str(uuid.uuid5(_UIDS, "/".join(entry.key)))
        workload = replace(WORKLOADS[entry.one.what](msgspec.json.encode(submitted.stored)), uid=uid)
        view.stores.workloads.apply("ADDED", workload)
        view.refresh()
        gang = view.gang(uid)
        assert gang is not None
        decision = decide(
            gang,
            timers=Timers(),
            policy=view.policy,
            now=0.0,
            overbooked=lambda _: False,
            usable=lambda _: True,
        )
        if isinstance(decision.action, PlanIt):
            answer = self._plan(entry, about, gang, offline)
        elif gang.understanding.ask is not None and view.policy.mode == "enforce" and suspended_by_user(workload):
            answer = planned(about, gang, Waits("Suspended", REASONS["Suspended"].description), view)
        elif gang.understanding.ignored is not None:
            answer = ignored(about, workload.slots, gang.understanding.ignored)
        else:
            answer = ignored(about, workload.slots, "PolicyOff", self._off())
        if self._independent:
            view.stores.workloads.apply("DELETED", workload)
            view.refresh()
        return answer

    def _plan(self, entry: _Entry, about: About, gang: Gang, offline: OfflineView) -> output.Gang:
        view = self._view
        # What the forecast says at submit time is the verdict here, in other words.
        told = set(forecast(offline.told)) if offline.told is not None else set()
        about = replace(about, warnings=tuple(text for text in about.warnings if text not in told))
        begun = self._clock()
        outcome: Outcome
        if self._behind(entry):
            outcome = Waits("QueuedBehind", "a gang ahead of it in the queue waits")
        else:
            outcome = plan_in_view(view, gang)
        microseconds = (self._clock() - begun) // 1000
        if isinstance(outcome, Placed):
            placement = proposed(gang, outcome, priority=view.priority_of(gang.workload), now=0.0)
            view.hold(gang.key, placement)
        else:
            self._waiting.append(entry)
        return planned(about, gang, outcome, view, microseconds=microseconds)

    def _behind(self, entry: _Entry) -> bool:
        if self._view.policy.queue.order != "strict" or self._independent:
            return False
        return any(_order(other) < _order(entry) for other in self._waiting)

    def _off(self) -> str:
        return f"the policy's mode is {self._view.policy.mode}: nothing is changed or held"

    def _pod(self, about: About, submitted: Submitted, offline: OfflineView) -> output.Gang:
        """A pod that is let through is none of ours, or a member of a workload's gang."""
        policy = self._view.policy
        pod = projections.pod(msgspec.json.encode(submitted.stored))
        if names.GATE in pod.spec.gates:
            return held(about, "WaitingForMembers")
        if not _asks(submitted.stored, policy.annotations.dialects):
            return ignored(about, 1, "NoTopologyRequested")
        if policy.mode != "enforce":
            return ignored(about, 1, "PolicyOff", self._off())
        if exempt(pod.namespace, policy=policy, own_namespace=offline.own_namespace):
            return ignored(about, 1, "ExemptNamespace")
        return ignored(about, 1, template_aside(pod.spec, policy=policy) or "DaemonSetOrStatic")

    def _unregistered(self, entry: _Entry, about: About) -> Simulated:
        """A kind that we do not place: let through when it asks for nothing, refused rather than silently ignored."""
        policy = self._view.policy
        if not _asks(entry.sent, policy.annotations.dialects):
            return Simulated(ignored(about, 0, "NoTopologyRequested"), entry.sent, ())
        if policy.mode != "enforce":
            return Simulated(ignored(about, 0, "PolicyOff", self._off()), entry.sent, ())
        error = FieldError(
            field="kind",
            kind="Unsupported value",
            value=entry.one.kind,
            reason="UnsupportedKind",
            message="cannot be placed in this version; use a Job, or remove the annotation",
        )
        return Simulated(rejected(about, (error,)), None, ())


def _entries(workloads: Iterable[FileObject], view: View, *, namespace: str) -> list[_Entry]:
    entries: list[_Entry] = []
    seen: dict[Key, str] = {}
    for one in workloads:
        raw = one.decoded()
        if one.what not in WORKLOADS and one.what != _POD and not _has_pod_template(raw):
            continue
        sent = as_sent(one, namespace=namespace, serial=len(entries))
        metadata = sent["metadata"] if isinstance(sent["metadata"], dict) else {}
        key = (one.kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        if key[2] and seen.setdefault(key, one.where) != one.where:
            raise FileProblem(f"{one.where}: {one.kind} {key[1]}/{key[2]} stands in {seen[key]} already")
        priority, created = _rank_in_queue(one, raw, view)
        entries.append(_Entry(one, sent, key, priority, created, len(entries)))
    if not entries:
        raise FileProblem("no workload in the files: nothing to simulate")
    return entries


def _rank_in_queue(one: FileObject, raw: Json, view: View) -> tuple[int, float]:
    """Priority and creation; what cannot be read has neither, and is refused later."""
    try:
        workload = WORKLOADS[one.what](raw)
    except (KeyError, ProjectionError):
        return 0, _YOUNGEST
    return view.priority_of(workload), workload.created or _YOUNGEST


def _order(entry: _Entry) -> tuple[int, float, int]:
    """The place in the queue of workloads that come one after the other."""
    return (-entry.priority, entry.created, entry.serial)


def _has_pod_template(raw: Json) -> bool:
    return any(isinstance(value.get("containers"), list) for value in _mappings(raw))


def _asks(raw: Mapping[str, Any], dialects: Iterable[str]) -> bool:
    """True when annotations anywhere in the object ask for a topology or a gang."""
    known = meanings(tuple(dialects)).keys()
    found = (value.get("annotations") for value in _mappings(raw))
    return any(isinstance(annotations, dict) and not known.isdisjoint(annotations) for annotations in found)


def _mappings(raw: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Every mapping of an object, itself first."""
    rest: list[Any] = [raw]
    for _ in range(_MAX_SEARCHED):
        if not rest:
            return
        value = rest.pop()
        if isinstance(value, Mapping):
            yield value
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
