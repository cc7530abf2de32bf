"""What the pods of a gang, of other gangs and of anybody else require of each other, as hosts and caps of a topology.

The rules are those of the scheduler's InterPodAffinity and PodTopologySpread. The gang's own pods are placed together,
so what they require of each other becomes a cap per domain, a common domain, or domains apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Final

import numpy as np

from engine.api.pod import LabelSelector, PodConstraints, PodTerm, Shape, SpreadConstraint
from engine.api.text import sanitize
from engine.capacity.domain_caps import DomainCap, Skew, capped
from engine.capacity.label_domains import LabelDomains
from engine.capacity.nearby_pods import Labels, PodQuery, about, selects
from engine.capacity.other_pods import OtherPods
from engine.planner.tree import Bools, Ints64, Tree
from engine.resources.shape import EXCLUDED_BY
from engine.topology.topology import Topology

# Ways to choose domains that are tried, of all rules together; and ways to give one pod set domains of its own.
MAX_CHOICES: Final = 256
# Ways in all that are tried for equal pods: each costs a plan.
MAX_WAYS: Final = 512
_TRIES: Final = 8
_MAX_SELECTOR: Final = 60  # characters of a selector in a message
_MAX_WORDS: Final = 240  # of a reason: with a topologyKey of usual length nothing is cut
AFFINITY: Final = "podAffinity"
ANTI_AFFINITY: Final = "podAntiAffinity"
SPREAD: Final = "topologySpreadConstraints"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPods:
    """The pods of one pod set that are planned; `kept`: the hosts of those that stay where they are."""

    name: str
    namespace: str
    labels: Labels
    constraints: PodConstraints | None
    shape: Shape
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """All pods of some pod sets have to be in one domain of a label."""

    why: str
    domains: LabelDomains
    pod_sets: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Apart:
    """No pod of one pod set may share a domain with one of the others."""

    why: str
    domains: LabelDomains
    pod_set: str
    others: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class PodRules:
    """The rules for one plan: per pod set the hosts that it may not use, by reason; then those among its own pods."""

    barred: Mapping[str, Mapping[str, Bools]] = field(default_factory=dict)
    caps: tuple[DomainCap, ...] = ()
    together: tuple[Together, ...] = ()
    apart: tuple[Apart, ...] = ()

    def barred_for(self, pod_set: str) -> Mapping[str, Bools]:
        """Return the hosts that a pod set may not use, by reason."""
        return self.barred.get(pod_set, {})

    def caps_for(self, pod_set: str) -> tuple[DomainCap, ...]:
        """Return the caps for the pods of a pod set."""
        return tuple(cap for cap in self.caps if pod_set in cap.pod_sets)

    @property
    def among(self) -> Iterator[str]:
        """The reasons of the rules among the gang's own pods."""
        for rules in (self.caps, self.together, self.apart):
            yield from (rule.why for rule in rules)

    @property
    def among_own(self) -> bool:
        """True when the pods of the gang may not be placed independently of each other."""
        return bool(self.caps or self.together or self.apart)

    @property
    def chooses(self) -> bool:
        """True when a plan is made in one of several choices of domains, so that another one may use fewer domains."""
        return bool(self.together or self.apart)

    @property
    def among_pod_sets(self) -> bool:
        """True when pods of several pod sets may not be placed independently of each other: a plan may be missed."""
        shared = (*(cap.pod_sets for cap in self.caps), *(rule.pod_sets for rule in self.together))
        return bool(self.apart) or any(len(pod_sets) > 1 for pod_sets in shared)

    def ways(
        self, name: str, tree: Tree, slots: Ints64, *, count: int, require: int | None, grain: Sequence[int]
    ) -> Iterator[Ints64]:
        """Yield the slots that equal pods of one pod set may use, one way after the other; a plan on any will do.

        `require`: the level of which one domain holds all of them; `grain` as of the planner's sums.
        """
        caps = self.caps_for(name)
        every = (
            way
            for allowed in self.choices({name: slots}, {name: count})
            for way in capped(
                tree,
                np.where(allowed[name], slots, 0) if name in allowed else slots,
                caps,
                count=count,
                require=require,
                grain=grain,
            )
        )
        yield from islice(every, MAX_WAYS)

    def choices(self, slots: Mapping[str, Ints64], counts: Mapping[str, int]) -> Iterator[Mapping[str, Bools]]:
        """Yield the hosts that pod sets may use so that they are in one domain, or in domains apart, where they must.

        `slots` and `counts`: of each pod set alone, for the pods that are still to be placed.
        """
        every = [_one_domain(rule, slots, counts) for rule in self.together]
        every += [_domains_apart(rule, slots, counts) for rule in self.apart]
        for combination in islice(product(*every), MAX_CHOICES):
            allowed: dict[str, Bools] = {}
            for choice in combination:
                for name, hosts in choice.items():
                    allowed[name] = allowed[name] & hosts if name in allowed else hosts
            yield allowed

    def keeps(self, placed: Mapping[str, Ints64]) -> bool:
        """Return whether these new pods, by pod set and host, satisfy the rules in the end."""
        for name, pods in placed.items():
            if any((pods[hosts] > 0).any() for hosts in self.barred_for(name).values()):
                return False
        for cap in self.caps:
            together = _pods_of(cap.pod_sets, placed)
            if together is not None and not cap.keeps(together):
                return False
        for rule in self.together:
            together = _pods_of(rule.pod_sets, placed)
            if together is not None and len(np.unique(rule.domains.codes[together > 0])) > 1:
                return False
        for apart in self.apart:
            if (own := placed.get(apart.pod_set)) is None:
                continue
            codes = apart.domains.codes[own > 0]
            for other in apart.others & placed.keys():
                if np.intersect1d(codes[codes > 0], apart.domains.codes[placed[other] > 0]).size:
                    return False
        return True


