"""Decodes pods and pod templates into records, with their host ports and anti-affinity as claims."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import Final

from engine.api import names, resources
from engine.api.device import DeviceRequest
from engine.api.duration import epoch
from engine.api.pod import (
    RESOURCE_CLAIMS,
    FailedPod,
    OwnerRef,
    Pod,
    PodSpec,
    PreferredTerm,
    Readiness,
    SelectorRequirement,
    SelectorTerm,
    Shape,
    Toleration,
)
from engine.api.resources import Quantity, QuantityError, Requests, effective, in_units, nano, pod_limits, pod_requests
from engine.decoding import wire
from engine.decoding.pod_constraints import (
    MAX_PREFERRED,
    MOST_WEIGHT,
    constraints_of,
    crosses_namespaces,
    flat_labels,
    preferred_of,
)
from engine.decoding.resize import is_resized, resized
from engine.decoding.wire import ProjectionError, Source, decode
from engine.resources.hints import MAX_TEXT
from engine.resources.request import device_request

# Labels and annotations of pods and templates that we read; of 100,000 pods the rest would be most bytes.
# The labels that an entry of engine/kinds/kinds.yaml reads have to be among them; those of a policy's entries come with
# `Policy.pod_labels`.
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
    "training.kubeflow.org/",
    "ray.io/",
    "volcano.sh/",
    "spark-role",
    "sparkoperator.k8s.io/",
    "apps.kubernetes.io/pod-index",
    "workload.codeflare.dev/",
    names.CONSUME,
    names.OLD_CONSUME,
)

# Annotations of which only the key matters.
_NAMED: Final = names.UNREAD_KEYS.difference(names.DEVICE_HINTS, names.ALIASES_BESIDE)

_ONE_POD: Final = nano("pods", 1)

_MAX_NAME: Final = 317  # a label prefix of 253, a slash, a name of 63
_MAX_SHARED: Final = 64  # entries of a pod's resource lists, all containers together, or of another list
_MAX_VALUES: Final = 4  # of a requirement
_MAX_TEXT: Final = 63  # characters
_MAX_REFERENCE: Final = 1024  # characters of an owner reference

_ENDED: Final = ("Succeeded", "Failed")
_RANK: Final = re.compile("[0-9]{1,9}", re.ASCII)
# Of a container that waits for others of its pod, or that is being started: no fault.
_TURNS: Final = ("PodInitializing", "ContainerCreating")
_MAX_WAITING: Final = 63  # characters of a waiting reason, which is one CamelCase word
_MAX_MESSAGE: Final = 400  # of its message: messages for people quote fewer

_REFUSALS: Final = ("Unschedulable", "SchedulerError")  # of PodScheduled=False; SchedulingGated is none

_Listed = tuple[tuple[str, Quantity | None], ...]
_Asked = tuple[tuple[_Listed, _Listed, bool], ...]  # per container: requests, limits, whether it is a sidecar
_Totals = tuple[Requests, Requests, DeviceRequest | None]


def pod(source: Source, *, labels: frozenset[str] = frozenset()) -> Pod:
    """Return a Pod with the labels and annotations that we read; a pod under creation may lack name and uid.

    `labels` are read too (`Policy.pod_labels`).
    """
    raw = decode(wire.Pod, source)
    meta, status, plain = raw.metadata or wire.ObjectMeta(), raw.status or wire.PodStatus(), raw.spec or wire.PodSpec()
    if is_resized(meta, status):
        plain = resized(plain, status.conditions or (), source)
    spec = pod_spec(plain, meta, "$.spec", namespace=meta.namespace or "", labels=labels)
    asked = spec.node_name and names.MANAGED in spec.labels
    bound, readiness = _bound_and_ready(status) if asked else (0.0, None)
    return Pod(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        spec=spec,
        owner=controller_of(meta.owner_references),
        phase=intern(status.phase or "Pending"),
        nominated_node=intern(status.nominated_node_name or ""),
        created=epoch(meta.creation_timestamp),
        deleting=meta.deletion_timestamp is not None,
        unschedulable=_unschedulable(status.conditions or ()),
        mirror=meta.annotations is not None and names.MIRROR in meta.annotations,
        bound=bound,
        readiness=readiness,
    )


def pod_spec(
    spec: wire.PodSpec, meta: wire.ObjectMeta, path: str, *, namespace: str, labels: frozenset[str] = frozenset()
) -> PodSpec:
    """Return the fields that we read; `path` is the JSON path of `spec`, for errors (ProjectionError).

    `labels` are kept besides those that are always kept.
    """
    translated = names.ORIGINAL_REQUESTS in (meta.annotations or {})
    requests, limits, devices = _resources(spec, path, translated=translated)
    if claims := claims_of(spec, meta.labels or {}, namespace):
        requests = tuple(sorted((*requests, *[(claim, 1) for claim in claims])))
    own = meta.labels or {}
    constraints, left_out = constraints_of(
        spec, own, namespace, claimed=lambda term: selector_of(term, own, namespace) is not None
    )
    preferred_pods, uncounted = preferred_of(spec, own, namespace)
    return PodSpec(
        shape=_shared(
            Shape(
                requests=requests,
                node_selector=_node_selector(spec.node_selector),
                affinity=_affinity(spec.affinity),
                preferred=_preferred(spec.affinity),
                tolerations=tolerations(spec.tolerations),
                devices=devices,
            )
        ),
        limits=limits,
        gates=tuple([intern(gate.name or "") for gate in spec.scheduling_gates]) if spec.scheduling_gates else (),
        labels=kept(meta.labels, also=labels),
        annotations=annotations_of(meta.annotations),
        node_name=intern(spec.node_name or ""),
        scheduler_name=intern(spec.scheduler_name or ""),
        priority_class=intern(spec.priority_class_name or ""),
        priority=spec.priority,
        runtime_class=intern(spec.runtime_class_name or ""),
        has_scheduling_group=spec.scheduling_group is not None or spec.workload_ref is not None,
        deadline=spec.active_deadline_seconds is not None,
        unmodelled=(*left_out, *_unread(spec)),
        containers=len(spec.containers or ()) + len(spec.init_containers or ()),
        preferences=(*_beyond(spec.affinity), *uncounted),
        volume_claims=_volume_claims(spec.volumes),
        volume_classes=_volume_classes(spec.volumes),
        constraints=constraints,
        preferred_pods=preferred_pods,
        own_labels=flat_labels(meta.labels),
        has_overhead=bool(spec.overhead),
        cross_namespace=crosses_namespaces(spec),
    )


def _unread(spec: wire.PodSpec) -> Iterator[str]:
    """Yield what else the scheduler compares with a node, by name."""
    if spec.resource_claims:
        yield RESOURCE_CLAIMS
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    # Since 1.36 only nodes that declare the feature take such a pod (NodeDeclaredFeatures): those with a kubelet of it.
    if any(rule.action == "RestartAllContainers" for one in containers for rule in one.restart_policy_rules or ()):
        yield "the action RestartAllContainers"


def controller_of(references: Iterable[wire.OwnerReference] | None) -> OwnerRef | None:
    """Return the controller reference; None when there is none."""
    for one in references or ():
        if one.controller:
            known = (one.api_version or "", one.kind or "", one.name or "", one.uid or "")
            return (_shared_controller if sum(map(len, known)) <= _MAX_REFERENCE else _controller)(*known)
    return None


def kept(raw: wire.StringMap | None, *, also: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the labels or annotations of an object that we read."""
    if not raw:
        return {}
    return {
        intern(key): _shared_text(value or "")
        for key, value in raw.items()
        if key.startswith(KEPT_PREFIXES) or key in also
    }


