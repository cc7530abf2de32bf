"""Volcano's HyperNodes: the levels and the domains of nodes that a tree of objects gives instead of node labels.

A tier is a level, the highest the coarsest. The domain of a node at a tier is its HyperNode of that tier, or where its
branch leaves the tier out, the one below: Volcano allows a job every HyperNode up to a tier. A parent must have a
higher tier than its members, so that there are no cycles; a node with two HyperNodes of one tier is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.api.objects import Node
from engine.api.pod import SelectorRequirement
from engine.api.text import plural, quote, sanitize
from engine.topology.levels import HOST, MAX_LEVELS, RESERVED_NAMES, Level
from engine.topology.patterns import NameIndex, PatternError, StepBudget

GROUP: Final = "topology.volcano.sh"
KIND: Final = "HyperNode"
PLURAL: Final = "hypernodes"  # also the name of the topology of all of them
MAX_MEMBERS: Final = 10_000  # of one HyperNode
MAX_ROOTS: Final = 16  # roots that give a topology of their own

# Why a node is outside of the topology, before the tier's number.
NO_HYPER_NODE: Final = "without a HyperNode of tier "
TWO_HYPER_NODES: Final = "in two HyperNodes of tier "

_MOST_STEPS: Final = 1_000_000  # of regular expressions and label selectors over all nodes: about a second
_MOST_FAULTS: Final = 5  # that are named
_WORD: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NUMBERED: Final = re.compile(r"(tier-)?[0-9]+")


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A HyperNode: its tier, the HyperNodes and nodes in it, by name, and what selects further nodes.

    `patterns` are regular expressions over node names, `selectors` label selectors (their requirements, all of which
    hold). `problem`: why it cannot be read; it has no members then.
    """

    name: str
    tier: int
    tier_name: str = ""
    hyper_nodes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    selectors: tuple[tuple[SelectorRequirement, ...], ...] = ()
    problem: str = ""
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class HyperNodeDomains:
    """The levels that HyperNodes give, and the domains of every node in them, coarse to fine and without the host.

    `outside`: why a node is left out, by node. `faults`: what is wrong with the HyperNodes, in words; of many
    the first.
    """

    levels: tuple[Level, ...]
    domains: Mapping[str, tuple[str, ...]]
    outside: Mapping[str, str]
    faults: tuple[str, ...] = ()