def _pods_of(pod_sets: Iterable[str], placed: Mapping[str, Ints64]) -> Ints64 | None:
    """Return the pods of some pod sets by host; None if none of them is placed."""
    found = [placed[name] for name in pod_sets if name in placed]
    total: Ints64 | None = np.sum(found, axis=0) if found else None
    return total


def _one_domain(rule: Together, slots: Mapping[str, Ints64], counts: Mapping[str, int]) -> list[Mapping[str, Bools]]:
    """Return the domains with room for all pods, the tightest first; the largest one when there is none."""
    names = [name for name in sorted(rule.pod_sets) if counts.get(name)]
    if not names:
        return [{}]
    sums = {name: rule.domains.sums(slots[name]) for name in names}
    fits = np.logical_and.reduce([sums[name] >= counts[name] for name in names])
    fits[0] = False
    total = np.sum(list(sums.values()), axis=0)
    total[0] = -1
    first, codes = rule.domains.first, np.flatnonzero(fits)
    if len(codes):
        codes = codes[np.lexsort((first[codes], total[codes]))][:MAX_CHOICES]
    else:
        codes = np.lexsort((first, -total))[:1]
    return [dict.fromkeys(names, rule.domains.codes == code) for code in codes.tolist()]


def _domains_apart(rule: Apart, slots: Mapping[str, Ints64], counts: Mapping[str, int]) -> list[Mapping[str, Bools]]:
    """Return ways to give a pod set domains of its own: those that the others need least, as many as it needs."""
    others = [name for name in sorted(rule.others) if counts.get(name)]
    if not counts.get(rule.pod_set) or not others:
        return [{}]
    own = rule.domains.sums(slots[rule.pod_set])
    own[0] = 0
    codes = np.flatnonzero(own > 0)
    lost = np.sum([rule.domains.sums(slots[name]) for name in others], axis=0)
    codes = codes[np.lexsort((rule.domains.first[codes], -own[codes], lost[codes]))]
    found: list[Mapping[str, Bools]] = []
    for start in range(min(len(codes), _TRIES)):
        rotated = np.concatenate((codes[start:], codes[:start]))
        number = int(np.searchsorted(np.cumsum(own[rotated]), counts[rule.pod_set])) + 1
        mine = np.isin(rule.domains.codes, rotated[:number])
        found.append({rule.pod_set: mine | (rule.domains.codes == 0), **dict.fromkeys(others, ~mine)})
    return found or [{}]


def pod_rules(sets: Sequence[PlannedPods], others: OtherPods, *, topology: Topology) -> PodRules | None:
    """Return the rules for pods of these sets; None when there are none."""
    if not others.nearby.keeps_away and all(one.constraints is None for one in sets):
        return None
    compiler = _Compiler(sets, others, topology)
    for one in sets:
        compiler.kept_away_by_others(one)
        if one.constraints is None:
            continue
        if one.constraints.affinity:
            compiler.affinity(one, one.constraints.affinity)
        for term in one.constraints.anti_affinity:
            compiler.anti_affinity(one, term)
        for constraint in one.constraints.spread:
            compiler.spread(one, constraint, one.constraints.spread)
    return compiler.rules()


