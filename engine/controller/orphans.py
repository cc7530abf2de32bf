"""Cleans up orphans: held pods and Placements that belong to no gang."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.workload import GangKey
from engine.cache.state import Changes, ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.term import LeaderTerm
from engine.gang.key import placed_key

# An orphaned pod waits this long for its owner to appear in the cache (seconds).
ORPHANED_AFTER: Final = 10.0
# Seconds between searches for Placements without a gang; one that is found twice is deleted.
SWEEP_EVERY: Final = 30.0


class OrphanCollector:
    """Tracks orphaned pods and Placements, and when they became orphaned."""

    def __init__(
        self,
        view: ClusterState,
        executor: ActionExecutor,
        term: LeaderTerm,
        *,
        hidden: Callable[[], AbstractSet[tuple[str, str]]],
    ) -> None:
        """Take `hidden`: the kinds of workloads, by group and name, that may not be read."""
        self._view = view
        self._executor = executor
        self._term = term
        self._hidden = hidden
        self._pods: dict[tuple[str, str], float] = {}
        self._placements: dict[tuple[str, str], float] = {}
        self._swept_at = float("-inf")

    def __len__(self) -> int:
        """Return how many pods are tracked."""
        return len(self._pods)

    def pods(self, changes: Changes, now: float) -> None:
        """Free orphaned pods without a reason to be held, and report the reason on the others."""
        keys = set(changes.held_pods)
        if changes.everything:
            keys |= {pod.key for pod in self._view.stores.pods.values() if names.GATE in pod.spec.gates}
        for key in keys:
            self._pods.setdefault(key, now)
        for key, since in list(self._pods.items()):
            pod = self._view.stores.pods.get(key)
            if pod is None or pod.finished or pod.deleting or names.GATE not in pod.spec.gates:
                del self._pods[key]
                continue
            with self._view.lock:
                has_gang = self._view.gangs.gang_of(pod) is not None
            if has_gang:
                del self._pods[key]  # its gang decides about it
                continue
            if now - since >= ORPHANED_AFTER:
                del self._pods[key]
                self._free_or_report(pod, now)

    def _free_or_report(self, pod: Pod, now: float) -> None:
        why = self._executor.orphan_reason(pod)
        if why is not None:
            self._executor.events.publish_for_pod(pod, "HeldWithoutGang", why)
            return
        self._pods[pod.key] = now  # until the watch shows it without the gate: a lost PATCH is sent again
        self._term.send_for_orphan(lambda: self._executor.free_pod(pod))

    def placements(self, now: float) -> None:
        """Delete Placements of deleted gangs (`--cascade=orphan` hides them from the garbage collector)."""
        if now - self._swept_at < SWEEP_EVERY:
            return
        self._swept_at = now
        hidden = self._hidden()
        with self._view.lock:
            placements = self._view.gangs.placements()
        lost = {
            placement.key: placement
            for placement in placements
            if not self._knows(placed_key(placement)) and not placement.deleting and _kind(placement) not in hidden
        }
        for key in [key for key in self._placements if key not in lost]:
            del self._placements[key]
        for key, placement in lost.items():
            if now - self._placements.setdefault(key, now) >= SWEEP_EVERY:
                self._term.send(placed_key(placement), partial(self._executor.forget, placement))

    def _knows(self, key: GangKey) -> bool:
        with self._view.lock:  # locked for one at a time: reviews need the lock too
            return self._view.gangs.knows(key)


def _kind(placement: Placement) -> tuple[str, str]:
    workload = placement.workload
    return (workload.api_version.rpartition("/")[0], workload.kind)