class HyperNodeForest:
    """All HyperNodes of a cluster over its nodes; every question is answered for the state at its construction."""

    def __init__(self, hyper_nodes: Iterable[HyperNode], nodes: Sequence[Node]) -> None:
        known = sorted(hyper_nodes, key=lambda one: one.name)
        self._known = {one.name: one for one in known if not one.problem}
        self._faults = [f"{KIND} {sanitize(one.name)}: {one.problem}" for one in known if one.problem]
        self._nodes = nodes
        self._children: dict[str, list[str]] = {one: [] for one in self._known}
        has_parent: set[str] = set()
        for one in self._known.values():
            for name in dict.fromkeys(one.hyper_nodes):
                child = self._known.get(name)
                if child is None:
                    self._faults.append(f"{KIND} {sanitize(one.name)}: member {sanitize(name)} was not found")
                elif child.tier >= one.tier:
                    what = f"member {sanitize(name)} has tier {child.tier}; it must be lower than {one.tier}"
                    self._faults.append(f"{KIND} {sanitize(one.name)}: {what}")
                else:
                    self._children[one.name].append(name)
                    has_parent.add(name)
        roots = [name for name in self._known if name not in has_parent and self._children[name]]
        self.roots = tuple(roots) if len(roots) <= MAX_ROOTS else ()
        self._members = self._resolved()

    def domains(self, root: str | None = None) -> HyperNodeDomains | str:
        """Return the levels and domains, of all HyperNodes or of the tree of a root; or why there are none."""
        within = self._known if root is None else self._below(root)
        tiers = sorted({self._known[name].tier for name in within}, reverse=True)
        if not tiers:
            return "; ".join(self._named_faults()) or "there are no HyperNodes"
        if len(tiers) > MAX_LEVELS:
            return f"the HyperNodes have {plural(len(tiers), 'tier')}; at most {MAX_LEVELS} are levels"
        levels = _levels({tier: {one.tier_name for one in self._of_tier(within, tier)} for tier in tiers})
        chains = self._chains(within, tiers)
        direct: dict[str, list[str]] = {}
        for name in within:
            for node in self._members[name]:
                direct.setdefault(node, []).append(name)
        domains: dict[str, tuple[str, ...]] = {}
        outside: dict[str, str] = {}
        doubles: list[str] = []
        for node, hyper_nodes in direct.items():
            chain = _merged(chains[name] for name in hyper_nodes)
            if isinstance(chain, _Double):
                outside[node] = f"{TWO_HYPER_NODES}{chain.tier}"
                doubles.append(f"node {sanitize(node)} is in the HyperNodes {chain.first} and {chain.second}")
            elif (lowest := min(chain)) > tiers[-1]:
                outside[node] = f"{NO_HYPER_NODE}{max(tier for tier in tiers if tier < lowest)}"
            else:
                domains[node] = _path(chain, tiers)
        for one in self._nodes:
            if one.name not in direct:
                outside[one.name] = f"{NO_HYPER_NODE}{tiers[-1]}"
        return HyperNodeDomains((*levels, HOST), domains, outside, self._named_faults(doubles))

    def holds_all(self, root: str) -> bool:
        """Return whether every HyperNode is in the tree of a root."""
        return len(self._below(root)) == len(self._known)

    def unusable(self, name: str) -> str | None:
        """Return why a HyperNode is not the root of a tree with a topology; None if it is one, or is not there."""
        what = f"{KIND} {sanitize(name)}"
        faults = [one for one in self._faults if one.startswith(f"{what}: ")]
        if name not in self._known:
            return faults[0] if faults else None
        if name in self.roots:
            return None
        if (parent := next((one for one, below in self._children.items() if name in below), None)) is not None:
            return f"{what} is no root of a tree: it is in {KIND} {sanitize(parent)}"
        if not self._children[name]:
            return faults[0] if faults else f"{what} is no root of a tree: it has no members of type {KIND}"
        return f"{what} has no topology of its own: more than {MAX_ROOTS} {KIND}s are roots of trees"

    def _resolved(self) -> dict[str, list[str]]:
        """Return the existing nodes that are members of each HyperNode itself."""
        exist = {node.name for node in self._nodes}
        index = NameIndex([node.name for node in self._nodes])
        labels = _LabelIndex(self._nodes)
        budget = StepBudget(_MOST_STEPS)
        found: dict[str, list[str]] = {}
        for one in self._known.values():
            members = {name: None for name in one.nodes if name in exist}
            for pattern in one.patterns:
                try:
                    members |= dict.fromkeys(self._nodes[at].name for at in index.find(pattern, budget))
                except PatternError as error:
                    self._faults.append(f"{KIND} {sanitize(one.name)}: {quote(pattern)}: {error}")
            for selector in one.selectors:
                try:
                    members |= dict.fromkeys(self._nodes[at].name for at in labels.find(selector, budget))
                except PatternError as error:
                    self._faults.append(f"{KIND} {sanitize(one.name)}: labelMatch: {error}")
            found[one.name] = list(members)
        return found

    def _below(self, root: str) -> dict[str, None]:
        """Return a root and all HyperNodes below it."""
        found = {root: None}
        stack = [root]
        while stack:
            fresh = [name for name in self._children[stack.pop()] if name not in found]
            found |= dict.fromkeys(fresh)
            stack += fresh
        return found

    def _of_tier(self, within: Iterable[str], tier: int) -> Iterator[HyperNode]:
        return (self._known[name] for name in within if self._known[name].tier == tier)

    def _chains(self, within: Iterable[str], tiers: Sequence[int]) -> dict[str, dict[int, str] | _Double]:
        """Return each HyperNode with those above it by tier; where there are two of one tier, these."""
        parents: dict[str, list[str]] = {name: [] for name in within}
        for name in parents:
            for child in self._children[name]:
                if child in parents:
                    parents[child].append(name)
        chains: dict[str, dict[int, str] | _Double] = {}
        for tier in tiers:  # the highest first: those above are known
            for one in self._of_tier(parents, tier):
                above = _merged(chains[name] for name in parents[one.name])
                chains[one.name] = above if isinstance(above, _Double) else {**above, tier: one.name}
        return chains

    def _named_faults(self, more: Sequence[str] = ()) -> tuple[str, ...]:
        every = [*self._faults, *more]
        rest = len(every) - _MOST_FAULTS
        return (*every[:_MOST_FAULTS], *([f"and {rest:,} more"] if rest > 0 else ()))


