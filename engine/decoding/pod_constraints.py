"""Decodes what pods require and prefer of the pods near them: pod (anti-)affinity and topology spread constraints.

What cannot be taken into account is returned by name, for a warning: selectors that do not parse, and more terms than
a plan should be slowed down by. The API server refuses the former in pods, not in every workload's template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import Final

from engine.api.pod import (
    NAMESPACE_NAME,
    LabelSelector,
    PodConstraints,
    PodPreferences,
    PodTerm,
    SelectorRequirement,
    SpreadConstraint,
    WeightedPodTerm,
)
from engine.decoding import wire

# Keys and values of all selectors of a pod, one more for each 256 characters, and the terms themselves.
MAX_WEIGHT: Final = 1_000
_LONG_WORD: Final = 256
# Required terms of anti-affinity of a pod that count: every plan looks at those of all pods, whoever made them.
MAX_APART: Final = 16
MAX_PREFERRED: Final = 100  # preferred terms of node affinity that count; and as many of pods, of all sorts together
MOST_WEIGHT: Final = 100  # of a preferred term; the API server refuses others
MAX_LABELS: Final = 128  # of a pod that selectors are matched with
_OPERATORS: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}  # whether it takes values
_POLICIES: Final = ("Honor", "Ignore", "", None)

AFFINITY: Final = "pod affinity"
ANTI_AFFINITY: Final = "pod anti-affinity"
SPREAD: Final = "topology spread constraints"


class _NotModelledError(Exception):
    """A term that cannot be taken into account; the text says why, in few words."""


def constraints_of(
    spec: wire.PodSpec,
    labels: Mapping[str, str | None],
    namespace: str,
    *,
    claimed: Callable[[wire.PodAffinityTerm], bool],
) -> tuple[PodConstraints | None, tuple[str, ...]]:
    """Return what a pod with these labels requires of others, and the names of what is not taken into account.

    `claimed`: whether a term of anti-affinity is a claim of the pod's shape as well.
    """
    affinity = spec.affinity
    near = affinity.pod_affinity.required if affinity is not None and affinity.pod_affinity is not None else None
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity is not None else None
    spread = [one for one in spec.topology_spread_constraints or () if one.when_unsatisfiable == "DoNotSchedule"]
    if not (near or apart or spread):
        return None, ()
    read = _Reader(labels, namespace)

    def terms(raw: Iterable[wire.PodAffinityTerm], what: str) -> Iterator[PodTerm]:
        for one in raw:
            if (term := read.term(one, what)) is not None:
                yield replace(term, claimed=True) if what is ANTI_AFFINITY and claimed(one) else term

    found = PodConstraints(
        tuple(terms(near or (), AFFINITY)),
        tuple(terms((apart or ())[:MAX_APART], ANTI_AFFINITY)),
        tuple(one for raw in spread if (one := read.spread(raw)) is not None),
    )
    if apart and len(apart) > MAX_APART:
        read.left_out[f"{ANTI_AFFINITY} beyond {MAX_APART} terms"] = None
    return (_shared(found) if found != PodConstraints() else None), tuple(read.left_out)


def preferred_of(
    spec: wire.PodSpec, labels: Mapping[str, str | None], namespace: str
) -> tuple[PodPreferences | None, tuple[str, ...]]:
    """Return what a pod with these labels prefers of others, and the names of what is not counted.

    A term with `matchLabelKeys` that the pod has no labels for is not: its controller may add them.
    """
    affinity = spec.affinity
    near = affinity.pod_affinity.preferred if affinity is not None and affinity.pod_affinity is not None else None
    apart = affinity.pod_anti_affinity.preferred if affinity and affinity.pod_anti_affinity is not None else None
    spread = [one for one in spec.topology_spread_constraints or () if one.when_unsatisfiable == "ScheduleAnyway"]
    if not (near or apart or spread):
        return None, ()
    read, terms, even = _Reader(labels, namespace), list[WeightedPodTerm](), list[SpreadConstraint]()
    weighted = [(1, AFFINITY, one) for one in near or ()] + [(-1, ANTI_AFFINITY, one) for one in apart or ()]
    for sign, what, one in weighted[:MAX_PREFERRED]:
        raw = one.pod_affinity_term
        if raw is None or one.weight is None or one.weight <= 0:
            continue
        term = read.term(raw, what)
        if term is not None and term.selector is not None and read.knows(raw.match_label_keys, raw.mismatch_label_keys):
            terms.append(WeightedPodTerm(sign * min(one.weight, MOST_WEIGHT), term))
    left = max(MAX_PREFERRED - len(weighted), 0)
    for every in spread[:left]:
        constraint = read.spread(every)
        if constraint is not None and read.knows(every.match_label_keys):
            even.append(constraint)
    beyond = [what for _, what, _ in weighted[MAX_PREFERRED:]] + [SPREAD] * (len(spread) > left)
    left_out = (*read.left_out, *dict.fromkeys(f"{what} beyond {MAX_PREFERRED} terms" for what in beyond))
    found = PodPreferences(tuple(terms), tuple(even))
    return (_shared_preferences(found) if found != PodPreferences() else None), left_out


def crosses_namespaces(spec: wire.PodSpec) -> bool:
    """Return True if a term of a pod's affinity or anti-affinity, required or preferred, names namespaces."""
    if (affinity := spec.affinity) is None:
        return False
    both = [one for one in (affinity.pod_affinity, affinity.pod_anti_affinity) if one is not None]
    terms = [term for one in both for term in one.required or ()]
    preferred = [weighted.pod_affinity_term for one in both for weighted in one.preferred or ()]
    terms += [term for term in preferred if term is not None]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


