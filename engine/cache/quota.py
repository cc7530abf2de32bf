"""Checks whether a namespace's ResourceQuotas admit a whole gang. Pure.

Without quota a gang can be created in part, so the whole of it must fit before its first pod exists. Rules of scopes
and resource names: Kubernetes' quota evaluator for pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from engine.api.objects import Quota
from engine.api.pod import PodSpec
from engine.api.resources import format_units
from engine.api.text import plural


def usage_of(spec: PodSpec, count: int) -> dict[str, int]:
    """Return the usage of `count` pods by quota resource name, in planner units."""
    usage: dict[str, int] = {"pods": count, "count/pods": count}
    for resource, amount in spec.shape.requests:
        if resource == "pods":
            continue
        usage[f"requests.{resource}"] = amount * count
        if resource in ("cpu", "memory", "ephemeral-storage"):
            usage[resource] = amount * count
    for resource, amount in spec.limits:
        usage[f"limits.{resource}"] = amount * count
    return usage


def applies(quota: Quota, spec: PodSpec) -> bool:
    """True when every scope of the quota matches the pod; an unknown scope matches (the stricter reading)."""
    best_effort = not any(name in ("cpu", "memory") for name, _ in (*spec.shape.requests, *spec.limits))
    for scope, operator, values in quota.scopes:
        match scope:
            case "BestEffort":
                matches = best_effort
            case "NotBestEffort":
                matches = not best_effort
            case "Terminating":
                matches = spec.deadline
            case "NotTerminating":
                matches = not spec.deadline
            case "PriorityClass":
                matches = {
                    "In": spec.priority_class in values,
                    "NotIn": spec.priority_class not in values,
                    "Exists": spec.priority_class != "",
                    "DoesNotExist": spec.priority_class == "",
                }.get(operator, True)
            case _:
                matches = True
        if not matches:
            return False
    return True


def shortfall(quotas: Iterable[Quota], wanted: Sequence[tuple[PodSpec, int]], pending: Mapping[str, int]) -> str | None:
    """Return why the namespace's quotas do not admit these numbers of further pods; None when they do.

    `pending`: what placed gangs of the namespace will still use (pods that do not exist yet), by quota resource name.
    """
    for quota in sorted(quotas, key=lambda quota: quota.name):
        under = [(spec, count) for spec, count in wanted if applies(quota, spec)]
        usage: Counter[str] = Counter()
        for spec, count in under:
            usage.update(usage_of(spec, count))
        for name in sorted(quota.hard):
            if usage[name] <= 0:
                continue
            left = quota.hard[name] - quota.used.get(name, 0) - pending.get(name, 0)
            if usage[name] > left:
                resource = name.removeprefix("requests.").removeprefix("limits.").removeprefix("count/")
                return (
                    f"quota {quota.name} leaves {format_units(resource, max(left, 0))} of {name}, "
                    f"{plural(sum(count for _, count in under), 'pod')} need {format_units(resource, usage[name])}"
                )
    return None
