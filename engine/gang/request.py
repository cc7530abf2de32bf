"""Parses a workload's request, for its gang and for each pod set, or every error in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.api import names
from engine.api.field import FieldError
from engine.api.field import path_of as path_of_steps
from engine.api.placement import GangRequest, Placement, PodSetRequest, Separation
from engine.api.reasons import Code
from engine.api.workload import PodSet, Workload
from engine.gang.annotations import (
    AnnotationSource,
    RequestAnnotation,
    RequestScope,
    check_value,
    own_source,
    pod_group_of,
    read_annotations,
    read_with_hints,
    requests_something,
    slices_of,
    unknown_keys,
)
from engine.gang.exemption import exemption_reason
from engine.gang.validation import (
    asks_for_no_level,
    bounds,
    colocation_errors,
    conflict,
    contradictions,
    device_errors,
    minimum_errors,
    move_errors,
    nesting_errors,
    of_plain_pods,
    pod_group_errors,
    slice_errors,
    spread_group_errors,
    template_errors,
    without_pods,
)
from engine.gang.warnings import request_warnings, unread
from engine.policy.model import Policy
from engine.policy.namespaces import RuleInForce, rule_of
from engine.resources.shape import shape_hash
from engine.topology.choice import LevelNames, choose_topology, level_names
from engine.topology.topology import Topology

_POD_GROUP_ONLY = 'pod-group labels are read only at creation; add topogate.dev/unconstrained-topology: "true"'
LEVELS = frozenset({names.REQUIRE, names.PREFER, names.UNCONSTRAINED, names.SLICE_TOPOLOGY, names.SLICES})
LONGEST_REQUEUE = 3600.0  # seconds; a longer schedule-timeout never doubles
_TIMEOUTS = frozenset({names.SCHEDULE_TIMEOUT, names.START_TIMEOUT, names.RECOVER_TIMEOUT})
_SEPARATION = frozenset({names.EXCLUSIVE, names.SPREAD, names.SPREAD_GROUP})
_ABOUT_DEVICES = (
    names.DEVICE_SCOPE,
    names.GPU_STRATEGY,
    names.DEVICE_SELECTOR,
    names.RDMA_SELECTOR,
    names.VF_SELECTOR,
    names.RDMA_SCOPE,
)
_NEEDS_LEVEL = (
    frozenset({names.TOPOLOGY, names.RELAX_AFTER, names.MIN_AVAILABLE, names.PROFILE, *_ABOUT_DEVICES})
    | {names.PREEMPTIBLE, names.REPLACE, names.REPLAN}
    | _TIMEOUTS
    | _SEPARATION
)
# about the whole gang, wherever they are set
_GANG_WIDE = (
    frozenset({names.TOPOLOGY, names.RELAX_AFTER, names.PROFILE, names.POD_GROUP, names.PREEMPTIBLE})
    | {names.REPLACE, names.REPLAN}
    | _TIMEOUTS
    | _SEPARATION
)


@dataclass(frozen=True, slots=True)
class PodGroupRequest:
    """The pod group that a workload or plain pods name: how many of all its pods must start together.

    `minimum` is None where the PodGroup object of that name says it.
    """

    name: str
    minimum: int | None


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A workload's request: `pod_sets` (with `topology`), or `errors` (ordered by path), or `ignored` (a reason code).

    `pod_sets` has one request per pod set, in their order; `gang` applies to all of them together (None with one pod
    set). `relax_after`: seconds of waiting after which required levels become preferred; `schedule_timeout`: after
    which the gang is requeued or given up. `start_timeout` and `recover_timeout`: instead of the policy's, in seconds;
    infinite for none. `preemptible`: false where the user wants the gang spared. `leave_hosts`: those that its pods
    leave, and do not use; `replan`: for each new value the whole gang is planned again, if that makes its place better.
    `profile` is None where the policy decides. `levels`: the aliases of the only levels that `auto` may stand for,
    coarse to fine; None: all. `pod_group`: whose minimum it is, if not its own alone. `separation`: None where other
    gangs do not matter. `warnings` are sentences for the user, without a prefix.
    """

    pod_sets: tuple[PodSetRequest, ...] = ()
    gang: GangRequest | None = None
    topology: str | None = None
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()
    ignored: Code | None = None
    relax_after: float | None = None
    schedule_timeout: float | None = None
    profile: str | None = None
    levels: tuple[str, ...] | None = None
    start_timeout: float | None = None
    recover_timeout: float | None = None
    pod_group: PodGroupRequest | None = None
    separation: Separation | None = None
    preemptible: bool = True
    leave_hosts: frozenset[str] = frozenset()
    replan: str | None = None

    @property
    def asked(self) -> PodSetRequest | None:
        """The request of the first pod set; None when the workload requests nothing that can be planned."""
        return self.pod_sets[0] if self.pod_sets else None

    @property
    def asking(self) -> bool:
        """True when the workload has a valid request; one placed through its child has no `pod_sets` of its own."""
        return self.ignored is None and not self.errors

    @property
    def count(self) -> int:
        """The number of pods of the gang."""
        return sum(ask.count for ask in self.pod_sets)

    @property
    def least(self) -> int:
        """The minimum number of pods with which the gang starts."""
        of_gang = self.gang.min_available if self.gang is not None else None
        return min(self.count, of_gang or sum(min(ask.count, ask.min_available) for ask in self.pod_sets))

    @property
    def first_counts(self) -> dict[str, int]:
        """The pods of each pod set of a gang that starts with its minimum, as many of the first pod sets as possible.

        Each pod set gets its own minimum, then what the minimum of the gang leaves goes to the first ones.
        """
        return self._first(lambda ask, pods: min(ask.count, pods))

    @property
    def first_slots(self) -> dict[str, int]:
        """The slots of each pod set of a gang that starts with its minimum: as `first_counts`, but in whole slices."""
        return self._first(PodSetRequest.in_whole_slices)

    def _first(self, most: Callable[[PodSetRequest, int], int]) -> dict[str, int]:
        found = {ask.name: most(ask, ask.min_available) for ask in self.pod_sets}
        left = self.least - sum(found.values())
        for ask in self.pod_sets:
            more = most(ask, found[ask.name] + max(0, left)) - found[ask.name]
            found[ask.name] += more
            left -= more
        return found


