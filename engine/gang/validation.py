"""Validates a request: fields that exclude each other, and bounds on templates. Errors name the user's own path. Pure.

No real workload comes near these bounds; the API server itself bounds only the bytes of an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from engine.api import names
from engine.api.field import FieldError, path_of
from engine.api.pod import SelectorTerm, Shape
from engine.api.text import plural
from engine.api.workload import Workload
from engine.gang.annotations import RequestAnnotation, RequestScope, divisors, invalid, layers_in, slices_of
from engine.gang.key import MAX_GROUPS
from engine.kinds.expressions import IntExpression
from engine.kinds.paths import Path
from engine.policy.model import Policy
from engine.policy.namespaces import rule_of
from engine.resources.kinds import DeviceKinds
from engine.resources.names import GPU, RDMA, WHOLE
from engine.resources.request import asked_in_words
from engine.topology.choice import LevelNames

_OF_PLAIN_PODS = (names.GANG_NAME, names.GANG_SIZE)

MAX_CONTAINERS: Final = 256  # of one pod, init containers among them
MAX_ALL_CONTAINERS: Final = 1_024  # of all templates of an object
MAX_REQUIREMENTS: Final = 256  # of a nodeSelector, of a node affinity (its terms count too), tolerations
MAX_VALUES: Final = 4_096  # of a node affinity: lists of host names are long
_OURS: Final = 2  # matchFields of a term that are not counted: the pin of a placed pod is one


def of_plain_pods(scope: RequestScope) -> Iterator[FieldError]:
    """Yield errors for keys of plain gangs, because a workload is already a gang."""
    for one in scope.said:
        if one.about in _OF_PLAIN_PODS and one.about in scope.meanings:
            yield conflict(one, "is for gangs of plain pods; a workload is a gang by itself, so remove it")


def without_pods(workload: Workload, said: Sequence[RequestAnnotation]) -> Iterator[FieldError]:
    """Yield the error for a request without pods: a RayJob with the cluster of another object has but a submitter."""
    if workload.handling == "placed" and not workload.pod_sets and said:
        text = f"this {workload.kind} has no pods to place; remove it, or set it on the object that has the pods"
        yield _cannot(said[0], text)


def minimum_errors(scope: RequestScope) -> Iterator[FieldError]:
    """Yield errors for a minimum that is larger than the number of pods."""
    for one in scope.said:
        read = one.about == names.MIN_AVAILABLE and one.value == scope.meanings.get(one.about)
        if read and int(one.value) > scope.pods:
            yield invalid(one, f"must be at most {scope.pods:,}, the number of its pods")


def can_be_in_group(workload: Workload) -> bool:
    """True when a workload is one gang, so that it can be in a pod group; plain pods of a group are."""
    return workload.unit == "workload" and workload.group_label is None


def pod_group_errors(
    workload: Workload,
    whole: RequestScope,
    of_pods: Iterable[RequestScope],
    said: Iterable[RequestAnnotation],
    *,
    from_object: bool,
) -> Iterator[FieldError]:
    """Yield errors for a pod group without a minimum, with one on a template, or on a kind that cannot be in one.

    `from_object`: a PodGroup object may say the minimum.
    """
    group = next(one for one in said if one.about == names.POD_GROUP)
    if not can_be_in_group(workload):
        yield conflict(group, f"a {workload.kind} cannot be in a pod group, because it is not one gang; remove it")
    if not from_object and names.MIN_AVAILABLE not in {one.about for one in whole.said}:
        yield FieldError(
            field=f"metadata.annotations[{names.MIN_AVAILABLE}]",
            kind="Required value",
            value=None,
            reason="MissingValue",
            message=f"{group.key} also needs the number of pods of the group that start together",
        )
    for scope in of_pods:
        for one in scope.said:
            if one.about == names.MIN_AVAILABLE:
                yield conflict(one, "the minimum of a pod group applies to all of its pods; set it on the workload")


def device_errors(scope: RequestScope, workload: Workload, kinds: DeviceKinds) -> Iterator[FieldError]:
    """Yield errors for annotations about devices that no pod of the scope requests; `kinds` are the policy's.

    Koordinator's hints are left out: they may name devices that a pod does not request.
    """
    templates = [one.template for one in ([scope.pod_set] if scope.pod_set is not None else workload.pod_sets)]
    requests = [kinds.extended(one.shape.devices, one.shape.requests) for one in templates]
    gpus = any(request is not None and request.gpus for request in requests)
    for key in () if gpus else (names.GPU_STRATEGY, names.DEVICE_SELECTOR):
        if (about := scope.annotation_for(key)) is not None:
            yield conflict(about, "is for pods with GPUs, and the pods request no GPU; remove it")
    rdma = any(request is not None and request.rdma for request in requests)
    for key in () if rdma else (names.RDMA_SELECTOR, names.VF_SELECTOR, names.RDMA_SCOPE):
        if (about := _own_annotation(scope, key)) is not None:
            yield conflict(about, f"is for pods with RDMA devices, and the pods request no {RDMA}; remove it")
    if rdma and not gpus and (about := _own_annotation(scope, names.RDMA_SCOPE)) is not None:
        yield conflict(about, "is for pods with GPUs, and the pods request no GPU; remove it")
    said = scope.annotation_for(names.DEVICE_SCOPE)
    if said is None or names.DEVICE_SCOPE not in scope.meanings:
        return
    asked = [request for request in requests if request is not None and request.gpus]
    if any(request.whole for request in asked):
        return
    parts = next((request for request in asked if request.gpus > 1), None)
    if parts is not None:
        why = f"the pods request {asked_in_words(parts)}; request {GPU}: {parts.gpus * WHOLE}, or remove it"
    else:
        why = f"{'a part of a GPU is always in one scope' if asked else 'the pods request no GPU'}; remove it"
    yield conflict(said, f"is for pods with whole GPUs, and {why}")


def _own_annotation(scope: RequestScope, key: str) -> RequestAnnotation | None:
    return next((one for one in scope.said if one.key == one.about == key), None)


def contradictions(scope: RequestScope, levels: LevelNames) -> Iterator[FieldError]:
    """Yield errors for levels that exclude each other."""
    require, prefer = scope.meanings.get(names.REQUIRE), scope.meanings.get(names.PREFER)
    nothing, preferred = scope.annotation_for(names.UNCONSTRAINED), scope.annotation_for(names.PREFER)
    other = scope.annotation_for(names.REQUIRE) if require else preferred
    if scope.meanings.get(names.UNCONSTRAINED) == "true" and (require or prefer) and nothing and other:
        yield conflict(nothing, f"asks for no level, but {other.field} asks for one; remove one of them")
    if not (require and prefer and preferred) or require in (names.AUTO, prefer):
        return
    if not levels.coarser(require, prefer):
        yield conflict(
            preferred,
            f"must not be a coarser level than the required one ({require}); remove it or prefer a finer level",
        )


def nesting_errors(whole: RequestScope, of_pods: Iterable[RequestScope], levels: LevelNames) -> Iterator[FieldError]:
    """Yield errors for pod sets that require a coarser level than their gang."""
    gang = whole.meanings.get(names.REQUIRE)
    for scope in of_pods:
        require, said = scope.meanings.get(names.REQUIRE), scope.annotation_for(names.REQUIRE)
        if gang and require and said and names.AUTO not in (gang, require) and levels.coarser(require, gang):
            yield conflict(said, f"must not be a coarser level than the one required of the whole gang ({gang})")


def colocation_errors(scopes: Sequence[RequestScope]) -> Iterator[FieldError]:
    """Yield errors for pod sets that share a domain and require different levels, or no level."""
    whole, of_pods = scopes[0], scopes[1:] or scopes
    default = whole.meanings.get(names.COLOCATE)
    required: dict[str, tuple[str, RequestScope]] = {}
    for scope in of_pods:
        value, require = scope.meanings.get(names.COLOCATE, default), scope.meanings.get(names.REQUIRE)
        if value is None or require is None:
            continue
        first, named_by = required.setdefault(value, (require, scope))
        said = scope.annotation_for(names.REQUIRE)
        if first != require and said is not None:
            other = named_by.annotation_for(names.REQUIRE)
            where = other.field if other is not None else first
            yield conflict(said, f"shares a domain with a pod set that requires {first} ({where}); require the same")
    levelled = [scope for scope in scopes if not {names.REQUIRE, names.PREFER}.isdisjoint(scope.meanings)]
    known = {scope.meanings.get(names.COLOCATE, default) for scope in levelled}
    for scope in scopes if whole not in levelled else ():
        said = scope.annotation_for(names.COLOCATE)
        if said is not None and scope.meanings.get(names.COLOCATE) not in (None, *known):
            yield _missing(said, names.REQUIRE, "also needs the level of the shared domain")


def spread_group_errors(said: Sequence[RequestAnnotation]) -> Iterator[FieldError]:
    """Yield the error for a spread group without the level of its domains."""
    of_group = next((one for one in said if one.about == names.SPREAD_GROUP), None)
    if of_group is not None and not any(one.about == names.SPREAD for one in said):
        yield _missing(of_group, names.SPREAD, "also needs the level at which its gangs have different domains")


def slice_errors(
    scope: RequestScope, whole: RequestScope, workload: Workload, levels: LevelNames
) -> Iterator[FieldError]:
    """Yield errors for slices: level or size missing, level too coarse, size no divisor of the pods, two forms."""
    of_level, of_size = scope.annotation_for(names.SLICE_TOPOLOGY), scope.annotation_for(names.SLICE_SIZE)
    of_layers, layers = scope.annotation_for(names.SLICES), layers_in(scope)
    other = of_level or of_size
    if of_layers is not None and other is not None and not _same_slices(scope, of_layers, other):
        yield conflict(of_layers, f"says the same as {other.field}, or contradicts it; keep one of them")
    if of_level is not None and of_size is None and not _size_known(scope, workload):
        yield _missing(of_level, names.SLICE_SIZE, "also needs the number of pods in a slice")
    if of_size is not None and of_level is None:
        yield _missing(of_size, names.SLICE_TOPOLOGY, "also needs the level of a slice")
    level, require = scope.meanings.get(names.SLICE_TOPOLOGY), scope.meanings.get(names.REQUIRE)
    if of_level is not None and level and require and require != names.AUTO and levels.coarser(level, require):
        yield conflict(of_level, f"must not be a coarser level than the required one ({require})")
    coarsest = layers[0][0] if layers else None
    if of_layers is not None and coarsest and require not in (None, names.AUTO) and levels.coarser(coarsest, require):
        yield conflict(of_layers, f"{coarsest} must not be a coarser level than the required one ({require})")
    yield from _slice_size_errors(scope, whole, workload)


def _same_slices(scope: RequestScope, of_layers: RequestAnnotation, other: RequestAnnotation) -> bool:
    """Return True if both forms of slices mean the same and one is an alias; two native forms are an error."""
    level, size = scope.meanings.get(names.SLICE_TOPOLOGY), scope.meanings.get(names.SLICE_SIZE)
    aliased = of_layers.key != of_layers.about or other.key != other.about
    return aliased and level is not None and size is not None and layers_in(scope) == ((level, int(size)),)


def _slice_size_errors(scope: RequestScope, whole: RequestScope, workload: Workload) -> Iterator[FieldError]:
    """Yield the error for a size that does not divide the pods of its pod set; sizes inside it divide it already."""
    if scope.pod_set is None:
        return
    size = scope.meanings.get(names.SLICE_SIZE)
    sizes = [pods for _, pods in layers_in(scope)] or ([int(size)] if size is not None else [])
    said = scope.annotation_for(names.SLICES) or scope.annotation_for(names.SLICE_SIZE)
    if not sizes and scope is not whole and names.SLICE_TOPOLOGY not in scope.meanings:
        sizes = [pods for _, pods in slices_of(scope, whole)]
        said = whole.annotation_for(names.SLICES) or whole.annotation_for(names.SLICE_SIZE)
    if said is None or not sizes or not scope.pods % sizes[0]:
        return
    what = "of the gang (spec.parallelism)" if _is_job(workload) else f"of {scope.pod_set.name}"
    fitting = divisors(scope.pods, multiple_of=sizes[1] if len(sizes) > 1 else 1, near=sizes[0])
    use = f"; use {fitting}" if fitting else ""
    yield invalid(
        said, f"{sizes[0]:,} must divide the {plural(scope.pods, 'pod')} {what}{use}", reason="SegmentNotDivisor"
    )


def _size_known(scope: RequestScope, workload: Workload) -> bool:
    """True where the kind defines how many pods a replica has."""
    if scope.pod_set is not None:
        return scope.pod_set.replica is not None
    if not workload.pod_sets:
        return True  # placed through its child: checked when that exists
    return workload.group_label is not None or any(one.replica is not None for one in workload.pod_sets)


def bounds(workload: Workload, policy: Policy) -> Iterator[FieldError]:
    """Yield errors for a gang with too many pods and a workload with too many gangs."""
    yield from size_errors(workload, policy)
    if workload.group_label is not None and workload.groups > MAX_GROUPS:
        yield FieldError(
            field=_replicas_path(workload, policy),
            kind="Invalid value",
            value=str(workload.groups),
            reason="GangLimitExceeded",
            message=f"each replica is a gang; a {workload.kind} may have at most {MAX_GROUPS:,}",
        )


def size_errors(workload: Workload, policy: Policy) -> Iterator[FieldError]:
    """Yield the error for a gang with more pods than its namespace's rule, or else the queue, allows."""
    rule = rule_of(workload.namespace, policy)
    limit, where = policy.queue.max_gang_pods, "policy queue.maxGangPods"
    if rule is not None and rule.rule.max_gang_pods is not None:
        limit, where = rule.rule.max_gang_pods, rule.field("maxGangPods")
    if workload.slots > limit:
        yield FieldError(
            field=_count_path(workload),
            kind="Invalid value",
            value=str(workload.slots),
            reason="GangLimitExceeded",
            message=f"a gang has at most {limit:,} pods ({where}); use fewer, or ask the cluster's admin for more",
        )


