"""The checks of the levels of a topology: labels that no node has, levels that decide nothing, contradictions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from engine.api.text import join_phrases, plural, quote, sanitize
from engine.topology.topology import Topology
from webhook.checks.model import (
    Finding,
    failure,
    ok,
    warning,
)

_MOST_CONTRADICTIONS: Final = 5
_MOST_PLACES: Final = 3  # of one value


def level_findings(check: str, topology: Topology) -> Iterator[Finding]:
    """Yield the findings about the levels above the host: labels, sizes, and values in two places."""
    for index, level in enumerate(topology.levels[:-1]):
        of_level = f"{check}, level {sanitize(level.name)}"
        labelled, selected = topology.coverage.get(level.name, (0, 0))
        keys = " or ".join(level.keys)
        if not labelled:
            yield failure(
                of_level,
                f"no node of {selected:,} has a label {keys}",
                "label the nodes, or remove the level from the policy",
            )
            continue
        yield ok(of_level, _domains_found(topology, index))
        for found in _contradictions(topology, index) if topology.labelled and index else ():
            yield warning(
                of_level,
                found,
                f"if it is the same {sanitize(level.name)}, correct {keys} of the nodes in the smaller domain",
            )


def _domains_found(topology: Topology, level: int) -> str:
    tree = topology.tree
    bounds = [tree.range(level, domain) for domain in range(tree.size(level))]
    sizes = [end - first for first, end in bounds]
    least, most = min(sizes), max(sizes)
    nodes = plural(most, "node") if least == most else f"{least:,} to {plural(most, 'node')}"
    if len(sizes) == 1:
        return f"1 domain ({sanitize(tree.path(level, 0)[-1])}) with all nodes: the level decides nothing"
    each = f"{plural(len(sizes), 'domain')} of {nodes}"
    if most == 1:
        return f"{each}: the same as the host level"
    if level and tree.size(level) == tree.size(level - 1):
        return f"{each}: the same as level {sanitize(topology.levels[level - 1].name)}"
    return each


def _contradictions(topology: Topology, level: int) -> Iterator[str]:
    """Yield the label values of a level that are in two domains of the level above.

    A domain is a path, so that racks may be numbered in each block anew: where most values repeat, that is how they are
    meant; where few do, a node has the wrong label.
    """
    tree = topology.tree
    parents: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    example: dict[tuple[str, ...], str] = {}
    for path in tree.paths:
        parents[path[level]][path[:level]] += 1
        example.setdefault(path[: level + 1], path[-1])
    double = {value: found for value, found in parents.items() if len(found) > 1}
    if 2 * len(double) > len(parents):
        return
    for number, (value, found) in enumerate(sorted(double.items())):
        if number == _MOST_CONTRADICTIONS:
            yield f"{plural(len(double) - number, 'more value')} in several domains of the level above"
            return
        places = [
            f"{sanitize('/'.join(parent))} ({plural(count, 'node')}, as {sanitize(example[(*parent, value)])})"
            for parent, count in found.most_common()
        ]
        if more := places[_MOST_PLACES:]:
            places = [*places[:_MOST_PLACES], f"{len(more):,} more"]
        yield f"{quote(value)} is in {join_phrases(places)}"
