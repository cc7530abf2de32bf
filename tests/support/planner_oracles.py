"""Two slow and obvious answers to the planner's question, written apart from it.

`brute_force` tries every way to spread the pods over the hosts. `exact` is the textbook tree DP over numbers of pods:
best cost of n pods below a domain = one for the domain + the best split of n over its children, costs being tuples of
domain counts, coarse to fine. Both read a nested list of slots, not the planner's tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

Cost = tuple[int, ...]


def depth_of(nested: list[Any]) -> int:
    """Levels of a nested list, the hosts' included."""
    return 1 + (depth_of(nested[0]) if nested and isinstance(nested[0], list) else 0)


def brute_force(nested: list[Any], pods: int, require: int, grain: Mapping[int, int] | None = None) -> Cost | None:
    """The lexicographically fewest domains per level, or None; `require` -1 for no required level.

    `grain`: level -> the number of which each of its domains holds a multiple.
    """
    hosts = list(_hosts(nested, ()))
    depth = depth_of(nested)
    best: Cost | None = None
    for used in _spreads([slots for _, slots in hosts], pods):
        paths = [path for (path, _), n in zip(hosts, used, strict=True) if n]
        held = Counter[tuple[int, ...]]()
        for (path, _), n in zip(hosts, used, strict=True):
            held.update({path[: level + 1]: n for level in grain or ()})
        if any(n % (grain or {})[len(path) - 1] for path, n in held.items()):
            continue
        cost = tuple(len({path[: level + 1] for path in paths}) for level in range(depth))
        if (require < 0 or cost[require] == 1) and (best is None or cost < best):
            best = cost
    return best


def exact(nested: list[Any], pods: int, require: int, grain: Mapping[int, int] | None = None) -> Cost | None:
    """The same by dynamic programming."""
    depth = depth_of(nested)
    found: list[Cost] = []

    def table(node: list[Any] | int, level: int) -> list[Cost | None]:
        if isinstance(node, int):
            rows: list[Cost | None] = [(0,) * depth] * (min(max(node, 0), pods) + 1)
        else:
            rows = [(0,) * depth]
            for child in node:
                rows = _merge(rows, table(child, level + 1), pods)
        if level >= 0:
            rows = [row and _add(row, _unit(depth, level)) if n else row for n, row in enumerate(rows)]
        size = (grain or {}).get(level, 1)
        rows = [None if n % size else row for n, row in enumerate(rows)]
        if level == require and len(rows) > pods and rows[pods] is not None:
            above = tuple(int(i < level) for i in range(depth))
            found.append(_add(rows[pods] or (), above))
        return rows

    table(nested, -1)
    return min(found, default=None)


def _merge(left: list[Cost | None], right: list[Cost | None], pods: int) -> list[Cost | None]:
    rows: list[Cost | None] = [None] * (min(len(left) + len(right) - 2, pods) + 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right[: pods - i + 1]):
            if a is not None and b is not None:
                cost = _add(a, b)
                rows[i + j] = min(rows[i + j] or cost, cost)
    return rows


def _add(a: Cost, b: Cost) -> Cost:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _unit(depth: int, level: int) -> Cost:
    return tuple(int(i == level) for i in range(depth))


def _hosts(nested: list[Any], path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    for i, child in enumerate(nested):
        if isinstance(child, list):
            yield from _hosts(child, (*path, i))
        else:
            yield (*path, i), child


def _spreads(slots: list[int], pods: int) -> Iterator[tuple[int, ...]]:
    if not slots:
        if not pods:
            yield ()
        return
    for n in range(min(max(slots[0], 0), pods) + 1):
        for rest in _spreads(slots[1:], pods - n):
            yield (n, *rest)


def evenest(
    nested: list[Any],
    pods: int,
    require: int,
    grain: Mapping[int, int] | None = None,
    *,
    levelled: bool = True,
    prefer: int | None = None,
) -> Evenness | None:
    """The best `evenness` of any placement by trying all, or None; arguments as for `brute_force`."""
    hosts = list(_hosts(nested, ()))
    found = []
    for used in _spreads([slots for _, slots in hosts], pods):
        placed = {path: n for (path, _), n in zip(hosts, used, strict=True) if n}
        if is_whole(placed, grain) and (require < 0 or len({path[: require + 1] for path in placed}) == 1):
            found.append(evenness(placed, levelled=levelled, prefer=prefer))
    return min(found, default=None)


Evenness = tuple[tuple[int, ...], tuple[int, ...]]


def evenness(placed: Mapping[tuple[int, ...], int], *, levelled: bool = True, prefer: int | None = None) -> Evenness:
    """How good a balanced placement (host's path -> pods) is, the smaller the better.

    The numbers of domains down to `prefer`, or to the first level with several; then the shares there, negative: the
    smallest as large as possible, then the second smallest. Not `levelled`: of the hosts alone.
    """
    depth = len(next(iter(placed)))
    counts: list[int] = []
    shares: list[int] = []
    for level in range(depth) if levelled else (depth - 1,):
        held = Counter[tuple[int, ...]]()
        for path, n in placed.items():
            held[path[: level + 1]] += n
        counts.append(len(held))
        if len(held) > 1 and not shares:
            shares = [-n for n in sorted(held.values())]
        if shares and level >= (prefer or 0):
            break
    return tuple(counts), tuple(shares)


def is_whole(placed: Mapping[tuple[int, ...], int], grain: Mapping[int, int] | None) -> bool:
    """Whether every domain of a level in `grain` holds a multiple of its number."""
    held = Counter[tuple[int, ...]]()
    for path, n in placed.items():
        held.update({path[: level + 1]: n for level in grain or ()})
    return not any(n % (grain or {})[len(path) - 1] for path, n in held.items())
