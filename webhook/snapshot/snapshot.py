"""The cluster at one moment as its caller may see it: the engine's state, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.api import names
from engine.api.text import join_and, join_comma, quote, sanitize
from engine.cache.state import ClusterState
from engine.policy.model import Policy
from engine.topology.topology import Topology, why_unusable
from webhook.snapshot.cluster import offline_cluster
from webhook.snapshot.files import FileObject
from webhook.snapshot.known_ends import known_end

# What is not known where a collection cannot be read in the whole cluster.
_UNKNOWN: Final[Mapping[str, str]] = {
    "nodes": "topologies and free capacity are not known",
    "pods": "free capacity is not known",
    names.PLACEMENTS: "reserved capacity and the queue are not known",
    "devices": "GPUs are counted by their number alone",
    "daemonsets": "room for their pods to come is not counted",
    "resourcequotas": "quotas are not checked",
    "priorityclasses": "the priority of waiting gangs is that of their Placements",
    "poddisruptionbudgets": "gangs that they protect may seem preemptible",
    "configmaps": "the policy is not known; levels follow from the nodes' labels",
}
_NEEDED: Final = frozenset({"nodes", "pods", names.PLACEMENTS})  # for free capacity


class AnswerProblem(Exception):
    """A question that a snapshot cannot answer; the text is one line, and so is each of its `causes`."""

    def __init__(self, text: str, causes: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.causes = tuple(causes)


@dataclass(frozen=True, slots=True)
class Unread:
    """Objects that the caller may not read, or that could not be read.

    `collection` is their plural. `except_in`: the namespace in which they were read; None: in none. `why` is "" for a
    right that is missing.
    """

    collection: str
    except_in: str | None = None
    why: str = ""

    @property
    def decides(self) -> bool:
        """True if free capacity is not known without it."""
        return self.collection in _NEEDED

    @property
    def text(self) -> str:
        """The sentence about it: what cannot be read, and what is therefore not known."""
        return self._sentence(sanitize(self.collection, 120))

    def _sentence(self, what: str) -> str:
        where = f" of namespaces other than {sanitize(self.except_in)}" if self.except_in is not None else ""
        why = f" ({sanitize(self.why, 200)})" if self.why else ""
        return f"{what}{where} cannot be read{why}: {self._unknown}"

    @property
    def _unknown(self) -> str:
        return _UNKNOWN.get(self.collection, "what depends on them is not counted")

    @staticmethod
    def texts(found: Iterable[Unread]) -> tuple[str, ...]:
        """The sentences about several: one for all that differ only in the collection."""
        alike: dict[tuple[str, str | None, str], list[Unread]] = {}
        for one in found:
            alike.setdefault((one._unknown, one.except_in, one.why), []).append(one)
        return tuple(group[0]._sentence(join_and([one.collection for one in group])) for group in alike.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment: `view` is the engine's state, on which the planner answers.

    `taken`: seconds since the epoch. `ends`: uid -> when a workload or pod ends at the latest, as far as it declares
    that. `installed`: the API server serves Placements; `provisioning`: the version of ProvisioningRequests that it
    serves, "" if none, None if not known. `notes` are lines about input without effect. `short_names`:
    group and kind -> the other names that the API server has for it. `labels`: uid -> all labels of a workload or pod,
    where they were asked for; the engine's records have only those that it reads.
    """

    view: ClusterState
    taken: float
    ends: Mapping[str, float]
    unread: tuple[Unread, ...] = ()
    notes: tuple[str, ...] = ()
    installed: bool = True
    provisioning: str | None = None
    short_names: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def capacity_known(self) -> bool:
        """True when everything that decides about free capacity was read."""
        return _NEEDED.isdisjoint(one.collection for one in self.unread)

    def unread_in(self, collection: str, namespace: str) -> Unread | None:
        """Return what could not be read of a collection in a namespace; None if its objects there are known."""
        return next((one for one in self.unread if one.collection == collection and one.except_in != namespace), None)

    @property
    def nodes_known(self) -> bool:
        """True when the nodes were read, and with them the topologies."""
        return all(one.collection != "nodes" for one in self.unread)

    @property
    def levels_known(self) -> bool:
        """True when nodes and policy were read: else a request may name a level that only seems not to exist."""
        return {"nodes", "configmaps"}.isdisjoint(one.collection for one in self.unread)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Everything to tell beside an answer: what could not be read, then the notes."""
        return (*Unread.texts(self.unread), *self.notes)


def chosen_topologies(snapshot: Snapshot, name: str | None) -> list[Topology]:
    """Return all topologies, or the one of that name.

    Raises AnswerProblem for an unknown one, and where the nodes cannot be read.
    """
    if not snapshot.nodes_known:
        raise AnswerProblem("; ".join(one.text for one in snapshot.unread if one.collection == "nodes"))
    known = snapshot.view.topologies
    if name is not None and name not in known:
        why = why_unusable(known, name) or f"no topology {quote(name)}"
        raise AnswerProblem(f"{why}; there are: {join_comma(tuple(known))}")
    return [one for one in known.values() if name in (None, one.name)]


def ends_of(objects: Iterable[FileObject]) -> dict[str, float]:
    """Return uid -> the latest end of the objects that declare one."""
    return dict(found for one in objects if (found := known_end(one.source)) is not None)


def snapshot_of_files(
    objects: Iterable[FileObject], *, taken: float, policy: Policy | None = None, namespace: str = "default"
) -> Snapshot:
    """Return the snapshot of a cluster in files. Raises FileProblem as `offline_cluster` does."""
    found = list(objects)
    cluster = offline_cluster(found, policy=policy, namespace=namespace)
    return Snapshot(view=cluster.view, taken=taken, ends=ends_of(found), notes=cluster.notes)
