"""The domains of a label on the hosts of a topology.

A domain is the set of hosts with one value of the label. What costs as much as there are hosts (where the domains are
in the tree, how many there are) is found once and kept as long as the labels and the topology are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.planner.tree import Bools, Ints64, Tree


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the domains are in the tree: `level` is the coarsest one of whose domains each is inside one of them.

    `codes`: of the domains of that level. `single`: no two of these are in one domain of the label. `every`: each host
    has the label. `first`: by code, the first of those domains; beyond the last one where there is none.
    """

    level: int
    codes: Ints64
    single: bool
    every: bool
    first: Ints64


@dataclass(frozen=True, slots=True, eq=False)
class LabelDomains:
    """The domains of a label: `codes[host]` in tree order, 0 for a host without it; all codes are below `size`."""

    key: str
    tree: Tree
    codes: Ints64
    size: int
    _known: list[_Place] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)

    @property
    def level(self) -> int:
        """The coarsest level of the tree whose domains are each inside one domain of the label."""
        return self._place.level

    @property
    def level_codes(self) -> Ints64:
        """The codes of the tree's domains of `level`."""
        return self._place.codes

    @property
    def single(self) -> bool:
        """True when each domain of the label is one domain of `level`."""
        return self._place.single

    @property
    def every(self) -> bool:
        """True when every host has the label."""
        return self._place.every

    @property
    def first(self) -> Ints64:
        """By code, a number by which domains come in the order of the tree.

        Codes come in the order in which a replica saw the nodes: what ties go by is the same in each of them.
        """
        return self._place.first

    @property
    def number(self) -> int:
        """The number of domains with a host; codes of values that no node has any more do not count."""
        if not self._numbers:
            codes = self._place.codes
            self._numbers.append(len(np.unique(codes[codes > 0])))
        return self._numbers[0]

    def sums(self, per_host: Ints64) -> Ints64:
        """Return the sum of a per-host amount in each domain, by code."""
        return self.level_sums(self.tree.sums(self.level, per_host))

    def level_sums(self, amounts: Ints64) -> Ints64:
        """Return the sum of an amount of each domain of `level`, by code."""
        codes = self._place.codes
        if self._place.single:
            found = np.zeros(self.size, dtype=np.int64)
            found[codes] = amounts
            if not self._place.every:
                found[0] = amounts[codes == 0].sum()
            return found
        return np.bincount(codes, weights=amounts, minlength=self.size).astype(np.int64)

    def hosts_in(self, marked: Bools) -> Bools:
        """Return for every host whether its domain is marked, by code."""
        return self.tree.hosts_in(self.level, marked[self._place.codes])

    @property
    def _place(self) -> _Place:
        if not self._known:
            self._known.append(self._placed())
        return self._known[0]

    def _placed(self) -> _Place:
        tree, last = self.tree, len(self.tree.levels) - 1
        level = next(
            (
                level
                for level in range(last)
                if (self.codes == self.codes[tree.starts[level]][tree.domains[level]]).all()
            ),
            last,
        )
        codes = self.codes[tree.starts[level]]
        hosts = np.bincount(codes, minlength=self.size)
        first = np.full(self.size, len(codes), dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        return _Place(level, codes, bool((hosts[1:] <= 1).all()), not hosts[0], first)
