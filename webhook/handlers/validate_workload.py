"""`/validate` for workloads: all errors at once, and a forecast at submit time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from engine.api import names
from engine.api.field import FieldError
from engine.api.field import path_of as path_of_steps
from engine.api.placement import Placement
from engine.api.reasons import asks_nothing
from engine.api.text import MAX_WARNING, sanitize, truncate_bytes
from engine.api.workload import Workload
from engine.gang.annotations import own_source, read_own_annotations
from engine.gang.exemption import exemption_reason, is_exempt
from engine.gang.key import keys_of
from engine.gang.ownership import CHILD, leads_to
from engine.gang.request import PlacementRequest, parse_request
from engine.gang.summary import hosts_of
from engine.gang.validation import gang_count_errors, size_errors
from engine.gang.warnings import unread
from engine.policy.model import Policy
from webhook.admission.budget import Budget
from webhook.admission.objects import Unreadable, decoded, workload_of
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review, allowed, answer
from webhook.rules.children import Findings, child_requests
from webhook.rules.defaults import by_default
from webhook.rules.devices import annotation_errors, device_findings, hami_warnings, limit_warnings, unit_warnings
from webhook.rules.forecast import forecast_warnings
from webhook.rules.gating import templates
from webhook.rules.immutable import lost_request, mark_errors, request_errors, unheld_errors
from webhook.rules.membership import ParentRelation, parent_relation, whole
from webhook.rules.unread_fields import unread_fields
from webhook.rules.warnings import workload_warnings

_MAX_GANGS: Final = 1_000
_MAX_HOST: Final = 63  # characters of a name in a warning
_LEFT_OUT: Final = "topogate: not considered: "
_ADDED: Final = "the policy sets this for the whole namespace (namespaces.defaults): tell the cluster's admin"


@dataclass(frozen=True, slots=True)
class _Version:
    """A workload before or after the change: its decoded object, itself with all its pod sets, and its request.

    `alone`: its request without the templates of the workload that it is placed through, as `/mutate` reads it.
    """

    document: Mapping[str, Any]
    workload: Workload
    whole: Workload
    request: PlacementRequest
    alone: PlacementRequest

    @property
    def managed(self) -> bool:
        """Return True if its pods are placed by us; an invalid request counts."""
        return self.request.ignored is None


def validate_workload(review: Review, view: Reader, policy: Policy, deadline: float) -> Response:
    """Answer a CREATE or UPDATE of a workload, as it is after all mutation."""
    workload, document = workload_of(review, review.object, view)
    if workload.deleting:
        return allowed()
    if workload.handling == "hint":
        return _hint(review, workload, document, view, policy)
    new, old = _version(workload, document, view, policy), _old(review, view, policy)
    request, relation = new.request, parent_relation(workload, view, policy)
    # Errors of the request were reported for its parent: refusing a controller its children would not help.
    own = relation == "root"
    found = _in_object(review, new, view, policy, own=own)
    if old is not None:
        known = _known_errors(old, new, view, policy, budget=review.budget)
        found.errors = [error for error in found.errors if error not in known]
        changed = _in_change(review, old, new, view, policy, relation=relation)
        found = Findings([*found.errors, *changed.errors], [*found.warnings, *changed.warnings])
    elif review.operation == "UPDATE" and own and request.asking and not (workload.suspended or _gated(workload)):
        found.warnings.append(_not_held(workload))  # before, it could not be read
    if by_default(workload, policy):
        asked = set(request.errors)
        found.errors = [
            replace(one, message=f"{one.message}; {_ADDED}") if one in asked else one for one in found.errors
        ]
    found.errors += _forged(review, new, old, policy)
    if own and request.asking:
        found.warnings += [*_priorities(new.whole), *unread_fields(document, workload, request)]
    if own:
        found.warnings += workload_warnings(document, workload, request.ignored, policy)
    errors, lines = found.errors, [f"topogate: {text}" for text in found.warnings]
    if own and not errors and request.asked is not None:
        errors += _too_many_gangs(old, new, view, policy)
    if own and not errors and request.asked is not None and (old is None or _changes_request(old, new)):
        lines += [truncate_bytes(f"{_LEFT_OUT}{text}", MAX_WARNING) for text in view.volumes_left_out(new.whole)]
        never, warned = forecast_warnings(new.whole, request, view, policy, deadline, budget=review.budget)
        lines += warned
        errors += never
    left_alone = own and old is None and not asks_nothing(request.ignored)
    return replace(answer(review, errors, lines, policy=policy), aside=request.ignored if left_alone else None)


def _version(workload: Workload, document: Mapping[str, Any], view: Reader, policy: Policy) -> _Version:
    def read(one: Workload) -> PlacementRequest:
        return parse_request(one, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)

    every = whole(workload, view, policy)
    request = read(every)
    return _Version(document, workload, every, request, request if every is workload else read(workload))


def _old(review: Review, view: Reader, policy: Policy) -> _Version | None:
    """Return the workload before an UPDATE; None at CREATE, or if it cannot be decoded."""
    if review.operation != "UPDATE":
        return None
    try:
        return _version(*workload_of(review, review.old_object, view), view, policy)
    except Unreadable:
        return None


def _in_object(review: Review, new: _Version, view: Reader, policy: Policy, *, own: bool) -> Findings:
    """Return what is wrong with an object by itself; `own`: its request is not its parent's."""
    errors, warnings = _devices(new, view, policy, budget=review.budget)
    if not own:
        return Findings([*errors], [*warnings])
    found = Findings([*new.request.errors, *errors], [*new.request.warnings, *warnings])
    if exemption_reason(new.workload, policy=policy, own_namespace=view.own_namespace) is None:
        made = _made(review, new.document, view, policy, asks=new.managed)
        found.errors += made.errors
        found.warnings += made.warnings
    return found


