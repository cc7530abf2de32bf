"""A gang: its workload, request, Placement and member pods, joined for one reconcile. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, Final

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import RESOURCE_CLAIMS, Pod, Readiness, Shape
from engine.api.rank import index_of, value
from engine.api.text import plural, sanitize
from engine.api.workload import GangKey, PodSet, Workload
from engine.gang.key import key_of
from engine.gang.request import PlacementRequest
from engine.policy.model import Policy

_RANK_DIGITS = 7  # 100,000 pods at most
# Seconds. A container that crashes is ready for a moment after each restart, if its pod has no readiness probe: after a
# restart a pod counts as ready when it has been ready for this long.
STEADY_AFTER: Final = 30.0
# Why a container waits while nothing is wrong with it.
_STARTING: Final = ("", "ContainerCreating", "PodInitializing")
# Why a container waits that could be started on no other host either: a ConfigMap, a Secret or the image's name.
_ANYWHERE: Final = ("CreateContainerConfigError", "InvalidImageName")
_MAX_MESSAGE: Final = 200  # characters of a kubelet's message that are quoted: an image's name and what is wrong


@dataclass(frozen=True, slots=True)
class PodGroupState:
    """A pod group of several workloads, or with fewer pods than its minimum; plain pods of the group are one of them.

    `pods`: how many it has; `assigned`: how many of them have slots, have completed, or had slots until their workload
    ended; `started`: one of them has a node, or a workload has ended. `members` are the gangs of all its workloads,
    oldest first. `of_object`: a PodGroup object says the minimum, and how long the group waits (`timeout`, seconds);
    `problem`: why it does not, or why the gang does not count in the group.
    """

    name: str
    minimum: int
    pods: int
    assigned: int
    started: bool
    members: tuple[GangKey, ...]
    of_object: bool = False
    timeout: float | None = None
    problem: str = ""

    @property
    def common_minimum(self) -> bool:
        """True when its minimum is not that of one workload alone, so that members are planned as `of_group` says."""
        return len(self.members) > 1 or self.of_object

    @property
    def complete(self) -> bool:
        """True when the minimum of its pods exists or will be created."""
        return not self.problem and self.pods >= self.minimum

    @property
    def placed(self) -> bool:
        """True when the minimum of its pods has slots; further pods join them."""
        return not self.problem and self.assigned >= self.minimum

    @property
    def missing(self) -> int:
        """How many pods of its minimum have no slots; less than 0 when more than the minimum have some."""
        return self.minimum - self.assigned

    @property
    def incomplete_text(self) -> str:
        """The message of a group with too few pods, or without a minimum."""
        return self.problem or f"{self.pods:,} of {plural(self.minimum, 'pod')} of pod group {self.name} exist"

    @property
    def unplaced_text(self) -> str:
        """The message of a group in which too few pods have slots."""
        unplaced = f"{self.assigned:,} of {plural(self.minimum, 'pod')} of pod group {self.name} have slots"
        return self.problem or unplaced


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
    pod_group: PodGroupState | None = None  # None also for one whose only workload has enough pods
    jobs: tuple[Workload, ...] = ()  # those that are made for a workload of another kind

    @property
    def key(self) -> GangKey:
        """The gang's key in the cluster state, the capacity and the queue."""
        return key_of(self.workload, self.group)

    @property
    def status(self) -> Mapping[str, Any]:
        """The status in its Placement; empty without one."""
        return self.placement.status if self.placement is not None else {}

    @property
    def shares_group(self) -> bool:
        """True if it is one of several workloads of a pod group."""
        return self.pod_group is not None and len(self.pod_group.members) > 1

    @property
    def has_pod_constraints(self) -> bool:
        """True if a template says where its pods may be beside other pods: (anti-)affinity, topology spread."""
        return any(one.template.constraints is not None for one in self.workload.pod_sets)


def suspended_by_user(workload: Workload) -> bool:
    """True when the workload is suspended, and not by us."""
    return workload.suspended and workload.annotations.get(names.HELD_BY) != names.HELD_BY_SUSPEND


def held_by_us(workload: Workload) -> bool:
    """True when the workload is suspended by us."""
    return workload.suspended and workload.annotations.get(names.HELD_BY) == names.HELD_BY_SUSPEND


def ended(workload: Workload) -> bool:
    """True when a workload has ended or is being deleted: it reserves nothing."""
    return workload.finished or workload.deleting


def over(workload: Workload) -> bool:
    """True when a workload is not to be placed: it has ended, is being deleted, or its user suspended it."""
    return ended(workload) or suspended_by_user(workload)


def ours(workload: Workload) -> bool:
    """True when Topogate suspended the workload, or its template has our gate."""
    return held_by_us(workload) or any(names.GATE in pod_set.template.gates for pod_set in workload.pod_sets)


