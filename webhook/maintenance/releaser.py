"""Lets go what is held, object by object with the caller's own rights; done twice, nothing changes the second time.

A fault is tried again for some seconds; what the API server refuses is an outcome, and stops nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from engine.api.pod import Pod
from engine.api.text import sanitize
from engine.api.workload import Workload
from engine.cluster import writes
from engine.cluster.client import ApiFault, KubeClient, get_or_none, object_path
from engine.cluster.writes import Conflict, Done, Gone, Refused, Result
from engine.decoding import pods
from engine.decoding.wire import ProjectionError
from engine.decoding.workloads import workload as decoded
from engine.gang.gang import held_by_us
from engine.kinds.read import UnreadableWorkload
from engine.kinds.registry import Registry
from webhook.maintenance.release import ReleasePlan, has_gate
from webhook.snapshot.connection import fault_text, reason_text
from webhook.snapshot.side_by_side import side_by_side

# Of webhooks that were just deleted, an API server may call some for a second or two.
TRIES: Final = 6
FIRST_PAUSE: Final = 0.25
WEBHOOK_FAILED: Final = "failed calling webhook"  # the API server's words

Target = TypeVar("Target", Pod, Workload)
NAMED: Final = "{kind}/{name} in namespace {namespace}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one object: `done`, and the sentence about it; `refused`: the API server does not allow it."""

    done: bool
    text: str
    uid: str = ""
    refused: bool = False


Report = Callable[[Outcome], None]


def called(one: Pod | Workload) -> str:
    """Return an object as `job/train in namespace alice`."""
    kind = one.kind.lower() if isinstance(one, Workload) else "pod"
    return NAMED.format(kind=sanitize(kind), name=sanitize(one.name, 253), namespace=sanitize(one.namespace))


@dataclass(frozen=True, slots=True)
class Releaser:
    """Releases objects of one cluster; `pause` waits for so many seconds before a request is repeated."""

    api: KubeClient
    registry: Registry
    pause: Callable[[float], object] = time.sleep

    def release(self, plan: ReleasePlan, *, templates: Sequence[Workload] = (), report: Report) -> bool:
        """Release all that is held, and report each object; return True if nothing failed.

        The gate is also taken out of the templates of the workloads `templates`.
        """
        workloads = (*plan.workloads, *templates)

        def told(outcome: Outcome) -> bool:
            report(outcome)
            return outcome.done

        first = side_by_side(lambda one: told(self.workload(one)), workloads)
        return all([*first, *side_by_side(lambda one: told(self.pod(one)), plan.pods)])

    def pod(self, pod: Pod) -> Outcome:
        """Take our gate off a pod."""
        result = self.until_done(pod, partial(writes.free_pod, self.api, fence=no_fence), self._pod_again)
        return outcome_of(pod, result, "released")

    def workload(self, workload: Workload) -> Outcome:
        """Resume a workload that we hold, and take our gate out of its templates where the API server allows it."""

        def attempt(one: Workload) -> Result:
            return writes.let_go_workload(self.api, one, resume=held_by_us(one), fence=no_fence)

        resumes = held_by_us(workload)
        result = self.until_done(workload, attempt, self.workload_again)
        keeps = has_gate(self._decoded(workload, result.body) if isinstance(result, Done) else workload)
        if resumes:
            return outcome_of(workload, result, "resumed; its template keeps the gate" if keeps else "resumed")
        if keeps and isinstance(result, Done):
            return Outcome(
                False, f"{called(workload)}: its template keeps the gate: the service puts it back", workload.uid
            )
        return outcome_of(workload, result, "its template has the gate no more")

    def until_done(
        self, target: Target, do: Callable[[Target], Result], again: Callable[[Target], Target | None]
    ) -> Result | ApiFault:
        """Send a write until it has an answer; after a conflict for the object as `again` reads it (None: gone)."""
        fault: Result | ApiFault = Gone()
        for number in range(TRIES):
            if number:
                self.pause(FIRST_PAUSE * 2.0 ** (number - 1))
            try:
                if isinstance(fault, Conflict):
                    fresh = again(target)
                    if fresh is None:
                        return Gone()
                    target = fresh
                result = do(target)
            except ApiFault as error:
                fault = error
                continue
            if not isinstance(result, Conflict):
                return result
            fault = result
        return fault

    def _pod_again(self, pod: Pod) -> Pod | None:
        path = object_path("v1", "pods", namespace=pod.namespace, name=pod.name)
        body = get_or_none(self.api, path)
        fresh = None if body is None else pods.pod(body)
        return fresh if fresh is not None and fresh.uid == pod.uid else None

    def workload_again(self, workload: Workload) -> Workload | None:
        """Return a workload as it is now; None if it is gone. Raises ApiFault."""
        path = object_path(workload.api_version, workload.resource, namespace=workload.namespace, name=workload.name)
        body = get_or_none(self.api, path)
        fresh = None if body is None else self._decoded(workload, body)
        return fresh if fresh is not None and fresh.uid == workload.uid else None

    def _decoded(self, known: Workload, body: bytes) -> Workload:
        """Return a workload from its JSON; the known one if it cannot be read."""
        group, _, version = known.api_version.rpartition("/")
        entry = self.registry.find(group, known.kind, version)
        if entry is None:
            return known
        try:
            return decoded(body, entry=entry, registry=self.registry, version=version)
        except (ProjectionError, UnreadableWorkload):
            return known


def outcome_of(one: Pod | Workload, result: Result | ApiFault, done: str) -> Outcome:
    """Return what became of an object that was written; `done` says what was done."""
    match result:
        case Done():
            return Outcome(True, f"{called(one)}: {done}", one.uid)
        case Gone():
            return Outcome(True, f"{called(one)}: it is gone", one.uid)
        case Refused(message=message):
            return Outcome(False, f"{called(one)}: not done: {reason_text(message)}", one.uid, refused=True)
        case Conflict(message=message):
            return Outcome(False, f"{called(one)}: not done: {reason_text(message)}", one.uid)
    return Outcome(False, f"{called(one)}: not done: {fault_text(result)}", one.uid)


def no_fence() -> None:
    """Do nothing: a person decides, no election."""
