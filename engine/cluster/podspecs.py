"""A pod's or a template's spec on the wire -> PodSpec."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from sys import intern
from typing import Final

from engine.cluster import wire
from engine.cluster.wire import ProjectionError
from engine.quantities import Quantity, QuantityError, nano
from engine.records import Expression, PodSpec, SelectorTerm, Shape, Toleration
from engine.shapes import effective, in_units, pod_limits, pod_requests

# Labels and annotations of pods and templates that anybody here reads; of 100,000 pods the rest would be most bytes.
KEPT_PREFIXES: Final = (
    "topogate.dev/",
    "batch.kubernetes.io/",
    "job-name",
    "controller-uid",
    "kueue.x-k8s.io/",
    "kai.scheduler/",
    "pod-group.scheduling.sigs.k8s.io/",
    "scheduling.x-k8s.io/",
    "gang.scheduling.koordinator.sh/",
    "alpha.jobset.sigs.k8s.io/",
    "jobset.sigs.k8s.io/",
    "leaderworkerset.sigs.k8s.io/",
    "koordinator.sh/",
    "scheduling.koordinator.sh/",
)

_ONE_POD: Final = nano("pods", 1)

_shape = lru_cache(maxsize=4096)(Shape)  # pods of one template share one shape


def pod_spec(spec: wire.PodSpec, meta: wire.ObjectMeta, path: str) -> PodSpec:
    """Return what concerns us; `path` is the JSON path of `spec`, for errors (ProjectionError)."""
    requests, limits = _resources(spec, path)
    return PodSpec(
        shape=_shape(
            requests=requests,
            node_selector=_node_selector(spec.node_selector),
            affinity=_affinity(spec.affinity),
            tolerations=tolerations(spec.tolerations),
        ),
        limits=limits,
        gates=tuple([intern(gate.name or "") for gate in spec.scheduling_gates]) if spec.scheduling_gates else (),
        labels=_kept(meta.labels),
        annotations=_kept(meta.annotations),
        node_name=intern(spec.node_name or ""),
        scheduler_name=intern(spec.scheduler_name or ""),
        priority_class=intern(spec.priority_class_name or ""),
        priority=spec.priority,
        runtime_class=intern(spec.runtime_class_name or ""),
        has_scheduling_group=spec.scheduling_group is not None,
        deadline=spec.active_deadline_seconds is not None,
        unmodelled=_unmodelled(spec),
    )


def amounts(raw: wire.ResourceList | None, path: str) -> dict[str, int]:
    """Return a resource list in billionths; ProjectionError for what is no quantity or negative."""
    return {name: amount(name, quantity, f"{path}[{_short(name)}]") for name, quantity in raw.items()} if raw else {}


def amount(resource: str, quantity: Quantity | None, path: str) -> int:
    """Return a quantity in billionths, null as zero (as Go reads it); ProjectionError when it is none, or negative."""
    try:
        found = 0 if quantity is None else nano(resource, quantity)
    except QuantityError as error:
        raise ProjectionError(f"{path}: {error}") from None
    if found < 0:
        raise ProjectionError(f"{path}: must not be negative")
    return found


def tolerations(raw: Iterable[wire.Toleration] | None) -> tuple[Toleration, ...]:
    """Return tolerations without repetition, in an order that does not depend on how they were written."""
    if not raw:
        return ()
    return _tolerations(
        tuple([(one.key or "", one.operator or "Equal", one.value or "", one.effect or "") for one in raw])
    )


@lru_cache(maxsize=1024)
def _tolerations(raw: tuple[tuple[str, str, str, str], ...]) -> tuple[Toleration, ...]:
    return tuple(Toleration(*one) for one in sorted(set(raw)))


def _resources(spec: wire.PodSpec, path: str) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """Return effective requests and limits in planner units."""
    asked, limited = [], []
    for position, container in enumerate(spec.containers or ()):
        requests, limits = _container(container.resources, f"{path}.containers[{position}]")
        asked.append(requests)
        limited.append(limits)
    early_asked, early_limited = [], []
    for position, container in enumerate(spec.init_containers or ()):
        requests, limits = _container(container.resources, f"{path}.initContainers[{position}]")
        sidecar = container.restart_policy == "Always"
        early_asked.append((requests, sidecar))
        early_limited.append((limits, sidecar))
    overhead = amounts(spec.overhead, f"{path}.overhead")
    own = spec.resources or wire.ResourceRequirements()
    own_requests = amounts(own.requests, f"{path}.resources.requests")
    own_limits = amounts(own.limits, f"{path}.resources.limits")
    requests = pod_requests(
        effective(asked, early_asked), pod_requests=own_requests, pod_limits=own_limits, overhead=overhead
    )
    limits = pod_limits(effective(limited, early_limited), pod_limits=own_limits, overhead=overhead)
    return in_units({**requests, "pods": _ONE_POD}), in_units(limits)


def _container(raw: wire.ResourceRequirements | None, path: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return requests and limits; a limit without a request is a request too, as the API server defaults it."""
    if raw is None:
        return {}, {}
    limits = amounts(raw.limits, f"{path}.resources.limits")
    return {**limits, **amounts(raw.requests, f"{path}.resources.requests")}, limits


def _node_selector(raw: wire.StringMap | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((intern(key), intern(value or "")) for key, value in raw.items())) if raw else ()


def _affinity(raw: wire.Affinity | None) -> tuple[SelectorTerm, ...] | None:
    if raw is None or raw.node_affinity is None or raw.node_affinity.required is None:
        return None
    # Order is kept everywhere: a gated pod's terms may only be extended, and are compared one by one.
    return tuple(
        SelectorTerm(expressions=_expressions(term.match_expressions), fields=_expressions(term.match_fields))
        for term in raw.node_affinity.required.node_selector_terms or ()
    )


def _expressions(raw: Sequence[wire.Requirement] | None) -> tuple[Expression, ...]:
    return tuple(
        Expression(key=intern(one.key or ""), operator=intern(one.operator or ""), values=tuple(one.values or ()))
        for one in raw or ()
    )


def _kept(raw: wire.StringMap | None) -> dict[str, str]:
    if not raw:
        return {}
    return {intern(key): value or "" for key, value in raw.items() if key.startswith(KEPT_PREFIXES)}


def _unmodelled(spec: wire.PodSpec) -> tuple[str, ...]:
    found = []
    if any(one.persistent_volume_claim is not None or one.ephemeral is not None for one in spec.volumes or ()):
        found.append("volumes")
    affinity = spec.affinity
    if affinity is not None:
        if affinity.pod_affinity is not None and affinity.pod_affinity.required:
            found.append("pod affinity")
        if affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
            found.append("pod anti-affinity")
    if any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints or ()):
        found.append("topology spread constraints")
    if spec.resource_claims:
        found.append("resource claims")
    if _takes_host_ports(spec):
        found.append("host ports")
    return tuple(found)


def _takes_host_ports(spec: wire.PodSpec) -> bool:
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        for port in container.ports or ():
            # On the host's network every port of a container is one of the host.
            if port.host_port or (spec.host_network and port.container_port):
                return True
    return False


def _short(name: str) -> str:
    return name if len(name) <= 63 and name.isprintable() else ascii(name)[1:61]  # noqa: PLR2004 - a label's length
