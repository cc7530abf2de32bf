"""What Topogate holds in a cluster, and with that what a release changes. Pure.

Held are the workloads that Topogate has suspended and the pods with its gate. Besides, pod templates have the gate:
pods made from them are held again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from engine.api import names
from engine.api.pod import OwnerRef, Pod
from engine.api.text import join_comma
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.gang.gang import held_by_us
from engine.gang.ownership import chain_of


@dataclass(frozen=True, slots=True)
class ReleaseScope:
    """What a release is limited to: a namespace (None: all), and objects with what belongs to them (None: all)."""

    namespace: str | None = None
    uids: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """What is held, each by namespace and name.

    `workloads`: suspended by Topogate. `templates`: other unfinished workloads with the gate in a template. `pods`:
    with the gate.
    """

    workloads: tuple[Workload, ...]
    templates: tuple[Workload, ...]
    pods: tuple[Pod, ...]

    @property
    def held(self) -> int:
        """How many objects are held."""
        return len(self.workloads) + len(self.pods)

    @property
    def changeable(self) -> tuple[Workload, ...]:
        """The workloads whose templates can be changed without another effect: no pods are made from them now."""
        return tuple(one for one in self.templates if one.suspended)

    @property
    def namespaces(self) -> dict[str, int]:
        """How many objects are held in each namespace."""
        found: dict[str, int] = {}
        for namespace in (*(one.namespace for one in self.workloads), *(one.namespace for one in self.pods)):
            found[namespace] = found.get(namespace, 0) + 1
        return dict(sorted(found.items()))


def release_plan(view: ClusterState, scope: ReleaseScope | None = None) -> ReleasePlan:
    """Return what is held within a scope (None: in the whole cluster)."""
    scope = scope or ReleaseScope()
    workloads = sorted(_workloads(view, scope), key=lambda one: (one.namespace, one.kind, one.name))
    held = tuple(one for one in workloads if held_by_us(one) and not one.finished)
    gated = [one for one in workloads if not held_by_us(one) and not one.finished and has_gate(one)]
    pods = (
        pod
        for pod in view.stores.pods.values()
        if names.GATE in pod.spec.gates
        and not pod.deleting
        and _within(view, scope, pod.namespace, (pod.uid, pod.owner))
    )
    return ReleasePlan(held, tuple(_roots(gated, workloads)), tuple(sorted(pods, key=lambda one: one.key)))


def workloads_text(workloads: Iterable[Workload]) -> str:
    """Return workloads as `job/train (alice), ...`."""
    return join_comma([f"{one.kind.lower()}/{one.name} ({one.namespace})" for one in workloads])


def has_gate(workload: Workload) -> bool:
    """Return True if a template in the workload has our gate."""
    return any(names.GATE in one.template.gates for one in workload.pod_sets if one.templated)


def _workloads(view: ClusterState, scope: ReleaseScope) -> Iterable[Workload]:
    for one in view.stores.workloads.values():
        if not one.deleting and _within(view, scope, one.namespace, (one.uid, one.owner)):
            yield one


def _within(view: ClusterState, scope: ReleaseScope, namespace: str, one: tuple[str, OwnerRef | None]) -> bool:
    if scope.namespace is not None and namespace != scope.namespace:
        return False
    uid, owner = one
    if scope.uids is None or uid in scope.uids:
        return True
    chain = chain_of(namespace, owner, find=view.owners.find)
    return any(link.uid in scope.uids for link in chain.links)


def _roots(found: Collection[Workload], workloads: Iterable[Workload]) -> Iterable[Workload]:
    """Yield the workloads that are not made by another one with the gate: that one's templates are the source."""
    gated = {one.uid for one in workloads if has_gate(one)}
    return (one for one in found if one.owner is None or one.owner.uid not in gated)
