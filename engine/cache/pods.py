"""Indexes every pod under the gang that its owner chain proves, updated as owners appear and disappear.

A pod may be seen before its Job, and the Job before its JobSet. When any object of a chain comes, changes or goes, only
the pods below it are indexed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import GangKey, Owned, ReservationKey, Workload
from engine.cache.host_index import HostIndex
from engine.capacity.gang_hosts import GangHosts
from engine.gang.key import is_gang_key, key_of, orphan_key, workload_key
from engine.gang.ownership import Key, Link, OwnerResolver, chain_of, object_key
from engine.gang.plain_pods import is_plain, is_single, is_uid

PodKey = tuple[str, str]
_JOB: Final = ("batch", "Job")


class PodIndex:
    """All pods and the links above them, by gang; not thread-safe."""

    def __init__(self, hosts: GangHosts, by_host: HostIndex) -> None:
        """`hosts` counts every managed pod of a gang on its host, `by_host` every bound one."""
        self._hosts = hosts
        self._by_host = by_host
        self._links: dict[Key, Workload | Owned] = {}
        self._pods: dict[PodKey, Pod] = {}
        # Namespace and uid -> the objects that name it as their controller there, in the order of arrival; pods, of
        # which there are many, apart from the others.
        self._links_below: dict[tuple[str, str], dict[Key, None]] = {}
        self._pods_below: dict[tuple[str, str], dict[Key, None]] = {}
        self._members: dict[GangKey, dict[PodKey, Pod]] = {}
        self._orphans: dict[ReservationKey, Pod] = {}
        self._keys: dict[PodKey, ReservationKey] = {}
        self._hidden: set[PodKey] = set()

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_pod(self, old: Pod | None, new: Pod | None, owners: OwnerResolver) -> set[ReservationKey]:
        """Apply a change of a pod; returns the keys of the gangs that it affects."""
        touched: set[ReservationKey] = set()
        if old is not None:
            touched |= self._remove(old.key)
            self._unlink(old)
            del self._pods[old.key]
        if new is not None:
            self._pods[new.key] = new
            self._link(new)
            touched |= self._index(new, owners)
        if _identity(old) != _identity(new):
            touched |= self._reindex_below(old, new, owners)
        return touched

    def set_link(
        self, old: Workload | Owned | None, new: Workload | Owned | None, owners: OwnerResolver
    ) -> set[ReservationKey]:
        """Apply a change of an object above pods; returns the keys of the gangs with changed pods."""
        if old is not None:
            self._unlink(old)
            del self._links[old.key]
        if new is not None:
            self._links[new.key] = new
            self._link(new)
        touched = self._reindex_below(old, new, owners) if _identity(old) != _identity(new) else set()
        if _completed(old) != _completed(new) and (link := new or old) is not None:
            touched |= {key_of(one) for one in chain_of(link.namespace, link.owner, find=self.find).workloads}
        return touched

    def reindex(self, owners: OwnerResolver) -> set[ReservationKey]:
        """Index every pod again, because a new policy changes which objects have a request."""
        touched: set[ReservationKey] = set()
        for pod in self._pods.values():
            touched |= self._remove(pod.key) | self._index(pod, owners)
        return touched

    def hide(self, pod: Pod) -> None:
        """Count a pod for its gang on no host, and leave it out of all pods, until it is shown again."""
        self._hidden.add(pod.key)
        if (key := self._keys.get(pod.key)) is not None:
            self._count(key, pod, -1)

    def show(self, pod: Pod) -> None:
        """Count a hidden pod again."""
        self._hidden.discard(pod.key)
        if (key := self._keys.get(pod.key)) is not None:
            self._count(key, pod, 1)

    # -- reading -----------------------------------------------------------------------------------------------------

    def find(self, key: Key) -> Link | None:
        """Return the object of a key."""
        return self._pods.get(key[2:]) if key[:2] == ("", "Pod") else self._links.get(key)

    def same(self, pod: Pod) -> Pod | None:
        """Return a pod as it is now; None when it is gone, or another one has its name."""
        known = self._pods.get(pod.key)
        return known if known is not None and known.uid == pod.uid else None

    def every(self) -> Collection[Pod]:
        """Return all pods but hidden ones."""
        if self._hidden:
            return [pod for key, pod in self._pods.items() if key not in self._hidden]
        return self._pods.values()

    def members(self, key: GangKey) -> tuple[Pod, ...]:
        """Return the pods of a gang."""
        return tuple(self._members.get(key, {}).values())

    def has_members(self, key: GangKey) -> bool:
        """True when a gang has a pod."""
        return key in self._members

    def hosts_of(self, key: GangKey) -> frozenset[str]:
        """Return the hosts on which a gang counts, by its pods and its reservation."""
        return self._hosts.of(key)

    def orphan(self, key: ReservationKey) -> Pod | None:
        """Return the pod with our marks that has no owner chain to a gang; each has its own key."""
        return self._orphans.get(key)

    def gang_key_of(self, pod: PodKey) -> GangKey | None:
        """Return the key of the gang that a pod is indexed under."""
        key = self._keys.get(pod)
        return key if key is not None and is_gang_key(key) else None

    def jobs_below(self, workload: Workload) -> Iterator[Workload]:
        """Yield the Jobs that are made for a workload of another kind, at any depth."""
        seen = {(workload.namespace, workload.uid)}
        waiting = list(seen)
        while waiting:
            for key in self._links_below.get(waiting.pop(), ()):
                link = self._links[key]
                if isinstance(link, Workload) and key[:2] == _JOB:
                    yield link
                elif (below := (link.namespace, link.uid)) not in seen:
                    seen.add(below)
                    waiting.append(below)

    def plain_keys(self) -> Iterator[GangKey]:
        """Return the keys of gangs that consist of pods alone."""
        return (key for key in self._members if is_plain(key) or is_single(key))

    # -- internal ----------------------------------------------------------------------------------------------------

    def _index(self, pod: Pod, owners: OwnerResolver) -> set[ReservationKey]:
        gang = owners.owner_of(pod).key
        if gang is not None:
            self._members.setdefault(gang, {})[pod.key] = pod
            self._by_host.add_pod(gang, pod.spec.node_name)
            self._count(gang, pod, 1)
            self._keys[pod.key] = gang
            return {gang}
        if names.MANAGED in pod.spec.labels:
            orphan = self._keys[pod.key] = orphan_key(pod)
            self._orphans[orphan] = pod
            self._count(orphan, pod, 1)
            return {orphan}
        return {workload_key(pod.owner.uid)} if pod.owner is not None and is_uid(pod.owner.uid) else set()

    def _remove(self, pod: PodKey) -> set[ReservationKey]:
        key = self._keys.pop(pod, None)
        if key is None:
            return set()
        if is_gang_key(key):
            removed = self._members[key].pop(pod)
            self._by_host.remove_pod(key, removed.spec.node_name)
            self._count(key, removed, -1)
            if not self._members[key]:
                del self._members[key]
        else:
            self._count(key, self._orphans.pop(key), -1)
        return {key}

    def _count(self, key: ReservationKey, pod: Pod, by: int) -> None:
        """Count a managed pod on its host; one that outlives its workload too."""
        host = pod.spec.node_name or pod.nominated_node
        if host and not pod.finished and names.MANAGED in pod.spec.labels:
            self._hosts.change(key, host, by)

    def _link(self, link: Link) -> None:
        if link.owner is not None:
            self._index_of(link).setdefault((link.namespace, link.owner.uid), {})[object_key(link)] = None

    def _unlink(self, link: Link) -> None:
        if link.owner is not None:
            above = (link.namespace, link.owner.uid)
            index = self._index_of(link)
            below: dict[Key, Any] = index.get(above, {})
            below.pop(object_key(link), None)
            if not below:
                index.pop(above, None)

    def _index_of(self, link: Link) -> dict[tuple[str, str], dict[Key, None]]:
        return self._pods_below if isinstance(link, Pod) else self._links_below

    def _reindex_below(self, old: Link | None, new: Link | None, owners: OwnerResolver) -> set[ReservationKey]:
        touched: set[ReservationKey] = set()
        # An object that names the uid in another namespace is not below it, however many there are.
        waiting = list({(link.namespace, link.uid) for link in (old, new) if link is not None})
        seen: set[tuple[str, str]] = set()
        while waiting:
            above = waiting.pop()
            if above in seen:
                continue
            seen.add(above)
            for key in chain(self._links_below.get(above, ()), self._pods_below.get(above, ())):
                below = self.find(key)
                if isinstance(below, Pod):
                    touched |= self._remove(below.key) | self._index(below, owners)
                if below is not None:
                    waiting.append((below.namespace, below.uid))
        return touched


def _completed(link: Workload | Owned | None) -> int:
    """Return how many pods of a Job have completed; 0 of anything else."""
    if not isinstance(link, Workload) or link.key[:2] != _JOB:
        return 0
    return sum(pod_set.completed for pod_set in link.pod_sets)


def _identity(link: Link | None) -> object:
    """Return the fields of an object that decide about the pods below it."""
    if not isinstance(link, Workload):
        return None if link is None else (link.uid, link.owner)
    templates: list[Mapping[str, str] | object] = []
    for pod_set in link.pod_sets:
        template = pod_set.template
        templates += [template.annotations, template.labels, template.scheduler_name, template.node_name]
        templates += [template.gates, template.has_scheduling_group]
    kept = (link.annotations, link.labels, link.beside)
    return (link.uid, link.owner, link.group_label, link.managed_elsewhere, *kept, templates)
