"""Pods to come that are expected to request more than their templates, because others of their workloads do.

Admission may add to every pod of a workload. But anybody may create one large pod: so the slots of pods that do not
exist yet are as large only where the quotas of the namespace admit all such pods, of all its gangs. Pods that no quota
admits do not come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from engine.api.objects import Quota
from engine.api.pod import PodSpec
from engine.api.workload import ReservationKey
from engine.capacity.quota import admit

_MAX_GANGS: Final = 64  # of a namespace; with more, none of its pods to come are expected to be larger


class LargerPods:
    """The larger pods to come by namespace, and where they may come; not thread-safe. `settle` applies what was set."""

    def __init__(self, quotas: Callable[[str], Iterable[Quota]]) -> None:
        """`quotas`: the quotas of a namespace."""
        self._quotas = quotas
        self._namespaces: dict[ReservationKey, str] = {}
        self._pods: dict[str, dict[ReservationKey, Sequence[tuple[PodSpec, int]]]] = {}
        self._refused: set[str] = set()
        self._changed: set[str] = set()

    def set_pods(self, key: ReservationKey, namespace: str, pods: Sequence[tuple[PodSpec, int]]) -> None:
        """Replace the larger pods to come of a gang: their spec and number."""
        before = self._namespaces.pop(key, None)
        if before is not None:
            self._changed.add(before)
            del self._pods[before][key]
            if not self._pods[before]:
                del self._pods[before]
        if pods:
            self._changed.add(namespace)
            self._namespaces[key] = namespace
            self._pods.setdefault(namespace, {})[key] = pods

    def set_quota(self, namespace: str) -> None:
        """Ask the quotas of a namespace again because one of them is another."""
        self._changed.add(namespace)

    def may_come(self, namespace: str) -> bool:
        """Return whether the quotas of a namespace admit its larger pods to come, by the last `settle`."""
        return namespace not in self._refused

    def settle(self) -> set[ReservationKey]:
        """Ask the quotas of namespaces with changes; return the gangs with larger pods where the answer is another."""
        found: set[ReservationKey] = set()
        for namespace in self._changed:
            gangs = self._pods.get(namespace, {})
            if self._admitted(namespace, gangs.values()) != self.may_come(namespace):
                self._refused ^= {namespace}
                found.update(gangs)
        self._changed.clear()
        return found

    def _admitted(self, namespace: str, gangs: Iterable[Sequence[tuple[PodSpec, int]]]) -> bool:
        quotas, wanted = self._quotas(namespace), list(islice(gangs, _MAX_GANGS + 1))
        if not wanted:
            return True
        if len(wanted) > _MAX_GANGS:
            return next(iter(quotas), None) is None
        return admit(quotas, [one for pods in wanted for one in pods])
