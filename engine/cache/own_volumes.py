"""The nodes that reach the existing volumes of a pod set's own claims (`volumeClaimTemplates`), for all pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.api.objects import Node
from engine.api.pod import SelectorTerm
from engine.api.text import sanitize
from engine.api.workload import PodSet, Workload
from engine.cache.stores import Stores
from engine.resources.shape import term_matches

Terms = tuple[SelectorTerm, ...]

_MAX_CLAIMS: Final = 20_000  # of one series; more say nothing that can be planned for
_MAX_KEPT: Final = 256  # sets of hosts, and answers
_MAX_NAME: Final = 24  # of a claim in a warning, which has 120 characters and may name two


@dataclass(frozen=True, slots=True)
class OwnVolumes:
    """What the existing volumes of a pod set's own claims say about all of its pods.

    `terms`: as in `Shape.volumes`. `problem`: why some volumes are not planned for, "" if all are.
    """

    terms: tuple[Terms, ...] = ()
    problem: str = ""


_NONE: Final = OwnVolumes()


class OwnVolumeReader:
    """Reads the volumes of claims `<series>-<ordinal>`. From any thread.

    The pods of a set have one shape, so their volumes count only where one set of hosts is right for all of them: a
    restriction is never passed on to a pod that does not have it, except to pods of a gang that has no slots yet.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._hosts: dict[Terms, frozenset[str]] = {}
        self._answers: dict[tuple[object, ...], OwnVolumes] = {}
        stores.nodes.subscribe(self._node_changed)
        stores.volume_claims.subscribe(self._volume_changed)
        stores.volumes.subscribe(self._volume_changed)

    def of(self, workload: Workload, pod_set: PodSet, fixed: Iterable[Terms], *, placed: bool) -> OwnVolumes:
        """Return the volumes of a pod set; `fixed`: what its other volumes require, `placed`: its gang has slots.

        Volumes that no host reaches together are left out, and named. So are volumes on one single host while other
        pods have none: those would get theirs elsewhere.
        """
        if not pod_set.claim_series:
            return _NONE
        fixed = tuple(fixed)
        kept = self._answers  # another one as soon as something changes
        about = (workload.namespace, pod_set.claim_series, pod_set.first_ordinal, pod_set.slots, fixed, placed)
        found = kept.get(about)
        if found is None:
            found = self._read(workload.namespace, pod_set, fixed, placed=placed)
            if len(kept) < _MAX_KEPT:
                kept[about] = found
        return found

    def _read(self, namespace: str, pod_set: PodSet, fixed: tuple[Terms, ...], *, placed: bool) -> OwnVolumes:
        reach, ordinals = self._bound(namespace, pod_set)
        whole = len(ordinals) == pod_set.slots
        if not reach or (placed and not whole):
            return _NONE  # the slots of other pods are theirs, wherever these volumes are
        terms = tuple(reach)
        if whole and len(reach) == 1 and not fixed:
            return OwnVolumes(terms)
        hosts: frozenset[str] | None = None
        for one in fixed:
            hosts = self._within(hosts, one)
        for number, (one, name) in enumerate(reach.items()):
            others = hosts
            hosts = self._within(hosts, one)
            if hosts or (others is not None and not others):
                continue
            if number:
                apart = (known for known in terms[:number] if not self._within(self._hosts_of(known), one))
                first = reach[next(apart, terms[0])]
                return OwnVolumes(problem=f"volumes of claims {_shown(first)} and {_shown(name)}: no host reaches both")
            if fixed:
                return OwnVolumes(
                    problem=f"the volume of claim {_shown(name)}: no host reaches it and the other volumes"
                )
        if not whole and hosts is not None and len(hosts) <= 1:
            name = _shown(next(iter(reach.values())))
            return OwnVolumes(problem=f"the volume of claim {name}: it is on one host, and other pods have none yet")
        return OwnVolumes(terms)

    def _bound(self, namespace: str, pod_set: PodSet) -> tuple[dict[Terms, str], set[int]]:
        """Return, of the claims that have a volume, the first name by what it requires, and all ordinals."""
        last, reach, ordinals = pod_set.first_ordinal + pod_set.slots, dict[Terms, str](), set[int]()
        for series in dict.fromkeys(pod_set.claim_series):
            claims = self._stores.volume_claims.get_by((namespace, series))
            for ordinal, claim in sorted((int(one.name[len(series) + 1 :]), one) for one in claims[:_MAX_CLAIMS]):
                if not pod_set.first_ordinal <= ordinal < last:
                    continue
                volume = self._stores.volumes.get(claim.volume) if claim.volume else None
                if volume is not None:
                    ordinals.add(ordinal)
                    if volume.terms is not None:
                        reach.setdefault(volume.terms, claim.name)
        return reach, ordinals

    def _within(self, hosts: frozenset[str] | None, terms: Terms) -> frozenset[str]:
        found = self._hosts_of(terms)
        return found if hosts is None else hosts & found

    def _hosts_of(self, terms: Terms) -> frozenset[str]:
        kept = self._hosts  # another one as soon as labels change
        found = kept.get(terms)
        if found is None:
            nodes = self._stores.nodes.values()
            found = frozenset(one.name for one in nodes if any(term_matches(term, one) for term in terms))
            if len(kept) < _MAX_KEPT:
                kept[terms] = found
        return found

    def _node_changed(self, _key: object, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or old.labels != new.labels:
            self._hosts, self._answers = {}, {}

    def _volume_changed(self, _key: object, old: object, new: object) -> None:
        if old != new:  # not its status alone
            self._answers = {}


def _shown(claim: str) -> str:
    return sanitize(claim, _MAX_NAME)
