"""Suspends, resumes and requeues one workload by the fields that its user would change; the service does the rest.

A suspended workload gives its slots back. A resumed one is held again by the service, planned, and starts when it has
slots. A waiting gang moves to the end of its priority by `requeuedAt` in the status of its Placement, which only admins
of the policy may write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from engine.api.placement import Placement
from engine.api.text import sanitize
from engine.api.workload import Workload
from engine.cluster import writes
from engine.cluster.client import ApiFault
from engine.cluster.writes import Done, Refused, Result
from engine.gang.gang import ENDS_SUSPENDED, can_suspend, held_by_us, suspended_by_user
from engine.lifecycle.status import requeued_body
from webhook.maintenance.releaser import Outcome, Releaser, called, no_fence, outcome_of
from webhook.snapshot.connection import denied_right

_NO_FIELD: Final = {
    "Deployment": "scale it to 0 replicas instead",
    "StatefulSet": "scale it to 0 replicas instead",
    "LeaderWorkerSet": "scale it to 0 replicas instead",
    "Pod": "delete its pods instead",
}


def why_not(workload: Workload) -> str:
    """Return why a workload can be neither suspended nor resumed; "" if it can."""
    if workload.finished or workload.deleting:
        return f"{called(workload)} {'is being deleted' if workload.deleting else 'has ended'}"
    if workload.suspend_path is None:
        instead = _NO_FIELD.get(workload.kind, "delete it instead")
        return f"{called(workload)} cannot be suspended, as its kind has no field for that: {instead}"
    if workload.ends_suspended and not workload.suspended:
        return f"{called(workload)} cannot be suspended: {ENDS_SUSPENDED}"
    if workload.owner is not None and not can_suspend(workload):
        above = f"{workload.owner.kind.lower()}/{workload.owner.name}"
        return f"{called(workload)} belongs to {sanitize(above, 320)}: name that instead"
    return "" if workload.suspendable else f"{called(workload)} cannot be suspended with what it asks for"


@dataclass(frozen=True, slots=True)
class Suspender:
    """Changes the suspension of workloads with a releaser's requests; `wall` is the time of day."""

    releaser: Releaser
    wall: Callable[[], float] = time.time

    def suspend(self, workload: Workload) -> Outcome:
        """Suspend a workload for its user; one that waits is no longer planned."""
        if suspended_by_user(workload):
            return Outcome(True, f"{called(workload)}: is suspended by its user already")
        result = self._written(workload, writes.suspend_for_user)
        waited = held_by_us(workload)
        end = "it is not planned until it is resumed" if waited else "its pods end, and its slots are free"
        return outcome_of(workload, result, f"suspended: {end}")

    def resume(self, workload: Workload) -> Outcome:
        """Resume a workload that its user has suspended."""
        if held_by_us(workload):
            return Outcome(True, f"{called(workload)}: waits already: it starts when it has slots (topogate explain)")
        if not workload.suspended:
            return Outcome(True, f"{called(workload)}: is not suspended")
        result = self._written(workload, writes.resume_workload)
        return outcome_of(workload, result, "resumed: if it requests a placement, it starts when it has slots")

    def move_back(self, workload: Workload, placements: Iterable[Placement]) -> Outcome:
        """Move waiting gangs of a workload to the end of their priority."""
        result: Result | ApiFault | None = None
        for one in placements:
            try:
                body = requeued_body(one.status, self.wall())
                result = writes.patch_placement_status(self.releaser.api, one, body, fence=no_fence)
            except ApiFault as fault:
                result = fault
            if isinstance(result, Refused) and not denied_right(result.message):
                words = f"only admins of the policy may move a gang back: {result.message}"
                result = replace(result, message=words)
            if not isinstance(result, Done):
                break
        if result is None:
            return Outcome(False, f"{called(workload)}: has no Placement yet: the service has not seen it")
        return outcome_of(workload, result, "waits at the end of its priority now")

    def _written(self, workload: Workload, write: Callable[..., Result]) -> Result | ApiFault:
        def attempt(one: Workload) -> Result:
            return write(self.releaser.api, one, fence=no_fence)

        return self.releaser.until_done(workload, attempt, self.releaser.workload_again)
