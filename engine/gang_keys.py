"""What a gang is known by: its workload's uid, and the index of the replica for a kind with a gang per replica."""

from __future__ import annotations

from engine.records import Placement, Workload

_GROUP_DIGITS = 7  # 1,000,000 replicas at most


def key_of(uid: str, group: str | None = None) -> str:
    """The key of a gang: `<uid>`, or `<uid>/<group>` for a gang of one replica."""
    return uid if group is None else f"{uid}/{group}"


def placed_key(placement: Placement) -> str:
    """The key of the gang that a Placement says it is of."""
    return key_of(placement.workload.uid, placement.group)


def parts(key: str) -> tuple[str, str | None]:
    """The uid of the workload and the group that a key names; the group is None for a gang of a whole workload."""
    uid, slash, group = key.partition("/")
    return (uid, group if slash else None)


def keys_of(workload: Workload) -> tuple[str, ...]:
    """The keys of all gangs of a workload."""
    if workload.group_label is None:
        return (workload.uid,)
    return tuple(key_of(workload.uid, str(index)) for index in range(workload.groups))


def has_group(workload: Workload, group: str | None) -> bool:
    """True when a workload has a gang of that group: None for all of it, else the plain index of a replica."""
    if workload.group_label is None or group is None:
        return workload.group_label is None and group is None
    plain = group.isascii() and group.isdigit() and len(group) <= _GROUP_DIGITS and str(int(group)) == group
    return plain and int(group) < workload.groups
