"""Finds the gang of a pod under admission by its owner references, and a workload's relation to its parent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.api import names
from engine.api.field import FieldError
from engine.api.placement import PodSetRequest
from engine.api.pod import OwnerRef, Pod
from engine.api.reasons import REASONS, Code, asks_nothing
from engine.api.workload import GangKey, PodSet, Workload
from engine.gang import plain_pods
from engine.gang.annotations import read_own_annotations, requests_something
from engine.gang.exemption import is_exempt, kueue_has, template_exemption
from engine.gang.gang import pod_set_of
from engine.gang.key import has_group, parts
from engine.gang.ownership import OwnerResolver
from engine.gang.request import PlacementRequest
from engine.policy.model import Policy
from webhook.admission.reader import Reader


@dataclass(frozen=True, slots=True)
class NotManaged:
    """A pod that is not managed: nothing requires it to be held; `reason`: its workload's reason code, if any."""

    reason: Code = "NoTopologyRequested"


@dataclass(frozen=True, slots=True)
class Undetermined:
    """A pod that may be ours: its owners are not in the cache yet (`missing`), or its request is invalid.

    A pod that is placed alone, with its `mark`, is certainly ours; its slot depends on the pods beside it, which only
    the leader knows.
    """

    missing: OwnerRef | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of `pod_set` of a gang of `workload`, with the request `ask`; `key` and `group` as in `engine.gang.key`.

    `minimum`: how many pods of the gang exist at least before any of them can run. `grouped`: its request names a pod
    group.
    """

    workload: Workload
    pod_set: PodSet
    ask: PodSetRequest
    key: GangKey
    group: str | None = None
    minimum: int = 1
    grouped: bool = False


Membership = NotManaged | Undetermined | Member


def membership(pod: Pod, view: Reader, policy: Policy) -> Membership:
    """Return the membership of a pod by its controller references; labels prove nothing.

    References are followed by group, kind, name and uid, in the pod's own namespace.
    """
    if is_exempt(pod.namespace, policy=policy, own_namespace=view.own_namespace):
        return NotManaged("ExemptNamespace")
    owner = pod.owner
    if pod.mirror or (owner is not None and owner.kind == "DaemonSet"):
        return NotManaged("DaemonSetOrStatic")
    claim = view.owners(policy).resolve(pod)
    if claim.missing is not None:
        if kueue_has(pod.spec):
            return NotManaged("ManagedByKueue")
        exempt = template_exemption(pod.spec, policy=policy)
        # Owners are made before their pods and may be seen after them. A Job's pods are held until then.
        held = is_marked(pod) or (exempt is None and (has_request(pod, policy) or is_job(claim.missing)))
        return Undetermined(claim.missing) if held else NotManaged(exempt or "UnsupportedKind")
    workload, request, key = claim.workload, claim.request, claim.key
    if key is not None and workload is not None and request is not None:
        return NotManaged(claim.reason) if claim.reason is not None else _of_workload(pod, workload, request, key)
    if key is not None:
        return Undetermined(mark=plain_pods.mark_of(pod))
    return NotManaged("UnsupportedKind")


def _of_workload(pod: Pod, workload: Workload, request: PlacementRequest, key: GangKey) -> Membership:
    pod_set = pod_set_of(pod, workload)
    group = None if workload.handling == "pods" else parts(key)[1]
    ask = next((one for one in request.pod_sets if pod_set is not None and one.name == pod_set.name), None)
    if pod_set is None or ask is None or not has_group(workload, group):
        return Undetermined()
    return Member(
        workload, pod_set, ask, key, group, _minimum(workload, request), grouped=request.pod_group is not None
    )


def _minimum(workload: Workload, request: PlacementRequest) -> int:
    """Return how many pods a scheduler may wait for: one if they start in order, because the next is created later."""
    if any(pod_set.ordered for pod_set in workload.pod_sets):
        return 1
    gang = request.gang
    if gang is not None and gang.min_available is not None:
        return gang.min_available
    return sum(ask.min_available for ask in request.pod_sets)


@dataclass(frozen=True, slots=True)
class Alone:
    """A pod with a request and without a workload: its plain gang (`gang`), or itself, represented as a workload.

    `errors` are all errors of its request.
    """

    key: GangKey
    workload: Workload
    request: PlacementRequest
    errors: tuple[FieldError, ...]
    gang: bool


def alone(pod: Pod, view: Reader, policy: Policy) -> Alone | None:
    """Return the gang of a pod with a request and without a workload; None for any other pod."""
    owners, dialects = view.owners(policy), policy.annotations.dialects
    claim = owners.owner_of(pod)
    if claim.workload is not None or claim.key is None:
        return None
    if plain_pods.is_single(claim.key):
        workload = plain_pods.single_workload(claim.controller, [pod], dialects=dialects)
        faults = tuple(plain_pods.errors(pod, dialects=dialects))
    else:
        workload = plain_pods.plain_workload(claim.key, [pod], dialects=dialects, coming=True)
        found = plain_pods.faults(workload, [pod], placed=False, dialects=dialects)
        faults = tuple(one for one in found if not REASONS[one.reason].waits)
    request = owners.own_request(workload)
    gang = not plain_pods.is_single(claim.key)
    return Alone(claim.key, workload, request, (*request.errors, *faults), gang)


def pod_exemption(pod: Pod, view: Reader, policy: Policy) -> Code | None:
    """Return the reason code for the exemption of a pod from any request; None if it is not exempt."""
    if pod.mirror or (pod.owner is not None and pod.owner.kind == "DaemonSet"):
        return "DaemonSetOrStatic"
    if is_exempt(pod.namespace, policy=policy, own_namespace=view.own_namespace):
        return "ExemptNamespace"
    return template_exemption(pod.spec, policy=policy)


def is_job(owner: OwnerRef) -> bool:
    """Return True if the owner is a Job, in any version of its group."""
    return (owner.api_version.rpartition("/")[0], owner.kind) == ("batch", "Job")


def looks_managed(pod: Pod, policy: Policy) -> bool:
    """Return True for a pod with our label or gate, or with a request of its own."""
    return is_marked(pod) or has_request(pod, policy)


def is_marked(pod: Pod) -> bool:
    """Return True for a pod with our label or gate."""
    return names.MANAGED in pod.spec.labels or names.GATE in pod.spec.gates


def has_request(pod: Pod, policy: Policy) -> bool:
    """Return True if a pod's own annotations request something."""
    return requests_something(read_own_annotations(pod, dialects=policy.annotations.dialects))


