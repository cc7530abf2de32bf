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

# Selectors that are kept counted, and the labels for which the answer of each of them is kept.
MAX_QUERIES: Final = 256
MAX_ANSWERS: Final = 512
_MAX_KEYS: Final = 8  # of a selector that are looked up one by one
_MAX_PLACES: Final = 8  # under which one term is filed: its namespaces times values of a label
_MANY_CHANGED: Final = 256

Labels = Mapping[str, str]
Terms = tuple[PodTerm, ...]
_Place = tuple[str | None, tuple[str, str | None] | None]  # a namespace, a label and its value; None: any


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
    return _in_namespace(term, namespace) and selects(term.selector, labels)


def keep_away(
    terms: Iterable[PodTerm], namespace: str, labels: Labels, known: Callable[[str], bool]
) -> Iterator[PodTerm]:
    """Yield the terms of anti-affinity that keep away a pod with these labels, one for each topology key.

    A pod with one such term keeps it away from the same domain as with several. `known`: whether some node has a label;
    a topology key that none has keeps nobody away.
    """
    keys: set[str] = set()
    for term in terms:
        if term.topology_key not in keys and known(term.topology_key) and about(term, namespace, labels):
            keys.add(term.topology_key)
            yield term


def _in_namespace(term: PodTerm, namespace: str) -> bool:
    return namespace in term.namespaces or selects(term.namespace_selector, {NAMESPACE_NAME: namespace})


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


class _Matcher:
    """Answers for one query without looking at every label of every pod: most pods differ in a word or two."""

    __slots__ = ("_answers", "_keys", "_query", "_rules", "_spaces", "needles")

    def __init__(self, query: PodQuery) -> None:
        self._query = query
        rules = [one for term in query.terms for one in term.selector or ()]
        self._rules = None if any(term.selector is None for term in query.terms) else tuple(rules)
        self._keys = frozenset(one.key for one in rules)
        words = [
            one.values if one.operator == "In" else (one.key,) for one in rules if one.operator in ("In", "Exists")
        ]
        # A pod that has none of these among its keys and values does not match; None: any pod may.
        self.needles = frozenset(sorted(words, key=len)[0]) if words else None
        self._spaces: dict[str, bool] = {}
        self._answers: dict[tuple[str | None, ...], bool] = {}

    def matches(self, namespace: str, flat: tuple[str, ...], *, deleting: bool) -> bool:
        """Return whether the query matches a pod with these labels."""
        if (deleting and self._query.live) or (self.needles is not None and self.needles.isdisjoint(flat)):
            return False
        known = self._spaces.get(namespace)
        if known is None:
            if len(self._spaces) >= MAX_ANSWERS:
                self._spaces.clear()
            known = self._spaces[namespace] = all(_in_namespace(term, namespace) for term in self._query.terms)
        return known and self._selects(flat)

    def _selects(self, flat: tuple[str, ...]) -> bool:
        answer = self._answers.get(values := self._values(flat))
        if answer is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            answer = self._answers[values] = selects(self._rules, labels_of(flat))
        return answer

    def _values(self, flat: tuple[str, ...]) -> tuple[str | None, ...]:
        """Return the words of a pod's labels that decide the answer."""
        if self._keys.isdisjoint(flat):
            return ()
        if len(self._keys) > _MAX_KEYS:
            return tuple(word for key, value in labels_of(flat).items() if key in self._keys for word in (key, value))
        values: list[str | None] = []
        for key in self._keys:
            place = flat.index(key) if key in flat else -1
            if place > 0 and place % 2:  # first of all it is the value of another label
                values.append(labels_of(flat).get(key))
            else:
                values.append(flat[place + 1] if place >= 0 else None)
        return tuple(values)


