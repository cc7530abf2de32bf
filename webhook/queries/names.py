"""Names of gangs in answers: `namespace/job/train`."""

from __future__ import annotations

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