ParentRelation = Literal["root", "child", "exempt", "unknown"]


def parent_relation(workload: Workload, view: Reader, policy: Policy) -> ParentRelation:
    """Return whether a workload belongs to the gang of its parent.

    `child`: the parent has a request; `exempt`: another system places the parent; `unknown`: the parent is not in the
    caches yet; `root`: none of these.

    An unknown parent of a kind that is placed through the workload counts as requesting. Controller references lead to
    it (`engine.gang.ownership`); labels prove nothing.
    """
    owners = view.owners(policy)
    above = owners.above(workload)
    if above.missing is not None:
        # The templates of a workload that is placed through another one carry no marks yet: unmarked its pods would
        # never be seen again, marked they are freed if there is no request.
        return "child" if _through(above.missing, owners) else "unknown"
    if above.reason is None:
        return "child"
    return "root" if asks_nothing(above.reason) else "exempt"


def _through(owner: OwnerRef, owners: OwnerResolver) -> bool:
    entries = owners.registry.of_kind(owner.api_version.rpartition("/")[0], owner.kind)
    return any(entry.handling == "through" for entry in entries)


def whole(workload: Workload, view: Reader, policy: Policy) -> Workload:
    """Return the workload with the pod sets of the one that it is placed through; any other unchanged."""
    return view.owners(policy).with_pod_sets(workload)