# Why a workload that `ends_suspended` is not suspended.
ENDS_SUSPENDED: Final = "a pod has succeeded, so it would count as complete"


def can_suspend(workload: Workload) -> bool:
    """True when we may suspend the workload: its kind supports it, it goes on later, and only a CronJob may own it."""
    resumable = workload.suspendable and not workload.ends_suspended
    return resumable and (workload.owner is None or workload.owner.kind == "CronJob")


def pod_set_of(pod: Pod, workload: Workload) -> PodSet | None:
    """Return the first pod set with a selector that matches the pod's labels; None when none matches.

    The labels are those that the kind's own controller sets. Ours prove nothing; they count only where it sets
    none.
    """
    return pod_set_with(pod.spec.labels, workload)


def pod_set_with(labels: Mapping[str, str], workload: Workload) -> PodSet | None:
    """Return the first pod set with a selector that matches labels of pods; None when none matches.

    A later one that has all labels of an earlier one and more goes first, as that of a RayCluster in an AppWrapper does
    after a RayJob, and one without a selector last, after pods that are in no gang. Of several with the same one, as of
    Pods or RayJobs in an AppWrapper, our label in their templates decides; who forges it gets a slot of the same gang.
    """
    found = [pod_set for pod_set in workload.pod_sets if _selects(pod_set.selector, labels)]
    if not found or (workload.beside and not any(one.selector for one in found) and _selected_beside(labels, workload)):
        return None
    if len(found) == 1:
        return found[0]
    first = found[0]
    for one in found[1:]:
        if set(one.selector) > set(first.selector):
            first = one
    marked = labels.get(names.POD_SET)
    return next((one for one in found if one.name == marked and one.selector == first.selector), first)


def is_beside(pod: Pod, workload: Workload) -> bool:
    """Return True for a pod of a workload that belongs to no gang, such as the submitter of a RayJob."""
    return _selected_beside(pod.spec.labels, workload) and pod_set_of(pod, workload) is None


def _selected_beside(labels: Mapping[str, str], workload: Workload) -> bool:
    return any(_selects(selector, labels) for selector in workload.beside)


def _selects(selector: Iterable[tuple[str, str | None]], labels: Mapping[str, str]) -> bool:
    return all(key in labels and wanted in (None, labels[key]) for key, wanted in selector)


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
    """Return the pod's rank in its pod set, by its labels; None without ranks and for an impossible index.

    A replica of several pods may have got the slots of another one that was removed: then their ranks are its ranks.
    """
    if not pod_set.ranked:
        return None
    if pod_set.rank is not None:
        given = index_of(pod.spec.annotations.get(names.RANK)) if names.GATE not in pod.spec.gates else None
        if given is not None and pod_set.replica is not None:
            return _possible(given, pod_set)
        return rank_with(pod.spec.labels, pod_set)
    text = completion_index(pod)
    return _index(text) if len(text) <= _RANK_DIGITS else None


def rank_with(labels: Mapping[str, str], pod_set: PodSet) -> int | None:
    """Return the rank of a pod with these labels, for a pod set with a rule for it; None for an impossible index."""
    rank = value(pod_set.rank, labels) if pod_set.rank is not None else None
    return _possible(rank, pod_set) if isinstance(rank, int) else None


def _possible(rank: int, pod_set: PodSet) -> int | None:
    return rank if 0 <= rank < max(pod_set.slots, pod_set.total) else None


def completion_index(pod: Pod) -> str:
    """Return the index that the Job controller gave to a pod, as it is written there; "" without one."""
    return pod.spec.labels.get(names.COMPLETION_INDEX) or pod.spec.annotations.get(names.COMPLETION_INDEX, "")


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


def on_its_pin(pod: Pod) -> bool:
    """True for a pod that is bound to the host that it is pinned to: nobody else has put it there."""
    return bool(pod.spec.node_name) and pod.spec.node_name == pinned_host(pod.spec.shape)


def released(pod: Pod) -> bool:
    """True when a pod that we manage has no gates left and can be bound at any moment."""
    return names.MANAGED in pod.spec.labels and not (
        pod.finished or pod.deleting or pod.spec.node_name or pod.nominated_node or pod.spec.gates
    )


def on_its_way(pod: Pod) -> bool:
    """True for a released pod that the scheduler has not refused.

    Anybody may write our marks on a pod that is never bound, so a refused one counts nowhere.
    """
    return released(pod) and not pod.unschedulable


def may_land(pod: Pod) -> bool:
    """True for a pod on its way that the scheduler looks at.

    It never looks at one of a PodGroup of its own, or with a resource claim, that does not exist, and refuses neither.
    """
    return on_its_way(pod) and not pod.spec.has_scheduling_group and RESOURCE_CLAIMS not in pod.spec.unmodelled


