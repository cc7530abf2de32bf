"""Pods of DaemonSets that do not exist yet: each counts as used on the host that it will run on.

A host that joins, or that an agent's pod has just left, looks emptier than it is. A DaemonSet's pod is expected on
every host that its template may run on (selector, affinity, taints with the tolerations that the DaemonSet controller
adds) and that is large enough for it, until its real pod is counted there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from engine.api.objects import DaemonSet, Node
from engine.api.pod import OwnerRef, Pod, PodSpec, Toleration
from engine.api.resources import is_claim
from engine.cache.capacity import Capacity
from engine.gang.shape import exclusion

# Source: kubernetes/pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations.
_ADDED: Final = tuple(
    Toleration(f"node.kubernetes.io/{condition}", "Exists", "", effect)
    for condition, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
# So many changed hosts are checked one by one; more, and all are checked at once.
FEW: Final = 32


class ExpectedDaemonPods:
    """Counts the expected pods in the capacity; not thread-safe. `settle` applies what was set before it."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._pods: dict[str, Pod] = {}  # DaemonSet -> one of its pods, without a host
        self._existing: dict[str, Counter[str]] = {}  # DaemonSet -> host -> its pods there
        self._expected: dict[str, set[str]] = {}  # DaemonSet -> hosts with a pod that is counted and does not exist yet
        self._stale: set[str] = set()  # DaemonSets of which every host is to be checked
        self._hosts: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()

    def set_daemon_set(self, old: DaemonSet | None, new: DaemonSet | None) -> None:
        """Set a DaemonSet: None when it is gone, or is new."""
        if old is not None:
            key = _key(old)
            for host in self._expected.pop(key, ()):
                self._capacity.set_pod((key, host), None)
            self._pods.pop(key, None)
        if new is not None and not new.deleting:
            self._pods[_key(new)] = _pod(new)
            self._stale.add(_key(new))

    def set_node(self, name: str) -> None:
        """Check a host again because it is new, changed or deleted."""
        self._hosts.add(name)

    def set_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Set a pod of any owner: None when it is gone, or is new."""
        before, after = _counted(old), _counted(new)
        if before == after:
            return
        for pair, change in ((before, -1), (after, 1)):
            if pair is None:
                continue
            key, host = pair
            existing = self._existing.setdefault(key, Counter())
            existing[host] += change
            if not existing[host]:
                del existing[host]
            if not existing:
                del self._existing[key]
            self._pairs.add(pair)

    def settle(self) -> None:
        """Apply everything that was set to the expected pods."""
        if not (self._stale or self._hosts or self._pairs):
            return
        if len(self._hosts) > FEW:
            self._stale.update(self._pods)
        for key in self._pods.keys() & self._stale:
            eligible = self._capacity.eligible_hosts(self._pods[key].spec.shape)
            self._check(key, {*eligible, *self._expected.get(key, ())})
        for key in self._pods.keys() - self._stale:
            self._check(key, self._hosts)
        for key, host in self._pairs:
            if key in self._pods and key not in self._stale:
                self._check(key, (host,))
        self._stale.clear()
        self._hosts.clear()
        self._pairs.clear()

    def _check(self, key: str, hosts: Iterable[str]) -> None:
        """Count the pod of a DaemonSet on those of the hosts where it is expected, and on none of the others."""
        pod, existing = self._pods[key], self._existing.get(key, ())
        expected = self._expected.setdefault(key, set())
        for host in hosts:
            node = self._capacity.node(host)
            wanted = host not in existing and node is not None and _runs_on(pod, node)
            if wanted and host not in expected:
                expected.add(host)
                self._capacity.set_pod((key, host), replace(pod, spec=replace(pod.spec, node_name=host)))
            elif host in expected and not wanted:
                expected.discard(host)
                self._capacity.set_pod((key, host), None)


def _key(daemon_set: DaemonSet) -> str:
    """Return the uid; objects from files may have none."""
    return daemon_set.uid or f"{daemon_set.namespace}/{daemon_set.name}"


def _runs_on(pod: Pod, node: Node) -> bool:
    """Return whether a host may take a pod of the DaemonSet, and is large enough for it when it is empty."""
    requests = pod.spec.shape.requests
    return exclusion(pod.spec.shape, node) is None and all(
        is_claim(name) or amount <= node.allocatable.get(name, 0) for name, amount in requests
    )


def _counted(pod: Pod | None) -> tuple[str, str] | None:
    """Return the DaemonSet and the host of a pod that counts there; None for any other pod."""
    if pod is None or pod.owner is None or pod.owner.kind != "DaemonSet" or pod.finished:
        return None
    host = pod.spec.node_name or pod.nominated_node
    return (pod.owner.uid or f"{pod.namespace}/{pod.owner.name}", host) if host else None


def _pod(daemon_set: DaemonSet) -> Pod:
    template: PodSpec = daemon_set.template
    shape = replace(template.shape, tolerations=(*template.shape.tolerations, *_ADDED))
    return Pod(
        namespace=daemon_set.namespace,
        name=daemon_set.name,
        uid="",
        resource_version="",
        spec=replace(template, shape=shape),
        owner=OwnerRef("apps/v1", "DaemonSet", daemon_set.name, daemon_set.uid, controller=True),
        phase="Pending",
        nominated_node="",
        created=0.0,
        deleting=False,
        unschedulable="",
        mirror=False,
    )
