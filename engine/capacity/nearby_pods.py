"""Counts on each host the pods that selectors match, and knows which pods there keep others away.

Nothing is counted for a selector before somebody asks; then the count is kept up to date with every change of a pod.
Slots that are reserved for pods to come count as those pods.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from engine.api.pod import NAMESPACE_NAME, LabelSelector, Pod, PodTerm
from engine.api.workload import PodSet, ReservationKey
from engine.planner.tree import Ints64

# Selectors that are kept counted, and labels for which the terms of others are kept sorted out.
MAX_QUERIES: Final = 256
MAX_SUBJECTS: Final = 256

Labels = Mapping[str, str]
Terms = tuple[PodTerm, ...]


def labels_of(flat: tuple[str, ...]) -> dict[str, str]:
    """Return the labels of `PodSpec.own_labels`."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def pod_labels(pod_set: PodSet) -> dict[str, str]:
    """Return the labels of a pod set's pods, as far as they are known before they exist."""
    known = {key: value for key, value in pod_set.selector if value is not None}
    return {**labels_of(pod_set.template.own_labels), **known}


def selects(selector: LabelSelector, labels: Labels) -> bool:
    """Return whether a label selector matches labels."""
    if selector is None:
        return False
    for one in selector:
        value = labels.get(one.key)
        match one.operator:
            case "In":
                holds = value is not None and value in one.values
            case "NotIn":
                holds = value is None or value not in one.values
            case "Exists":
                holds = value is not None
            case "DoesNotExist":
                holds = value is None
            case _:
                holds = False
        if not holds:
            return False
    return True


def about(term: PodTerm, namespace: str, labels: Labels) -> bool:
    """Return whether a term is about pods with these labels in this namespace."""
    known = namespace in term.namespaces or selects(term.namespace_selector, {NAMESPACE_NAME: namespace})
    return known and selects(term.selector, labels)


@dataclass(frozen=True, slots=True)
class PodQuery:
    """The pods that every one of these terms is about; `live`: without those that are being deleted.

    `attracts`: more of them may make a plan possible.
    """

    terms: Terms
    live: bool = False
    attracts: bool = False

    def matches(self, namespace: str, labels: Labels, *, deleting: bool = False) -> bool:
        """Return whether a pod with these labels is one of them."""
        return not (deleting and self.live) and all(about(term, namespace, labels) for term in self.terms)


@dataclass(slots=True)
class _Counted:
    """The matching pods by host; the array by row is that of `version` and `stamp`."""

    hosts: Counter[str] = field(default_factory=Counter)
    version: int = 0
    rows: Ints64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    made: tuple[int, object] | None = None


@dataclass(frozen=True, slots=True)
class ReservedPods:
    """Equal pods to come: their number by host, their namespace and labels, and whom they keep away."""

    namespace: str
    labels: Labels
    anti_affinity: Terms
    hosts: Mapping[str, int]


