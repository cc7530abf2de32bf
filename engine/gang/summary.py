"""The columns of tables about gangs: pods, GPUs, level, and place in short. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api.device import DeviceRequest
from engine.api.placement import Assignment, GangRequest, PodSetRequest
from engine.api.resources import Requests
from engine.api.text import plural
from engine.gang.gang import Gang, by_pod_set
from engine.resources.names import CORE, GPU, WHOLE, is_gpu
from engine.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class GangSummary:
    """Pods that have a node and pods that run at a time, GPUs of all pods, level and place in short ("": none)."""

    bound: int
    wanted: int
    gpus: int
    level: str
    place: str


def summary_of(gang: Gang, topology: Topology | None) -> GangSummary:
    """Return the summary of a gang; `topology` is that of its Placement."""
    workload, placement = gang.workload, gang.placement
    assignment = placement.assignment if placement is not None else None
    require, prefer = levels_of(gang)
    above = tuple(level.name for level in topology.levels[:-1]) if topology is not None else ()
    place = "" if assignment is None else place_text(domains_of(assignment), hosts_of(assignment), above)
    return GangSummary(
        bound=bound_count(gang) if gang.pods else 0,
        wanted=workload.slots,
        gpus=gpu_count(gang),
        level=require or (f"{prefer} (preferred)" if prefer is not None else ""),
        place=place,
    )


def bound_count(gang: Gang) -> int:
    """Return how many pods of a gang have a node, and are not being deleted."""
    live = [pod for pod in gang.pods if pod.live and pod.spec.node_name]
    return sum(len(pods) for _, pods in by_pod_set(gang.workload, live))


def gpu_count(gang: Gang) -> int:
    """Return the GPUs of all pods of a gang."""
    shapes = ((pod_set.slots, gang.shapes[pod_set.name]) for pod_set in gang.workload.pod_sets)
    return sum(slots * gpus_of(shape.requests, shape.devices) for slots, shape in shapes)


def gpus_of(requests: Requests, devices: DeviceRequest | None) -> int:
    """Return the GPUs of a pod, those used in part as whole ones; `devices` is what follows from its requests."""
    if devices is not None and devices.gpus:
        return devices.gpus
    amounts = dict(requests)
    whole = sum(amount for name, amount in requests if is_gpu(name))
    return whole or -(-max(amounts.get(CORE, 0), amounts.get(GPU, 0)) // WHOLE)


def levels_of(gang: Gang) -> tuple[str | None, str | None]:
    """Return the required and the preferred level, of the whole gang or of its first pod set with one."""
    placement = gang.placement
    of_gang = gang.request.gang or (placement.gang if placement is not None else None)
    sets = gang.request.pod_sets or (placement.pod_sets if placement is not None else ())
    asks: list[GangRequest | PodSetRequest] = [*([of_gang] if of_gang is not None else []), *sets]
    require = next((ask.require for ask in asks if ask.require is not None), None)
    return require, next((ask.prefer for ask in asks if ask.prefer is not None), None)


def domains_of(assignment: Assignment | None) -> tuple[tuple[str, ...], ...]:
    """Return the domains above the host in which an assignment has slots, in their order."""
    slots = [slot for one in assignment.pod_sets for slot in one.slots] if assignment is not None else []
    return tuple(dict.fromkeys(slot.domain[:-1] for slot in slots))


def hosts_of(assignment: Assignment | None) -> tuple[str, ...]:
    """Return the hosts on which an assignment has slots, in their order."""
    slots = [slot for one in assignment.pod_sets for slot in one.slots] if assignment is not None else []
    return tuple(dict.fromkeys(slot.host for slot in slots))


def domains_by_level(assignment: Assignment, topology: Topology) -> dict[str, int]:
    """Return how many domains of each level an assignment uses, by the level's alias, coarse to fine."""
    paths = {slot.domain for plan in assignment.pod_sets for slot in plan.slots}
    return {level.name: len({path[: index + 1] for path in paths}) for index, level in enumerate(topology.levels)}


def place_text(domains: Sequence[Sequence[str]], hosts: Sequence[str], levels: Sequence[str]) -> str:
    """Return where a gang is, in short: `block-0/rack-02`, `block-0 (2 racks)`, `2 blocks`, or its hosts.

    `levels` are the aliases above the host, coarse to fine; `domains` the paths at the lowest of them. Where there are
    not as many of them as labels in a path, the levels were others when the gang was placed, or are not known.
    """
    if not hosts:
        return ""
    if not domains or not domains[0]:
        return hosts[0] if len(hosts) == 1 else plural(len(hosts), "host")
    common = 0
    while common < len(domains[0]) and all(path[common] == domains[0][common] for path in domains):
        common += 1
    within = "/".join(domains[0][:common])
    if common == len(domains[0]):
        return within
    level = levels[common] if len(levels) == len(domains[0]) else "domain"
    spread = plural(len({tuple(path[: common + 1]) for path in domains}), level)
    return f"{within} ({spread})" if within else spread