def annotations_of(raw: wire.StringMap | None, *, every: bool = False) -> dict[str, str]:
    """Return the annotations of an object that we read; with `every` also the keys of the others.

    What nobody reads of a value is left out: all of it where only the key matters, else what is too long for every
    reader. A record is kept in each replica, and users may write 256 KiB.
    """
    found = kept(raw, also=names.UNREAD_KEYS)
    for key, value in found.items():
        if key in _NAMED:
            found[key] = ""
        # The devices of a pod are read in whole, and written only by who gives them out.
        elif len(value) > MAX_TEXT and key != names.DEVICE_ALLOCATED:
            found[key] = value[: MAX_TEXT + 1]  # that it is too long is told
    return {intern(key): found.get(key, "") for key in raw} if raw and every else found


def amounts(raw: wire.ResourceList | None, path: str) -> dict[str, int]:
    """Return a resource list in billionths; raises ProjectionError for an invalid or negative quantity."""
    return {name: amount(name, quantity, path) for name, quantity in raw.items()} if raw else {}


def amount(name: str, quantity: Quantity | None, path: str) -> int:
    """Return one entry of a resource list in billionths of the resource behind its name; null is zero, as in Go.

    A quota's `requests.` and `limits.` are no part of the resource. ProjectionError as `amounts`.
    """
    if len(name) > _MAX_NAME:
        raise ProjectionError(f"{path}[{name[:63]!r}...]: a resource name has at most {_MAX_NAME} characters")
    try:
        found = 0 if quantity is None else nano(name.removeprefix("requests.").removeprefix("limits."), quantity)
    except QuantityError as error:
        raise ProjectionError(f"{path}[{_shown(name)}]: {error}") from None
    if found < 0:
        raise ProjectionError(f"{path}[{_shown(name)}]: must not be negative")
    return found