def gang_count_errors(workload: Workload, policy: Policy, *, others: int) -> Iterator[FieldError]:
    """Yield errors for a namespace with too many gangs; `others`: how many it has beside those of the workload."""
    limit = policy.queue.max_namespace_gangs
    if workload.group_label is not None and limit < workload.groups <= MAX_GROUPS:
        yield FieldError(
            field=_replicas_path(workload, policy),
            kind="Invalid value",
            value=str(workload.groups),
            reason="GangLimitExceeded",
            message=f"each replica is a gang; a namespace may have at most {limit:,} (policy queue.maxNamespaceGangs)",
        )
    elif others + workload.groups > limit:
        yield FieldError(
            field="metadata.namespace",
            kind="Forbidden",
            value=None,
            reason="GangLimitExceeded",
            message=f"the namespace has {plural(others, 'gang')} that have not ended; the limit is {limit:,} (policy "
            f"queue.maxNamespaceGangs); submit it when some have ended, or delete waiting ones",
        )


def _count_path(workload: Workload) -> str:
    largest = max(workload.pod_sets, key=lambda pod_set: pod_set.slots)
    if workload.handling == "pods":
        # Pods that are placed each by itself have no size: there are as many as their controller makes.
        size = names.MIN_AVAILABLE if names.MIN_AVAILABLE in largest.template.annotations else names.GANG_SIZE
        return "metadata.ownerReferences" if workload.unit == "pod" else f"metadata.annotations[{size}]"
    return "spec.parallelism" if _is_job(workload) else path_of(largest.counted or largest.path)