def parse_request(
    workload: Workload,
    *,
    policy: Policy,
    topologies: Mapping[str, Topology],
    own_namespace: str = names.NAMESPACE,
) -> PlacementRequest:
    """Parse the request of a workload under a policy; errors are collected, never raised.

    Annotations of the workload are about the whole gang, those of a template about its pod set; with one pod set both
    are merged. The rules: docs/concepts/admission.md.
    """
    sources = _sources(workload)
    said = read_annotations(sources, dialects=policy.annotations.dialects)
    unknown = tuple(unknown_keys(sources, short=policy.annotations.unknown != "deny"))
    warnings = tuple(unread(sources, dialects=policy.annotations.dialects, asks=bool(said)))
    if not said and not unknown:
        if pod_group_of(sources, dialects=policy.annotations.dialects):
            warnings = (_POD_GROUP_ONLY, *warnings)
        if warnings and exemption_reason(workload, policy=policy, own_namespace=own_namespace):
            warnings = ()
        return PlacementRequest(ignored="NoTopologyRequested", warnings=warnings)
    exemption = exemption_reason(workload, policy=policy, own_namespace=own_namespace)
    if exemption is not None:
        return PlacementRequest(ignored=exemption)

    errors: list[FieldError] = []
    if policy.annotations.unknown == "deny":
        errors.extend(unknown)
    else:
        warnings = (*(f"{error.field}: {error.message}" for error in unknown), *warnings)
    if not errors and not requests_something(said):
        return PlacementRequest(ignored="NoTopologyRequested", warnings=warnings)

    rule = rule_of(workload.namespace, policy)
    if said and rule is not None and not rule.rule.allow:
        # Annotations for pod-group labels are written by the webhook: their user knows the labels alone.
        labels = bool(pod_group_of(sources, dialects=policy.annotations.dialects))
        refused = _not_allowed(said[0], rule, what="pod-group labels" if labels else "request")
        return PlacementRequest(errors=tuple(sorted((*errors, refused), key=_order)))
    reading, value_errors = _read(said, workload, policy=policy, topologies=topologies, rule=rule)
    errors += [*value_errors, *_errors_in(reading, sources, policy)]
    # The rules above already report slice sizes, keys of plain gangs and shared domains without a level.
    if said and not reading.grouped and not any(one.about in LEVELS for one in said):
        without_level = [one for one in said if one.about in _NEEDS_LEVEL] or ([] if errors else said)
        errors += map(asks_for_no_level, without_level[:1])
    if errors:
        return PlacementRequest(errors=tuple(sorted(set(errors), key=_order)), warnings=warnings)
    return _valid_request(reading, policy, warnings)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The annotations of a workload, with their meanings.

    `gang_wide`: meanings that hold for the whole gang wherever they are set. `whole`: the scope of the whole gang; with
    one pod set also that pod set's. `rest`: the scopes of several pod sets. `rule`: of the namespace.
    """

    workload: Workload
    said: tuple[RequestAnnotation, ...]
    gang_wide: Mapping[str, str]
    whole: RequestScope
    rest: tuple[RequestScope, ...]
    topology: str | None
    levels: LevelNames
    rule: RuleInForce | None

    @property
    def scopes(self) -> tuple[RequestScope, ...]:
        """The scope of the whole gang, then those of several pod sets."""
        return (self.whole, *self.rest)

    @property
    def of_pods(self) -> tuple[RequestScope, ...]:
        """The scopes of the pod sets."""
        return self.rest or ((self.whole,) if self.whole.pod_set is not None else ())

    @property
    def grouped(self) -> bool:
        """True if the workload names a pod group."""
        return any(one.about == names.POD_GROUP for one in self.said)


def _read(
    said: tuple[RequestAnnotation, ...],
    workload: Workload,
    *,
    policy: Policy,
    topologies: Mapping[str, Topology],
    rule: RuleInForce | None,
) -> tuple[_Reading, list[FieldError]]:
    """Return the meanings of annotations, and an error for each value without any."""
    chosen = _topology(said, workload, policy=policy, topologies=topologies)
    levels = level_names(policy.topologies, topologies, chosen)
    if rule is not None and rule.rule.levels is not None:
        levels = levels.allowing(rule.rule.levels, by=rule.field("levels"))
    wide, value_errors = _fold([one for one in said if one.about in _GANG_WIDE], levels=levels, topologies=topologies)
    (whole, *rest), fold_errors = _scopes(workload, policy=policy, levels=levels, topologies=topologies)
    reading = _Reading(workload, said, wide, whole, tuple(rest), topology=chosen, levels=levels, rule=rule)
    return reading, [*value_errors, *fold_errors]


def _errors_in(reading: _Reading, sources: Sequence[AnnotationSource], policy: Policy) -> list[FieldError]:
    """Return the errors in what annotations mean together, and beside the workload; not that a level is missing."""
    workload, whole, rest, levels = reading.workload, reading.whole, reading.rest, reading.levels
    errors = [*without_pods(workload, reading.said), *bounds(workload, policy), *template_errors(workload)]
    for scope in reading.scopes:
        errors += [*of_plain_pods(scope), *contradictions(scope, levels)]
        errors += [] if reading.grouped and scope is whole else minimum_errors(scope)
        errors += device_errors(scope, workload, policy.device_kinds)
        errors += slice_errors(scope, whole, workload, levels)
    errors += [*nesting_errors(whole, rest, levels), *colocation_errors(reading.scopes)]
    errors += [*spread_group_errors(reading.said), *move_errors(workload, reading.said)]
    if reading.rule is not None and not reading.rule.rule.exclusive:
        errors += [_not_exclusive(one, reading.rule) for one in reading.said if one.about == names.EXCLUSIVE]
    if reading.grouped:
        named = reading.gang_wide.get(names.POD_GROUP, "")
        from_object = any(source.labels.get(names.SCHEDULER_PLUGINS_POD_GROUP) == named for source in sources)
        errors += pod_group_errors(workload, whole, rest, reading.said, from_object=from_object)
    return errors


def _valid_request(reading: _Reading, policy: Policy, warnings: tuple[str, ...]) -> PlacementRequest:
    """Return the request of annotations without errors; `warnings`: those found before."""
    workload, whole, wide, levels = reading.workload, reading.whole, reading.gang_wide, reading.levels
    group = None
    if reading.grouped:
        least = whole.meanings.get(names.MIN_AVAILABLE)
        group = PodGroupRequest(wide[names.POD_GROUP], int(least) if least is not None else None)
    gang = _gang(whole, workload) if whole.pod_set is None else None
    asks = _asks(whole, reading.of_pods, gang, workload)
    schedule_timeout = _seconds(wide, names.SCHEDULE_TIMEOUT)
    about_request = request_warnings(
        workload,
        reading.scopes,
        asks,
        gang,
        gang_wide=wide,
        keeps_incomplete=policy.incomplete == "keep",
        preemption=policy.preemption,
        defragment=policy.defragment,
        group=group.minimum if group is not None else None,
        levels=levels,
        dialects=policy.annotations.dialects,
        longest_wait=longest_wait(schedule_timeout, policy),
    )
    return PlacementRequest(
        pod_sets=asks,
        gang=gang,
        topology=reading.topology,
        warnings=(*warnings, *about_request),
        relax_after=_seconds(wide, names.RELAX_AFTER),
        schedule_timeout=schedule_timeout,
        start_timeout=_seconds(wide, names.START_TIMEOUT),
        recover_timeout=_seconds(wide, names.RECOVER_TIMEOUT),
        profile=wide.get(names.PROFILE),
        levels=levels.allowed,
        pod_group=group,
        separation=_separation(wide),
        preemptible=wide.get(names.PREEMPTIBLE) != "false",
        leave_hosts=frozenset(filter(None, wide.get(names.REPLACE, "").split(","))),
        replan=replan if (replan := wide.get(names.REPLAN)) != "false" else None,
    )


def longest_wait(schedule_timeout: float | None, policy: Policy) -> float | None:
    """Return how long a gang with this time-out can wait at a time (seconds); None: for ever.

    A requeue begins a new wait, which lasts twice as long, up to an hour.
    """
    if schedule_timeout is None or policy.queue.on_timeout == "giveUp":
        return schedule_timeout
    return max(schedule_timeout, LONGEST_REQUEUE)


def of_group(request: PlacementRequest, *, timeout: float | None = None) -> PlacementRequest:
    """Return the request of a workload whose pod group has other members.

    The minimum is about all of them, so each pod set is placed with as many pods as fit, one at least. `timeout`: that
    of the PodGroup object, for requests without a time-out of their own.
    """
    gang = replace(request.gang, min_available=None) if request.gang is not None else None
    if gang is not None and gang.require is None and gang.prefer is None:
        gang = None
    asks = tuple(replace(ask, min_available=min(1, ask.count)) for ask in request.pod_sets)
    wait = request.schedule_timeout if request.schedule_timeout is not None else timeout
    return replace(request, pod_sets=asks, gang=gang, schedule_timeout=wait)


def _separation(gang_wide: Mapping[str, str]) -> Separation | None:
    exclusive, spread = gang_wide.get(names.EXCLUSIVE), gang_wide.get(names.SPREAD)
    if exclusive is None and spread is None:
        return None
    return Separation(exclusive, spread, gang_wide.get(names.SPREAD_GROUP))


def _not_allowed(said: RequestAnnotation, rule: RuleInForce, *, what: str) -> FieldError:
    """Return the error for a request in a namespace without any; `said` is the first part of it, `what` its form."""
    return FieldError(
        field=said.field,
        kind="Forbidden",
        value=None,
        reason="NamespaceNotAllowed",
        message=f"this namespace may not request a topology or a gang ({rule.field('allow')}); remove the {what}, "
        "or use another namespace",
    )


def _not_exclusive(said: RequestAnnotation, rule: RuleInForce) -> FieldError:
    return FieldError(
        field=said.field,
        kind="Forbidden",
        value=None,
        reason="ExclusiveNotAllowed",
        message=f"gangs of this namespace may not keep a domain for themselves ({rule.field('exclusive')}); remove it, "
        "or use another namespace",
    )


def _seconds(meanings: Mapping[str, str], key: str) -> float | None:
    return float(meanings[key]) if key in meanings else None


def request_annotations(workload: Workload, *, policy: Policy) -> tuple[RequestAnnotation, ...]:
    """Return every request annotation of a workload and its templates, ordered by path."""
    return read_annotations(_sources(workload), dialects=policy.annotations.dialects)


def request_path(workload: Workload, about: str, *, policy: Policy, pod_set: PodSet | None = None) -> str:
    """Return the JSON path of a workload's annotation for a key, which may be an alias.

    `pod_set`: the path in its template, if the template has the annotation.
    """
    own = own_source(workload)
    sources = _sources(workload) if pod_set is None else (own, _source(pod_set))
    said = [one for one in read_with_hints(sources, dialects=policy.annotations.dialects) if one.about == about]
    if pod_set is not None and len(workload.pod_sets) > 1:
        said = [one for one in said if not one.field.startswith("metadata.")] or said
        missing = f"{_source(pod_set).path}.annotations[{about}]"
    else:
        missing = f"metadata.annotations[{about}]"
    return next((one.field for one in said), missing)


def _sources(workload: Workload) -> tuple[AnnotationSource, ...]:
    of_pods = {one.path: one for one in map(_source, workload.pod_sets)}  # two pod sets may share a template
    return (own_source(workload), *of_pods.values())


def _source(pod_set: PodSet) -> AnnotationSource:
    path = path_of_steps((*pod_set.path, "metadata"))
    return AnnotationSource(path, pod_set.template.annotations, pod_set.template.labels)


def _scopes(
    workload: Workload, *, policy: Policy, levels: LevelNames, topologies: Mapping[str, Topology]
) -> tuple[list[RequestScope], list[FieldError]]:
    """Return the scope of the whole gang and, when there are several pod sets, the scope of each."""
    own = own_source(workload)
    pod_sets = workload.pod_sets
    wanted: list[tuple[PodSet | None, tuple[AnnotationSource, ...]]]
    if len(pod_sets) == 1:
        wanted = [(pod_sets[0], (own, _source(pod_sets[0])))]
    else:
        wanted = [(None, (own,)), *((one, (_source(one),)) for one in pod_sets)]
    scopes: list[RequestScope] = []
    errors: list[FieldError] = []
    for pod_set, sources in wanted:
        said = read_with_hints(sources, dialects=policy.annotations.dialects)
        meanings, found = _fold(said, levels=levels, topologies=topologies)
        scopes.append(RequestScope(pod_set, workload.slots if pod_set is None else pod_set.slots, said, meanings))
        errors += found
    return scopes, errors


def _topology(
    said: Iterable[RequestAnnotation], workload: Workload, *, policy: Policy, topologies: Mapping[str, Topology]
) -> str | None:
    named = [one.value for one in said if one.about == names.TOPOLOGY]
    if named:
        return next((name for name in named if name in topologies), None)
    asking = [
        one for one in workload.pod_sets if read_annotations((_source(one),), dialects=policy.annotations.dialects)
    ]
    selectors = [one.template.shape.node_selector for one in asking or workload.pod_sets]
    return choose_topology(policy.topologies, topologies, selectors)


def _fold(
    said: Iterable[RequestAnnotation], *, levels: LevelNames, topologies: Mapping[str, Topology]
) -> tuple[dict[str, str], list[FieldError]]:
    """Merge annotations into one value per key; a second, different value is a conflict."""
    first: dict[str, RequestAnnotation] = {}
    meanings: dict[str, str] = {}
    errors: list[FieldError] = []
    for one in sorted(said, key=lambda one: one.key != one.about):  # of two that differ, the alias gets the error
        meaning = check_value(one, levels=levels, topologies=topologies)
        if isinstance(meaning, FieldError):
            errors.append(meaning)
        elif meanings.setdefault(one.about, meaning) != meaning:
            errors.append(conflict(one, f"contradicts {first[one.about].field}; keep one of them"))
        else:
            first.setdefault(one.about, one)
    return meanings, errors


def _gang(whole: RequestScope, workload: Workload) -> GangRequest | None:
    require, prefer = whole.meanings.get(names.REQUIRE), whole.meanings.get(names.PREFER)
    if workload.group_label is not None and names.SLICE_SIZE not in whole.meanings:
        # A slice of all pods of a replica is the whole gang of a kind with a gang per replica.
        require = whole.meanings.get(names.SLICE_TOPOLOGY) or require
    said = whole.meanings.get(names.MIN_AVAILABLE)
    least = int(said) if said is not None else workload.minimum
    if least is not None and least >= workload.slots:
        least = None
    if require is None and prefer is None and least is None:
        return None
    return GangRequest(require, prefer, least)


def _asks(
    whole: RequestScope, of_pods: Sequence[RequestScope], gang: GangRequest | None, workload: Workload
) -> tuple[PodSetRequest, ...]:
    asks = []
    alone = workload.minimum if len(workload.pod_sets) == 1 else None
    if workload.unit == "pod":
        alone = 1  # each pod starts by itself, near the others
    least = gang.min_available if gang is not None else None
    leading = _leading(of_pods, least) if least is not None else {}
    for scope in of_pods:
        pod_set, meanings = scope.pod_set, scope.meanings
        assert pod_set is not None
        require, prefer = meanings.get(names.REQUIRE), meanings.get(names.PREFER)
        asks.append(
            PodSetRequest(
                name=pod_set.name,
                count=pod_set.slots,
                min_available=_min_available(scope, pod_set, alone=alone, shared=leading.get(pod_set.name)),
                require=require,
                prefer=prefer,
                ranked=pod_set.ranked,
                shape_hash=shape_hash(pod_set.template.shape),
                unconstrained=require is None and prefer is None,
                slices=slices_of(scope, whole),
                colocate=meanings.get(names.COLOCATE) or whole.meanings.get(names.COLOCATE),
                gpu_strategy=meanings.get(names.GPU_STRATEGY) or whole.meanings.get(names.GPU_STRATEGY),
                device_selector=meanings.get(names.DEVICE_SELECTOR) or whole.meanings.get(names.DEVICE_SELECTOR),
                device_scope=meanings.get(names.DEVICE_SCOPE) or whole.meanings.get(names.DEVICE_SCOPE),
                rdma_selector=meanings.get(names.RDMA_SELECTOR) or whole.meanings.get(names.RDMA_SELECTOR),
                vf_selector=meanings.get(names.VF_SELECTOR) or whole.meanings.get(names.VF_SELECTOR),
                rdma_scope=meanings.get(names.RDMA_SCOPE) or whole.meanings.get(names.RDMA_SCOPE),
            )
        )
    return tuple(asks)


def _leading(of_pods: Sequence[RequestScope], least: int) -> dict[str, int]:
    """Return the minimum of each pod set without one of its own, in a gang with a minimum for all of them.

    Each starts with one pod, in their order (those that lead the others come first), as far as the minimum goes: no
    worker can do anything without its parameter server, master or launcher.
    """
    own = {pods.name: _own_minimum(scope, pods) for scope in of_pods if (pods := scope.pod_set) is not None}
    left = least - sum(number for number in own.values() if number is not None)
    found: dict[str, int] = {}
    for scope in of_pods:
        pods = scope.pod_set
        if pods is not None and own[pods.name] is None:
            found[pods.name] = 1 if left > 0 and pods.slots else 0
            left -= found[pods.name]
    return found


def _own_minimum(scope: RequestScope, pod_set: PodSet) -> int | None:
    said = scope.meanings.get(names.MIN_AVAILABLE)
    return int(said) if said is not None else pod_set.minimum


def _min_available(scope: RequestScope, pod_set: PodSet, *, alone: int | None, shared: int | None) -> int:
    """Return how many pods of a pod set must start together.

    `alone`: the minimum of a workload with this pod set only; `shared`: its part of the minimum of a gang of several.
    """
    said = scope.meanings.get(names.MIN_AVAILABLE)
    least = int(said) if said is not None else alone if alone is not None else pod_set.minimum
    if least is None:
        least = pod_set.slots if shared is None else shared
    return min(least, pod_set.slots)


def _order(error: FieldError) -> tuple[str, str, str]:
    return (error.field, error.reason, error.message)


def requires_others(placement: Placement, asked: PlacementRequest) -> bool:
    """Return True if a request requires other domains than those that the slots of a Placement were planned for.

    The pods of the gang may all be new ones: those of a gang of plain pods with the same name, or of a workload with an
    edited request.
    """
    if not asked.pod_sets or asked.topology is None:
        return False
    planned = (placement.topology, placement.separation, _required(placement.gang, placement.pod_sets))
    return planned != (asked.topology, asked.separation, _required(asked.gang, asked.pod_sets))


def _required(gang: GangRequest | None, pod_sets: Iterable[PodSetRequest]) -> tuple[object, ...]:
    of_pods = ((ask.name, ask.require, ask.slices, ask.colocate) for ask in pod_sets)
    return (gang.require if gang is not None else None, *of_pods)
