"""Writes whose responses enter the stores at once, so that no pass decides on state before our own writes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cluster import writes
from engine.cluster.client import ApiError, ApiFault, KubeClient, object_path
from engine.cluster.writes import Conflict, Done, Gone, Refused, Result
from engine.decoding import placements, pods, wire, workloads
from engine.gang import plain_pods
from engine.gang.gang import Gang
from engine.gang.plain_pods import is_plain
from engine.kinds import read

log = logging.getLogger("topogate.errands")

ATTEMPTS: Final = 4  # of a write to a workload that changes meanwhile
# Seconds between two reads of a Placement of which nobody knows whether it was written, and for how long at most:
# without an API server that answers the Lease is lost before that.
READ_BACK_EVERY, READ_BACK_FOR = 0.5, 30.0


class StaleObject(ApiFault):
    """The object has changed since the action was decided; the watch will show its new state."""


class Writer:
    """Performs the writes of actions; thread-safe."""

    def __init__(self, view: ClusterState, api: KubeClient, *, fence: Callable[[], None]) -> None:
        self._view = view
        self._api = api
        self._fence = fence

    def read_back(self, placement: Placement) -> None:
        """Read a Placement after a write without a response, before its slots count as free again.

        What made the write fail mostly lasts for a moment: it is read again until the server says whether there is one.
        """
        path = object_path(names.API_VERSION, names.PLACEMENTS, namespace=placement.namespace, name=placement.name)
        until = time.monotonic() + READ_BACK_FOR
        while True:
            self._fence()
            try:
                self._view.stores.placements.apply_own_write(placements.placement(self._api.request("GET", path)))
            except ApiError as error:
                if not _passes(error) or time.monotonic() >= until:
                    log.info("the plan of %s was not written: %s", placement.name, error)
                    return
            except ApiFault:
                if time.monotonic() >= until:
                    raise
            else:
                return
            time.sleep(READ_BACK_EVERY)

    def write(self, placement: Placement, gang: Gang) -> Placement:
        """Create or change a Placement's spec, and return the current Placement."""
        members = plain_pods.owners(gang.pods) if is_plain(gang.key) else ()
        body = placements.placement_body(placement, owners=members)
        if placement.uid:
            owners = body["metadata"]["ownerReferences"] if members else ()
            result = writes.replace_placement_spec(self._api, placement, body["spec"], owners=owners, fence=self._fence)
        else:
            result = writes.create_placement(self._api, placement.namespace, body, fence=self._fence)
        return self.took_placement(result)

    def take_slots(self, placement: Placement) -> Placement:
        """Write a Placement without its slots, and return the current one."""
        body = placements.placement_body(replace(placement, assignment=None), owners=())
        return self.took_placement(writes.replace_placement_spec(self._api, placement, body["spec"], fence=self._fence))

    def write_slots(self, placement: Placement, gang: Gang) -> Placement:
        """Write a Placement with new slots, and return the current one; without a response it is read back first."""
        try:
            return self.write(placement, gang)
        except writes.WriteRefused:
            raise
        except ApiFault:
            self.read_back(placement)
            raise

    def own(self, placement: Placement, gang: Gang, pods: Iterable[Pod]) -> None:
        """Let the members of a gang of plain pods own its Placement, unless `pods` do already.

        Others than at first, when some were replaced: it must not be deleted with the first ones.
        """
        if is_plain(gang.key) and not {pod.uid for pod in pods} <= placement.owners:
            owners = placements.owner_references(plain_pods.owners(gang.pods))
            self.took_placement(writes.own_placement(self._api, placement, owners, fence=self._fence))

    def took_placement(self, result: Result) -> Placement:
        """Store the response to a write of a Placement, and return the current Placement."""
        match result:
            case Done(body=body):
                written = placements.placement(body)
                self._view.stores.placements.apply_own_write(written)
                return written
            case Refused(message=message) | Conflict(message=message):
                raise writes.WriteRefused(message)
            case Gone():
                raise writes.WriteRefused("the Placement is gone")

    def on_newest(self, workload: Workload, write: Callable[[Workload], Result]) -> Result:
        """Write to a workload, or to its newest version if that makes the same request.

        A controller notes the suspension in the status a moment after the workload is made: mostly the watch has shown
        that by now, else a conflict does, and waiting for the watch then would cost the gang its head start.
        """
        known = self._view.stores.workloads.get(workload.key)
        if known is not None and self._same_request(known, workload):
            workload = known
        for _ in range(ATTEMPTS):
            result = write(workload)
            if isinstance(result, Done):
                self._took_workload(workload, result)
            if not isinstance(result, Conflict):
                return result
            newest = self._read_again(workload)
            if newest is None or not self._same_request(newest, workload):
                return result  # its user was faster: reconcile again
            workload = newest
        return result

    def _took_workload(self, workload: Workload, result: Done) -> None:
        if (written := self._decoded(workload, result.body)) is not None:
            self._view.stores.workloads.apply_own_write(written)

    def _read_again(self, workload: Workload) -> Workload | None:
        path = object_path(workload.api_version, workload.resource, namespace=workload.namespace, name=workload.name)
        return self._decoded(workload, self._api.request("GET", path))

    def _decoded(self, workload: Workload, body: bytes) -> Workload | None:
        """Return the current workload; None if it cannot be decoded any more, which the watch reports too."""
        group, _, version = workload.api_version.rpartition("/")
        registry = self._view.registry
        entry = registry.find(group, workload.kind, version)
        try:
            return workloads.workload(body, entry=entry, registry=registry) if entry is not None else None
        except (wire.ProjectionError, read.UnreadableWorkload) as fault:
            log.warning("%s can no longer be read: %s", workload.name, fault)
            return None

    def _same_request(self, newer: Workload, older: Workload) -> bool:
        """Return True if the changes between two versions affect no decision, as those of status and foreign keys.

        The generation does not count annotations, and the request is one.
        """
        known = (older.uid, older.generation, older.annotations.get(names.HELD_BY))
        return (newer.uid, newer.generation, newer.annotations.get(names.HELD_BY)) == known and self._view.request_of(
            newer
        ) == self._view.request_of(older)

    def took_pod(self, pod: Pod, result: Result) -> None:
        """Store the response to a write of a pod."""
        match result:
            case Done(body=body):
                self._view.stores.pods.apply_own_write(pods.pod(body, labels=self._view.policy.pod_labels))
            case Refused(message=message):
                raise writes.WriteRefused(message)
            case Conflict() | Gone():
                raise StaleObject(f"{pod.name} is gone or has changed")


def _passes(error: ApiError) -> bool:
    """Return True for an answer that is about the server, and says nothing about the object."""
    return error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or error.status == HTTPStatus.TOO_MANY_REQUESTS


def was_done(result: Result, name: str) -> None:
    """Raise StaleObject unless a write of the object with that name succeeded."""
    if not isinstance(result, Done):
        raise StaleObject(f"{name} is gone or has changed")
