"""What an uninstall does and in which order, as lines for people, and the rights that it needs. Pure.

The order leaves nothing held at any interruption: first nothing new is held, then nobody holds, then all is released,
and only then goes what is needed to read the policy and its kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from engine.api.text import join_comma, plural, quote
from webhook.maintenance.installation import (
    ADMISSION_POLICIES,
    DEFINITION,
    IN_NAMESPACE,
    LABEL,
    MADE_BY_SERVICE,
    PART_OF,
    ROLES,
    SERVICE,
    WEBHOOKS,
    FoundObject,
    InstalledObject,
    service_namespace_object,
)
from webhook.maintenance.others import IN_USE
from webhook.maintenance.release import ReleasePlan, workloads_text
from webhook.maintenance.rights import Right


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What an uninstall removes from a cluster.

    `objects` exist; `release`: what is held; `placements`: Placements, `placed` those with slots; `others`: what is in
    the namespace of the service and not its own, for which the namespace stays. `leaves_manifests`: what was applied
    stays for the tool that did it, but for the webhook configurations and the Deployment, which would hold again.
    """

    namespace: str
    objects: tuple[FoundObject, ...]
    release: ReleasePlan
    placements: int
    placed: int
    others: tuple[str, ...]
    leaves_manifests: bool = False

    @property
    def empty(self) -> bool:
        """True if there is nothing to remove and nothing to release."""
        return not (self.removed() or self.release.held or self.release.changeable)

    def removed(self, objects: Collection[InstalledObject] | None = None) -> tuple[FoundObject, ...]:
        """Return what exists and is Topogate's own: of all objects of the plan, or of those given."""
        return tuple(
            one
            for one in self.objects
            if (objects is None or one.object in objects) and not (one.foreign or one.deleting or self._kept(one))
        )

    @property
    def left(self) -> tuple[str, ...]:
        """What stays because it is not certainly Topogate's, with the reason."""
        unlabelled, used = "it lacks the label of the manifests", f"others use it: {join_comma(self.others)}"
        return tuple(
            f"{one.object.called}: {used if self._kept(one) else unlabelled}"
            for one in self.objects
            if one.foreign or self._kept(one)
        )

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why the order would not be kept, so that nothing may be begun.

        A service in another namespace would run on and hold again what is released; webhooks that stay would refuse
        pods and workloads once no replica answers.
        """
        found = []
        for one in self.objects:
            elsewhere = one.service_namespaces
            if elsewhere and self.namespace not in elsewhere:
                where = join_comma([quote(name) for name in sorted(elsewhere)])
                found.append(f"{one.object.called} is for a service in namespace {where}: use --service-namespace")
            elif one.foreign and one.object in (*WEBHOOKS, *SERVICE):
                found.append(
                    f"{one.object.called} lacks the label {LABEL}={PART_OF}: add it if it is Topogate's, else delete it"
                )
        return tuple(found)

    def _kept(self, one: FoundObject) -> bool:
        return one.object.kind == "Namespace" and bool(self.others)


def everything(namespace: str, *, leave_manifests: bool = False) -> tuple[InstalledObject, ...]:
    """Return all objects of an installation, in the order in which they are deleted; or without those that stay."""
    if leave_manifests:
        return (*WEBHOOKS, *SERVICE, *MADE_BY_SERVICE)
    steps = (WEBHOOKS, SERVICE, ADMISSION_POLICIES, DEFINITION, ROLES, IN_NAMESPACE)
    return (*(one for step in steps for one in step), service_namespace_object(namespace))


def reading_rights(namespace: str, *, leave_manifests: bool = False) -> Iterator[Right]:
    """Yield the rights without which the plan of an uninstall cannot be made."""
    for one in everything(namespace, leave_manifests=leave_manifests):
        where = namespace if one.namespaced else ""
        yield Right("get", one.group, one.resource, one.name, where)
    for group, resource in () if leave_manifests else IN_USE:
        yield Right("list", group, resource, namespace=namespace)


def rights(plan: RemovalPlan) -> Iterator[Right]:
    """Yield the rights that an uninstall needs."""
    for one in plan.removed():
        where = plan.namespace if one.object.namespaced else ""
        yield Right("delete", one.object.group, one.object.resource, one.object.name, where)
    yield Right("patch", "", "pods")
    for workload in (*plan.release.workloads, *plan.release.changeable):
        yield Right("patch", workload.api_version.rpartition("/")[0], workload.resource)


def steps_text(plan: RemovalPlan) -> list[str]:
    """Return the steps of an uninstall as numbered lines."""
    release = plan.release
    by_namespace = join_comma([f"{name} {count:,}" for name, count in release.namespaces.items()])
    held = f"{plural(len(release.workloads), 'workload')} resumed, {plural(len(release.pods), 'pod')} released"
    namespace = service_namespace_object(plan.namespace)
    placements = plural(plan.placements, "Placement")
    lines = [
        f"webhooks     {_deleted(plan, WEBHOOKS)}: nothing new is held or refused",
        f"service      {_deleted(plan, SERVICE)}; wait until no replica runs",
        f"release      {held}{f' ({by_namespace})' if by_namespace else ''}; {_running(plan.placed)}",
    ]
    if plan.leaves_manifests:
        lines.append(f"namespace    {_deleted(plan, MADE_BY_SERVICE)}; all else stays for the tool that applied it")
    else:
        lines += [
            f"definitions  {_deleted(plan, (*ADMISSION_POLICIES, *DEFINITION))}, with {placements}",
            f"roles        {_deleted(plan, ROLES)}",
            f"namespace    {_deleted(plan, (*IN_NAMESPACE, namespace))}",
        ]
    return [f"{number}. {line}" for number, line in enumerate(lines, 1)]


def warnings_text(plan: RemovalPlan) -> list[str]:
    """Return what is not removed: templates with the gate, and objects of others."""
    lines = [f"stays: {one}" for one in plan.left]
    kept = [one for one in plan.release.templates if not one.suspended]
    if kept:
        lines.append(
            f"{plural(len(kept), 'running workload')} with the gate in a template: {workloads_text(kept)}. "
            "Pods that they create after the uninstall are held: topogate release --all --follow releases these"
        )
    return lines


def _running(placed: int) -> str:
    if not placed:
        return "no gang has slots"
    return f"{plural(placed, 'gang')} with slots {'runs' if placed == 1 else 'run'} on as other workloads do"


def _deleted(plan: RemovalPlan, objects: Collection[InstalledObject]) -> str:
    found = plan.removed(objects)
    if not found:
        return "nothing to delete"
    kinds: dict[str, list[str]] = {}
    for one in found:
        kinds.setdefault(one.object.kind, []).append(one.object.name)
    said = [f"{kind} {names[0]}" if len(names) == 1 else plural(len(names), kind) for kind, names in kinds.items()]
    return f"delete {join_comma(said)}"
