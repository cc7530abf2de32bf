"""A topology: its levels, the tree of its nodes, and the nodes that it leaves out.

A node without the label of a level is not used by that topology; it is counted, so that users can see why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from engine.api.names import AUTO, HOST_LEVEL
from engine.api.objects import Node
from engine.api.text import plural, sanitize
from engine.planner.plan import lowest_level
from engine.planner.slices import Slices
from engine.planner.tree import Ints64, Tree, build_tree
from engine.topology.hyper_nodes import GROUP as VOLCANO
from engine.topology.hyper_nodes import PLURAL as HYPER_NODES
from engine.topology.hyper_nodes import HyperNode, HyperNodeForest
from engine.topology.levels import HOST, Level, choose_default, nearly_default, presets, with_preset_words
from engine.topology.objects import GROUPS, Objects, from_object
from engine.topology.spec import TopologySpec

# Why a node is outside a topology.
OUTSIDE_SELECTOR: Final = "nodeSelector of the topology"
NO_LABEL: Final = "no label "  # and the alias of the level


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """A named topology over the nodes of a cluster.

    `levels` are coarse to fine, the host level last. `outside`: why a node is left out, by node. `coverage`: per level
    above the host, the number of selected nodes with its label, and of all selected nodes. `waits`: why the levels are
    unknown now; the topology has no nodes then. `nearly`: the presets that lack only one level, with that level, when
    the topology has only hosts because no preset fits. `faults`: what is wrong with the objects that it is made of, in
    words. `labelled`: its levels are node labels, which can pin a pod to a domain.
    """

    name: str
    levels: tuple[Level, ...]
    tree: Tree
    pins: Mapping[str, Mapping[str, str]]
    outside: Mapping[str, str]
    coverage: Mapping[str, tuple[int, int]]
    waits: str = ""
    nearly: tuple[tuple[str, Level], ...] = ()
    faults: tuple[str, ...] = ()
    labelled: bool = True

    def level_index(self, alias_or_key: str) -> int | None:
        """Return the index of a level by its alias or else by one of its label keys; None when unknown."""
        for i, level in enumerate(self.levels):
            if alias_or_key == level.name:
                return i
        for i, level in enumerate(self.levels):
            if alias_or_key in level.keys:
                return i
        return None

    def level_of(self, asked: str | None) -> int | None:
        """Return the index of the level that a request names; None for `auto` and for an unknown level."""
        return None if asked in (None, AUTO) else self.level_index(asked)

    def alias_of(self, level: int | None) -> str | None:
        """Return the alias of the level with an index; None for None."""
        return None if level is None else self.levels[level].name

    def slices(self, asked: Iterable[tuple[str, int]]) -> tuple[Slices, ...]:
        """Return slices (level, size) with the index of their level; those of an unknown level are left out."""
        levels = [(self.level_index(level), size) for level, size in asked]
        return tuple(Slices(level, size) for level, size in levels if level is not None)

    def auto_level(self, count: int, slices: Iterable[tuple[str, int]], *, empty: Ints64) -> int:
        """Return the index of the level that `auto` means for `count` equal pods; `empty`: slots of empty hosts.

        It is the lowest level with a domain that holds them all, in whole slices; the coarsest when none does.
        """
        return lowest_level(self.tree, empty, count, self.slices(slices)) or 0

    def allowed_level(self, lowest: int, allowed: Collection[str] | None) -> int:
        """Return the index of the finest allowed level that is not below `lowest`, else of the coarsest allowed one.

        `allowed`: aliases of the only levels that a request may name; None: all.
        """
        if allowed is None:
            return lowest
        usable = [index for index, level in enumerate(self.levels) if level.name in allowed]
        return max((index for index in usable if index <= lowest), default=min(usable, default=lowest))

    def pin_labels(self, host: str) -> dict[str, str]:
        """Return this node's labels of the levels above the host; {} for a node that is outside."""
        return dict(self.pins.get(host, {}))


