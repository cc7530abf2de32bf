"""Workloads that are made up from pods, as no object describes them: what gangs of plain pods and single pods share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.api import names
from engine.api.pod import OwnerRef, Pod, PodSpec
from engine.api.workload import PodSet, Workload

KIND = "Pod"


def workload_of(
    pods: Sequence[Pod],
    above: OwnerRef,
    *,
    template: PodSpec,
    slots: int,
    remaining: int,
    finished: bool,
    replaced: str,
    unit: str = "workload",
) -> Workload:
    """The workload of one pod set that pods make up, of which there is at least one; it is known as `above`.

    `replaced`: what deleting one that is not bound costs (`engine.kinds`).
    """
    pod_set = PodSet(
        name=names.MAIN,
        template=template,
        slots=slots,
        total=slots,
        remaining=remaining,
        ranked=False,
        path=(),
        replace=replaced,
    )
    return Workload(
        api_version=above.api_version,
        kind=above.kind,
        namespace=pods[0].namespace,
        name=above.name,
        uid=above.uid,
        resource_version="",
        generation=0,
        labels={},
        annotations={},
        pod_sets=(pod_set,),
        suspended=False,
        suspendable=False,
        started=any(pod.spec.node_name for pod in pods),
        finished=finished,
        deleting=False,
        created=min(pod.created for pod in pods),
        owner=None,
        aside=None,
        resource="pods",
        suspend_path=None,
        unit=unit,
        handling="pods",
    )


def template_of(pod: Pod, annotations: Mapping[str, str]) -> PodSpec:
    """What a pod would have been made from: held, bound nowhere, saying this."""
    spec = pod.spec
    gates = spec.gates if names.GATE in spec.gates else (*spec.gates, names.GATE)
    # Admission resolves the priority when it adds what the RuntimeClass says: then that is in the shape already.
    runtime_class = spec.runtime_class if spec.priority is None else ""
    return replace(spec, annotations=annotations, gates=gates, node_name="", runtime_class=runtime_class)


def eligible(pod: Pod) -> tuple[object, ...]:
    """What decides which hosts a pod may go to."""
    shape = pod.spec.shape
    return (shape.node_selector, shape.affinity, shape.tolerations, shape.devices)


def is_live(pod: Pod) -> bool:
    """True for a pod that has not ended and is not on its way out."""
    return not (pod.finished or pod.deleting)


def in_order(pods: Sequence[Pod]) -> list[Pod]:
    """The pods, oldest first."""
    return sorted(pods, key=lambda pod: (pod.created, pod.name))
