"""A gang: its workload, request, Placement and member pods, joined for one reconcile. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod, Shape
from engine.api.rank import value
from engine.api.workload import GangKey, PodSet, Workload
from engine.gang.key import key_of
from engine.gang.request import PlacementRequest

_RANK_DIGITS = 7  # 100,000 pods at most


@dataclass(frozen=True, slots=True)
class Gang:
    """One gang: its workload, request, Placement and pods; `shapes`: what a pod of each pod set needs, by name."""

    workload: Workload
    request: PlacementRequest
    placement: Placement | None
    pods: tuple[Pod, ...]
    shapes: Mapping[str, Shape]
    group: str | None = None  # the index of the replica, for kinds with a gang per replica
    later: tuple[Pod, ...] = ()  # held pods that are planned after the others

    @property
    def key(self) -> GangKey:
        """The gang's key in the cluster state, the capacity and the queue."""
        return key_of(self.workload, self.group)


def suspended_by_user(workload: Workload) -> bool:
    """True when the workload is suspended, and not by us."""
    return workload.suspended and workload.annotations.get(names.HELD_BY) != names.HELD_BY_SUSPEND


def held_by_us(workload: Workload) -> bool:
    """True when the workload is suspended by us."""
    return workload.suspended and workload.annotations.get(names.HELD_BY) == names.HELD_BY_SUSPEND


def over(workload: Workload) -> bool:
    """True when a workload reserves nothing: it has ended, is being deleted, or its user suspended it."""
    return workload.finished or workload.deleting or suspended_by_user(workload)


def ours(workload: Workload) -> bool:
    """True when we hold the workload, or its template carries our gate: its pods wait for us."""
    return held_by_us(workload) or any(names.GATE in pod_set.template.gates for pod_set in workload.pod_sets)


def can_suspend(workload: Workload) -> bool:
    """True when we may suspend the workload: its kind supports it, and it has no owner but a CronJob."""
    return workload.suspendable and (workload.owner is None or workload.owner.kind == "CronJob")


def pod_set_of(pod: Pod, workload: Workload) -> PodSet | None:
    """Return the first pod set with a selector that matches the pod's labels; None when none matches.

    The labels are those that the kind's own controller sets; ours prove nothing.
    """
    labels = pod.spec.labels
    for pod_set in workload.pod_sets:
        if all(key in labels and wanted in (None, labels[key]) for key, wanted in pod_set.selector):
            return pod_set
    return None


def by_pod_set(workload: Workload, pods: Iterable[Pod]) -> list[tuple[PodSet, list[Pod]]]:
    """Return every pod set with its pods, in order; pods that match no pod set are left out."""
    if len(workload.pod_sets) == 1 and not workload.pod_sets[0].selector:
        return [(workload.pod_sets[0], list(pods))]
    found: dict[str, list[Pod]] = {pod_set.name: [] for pod_set in workload.pod_sets}
    for pod in pods:
        if (pod_set := pod_set_of(pod, workload)) is not None:
            found[pod_set.name].append(pod)
    return [(pod_set, found[pod_set.name]) for pod_set in workload.pod_sets]


def rank_of(pod: Pod, pod_set: PodSet) -> int | None:
    """Return the pod's rank in its pod set, by its labels; None without ranks and for an impossible index."""
    if not pod_set.ranked:
        return None
    if pod_set.rank is not None:
        rank = value(pod_set.rank, pod.spec.labels)
        return rank if isinstance(rank, int) and 0 <= rank < max(pod_set.slots, pod_set.total) else None
    text = pod.spec.labels.get(names.COMPLETION_INDEX) or pod.spec.annotations.get(names.COMPLETION_INDEX, "")
    return _index(text) if len(text) <= _RANK_DIGITS else None


@lru_cache(maxsize=16_384)  # a review of one pod asks for the ranks of all pods of its gang
def _index(text: str) -> int | None:
    """Parse an index as the Job controller writes it, without leading zeros; None for any other text."""
    written = text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
    return int(text) if written else None


def rank_is_slot(pod_set: PodSet) -> bool:
    """True when each rank runs once, so that ranks and slots are the same."""
    return pod_set.ranked and pod_set.total <= pod_set.slots


def pinned_host(shape: Shape) -> str | None:
    """Return the one host that required node affinity on metadata.name allows; None unless it is exactly one."""
    hosts: set[str] = set()
    for term in shape.affinity or ():
        named = [field.values for field in term.fields if field.key == "metadata.name" and field.operator == "In"]
        if not named or len(named[0]) != 1:
            return None
        hosts.add(named[0][0])
    return hosts.pop() if len(hosts) == 1 else None


def host_of(pod: Pod) -> str | None:
    """Return the host that a pod is bound to, or is pinned to without our gate; None when neither."""
    if pod.spec.node_name:
        return pod.spec.node_name
    return None if names.GATE in pod.spec.gates else pinned_host(pod.spec.shape)


def released(pod: Pod) -> bool:
    """True when a pod that we manage has no gates left and can be bound at any moment."""
    return names.MANAGED in pod.spec.labels and not (
        pod.finished or pod.deleting or pod.spec.node_name or pod.nominated_node or pod.spec.gates
    )


def ungated_pods(workload: Workload, pods: Iterable[Pod]) -> list[Pod]:
    """Return live pods that neither carry our gate nor are pinned: someone else removed the gate."""
    return [
        pod
        for pod_set, members in by_pod_set(workload, pods)
        if names.GATE in pod_set.template.gates
        for pod in members
        if not (pod.finished or pod.deleting)
        and names.GATE not in pod.spec.gates
        and pinned_host(pod.spec.shape) is None
    ]