class _Compiler:
    def __init__(self, sets: Sequence[PlannedPods], others: OtherPods, topology: Topology) -> None:
        self._sets = sets
        self._others = others
        self._capacity = others.capacity
        self._topology, self._tree = topology, topology.tree
        self._rows = self._capacity.rows_of(topology)
        self._barred: dict[str, dict[str, Bools]] = {}
        self._caps: list[DomainCap] = []
        self._together: list[Together] = []
        self._apart: list[Apart] = []

    def rules(self) -> PodRules | None:
        if not (self._barred or self._caps or self._together or self._apart):
            return None
        return PodRules(self._barred, _merged(self._caps), tuple(self._together), tuple(self._apart))

    # -- the rules ---------------------------------------------------------------------------------------------------

    def kept_away_by_others(self, one: PlannedPods) -> None:
        """Leave out the domains of pods with anti-affinity to these."""
        found = self._others.keeping_away(one.namespace, one.labels)  # in the order in which the pods came
        for key, there in sorted(found.items()):
            self._bar(one.name, _words(f"{ANTI_AFFINITY} of other pods", key, None), key, there)

    def affinity(self, one: PlannedPods, terms: tuple[PodTerm, ...]) -> None:
        """Bind the pods to domains with a matching pod; the first pods of a kind to one domain of their own."""
        query = PodQuery(terms, attracts=True)
        places = np.flatnonzero(self._existing(query) > 0)
        found = [(term, self._codes(term.topology_key)[places]) for term in terms]
        if any(codes.any() for _, codes in found):
            for term, codes in found:
                domains = self._domains(term.topology_key)
                without = np.ones(domains.size, dtype=np.bool_)
                without[codes] = False
                without[0] = True
                self._exclude(one.name, _words(AFFINITY, term.topology_key, term.selector), domains, without)
            return
        matching = {other.name for other in self._sets if query.matches(other.namespace, other.labels)}
        for term, _ in found:
            words, domains = _words(AFFINITY, term.topology_key, term.selector), self._domains(term.topology_key)
            if matching:
                self._exclude_unlabelled(one.name, words, domains)
                self._together.append(Together(words, domains, frozenset(matching | {one.name})))
            else:
                self._exclude(one.name, words, domains, np.ones(domains.size, dtype=np.bool_))

    def anti_affinity(self, one: PlannedPods, term: PodTerm) -> None:
        """Leave out the domains with a pod that the term is about, and keep the gang's own such pods apart."""
        words = _words(ANTI_AFFINITY, term.topology_key, term.selector)
        self._bar(one.name, words, term.topology_key, self._existing(PodQuery((term,))))
        matching = {other.name for other in self._sets if about(term, other.namespace, other.labels)}
        if one.kept:
            kept = self._kept(one)
            for name in matching:
                self._bar(name, words, term.topology_key, kept)
        like = {
            other.name
            for other in self._sets
            if other.name in matching and other.constraints is not None and term in other.constraints.anti_affinity
        }
        domains = self._domains(term.topology_key)
        if one.name in matching and not term.claimed:
            limit = np.ones(domains.size, dtype=np.int64)
            self._caps.append(DomainCap(words, domains, limit, frozenset(like)))
        others = matching - like if one.name in matching else matching - {one.name}
        if others:
            self._apart.append(Apart(words, domains, one.name, frozenset(others)))

    def spread(self, one: PlannedPods, constraint: SpreadConstraint, every: tuple[SpreadConstraint, ...]) -> None:
        """Cap the pods of each domain by the domain with the fewest."""
        codes, domains = self._codes(constraint.topology_key), self._domains(constraint.topology_key)
        words = _words(SPREAD, constraint.topology_key, constraint.selector)
        term = PodTerm(constraint.topology_key, constraint.selector, (one.namespace,))
        nodes, counted = self._capacity.spread_nodes(
            one.shape,
            constraint.topology_key,
            (other.topology_key for other in every),
            affinity=constraint.honor_affinity,
            taints=constraint.honor_taints,
        )
        self._exclude_unlabelled(one.name, words, domains)
        there = self._existing(PodQuery((term,), live=True, attracts=True))
        places = np.flatnonzero(there)
        places = places[nodes[places]]
        existing = np.bincount(codes[places], weights=there[places], minlength=domains.size).astype(np.int64)
        skew = Skew(
            existing, counted, constraint.max_skew, fixed=int(np.count_nonzero(counted)) < constraint.min_domains
        )
        if not selects(constraint.selector, one.labels):
            self._exclude(one.name, words, domains, existing - skew.least > constraint.max_skew)
            return
        matching = frozenset(
            other.name
            for other in self._sets
            if other.namespace == one.namespace and selects(constraint.selector, other.labels)
        )
        limit = skew.limits(skew.least)
        self._caps.append(DomainCap(words, domains, limit, matching, skew))
        if constraint.min_domains > 1 and constraint.honor_affinity:
            # A placed pod may use one host only. That host is then the only domain that the scheduler counts, fewer
            # than minDomains, so that it takes the fewest pods of any domain for 0.
            number = len(self._rows)
            hosts = LabelDomains("", self._tree, np.arange(1, number + 1, dtype=np.int64), number + 1)
            left = np.maximum(constraint.max_skew - there[self._rows], 0)
            fewest = f"{words} (minDomains of a pod that is bound to one host)"
            self._caps.append(DomainCap(fewest, hosts, np.concatenate(([0], left)), matching))

    # -- what the rules are made of ----------------------------------------------------------------------------------

    @property
    def _size(self) -> int:
        return self._capacity.rows

    def _codes(self, key: str) -> Ints64:
        """Return the domain of a label that each row is in, 0 for none."""
        return self._capacity.label_codes(key)

    def _domains(self, key: str) -> LabelDomains:
        return self._capacity.domains(key, self._topology)

    def _existing(self, query: PodQuery) -> Ints64:
        """Return the matching pods by row: those of others, and of the gang those that stay where they are."""
        there = self._others.matching(query)
        for one in self._sets:
            if one.kept and query.matches(one.namespace, one.labels):
                there = there + self._kept(one)
        return there

    def _kept(self, one: PlannedPods) -> Ints64:
        there = np.zeros(self._size, dtype=np.int64)
        np.add.at(there, self._others.rows(one.kept), 1)
        return there

    def _bar(self, name: str, words: str, key: str, there: Ints64) -> None:
        """Leave out the domains with any of the pods that are `there` by row; hosts without the label stay."""
        places = np.flatnonzero(there > 0)
        if not len(places):
            return
        domains = self._domains(key)
        taken = np.zeros(domains.size, dtype=np.bool_)
        taken[self._codes(key)[places]] = True
        taken[0] = False
        self._exclude(name, words, domains, taken)

    def _exclude_unlabelled(self, name: str, words: str, domains: LabelDomains) -> None:
        if not domains.every:
            self._exclude(name, words, domains, np.arange(domains.size) == 0)

    def _exclude(self, name: str, words: str, domains: LabelDomains, out: Bools) -> None:
        """Leave out the hosts of domains that are `out`, by code."""
        hosts = domains.hosts_in(out)
        if hosts.any():
            of_set = self._barred.setdefault(name, {})
            of_set[words] = of_set[words] | hosts if words in of_set else hosts


