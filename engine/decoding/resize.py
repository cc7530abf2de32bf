"""Reads the requests of a pod whose resources are being changed in place, as kube-scheduler counts them.

While a kubelet has not carried a change out, spec has the wanted amounts and status the amounts that the containers
have. The larger ones count; of a change that the node can never carry out those of status alone. Source: `PodRequests`
with `UseStatusResources` in k8s.io/component-helpers/resource/helpers.go, Kubernetes 1.33 and newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import structs

from engine.api.resources import Quantity, QuantityError, nano
from engine.decoding import wire
from engine.decoding.wire import ProjectionError, Source, decode

_PENDING: Final = "PodResizePending"  # accepted by the API server, and by no kubelet yet
_CHANGES: Final = (_PENDING, "PodResizeInProgress")
_INFEASIBLE: Final = "Infeasible"  # the reason of a pending one that the node can never carry out
_CHANGEABLE: Final = ("cpu", "memory")


def is_resized(meta: wire.ObjectMeta, status: wire.PodStatus) -> bool:
    """Return True while a pod may have other resources than its spec says.

    Its kubelet says so, or has not seen the latest change of the spec yet (`observedGeneration`, Kubernetes 1.34).
    """
    if status.observed_generation is not None and status.observed_generation < (meta.generation or 0):
        return True
    return any(one.type in _CHANGES for one in status.conditions or ())


def resized(spec: wire.PodSpec, conditions: Iterable[wire.Condition], source: Source) -> wire.PodSpec:
    """Return the spec of a pod with the requests that count now; `source`: the whole pod.

    Amounts of its status that cannot be read do not count.
    """
    infeasible = next((one.reason == _INFEASIBLE for one in conditions if one.type == _PENDING), False)
    try:
        return _with_counted(spec, decode(wire.ResizedPod, source), infeasible=infeasible)
    except (ProjectionError, QuantityError):
        return spec


def _with_counted(spec: wire.PodSpec, pod: wire.ResizedPod, *, infeasible: bool) -> wire.PodSpec:
    names, status = pod.spec or wire.ContainerNames(), pod.status or wire.ResizedStatus()
    known = {one.name: one for one in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))}

    def counted(
        containers: Sequence[wire.Container] | None, named: Sequence[wire.Named] | None, *, sidecars: bool = False
    ) -> list[wire.Container]:
        return [
            one
            if sidecars and one.restart_policy != "Always"
            else structs.replace(one, resources=_counted(one.resources, known.get(name.name), infeasible=infeasible))
            for one, name in zip(containers or (), named or (), strict=True)
        ]

    return structs.replace(
        spec,
        containers=counted(spec.containers, names.containers),
        init_containers=counted(spec.init_containers, names.init_containers, sidecars=True),
        resources=None if spec.resources is None else _counted(spec.resources, status, infeasible=infeasible),
    )


def _counted(
    asked: wire.ResourceRequirements | None, status: wire.Allocated | None, *, infeasible: bool
) -> wire.ResourceRequirements | None:
    """Return resources with the requests that count; `status` of the same container, or of the pod for its own."""
    if status is None or status.resources is None:
        return asked
    asked = asked or wire.ResourceRequirements()
    requests = dict(asked.requests or {})
    there: list[Mapping[str, Quantity | None]] = [status.resources.requests or {}, status.allocated_resources or {}]
    for name in _CHANGEABLE:
        amounts = [amount for one in there if (amount := one.get(name)) is not None]
        if (wanted := requests.get(name)) is not None and not infeasible:
            amounts.append(wanted)
        if amounts:
            requests[name] = max(amounts, key=lambda amount: nano(name, amount))
        elif wanted is not None:
            requests[name] = "0"  # not left out: the limit would count in its place
    return structs.replace(asked, requests=requests)
