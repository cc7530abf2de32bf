"""Topogate: the planner itself, with GPUs as the scarce resource."""

from __future__ import annotations

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from engine.planner.plan import Plan, PlanRequest, plan


def place(cluster: Cluster, job: Job) -> Placement | None:
    """What `engine.planner.plan` says."""
    request = PlanRequest(
        job.pods,
        require=job.level if job.required else None,
        prefer=None if job.required else job.level,
    )
    match plan(cluster.tree, cluster.slots(cluster.host_level, job.gpus), request, cluster.free):
        case Plan(hosts):
            return hosts
        case _:
            return None