def flat_labels(raw: Mapping[str, str | None] | None) -> tuple[str, ...]:
    """Return all labels, key and value in turn, with the strings shared; the first ones of a pod with very many."""
    if not raw:
        return ()
    if len(raw) > MAX_LABELS:
        raw = dict(list(raw.items())[:MAX_LABELS])
    flat = tuple([word for key in raw for word in (intern(key), intern(raw[key] or ""))])
    return _shared_labels(flat) if sum(map(len, flat)) <= _MAX_SHARED else flat


# Pods of one template have equal labels, unless their index is one of them: kept once, unless they are very long.
_MAX_SHARED: Final = 2_048


@lru_cache(maxsize=2048)
def _shared_labels(flat: tuple[str, ...]) -> tuple[str, ...]:
    return flat


# Pods of one template have equal constraints: kept once.
@lru_cache(maxsize=1024)
def _shared(constraints: PodConstraints) -> PodConstraints:
    return constraints


@lru_cache(maxsize=1024)
def _shared_preferences(preferences: PodPreferences) -> PodPreferences:
    return preferences


class _Reader:
    """Reads the terms of one pod, up to a weight; `left_out` names what is not taken into account, in order."""

    def __init__(self, labels: Mapping[str, str | None], namespace: str) -> None:
        self._labels = labels
        self._namespace = namespace
        self._left = MAX_WEIGHT
        self.left_out: dict[str, None] = {}

    def term(self, raw: wire.PodAffinityTerm, what: str) -> PodTerm | None:
        try:
            return self._term(raw, what)
        except _NotModelledError as problem:
            self.left_out[f"{what} ({problem})"] = None
            return None

    def spread(self, raw: wire.Spread) -> SpreadConstraint | None:
        try:
            return self._spread(raw)
        except _NotModelledError as problem:
            self.left_out[f"{SPREAD} ({problem})"] = None
            return None

    def knows(self, *keys: Iterable[str] | None) -> bool:
        """Return whether the pod has all labels with these keys."""
        return all(key in self._labels for some in keys for key in some or ())

    def _take(self, words: list[str]) -> None:
        self._left -= 1 + len(words) + sum(map(len, words)) // _LONG_WORD
        if self._left < 0:
            raise _NotModelledError("too many terms")

    def _term(self, raw: wire.PodAffinityTerm, what: str) -> PodTerm:
        self._take([raw.topology_key or "", *(raw.namespaces or ())])
        if not raw.topology_key:
            raise _NotModelledError("no topologyKey")
        selector = self._selector(raw.label_selector)
        if selector is not None:
            selector += self._own_values(raw.match_label_keys, "In", what)
            selector += self._own_values(raw.mismatch_label_keys, "NotIn", what)
        by_labels = self._selector(raw.namespace_selector)
        if any(one.key != NAMESPACE_NAME for one in by_labels or ()):
            raise _NotModelledError("namespaceSelector")
        named = tuple(sorted(map(intern, raw.namespaces or ())))
        if not named and raw.namespace_selector is None:
            named = (intern(self._namespace),)
        return PodTerm(intern(raw.topology_key), selector, named, by_labels)

    def _spread(self, raw: wire.Spread) -> SpreadConstraint:
        self._take([raw.topology_key or ""])
        fewest = raw.min_domains if raw.min_domains is not None else 1
        if not raw.topology_key or raw.max_skew is None or raw.max_skew < 1 or fewest < 1:
            raise _NotModelledError("invalid")
        if raw.node_affinity_policy not in _POLICIES or raw.node_taints_policy not in _POLICIES:
            raise _NotModelledError("invalid")
        selector = self._selector(raw.label_selector)
        if selector is not None:
            selector += self._own_values(raw.match_label_keys, "In", SPREAD)
        # An empty selector counts no pods here (`countPodsMatchSelector`); for terms of affinity it means every pod.
        return SpreadConstraint(
            topology_key=intern(raw.topology_key),
            max_skew=raw.max_skew,
            selector=selector or None,
            min_domains=fewest,
            honor_affinity=raw.node_affinity_policy != "Ignore",
            honor_taints=raw.node_taints_policy == "Honor",
        )

    def _selector(self, raw: wire.LabelSelector | None) -> LabelSelector:
        """Return the requirements in an order that does not depend on how they were written."""
        if raw is None:
            return None
        rules: list[tuple[str, str, tuple[str, ...]]] = [
            (key, "In", (value or "",)) for key, value in (raw.match_labels or {}).items()
        ]
        for one in raw.match_expressions or ():
            values = tuple(sorted(set(one.values or ())))
            if not one.key or one.operator not in _OPERATORS or bool(values) != _OPERATORS[one.operator]:
                raise _NotModelledError("invalid selector")
            rules.append((one.key, one.operator, values))
        self._take([word for key, _, values in rules for word in (key, *values)])
        return tuple(
            SelectorRequirement(intern(key), intern(operator), tuple(map(intern, values)))
            for key, operator, values in sorted(set(rules))
        )

    def _own_values(self, keys: Iterable[str] | None, operator: str, what: str) -> tuple[SelectorRequirement, ...]:
        """Return the requirements that the API server or the scheduler adds for the pod's own values of these keys.

        A key that the pod lacks adds none; a template may lack labels that its controller adds.
        """
        wanted = sorted(set(keys or ()))
        self._take(wanted)
        if any(key not in self._labels for key in wanted):
            self.left_out[f"{what} (matchLabelKeys without such a label)"] = None
        have = [(key, self._labels[key] or "") for key in wanted if key in self._labels]
        return tuple(SelectorRequirement(intern(key), operator, (intern(value),)) for key, value in have)
