"""A namespace's usage of GPUs and pods, and whether its ResourceQuotas admit a whole gang. Pure.

Without quota a gang can be created in part, so the whole of it must fit before its first pod exists. Rules of scopes
and resource names: Kubernetes' quota evaluator for pods.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from engine.api.objects import Quota
from engine.api.pod import Pod, PodSpec
from engine.api.resources import Requests, format_units
from engine.api.text import plural
from engine.resources.names import CORE, GPU, RATIO, WHOLE, is_gpu

_Usages = Sequence[tuple[PodSpec, Mapping[str, int]]]
_Template = tuple[PodSpec, Mapping[str, int], int, int]  # usage of one pod, fewest and most pods

_MOST_QUOTAS: Final = 64  # of a namespace that are asked about pods that anybody may announce
# Names for a part of a GPU, in percent of one.
_PARTS: Final = frozenset({GPU, CORE, RATIO})


def usage_of(spec: PodSpec, count: int) -> dict[str, int]:
    """Return the usage of `count` pods by quota resource name, in planner units."""
    usage: dict[str, int] = {"pods": count, "count/pods": count}
    for resource, amount in spec.shape.requests:
        if resource == "pods":
            continue
        usage[f"requests.{resource}"] = amount * count
        if resource in ("cpu", "memory", "ephemeral-storage") or resource.startswith("hugepages-"):
            usage[resource] = amount * count
    for resource, amount in spec.limits:
        usage[f"limits.{resource}"] = amount * count
    return usage


def applies(quota: Quota, spec: PodSpec) -> bool:
    """Return True if every scope of the quota matches the pod; an unknown scope matches (the stricter reading)."""
    best_effort = _best_effort(spec) if quota.scopes else False
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
            case "CrossNamespacePodAffinity":
                matches = spec.cross_namespace
            case "VolumeAttributesClass":  # it counts claims of volumes alone
                matches = False
            case _:
                matches = True
        if not matches:
            return False
    return True


def _best_effort(spec: PodSpec) -> bool:
    return not any(name in ("cpu", "memory") for name, _ in (*spec.shape.requests, *spec.limits))


def shortfall(
    quotas: Iterable[Quota],
    wanted: Sequence[tuple[PodSpec, int]],
    pending: Sequence[tuple[PodSpec, int]],
    ending: Sequence[PodSpec] = (),
) -> str | None:
    """Return why the namespace's quotas do not admit these numbers of further pods; None when they do.

    `pending`: pods of placed gangs of the namespace that do not exist yet; `ending`: pods of the namespace that use
    nothing any more by then. A quota that could not take them if it were empty is told first: it never has room for
    them.
    """
    full: str | None = None
    together, freed = _alike(pending), _alike((spec, 1) for spec in ending)
    for quota in sorted(quotas, key=lambda quota: quota.name):
        under = [(spec, count) for spec, count in wanted if applies(quota, spec)]
        pods = plural(sum(count for _, count in under), "pod")
        usage = usage_under(quota, under)
        room = _room(quota, together, freed, of=usage)
        for name in sorted(room):
            if usage[name] <= 0:
                continue
            needs = f"{pods} need {_amount(name, usage[name])}"
            if usage[name] > quota.hard[name]:
                return _never_text(quota, name, needs)
            if usage[name] > room[name] and full is None:
                full = _full_text(quota, name, room[name], needs)
    return full


def admit(quotas: Iterable[Quota], wanted: Sequence[tuple[PodSpec, int]], *, bounded: bool = True) -> bool:
    """Return whether the quotas of a namespace admit these numbers of further pods.

    No more than 65 are asked. If `bounded`, more than 64 admit none; else nobody can mean harm.
    """
    known = list(islice(quotas, _MOST_QUOTAS + 1))
    return not (bounded and len(known) > _MOST_QUOTAS) and shortfall(known, wanted, []) is None


def lacking(
    quotas: Iterable[Quota],
    templates: Sequence[tuple[PodSpec, int, int]],
    count: int,
    pending: Sequence[tuple[PodSpec, int]],
) -> list[tuple[Quota, str, int]]:
    """Return the resources of quotas that `count` further pods lack, and how much, as in `minimum_shortfall`."""
    found = []
    together, each, names = _alike(pending), *_each_of(templates)
    for quota in quotas:
        for name, left in _room(quota, together, of=names).items():
            if (needed := _least_usage(quota, name, each, count)) > max(left, 0):
                found.append((quota, name, needed - left))
    return found


def minimum_shortfall(
    quotas: Iterable[Quota],
    templates: Sequence[tuple[PodSpec, int, int]],
    count: int,
    pending: Sequence[tuple[PodSpec, int]],
    ending: Sequence[PodSpec] = (),
) -> str | None:
    """Return why the namespace's quotas do not admit `count` further pods of any of these templates; None if they may.

    `templates`: template, fewest and most pods of it. Each resource of a quota is looked at alone, with the pods that
    use least of it: so what is refused can never start. `pending` and `ending` as in `shortfall`.
    """
    together, freed = _alike(pending), _alike((spec, 1) for spec in ending)
    each, names = _each_of(templates)
    for quota in sorted(quotas, key=lambda quota: quota.name):
        room = _room(quota, together, freed, of=names)
        for name in sorted(room):
            needed = _least_usage(quota, name, each, count)
            if needed <= max(room[name], 0):
                continue
            needs = f"{plural(count, 'pod')} need {_amount(name, needed)} at least"
            if needed > quota.hard[name]:
                return _never_text(quota, name, needs)
            return _full_text(quota, name, room[name], needs)
    return None


def _each_of(templates: Iterable[tuple[PodSpec, int, int]]) -> tuple[list[_Template], set[str]]:
    """Return the templates with the usage of one pod of each, and the names that any of them uses."""
    each: list[_Template] = [(spec, usage_of(spec, 1), least, most) for spec, least, most in templates]
    return each, {name for _, usage, _, _ in each for name in usage}


def _least_usage(quota: Quota, name: str, templates: Sequence[_Template], count: int) -> int:
    """Return how much of one resource of a quota `count` pods of these templates use at least."""
    each = [usage.get(name, 0) if applies(quota, spec) else 0 for spec, usage, _, _ in templates]
    needed = sum(one * least for one, (_, _, least, _) in zip(each, templates, strict=True))
    left = count - sum(least for _, _, least, _ in templates)
    for one, (_, _, least, most) in sorted(zip(each, templates, strict=True), key=lambda pair: pair[0]):
        taken = max(0, min(left, most - least))
        needed, left = needed + one * taken, left - taken
    return needed


def _never_text(quota: Quota, name: str, needs: str) -> str:
    return f"quota {quota.name} allows {_amount(name, quota.hard[name])} of {name} in all, {needs}: it never has room"


def _full_text(quota: Quota, name: str, left: int, needs: str) -> str:
    return f"quota {quota.name} leaves {_amount(name, max(left, 0))} of {name}, {needs}"


def _amount(name: str, units: int) -> str:
    """Return an amount of a resource by its name in a quota."""
    return format_units(name.removeprefix("requests.").removeprefix("limits.").removeprefix("count/"), units)


def _alike(pods: Iterable[tuple[PodSpec, int]]) -> _Usages:
    """Return the usage of numbers of pods, those together that no scope of a quota tells apart, with one of each."""
    found: dict[tuple[object, ...], tuple[PodSpec, Counter[str]]] = {}
    for spec, count in pods:
        alike = (_best_effort(spec), spec.deadline, spec.priority_class, spec.cross_namespace)
        found.setdefault(alike, (spec, Counter()))[1].update(usage_of(spec, count))
    return list(found.values())


def _room(quota: Quota, pending: _Usages, ending: _Usages = (), *, of: Collection[str]) -> dict[str, int]:
    """Return how much of these resources a quota leaves; less than nothing where it is overdrawn."""
    coming = [usage for spec, usage in pending if applies(quota, spec)]
    freed = [usage for spec, usage in ending if applies(quota, spec)]
    return {
        name: quota.hard[name]
        - quota.used.get(name, 0)
        - sum(usage.get(name, 0) for usage in coming)
        + sum(usage.get(name, 0) for usage in freed)
        for name in of
        if name in quota.hard
    }


def usage_under(quota: Quota, pods: Iterable[tuple[PodSpec, int]]) -> Counter[str]:
    """Return the usage that a quota counts of these numbers of pods, by quota resource name."""
    usage: Counter[str] = Counter()
    for spec, count in pods:
        if applies(quota, spec):
            usage.update(usage_of(spec, count))
    return usage


@dataclass(frozen=True, slots=True)
class Usage:
    """GPUs, in percent of one, and pods."""

    gpus: int = 0
    pods: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.gpus + other.gpus, self.pods + other.pods)


@lru_cache(maxsize=4_096)
def usage_of_pods(requests: Requests, count: int, vendors: frozenset[str] = frozenset()) -> Usage:
    """Return the usage of `count` pods with these requests; a share of a GPU counts by its larger part.

    `vendors`: the policy's names of whole GPUs.
    """
    whole = sum(amount for name, amount in requests if name in vendors or is_gpu(name))
    return Usage(count * max((whole * WHOLE, *(amount for name, amount in requests if name in _PARTS))), count)


class NamespaceUsage:
    """The usage of bound pods by namespace, under a policy with these `vendors`; not thread-safe."""

    def __init__(self, vendors: frozenset[str], pods: Iterable[Pod] = ()) -> None:
        self._vendors = vendors
        self._usage: defaultdict[str, Usage] = defaultdict(Usage)
        for pod in pods:
            self.change(None, pod)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a change of a pod; one that has ended, or has no host yet, uses nothing."""
        for pod, sign in ((old, -1), (new, 1)):
            if pod is not None and not pod.finished and (pod.spec.node_name or pod.nominated_node):
                found = self._usage[pod.namespace] + usage_of_pods(pod.spec.shape.requests, sign, self._vendors)
                self._usage[pod.namespace] = found
                if found == Usage():
                    del self._usage[pod.namespace]

    def now(self) -> dict[str, Usage]:
        """Return the usage of every namespace with bound pods."""
        return dict(self._usage)
