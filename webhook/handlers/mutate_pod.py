"""`/mutate` for pods: a member of a placed gang is bound to its slot, any other member is held.

The rules: docs/concepts/admission.md. The fallback is always to hold: the leader releases the pod later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from engine.api import names
from engine.api.objects import Node
from engine.api.placement import Placement
from engine.api.pod import Pod, Shape
from engine.devices.allocation import declared_uses, devices_by_rank
from engine.gang.gang import over, rank_is_slot, rank_of
from engine.gang.key import name_of
from engine.gang.pin import PlacedPod, placed_pod, unpinned
from engine.gang.plain_pods import mark_of
from engine.gang.slots import left_domain, slot_of_rank
from engine.policy.model import Policy
from engine.resources.shape import NODE_AFFINITY, NODE_SELECTOR, covers, exclusion
from webhook.admission.objects import decoded_pod, pod_of
from webhook.admission.patch import Edits, Path
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review, allowed, patched
from webhook.rules.devices import translate_in
from webhook.rules.gating import (
    drop_all,
    drop_annotations,
    drop_labels,
    label_gang,
    mark,
    remove_gate,
    requests_of_pod_labels,
    show_devices,
)
from webhook.rules.membership import (
    Member,
    Membership,
    NotManaged,
    Undetermined,
    looks_managed,
    membership,
    pod_exemption,
)

TERMS: Final[Path] = (
    "spec",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)
_DEVICES: Final[Path] = ("metadata", "annotations", names.DEVICE_ALLOCATED)
_MAX_REVISION_DIGITS: Final = 18


def mutate_pod(review: Review, view: Reader, policy: Policy, deadline: float) -> Response:
    """Answer the CREATE of a pod."""
    pod, document = pod_of(review, policy)
    if pod.mirror:
        return allowed()
    edits = Edits(document)
    if pod.spec.node_name:
        drop_all(edits)  # a marked pod is not sent to `/validate`, which refuses devices of the user's choice
        return patched(edits.operations, document=edits.document)
    if pod_exemption(pod, view, policy) is None and (asked := requests_of_pod_labels(pod, policy)):
        # Written down, so that our own labels beside those of the user do not hide who asked.
        pod = replace(pod, spec=replace(pod.spec, annotations={**pod.spec.annotations, **asked}))
        for key, value in asked.items():
            edits.put(("metadata", "annotations", key), value)
    match _membership(pod, view, policy, deadline):
        case NotManaged():
            drop_all(edits)
            if pod_exemption(pod, view, policy) is None:
                translate_in(edits, (), managed=False, view=view, policy=policy)
        case Undetermined(mark=mark):
            if mark is not None:
                translate_in(edits, (), managed=True, view=view, policy=policy)
                if edits.operations:
                    mark = mark_of(decoded_pod(edits.document, policy))  # as in a second call, which gets the result
            pod_set = mark or pod.spec.labels.get(names.POD_SET, names.MAIN)
            _hold(edits, pod_set=pod_set, in_gang=False)
            if mark is not None:
                show_devices(edits, policy=policy)
        case Member() as member:
            _label(edits, pod, member, policy)
            placed = _pod_on_slot(pod, member, view, policy, deadline)
            if placed is None:
                _unbind(edits, pod, member, view)
                _hold(edits, pod_set=member.pod_set.name, in_gang=True)
            else:
                _bind(edits, pod, placed)
            if member.workload.handling == "pods":  # for any other the template was translated
                translate_in(edits, (), managed=True, view=view, policy=policy)
            show_devices(edits, policy=policy)
    return patched(edits.operations, document=edits.document)


def _membership(pod: Pod, view: Reader, policy: Policy, deadline: float) -> Membership:
    """Return the membership of a pod; for some pods wait for an owner as new as the pod.

    For those of a placed gang's template, and those that would be held for no other reason than their unknown owner.
    """
    found = membership(pod, view, policy)
    missing = found.missing if isinstance(found, Undetermined) else None
    waits = names.REVISION in pod.spec.annotations or not looks_managed(pod, policy)
    if missing is None or not waits or not view.await_owner(pod.namespace, missing, deadline):
        return found
    return membership(pod, view, policy)


def _label(edits: Edits, pod: Pod, member: Member, policy: Policy) -> None:
    workload = member.workload
    gang = name_of(workload, member.group)
    edits.put(("metadata", "labels", names.GANG), gang)
    label_gang(edits, gang=gang, minimum=member.minimum, policy=policy)


def _pod_on_slot(pod: Pod, member: Member, view: Reader, policy: Policy, deadline: float) -> PlacedPod | None:
    """Return the pod bound to its slot; None if anything about it differs from the plan."""
    workload, pod_set = member.workload, member.pod_set
    rank = rank_of(pod, pod_set)
    if rank is None or any(gate != names.GATE for gate in pod.spec.gates):
        return None
    if not rank_is_slot(pod_set):
        return None  # any free slot will do, but only the leader knows which ones it is assigning now
    # The slots of these were released: nothing is reserved for a pod that is created nevertheless.
    if over(workload) or any(first <= rank <= last for first, last in pod_set.finished_ranks):
        return None
    placement = _placement(pod, member, view, deadline)
    if placement is None or placement.assignment is None:
        return None
    if member.grouped and pod.spec.annotations.get(names.REVISION) != str(placement.assignment.revision):
        # Its Placement may be written without those of its pod group; the template has the revision after all of them.
        return None
    plan = placement.assignment.plan_of(pod_set.name)
    slot = slot_of_rank(plan, rank)
    node = view.node(slot.host) if slot is not None else None
    planned, topology = view.planned_shape(placement, pod_set), view.topology_of(placement)
    if slot is None or node is None or planned is None or topology is None:
        return None
    shape = pod.spec.shape
    if not covers(planned, shape) or exclusion(shape, node) is not None:
        return None
    own = _own_shape(pod, slot.host, planned, view)
    if own != shape and _bound_to(pod, placement) is None:
        return None  # its rules could not be told from our pin, should a later call in this request undo that
    if _excludes_any(own, planned, filter(None, (view.node(one.host) for one in plan.slots))):
        return None  # the leader plans anew with what admission adds to the pods, before any of them starts
    if (
        left_domain(placement, slot, topology, pod_set=pod_set.name)
        or view.live_claimants(placement, pod_set, rank) > 0
    ):
        return None
    if view.slot_lost(placement, slot.host, planned.requests):
        return None  # released now, it would wait for that capacity; the leader may have another host for it
    devices = None
    if uses := declared_uses(devices_by_rank(replace(plan, slots=(slot,))).get(rank, ()), policy.device_kinds):
        devices = view.allocation(placement, slot.host, uses)
        if devices is None:
            return None  # the leader chooses others
    return placed_pod(
        pod,
        slot,
        placement=placement,
        pod_set=pod_set.name,
        rank=rank,
        pin_labels=topology.pin_labels(slot.host),
        devices=devices,
        minors=policy.gpu.env == "minor",
    )


def _excludes_any(own: Shape, planned: Shape, hosts: Iterable[Node]) -> bool:
    """Return True if a pod has rules of its own that its template lacks, and they exclude one of the hosts of the plan.

    Admission adds them to the other pods of the pod set too.
    """
    if (own.node_selector, own.affinity) == (planned.node_selector, planned.affinity):
        return False
    return any(exclusion(own, node) in (NODE_SELECTOR, NODE_AFFINITY) for node in hosts)


def _bound_to(pod: Pod, placement: Placement | None) -> str | None:
    """Return the host that an earlier call in this request has pinned a pod of a gang to; None if none has.

    Only a host of the gang's slots: whoever forges the annotation of another one loses no rule by it that others have
    added.
    """
    path = pod.spec.annotations.get(names.DOMAIN_PATH)
    if path is None or names.GATE in pod.spec.gates or placement is None or placement.assignment is None:
        return None
    host = path.rpartition("/")[2]
    return host if any(slot.host == host for plan in placement.assignment.pod_sets for slot in plan.slots) else None


def _own_shape(pod: Pod, host: str, planned: Shape, view: Reader) -> Shape:
    """Return the shape of a pod without a pin to the host, under whatever topology it was pinned."""
    labels = {key: value for one in view.topologies.values() for key, value in one.pin_labels(host).items()}
    return unpinned(pod.spec.shape, host, pin_labels=labels, planned=planned)


def _placement(pod: Pod, member: Member, view: Reader, deadline: float) -> Placement | None:
    """Return the gang's Placement, at least of the revision in the pod's template."""
    workload = member.workload
    text = pod.spec.annotations.get(names.REVISION, "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_REVISION_DIGITS):
        return None
    placement = view.placement_of(member.key)
    if placement is None or placement.assignment is None or placement.assignment.revision < int(text):
        placement = view.await_revision(pod.namespace, member.key, int(text), deadline) if int(text) else None
    if placement is None or placement.deleting or placement.namespace != workload.namespace:
        return None
    return placement


def _bind(edits: Edits, pod: Pod, placed: PlacedPod) -> None:
    for key, value in placed.annotations.items():
        if value is None:
            edits.drop(("metadata", "annotations", key))
        else:
            edits.put(("metadata", "annotations", key), value)
    for key, label in placed.labels.items():
        edits.put(("metadata", "labels", key), label)
    if pod.spec.shape.affinity is None:
        edits.put(TERMS, list(placed.terms))
    else:
        for index, term in enumerate(placed.terms):
            if "matchFields" in term:
                edits.put((*TERMS, index, "matchFields"), term["matchFields"])
    for key, value in placed.selector.items():
        edits.put(("spec", "nodeSelector", key), value)
    remove_gate(edits)


def _hold(edits: Edits, *, pod_set: str, in_gang: bool) -> None:
    mark(edits, pod_set=pod_set)
    edits.drop(_DEVICES)
    drop_annotations(edits, keep=(names.PLACEMENT, names.REVISION))
    drop_labels(edits, keep=(names.MANAGED, names.POD_SET, names.GANG) if in_gang else (names.MANAGED, names.POD_SET))


def _unbind(edits: Edits, pod: Pod, member: Member, view: Reader) -> None:
    """Undo a binding made earlier in this request, before the pod grew; the pod's own rules stay."""
    placement = view.placement_of(member.key)
    host = _bound_to(pod, placement)
    if placement is None or host is None:
        return
    planned = view.planned_shape(placement, member.pod_set) or member.pod_set.template.shape
    shape, own = pod.spec.shape, _own_shape(pod, host, planned, view)
    pin = {"key": "metadata.name", "operator": "In", "values": [host]}
    if own.affinity is None and shape.affinity is not None:
        edits.drop(TERMS[:-1])
    for index in range(len(own.affinity or ())):
        edits.drop_items((*TERMS, index, "matchFields"), lambda field: field == pin)
    for pair in shape.node_selector:
        if pair not in own.node_selector:
            edits.drop(("spec", "nodeSelector", pair[0]))