class NearbyPods:
    """The pods on every host as the terms of others see them; not thread-safe."""

    def __init__(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """`pods`: all pods, as they were applied."""
        self._pods = pods
        self._queries: OrderedDict[PodQuery, _Counted] = OrderedDict()
        self._keeping_away: dict[Terms, Counter[str]] = {}
        self._added: list[Terms] = []  # every group of terms at the time when it came
        self._subjects: OrderedDict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, dict[Terms, Terms]]] = (
            OrderedDict()
        )
        self._reserved: dict[ReservationKey, dict[str, ReservedPods]] = {}

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_pod(self, old: Pod | None, new: Pod | None) -> bool:
        """Set a pod: None when it is gone, or is new; return whether it may make a plan possible that was not."""
        before, after = _seen(old), _seen(new)
        if before == after:
            return False
        attracts = False
        for pod, one, by in ((old, before, -1), (new, after, 1)):
            if pod is not None and one is not None:
                attracts |= self._count(one[0], pod.namespace, pod.spec.own_labels, deleting=pod.deleting, by=by)
                self._keep_away(one[0], one[3], by)
        return attracts

    def reserve(
        self, key: ReservationKey, name: str, hosts: Mapping[str, int], *, namespace: str, pod_set: PodSet | None
    ) -> None:
        """Replace the pods to come of a key's pod set: host -> number; without a pod set none come."""
        of_key = self._reserved.setdefault(key, {})
        before, after = of_key.pop(name, None), None
        if hosts and pod_set is not None:
            constraints = pod_set.template.constraints
            terms = constraints.anti_affinity if constraints is not None else ()
            after = ReservedPods(namespace, pod_labels(pod_set), terms, dict(hosts))
        if after is not None:
            of_key[name] = after
        elif not of_key:
            del self._reserved[key]
        if before == after:
            return
        for one, sign in ((before, -1), (after, 1)):
            if one is None:
                continue
            for query, counted in self._queries.items():
                if query.matches(one.namespace, one.labels):
                    _add(counted, one.hosts, sign)
            for host, number in one.hosts.items() if one.anti_affinity else ():
                self._keep_away(host, one.anti_affinity, sign * number)

    # -- reading -----------------------------------------------------------------------------------------------------

    def by_row(self, query: PodQuery, rows: Mapping[str, int], *, size: int, stamp: object) -> Ints64:
        """Return the number of matching pods on each host, by its row of `size` rows; it must not be written to.

        `rows`: host -> row, the same as long as `stamp` is.
        """
        counted = self._counted(query)
        if counted.made != (counted.version, stamp) or len(counted.rows) != size:
            counted.rows = np.zeros(size, dtype=np.int64)
            there = [(row, number) for host, number in counted.hosts.items() if (row := rows.get(host)) is not None]
            if there:
                places, numbers = zip(*there, strict=True)
                counted.rows[list(places)] = numbers
            counted.made = (counted.version, stamp)
        return counted.rows

    @property
    def keeps_away(self) -> bool:
        """True when some pod keeps others away."""
        return bool(self._keeping_away)

    def keeping_away(self, namespace: str, labels: Labels) -> Iterator[tuple[PodTerm, Terms, Mapping[str, int]]]:
        """Yield the terms of anti-affinity of pods that are about a pod with these labels, with the hosts of those.

        With each term come all terms of the same pods, by which the pods can be told from others.
        """
        subject = (namespace, tuple(sorted(labels.items())))
        seen, found = self._subjects.get(subject, (0, {}))
        for terms in self._added[seen:]:
            if terms in self._keeping_away and (matching := tuple(t for t in terms if about(t, namespace, labels))):
                found[terms] = matching
        self._subjects[subject] = (len(self._added), found)
        self._subjects.move_to_end(subject)
        if len(self._subjects) > MAX_SUBJECTS:
            self._subjects.popitem(last=False)
        for terms, matching in list(found.items()):
            hosts = self._keeping_away.get(terms)
            if hosts is None:
                del found[terms]
                continue
            for term in matching:
                yield term, terms, hosts

    def reserved(self, key: ReservationKey) -> Iterable[ReservedPods]:
        """Return the pods to come of a key."""
        return self._reserved.get(key, {}).values()

    # -- internal ----------------------------------------------------------------------------------------------------

    def _counted(self, query: PodQuery) -> _Counted:
        counted = self._queries.get(query)
        if counted is None:
            counted = self._queries[query] = _Counted()
            known: dict[tuple[str, tuple[str, ...]], bool] = {}  # pods of one template have equal labels
            for pod in self._pods():
                host = pod.spec.node_name or pod.nominated_node
                if not host or pod.finished or (pod.deleting and query.live):
                    continue
                same = pod.namespace, pod.spec.own_labels
                matches = known.get(same)
                if matches is None:
                    matches = known[same] = query.matches(pod.namespace, labels_of(pod.spec.own_labels))
                if matches:
                    counted.hosts[host] += 1
            for of_key in self._reserved.values():
                for one in of_key.values():
                    if query.matches(one.namespace, one.labels):
                        _add(counted, one.hosts, 1)
            if len(self._queries) > MAX_QUERIES:
                self._queries.popitem(last=False)
        self._queries.move_to_end(query)
        return counted

    def _count(self, host: str, namespace: str, flat: tuple[str, ...], *, deleting: bool, by: int) -> bool:
        if not self._queries:
            return False
        labels, attracts = labels_of(flat), False
        for query, counted in self._queries.items():
            if query.matches(namespace, labels, deleting=deleting):
                _add(counted, {host: 1}, by)
                attracts |= query.attracts and by > 0
        return attracts

    def _keep_away(self, host: str, terms: Terms, by: int) -> None:
        if not terms:
            return
        hosts = self._keeping_away.get(terms)
        if hosts is None:
            hosts = self._keeping_away[terms] = Counter()
            self._added.append(terms)
            if len(self._added) > 2 * len(self._keeping_away) + MAX_SUBJECTS:
                self._added = list(self._keeping_away)
                self._subjects.clear()
        hosts[host] += by
        if not hosts[host]:
            del hosts[host]
            if not hosts:
                del self._keeping_away[terms]


def _add(counted: _Counted, hosts: Mapping[str, int], sign: int) -> None:
    for host, number in hosts.items():
        counted.hosts[host] += sign * number
        if not counted.hosts[host]:
            del counted.hosts[host]
    counted.version += 1


def _seen(pod: Pod | None) -> tuple[str, tuple[str, ...], bool, Terms] | None:
    """Return what others see of a pod: its host, labels, whether it goes, its terms; None for a pod without a host."""
    if pod is None or pod.finished:
        return None
    host = pod.spec.node_name or pod.nominated_node
    if not host:
        return None
    constraints = pod.spec.constraints
    return host, pod.spec.own_labels, pod.deleting, constraints.anti_affinity if constraints is not None else ()


def hosted(pods: Iterable[Pod]) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that count on a host, with the host."""
    for pod in pods:
        if (seen := _seen(pod)) is not None:
            yield pod, seen[0]
