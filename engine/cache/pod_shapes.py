"""Predicts the shape, spec and priority of a workload's pods before they exist.

They follow from the template, its RuntimeClass, PriorityClass and volumes, and from existing pods of the workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from engine.api import names
from engine.api.pod import Pod, PodSpec, SelectorTerm, Shape
from engine.api.resources import Requests, at_most, largest
from engine.api.workload import GangKey, PodSet, Workload
from engine.cache.own_volumes import OwnVolumeReader
from engine.cache.stores import Stores
from engine.gang.gang import pod_set_of
from engine.gang.key import key_of, parts
from engine.resources.kinds import NO_KINDS, DeviceKinds
from engine.resources.shape import covers, merge_runtime_class, resource_tolerations, with_requests

# Requests of earlier templates that are remembered, of each pod set.
_MAX_FORMER: Final = 8


class PodShapes:
    """The expected shapes of pods. Read from any thread; `observe` and `forget` need the lock of the cluster state."""

    def __init__(
        self,
        stores: Stores,
        kinds: Callable[[], DeviceKinds] = lambda: NO_KINDS,
        *,
        tolerates_resources: Callable[[], bool] = lambda: False,
    ) -> None:
        """Remember nothing yet.

        By the policy in force `kinds` returns the kinds of devices, and `tolerates_resources` whether the API server
        adds tolerations for extended resources to pods.
        """
        self._stores = stores
        self._kinds = kinds
        self._tolerates_resources = tolerates_resources
        self._own_volumes = OwnVolumeReader(stores)
        self._observed: dict[str, dict[str, dict[GangKey, Requests]]] = {}  # by uid, pod set and gang
        self._former: dict[str, dict[str, tuple[Requests, ...]]] = {}  # of earlier templates, by uid and pod set
        # The shapes of a template and of a held pod of it, by uid and pod set: the pod has what admission adds to all.
        # A pinned pod does not show that, as it has our pin besides.
        self._held: dict[str, dict[str, tuple[Shape, Shape]]] = {}

    def __len__(self) -> int:
        """Return the number of workloads with pods that differ from their template."""
        return len(self._observed.keys() | self._former.keys())

    def observe(self, key: GangKey, workload: Workload, pods: Iterable[Pod]) -> None:
        """Record the requests of the existing pods of a gang: a pod may ask for more than its template.

        While a pod set has none, what its last ones asked for stays: its next ones will, too. Bound pods of an earlier
        template say nothing about those to come.
        """
        uid = _known_as(workload)
        former, found = self._former.get(uid, {}), dict[str, Requests]()
        for pod in pods:
            pod_set = None if pod.finished else pod_set_of(pod, workload)
            requests = pod.spec.shape.requests
            if pod_set is None or (pod.spec.node_name and requests in former.get(pod_set.name, ())):
                continue
            if names.GATE in pod.spec.gates and workload.handling != "pods":
                self._held.setdefault(uid, {})[pod_set.name] = (pod_set.template.shape, pod.spec.shape)
            known = found.setdefault(pod_set.name, ())
            usual = requests == pod_set.template.shape.requests and pod_set.name not in former  # as those of most pods
            if requests != known and not usual:
                found[pod_set.name] = largest((known, requests))
        for name, requests in found.items():
            if requests:
                self._observed.setdefault(uid, {}).setdefault(name, {})[key] = requests
            else:
                self._drop(uid, name, key)

    def renew(self, old: Workload, new: Workload) -> None:
        """Drop the observed requests of the pod sets of a workload whose template requests something else now."""
        uid, before = _known_as(old), {one.name: one.template.shape.requests for one in old.pod_sets}
        for pod_set in new.pod_sets:
            name, requests = pod_set.name, pod_set.template.shape.requests
            if name not in before or before[name] == requests:
                continue
            of_pod_sets = self._former.setdefault(uid, {})
            known = dict.fromkeys((before[name], *of_pod_sets.get(name, ())))
            of_pod_sets[name] = tuple(one for one in known if one != requests)[:_MAX_FORMER]
            for key in list(self._observed.get(uid, {}).get(name, ())):
                self._drop(uid, name, key)

    def leave(self, key: GangKey) -> None:
        """Drop the observed requests of a gang that is gone; its workload may have others."""
        uid = parts(key)[0]
        for name in list(self._observed.get(uid, ())):
            self._drop(uid, name, key)

    def forget(self, uid: str) -> None:
        """Drop the observed requests of a workload by its uid; of a gang of plain pods, by its key."""
        self._observed.pop(uid, None)
        self._former.pop(uid, None)
        self._held.pop(uid, None)

    def _drop(self, uid: str, name: str, key: GangKey) -> None:
        of_workload = self._observed.get(uid, {})
        of_pod_set = of_workload.get(name, {})
        of_pod_set.pop(key, None)
        if not of_pod_set:
            of_workload.pop(name, None)
        if not of_workload:
            self._observed.pop(uid, None)

    def shape_of(self, workload: Workload, pod_set: PodSet) -> Shape:
        """Return the shape of one pod of a pod set, by its template, RuntimeClass, volumes and existing pods.

        With what it requests of devices of the policy's kinds.
        """
        return self._expected(workload, pod_set, self._shape_of(workload, pod_set))

    def shapes_of_slots(
        self, workload: Workload, pod_set: PodSet, planned: Requests | None, pods: Iterable[Pod] = ()
    ) -> tuple[Shape, Shape]:
        """Return the shape of a pod of a slot whatever existing pods request, and the shape that is to be expected.

        `planned`: what the slots were planned for (`PodSetPlan.requests`); no quota and no room was asked for what the
        template requests beyond it. More is to be expected if pods request more, those seen before or these.
        """
        shape = self._shape_of(workload, pod_set)
        expected = self._expected(workload, pod_set, shape)
        requests = shape.requests if planned is None else at_most(shape.requests, planned)
        if requests == shape.requests:
            return self._with_devices(shape), expected
        slot = self._with_devices(with_requests(shape, requests))
        there = [pod.spec.shape for pod in pods if not pod.finished]
        larger = any(not covers(slot, one) for one in (*map(Shape, self._seen(workload, pod_set)), *there))
        return slot, expected if larger else slot

    def _expected(self, workload: Workload, pod_set: PodSet, shape: Shape) -> Shape:
        observed = self._seen(workload, pod_set)
        return self._with_devices(with_requests(shape, largest((shape.requests, *observed))) if observed else shape)

    def _seen(self, workload: Workload, pod_set: PodSet) -> tuple[Requests, ...]:
        """Return what pods of a pod set request, or have requested, that differ from its template."""
        if workload.handling == "pods" and workload.unit == "pod":
            return ()  # the template is that of pods that exist
        # A copy: reviews read it in threads of their own.
        return tuple(self._observed.get(_known_as(workload), {}).get(pod_set.name, {}).values())

    def _with_devices(self, shape: Shape) -> Shape:
        devices = self._kinds().extended(shape.devices, shape.requests)
        return shape if devices is shape.devices else replace(shape, devices=devices)

    def _shape_of(self, workload: Workload, pod_set: PodSet) -> Shape:
        template = pod_set.template
        shape = template.shape
        runtime_class = self._stores.runtime_classes.get(template.runtime_class)
        if template.runtime_class and runtime_class is not None:
            shape = merge_runtime_class(shape, runtime_class, has_overhead=template.has_overhead)
        if workload.handling != "pods" and self._tolerates_resources():
            added = resource_tolerations(template.shape.requests)
            shape = replace(shape, tolerations=tuple(dict.fromkeys((*shape.tolerations, *added))))
        if volumes := self._volumes(workload.namespace, template):
            shape = replace(shape, volumes=volumes)
        if workload.handling == "pods" and workload.unit == "pod":
            return shape  # that of pods that exist
        return self._as_held(workload, pod_set, shape)

    def _as_held(self, workload: Workload, pod_set: PodSet, shape: Shape) -> Shape:
        """Return the shape with the nodeSelector, affinity and tolerations of the held pods of this template."""
        known = self._held.get(_known_as(workload), {}).get(pod_set.name)
        if known is None or _rules(known[0]) != _rules(pod_set.template.shape):
            return shape
        of_pod = known[1]
        tolerations = tuple(dict.fromkeys((*shape.tolerations, *of_pod.tolerations)))
        if (shape.node_selector, shape.affinity) == (of_pod.node_selector, of_pod.affinity):
            return shape  # every pod gets tolerations for nodes that are not ready
        return replace(shape, node_selector=of_pod.node_selector, affinity=of_pod.affinity, tolerations=tolerations)

    def shapes_of(self, workload: Workload) -> dict[str, Shape]:
        """Return the shape of one pod of every pod set, by the pod set's name."""
        return {pod_set.name: self.shape_of(workload, pod_set) for pod_set in workload.pod_sets}

    def gang_shapes_of(self, workload: Workload, *, placed: bool) -> dict[str, Shape]:
        """Return `shapes_of` with the volumes that pods have of their own already; `placed`: the gang has slots."""
        shapes = self.shapes_of(workload)
        for pod_set in workload.pod_sets:
            if pod_set.claim_series:
                shape = shapes[pod_set.name]
                if own := self._own_volumes.of(workload, pod_set, shape.volumes, placed=placed).terms:
                    volumes = tuple(dict.fromkeys((*shape.volumes, *own)))
                    shapes[pod_set.name] = replace(shape, volumes=volumes)
        return shapes

    def volumes_left_out(self, workload: Workload, *, placed: bool) -> tuple[str, ...]:
        """Return, in words, the volumes that pods have of their own and that `gang_shapes_of` leaves out."""
        fixed = (
            (one, self._volumes(workload.namespace, one.template)) for one in workload.pod_sets if one.claim_series
        )
        found = (self._own_volumes.of(workload, one, volumes, placed=placed).problem for one, volumes in fixed)
        return tuple(dict.fromkeys(filter(None, found)))

    def spec_of(self, workload: Workload, pod_set: PodSet) -> PodSpec:
        """Return the template with `shape_of` in it and the priority class that admission will resolve."""
        return replace(
            pod_set.template,
            shape=self.shape_of(workload, pod_set),
            priority_class=pod_set.template.priority_class or self._default_priority_class()[0],
        )

    def priority_of(self, workload: Workload) -> int:
        """Return the priority that the pods will have; the highest, where those of the pod sets differ.

        Pod sets without pods do not count: no quota of a PriorityClass is asked about them.
        The API server takes any number in a template, and refuses the pods unless it is that of their class: it counts
        only where no class is known at all, as in a file. That of plain pods is theirs already. 0 for a workload that
        has none itself, such as a RayJob that uses the cluster of another object.
        """
        return max(self._priorities(workload).values(), default=0)

    def giving_priority(self, workload: Workload) -> frozenset[str]:
        """Return the names of the pod sets that have `priority_of`, if others of the workload have less; else none."""
        found = self._priorities(workload)
        lowest, highest = min(found.values(), default=0), max(found.values(), default=0)
        return frozenset(name for name, one in found.items() if lowest < one == highest)

    def may_preempt(self, workload: Workload) -> bool:
        """Return True if the priority classes of all pod sets let their pods preempt others."""
        default = self._default_priority_class()[0]
        named = {pod_set.template.priority_class or default for pod_set in _with_pods(workload)}
        classes = (self._stores.priority_classes.get(name) for name in named)
        return all(one is None or one.preempts for one in classes)

    def priority_of_pod(self, spec: PodSpec) -> int:
        """Return the priority of a pod, or the one that its class will give it."""
        return self._priority(spec)

    def missing_class(self, pod_set: PodSet) -> str | None:
        """Return the unknown PriorityClass that a template names; None also where no class is known at all."""
        wanted, known = pod_set.template.priority_class, self._stores.priority_classes
        return wanted if wanted and len(known) and known.get(wanted) is None else None

    def missing_claims(self, workload: Workload) -> tuple[str, ...]:
        """Return the unknown PersistentVolumeClaims that the templates mount; none where no claim is known at all."""
        wanted = dict.fromkeys(claim for pod_set in workload.pod_sets for claim in pod_set.template.volume_claims)
        known = self._stores.volume_claims
        return tuple(claim for claim in wanted if len(known) and known.get((workload.namespace, claim)) is None)

    def known_classes(self) -> list[str]:
        """Return the names of all PriorityClasses, sorted."""
        return sorted(one.name for one in self._stores.priority_classes.values())

    def _volumes(self, namespace: str, template: PodSpec) -> tuple[tuple[SelectorTerm, ...], ...]:
        """Return the terms that nodes must match for the volumes of a template; what is not known yet allows any node.

        A claim with a volume goes where that is; one without goes where its class makes volumes.
        """
        if not (template.volume_claims or template.volume_classes):
            return ()
        found: list[tuple[SelectorTerm, ...] | None] = []
        for name in template.volume_claims:
            claim = self._stores.volume_claims.get((namespace, name))
            if claim is None:
                continue
            volume = self._stores.volumes.get(claim.volume) if claim.volume else None
            found.append(volume.terms if volume is not None else self._made_by(claim.storage_class))
        found += [self._made_by(name) for name in template.volume_classes]
        return tuple(dict.fromkeys(terms for terms in found if terms is not None))

    def _made_by(self, storage_class: str | None) -> tuple[SelectorTerm, ...] | None:
        known = self._stores.storage_classes
        if storage_class is None:
            found = next((one for one in known.values() if one.default), None)
        else:
            found = known.get(storage_class)
        return None if found is None else found.terms

    def _priorities(self, workload: Workload) -> dict[str, int]:
        numbers = workload.handling == "pods" or not len(self._stores.priority_classes)
        return {one.name: self._priority(one.template, numbers=numbers) for one in _with_pods(workload)}

    def _priority(self, template: PodSpec, *, numbers: bool = True) -> int:
        if numbers and template.priority is not None:
            return template.priority
        if not template.priority_class:
            return self._default_priority_class()[1]
        found = self._stores.priority_classes.get(template.priority_class)
        return found.value if found else 0

    def _default_priority_class(self) -> tuple[str, int]:
        defaults = [item for item in self._stores.priority_classes.values() if item.default]
        best = min(defaults, key=lambda item: item.value, default=None)
        return (best.name, best.value) if best else ("", 0)


def _with_pods(workload: Workload) -> Iterable[PodSet]:
    """Return the pod sets that have pods; all of them while none has any."""
    return [one for one in workload.pod_sets if one.slots > 0] or workload.pod_sets


def _rules(shape: Shape) -> tuple[object, ...]:
    return shape.node_selector, shape.affinity, shape.tolerations


def _known_as(workload: Workload) -> str:
    return workload.uid or key_of(workload)
