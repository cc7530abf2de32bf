"""What `topogate explain` is asked about: the object that a person names, and the gangs that it leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.api.device import LabelSelector, selects
from engine.api.field import FieldError
from engine.api.names import PLACEMENT_KIND, PLACEMENTS
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.reasons import Code
from engine.api.text import did_you_mean, quote
from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.gang.gang import Gang
from engine.gang.key import keys_of, placed_key
from engine.gang.ownership import PART_OF_GANG
from engine.gang.plain_pods import is_plain, is_single, place_of
from engine.kinds.schema import KindEntry
from webhook.queries.names import entries_called, kind_names, workload_label
from webhook.snapshot.snapshot import Snapshot

_POD = ("pod", "pods", "po")
_PLACEMENT = (PLACEMENT_KIND.lower(), PLACEMENTS, "tgp")


class SubjectProblem(Exception):
    """Nothing of that name can be explained; the text is one line."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked about: its gangs (`keys`), and the workload, pod or Placement that was named.

    Of an object that is not submitted: `sent`, its namespace, kind and name, with the errors for which it would be
    `refused`, or the reason why it would be left alone (`ignored`).
    """

    keys: tuple[GangKey, ...] = ()
    workload: Workload | None = None
    pod: Pod | None = None
    placement: Placement | None = None
    sent: tuple[str, str, str] | None = None
    refused: tuple[FieldError, ...] = ()
    ignored: Code | None = None


def named(text: str) -> tuple[str, str]:
    """Return kind and name of `KIND/NAME`. Raises SubjectProblem for any other text."""
    kind, slash, name = text.strip().partition("/")
    if not (slash and kind and name) or "/" in name:
        raise SubjectProblem(
            f"{quote(text)} is not KIND/NAME, as job/train, pod/train-0 or placement/job-train-0a1b2c3d"
        )
    return kind, name


def subject_of(snapshot: Snapshot, text: str, *, namespace: str) -> Subject:
    """Return what `KIND/NAME` names in a namespace. Raises SubjectProblem if there is nothing of that name."""
    kind, name = named(text)
    short, _, group = kind.lower().partition(".")
    view = snapshot.view
    if short in _POD and not group:
        return _of_pod(snapshot, name, namespace)
    if short in _PLACEMENT:
        placement = view.stores.placements.get((namespace, name))
        if placement is None:
            known = [one.name for one in view.stores.placements.values() if one.namespace == namespace]
            raise SubjectProblem(_missing(snapshot, "placement", name, namespace, known, collection=PLACEMENTS))
        return Subject((placed_key(placement),), placement=placement)
    entries = entries_called(snapshot, kind)
    found = next((one for entry in entries if (one := _stored(view, entry, namespace, name)) is not None), None)
    if found is not None:
        return of_workload(view, found)
    if (of_pods := _of_plain_pods(view, short, name, namespace)) is not None:
        return of_pods
    if not entries:
        hint = did_you_mean(short, {*kind_names(snapshot), "pod", "placement"})
        raise SubjectProblem(
            f"no kind {quote(kind)} among those that are placed, and no pod of such an owner in namespace "
            f"{quote(namespace)}{hint}"
        )
    if all(entry.handling == "hint" for entry in entries):
        what = entries[0].match.kind
        raise SubjectProblem(f"a {what} is placed through the objects that it creates: name one of these, or a pod")
    here = [one.name for one in view.stores.workloads.values() if one.namespace == namespace and _of(one, entries)]
    raise SubjectProblem(_missing(snapshot, short, name, namespace, here, collection=entries[0].match.resource))


@dataclass(frozen=True, slots=True)
class GangFilter:
    """Which gangs are asked for: those with one of the names (kind, or "", and name), and with labels (empty: all)."""

    names: tuple[tuple[str, str], ...] = ()
    selector: LabelSelector = ()

    @staticmethod
    def of(snapshot: Snapshot, words: Iterable[str], selector: LabelSelector = ()) -> GangFilter:
        """Return the filter of `NAME` and `KIND/NAME`. Raises SubjectProblem for a word that is neither."""
        found = []
        for word in words:
            kind, name = named(word) if "/" in word else ("", word)
            if kind and kind.lower() not in _POD and not entries_called(snapshot, kind):
                hint = did_you_mean(kind.lower(), {*kind_names(snapshot), "pod"})
                raise SubjectProblem(f"no kind {quote(kind)} among those that are placed{hint}")
            found.append((kind, name))
        return GangFilter(tuple(found), selector)

    def takes(self, snapshot: Snapshot, gang: Gang) -> bool:
        """Return True if the gang is asked for."""
        named = not self.names or any(_is(snapshot, gang.workload, kind, name) for kind, name in self.names)
        return named and self._selects(snapshot, gang)

    def missing(self, snapshot: Snapshot, gangs: Iterable[Gang]) -> Iterator[str]:
        """Yield a sentence for each name that none of the gangs has, with the closest name, or none with the labels."""
        some = list(gangs)
        for kind, name in self.names:
            what = quote(f"{kind}/{name}" if kind else name)
            called = [gang for gang in some if _is(snapshot, gang.workload, kind, name)]
            if not called:
                yield f"no gang {what}{did_you_mean(name, {gang.workload.name for gang in some})}"
            elif not any(self._selects(snapshot, gang) for gang in called):
                yield f"no gang {what} with these labels"

    def _selects(self, snapshot: Snapshot, gang: Gang) -> bool:
        pods = gang.workload.handling == "pods"
        uids = [pod.uid for pod in gang.pods] if pods else [gang.workload.uid]
        return not self.selector or any(
            selects(self.selector, tuple(snapshot.labels.get(uid, {}).items())) for uid in uids
        )


def _is(snapshot: Snapshot, workload: Workload, kind: str, name: str) -> bool:
    if workload.name != name:
        return False
    return not kind or workload.kind.lower() == kind.lower() or _of(workload, entries_called(snapshot, kind))


def of_workload(view: ClusterState, workload: Workload) -> Subject:
    """Return the gangs of a workload: its own, or those of the workload above that decides for it."""
    request = view.request_of(workload)
    if request.ignored == PART_OF_GANG:
        above = view.owners.above(workload).workload
        if above is not None and above.uid != workload.uid:
            return Subject(keys_of(above), workload=above)
    if workload.unit == "child":
        keys = tuple(_children(view, workload))
        return Subject(keys, workload=workload)
    return Subject(keys_of(workload), workload=workload)


def _children(view: ClusterState, workload: Workload) -> Iterator[GangKey]:
    """Yield the gangs of the objects that a workload creates, where each is a gang of its own."""
    for one in view.stores.workloads.values():
        owner = one.owner
        if owner is not None and owner.controller and owner.uid == workload.uid:
            yield from keys_of(one)


def _of_pod(snapshot: Snapshot, name: str, namespace: str) -> Subject:
    view = snapshot.view
    pod = view.stores.pods.get((namespace, name))
    if pod is None:
        if (found := _of_plain_pods(view, "pod", name, namespace)) is not None:
            return found
        known = [one.name for one in view.stores.pods.values() if one.namespace == namespace]
        raise SubjectProblem(_missing(snapshot, "pod", name, namespace, known, collection="pods"))
    key = view.gangs.gang_of(pod)
    gang = view.gangs.get(key) if key is not None else None
    if key is not None and gang is not None:
        return Subject((key,), workload=gang.workload, pod=pod)
    return Subject(workload=view.owners.owner_of(pod).workload, pod=pod)


def _of_plain_pods(view: ClusterState, kind: str, name: str, namespace: str) -> Subject | None:
    """Return the gang of pods without a workload that `topogate gangs` shows under this kind and name."""
    found = []
    for key in view.gangs.keys():  # noqa: SIM118 - no mapping
        if is_plain(key):
            if kind == "pod" and place_of(key) == (namespace, name):
                found.append(key)
        elif is_single(key) and view.gangs.namespace_of(key) == namespace:
            workload = view.gangs.workload_of(key)
            if workload is not None and workload_label(workload.kind, workload.name) == f"{kind}/{name}":
                found.append(key)
    return Subject(tuple(found)) if found else None


def _stored(view: ClusterState, entry: KindEntry, namespace: str, name: str) -> Workload | None:
    return view.stores.workloads.get((entry.match.group, entry.match.kind, namespace, name))


def _of(workload: Workload, entries: Iterable[KindEntry]) -> bool:
    return any(workload.key[:2] == (entry.match.group, entry.match.kind) for entry in entries)


def _missing(snapshot: Snapshot, kind: str, name: str, namespace: str, known: list[str], *, collection: str) -> str:
    """Return that there is no such object, with the closest name, or with the right that is missing to tell."""
    unread = next((one for one in snapshot.unread if one.collection.partition(".")[0] == collection), None)
    if unread is not None and unread.except_in != namespace:
        return f"{kind} {quote(name)} in namespace {quote(namespace)} is not known: {unread.text}"
    return f"no {kind} {quote(name)} in namespace {quote(namespace)}{did_you_mean(name, known)}"