@dataclass(frozen=True, slots=True)
class _Double:
    """Two HyperNodes of one tier above one node."""

    tier: int
    first: str
    second: str


def _merged(chains: Iterable[dict[int, str] | _Double]) -> dict[int, str] | _Double:
    found: dict[int, str] = {}
    for chain in chains:
        if isinstance(chain, _Double):
            return chain
        for tier, name in chain.items():
            if found.setdefault(tier, name) != name:
                return _Double(tier, *sorted((sanitize(found[tier]), sanitize(name))))
    return found


def _path(chain: Mapping[int, str], tiers: Sequence[int]) -> tuple[str, ...]:
    """Return the HyperNodes of a chain at these tiers, high to low; the one below where the chain has none."""
    path: list[str] = []
    for tier in reversed(tiers):
        path.append(chain.get(tier) or path[-1])
    return tuple(reversed(path))


def _levels(names: Mapping[int, set[str]]) -> tuple[Level, ...]:
    """Return the level of each tier: called by the name that all of its HyperNodes agree on, or `tier-2`.

    A name that is a label key counts by its last part, as for levels of Topology objects. `2`, `tier-2` and the whole
    name may be used as well.
    """
    words = {tier: _word(said) for tier, said in names.items()}
    every = list(words.values())
    found: list[Level] = []
    for tier, said in names.items():
        word, full = words[tier], said - {""}
        by_number = f"tier-{tier}"
        name = word if word and every.count(word) == 1 else by_number
        others = [said for at, said in names.items() if at != tier]
        whole = {one for one in full if len(full) == 1 and not any(one in said for said in others)}
        also = sorted(one for one in whole if not _NUMBERED.fullmatch(one) and one not in RESERVED_NAMES)
        found.append(Level(name, (), also=tuple(one for one in (by_number, str(tier), *also) if one != name)))
    return tuple(found)


def _word(names: set[str]) -> str:
    """Return the name of a tier that can be the name of a level; "" when there is none."""
    full = names - {""}
    if len(full) != 1:
        return ""
    word = next(iter(full)).rpartition("/")[2]
    usable = _WORD.fullmatch(word) and not _NUMBERED.fullmatch(word) and word not in RESERVED_NAMES
    return word if usable else ""


class _LabelIndex:
    """Nodes by label, made for each key when it is first asked for."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_key: dict[str, dict[str, list[int]]] = {}

    def find(self, selector: Sequence[SelectorRequirement], budget: StepBudget) -> list[int]:
        """Return the indexes of the nodes that a selector matches; an empty one matches none."""
        if not selector:
            return []
        budget.spend(sum(len(one.values) + 1 for one in selector))
        candidates: Iterable[int] = range(len(self._nodes))
        count = len(self._nodes)
        for one in selector:
            if one.operator in ("In", "Exists"):
                values = self._values(one.key, budget)
                chosen = values if one.operator == "Exists" else dict.fromkeys(one.values)
                few = [at for value in chosen for at in values.get(value, ())]
                budget.spend(len(few))
                if len(few) < count:
                    candidates, count = few, len(few)
        budget.spend(count * len(selector))
        tests = [(one, frozenset(one.values)) for one in selector]
        return [at for at in candidates if all(_holds(*test, self._nodes[at].labels) for test in tests)]

    def _values(self, key: str, budget: StepBudget) -> dict[str, list[int]]:
        found = self._by_key.get(key)
        if found is None:
            budget.spend(len(self._nodes))
            found = self._by_key[key] = {}
            for at, node in enumerate(self._nodes):
                if (value := node.labels.get(key)) is not None:
                    found.setdefault(value, []).append(at)
        return found


def _holds(one: SelectorRequirement, values: frozenset[str], labels: Mapping[str, str]) -> bool:
    """Return whether a requirement of a label selector holds; an unknown operator is an error of the selector."""
    match one.operator:
        case "In":
            return labels.get(one.key) in values
        case "NotIn":
            return labels.get(one.key) not in values
        case "Exists":
            return one.key in labels
        case "DoesNotExist":
            return one.key not in labels
    raise PatternError(f"unknown operator {quote(one.operator)}")
