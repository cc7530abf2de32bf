"""The cluster state of objects as the API server lists them: decoded as by the service, and never completed.

An object that cannot be read is left out and noted, as the service leaves it out and logs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from engine.api import names
from engine.api.text import plural, sanitize
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding import devices as cluster_devices
from engine.decoding import pods
from engine.decoding.objects import topology_object
from engine.decoding.wire import UNREADABLE, ProjectionError, located
from engine.decoding.workloads import job, owned, workload_or_stub
from engine.kinds.read import UnreadableWorkload
from engine.policy.model import Policy
from engine.topology.objects import PLURAL
from webhook.snapshot.cluster import DEVICE, STORES, TOPOLOGIES
from webhook.snapshot.files import FileObject

_MOST_NOTES: Final = 5  # about objects that cannot be read


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_decode_named: Final = msgspec.json.Decoder(_Named).decode


def live_cluster(
    objects: Iterable[FileObject], *, policy: Policy, own_namespace: str = names.NAMESPACE
) -> tuple[ClusterState, list[str]]:
    """Return the cluster state of listed objects under a policy, and notes about objects that are left out."""
    records: dict[str, list[Any]] = {}
    bad: list[str] = []
    for one in objects:
        if (found := _decoder(one, policy)) is None:
            continue
        into, decode = found
        try:
            records.setdefault(into, []).append(decode(one.source))
        except Exception as error:  # not only ProjectionError: one object must never stop all others
            bad.append(f"{_name(one)} cannot be read and is left out: {_why(error)}")
    view = ClusterState(Stores(), policy, own_namespace=own_namespace, grace=0.0)
    for name, store in view.stores.all().items():
        store.replace(records.get(name, []))
    view.refresh()
    notes = bad[:_MOST_NOTES]
    if len(bad) > _MOST_NOTES:
        notes.append(f"{plural(len(bad) - _MOST_NOTES, 'more object')} cannot be read")
    return view, notes


def _decoder(one: FileObject, policy: Policy) -> tuple[str, Callable[[Any], Any]] | None:
    """Return the store of an object and its decoder; None for a kind that the engine does not read."""
    if one.what == ("", "Pod"):
        return "pods", partial(pods.pod, labels=policy.pod_labels)
    if one.what in STORES:
        return STORES[one.what]
    if one.what == DEVICE:
        return "devices", cluster_devices.node_devices
    if one.what in TOPOLOGIES:
        return f"{PLURAL}.{one.group}", topology_object
    entry = policy.registry.find(one.group, one.kind, one.version)
    if entry is None:
        between = {(ref.group, ref.kind) for found in policy.registry.entries for ref in found.owners}
        version = f"{one.group}/{one.version}".removeprefix("/")
        return ("owned", partial(owned, api_version=version, kind=one.kind)) if one.what in between else None
    if entry.handling not in ("placed", "through"):
        return None
    if one.what == ("batch", "Job"):
        return "workloads", job
    return "workloads", partial(workload_or_stub, entry=entry, registry=policy.registry, version=one.version)


def _name(one: FileObject) -> str:
    try:
        source = one.source if isinstance(one.source, bytes | msgspec.Raw) else msgspec.json.encode(one.source)
        meta = _decode_named(source).metadata
    except UNREADABLE:
        return f"a {sanitize(one.kind)}"
    return f"{sanitize(one.kind)} {'/'.join(sanitize(part) for part in (meta.namespace, meta.name) if part)}"


def _why(error: Exception) -> str:
    def parts() -> Iterator[str]:
        match error:
            case ProjectionError():
                yield from filter(None, located(error))
            case UnreadableWorkload():
                yield from (error.errors[0].field, error.errors[0].message)
            case _:
                yield type(error).__name__

    return ": ".join(sanitize(part, 120) for part in parts())