def tolerations(raw: Iterable[wire.Toleration] | None) -> tuple[Toleration, ...]:
    """Return tolerations without repetition, in an order that does not depend on how they were written."""
    if not raw:
        return ()
    plain = {(one.key or "", one.operator or "Equal", one.value or "", one.effect or "") for one in raw}
    return tuple([_toleration(*one) for one in sorted(plain)])


def claims_of(spec: wire.PodSpec, labels: Mapping[str, str | None], namespace: str) -> set[str]:
    """Return the claims of a pod with these labels in this namespace."""
    found = set(_ports(spec))
    for term in anti_affinity(spec):
        if (selector := selector_of(term, labels, namespace)) is not None:
            found.add(resources.anti_affinity(namespace, selector))
    return found


def anti_affinity(spec: wire.PodSpec) -> Sequence[wire.PodAffinityTerm]:
    """Return the required terms of pod anti-affinity."""
    if spec.affinity is None or spec.affinity.pod_anti_affinity is None:
        return ()
    return spec.affinity.pod_anti_affinity.required or ()


def selector_of(term: wire.PodAffinityTerm, labels: Mapping[str, str | None], namespace: str) -> str | None:
    """Return the selector, in one spelling, of a term that keeps pods with these labels off each other's host.

    None for every other term: of another level, about other pods, about other namespaces, or with label keys that the
    API server merges into it only when the pod is created.
    """
    selector = term.label_selector
    if term.topology_key != names.HOSTNAME or selector is None or term.namespace_selector is not None:
        return None
    if term.match_label_keys or term.mismatch_label_keys or set(term.namespaces or [namespace]) != {namespace}:
        return None
    rules = [(key, "In", [value or ""]) for key, value in (selector.match_labels or {}).items()]
    rules += [(one.key or "", one.operator or "", one.values or []) for one in selector.match_expressions or ()]
    if not all(_holds(labels, *rule) for rule in rules):
        return None
    return json.dumps(sorted((key, operator, sorted(values)) for key, operator, values in rules))


def _holds(labels: Mapping[str, str | None], key: str, operator: str, values: list[str]) -> bool:
    value = labels[key] or "" if key in labels else None
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def _ports(spec: wire.PodSpec) -> Iterator[str]:
    sidecars = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            # On the host's network every port of a container is one of the host.
            number = port.host_port or (port.container_port if spec.host_network else None)
            if number:
                yield resources.host_port(number, port.protocol or "TCP")


def _toleration(key: str, operator: str, value: str, effect: str) -> Toleration:
    size = len(key) + len(operator) + len(value) + len(effect)
    return (_shared_toleration if size <= _MAX_NAME else Toleration)(key, operator, value, effect)


def _resources(spec: wire.PodSpec, path: str, *, translated: bool) -> _Totals:
    """Return effective requests and limits in planner units, and the device request that follows from them."""
    regular, early = _asked(spec.containers), _asked(spec.init_containers)
    own = (_listed(spec.resources.requests), _listed(spec.resources.limits)) if spec.resources is not None else ((), ())
    overhead = _listed(spec.overhead)
    size = len(overhead) + len(own[0]) + len(own[1])
    for requests, limits, _ in (*regular, *early):
        size += len(requests) + len(limits)
    return (_shared_totals if size <= _MAX_SHARED else _totals)(
        regular, early, own, overhead, path, translated=translated
    )


def _asked(containers: Iterable[wire.Container] | None) -> _Asked:
    return tuple(
        [
            ((), (), False)
            if container.resources is None
            else (
                _listed(container.resources.requests),
                _listed(container.resources.limits),
                container.restart_policy == "Always",
            )
            for container in containers or ()
        ]
    )


def _listed(raw: wire.ResourceList | None) -> _Listed:
    return tuple(raw.items()) if raw else ()