def _merged(caps: Iterable[DomainCap]) -> tuple[DomainCap, ...]:
    """Return the caps without those that other pod sets have brought already."""
    found: list[DomainCap] = []
    for cap in caps:
        if not any(_same(cap, known) for known in found):
            found.append(cap)
    return tuple(found)


def _same(cap: DomainCap, other: DomainCap) -> bool:
    if (cap.why, cap.pod_sets, cap.skew is None) != (other.why, other.pod_sets, other.skew is None):
        return False
    same = np.array_equal(cap.limit, other.limit)
    if cap.skew is None or other.skew is None:
        return same
    return same and cap.skew.fixed == other.skew.fixed and np.array_equal(cap.skew.counted, other.skew.counted)


def _words(what: str, key: str, selector: LabelSelector) -> str:
    """Return why a host is excluded: `excluded by podAntiAffinity on example.com/rack with app=x`."""
    shown = ""
    if selector:
        text = ",".join(_requirement(one.key, one.operator, one.values) for one in selector)
        shown = f" with {text if len(text) <= _MAX_SELECTOR else text[: _MAX_SELECTOR - 3] + '...'}"
    return sanitize(f"{EXCLUDED_BY}{what} on {key}{shown}", _MAX_WORDS)


def _requirement(key: str, operator: str, values: Sequence[str]) -> str:
    match operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "NotIn" if len(values) == 1:
            return f"{key}!={values[0]}"
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
    return f"{key} {operator} ({','.join(values)})"
