"""Resolves the owner chain of a pod (pod -> Job -> JobSet -> TrainJob) to the workload that decides for it. Pure.

Only controller references count, and each one must match the existing object by group, kind, name and uid, in the pod's
own namespace. Labels prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from engine.api import names
from engine.api.field import FieldError
from engine.api.pod import OwnerRef, Pod
from engine.api.reasons import REASONS, Code, asks_nothing
from engine.api.workload import GangKey, Owned, Workload
from engine.gang.annotations import meanings, read_own_annotations, requests_something
from engine.gang.exemption import exemption_reason
from engine.gang.gang import is_beside
from engine.gang.key import joined_key
from engine.gang.plain_pods import is_single, plain_key, plain_workload, single_key
from engine.gang.request import PlacementRequest, parse_request
from engine.kinds.registry import Registry
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from engine.topology.topology import Topology

# Pod -> StatefulSet -> leader pod -> StatefulSet -> LeaderWorkerSet, and its own owners; more is a cycle.
MAX_DEPTH = 8

Link = Workload | Owned | Pod
Key = tuple[str, str, str, str]
Find = Callable[[Key], Link | None]
NOT_ASKING: Final[Code] = "NoTopologyRequested"


@dataclass(frozen=True, slots=True)
class Chain:
    """The proven links, nearest first; `missing`: the reference to an unknown object; None at the top."""

    links: tuple[Link, ...] = ()
    missing: OwnerRef | None = None

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The workloads among the links."""
        return tuple(link for link in self.links if isinstance(link, Workload))


def chain_of(namespace: str, owner: OwnerRef | None, *, find: Find) -> Chain:
    """Follow controller references as far as they are proven; `find` returns the object of a key, in any version."""
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
    """True when an owner reference in a namespace is a controller reference to this object, by uid."""
    if owner is None or not owner.controller:
        return False
    return bool(owner.uid) and owner.uid == link.uid and key_to(namespace, owner) == object_key(link)


def key_to(namespace: str, owner: OwnerRef) -> Key:
    """Return the key of the object that a reference names: the same in every version of the kind."""
    return (owner.api_version.rpartition("/")[0], owner.kind, namespace, owner.name)


def object_key(link: Link) -> Key:
    """Return the group, kind, namespace and name of an object."""
    return ("", "Pod", link.namespace, link.name) if isinstance(link, Pod) else link.key


def reference_to(link: Link) -> OwnerRef:
    """Return the controller reference that leads to an object."""
    version = "v1" if isinstance(link, Pod) else link.api_version
    return OwnerRef(version, object_key(link)[1], link.name, link.uid, controller=True)


def gang_root(chain: Chain, *, ignored: Callable[[Workload], Code | None]) -> Workload | None:
    """Return the workload that decides for those below: the top-most with a request or an exemption, else the nearest.

    `ignored(workload)`: the reason code why the workload alone is not managed; None when it has a request.
    """
    workloads = chain.workloads
    for workload in reversed(workloads):
        if not asks_nothing(ignored(workload)):
            return workload
    return workloads[0] if workloads else None