def _is_job(workload: Workload) -> bool:
    """True for a Job of Kubernetes (batch); other groups have Jobs too."""
    return workload.key[:2] == ("batch", "Job")


def _replicas_path(workload: Workload, policy: Policy) -> str:
    group, _, version = workload.api_version.rpartition("/")
    entry = policy.registry.find(group, workload.kind, version)
    replicas = entry.gang.replicas if entry is not None and entry.gang is not None else None
    path = _first_path(replicas) if replicas is not None else None
    return path_of(path.steps) if path is not None else "spec"


def _first_path(expression: IntExpression) -> Path | None:
    """Return the first field that an expression reads: of a number of replicas that in the spec."""
    if expression.path is not None:
        return expression.path
    return next((path for _, part in expression.parts() if (path := _first_path(part)) is not None), None)


def move_errors(workload: Workload, said: Iterable[RequestAnnotation]) -> Iterator[FieldError]:
    """Yield errors for moves that the kind cannot make: of one host's pods, or of the whole gang by a restart."""
    for one in said:
        if one.about == names.REPLACE and not can_replace(workload):
            yield _cannot(one, f"{_cost(workload)}{_instead(workload)}")
        elif one.about == names.REPLAN and one.value != "false" and not workload.suspendable:
            instead = f"{names.REPLACE} moves the pods of one host" if can_replace(workload) else "create it again"
            yield _cannot(one, f"a {workload.kind} cannot be suspended and placed again as a whole; {instead}")


