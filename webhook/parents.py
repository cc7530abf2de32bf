"""What a workload is to others: one of its own, or the child of another workload whose gang its pods belong to."""

from __future__ import annotations

from typing import Literal

from engine.policy import Policy
from engine.records import Workload
from engine.requests import understand
from webhook.view import View

Standing = Literal["alone", "child", "unsure"]
MAX_DEPTH = 8  # of a chain of owners: pod, Job, JobSet, TrainJob, AppWrapper is the longest known


def standing(workload: Workload, view: View, policy: Policy) -> Standing:
    """`child` when a live workload that asks stands above; `unsure` when one that may ask is not known yet.

    Its controller references (group, kind, name, uid) lead there, in its own namespace; labels prove nothing.
    """
    owner, registry = workload.owner, view.registry
    for _ in range(MAX_DEPTH):
        if owner is None:
            return "alone"
        group = owner.api_version.rpartition("/")[0]
        entry = registry.find(group, owner.kind, owner.api_version.rpartition("/")[2])
        if entry is None or entry.handling not in ("placed", "through"):
            between = any(
                (ref.group, ref.kind) == (group, owner.kind) for one in registry.entries for ref in one.owners
            )
            return "unsure" if between else "alone"
        above = view.workload(group, owner.kind, workload.namespace, owner.name)
        if above is None or above.uid != owner.uid:
            return "unsure"
        asked = understand(above, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
        if asked.ignored is None:
            return "child"
        owner = above.owner
    return "alone"
