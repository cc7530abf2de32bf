"""One lot of a gang on what is free for it: beside its kin where that has hosts already, else on its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.planner.amounts import Amounts
from engine.planner.bounds import candidates, growth, lowest_fit
from engine.planner.descent import Choice, choice
from engine.planner.plan import fewest_hosts, fill, one_host
from engine.planner.search import fewest_domains
from engine.planner.tree import Ints64

# Domains of the required level that pods joining a gang are tried in, in the order of their bounds.
_DOMAINS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Pods per host, the domains opened per level, and whether no placement opens fewer."""

    pods: Ints64
    opened: tuple[int, ...]
    proven: bool


def place(amounts: Amounts, count: int, require: int, *, levelled: bool, steps: int) -> Placed | None:
    """Place `count` pods in one domain of level `require` (-1: anywhere); None when no domain holds them.

    Not `levelled`: only the number of hosts counts. Feasibility is exact.
    """
    if require < 0 or len(amounts.slots[require]):
        found = (
            _beside(amounts, count, require, steps) if amounts.used else _anew(amounts, count, require, levelled, steps)
        )
        if found is not None:
            best, proven = found
            pods = np.zeros_like(amounts.slots[-1])
            for host, number in fill(amounts, best.hosts, count):
                pods[host] = number
            return Placed(pods, choice(amounts, np.flatnonzero(pods)).used, proven)
    return None


def _anew(amounts: Amounts, count: int, require: int, levelled: bool, steps: int) -> tuple[Choice, bool] | None:
    level = lowest_fit(amounts, count)
    if level is None or level < require:
        return None
    if level == len(amounts.slots) - 1:
        return one_host(amounts, count), True
    if not levelled and amounts.grain is None:
        return fewest_hosts(amounts, level, count), True
    return fewest_domains(amounts, level, candidates(amounts, level, count), count, steps)


def _beside(amounts: Amounts, count: int, require: int, steps: int) -> tuple[Choice, bool] | None:
    """The best of the required level's domains; those above it are opened too where they are new."""
    tree = amounts.tree
    assert amounts.used is not None
    fitting = [0] if require < 0 else np.flatnonzero(amounts.slots[require] >= count).tolist()
    ordered = []
    for domain in fitting:
        candidate = growth(amounts, require, domain, count)
        if candidate is not None:
            above = [not amounts.used[up][tree.ancestors(require, up)[domain]] for up in range(require)]
            own = [] if require < 0 else [not amounts.used[require][domain]]
            size = 0 if require < 0 else int(amounts.slots[require][domain])
            bound = (*map(int, above + own), *candidate.bound)
            ordered.append((bound, -size if amounts.spread else size, candidate.domain, candidate))
    best: Choice | None = None
    proven = True
    for bound, _, _, candidate in sorted(ordered, key=lambda one: one[:3])[:_DOMAINS]:
        if best is not None and bound >= best.used:
            break
        reached, decided = fewest_domains(amounts, require, iter([candidate]), count, steps)
        proven &= decided
        if best is None or reached.used < best.used:
            best = reached
    if best is None:
        return None
    skipped = sorted(one[0] for one in ordered)[_DOMAINS:]
    return best, proven and not (skipped and skipped[0] < best.used)