def has_room(pod: Pod) -> bool:
    """True when the host of a pod counts it: the pod is bound, nominated, or on its way."""
    return bool(pod.spec.node_name or pod.nominated_node) or on_its_way(pod)


def ungated_pods(workload: Workload, pods: Iterable[Pod]) -> list[Pod]:
    """Return live pods that neither carry our gate nor are pinned: someone else removed the gate."""
    return [
        pod
        for pod_set, members in by_pod_set(workload, pods)
        if names.GATE in pod_set.template.gates
        for pod in members
        if pod.live and names.GATE not in pod.spec.gates and pinned_host(pod.spec.shape) is None
    ]


def not_ready(pods: Iterable[Pod], wall: float) -> list[Pod]:
    """Return the live bound pods that are not ready, those with a fault first; `wall` is the time of day."""
    found = [
        pod
        for pod in pods
        if (one := pod.readiness) is not None
        and pod.live
        and pod.spec.node_name
        and not (one.ready and wall - one.since >= STEADY_AFTER)
    ]
    return sorted(found, key=lambda pod: (not at_fault(pod), pod.created, pod.name)) if len(found) > 1 else found


def at_fault(pod: Pod) -> bool:
    """True when the containers of a pod have a fault (image, crash, configuration), and are not merely slow."""
    one = pod.readiness
    return one is not None and bool(one.restarts or one.ended or one.waiting not in _STARTING)


def fails_anywhere(pod: Pod) -> bool:
    """True when the containers of a pod could be started on no other host either."""
    return pod.readiness is not None and pod.readiness.waiting in _ANYWHERE


def why_not_ready(pod: Pod) -> str:
    """Return why a bound pod is not ready, in the kubelet's words, shortened and escaped."""
    one = pod.readiness or Readiness(ready=False, since=0.0, restarts=0)
    restarts = f", {plural(one.restarts, 'restart')}" if one.restarts else ""
    if one.ready:
        return f"ready again for a moment only{restarts}"
    if not one.container:
        return "its containers have not been started"
    container = f"container {sanitize(one.container)}"
    if one.ended:
        return f"{container}: {sanitize(one.waiting or 'ended')} ({sanitize(one.ended)}{restarts})"
    if not one.waiting:
        return f"{container} runs, but is not ready{restarts}"
    said = f": {sanitize(one.message, _MAX_MESSAGE)}" if one.message else ""
    return f"{container}: {sanitize(one.waiting)}{said}"


def enough_ready(gang: Gang, unready: Iterable[Pod]) -> bool:
    """True when so few of the bound pods are not ready that the rest makes the gang.

    All have to be ready but those beyond the minimums of a gang that has some; in a pod group, but as many as it has
    slots beyond its own minimum.
    """
    placement = gang.placement
    if placement is None or placement.assignment is None:
        return False
    if (group := gang.pod_group) is not None:
        return sum(1 for _ in unready) <= max(0, -group.missing)
    left = 0
    slots = 0
    asks = {ask.name: ask for ask in placement.pod_sets}
    for pod_set, pods in by_pod_set(gang.workload, unready):
        count = placement.assignment.plan_of(pod_set.name).count
        least = asks[pod_set.name].min_available if pod_set.name in asks else count
        if pods and len(pods) > max(0, count - least):
            return False
        left += len(pods)
        slots += count
    whole = placement.gang.min_available if placement.gang is not None else None
    return left <= max(0, slots - whole) if whole is not None else True


def start_timeout(request: PlacementRequest, policy: Policy) -> float:
    """Return the seconds that the pods of a gang may be bound but not ready at its start; infinite: any time."""
    own = policy.timeouts.start if request.start_timeout is None else request.start_timeout
    return inf if own is None else own


def recover_timeout(request: PlacementRequest, policy: Policy) -> float:
    """Return the seconds that a gang which ran may be incomplete before it is restarted; infinite: any time."""
    return policy.timeouts.recover if request.recover_timeout is None else request.recover_timeout


def fingerprint(gang: Gang, *, suspends: bool = False) -> str:
    """Return what changes when the user of a held gang changes it: its spec, its request, or resumes it.

    `suspends`: as it will be when we have suspended it, which is a change of its spec too.
    """
    request = gang.request
    asked = (request.pod_sets, request.gang, request.topology, request.relax_after)
    waits = (request.schedule_timeout, request.start_timeout, request.recover_timeout)
    digest = hashlib.sha256(repr((asked, waits)).encode("utf-8", "backslashreplace")).hexdigest()
    generation = gang.workload.generation + (1 if suspends and not gang.workload.suspended else 0)
    return f"{generation}-{digest[:16]}"