def _totals(
    regular: _Asked, early: _Asked, own: tuple[_Listed, _Listed], overhead: _Listed, path: str, *, translated: bool
) -> _Totals:
    asked, limited = _of_containers(regular, f"{path}.containers")
    early_asked, early_limited = _of_containers(early, f"{path}.initContainers")
    sidecars = [sidecar for _, _, sidecar in early]
    own_requests = amounts(dict(own[0]), f"{path}.resources.requests")
    own_limits = amounts(dict(own[1]), f"{path}.resources.limits")
    added = amounts(dict(overhead), f"{path}.overhead")
    requests = pod_requests(
        effective(asked, zip(early_asked, sidecars, strict=True)),
        pod_requests=own_requests,
        pod_limits=own_limits,
        overhead=added,
    )
    limits = pod_limits(
        effective(limited, zip(early_limited, sidecars, strict=True)), pod_limits=own_limits, overhead=added
    )
    asked_units = in_units({**requests, "pods": _ONE_POD})
    return asked_units, in_units(limits), device_request(dict(asked_units), translated=translated)


def _of_containers(containers: _Asked, path: str) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Return requests and limits; a limit without a request is a request too, as the API server defaults it."""
    asked, limited = [], []
    for position, (requests, limits, _) in enumerate(containers):
        where = f"{path}[{position}].resources"
        limited.append(amounts(dict(limits), f"{where}.limits"))
        asked.append({**limited[-1], **amounts(dict(requests), f"{where}.requests")})
    return asked, limited


# Pods of one template have equal requests and tolerations: computed and kept once. What a hostile object could make
# large is not kept.
_shared_totals = lru_cache(maxsize=2048)(_totals)
_shared_toleration = lru_cache(maxsize=1024)(Toleration)


_shared_shape = lru_cache(maxsize=4096)(lambda shape: shape)


def _controller(api_version: str, kind: str, name: str, uid: str) -> OwnerRef:
    return OwnerRef(intern(api_version), intern(kind), intern(name), intern(uid), controller=True)


_shared_controller = lru_cache(maxsize=4096)(_controller)


def _shared(shape: Shape) -> Shape:
    """Return an equal shape that other pods may have: those of one template on one host do."""
    terms = shape.affinity or ()
    small = max(len(shape.requests), len(shape.node_selector), len(shape.tolerations)) <= _MAX_SHARED
    if not small or shape.preferred or len(terms) > 1:
        return shape
    rules = [one for term in terms for one in (*term.expressions, *term.fields)]
    small = len(rules) <= _MAX_SHARED and all(len(one.values) <= _MAX_VALUES for one in rules)
    return _shared_shape(shape) if small else shape


def _shared_text(text: str) -> str:
    """Return a label's value, or another short text; pods have few different ones."""
    return intern(text) if len(text) <= _MAX_TEXT else text


def _node_selector(raw: wire.StringMap | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((intern(key), intern(value or "")) for key, value in raw.items())) if raw else ()


def _affinity(raw: wire.Affinity | None) -> tuple[SelectorTerm, ...] | None:
    if raw is None or raw.node_affinity is None or raw.node_affinity.required is None:
        return None
    return selector_terms(raw.node_affinity.required)


def _preferred(raw: wire.Affinity | None) -> tuple[PreferredTerm, ...]:
    """Return the preferred terms of node affinity that can be worth something; an empty one is worth nothing."""
    if raw is None or raw.node_affinity is None or not raw.node_affinity.preferred:
        return ()
    found = (
        PreferredTerm(
            min(one.weight, MOST_WEIGHT),
            SelectorTerm(_expressions(one.preference.match_expressions), _expressions(one.preference.match_fields)),
        )
        for one in raw.node_affinity.preferred[:MAX_PREFERRED]
        if one.preference is not None and one.weight is not None and one.weight > 0
    )
    return tuple(one for one in found if one.term.expressions or one.term.fields)


def selector_terms(raw: wire.NodeSelector) -> tuple[SelectorTerm, ...]:
    """Return the ORed terms of a node selector."""
    # Order is kept everywhere: a gated pod's terms may only be extended, and are compared one by one.
    return tuple(
        SelectorTerm(expressions=_expressions(term.match_expressions), fields=_expressions(term.match_fields))
        for term in raw.node_selector_terms or ()
    )


def _volume_claims(volumes: Iterable[wire.Volume] | None) -> tuple[str, ...]:
    sources = (one.persistent_volume_claim for one in volumes or ())
    return tuple(dict.fromkeys(source.claim_name for source in sources if source is not None and source.claim_name))


def _volume_classes(volumes: Iterable[wire.Volume] | None) -> tuple[str | None, ...]:
    templates = (one.ephemeral.volume_claim_template for one in volumes or () if one.ephemeral is not None)
    specs = (template.spec for template in templates if template is not None and template.spec is not None)
    return tuple(dict.fromkeys(spec.storage_class_name for spec in specs))


def _expressions(raw: Sequence[wire.Requirement] | None) -> tuple[SelectorRequirement, ...]:
    return tuple(
        SelectorRequirement(
            key=intern(one.key or ""), operator=intern(one.operator or ""), values=tuple(one.values or ())
        )
        for one in raw or ()
    )


