"""The workloads of `topogate simulate` as they are sent, and the order in which they are processed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.decoding import pods
from engine.decoding.wire import ProjectionError
from engine.decoding.workloads import workload
from engine.gang.plain_pods import plain_key, plain_workload
from engine.kinds.children import child_objects
from engine.kinds.paths import Steps
from engine.kinds.read import UnreadableWorkload
from webhook.admission.objects import POD
from webhook.handlers.unreadable import mappings
from webhook.rules.gating import requests_of_labels, requests_of_pod_labels
from webhook.simulate.submit import as_sent
from webhook.snapshot.files import FileObject, FileProblem

_YOUNGEST: Final = float("inf")
_UNTOLD: Final = 1e12

Json = dict[str, Any]
Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class SubmittedWorkload:
    """A workload as it is sent.

    `key` is group, kind, namespace and name; `created` its creation time if the file has one; `plain` the key of the
    gang that a plain pod names; `group` the namespace and name of the pod group that it names. `maker`: the object of
    the files whose controller will make it, or what makes it; `numbers` its number among those, below that of its own
    maker if that is made too. None and () for an object of the files.
    """

    one: FileObject
    sent: Json
    key: Key
    priority: int
    created: float
    serial: int
    plain: GangKey | None = None
    group: tuple[str, str] | None = None
    maker: SubmittedWorkload | None = None
    numbers: tuple[int, ...] = ()

    @property
    def made(self) -> float:
        """Return its creation time; without one it counts as younger than all others, in the order of submission."""
        return self.created if self.created < _YOUNGEST else _UNTOLD + self.serial


def entries(workloads: Iterable[FileObject], view: ClusterState, *, namespace: str) -> list[SubmittedWorkload]:
    """Return the workloads in file order, without objects of unregistered kinds that have no pod template.

    Raises FileProblem if there is none, or a duplicate.
    """
    found: list[SubmittedWorkload] = []
    seen: dict[Key, str] = {}
    for one in workloads:
        raw = one.decoded()
        known = view.registry.find(one.group, one.kind, one.version) is not None
        if not known and not _has_pod_template(raw):
            continue
        sent = as_sent(one, namespace=namespace, serial=len(found))
        metadata = sent["metadata"] if isinstance(sent["metadata"], dict) else {}
        key = (one.group, one.kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        if key in seen:
            raise FileProblem(f"{one.where}: {one.kind} {key[2]}/{key[3]} is a duplicate of the one in {seen[key]}")
        if key[3]:
            seen[key] = one.where
        priority, created = _rank_in_queue(one, raw, view)
        plain, group = _plain_gang_key(one, sent, view), _pod_group(one, sent, key[2], view)
        found.append(SubmittedWorkload(one, sent, key, priority, created, len(found), plain, group))
    if not found:
        raise FileProblem("no workload in the files (-f)")
    return found


def made_by(
    entry: SubmittedWorkload, stored: Mapping[str, Any], view: ClusterState
) -> Iterator[tuple[Steps, SubmittedWorkload]]:
    """Yield the workloads that the controller of an object will make (the Job of a CronJob), with the steps to each.

    None for kinds that are workloads themselves.
    """
    for number, (steps, one) in enumerate(_made_objects(entry.one, stored, view)):
        sent = one.decoded()
        key = (one.group, one.kind, entry.key[2], str(sent["metadata"]["name"]))
        numbers = (*entry.numbers, number)
        yield steps, replace(entry, one=one, sent=sent, key=key, maker=entry.maker or entry, numbers=numbers)


def as_known(entry: SubmittedWorkload, record: Workload) -> Workload:
    """Return a workload as it takes its place in the state, where its controller has made nothing.

    It replaces the child that its controller would make. One that is made itself has the kind and the name of the
    object in the files: people do not know the name that its controller would give.
    """
    found = replace(record, unit="workload") if record.unit == "child" else record
    if entry.maker is None:
        return found
    one, name = entry.maker.one, entry.maker.key[3]
    version = f"{one.group}/{one.version}".removeprefix("/")
    number = f"[{'.'.join(map(str, entry.numbers))}]" if any(entry.numbers) else ""
    return replace(found, api_version=version, kind=one.kind, name=name + number)


def _made_objects(one: FileObject, sent: Mapping[str, Any], view: ClusterState) -> Iterator[tuple[Steps, FileObject]]:
    """Yield the objects that the controller of an object will make, named in the form of the CronJob controller."""
    entry = view.registry.find(one.group, one.kind, one.version)
    if entry is None or entry.handling != "hint":
        return
    metadata = sent.get("metadata")
    above = metadata if isinstance(metadata, Mapping) else {}
    for number, made in enumerate(child_objects(entry, sent, registry=view.registry)):
        own = made.raw.get("metadata")
        # CronJobs have the minutes since 1970 there.
        named = {"name": f"{above.get('name') or ''}-{number:08}", "namespace": above.get("namespace")}
        raw = {**made.raw, "metadata": {**(own if isinstance(own, Mapping) else {}), **named}}
        group, _, version = str(raw["apiVersion"]).rpartition("/")
        yield made.steps, FileObject(group, version, str(raw["kind"]), one.where, raw)


def queued(taken: Sequence[SubmittedWorkload]) -> list[SubmittedWorkload]:
    """Return the workloads by priority, age and name."""
    ordered = sorted(taken, key=lambda entry: (-entry.priority, entry.created, entry.key[2:], entry.key[:2]))
    return [replace(entry, serial=place) for place, entry in enumerate(ordered)]


def batches(taken: Sequence[SubmittedWorkload]) -> list[list[SubmittedWorkload]]:
    """Return the workloads in batches: the pods of one plain gang, and the members of one pod group, together at the
    first of them, all others alone.
    """
    batches: dict[object, list[SubmittedWorkload]] = {}
    for entry in taken:
        batches.setdefault(entry.group or entry.plain or entry.serial, []).append(entry)
    return list(batches.values())


def _plain_gang_key(one: FileObject, sent: Json, view: ClusterState) -> GangKey | None:
    pod = _decoded_pod(sent, view) if one.what == POD else None
    if pod is None or pod.owner is not None or pod.spec.node_name:
        return None
    return plain_key(pod, dialects=view.policy.annotations.dialects)


def _pod_group(one: FileObject, sent: Json, namespace: str, view: ClusterState) -> tuple[str, str] | None:
    """Return the namespace and name of the pod group that an object, or the labels that admission reads, names."""
    if one.what == POD:
        pod = _decoded_pod(sent, view)
        name = pod.spec.annotations.get(names.POD_GROUP) if pod is not None else None
        return (namespace, name) if name is not None else None
    entry = view.registry.find(one.group, one.kind, one.version)
    if entry is None or entry.handling not in ("placed", "through"):
        return None
    try:
        found = workload(sent, entry=entry, registry=view.registry)
    except (UnreadableWorkload, ProjectionError):
        return None
    carriers = (found.annotations, *(pod_set.template.annotations for pod_set in found.pod_sets))
    said = next((one[names.POD_GROUP] for one in carriers if names.POD_GROUP in one), None)
    name = said or requests_of_labels(found, view.policy).get(names.POD_GROUP)
    return (namespace, name) if name is not None else None


def _decoded_pod(raw: Json, view: ClusterState) -> Pod | None:
    """Return a pod with the request that admission will write for its labels; None if it cannot be decoded."""
    try:
        pod = pods.pod(raw)
    except ProjectionError:
        return None
    asked = requests_of_pod_labels(pod, view.policy)
    return replace(pod, spec=replace(pod.spec, annotations={**pod.spec.annotations, **asked}))


def _rank_in_queue(one: FileObject, raw: Json, view: ClusterState) -> tuple[int, float]:
    """Return priority and creation time; an unreadable object has neither, and is refused later."""
    entry = view.registry.find(one.group, one.kind, one.version)
    if entry is None:
        return 0, _YOUNGEST
    if entry.handling == "hint":
        made = [_rank_in_queue(child, child.decoded(), view)[0] for _, child in _made_objects(one, raw, view)]
        return max(made, default=0), _YOUNGEST
    if entry.handling == "pods":
        pod, dialects = _decoded_pod(raw, view), view.policy.annotations.dialects
        key = plain_key(pod, dialects=dialects) if pod is not None else None
        if pod is None or key is None:
            return 0, _YOUNGEST
        found = plain_workload(key, [pod], dialects=dialects)
    else:
        try:
            found = workload(raw, entry=entry, registry=view.registry)
        except (UnreadableWorkload, ProjectionError):
            return 0, _YOUNGEST
    return view.pod_shapes.priority_of(found) if found.pod_sets else 0, found.created or _YOUNGEST


def _has_pod_template(raw: Json) -> bool:
    return any(isinstance(value.get("containers"), list) for value in mappings(raw))
