"""The scheduler's rules for pod (anti-)affinity and topology spread, one pod and one node at a time.

Written from InterPodAffinity and PodTopologySpread of kube-scheduler, without anything of the product but its records:
an oracle for plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.api.pod import LabelSelector, PodConstraints, PodTerm

NOTHING = PodConstraints()


@dataclass(frozen=True)
class OnNode:
    """A pod on a node."""

    node: str
    namespace: str
    labels: tuple[tuple[str, str], ...]
    constraints: PodConstraints = NOTHING
    deleting: bool = False


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    verdicts = {
        "In": lambda one: one.key in labels and labels[one.key] in one.values,
        "NotIn": lambda one: one.key not in labels or labels[one.key] not in one.values,
        "Exists": lambda one: one.key in labels,
        "DoesNotExist": lambda one: one.key not in labels,
    }
    return all(verdicts[one.operator](one) for one in selector)


def concerns(term: PodTerm, pod: OnNode) -> bool:
    named = pod.namespace in term.namespaces
    return (named or matches(term.namespace_selector, {"kubernetes.io/metadata.name": pod.namespace})) and matches(
        term.selector, dict(pod.labels)
    )


def accepts(nodes: Mapping[str, Mapping[str, str]], there: Sequence[OnNode], pod: OnNode, *, pinned: bool) -> bool:
    """Whether the filters let the pod on its node; `pinned`: its node affinity allows only that node."""
    labels = nodes[pod.node]
    return _affinity(nodes, there, pod, labels) and _spread(nodes, there, pod, labels, pinned=pinned)


def _affinity(
    nodes: Mapping[str, Mapping[str, str]], there: Sequence[OnNode], pod: OnNode, labels: Mapping[str, str]
) -> bool:
    for other in there:
        for term in other.constraints.anti_affinity:
            value = nodes[other.node].get(term.topology_key)
            if concerns(term, pod) and value is not None and labels.get(term.topology_key) == value:
                return False
        for term in pod.constraints.anti_affinity:
            value = labels.get(term.topology_key)
            if concerns(term, other) and value is not None and nodes[other.node].get(term.topology_key) == value:
                return False
    terms = pod.constraints.affinity
    if not terms:
        return True
    if any(term.topology_key not in labels for term in terms):
        return False
    matching = [other for other in there if all(concerns(term, other) for term in terms)]
    pairs = {
        (term.topology_key, nodes[other.node][term.topology_key])
        for term in terms
        for other in matching
        if term.topology_key in nodes[other.node]
    }
    if all((term.topology_key, labels[term.topology_key]) in pairs for term in terms):
        return True
    return not pairs and all(concerns(term, pod) for term in terms)


def _spread(
    nodes: Mapping[str, Mapping[str, str]],
    there: Sequence[OnNode],
    pod: OnNode,
    labels: Mapping[str, str],
    *,
    pinned: bool,
) -> bool:
    constraints = pod.constraints.spread
    for one in constraints:
        if one.topology_key not in labels:
            return False
        counted = [
            name
            for name, own in nodes.items()
            if all(other.topology_key in own for other in constraints)
            and (not pinned or not one.honor_affinity or name == pod.node)
        ]
        domains = Counter({nodes[name][one.topology_key]: 0 for name in counted})
        for other in there:
            same = other.namespace == pod.namespace and not other.deleting
            if other.node in counted and same and matches(one.selector, dict(other.labels)):
                domains[nodes[other.node][one.topology_key]] += 1
        least = 0 if len(domains) < one.min_domains else min(domains.values())
        own = int(matches(one.selector, dict(pod.labels)))
        if domains[labels[one.topology_key]] + own - least > one.max_skew:
            return False
    return True


def binds(
    nodes: Mapping[str, Mapping[str, str]], there: Sequence[OnNode], pods: Sequence[OnNode], *, pinned: bool
) -> bool:
    """Whether there is an order in which the filters let all of the pods on their nodes."""
    kinds = Counter(pods)
    seen: set[tuple[tuple[OnNode, int], ...]] = set()

    def place(left: Counter[OnNode], placed: list[OnNode]) -> bool:
        if not left:
            return True
        state = tuple(sorted(left.items(), key=repr))
        if state in seen:
            return False
        seen.add(state)
        for pod in list(left):
            if accepts(nodes, [*there, *placed], pod, pinned=pinned):
                rest = left - Counter([pod])
                if place(rest, [*placed, pod]):
                    return True
        return False

    return place(kinds, [])
