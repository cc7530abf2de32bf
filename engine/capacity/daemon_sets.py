"""Pods of DaemonSets that do not exist yet: each counts as used on the host that it will run on.

A host that joins, or that an agent's pod has just left, looks emptier than it is. A DaemonSet's pod is expected on
every host that its template may run on (selector, affinity, taints with the tolerations that the DaemonSet controller
adds) and that is large enough for it, until its real pod is counted there.

Anybody may create a DaemonSet with pods that never come. So the pods that are expected of one request no more in all,
of any resource, than its pods on hosts do already: a tiny pod that names it as its owner is no reason to expect a large
one. None are expected beyond what the quotas of its namespace admit; none at all where its template has more
requirements, or its namespace more quotas, than are compared with every host. Where nobody can mean harm (files), all
are expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from engine.api.objects import DaemonSet, Node, Quota
from engine.api.pod import OwnerRef, Pod, PodSpec, Toleration
from engine.api.resources import Requests, is_claim
from engine.capacity.capacity import Capacity
from engine.capacity.counts import add_in
from engine.capacity.eligibility import weight_of
from engine.capacity.quota import admit
from engine.resources.shape import exclusion

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
MAX_WEIGHT: Final = 1_000  # of a template, as `weight_of` counts


class ExpectedDaemonPods:
    """Counts the expected pods in the capacity; not thread-safe. `settle` applies what was set before it."""

    def __init__(
        self, capacity: Capacity, *, quotas: Callable[[str], Iterable[Quota]], without_pods: bool = False
    ) -> None:
        """`quotas`: the quotas of a namespace. `without_pods`: expect pods of DaemonSets that have none yet, too."""
        self._capacity = capacity
        self._without_pods = without_pods
        self._quotas = quotas
        self._pods: dict[str, Pod] = {}  # DaemonSet -> one of its pods, without a host
        self._existing: dict[str, dict[str, int]] = {}  # DaemonSet -> host -> its pods there
        self._requested: dict[str, dict[str, int]] = {}  # DaemonSet -> resource -> what all of these request
        self._missing: dict[str, set[str]] = {}  # DaemonSet -> hosts that its pod will run on and is not on
        self._expected: dict[str, set[str]] = {}  # DaemonSet -> those of them on which it is counted
        self._stale: set[str] = set()  # DaemonSets of which every host is to be checked
        self._hosts: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        self._namespaces: set[str] = set()
        self._freed = False

    def set_daemon_set(self, old: DaemonSet | None, new: DaemonSet | None) -> None:
        """Set a DaemonSet: None when it is gone, or is new."""
        if old is not None:
            key = _key(old)
            for host in self._expected.pop(key, ()):
                self._capacity.expect_pod(key, host, None)
                self._freed = True
            self._missing.pop(key, None)
            self._pods.pop(key, None)
        light = self._without_pods or new is None or weight_of(new.template.shape) <= MAX_WEIGHT
        if new is not None and not new.deleting and light:
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
        for counted, change in ((before, -1), (after, 1)):
            if counted is None:
                continue
            key, host, requests = counted
            add_in(self._existing, key, host, change)
            for name, amount in requests:
                add_in(self._requested, key, name, change * amount)
            self._pairs.add((key, host))

    def set_quota(self, namespace: str) -> None:
        """Check the DaemonSets of a namespace again because one of its quotas is another."""
        self._namespaces.add(namespace)

    def settle(self) -> bool:
        """Apply everything that was set to the expected pods; return True if one is not expected any more."""
        freed, self._freed = self._freed, False
        if not (self._stale or self._hosts or self._pairs or self._namespaces):
            return freed
        if len(self._hosts) > FEW:
            self._stale.update(self._pods)
        changed = {key for key, pod in self._pods.items() if pod.namespace in self._namespaces}
        later = set() if self._without_pods else {key for key in self._stale if key not in self._existing}
        for key in (self._pods.keys() & self._stale) - later:
            eligible = self._capacity.eligible_hosts(self._pods[key].spec.shape)
            self._look(key, {*eligible, *self._missing.get(key, ())}, changed)
        for key in self._pods.keys() - self._stale:
            self._look(key, self._hosts, changed)
        for key, host in self._pairs:
            if key in self._pods:
                changed.add(key)  # it has more or fewer pods
                if key not in self._stale:
                    self._look(key, (host,), changed)
        for key in changed:
            freed |= self._count(key)
        for pending in (self._stale, self._hosts, self._pairs, self._namespaces):
            pending.clear()
        self._stale |= later & self._pods.keys()
        return freed

    def _look(self, key: str, hosts: Iterable[str], changed: set[str]) -> None:
        """Find out on which of the hosts a pod of a DaemonSet is missing."""
        pod, existing = self._pods[key], self._existing.get(key, ())
        missing = self._missing.setdefault(key, set())
        for host in hosts:
            node = self._capacity.node(host)
            wanted = host not in existing and node is not None and _runs_on(pod, node)
            if wanted != (host in missing):
                changed.add(key)
                (missing.add if wanted else missing.discard)(host)

    def _count(self, key: str) -> bool:
        """Count the missing pods of a DaemonSet that will come; return True if one is not counted any more."""
        pod, expected = self._pods[key], self._expected.setdefault(key, set())
        missing = self._missing.get(key, set())
        requested, requests = self._requested.get(key, {}), pod.spec.shape.requests
        more = any(len(missing) * amount > requested.get(name, 0) for name, amount in requests)
        if more and not self._without_pods:
            missing = set()
        quotas, wanted = self._quotas(pod.namespace), [(pod.spec, len(missing))]
        if missing and not admit(quotas, wanted, bounded=not self._without_pods):
            missing = set()
        gone = expected - missing
        for host in gone:
            self._capacity.expect_pod(key, host, None)
        for host in missing - expected:
            self._capacity.expect_pod(key, host, replace(pod, spec=replace(pod.spec, node_name=host)))
        self._expected[key] = set(missing)
        return bool(gone)


def _key(daemon_set: DaemonSet) -> str:
    """Return the uid; objects from files may have none."""
    return daemon_set.uid or f"{daemon_set.namespace}/{daemon_set.name}"


def _runs_on(pod: Pod, node: Node) -> bool:
    """Return whether a host may take a pod of the DaemonSet, and is large enough for it when it is empty.

    A template may name its only node (`nodeShouldRunDaemonPod` of the DaemonSet controller).
    """
    shape, only = pod.spec.shape, pod.spec.node_name
    if only not in ("", node.name) or exclusion(shape, node) is not None:
        return False
    return all(is_claim(name) or amount <= node.allocatable.get(name, 0) for name, amount in shape.requests)


def _counted(pod: Pod | None) -> tuple[str, str, Requests] | None:
    """Return the DaemonSet, the host and the requests of a pod that counts there; None for any other pod."""
    if pod is None or pod.owner is None or pod.owner.kind != "DaemonSet" or pod.finished:
        return None
    host = pod.spec.node_name or pod.nominated_node
    return (pod.owner.uid or f"{pod.namespace}/{pod.owner.name}", host, pod.spec.shape.requests) if host else None


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
