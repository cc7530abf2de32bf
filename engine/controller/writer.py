"""Writes whose answers go into the stores at once: no turn may decide on what we have changed ourselves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cluster import placements, pods, wire, workloads, writes
from engine.cluster.client import ApiError, ApiFault, KubeClient, object_path
from engine.cluster.writes import Conflict, Done, Gone, Refused, Result
from engine.gang import plain_pods
from engine.gang.gang import Gang
from engine.gang.plain_pods import is_plain
from engine.kinds import read

log = logging.getLogger("topogate.errands")

ATTEMPTS: Final = 4  # of a write to a workload that changes meanwhile


class StaleObject(ApiFault):
    """The object is not any more what the errand was decided on: the watch will tell, and only the watch."""


class Writer:
    """What the errands write through; any thread may."""

    def __init__(self, view: ClusterState, api: KubeClient, *, fence: Callable[[], None]) -> None:
        self._view = view
        self._api = api
        self._fence = fence

    def read_back(self, placement: Placement) -> None:
        """After a write without an answer: take in what became of it, before its slots count as free again."""
        path = object_path(names.API_VERSION, names.PLACEMENTS, namespace=placement.namespace, name=placement.name)
        try:
            self._view.stores.placements.apply_own_write(placements.placement(self._api.request("GET", path)))
        except ApiError as error:
            log.info("the plan of %s was not written: %s", placement.name, error)

    def write(self, placement: Placement, gang: Gang) -> Placement:
        """Create or change a Placement's spec; the Placement as it stands now."""
        body = placements.placement_body(placement, owners=plain_pods.owners(gang.pods) if is_plain(gang.key) else ())
        if placement.uid:
            result = writes.replace_placement_spec(self._api, placement, body["spec"], fence=self._fence)
        else:
            result = writes.create_placement(self._api, placement.namespace, body, fence=self._fence)
        return self.took_placement(result)

    def took_placement(self, result: Result) -> Placement:
        """Take in what a write of a Placement answered; the Placement as it stands now."""
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
        """Write to a workload as it was decided on; when it is not as new as that any more, to what it is now, if that
        asks for the same.

        A controller notes the suspension in the status a moment after the workload is made: mostly the watch has told
        us by now, else the conflict does, and waiting for the watch then would cost the gang its head start.
        """
        known = self._view.stores.workloads.get(workload.key)
        if known is not None and self._same_question(known, workload):
            workload = known
        for _ in range(ATTEMPTS):
            result = write(workload)
            if isinstance(result, Done):
                self._took_workload(workload, result)
            if not isinstance(result, Conflict):
                return result
            newest = self._read_again(workload)
            if newest is None or not self._same_question(newest, workload):
                return result  # its user was faster: look again
            workload = newest
        return result

    def _took_workload(self, workload: Workload, result: Done) -> None:
        if (written := self._projected(workload, result.body)) is not None:
            self._view.stores.workloads.apply_own_write(written)

    def _read_again(self, workload: Workload) -> Workload | None:
        path = object_path(workload.api_version, workload.resource, namespace=workload.namespace, name=workload.name)
        return self._projected(workload, self._api.request("GET", path))

    def _projected(self, workload: Workload, body: bytes) -> Workload | None:
        """The object as it stands now; None when it is none any more that can be read: then the watch tells as well."""
        group, _, version = workload.api_version.rpartition("/")
        registry = self._view.registry
        entry = registry.find(group, workload.kind, version)
        try:
            return workloads.workload(body, entry=entry, registry=registry) if entry is not None else None
        except (wire.ProjectionError, read.UnreadableWorkload) as fault:
            log.warning("%s cannot be read any more: %s", workload.name, fault)
            return None

    def _same_question(self, newer: Workload, older: Workload) -> bool:
        """True when nothing between two versions of a workload changes a decision: status and foreign keys do not.

        The generation does not count annotations, and the request is one.
        """
        known = (older.uid, older.generation, older.annotations.get(names.HELD_BY))
        return (newer.uid, newer.generation, newer.annotations.get(names.HELD_BY)) == known and self._view.request_of(
            newer
        ) == self._view.request_of(older)

    def took_pod(self, pod: Pod, result: Result) -> None:
        """Take in what a write of a pod answered."""
        match result:
            case Done(body=body):
                self._view.stores.pods.apply_own_write(pods.pod(body, labels=self._view.policy.pod_labels))
            case Refused(message=message):
                raise writes.WriteRefused(message)
            case Conflict() | Gone():
                raise StaleObject(f"{pod.name} is gone or has changed")


def was_done(result: Result, name: str) -> None:
    """Raise Outdated unless a write of an object of that name came through."""
    if not isinstance(result, Done):
        raise StaleObject(f"{name} is gone or has changed")
