"""Names of gangs in answers: `namespace/job/train`, and the domains of their slots in short."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.placement import Assignment
from engine.api.text import plural
from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.gang.key import parts


def workload_label(kind: str, name: str) -> str:
    """Return a workload as kubectl prints it: `job/train`."""
    return f"{kind.lower()}/{name}"


def label_of(workload: Workload, group: str | None) -> str:
    """Return a gang as `namespace/job/train`, with its replica group if it has one: `.../serve[2]`."""
    text = f"{workload.namespace}/{workload_label(workload.kind, workload.name)}"
    return text if group is None else f"{text}[{group}]"


def gang_label(view: ClusterState, key: GangKey) -> str:
    """Return the gang of a key as `namespace/job/train`; the key itself if there is none any more."""
    workload = view.gangs.workload_of(key)
    return str(key) if workload is None else label_of(workload, group_of(workload, key))


def group_of(workload: Workload, key: GangKey) -> str | None:
    """Return the replica group that a key of a workload's gang names; None where the workload is one gang."""
    return parts(key)[1] if workload.group_label is not None else None


def domains_of(assignment: Assignment | None) -> tuple[tuple[str, ...], ...]:
    """Return the domains above the host in which an assignment has slots, in their order."""
    slots = [slot for one in assignment.pod_sets for slot in one.slots] if assignment is not None else []
    return tuple(dict.fromkeys(slot.domain[:-1] for slot in slots))


def hosts_of(assignment: Assignment | None) -> tuple[str, ...]:
    """Return the hosts on which an assignment has slots, in their order."""
    slots = [slot for one in assignment.pod_sets for slot in one.slots] if assignment is not None else []
    return tuple(dict.fromkeys(slot.host for slot in slots))


def place_text(domains: Sequence[Sequence[str]], hosts: Sequence[str], levels: Sequence[str]) -> str:
    """Return where a gang is, in short: `block-0/rack-02`, `block-0 (2 racks)`, `2 blocks`, or its hosts.

    `levels` are the aliases above the host, coarse to fine; `domains` the paths at the lowest of them.
    """
    if not hosts:
        return ""
    if not domains or not domains[0] or len(levels) < len(domains[0]):
        return hosts[0] if len(hosts) == 1 else plural(len(hosts), "host")
    common = 0
    while common < len(domains[0]) and all(path[common] == domains[0][common] for path in domains):
        common += 1
    within = "/".join(domains[0][:common])
    if common == len(domains[0]):
        return within
    spread = plural(len({tuple(path[: common + 1]) for path in domains}), levels[common])
    return f"{within} ({spread})" if within else spread
