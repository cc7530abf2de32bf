"""Finds the fewest domains, level by level, for pods that all go into one of several candidate domains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from engine.planner.bounds import Candidate, tightened
from engine.planner.descent import PICKS, Choice, choice, descend, rank
from engine.planner.exact import OutOfSteps, Search, Steps
from engine.planner.sums import DomainSums
from engine.planner.tree import Ints

# Candidates that are descended into before the exact search: descents cost some 50 us each, and the first few in the
# order of their bounds nearly always hold the optimum.
_DESCENTS = 16


def fewest_domains(
    sums: DomainSums, level: int, ordered: Iterator[Candidate], count: int, steps: int
) -> tuple[Choice, bool]:
    """Return the choice with the lexicographically fewest domains below `level`, and whether that is proven.

    `ordered` are the domains of `level` that hold `count`, best bound first (-1: the whole topology). For a new gang
    `level` is the finest that has one; a gang that grows has its own domain as the only one. First the quick way: a
    descent that reaches its candidate's bound is optimal when no other candidate's bound is lower. Otherwise the exact
    search decides, within `steps` pairs of partial placements; beyond, the best found is returned, unproven.
    """
    top = level + 1
    best: Choice | None = None
    missed: list[Candidate] = []
    for candidate in itertools.islice(ordered, _DESCENTS):
        if best is not None and candidate.bound >= best.used[top:]:
            break
        reached = _descents(sums, level, candidate, count)
        if best is None or reached.used < best.used:
            best = reached
        if reached.used[top:] == candidate.bound:
            ordered = iter(())  # no later one has a lower bound
            break
        missed.append(candidate)
    assert best is not None, "a level that fits has a candidate"
    budget = Steps(steps)
    for candidate in itertools.chain(missed, ordered):
        if candidate.bound >= best.used[top:]:
            break
        closer = tightened(sums, level, candidate, count, used=best.used[top:])
        if closer.bound >= best.used[top:]:
            continue
        best, decided = _exact(sums, level, closer, best=best, count=count, steps=budget)
        if not decided:
            return best, False
    return best, True


def _descents(sums: DomainSums, level: int, candidate: Candidate, count: int) -> Choice:
    """Return the best of the quick descents into a candidate; stops at one that reaches the bound."""
    domains = np.array([candidate.domain])
    best: Choice | None = None
    for pick in PICKS:
        reached = descend(sums, level, domains, count, pick)
        if best is None or rank(sums, reached) < rank(sums, best):
            best = reached
        if best.used[level + 1 :] == candidate.bound:
            break
    assert best is not None
    return best


def _exact(
    sums: DomainSums, level: int, candidate: Candidate, *, best: Choice, count: int, steps: Steps
) -> tuple[Choice, bool]:
    """Return the better of `best` and the candidate's optimum, and whether that is proven.

    The search goes one level deeper at a time: fewer levels are much cheaper, and when a descent from its answer
    reaches the bound of the levels below, it is the optimum of all levels.
    """
    top = level + 1
    host = len(sums.slots) - 1
    for leaf in range(top + 1, host + 1):
        # On the way down an equal number is still useful; at the hosts only a smaller one is.
        last = best.used[leaf] - (leaf == host)
        if last < 0:
            return best, True
        caps = (*best.used[top:leaf], last)
        try:
            domains = Search(sums, level=level, domain=candidate.domain, caps=caps, count=count, steps=steps).run()
        except OutOfSteps:
            return best, False
        if domains is None:
            return best, True
        above = np.unique(sums.tree.ancestors(leaf, leaf - 1)[domains]) if leaf == host else domains
        reached = _below(sums, leaf - 1 if leaf == host else leaf, above, count)
        if leaf == host and sums.grain is not None:
            # With slices the racks and their number of pods together decide about the hosts.
            reached = min(reached, choice(sums, domains), key=lambda one: rank(sums, one))
        if reached.used < best.used:
            best = reached
        # Each domain has a finer one inside it, so further down there are no fewer.
        least = reached.used[leaf]
        bound = (*reached.used[top : leaf + 1], *[max(least, one) for one in candidate.bound[leaf + 1 - top :]])
        if reached.used[top:] == bound or bound >= best.used[top:]:
            return best, True
    return best, True


def _below(sums: DomainSums, level: int, domains: Ints, count: int) -> Choice:
    """Return the best quick descent from domains that are all needed."""
    reached = [descend(sums, level, domains, count, pick) for pick in PICKS]
    return min(reached, key=lambda one: rank(sums, one))
