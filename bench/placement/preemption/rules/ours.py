"""Topogate: the product's own search of victims over plans of its own planner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.preemption.rules.running import Preemption, Running, ends, lower, without
from bench.placement.rules import ours
from engine.preemption.room import Domains, Holdings, Need, Room, Shortfalls
from engine.preemption.search import MAX_SECONDS, Preemptible, Scope, SearchLimits, choose_victims

_LOOK = 1e-4  # seconds of the search from one look at its clock to the next: a run does not depend on the machine


def preempt(
    cluster: Cluster, job: Job, running: Mapping[int, Running], now: float, *, young_for: float = math.inf
) -> Preemption | None:
    """What `engine.preemption.search` chooses among the gangs of lower priority that run for less than `young_for`."""
    among = [one for one in lower(running, job) if now - one.since < young_for]
    gangs = [
        Preemptible(f"{number:06}", one.job.priority, one.job.pods, (now - one.since) * one.job.pods)
        for number, one in enumerate(among)
    ]

    def plan(gone: frozenset[str]) -> Placement | None:
        left = without(cluster, (among[int(key)] for key in gone))
        return ours.place(left, job) if left.fits(job) else None

    def quality(placement: Placement) -> tuple[int, ...]:
        hosts = np.array([host for host, _ in placement])
        return tuple(len(np.unique(at_level[hosts])) for at_level in cluster.tree.domains)

    limits = SearchLimits(seconds=MAX_SECONDS, clock=_Steps())
    chosen = choose_victims(_scopes(cluster, job, among, gangs), plan, quality=quality, limits=limits)
    return None if chosen is None else Preemption(chosen.plan, ends(among[int(one.key)] for one in chosen.gangs))


class _Steps:
    """A clock that goes on by the same time at every look."""

    def __init__(self) -> None:
        self._looks = 0

    def __call__(self) -> float:
        self._looks += 1
        return self._looks * _LOOK


def _scopes(cluster: Cluster, job: Job, among: Sequence[Running], gangs: Sequence[Preemptible]) -> list[Scope]:
    """As `engine.preemption.scopes` has them: one for each domain of a required level, else one for all hosts."""
    tree, hosts = cluster.tree, len(cluster.free)
    entries = [(gang, host, pods * one.job.gpus) for gang, one in enumerate(among) for host, pods in one.placement]
    entries.sort(key=lambda entry: entry[1])
    held = Holdings(
        np.array([gang for gang, _, _ in entries], dtype=np.int64),
        np.array([host for _, host, _ in entries], dtype=np.int64),
        np.array([[gpus] for _, _, gpus in entries], dtype=np.int64).reshape(-1, 1),
    )
    required = job.level if job.required else None
    domains = Domains(np.zeros(hosts, dtype=np.int64), 1)
    if required is not None:
        domains = Domains(tree.domains[required].astype(np.int64), tree.size(required))
    need = Need(job.pods, np.array([job.gpus], dtype=np.int64), cluster.gpus // job.gpus, domains)
    free = cluster.free.reshape(-1, 1)

    def scope(members: Sequence[int], within: slice) -> Scope:
        budget = Shortfalls(np.zeros(0, dtype=np.int64), np.zeros((len(members), 0), dtype=np.int64))
        room = Room(free[within], [need.on(within)], held.of(members, within), budget, least=job.pods)
        return Scope([gangs[one] for one in members], room)

    if required is None:
        return [scope(range(len(among)), slice(0, hosts))]
    inside: dict[int, list[int]] = {}
    for gang, one in enumerate(among):
        for domain in sorted({int(domains.of_host[host]) for host, _ in one.placement}):
            inside.setdefault(domain, []).append(gang)
    return [scope(members, slice(*tree.range(required, domain))) for domain, members in sorted(inside.items())]