def can_replace(workload: Workload) -> bool:
    """True when evicting a pod costs the user nothing but the pod's work, for one pod set at least."""
    return any(pod_set.evicted_freely for pod_set in workload.pod_sets)


def _cost(workload: Workload) -> str:
    """Return what deleting one pod of a workload costs."""
    match workload.pod_sets[0].replace if workload.pod_sets else "":
        case "group":
            return "deleting one pod restarts its whole group"
        case "workload":
            return f"deleting one pod restarts the whole {workload.kind}"
        case "lost":
            return "no controller creates a deleted pod again"
    return f"a deleted pod counts as a failure of the {workload.kind}"


def _instead(workload: Workload) -> str:
    ignoring = " or a podFailurePolicy that ignores DisruptionTarget" if workload.kind == "Job" else ""
    return f"; use {names.REPLAN}{ignoring}" if workload.suspendable else "; remove it"


def _cannot(one: RequestAnnotation, message: str) -> FieldError:
    return FieldError(field=one.field, kind="Forbidden", value=None, reason="UnsupportedKind", message=message)


def asks_for_no_level(one: RequestAnnotation) -> FieldError:
    """Return the error for a key that has no effect without a level."""
    needed = "require-topology, prefer-topology or unconstrained-topology"
    if one.about == names.RELAX_AFTER:
        needed = "require-topology, the level to relax"
    return FieldError(
        field=f"metadata.annotations[{names.REQUIRE}]",
        kind="Required value",
        value=None,
        reason="MissingValue",
        message=f"{one.key} also needs a level: {needed}",
    )


