"""Names in answers and questions: gangs as `namespace/job/train`, kinds as kubectl takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.gang.key import parts
from engine.kinds.schema import KindEntry
from webhook.snapshot.snapshot import Snapshot

# Of Kubernetes' own kinds, which are not discovered.
_SHORT: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("apps", "Deployment"): ("deploy",),
    ("apps", "StatefulSet"): ("sts",),
    ("batch", "CronJob"): ("cj",),
}


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


def entries_called(snapshot: Snapshot, kind: str) -> list[KindEntry]:
    """Return the registered kinds that a name means: kind, plural, singular or short name, with or without group."""
    name, _, group = kind.lower().partition(".")
    return [
        entry
        for entry in snapshot.view.registry.entries
        if name in _names(snapshot, entry) and group in ("", entry.match.group)
    ]


def kind_names(snapshot: Snapshot) -> set[str]:
    """Return all names of the kinds that are placed."""
    entries = (entry for entry in snapshot.view.registry.entries if entry.handling != "hint")
    return {name for entry in entries for name in _names(snapshot, entry)}


def _names(snapshot: Snapshot, entry: KindEntry) -> Iterator[str]:
    match = entry.match
    yield from (match.kind.lower(), match.resource.lower())
    key = (match.group, match.kind)
    yield from (name.lower() for name in snapshot.short_names.get(key, _SHORT.get(key, ())))