def _known_errors(
    old: _Version, new: _Version, view: Reader, policy: Policy, *, budget: Budget
) -> frozenset[FieldError]:
    """Return the errors that the old object has as well.

    A request that a later policy made invalid must not block every other change of its workload, nor may a limit that
    it exceeds already keep it from shrinking. An object without a request exceeds none.
    """
    known = {*old.request.errors, *_devices(old, view, policy, budget=budget)[0]}
    if old.managed and new.whole.slots <= old.whole.slots:
        known |= {*size_errors(new.whole, policy)}
    return frozenset(known)


def _in_change(
    review: Review,
    old: _Version,
    new: _Version,
    view: Reader,
    policy: Policy,
    *,
    relation: ParentRelation,
) -> Findings:
    """Return what is wrong with a change of an object."""
    own, before, after = relation == "root", old.request, new.request
    errors: list[FieldError] = []
    warnings: list[str] = []
    if not _trusted(review, policy):
        asks = new.alone.asking or relation == "child"
        errors += mark_errors(old.workload, new.workload, asks=asks, child=not own)
    placements = _placements(old.workload, view)
    kept = [*request_errors(old.whole, new.whole, before=before, after=after, placements=placements, policy=policy)]
    errors += kept
    if own:
        errors += unheld_errors(old.workload, new.whole, before=before, after=after, policy=policy)
        warnings += _late(old.workload, new.workload, before, after)
        warnings += _not_there(after.leave_hosts - before.leave_hosts, placements)
    if own and not kept:
        warnings += lost_request(old.whole, new.whole, before=before, after=after, placements=placements)
    return Findings(errors, warnings)


def _forged(review: Review, new: _Version, old: _Version | None, policy: Policy) -> Iterator[FieldError]:
    """Yield the errors of annotations of the templates that only we may write; those of the old object may stay."""
    stood = {one.name: one.template.annotations for one in old.workload.pod_sets} if old is not None else {}
    for path, pod_set in templates(new.workload).items():
        where, before = path_of_steps((*path, "metadata")), stood.get(pod_set.name, {})
        yield from annotation_errors(pod_set.template.annotations, where, review, policy, before=before)


def _too_many_gangs(old: _Version | None, new: _Version, view: Reader, policy: Policy) -> Iterable[FieldError]:
    """Return the errors of a new request, or of one that grows, with more gangs than its namespace may have."""
    known = old.workload.groups if old is not None and old.managed else 0
    if new.whole.groups <= known:
        return ()
    there = view.gangs_in(new.workload.namespace) - known
    return gang_count_errors(new.whole, policy, others=max(0, there))


def _placements(workload: Workload, view: Reader) -> list[Placement]:
    """Return the Placements of its gangs, or of those made from it; with very many replicas the first are enough."""
    if workload.unit == CHILD:
        return [one for one in view.all_placements() if _made_from(workload, one, view)]
    found = (view.placement_of(key) for key in islice(keys_of(workload), _MAX_GANGS))
    return [placement for placement in found if placement is not None]


def _made_from(workload: Workload, placement: Placement, view: Reader) -> bool:
    """Return True for the Placement of a gang that a workload's controller made from it."""
    ref = placement.workload
    child = view.find((ref.api_version.rpartition("/")[0], ref.kind, placement.namespace, ref.name))
    return child is not None and child.uid == ref.uid and leads_to(placement.namespace, child.owner, workload)


