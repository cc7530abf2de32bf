"""Topogate: the product's own search of victims over plans of its own planner."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.preemption.rules.running import Preemption, Running, ends, lower, without
from bench.placement.rules import ours
from engine.preemption.search import Preemptible, choose_victims


def preempt(
    cluster: Cluster, job: Job, running: Mapping[int, Running], now: float, *, young_for: float = math.inf
) -> Preemption | None:
    """What `engine.preemption.search` chooses among the gangs of lower priority that run for less than `young_for`."""
    among = {f"{one.job.number:09}": one for one in lower(running, job) if now - one.since < young_for}
    candidates = [
        Preemptible(
            key,
            one.job.priority,
            one.job.pods,
            (now - one.since) * one.job.pods,
            frozenset(_domains(cluster, job, one)),
        )
        for key, one in among.items()
    ]

    def plan(gone: frozenset[str]) -> Placement | None:
        left = without(cluster, (among[key] for key in gone))
        return ours.place(left, job) if left.fits(job) else None

    def quality(placement: Placement) -> tuple[int, ...]:
        hosts = np.array([host for host, _ in placement])
        return tuple(len(np.unique(at_level[hosts])) for at_level in cluster.tree.domains)

    chosen = choose_victims(candidates, plan, quality=quality)
    return None if chosen is None else Preemption(chosen.plan, ends(among[one.key] for one in chosen.gangs))


def _domains(cluster: Cluster, job: Job, one: Running) -> set[int]:
    """The domains, of the level that the job names, in which a gang has pods; one for all without a level."""
    if job.level is None:
        return {0}
    domain_of = cluster.tree.domains[job.level]
    return {int(domain_of[host]) for host, _ in one.placement}
