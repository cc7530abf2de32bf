"""How much pods prefer hosts for the pods near them: preferred pod (anti-)affinity, and spread with ScheduleAnyway.

The numbers are the kube-scheduler's: InterPodAffinity and PodTopologySpread score 0 to 100 over the eligible nodes, and
each counts twice. Only pods of others count, running ones and those to come; what those prefer themselves does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from engine.api.pod import PodPreferences, PodTerm, Shape, SpreadConstraint, WeightedPodTerm
from engine.api.workload import PodSet
from engine.capacity.nearby_pods import MAX_QUERIES, PodQuery
from engine.capacity.other_pods import OtherPods
from engine.devices.ledger import Rows
from engine.planner.tree import Bools, Ints64
from engine.topology.topology import Topology

# Different selectors of one gang that count; those that others asked for lately stay counted.
_MAX_SELECTORS: Final = MAX_QUERIES // 2
_AFFINITY_WEIGHT: Final = 2
_SPREAD_WEIGHT: Final = 2
_BEST: Final = 100
_MOST_SKEW: Final = (1 << 31) - 1


def pod_scores(
    pod_sets: Sequence[PodSet],
    shapes: Mapping[str, Shape],
    others: OtherPods,
    *,
    namespace: str,
    topology: Topology,
) -> dict[str, Ints64]:
    """Return the score of each host of the topology for one pod of a pod set, by name; without those that do not care.

    `shapes`: of a pod of each pod set.
    """
    preferring = {one.name: preferred for one in pod_sets if (preferred := one.template.preferred_pods) is not None}
    if not preferring:
        return {}
    queries = dict.fromkeys(query for one in preferring.values() for query in _queries(one, namespace))
    known = list(queries)[:_MAX_SELECTORS]
    others.nearby.count(known)
    counted = _CountedPods(frozenset(known), others)
    found: dict[str, Ints64] = {}
    for name, preferred in preferring.items():
        scores = _scores(shapes[name], preferred, namespace, counted, topology)
        if len(scores) and int(scores.min()) < int(scores.max()):
            found[name] = scores
    return found


def _near(one: WeightedPodTerm) -> PodQuery:
    # The label of the domains does not matter for the pods on a host: terms that differ in it alone are counted once.
    term = one.term
    return PodQuery((PodTerm("", term.selector, term.namespaces, term.namespace_selector),))


def _even(one: SpreadConstraint, namespace: str) -> PodQuery:
    return PodQuery((PodTerm("", one.selector, (namespace,)),), live=True)


def _queries(preferred: PodPreferences, namespace: str) -> list[PodQuery]:
    return [*map(_near, preferred.terms), *(_even(one, namespace) for one in preferred.spread)]


class _CountedPods:
    """The pods of others on each host, by row, for the selectors that count."""

    def __init__(self, queries: frozenset[PodQuery], others: OtherPods) -> None:
        self.capacity = others.capacity
        self._queries = queries
        self._others = others

    def matching(self, query: PodQuery) -> Ints64 | None:
        """Return how many of them a query matches; None for a selector too many."""
        return self._others.matching(query) if query in self._queries else None

    def codes(self, key: str) -> Ints64:
        """Return the domain of a label that each row is in, 0 for none."""
        return self.capacity.label_codes(key)


def _scores(
    shape: Shape, preferred: PodPreferences, namespace: str, others: _CountedPods, topology: Topology
) -> Ints64:
    eligible = others.capacity.eligible(shape, topology)
    found = np.zeros(len(eligible), dtype=np.int64)
    if not eligible.any():
        return found
    hosts = others.capacity.rows_of(topology)
    if preferred.terms:
        found += _AFFINITY_WEIGHT * _affinity(preferred.terms, others, hosts, eligible)
    if preferred.spread:
        even = [(one, _even(one, namespace)) for one in preferred.spread]
        found += _SPREAD_WEIGHT * _spread(even, shape, others, hosts, eligible)
    # No pod goes to the others: they must not count as another score.
    scores: Ints64 = np.where(eligible, found, found[eligible].min())
    return scores


def _affinity(terms: Iterable[WeightedPodTerm], others: _CountedPods, hosts: Rows, eligible: Bools) -> Ints64:
    """Return the weights times the matching pods of each host's domains, scaled from the least to the most."""
    worth: dict[str, Ints64] = {}
    for one in terms:
        there = others.matching(_near(one))
        if there is not None:
            key = one.term.topology_key
            worth[key] = one.weight * there + worth[key] if key in worth else one.weight * there
    total = np.zeros(len(hosts), dtype=np.float64)
    for key, there in worth.items():
        codes = others.codes(key)
        domains = np.bincount(codes, weights=there)
        domains[0] = 0
        total += domains[codes[hosts]]
    least, most = total[eligible].min(), total[eligible].max()
    if least == most:
        return np.zeros(len(hosts), dtype=np.int64)
    scaled: Ints64 = (_BEST * ((total - least) / (most - least))).astype(np.int64)
    return scaled


def _spread(
    constraints: Iterable[tuple[SpreadConstraint, PodQuery]],
    shape: Shape,
    others: _CountedPods,
    hosts: Rows,
    eligible: Bools,
) -> Ints64:
    """Return most for the domains with the fewest matching pods; 0 for hosts without the labels of the domains."""
    every = [(one, query, others.codes(one.topology_key)) for one, query in constraints]
    labelled: Bools = np.logical_and.reduce([codes > 0 for _, _, codes in every])
    counted = eligible & labelled[hosts]
    if not counted.any():
        return np.zeros(len(hosts), dtype=np.int64)
    total = np.zeros(len(hosts), dtype=np.float64)
    for one, query, codes in every:
        there = others.matching(query)
        if there is None:
            continue
        nodes = others.capacity.selected(shape, affinity=one.honor_affinity, taints=one.honor_taints)
        nodes = nodes[: others.capacity.rows] & labelled
        pods = np.bincount(codes[nodes], weights=there[nodes], minlength=int(codes.max()) + 1)
        here = codes[hosts]
        # More domains: each has fewer of the pods, and counts for more.
        factor = math.log(np.count_nonzero(np.bincount(here[counted])) + 2)
        total += pods[here] * factor + (min(one.max_skew, _MOST_SKEW) - 1)
    total = np.floor(total + 0.5)
    least, most = total[counted].min(), total[counted].max()
    scores = _BEST * (most + least - total) // most if most else np.full_like(total, _BEST)
    scaled: Ints64 = np.where(counted, scores, 0).astype(np.int64)
    return scaled
