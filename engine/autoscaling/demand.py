"""Which gangs wait for nodes that an autoscaler could start, and for how many pods."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from engine.api import names
from engine.api.objects import MAX_REQUEST_POD_SETS
from engine.api.reasons import Why, reason_of
from engine.api.workload import PodSet
from engine.gang.gang import Gang, by_pod_set
from engine.gang.request import PlacementRequest
from engine.gang.slots import request_to_place

_HASH_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class PodDemand:
    """Pods of one pod set that have no node; `index`: of the pod set in the gang.

    `together`: they need one domain, or parts of them do.
    """

    index: int
    pod_set: PodSet
    count: int
    together: bool = False


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """The pods of a gang for which nodes are requested, with the labels of the topology's nodes.

    `digest` changes with everything that a request says about them.
    """

    pods: tuple[PodDemand, ...]
    node_selector: tuple[tuple[str, str], ...]
    digest: str

    @property
    def count(self) -> int:
        """The number of pods."""
        return sum(one.count for one in self.pods)


def waits_for_nodes(reason: Why) -> bool:
    """Return True if new nodes can end a wait with this reason.

    Not: the order of the queue, quota and other limits of the namespace, labels that nodes lack, hosts that are kept
    for others or beside gangs that keep apart, of which an autoscaler knows nothing.
    """
    known = reason_of(reason)
    return known is not None and known.waits and known.by_new_nodes


def demand_of(gang: Gang, node_selector: Mapping[str, str]) -> NodeDemand | str:
    """Return the pods of a gang that need nodes to start, or why none can be requested for it.

    As many as it needs to start: the others join it when there is room.
    """
    templates = [pod_set.template.annotations for pod_set in gang.workload.pod_sets]
    if any(key in annotations for annotations in templates for key in (names.CONSUME, names.OLD_CONSUME)):
        return "its pods use a ProvisioningRequest of their own"
    bound = {
        pod_set.name: sum(1 for pod in pods if pod.live and pod.spec.node_name)
        for pod_set, pods in by_pod_set(gang.workload, gang.pods)
    }
    sets = {pod_set.name: (index, pod_set) for index, pod_set in enumerate(gang.workload.pod_sets)}
    found, together = [], _together(gang.request)
    for name, wanted in _first_counts(gang).items():
        if name not in sets:
            continue
        index, pod_set = sets[name]
        if (count := wanted - bound.get(name, 0)) > 0:
            found.append(PodDemand(index, pod_set, count, together=name in together))
    if not found:
        return "none of its pods needs a node"
    held = held_pods_of(gang, found)
    if any(not one.pod_set.templated and one.index not in held for one in found):
        return "what its pods need is not known before they exist"
    if len(found) > MAX_REQUEST_POD_SETS:
        return f"it has {len(found):,} pod sets, and a ProvisioningRequest takes {MAX_REQUEST_POD_SETS}"
    shapes = {ask.name: ask.shape_hash for ask in gang.request.pod_sets}
    selector = tuple(sorted(node_selector.items()))
    content = [[one.pod_set.name, one.count, shapes.get(one.pod_set.name, ""), one.together] for one in found]
    digest = hashlib.sha256(json.dumps([content, selector]).encode()).hexdigest()[:_HASH_DIGITS]
    return NodeDemand(tuple(found), selector, digest)


def _together(request: PlacementRequest) -> set[str]:
    """Return the pod sets of which the pods, or parts of them, need one domain."""
    if request.gang is not None and request.gang.require is not None:
        return {ask.name for ask in request.pod_sets}
    return {ask.name for ask in request.pod_sets if ask.require or ask.slices}


def _first_counts(gang: Gang) -> dict[str, int]:
    """Return how many pods of each pod set of a gang need nodes first.

    In a pod group without its minimum: all of them, up to that minimum. How many of it the others give is not known.
    """
    group, request = gang.pod_group, request_to_place(gang)
    if group is None or group.placed:
        return request.first_slots
    left, found = max(1, group.missing), {}
    for ask in request.pod_sets:
        pods = max(min(ask.count, 1), min(ask.count, left))
        found[ask.name] = ask.in_whole_slices(pods)
        left = max(0, left - pods)
    return found


def held_pods_of(gang: Gang, demanded: Collection[PodDemand]) -> dict[int, str]:
    """Return the name of a held pod of each pod set that has one, by its index: as admission has made it."""
    wanted = {one.pod_set.name: one.index for one in demanded}
    found = {}
    for pod_set, pods in by_pod_set(gang.workload, gang.pods):
        held = sorted((pod.created, pod.name) for pod in pods if pod.held and pod.live)
        if held and pod_set.name in wanted:
            found[wanted[pod_set.name]] = held[0][1]
    return found
