"""Pods of a workload: which pod set, which replica group, which rank. All of it out of labels, which may lie."""

from __future__ import annotations

from collections.abc import Mapping

from engine.kinds.expressions import index_of, value
from engine.kinds.structure import PodSet, Structure


def pod_set_of(labels: Mapping[str, str], structure: Structure) -> PodSet | None:
    """Return the first pod set whose selector the labels fit, None when they fit none."""
    return next((one for one in structure.pod_sets if _fits(labels, one)), None)


def rank_of(labels: Mapping[str, str], pod_set: PodSet) -> int | None:
    """Return the rank of a pod in its pod set, from 0; None without ranks and for an index that cannot be.

    Below the pod set's `total`: of a Job with more completions than parallelism a rank may lie beyond the slots.
    """
    if pod_set.rank is None:
        return None
    rank = value(pod_set.rank, labels)
    return rank if isinstance(rank, int) and 0 <= rank < max(pod_set.count, pod_set.total) else None


def group_of(labels: Mapping[str, str], structure: Structure) -> int | None:
    """Return which of the workload's gangs a pod belongs to: 0 where there is one, None for a label that cannot be."""
    gang = structure.gang
    if gang is None or gang.replica_label is None:
        return 0
    group = index_of(labels.get(gang.replica_label))
    return group if group is not None and group < gang.replicas else None


def _fits(labels: Mapping[str, str], pod_set: PodSet) -> bool:
    return all(key in labels and wanted in (None, labels[key]) for key, wanted in pod_set.selector)
