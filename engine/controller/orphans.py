"""Pods and Placements that no gang claims: what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.cache.state import Changes, ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.term import LeaderTerm
from engine.gang.key import placed_key

# A pod that no gang claims is given this long for its owner to show up in the cache (seconds).
UNCLAIMED_AFTER: Final = 10.0
# So often Placements are looked for whose gangs are gone; one goes when it was found twice (seconds).
SWEEP_EVERY: Final = 30.0


class OrphanCollector:
    """Remembers since when nobody claims what."""

    def __init__(
        self,
        view: ClusterState,
        errands: ActionExecutor,
        term: LeaderTerm,
        *,
        hidden: Callable[[], AbstractSet[tuple[str, str]]],
    ) -> None:
        """`hidden`: the kinds of workloads, by group and name, that may not be read."""
        self._view = view
        self._errands = errands
        self._term = term
        self._hidden = hidden
        self._pods: dict[tuple[str, str], float] = {}
        self._placements: dict[tuple[str, str], float] = {}
        self._swept_at = float("-inf")

    def __len__(self) -> int:
        """How many pods are waited for."""
        return len(self._pods)

    def pods(self, changes: Changes, now: float) -> None:
        """Free the held pods that nothing asks to be held, and tell of the others why they are."""
        keys = set(changes.unclaimed_pods)
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
                claimed = self._view.gangs.gang_of(pod) is not None
            if claimed:
                del self._pods[key]  # its gang decides
                continue
            if now - since >= UNCLAIMED_AFTER:
                del self._pods[key]
                self._nobodys(pod, now)

    def _nobodys(self, pod: Pod, now: float) -> None:
        why = self._errands.unclaimed(pod)
        if why is not None:
            self._errands.pod_event(pod, "HeldWithoutGang", why)
            return
        self._pods[pod.key] = now  # until the watch shows it free: a lost PATCH is sent again
        self._term.send(f"pod/{pod.uid}", lambda: self._errands.free_pod(pod))

    def placements(self, now: float) -> None:
        """Forget Placements of gangs that are gone (`--cascade=orphan` hides them from the garbage collector)."""
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
                self._term.send(placed_key(placement), partial(self._errands.forget, placement))

    def _knows(self, key: str) -> bool:
        with self._view.lock:  # for one at a time: reviews want it too
            return self._view.gangs.knows(key)


def _kind(placement: Placement) -> tuple[str, str]:
    workload = placement.workload
    return (workload.api_version.rpartition("/")[0], workload.kind)
