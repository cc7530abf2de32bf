"""The chain of owners above a pod: pod -> Job -> JobSet -> TrainJob. Pure.

Only controller references count, and each one must name the very object that is there: group, kind, name and uid, in
the pod's own namespace. Labels prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Owned, Workload

# Pod -> StatefulSet -> leader pod -> StatefulSet -> LeaderWorkerSet, and what stands above that; more is a cycle.
MAX_DEPTH = 8

Link = Workload | Owned | Pod
Key = tuple[str, str, str, str]
Find = Callable[[Key], Link | None]
NOT_ASKING = "NoTopologyRequested"


@dataclass(frozen=True, slots=True)
class Chain:
    """The proven links, nearest first. `missing`: the reference that leads to nothing that we know; None at the top."""

    links: tuple[Link, ...] = ()
    missing: OwnerRef | None = None

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The workloads among the links."""
        return tuple(link for link in self.links if isinstance(link, Workload))


def chain_of(namespace: str, owner: OwnerRef | None, *, find: Find) -> Chain:
    """Follow controller references as far as they are proven; `find` gives the object of a key, in any version."""
    links: list[Link] = []
    seen: set[str] = set()
    while owner is not None and owner.controller and len(links) < MAX_DEPTH:
        link = find(key_to(namespace, owner))
        if link is None or not leads_to(namespace, owner, link):
            return Chain(tuple(links), owner)
        if link.uid in seen:
            return Chain(tuple(links), owner)
        seen.add(link.uid)
        links.append(link)
        owner = link.owner
    return Chain(tuple(links), owner if owner is not None and owner.controller else None)


def leads_to(namespace: str, owner: OwnerRef | None, link: Link) -> bool:
    """True when an owner reference in a namespace is a controller reference to this very object."""
    if owner is None or not owner.controller:
        return False
    return bool(owner.uid) and owner.uid == link.uid and key_to(namespace, owner) == key_of(link)


def key_to(namespace: str, owner: OwnerRef) -> Key:
    """The key of the object that a reference names: the same in every version of the kind."""
    return (owner.api_version.rpartition("/")[0], owner.kind, namespace, owner.name)


def key_of(link: Link) -> Key:
    """Group, kind, namespace and name of an object."""
    return ("", "Pod", link.namespace, link.name) if isinstance(link, Pod) else link.key


def reference_to(link: Link) -> OwnerRef:
    """The controller reference that leads to an object."""
    version = "v1" if isinstance(link, Pod) else link.api_version
    return OwnerRef(version, key_of(link)[1], link.name, link.uid, controller=True)


def decider(chain: Chain, *, ignored: Callable[[Workload], str | None]) -> Workload | None:
    """The workload that decides for what is below it: the top-most that asks or stands aside, else the nearest.

    `ignored(workload)`: the reason code why the workload, seen by itself, is none of ours; None when it asks.
    """
    workloads = chain.workloads
    for workload in reversed(workloads):
        if ignored(workload) != NOT_ASKING:
            return workload
    return workloads[0] if workloads else None