@dataclass(slots=True)
class _Counted:
    """The matching pods by host; the array by row is that of `stamp`, but for the hosts that have `changed` since."""

    matcher: _Matcher
    hosts: Counter[str] = field(default_factory=Counter)
    rows: Ints64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    stamp: object = None
    changed: set[str] = field(default_factory=set)


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
        self._forgotten = False  # a query that attracts was dropped since pods last made a plan possible
        self._keeping_away: dict[Terms, Counter[str]] = {}
        self._filed: dict[_Place, dict[Terms, Counter[str]]] = {}
        self._reserved: dict[ReservationKey, dict[str, ReservedPods]] = {}

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_pod(self, old: Pod | None, new: Pod | None) -> bool:
        """Set a pod: None when it is gone, or is new; return whether it may make a plan possible that was not.

        That a pod goes is not told: it frees capacity as well.
        """
        before, after = _seen(old), _seen(new)
        if before == after:
            return False
        possible = False
        for pod, one, by in ((old, before, -1), (new, after, 1)):
            if pod is not None and one is not None:
                changed = self._count(one[0], pod.namespace, pod.spec.own_labels, deleting=pod.deleting, by=by)
                # A pod with other labels may no longer be one that others keep away from.
                possible |= changed or (before is not None and after is not None and before[1] != after[1])
                self._keep_away(one[0], one[3], by)
        if possible:
            self._forgotten = False
        return possible

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

    def count(self, queries: Iterable[PodQuery]) -> None:
        """Start to count for several queries, in one pass over all pods instead of one for each."""
        fresh: dict[PodQuery, _Counted] = {}
        for query in queries:
            if query in self._queries:
                self._queries.move_to_end(query)
            else:
                fresh[query] = _Counted(_Matcher(query))
        if len(fresh) <= 1:
            for query in fresh:
                self._counted(query)
            return
        # Pods of one template have equal labels.
        known: dict[tuple[str, tuple[str, ...]], list[tuple[bool, Counter[str]]]] = {}
        for pod in self._pods():
            host = pod.spec.node_name or pod.nominated_node
            if not host or pod.finished:
                continue
            same = pod.namespace, pod.spec.own_labels
            matching = known.get(same)
            if matching is None:
                matching = known[same] = [
                    (query.live, counted.hosts)
                    for query, counted in fresh.items()
                    if counted.matcher.matches(*same, deleting=False)
                ]
            for live, hosts in matching:
                if not (live and pod.deleting):
                    hosts[host] += 1
        for query, counted in fresh.items():
            self._keep(query, counted)

    def by_row(self, query: PodQuery, rows: Mapping[str, int], *, size: int, stamp: object) -> Ints64:
        """Return the number of matching pods on each host, by its row of `size` rows; not to be written to, nor kept.

        `rows`: host -> row, the same as long as `stamp` is.
        """
        counted = self._counted(query)
        if counted.stamp != stamp or len(counted.rows) != size:
            counted.rows, counted.stamp = np.zeros(size, dtype=np.int64), stamp
            counted.changed.update(counted.hosts)
        for host in counted.changed:
            if (row := rows.get(host)) is not None:
                counted.rows[row] = counted.hosts[host]
        counted.changed.clear()
        return counted.rows

    @property
    def keeps_away(self) -> bool:
        """True when some pod keeps others away."""
        return bool(self._keeping_away)

    def keeping_away(
        self, namespace: str, labels: Labels, known: Callable[[str], bool]
    ) -> Iterator[tuple[PodTerm, Mapping[str, int]]]:
        """Yield the terms of pods that `keep_away` a pod with these labels, with the hosts of those."""
        found: dict[int, tuple[Terms, Mapping[str, int]]] = {}
        for space in (namespace, None):
            for pair in (*labels.items(), *((key, None) for key in labels), None):
                for terms, hosts in self._filed.get((space, pair), {}).items():
                    found[id(hosts)] = terms, hosts
        for terms, there in found.values():
            for term in keep_away(terms, namespace, labels, known):
                yield term, there

    def reserved(self, key: ReservationKey) -> Iterable[ReservedPods]:
        """Return the pods to come of a key."""
        return self._reserved.get(key, {}).values()

    # -- internal ----------------------------------------------------------------------------------------------------

    def _counted(self, query: PodQuery) -> _Counted:
        counted = self._queries.get(query)
        if counted is None:
            matcher = _Matcher(query)
            counted = _Counted(matcher)
            needles = matcher.needles
            for pod in self._pods():
                flat = pod.spec.own_labels
                if needles is not None and needles.isdisjoint(flat):
                    continue
                host = pod.spec.node_name or pod.nominated_node
                if host and not pod.finished and matcher.matches(pod.namespace, flat, deleting=pod.deleting):
                    counted.hosts[host] += 1
            self._keep(query, counted)
        self._queries.move_to_end(query)
        return counted

    def _keep(self, query: PodQuery, counted: _Counted) -> None:
        """Add a query with its running pods counted; those to come are added here."""
        for of_key in self._reserved.values():
            for one in of_key.values():
                if query.matches(one.namespace, one.labels):
                    _add(counted, one.hosts, 1)
        self._queries[query] = counted
        if len(self._queries) > MAX_QUERIES:
            dropped, _ = self._queries.popitem(last=False)
            self._forgotten |= dropped.attracts

    def _count(self, host: str, namespace: str, flat: tuple[str, ...], *, deleting: bool, by: int) -> bool:
        possible = self._forgotten and by > 0
        for query, counted in self._queries.items():
            if counted.matcher.matches(namespace, flat, deleting=deleting):
                _add(counted, {host: 1}, by)
                possible |= query.attracts and by > 0
        return possible

    def _keep_away(self, host: str, terms: Terms, by: int) -> None:
        if not terms:
            return
        hosts = self._keeping_away.get(terms)
        if hosts is None:
            hosts = self._keeping_away[terms] = Counter()
            for place in _places(terms):
                self._filed.setdefault(place, {})[terms] = hosts
        hosts[host] += by
        if not hosts[host]:
            del hosts[host]
            if not hosts:
                del self._keeping_away[terms]
                for place in _places(terms):
                    del self._filed[place][terms]
                    if not self._filed[place]:
                        del self._filed[place]


def _places(terms: Terms) -> set[_Place]:
    """Return where terms are filed, so that those about a pod are found by its namespace and labels."""
    found: set[_Place] = set()
    for term in terms:
        spaces: tuple[str | None, ...] = term.namespaces
        if term.namespace_selector is not None or len(spaces) > _MAX_PLACES:
            spaces = (None,)
        pairs: list[tuple[str, str | None] | None] = [None]
        wanted = [one for one in term.selector or () if one.operator in ("In", "Exists")]
        if wanted:
            chosen = min(wanted, key=lambda one: len(one.values) or _MAX_PLACES + 1)
            values = chosen.values if len(spaces) * len(chosen.values) <= _MAX_PLACES else ()
            pairs = [(chosen.key, value) for value in values or (None,)]
        found.update((space, pair) for space in spaces for pair in pairs)
    return found


def _add(counted: _Counted, hosts: Mapping[str, int], sign: int) -> None:
    for host, number in hosts.items():
        counted.hosts[host] += sign * number
        if not counted.hosts[host]:
            del counted.hosts[host]
        if counted.stamp is not None:
            counted.changed.add(host)
    if len(counted.changed) > len(counted.hosts) + _MANY_CHANGED:  # nobody asks: hosts that are gone must not add up
        counted.stamp, counted.rows = None, np.zeros(0, dtype=np.int64)
        counted.changed.clear()


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
