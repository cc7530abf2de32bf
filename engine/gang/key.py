"""Builds gang keys and Placement names from the workload's uid and the group of a kind with several gangs."""

from __future__ import annotations

import hashlib
import re
from typing import Final, TypeGuard

from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.workload import GRACE_PREFIX, ORPHAN_PREFIX, GangKey, ReservationKey, Workload
from engine.gang import plain_pods
from engine.gang.plain_pods import KIND

_MAX_NAME: Final = 63  # the name is also the value of the pods' gang label
_HASH_DIGITS: Final = 8
_MAX_KIND: Final = 24
_NOT_IN_NAME: Final = re.compile(r"[^a-z0-9.-]")

# Replicas of one workload that are gangs; pods of further replicas stay held, with an Event.
MAX_GROUPS = 10_000
_GROUP_DIGITS = 7


def key_of(workload: Workload, group: str | None = None) -> GangKey:
    """Return a gang's key: `<uid>`, `<uid>/<group>` for one replica, `pods/<namespace>/<name>` for plain pods."""
    if not workload.uid and workload.kind == KIND:
        return plain_pods.gang_key(workload.namespace, workload.name)
    return _key(workload.uid, group)


def placed_key(placement: Placement) -> GangKey:
    """Return the key of the gang that a Placement names."""
    workload = placement.workload
    if not workload.uid and workload.kind == KIND:
        return plain_pods.gang_key(placement.namespace, workload.name)
    return _key(workload.uid, placement.group)


def joined_key(workload: Workload, pod: Pod) -> GangKey:
    """Return the key of the workload's gang that a pod joins; a key of no gang when its label is no index."""
    if workload.group_label is None:
        return _key(workload.uid, None)
    group = pod.spec.labels.get(workload.group_label, "")
    return _key(workload.uid, group if _is_index(group) else "")


def parts(key: GangKey) -> tuple[str, str | None]:
    """Return the workload's uid and the group of a key; the group is None for a gang of a whole workload."""
    uid, slash, group = key.partition("/")
    return (uid, group if slash else None)


def order_of(key: GangKey) -> tuple[str, int, str]:
    """Return what orders gangs with one place in the queue: replicas of a workload, and workloads of one name."""
    uid, group = parts(key)
    return uid, len(group or ""), group or ""


def keys_of(workload: Workload) -> tuple[GangKey, ...]:
    """Return the keys of all gangs of a workload; none where its children are gangs of their own."""
    if workload.unit == "child":
        return ()
    if workload.group_label is None:
        return (key_of(workload),)
    return tuple(_key(workload.uid, str(index)) for index in range(min(workload.groups, MAX_GROUPS)))


def has_group(workload: Workload, group: str | None) -> bool:
    """True when a workload has a gang of that group: None for all of it, else the index of a replica."""
    if workload.unit == "child":
        return False
    if workload.group_label is None or group is None:
        return workload.group_label is None and group is None
    return _is_index(group) and int(group) < min(workload.groups, MAX_GROUPS)


def replica_index(key: GangKey) -> int | None:
    """Return the index of the replica that a gang is; None for any other gang."""
    group = parts(key)[1]
    return int(group) if group is not None and _is_index(group) else None


def _key(uid: str, group: str | None) -> GangKey:
    return GangKey(ReservationKey(uid if group is None else f"{uid}/{group}"))


def workload_key(uid: str) -> GangKey:
    """Return the key of the one gang of a workload, known by its uid."""
    return _key(uid, None)


def orphan_key(pod: Pod) -> ReservationKey:
    """Return the key of a pod of no gang."""
    return ReservationKey(f"{ORPHAN_PREFIX}{pod.namespace}/{pod.name}")


def grace_key(number: int) -> ReservationKey:
    """Return the key of one grace period."""
    return ReservationKey(f"{GRACE_PREFIX}{number}")


def is_gang_key(key: ReservationKey) -> TypeGuard[GangKey]:
    """True for the key of a gang; no gang's key looks like that of a pod of no gang or of a grace period."""
    return not key.startswith((ORPHAN_PREFIX, GRACE_PREFIX))


def _is_index(group: str) -> bool:
    digits = group.isascii() and group.isdigit() and len(group) <= _GROUP_DIGITS
    return digits and str(int(group)) == group


def placement_name(kind: str, workload_name: str, uid: str, group: str = "") -> str:
    """Return `<kind>-<workload name, cut>-<8 digits of the hash of uid>[-<group>]`.

    At most 63 characters, and a valid object name and label value for any arguments.
    """
    digest = hashlib.sha256(uid.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    tail = f"-{digest}-{_clean(group)}" if group else f"-{digest}"
    tail = tail[: _MAX_NAME - _MAX_KIND - 1].rstrip("-.")
    head = _clean(kind)[:_MAX_KIND].rstrip("-.") or "workload"
    name = _clean(workload_name)[: _MAX_NAME - len(head) - 1 - len(tail)].rstrip("-.")
    return f"{head}-{name}{tail}" if name else f"{head}{tail}"


def name_of(workload: Workload, group: str | None = None) -> str:
    """Return the name of the Placement of a gang; `pods-<gang-name>-<8 digits>` for a gang of plain pods.

    Single pods share the Placement `<kind>-<name>-<8 digits>` of their controller.
    """
    if not workload.uid and workload.handling == "pods":
        return placement_name("Pods", workload.name, workload.name)
    if workload.handling == "pods":
        return placement_name(workload.kind, workload.name, f"{workload.uid}/{group}")
    return placement_name(workload.kind, workload.name, workload.uid, group or "")


def _clean(text: str) -> str:
    return _NOT_IN_NAME.sub("-", text.lower()).strip("-.")