def _beyond(raw: wire.Affinity | None) -> tuple[str, ...]:
    """Return the name of the preferred terms of node affinity that are too many to count."""
    preferred = raw.node_affinity.preferred if raw is not None and raw.node_affinity is not None else None
    return (f"node affinity beyond {MAX_PREFERRED} terms",) if len(preferred or ()) > MAX_PREFERRED else ()


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)[1:-1]


def _unschedulable(conditions: Iterable[wire.Condition]) -> str:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason in _REFUSALS:
            return condition.message or condition.reason or ""
    return ""


def _bound_and_ready(status: wire.PodStatus) -> tuple[float, Readiness | None]:
    """Return when a bound pod got its node, and its readiness: None if it is ready without a restart, or has ended.

    Where nothing sets the condition Ready (some virtual kubelets) a pod is ready when it runs.
    """
    ready, since, bound = status.phase == "Running", None, None
    for condition in status.conditions or ():
        if condition.type == "Ready":
            ready, since = condition.status == "True", condition.last_transition_time
        elif condition.type == "PodScheduled":
            bound = condition.last_transition_time
    restarts = 0
    for container in status.container_statuses or ():
        restarts = max(restarts, container.restart_count or 0)
    if (ready and not restarts) or status.phase in _ENDED:
        return epoch(bound), None
    readiness = Readiness(ready=ready, since=epoch(since), restarts=restarts)
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    stopped = None if ready else _first_stopped(containers)
    return epoch(bound), readiness if stopped is None else _stopped(readiness, stopped)


def _stopped(readiness: Readiness, container: wire.ContainerStatus) -> Readiness:
    state, last = container.state or wire.ContainerState(), container.last_state or wire.ContainerState()
    waiting = state.waiting or wire.ContainerWaiting()
    return replace(
        readiness,
        restarts=max(readiness.restarts, container.restart_count or 0),
        container=(container.name or "")[:_MAX_NAME],
        waiting=intern((waiting.reason or "")[:_MAX_WAITING]),
        message=(waiting.message or "")[:_MAX_MESSAGE],
        ended=_end_of(state.terminated or last.terminated),
    )


def _first_stopped(containers: Sequence[wire.ContainerStatus]) -> wire.ContainerStatus | None:
    """Return the container that keeps a pod from being ready; preferably one that does not just wait to be started."""
    stopped = [one for one in containers if not one.ready]
    return next((one for one in stopped if not _in_turn(one)), stopped[0] if stopped else None)


def _in_turn(container: wire.ContainerStatus) -> bool:
    waiting = container.state.waiting if container.state is not None else None
    return waiting is not None and waiting.reason in _TURNS


def _end_of(ended: wire.ContainerEnd | None) -> str:
    if ended is None:
        return ""
    reason = (ended.reason or "")[:_MAX_WAITING]
    return intern(f"exit code {ended.exit_code or 0}" + (f", {reason}" if reason else ""))


def failed_pods(source: Source) -> list[FailedPod]:
    """Return the pods of a list that have failed, the first one first; not those that somebody deletes."""
    listed = decode(wire.PodList, source).items or ()
    found = [_failed(pod) for pod in listed if pod.metadata is None or pod.metadata.deletion_timestamp is None]
    return sorted(found, key=lambda one: (one.at, one.rank is None, one.rank or 0, one.name))


def _failed(pod: wire.Pod) -> FailedPod:
    meta, spec, status = pod.metadata or wire.ObjectMeta(), pod.spec or wire.PodSpec(), pod.status or wire.PodStatus()
    ends = [
        (epoch(ended.finished_at), container.name or "", ended)
        for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        if container.state is not None and (ended := container.state.terminated) is not None and ended.exit_code
    ]
    first = min(ends, key=lambda one: one[0], default=None)
    at = first[0] if first is not None else 0.0
    how = (status.reason or "")[:_MAX_WAITING]
    if first is not None:
        how = f"container {first[1][:_MAX_NAME]}: exit code {first[2].exit_code}"
        if first[2].reason not in (None, "", "Error"):  # which says no more than the code
            how += f", {(first[2].reason or '')[:_MAX_WAITING]}"
    rank = (meta.annotations or {}).get(names.RANK) or ""
    return FailedPod(
        at=at or max((epoch(one.last_transition_time) for one in status.conditions or ()), default=0.0),
        rank=int(rank) if _RANK.fullmatch(rank) else None,
        name=meta.name or "",
        host=spec.node_name or "",
        how=how,
    )
