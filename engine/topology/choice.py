"""The levels that a request may name: those of its topology, or before there are nodes those of every preset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.api import names
from engine.api.field import is_label_key
from engine.topology.levels import Level, presets
from engine.topology.spec import TopologySpec
from engine.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class LevelNames:
    """The levels that a request may name; `lists` are coarse to fine, each ending with the host level.

    `open`: the levels are unknown now (`Topology.waits`), and any label key or alias may be one. `others`: the levels
    of all other topologies, by topology name. `allowed`: the aliases of the only levels that may be named in a
    namespace; None: all. `allowed_by`: the field of the policy that lists them.
    """

    lists: tuple[tuple[Level, ...], ...]
    open: bool = False
    others: tuple[tuple[str, tuple[Level, ...]], ...] = ()
    allowed: tuple[str, ...] | None = None
    allowed_by: str = ""

    def allowing(self, words: Iterable[str], *, by: str) -> LevelNames:
        """Return the same levels, where a request may name only those with these aliases or node-label keys.

        `by`: the field of the policy that lists them, for messages.
        """
        named = {self.resolve(word) for word in words}
        known = [alias for alias in self.aliases if alias in named]
        others = sorted(alias for alias in named if alias is not None and alias not in known)
        return replace(self, allowed=(*others, *known), allowed_by=by)

    def permits(self, alias: str) -> bool:
        """Return whether a request may name the level."""
        return self.allowed is None or alias in self.allowed

    @property
    def lowest(self) -> str | None:
        """Return the alias of the lowest level that may be named; None when none may."""
        return names.HOST_LEVEL if self.allowed is None else next(reversed(self.allowed), None)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return every alias once, coarse to fine, the host level last."""
        above = dict.fromkeys(level.name for levels in self.lists for level in levels if level.name != names.HOST_LEVEL)
        return (*above, names.HOST_LEVEL)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return every node-label key once, coarse to fine, that of the host level last."""
        every = dict.fromkeys(key for levels in self.lists for level in levels for key in level.keys)
        return (*(key for key in every if key != names.HOSTNAME), names.HOSTNAME)

    def elsewhere(self, word: str) -> str | None:
        """Return the first other topology with a level of this alias or node-label key."""
        return next(
            (name for name, levels in self.others for level in levels if word == level.name or word in level.keys), None
        )

    def resolve(self, word: str) -> str | None:
        """Return the alias of the level with this alias or node-label key, or None."""
        if word in (names.HOST_LEVEL, names.HOSTNAME):
            return names.HOST_LEVEL
        every = [level for levels in self.lists for level in levels]
        by_alias = (level.name for level in every if word == level.name)
        by_other_words = (level.name for level in every if word in level.keys or word in level.also)
        found = next(by_alias, next(by_other_words, None))
        return word if found is None and self.open and is_label_key(word) else found

    def coarser(self, alias: str, than: str) -> bool:
        """Return whether `alias` is above `than` in some list that has both."""
        for levels in self.lists:
            order = {level.name: index for index, level in enumerate(levels)} | {names.HOST_LEVEL: len(levels)}
            if alias in order and than in order and order[alias] < order[than]:
                return True
        return False


def level_names(specs: Sequence[TopologySpec], topologies: Mapping[str, Topology], chosen: str | None) -> LevelNames:
    """Return the levels of the chosen topology; of all topologies when the chosen one does not exist.

    With no topology in the policy and no preset that covers the nodes (a cluster without nodes, or without labels), a
    request may name every preset's levels, so that a gang can be submitted before its nodes exist.
    """
    others = tuple((name, topology.levels) for name, topology in topologies.items() if name != chosen)
    found = topologies.get(chosen or "")
    labelled = [topology for topology in topologies.values() if topology.labelled]
    unknown = not specs and all(len(topology.levels) <= 1 for topology in labelled)
    if unknown and (found is None or found.labelled):
        return LevelNames(tuple(presets().values()), others=others)
    if found is not None:
        return LevelNames((found.levels,), open=bool(found.waits), others=others)
    every = tuple(topologies.values())
    return LevelNames(tuple(topology.levels for topology in every), open=any(topology.waits for topology in every))


def choose_topology(
    specs: Sequence[TopologySpec],
    topologies: Mapping[str, Topology],
    node_selectors: Sequence[Iterable[tuple[str, str]]],
) -> str | None:
    """Return the topology of a workload that names none: the first with a nodeSelector that fits those of its pod sets.

    If none fits all of them, the first that fits the first of them.
    """
    asked = [dict(one) for one in node_selectors]
    for selectors in (asked, asked[:1]):
        for spec in specs:
            if spec.name in topologies and all(_fits(spec, selector) for selector in selectors):
                return spec.name
    return next(iter(topologies), None)


def _fits(spec: TopologySpec, node_selector: Mapping[str, str]) -> bool:
    """Return True if pods with this nodeSelector may run on nodes of the topology."""
    return all(node_selector.get(key, value) == value for key, value in spec.node_selector.items())