def conflict(one: RequestAnnotation, message: str) -> FieldError:
    """Return the error for two annotations that exclude each other."""
    return invalid(one, message, reason="ConflictingAnnotations")


def _missing(one: RequestAnnotation, key: str, message: str) -> FieldError:
    return FieldError(
        field=one.field.replace(one.key, key),
        kind="Required value",
        value=None,
        reason="MissingValue",
        message=f"{one.key} {message}",
    )


def template_errors(workload: Workload) -> Iterator[FieldError]:
    """Yield errors for templates with too many containers, labels, tolerations or affinity requirements."""
    templates = {one.path: one.template for one in workload.pod_sets}
    for path, template in templates.items():
        spec, shape = path_of((*path, "spec")), template.shape
        terms = shape.affinity or ()
        affinity = f"{spec}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        for field, what, found, most in (
            (f"{spec}.containers", "containers and init containers", template.containers, MAX_CONTAINERS),
            (f"{spec}.nodeSelector", "labels", len(shape.node_selector), MAX_REQUIREMENTS),
            (f"{spec}.tolerations", "tolerations", len(shape.tolerations), MAX_REQUIREMENTS),
            (affinity, "terms and requirements", requirements(terms), MAX_REQUIREMENTS),
            (affinity, "values", _values(terms), MAX_VALUES),
        ):
            if found > most:
                yield _too_many(field, f"{found:,} {what}; a template may have at most {most:,}")
    found = sum(template.containers for template in templates.values())
    if len(templates) > 1 and found > MAX_ALL_CONTAINERS:
        yield _too_many(
            "spec", f"{found:,} containers in all templates; a workload may have at most {MAX_ALL_CONTAINERS:,}"
        )


def requirements(terms: tuple[SelectorTerm, ...]) -> int:
    """Return how many checks node affinity needs on each node."""
    return sum(1 + len(term.expressions) + max(0, len(term.fields) - _OURS) for term in terms)


def checks(shape: Shape) -> int:
    """Return how many checks a shape needs on each node to decide its eligibility."""
    return 1 + len(shape.node_selector) + len(shape.tolerations) + requirements(shape.affinity or ())


def _values(terms: tuple[SelectorTerm, ...]) -> int:
    return sum(len(one.values) for term in terms for one in (*term.expressions, *term.fields))


def _too_many(field: str, message: str) -> FieldError:
    return FieldError(field=field, kind="Too many", value=None, reason="InvalidValue", message=message)
