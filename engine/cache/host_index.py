"""Which gangs have slots or pods on a host: those that a change of the host can concern."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.api.workload import GangKey


class HostIndex:
    """The gangs with a slot or a bound pod on each host; not thread-safe."""

    def __init__(self) -> None:
        self._gangs: dict[str, Counter[GangKey]] = {}  # host -> gang -> its pods there, and one more for its slots
        self._slots: dict[GangKey, frozenset[str]] = {}

    def __len__(self) -> int:
        """Return the number of hosts with a gang."""
        return len(self._gangs)

    def gangs(self, host: str) -> set[GangKey]:
        """Return the gangs with a slot or a pod on a host."""
        return set(self._gangs.get(host, ()))

    def set_slots(self, key: GangKey, hosts: Iterable[str]) -> None:
        """Replace the hosts on which a gang has slots."""
        before, after = self._slots.get(key, frozenset()), frozenset(hosts)
        for host in after - before:
            self._change(key, host, 1)
        for host in before - after:
            self._change(key, host, -1)
        if after:
            self._slots[key] = after
        else:
            self._slots.pop(key, None)

    def add_pod(self, key: GangKey, host: str) -> None:
        """Count one more pod of a gang on a host; on none for ""."""
        if host:
            self._change(key, host, 1)

    def remove_pod(self, key: GangKey, host: str) -> None:
        """Count one pod fewer of a gang on a host."""
        if host:
            self._change(key, host, -1)

    def _change(self, key: GangKey, host: str, by: int) -> None:
        gangs = self._gangs.setdefault(host, Counter())
        gangs[key] += by
        if not gangs[key]:
            del gangs[key]
            if not gangs:
                del self._gangs[host]
