"""Objects of files in a snapshot of a live cluster, as if they had been submitted: admitted, stored and waiting.

Only the snapshot in memory is changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from engine.api.field import path_of
from engine.api.pod import Pod
from engine.policy.namespaces import mode_of
from webhook.handlers.unreadable import asks_anywhere
from webhook.queries.names import workload_label
from webhook.queries.subject import Subject, of_workload
from webhook.simulate.entries import SubmittedWorkload, as_known, entries, made_by
from webhook.simulate.reader import OfflineReader
from webhook.simulate.submit import decoder_of, left_alone, submit, unsupported
from webhook.snapshot.files import FileObject, FileProblem
from webhook.snapshot.snapshot import Snapshot

_UIDS: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "explain.topogate.dev")
_APART: Final = 0.001  # seconds: objects of files queue in their order


def unsubmitted(snapshot: Snapshot, objects: Iterable[FileObject], *, namespace: str) -> list[Subject]:
    """Add the objects to the snapshot in their order; return what to explain, each gang once.

    Raises FileProblem for files without a workload, and for an object that the cluster has already.
    """
    taken = entries(objects, snapshot.view, namespace=namespace)
    found = [subject for entry in taken for subject in _submitted(snapshot, entry)]
    pods = [subject.pod for subject in found if subject.pod is not None]
    snapshot.view.refresh()
    keys = {pod.key: snapshot.view.gangs.gang_of(pod) for pod in pods}
    done: set[object] = set()
    answers: list[Subject] = []
    for subject in found:
        key = keys.get(subject.pod.key) if subject.pod is not None else None
        if key is not None and key in done:
            continue  # another pod of the same gang
        done.add(key)
        gang = snapshot.view.gangs.get(key) if key is not None else None
        answers.append(replace(subject, keys=(gang.key,), pod=None) if gang is not None else subject)
    return answers


def _submitted(snapshot: Snapshot, entry: SubmittedWorkload) -> Iterator[Subject]:
    view, who = snapshot.view, (entry.key[2], entry.one.kind, entry.key[3])
    decode = decoder_of(entry.one, view)
    if decode is None:
        asks = asks_anywhere(entry.sent, view.policy.annotations.dialects)
        if asks and mode_of(who[0], view.policy).manages:
            yield Subject(sent=who, refused=(unsupported(),))
        else:
            yield Subject(sent=who, ignored="PolicyOff" if asks else "NoTopologyRequested")
        return

    if left_alone(entry.sent, decode, view):
        yield Subject(sent=who, ignored="NoTopologyRequested")
        return
    submitted = submit(entry.one, entry.sent, OfflineReader(view), decode=decode)
    if submitted.errors:
        yield Subject(sent=who, refused=submitted.errors)
        return
    record = decode(msgspec.json.encode(submitted.stored))
    uid, created = str(uuid.uuid5(_UIDS, "/".join(entry.key))), snapshot.taken + entry.serial * _APART
    if isinstance(record, Pod):
        _must_be_new(entry, view.stores.pods.get(record.key))
        pod = replace(record, uid=uid, created=created)
        view.stores.pods.apply("ADDED", pod)
        yield Subject(pod=pod, sent=who)
    elif record.handling == "hint":
        made = [*made_by(entry, submitted.stored, view)]
        if not made:
            yield Subject(sent=who, ignored="NoTopologyRequested")
        for steps, one in made:
            for subject in _submitted(snapshot, one):
                below = (replace(error, field=f"{path_of(steps)}.{error.field}") for error in subject.refused)
                yield replace(subject, sent=who, refused=tuple(below))
    else:
        _must_be_new(entry, view.stores.workloads.get(record.key))
        added = replace(as_known(entry, record), uid=uid, created=created)
        view.stores.workloads.apply("ADDED", added)
        view.refresh()
        yield replace(of_workload(view, added), sent=who)


def _must_be_new(entry: SubmittedWorkload, known: object | None) -> None:
    if known is not None:
        what = workload_label(entry.one.kind, entry.key[3])
        raise FileProblem(f"{entry.one.where}: {what} is in the cluster already: explain {what} -n {entry.key[2]}")