def _devices(
    version: _Version, view: Reader, policy: Policy, *, budget: Budget
) -> tuple[tuple[FieldError, ...], tuple[str, ...]]:
    """Return errors and warnings about the devices of the templates.

    What nodes do not report is no warning for a managed workload: the forecast says it.
    """
    document, workload = version.document, version.workload
    if exemption_reason(workload, policy=policy, own_namespace=view.own_namespace) is not None:
        return (), ()
    managed = version.managed
    errors: list[FieldError] = []
    warnings: dict[str, None] = {}
    for root in templates(workload):
        budget.check()
        wrong, noted = device_findings(document, root, managed=managed, view=view, policy=policy)
        errors += wrong
        if managed:
            noted = (
                *limit_warnings(document, root, policy=policy),
                *hami_warnings(document, root, reported=view.reported.names),
                *unit_warnings(document, root, policy=policy),
            )
        warnings |= dict.fromkeys(noted)
    return tuple(errors), tuple(warnings)


def _trusted(review: Review, policy: Policy) -> bool:
    return review.username in policy.admins or not set(policy.admins).isdisjoint(review.groups)


def _changes_request(old: _Version, new: _Version) -> bool:
    """Return True if an UPDATE of a waiting gang changes its request."""
    before, after = (replace(one.request, warnings=()) for one in (old, new))
    return new.workload.suspended and before != after


def _hint(review: Review, workload: Workload, document: Mapping[str, Any], view: Reader, policy: Policy) -> Response:
    """Answer for an object of a kind that is not placed itself, such as a CronJob."""
    if is_exempt(workload.namespace, policy=policy, own_namespace=view.own_namespace):
        return allowed()
    made = _made(review, document, view, policy, asks=False)
    dialects = policy.annotations.dialects
    asks = sorted({one.key for one in read_own_annotations(workload, dialects=dialects)})
    lines = [f"{sanitize(key.partition('/')[2])} belongs in spec.jobTemplate.metadata.annotations" for key in asks]
    why = f", or nothing of this {workload.kind} is placed"
    lines = [line + why if len(f"topogate: {line}{why}") <= MAX_WARNING else line for line in lines]
    lines += unread((own_source(workload),), dialects=dialects)
    lines += [*workload_warnings(document, workload, None, policy), *made.warnings]
    return answer(review, made.errors, [f"topogate: {text}" for text in lines], policy=policy)


def _made(review: Review, document: Mapping[str, Any], view: Reader, policy: Policy, *, asks: bool) -> Findings:
    """Return the findings about requests in its children; errors that the old object had are left out."""
    found = child_requests(review, document, view, policy, asks=asks)
    if found.errors and review.operation == "UPDATE":
        before = child_requests(review, decoded(review.old_object), view, policy, asks=asks)
        found.errors = [error for error in found.errors if error not in before.errors]
    return found


def _late(old: Workload, new: Workload, before: PlacementRequest, after: PlacementRequest) -> Iterator[str]:
    """Yield a warning for a request that is added after the pods exist: it holds none of them."""
    if before.ignored is None or not after.asking or (old.suspended and new.suspended):
        return
    if not _gated(new):
        yield _not_held(new)
    elif _gated(old):
        yield f"the {new.kind} is already running: its pods stay where they are, only new pods are held"


def _not_held(workload: Workload) -> str:
    return f"the request was added after the {workload.kind}: its pods are not held and stay where they are"


def _not_there(hosts: Collection[str], placements: Sequence[Placement]) -> Iterator[str]:
    """Yield a warning for hosts that a gang with slots is to leave, and where it has none: mostly a typo."""
    assigned = [one.assignment for one in placements if one.assignment is not None]
    used = {host for assignment in assigned for host in hosts_of(assignment)}
    missing = sorted(set(hosts) - used)
    if used and missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        yield f"replace: none of its pods is on {sanitize(missing[0], _MAX_HOST)}{more}"


def _gated(workload: Workload) -> bool:
    return bool(workload.pod_sets) and all(names.GATE in one.template.gates for one in workload.pod_sets)


def _priorities(workload: Workload) -> Iterator[str]:
    """Yield a warning for different priorities: the gang's is the highest, and its lower pods may be preempted."""
    found = {
        pod_set.name: pod_set.template.priority_class or pod_set.template.priority or "none"
        for pod_set in workload.pod_sets
    }
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{sanitize(name)}: {sanitize(str(priority))}" for name, priority in found.items())
        yield f"the pods of the gang have different priorities ({listed})"
