"""Placement rules: which hosts a gang gets. Each module re-states one scheduler's rule in its own words and code.

A rule sees the cluster and one job that fits; it answers a placement, or None where its way of looking finds none. It
keeps no state. What these schedulers do besides (quotas, preemption, other resources) is left out: every host's CPU and
memory are taken to be in proportion to its GPUs, as they are in GPU pools.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.rules import kai, kueue, native, ours, volcano


class Rule(Protocol):
    """The signature of a rule."""

    def __call__(self, cluster: Cluster, job: Job) -> Placement | None: ...


OURS = "topogate"

RULES: Mapping[str, Rule] = MappingProxyType(
    {OURS: ours.place, "kueue": kueue.place, "kai": kai.place, "volcano": volcano.place, "native": native.place}
)
"""By name; the first is ours, the others are the peers."""