PART_OF_GANG: Final[Code] = "PartOfGang"
CHILD = "child"  # the unit of kinds whose children are gangs of their own
_MAX_PARSED = 4096


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a pod: `workload` decides for it, and `key` is that of its gang (which may have no such group).

    Both are None for a pod without an owner or request, for one of a workload that is in no gang, and while `missing`,
    a link of its chain that must exist, is not known. Gangs of plain pods and single pods have a key and no workload
    here; `controller` is then the top-most controller above the pod. `request` is that of the workload, and `reason`
    the reason code why it is not managed: both are set by `OwnerResolver.resolve` alone.
    """

    workload: Workload | None = None
    key: GangKey | None = None
    missing: OwnerRef | None = None
    controller: OwnerRef | None = None
    request: PlacementRequest | None = None
    reason: Code | None = None


@dataclass(frozen=True, slots=True)
class Above:
    """The workload above another one that decides for it, and the reason code why that is not managed.

    The reason is None when it has a request, NOT_ASKING also when there is none above. `missing`: a link that must
    exist and is not known.
    """

    workload: Workload | None
    reason: Code | None
    missing: OwnerRef | None


@dataclass(frozen=True, slots=True)
class OwnerResolver:
    """Resolves owner chains in one set of records (`find`) under one policy.

    It remembers the parsed requests of `most_parsed` workloads, and of as many with errors.
    """

    find: Find
    policy: Policy
    topologies: Mapping[str, Topology]
    own_namespace: str = names.NAMESPACE
    most_parsed: int = _MAX_PARSED
    # uid -> record and its parsed request: the same for every pod of a gang. Those with errors are kept apart.
    _parsed: dict[str, tuple[Workload, PlacementRequest]] = field(default_factory=dict, repr=False, compare=False)
    _faulty: dict[str, tuple[Workload, PlacementRequest]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def registry(self) -> Registry:
        """The workload kinds under the policy."""
        return self.policy.registry

    def with_nodes_of(self, topologies: Mapping[str, Topology]) -> OwnerResolver:
        """Return the resolver over other topologies with the same levels: nodes have come, gone or moved.

        Valid requests mean the same there. An error may name other reasons why an object gives no topology.
        """
        # A copy, in one step: a thread that writes may read one more request meanwhile.
        return replace(self, topologies=topologies, _parsed=self._parsed.copy(), _faulty={})

    def owner_of(self, pod: Pod) -> Ownership:
        """Return the owner of a pod, by its controller references alone."""
        chain = self._chain(pod.namespace, pod.owner)
        if chain.missing is not None and self.watched(chain.missing):
            return Ownership(missing=chain.missing)
        workloads = chain.workloads
        if not workloads:
            return self._unowned(pod, chain)
        workload = workloads[0] if len(workloads) == 1 else gang_root(chain, ignored=self.ignored)
        assert workload is not None
        if workload.unit == CHILD and (below := workloads[: workloads.index(workload)]):
            workload = below[-1]
        workload = self.with_pod_sets(workload)
        if is_beside(pod, workload):
            return Ownership()
        return Ownership(workload, joined_key(workload, pod))

    def resolve(self, pod: Pod) -> Ownership:
        """Return the owner of a pod with its request; a gang of plain pods is read from this one pod."""
        found = self.owner_of(pod)
        workload, key = found.workload, found.key
        if workload is None and key is not None and not is_single(key):
            workload = plain_workload(key, [pod], dialects=self.policy.annotations.dialects, coming=True)
        if workload is None:
            return found
        request = self.own_request(workload)
        reason = self._reason(workload, request)
        return Ownership(workload, key, controller=found.controller, request=request, reason=reason)

    def above(self, workload: Workload) -> Above:
        """Return the workload above another one that decides for it."""
        chain = self._chain(workload.namespace, workload.owner)
        found = gang_root(chain, ignored=self.ignored)
        missing = chain.missing if chain.missing is not None and self.watched(chain.missing) else None
        return Above(found, NOT_ASKING if found is None else self.ignored(found), missing)

    def request_of(self, workload: Workload) -> PlacementRequest:
        """Return the request of a workload; `ignored` when one above has a request, is exempt, or is not known yet."""
        if workload.owner is None:
            return self.own_request(workload)
        above = self.above(workload)
        if above.missing is not None:
            return PlacementRequest(ignored=PART_OF_GANG)
        decides = above.workload
        if decides is not None and decides.unit == CHILD and leads_to(workload.namespace, workload.owner, decides):
            return self.own_request(workload)  # a gang of its own, with the request of the workload above
        if not asks_nothing(above.reason):
            return PlacementRequest(ignored=above.reason or PART_OF_GANG)
        return self.own_request(workload)

    def own_request(self, workload: Workload) -> PlacementRequest:
        """Return a workload's own request; none for a kind without an entry in the policy."""
        above = self._parent_of_gangs(workload)
        # With one it is never remembered, but perhaps from before that was known.
        if above is None and (known := self._known(workload)) is not None:
            return known
        group, _, version = workload.api_version.rpartition("/")
        if workload.handling != "pods" and self.registry.find(group, workload.kind, version) is None:
            return PlacementRequest(ignored=NOT_ASKING)
        reason = self._reason(above, self._read(above)) if above is not None else None
        if reason is not None and REASONS[reason].asks:
            return PlacementRequest(ignored=reason)
        whole = self.with_pod_sets(workload)
        if not whole.pod_sets:
            return self._without_pods(whole)
        return self._read(whole, remember=whole is workload and above is None)

    def ignored(self, workload: Workload) -> Code | None:
        """Return the reason code why a workload is not managed, without its parents; None when it has a request.

        A workload that is exempt without a request makes those below it exempt too.
        """
        return self._reason(workload, self.own_request(workload))

    def with_pod_sets(self, workload: Workload) -> Workload:
        """Return a workload as it is placed: with its child's pod sets, or with the request of the workload above."""
        if (above := self._parent_of_gangs(workload)) is not None and self._read(above).ignored is None:
            known = meanings(self.policy.annotations.dialects)
            asked = {key: value for key, value in above.annotations.items() if key in known}
            return replace(workload, annotations={**workload.annotations, **asked})
        if workload.handling != "through":
            return workload
        group, _, version = workload.api_version.rpartition("/")
        entry = self.registry.find(group, workload.kind, version)
        if entry is None or entry.through is None:
            return workload
        through = entry.through
        child = self.find((through.group, through.kind, workload.namespace, workload.name))
        if not isinstance(child, Workload) or not leads_to(child.namespace, child.owner, workload):
            return workload
        return replace(workload, pod_sets=child.pod_sets, minimum=child.minimum, beside=child.beside)

    def watched(self, owner: OwnerRef) -> bool:
        """True when the object that a reference names would be known if it existed."""
        return self.registry.watched(owner.api_version.rpartition("/")[0], owner.kind)

    def forget(self, uid: str) -> None:
        """Forget the request of a deleted workload, or of single pods that are gone, by the uid of their controller."""
        self._parsed.pop(uid, None)
        self._faulty.pop(uid, None)

    def _chain(self, namespace: str, owner: OwnerRef | None) -> Chain:
        """Return the chain above an object; up to a pod that made what is below it on its own account.

        So do the pods of most workloads: the executors of a `spark-submit` in a Job are no pods of the Job.
        """
        chain = chain_of(namespace, owner, find=self.find)
        if chain.missing is not None and self.watched(chain.missing):
            return chain
        for at, link in enumerate(chain.links):
            above = chain.links[at + 1 :]
            if isinstance(link, Pod) and above and not any(map(self._has_pods_of_pods, above)):
                return Chain(chain.links[: at + 1])
        return chain

    def _has_pods_of_pods(self, link: Link) -> bool:
        if not isinstance(link, Workload):
            return False
        entry = self.registry.find(link.key[0], link.kind, link.api_version.rpartition("/")[2])
        return entry is not None and any((ref.group, ref.kind) == ("", "Pod") for ref in entry.owners)

    def _known(self, workload: Workload) -> PlacementRequest | None:
        """Return the request of a workload that was read before; None if another one may be read from it now.

        Most versions of a workload are changes of its status: that it has started, or how many pods are ready. One that
        is owned is read in every version: whether its owner makes the request may have changed too.
        """
        known = self._parsed.get(workload.uid) or self._faulty.get(workload.uid)
        if known is None:
            return None
        before, request = known
        if before is not workload:
            if workload.owner is not None:
                return None
            if replace(before, resource_version=workload.resource_version, started=workload.started) != workload:
                return None
            self._remember(workload, request)
        return request

    def _remember(self, workload: Workload, request: PlacementRequest) -> None:
        into, out_of = (self._faulty, self._parsed) if request.errors else (self._parsed, self._faulty)
        if len(into) >= self.most_parsed and workload.uid not in into:
            into.clear()
        out_of.pop(workload.uid, None)
        into[workload.uid] = (workload, request)

    def _read(self, workload: Workload, *, remember: bool = True) -> PlacementRequest:
        if (known := self._known(workload)) is not None:
            return known
        found = parse_request(
            workload, policy=self.policy, topologies=self.topologies, own_namespace=self.own_namespace
        )
        if remember and workload.uid:
            self._remember(workload, found)
        return found

    def _reason(self, workload: Workload, request: PlacementRequest) -> Code | None:
        reason = request.ignored
        if asks_nothing(reason) and not mode_of(workload.namespace, self.policy).is_off:
            exemption = exemption_reason(workload, policy=self.policy, own_namespace=self.own_namespace)
            return exemption or reason
        return reason

    def _parent_of_gangs(self, workload: Workload) -> Workload | None:
        """Return the workload that controls this one and has children that are gangs of their own."""
        owner = workload.owner
        above = self.find(key_to(workload.namespace, owner)) if owner is not None else None
        if isinstance(above, Workload) and above.unit == CHILD and leads_to(workload.namespace, owner, above):
            return above
        return None

    def _unowned(self, pod: Pod, chain: Chain) -> Ownership:
        """Return the gang that a pod without a workload names, or its own if it has a request."""
        above = chain.missing
        if above is None and chain.links:
            above = reference_to(chain.links[-1])
        key = plain_key(pod, dialects=self.policy.annotations.dialects) or single_key(pod, above, policy=self.policy)
        return Ownership(key=key, controller=above)

    def _without_pods(self, workload: Workload) -> PlacementRequest:
        said = read_own_annotations(workload, dialects=self.policy.annotations.dialects)
        exemption = exemption_reason(workload, policy=self.policy, own_namespace=self.own_namespace)
        if not requests_something(said) or exemption is not None:
            return PlacementRequest(ignored=exemption if requests_something(said) else NOT_ASKING)
        message = "the object that carries its pods does not exist yet"
        error = FieldError("spec", "Invalid value", None, "WaitingForMembers", message)
        return PlacementRequest(errors=(error,))