def build_topology(
    name: str,
    levels: Iterable[Level],
    nodes: Iterable[Node],
    *,
    node_selector: Mapping[str, str] | None = None,
    missing_label: Literal["exclude", "own-domain"] = "exclude",
    before: Topology | None = None,
) -> Topology:
    """Build the topology of the nodes with the labels of `node_selector`, given in any order.

    A node without a level's label (an empty value counts as none) is outside, or, with "own-domain", alone in a domain
    of that level and of the levels below it that it has no label for. `levels` may end with the host level or leave it
    out. `before` is a topology of mostly the same nodes, which saves time. Raises ValueError when the host level is
    anywhere else, or two levels share an alias or a label key.
    """
    above = _above_host(tuple(levels))
    wanted = (node_selector or {}).items()
    keys = [level.keys for level in above]
    read = tuple(key for candidates in keys for key in candidates)
    outside: dict[str, str] = {}
    selected: list[Node] = []
    for node in nodes:
        if not wanted or wanted <= node.labels.items():
            selected.append(node)
        else:
            outside[node.name] = OUTSIDE_SELECTOR
    columns = [[node.labels.get(key) for node in selected] for key in read]
    values: list[tuple[str | None, ...]] = list(zip(*columns, strict=True)) if columns else [()] * len(selected)
    numbers = Counter(values)
    known = {one: _labels_of_levels(dict(zip(read, one, strict=True)), keys) for one in numbers}
    pins: dict[str, dict[str, str]] = {}
    paths: list[tuple[str, ...]] = []
    for node, one in zip(selected, values, strict=True):
        found = known[one]
        if found.missing is None:
            paths.append((*found.path, node.name))
        elif missing_label == "exclude":
            outside[node.name] = f"{NO_LABEL}{above[found.missing].name}"
            continue
        else:
            paths.append((*(value or _own_domain(node.name) for value in found.path), node.name))
        pins[node.name] = found.pin
    tree = build_tree(
        [level.name for level in above] + [HOST_LEVEL], paths, before=before.tree if before is not None else None
    )
    have = [sum(numbers[one] for one, found in known.items() if found.path[level]) for level in range(len(above))]
    coverage = {level.name: (count, len(selected)) for level, count in zip(above, have, strict=True)}
    return Topology(name, (*above, HOST), tree, pins, outside, coverage)


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels of some levels that nodes share: their values ("" for none), the first level without, the labels."""

    path: tuple[str, ...]
    missing: int | None
    pin: dict[str, str]


def _labels_of_levels(labels: Mapping[str, str | None], keys: Sequence[Sequence[str]]) -> _Labels:
    chosen = [next((key for key in candidates if labels.get(key)), "") for candidates in keys]
    path = tuple(labels.get(key) or "" for key in chosen)
    return _Labels(
        path=path,
        missing=path.index("") if "" in path else None,
        pin={key: value for key, value in zip(chosen, path, strict=True) if key},
    )


def hyper_node_topology(
    name: str,
    forest: HyperNodeForest,
    nodes: Iterable[Node],
    *,
    root: str | None = None,
    node_selector: Mapping[str, str] | None = None,
) -> Topology:
    """Build the topology of all HyperNodes, or of the tree of a root; one that waits where they give no levels."""
    found = forest.domains(root)
    if isinstance(found, str):
        return waiting_topology(name, why=found, labelled=False)
    wanted = (node_selector or {}).items()
    selected = [node for node in nodes if not wanted or wanted <= node.labels.items()]
    chosen = {node.name for node in selected}
    outside = {host: why if host in chosen else OUTSIDE_SELECTOR for host, why in found.outside.items()}
    outside |= dict.fromkeys((host for host in found.domains if host not in chosen), OUTSIDE_SELECTOR)
    paths = [(*path, host) for host, path in found.domains.items() if host in chosen]
    tree = build_tree([level.name for level in found.levels], paths)
    coverage = {level.name: (len(paths), len(selected)) for level in found.levels[:-1]}
    return Topology(name, found.levels, tree, {}, outside, coverage, faults=found.faults, labelled=False)


def _own_domain(node: str) -> str:
    """Return a domain value that no label can have: label values never contain a slash or brackets."""
    return f"({node})"


def _above_host(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    if levels and levels[-1].name == HOST_LEVEL:
        levels = levels[:-1]
    aliases = [level.name for level in levels]
    if HOST_LEVEL in aliases:
        raise ValueError(f"levels: {HOST_LEVEL!r} is the last level")
    keys = [key for level in levels for key in level.keys]
    for what, values in (("alias", aliases), ("label key", keys)):
        double = next((value for value in values if values.count(value) > 1), None)
        if double is not None:
            raise ValueError(f"levels: {what} {double!r} is a duplicate")
    for level in levels:
        if not level.keys:
            raise ValueError(f"levels: {level.name!r} has no label keys")
    return levels


def left_out(topology: Topology) -> str:
    """Return why selected nodes are left out of a topology, with their numbers; "" when none is."""
    reasons = Counter(topology.outside.values())
    del reasons[OUTSIDE_SELECTOR]
    parts = [
        f"{plural(number, 'node')} {'with ' if why.startswith(NO_LABEL) else ''}{why}"
        for why, number in sorted(reasons.items())
    ]
    said = "left out: " + ", ".join(parts) if parts else _nearly(topology)
    return topology.waits or "; ".join(part for part in (said, *topology.faults) if part)


def _nearly(topology: Topology) -> str:
    """Return the presets that lack only one level, as the explanation why there are only hosts."""
    missed = [f"{name}, but no node has a label of its {_labels_of(level)}" for name, level in topology.nearly]
    return f"hosts alone, as no preset fits; nearest: {'; '.join(missed)}" if missed else ""


def _labels_of(level: Level) -> str:
    return f"level {level.name} ({' or '.join(level.keys)})"


def uncovered(topology: Topology) -> str:
    """Return why a topology has no nodes; "" when it has some."""
    if topology.waits or topology.tree.hosts:
        return topology.waits
    if not topology.outside:
        return "there are none"
    unlabelled = sum(1 for reason in topology.outside.values() if reason != OUTSIDE_SELECTOR)
    if not unlabelled:
        return f"no node of {len(topology.outside):,} has the labels of its nodeSelector"
    if not topology.labelled:
        return f"no node of {unlabelled:,} is in a HyperNode of each tier"
    unused = [level for level in topology.levels if topology.coverage.get(level.name, (1, 1))[0] == 0]
    return f"no node of {unlabelled:,} has a label of {_labels_of(unused[0]) if unused else 'every level'}"


def covered(topology: Topology) -> str:
    """Return a summary of the nodes: `480 nodes; left out: 8 nodes with no label rack; 24 not selected`."""
    others = sum(1 for reason in topology.outside.values() if reason == OUTSIDE_SELECTOR)
    parts = (plural(len(topology.tree.hosts), "node"), left_out(topology), f"{others:,} not selected" if others else "")
    return "; ".join(part for part in parts if part)


def waiting_topology(name: str, *, why: str, labelled: bool = True) -> Topology:
    """Return a topology without nodes, for levels that are unknown now."""
    return replace(build_topology(name, (HOST,), ()), waits=why, labelled=labelled)


class Topologies(dict[str, Topology]):
    """The topologies by name; knows why an object of the cluster is none of them."""

    __slots__ = ("_forest", "_objects")

    def __init__(self, found: Mapping[str, Topology], *, objects: Objects, forest: HyperNodeForest | None) -> None:
        super().__init__(found)
        self._objects = objects
        self._forest = forest

    def unusable(self, name: str) -> str | None:
        """Return why the Topology object or the HyperNode of a name gives no topology; None if there is no such object.

        Worked out when it is asked for: only a request that is refused asks.
        """
        for group in GROUPS:
            if name in self._objects.get(group, {}):
                levels = from_object(group, name, self._objects)
                if isinstance(levels, str):
                    return sanitize(levels, _MAX_REASON)
        found = self._forest.unusable(name) if self._forest is not None else None
        return sanitize(found, _MAX_REASON) if found is not None else None


def why_unusable(topologies: Collection[str], name: str) -> str | None:
    """Return why the object of a name gives none of the topologies; None if there is no such object."""
    return topologies.unusable(name) if isinstance(topologies, Topologies) else None


_MAX_REASON: Final = 300  # characters of the reason why an object is not usable
DEFAULT: Final = "default"  # the name of the topology where the policy names none


def topologies_of(
    specs: Sequence[TopologySpec],
    nodes: Iterable[Node],
    *,
    objects: Objects = MappingProxyType({}),
    hyper_nodes: Collection[HyperNode] = (),
    before: Mapping[str, Topology] = MappingProxyType({}),
) -> Topologies:
    """Return the topologies of a policy, then those of the Topology objects; without a policy's, the default one; then
    those of the HyperNodes.

    A workload that names no topology gets the first; a topology of the policy hides the object of its name. The default
    is a preset that covers the nodes, else hosts alone. It comes last where there are Topology objects: gangs that were
    placed on it before these objects existed stay there. HyperNodes are never the default: they are used by name.
    `before` are topologies of mostly the same nodes, which saves time.
    """
    nodes = list(nodes)
    forest = HyperNodeForest(hyper_nodes, nodes) if hyper_nodes else None
    found = {spec.name: _topology(spec, nodes, objects, forest, before.get(spec.name)) for spec in specs}
    found |= {name: topology for name, topology in _of_objects(nodes, objects, before).items() if name not in found}
    if not specs and DEFAULT not in found:
        found[DEFAULT] = _default(nodes, before.get(DEFAULT))
    if forest is not None:
        whole = hyper_node_topology(HYPER_NODES, forest, nodes)
        trees = {HYPER_NODES: whole}
        for root in forest.roots:
            same = forest.holds_all(root)
            trees[root] = replace(whole, name=root) if same else hyper_node_topology(root, forest, nodes, root=root)
        found |= {name: topology for name, topology in trees.items() if name not in found}
    return Topologies(found, objects=objects, forest=forest)


def labels_read(specs: Iterable[TopologySpec], topologies: Mapping[str, Topology]) -> frozenset[str]:
    """Return the keys of all node labels that decide what `topologies_of` returns, unless there are HyperNodes."""
    levels = (
        level for levels in (*presets().values(), *(one.levels for one in topologies.values())) for level in levels
    )
    return frozenset(key for level in levels for key in level.keys).union(*(spec.node_selector for spec in specs))


def _of_objects(nodes: Sequence[Node], objects: Objects, before: Mapping[str, Topology]) -> dict[str, Topology]:
    """Return a topology for every readable Topology object, by name; the first group wins a duplicate name."""
    found: dict[str, Topology] = {}
    for group in GROUPS:
        for name in sorted(objects.get(group, {})):
            levels = from_object(group, name, objects)
            if not isinstance(levels, str) and name not in found:
                found[name] = build_topology(name, with_preset_words(levels), nodes, before=before.get(name))
    return found


def _default(nodes: Sequence[Node], before: Topology | None) -> Topology:
    levels = choose_default(node.labels for node in nodes)
    topology = build_topology(DEFAULT, levels, nodes, before=before)
    return (
        topology
        if levels != (HOST,)
        else replace(topology, nearly=tuple(nearly_default(node.labels for node in nodes).items()))
    )


def _topology(
    spec: TopologySpec,
    nodes: Iterable[Node],
    objects: Objects,
    forest: HyperNodeForest | None,
    before: Topology | None,
) -> Topology:
    levels: tuple[Level, ...] | str = spec.resolved_levels()
    if spec.from_object is not None and spec.from_object.group == VOLCANO:
        name = spec.from_object.name
        if forest is None or (name != HYPER_NODES and name not in forest.roots):
            what = "there are no HyperNodes" if forest is None else f"no HyperNode {name} is the root of a tree"
            return waiting_topology(spec.name, why=what, labelled=False)
        root = None if name == HYPER_NODES else name
        return hyper_node_topology(spec.name, forest, nodes, root=root, node_selector=spec.node_selector)
    if spec.from_object is not None:
        levels = from_object(spec.from_object.group, spec.from_object.name, objects)
    if isinstance(levels, str):
        return waiting_topology(spec.name, why=levels)
    return build_topology(
        spec.name,
        levels,
        nodes,
        node_selector=spec.node_selector,
        missing_label=spec.missing_label,
        before=before,
    )
