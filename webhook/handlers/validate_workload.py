"""`/validate` for workloads: all errors at once, and a forecast at submit time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
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
from webhook.rules.membership import parent_relation, whole
from webhook.rules.unread_fields import unread_fields
from webhook.rules.warnings import workload_warnings

_MAX_GANGS: Final = 1_000
_MAX_HOST: Final = 63  # characters of a name in a warning
_LEFT_OUT: Final = "topogate: not considered: "
_ADDED: Final = "the policy sets this for the whole namespace (namespaces.defaults): tell the cluster's admin"


def validate_workload(review: Review, view: Reader, policy: Policy, deadline: float) -> Response:
    """Answer a CREATE or UPDATE of a workload, as it is after all mutation."""
    workload, document = workload_of(review, review.object, view)
    if workload.deleting:
        return allowed()
    if workload.handling == "hint":
        return _hint(review, workload, document, view, policy)
    request, relation = _parsed_request(workload, view, policy), parent_relation(workload, view, policy)
    devices, noted = _devices(document, workload, request, view, policy, budget=review.budget)
    seen = whole(workload, view, policy)
    # Errors of the request were reported for its parent: refusing a controller its children would not help.
    own = relation == "root"
    errors = [*(request.errors if own else ()), *devices]
    old, old_document = _old(review, view)
    warnings = [*(request.warnings if own else ()), *noted]
    if own and exemption_reason(workload, policy=policy, own_namespace=view.own_namespace) is None:
        made = _made(review, document, view, policy, asks=request.ignored is None)
        errors, warnings = [*errors, *made.errors], [*warnings, *made.warnings]
    forgeable: Mapping[str, Mapping[str, str]] = {}
    if old is not None:
        before = _parsed_request(old, view, policy)
        # A request that a later policy made invalid must not block every other change of its workload.
        known = {*before.errors, *_devices(old_document, old, before, view, policy, budget=review.budget)[0]}
        if seen.slots <= whole(old, view, policy).slots:
            known |= {*size_errors(seen, policy)}  # nor may a limit that it exceeds already keep it from shrinking
        errors = [error for error in errors if error not in known]
        forgeable = {pod_set.name: pod_set.template.annotations for pod_set in old.pod_sets}
        if not _trusted(review, policy):
            asks = request.asking or relation == "child"
            errors += mark_errors(old, workload, asks=asks, child=not own)
        was, placements = whole(old, view, policy), _placements(old, view)
        kept = [*request_errors(was, seen, before=before, after=request, placements=placements, policy=policy)]
        errors += kept
        if own:
            errors += unheld_errors(old, seen, before=before, after=request, policy=policy)
            warnings += _late(old, workload, before, request)
            warnings += _not_there(request.leave_hosts - before.leave_hosts, placements)
        if own and not kept:
            warnings += lost_request(was, seen, before=before, after=request, placements=placements)
    if by_default(workload, policy):
        asked = set(request.errors)
        errors = [replace(one, message=f"{one.message}; {_ADDED}") if one in asked else one for one in errors]
    for path, pod_set in templates(workload).items():
        where, stood = path_of_steps((*path, "metadata")), forgeable.get(pod_set.name, {})
        errors += annotation_errors(pod_set.template.annotations, where, review, policy, before=stood)
    if own and request.asking:
        warnings += _priorities(seen)
        warnings += unread_fields(document, workload, request)
    if own:
        warnings += workload_warnings(document, workload, request.ignored, policy)
    lines = [f"topogate: {text}" for text in warnings]
    if own and not errors and request.asked is not None and (old is None or seen.groups > old.groups):
        there = view.gangs_in(workload.namespace) - (old.groups if old is not None else 0)
        errors += gang_count_errors(seen, policy, others=max(0, there))
    anew = old is None or _changes_request(old, workload, view, policy)
    if own and not errors and request.asked is not None and anew:
        lines += [truncate_bytes(f"{_LEFT_OUT}{text}", MAX_WARNING) for text in view.volumes_left_out(seen)]
        never, warned = forecast_warnings(seen, request, view, policy, deadline, budget=review.budget)
        lines += warned
        errors += never
    left_alone = own and old is None and not asks_nothing(request.ignored)
    return replace(answer(review, errors, lines, policy=policy), aside=request.ignored if left_alone else None)


def _old(review: Review, view: Reader) -> tuple[Workload | None, Mapping[str, Any]]:
    """Return the workload before an UPDATE, and its decoded object; None at CREATE, or if it cannot be decoded."""
    if review.operation != "UPDATE":
        return None, {}
    try:
        return workload_of(review, review.old_object, view)
    except Unreadable:
        return None, {}


def _placements(workload: Workload, view: Reader) -> list[Placement]:
    """Return the Placements of its gangs; with very many replicas the first are enough."""
    found = (view.placement_of(key) for key in islice(keys_of(workload), _MAX_GANGS))
    return [placement for placement in found if placement is not None]


def _parsed_request(workload: Workload, view: Reader, policy: Policy) -> PlacementRequest:
    seen = whole(workload, view, policy)
    return parse_request(seen, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)


def _devices(
    document: Mapping[str, Any],
    workload: Workload,
    request: PlacementRequest,
    view: Reader,
    policy: Policy,
    *,
    budget: Budget,
) -> tuple[tuple[FieldError, ...], tuple[str, ...]]:
    """Return errors and warnings about the devices of the templates.

    What nodes do not report is no warning for a managed workload: the forecast says it.
    """
    if exemption_reason(workload, policy=policy, own_namespace=view.own_namespace) is not None:
        return (), ()
    managed = request.ignored is None
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


def _changes_request(old: Workload, new: Workload, view: Reader, policy: Policy) -> bool:
    """Return True if an UPDATE of a waiting gang changes its request."""
    before, after = (replace(_parsed_request(one, view, policy), warnings=()) for one in (old, new))
    return new.suspended and before != after


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
        yield f"the request was added after the {new.kind}: its pods are not held and stay where they are"
    elif _gated(old):
        yield f"the {new.kind} is already running: its pods stay where they are, only new pods are held"


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
