"""What everybody in a lagging cluster shares: the truth, clocks, who leads, chance, and the trace."""

from __future__ import annotations

import random
import time
from typing import Any, Final

from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOBS, NODES, PLACEMENTS, PODS, ClusterApi
from tests.support.lagging_cluster.objects import controller_of
from tests.support.lagging_cluster.truth import Truth
from tests.support.lagging_cluster.workloads import JOB, KINDS, kind_of

EPOCH: Final = 1_800_000_000.0
POLICY: Final = "apiVersion: topogate.dev/v1alpha1\nkind: Policy\nnodes: {settle: 0s}\n"
_LINES: Final = 400  # of the trace of a failed life


class World:
    """One cluster; everything in it that happens by chance is drawn from `rng`."""

    def __init__(self, seed: int, *, policy: str = "", faulty: float = 0.0, kinds: tuple[str, ...] = (JOB,)) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.policy = POLICY + policy
        self.faulty = faulty  # the part of requests that meets a fault
        self.kinds = kinds  # of its workloads
        self.collections = tuple(dict.fromkeys((NODES, PODS, *_collections(kinds), PLACEMENTS)))
        self.api = ClusterApi()
        self.now = 1000.0
        self.skew = 0.0  # of the wall clock
        self.leader = ""
        self.term = 0
        self.writes = 0  # of replicas
        self.violated: list[str] = []
        self._trace: list[str] = []
        self.truth = Truth(self.api)
        self._number = 0

    @property
    def wall(self) -> float:
        return EPOCH + self.now + self.skew

    def workloads(self) -> list[Json]:
        """All workloads by kind and name; not to be changed."""
        every = [one for path in _collections(self.kinds) for one in self.api.objects(path)]
        return [one for one in every if not controller_of(one)]

    def makers(self) -> list[Json]:
        """All workloads that make pods, those that others have made too."""
        every = [one for path in _collections(self.kinds) for one in self.api.objects(path)]
        return [one for one in every if kind_of(one).makes_pods]

    def stamp(self) -> str:
        """The wall clock as Kubernetes writes it."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall))

    def number(self) -> int:
        """Another number for a name."""
        self._number += 1
        return self._number

    def elect(self, name: str) -> None:
        """Another term begins, maybe of the same leader."""
        self.leader = name
        self.term += 1
        self.note("leads", name)

    def note(self, *what: Any) -> None:
        """Add a line to the trace."""
        self._trace.append(" ".join([f"{self.now:.1f}", *(str(one) for one in what if one != "")]))

    def wrote(self, what: str) -> None:
        """A replica has written."""
        self.writes += 1
        self.check(what)

    def check(self, when: str) -> None:
        """Hold the truth against the invariants."""
        for violation in self.truth.violations():
            self.violate(f"after {when}: {violation}")

    def violate(self, what: str) -> None:
        self.violated.append(what)
        self.note("VIOLATED", what)

    def report(self) -> str:
        """What a failed test shows."""
        trace = "\n".join(self._trace[-_LINES:])
        return f"seed {self.seed}: {self.violated[0]}\n{self.policy}faulty: {self.faulty}\n{trace}"


def _collections(kinds: tuple[str, ...]) -> list[str]:
    """Those of workloads of these kinds, and of what they make."""
    found = dict.fromkeys(KINDS[kind].collection for kind in kinds)
    if any(not KINDS[kind].makes_pods for kind in kinds):
        found[JOBS] = None
    return list(found)
