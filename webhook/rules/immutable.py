"""Checks what must not change in an UPDATE of a workload: our own marks, and the request of a running gang.

Marks are compared with the old object, so that those in an old manifest do no harm. The rules:
docs/concepts/admission.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from engine.api import names
from engine.api.field import FieldError
from engine.api.field import path_of as path_of_steps
from engine.api.placement import Placement, PodSetRequest, Separation
from engine.api.reasons import asks_nothing
from engine.api.workload import PodSet, Workload
from engine.gang.gang import held_by_us, suspended_by_user
from engine.gang.request import LEVELS, PlacementRequest, request_annotations, request_path
from engine.policy.model import Policy
from webhook.rules.defaults import by_default
from webhook.rules.gating import template_labels, templates

_NOTHING_ASKED = f'{names.UNCONSTRAINED}: "false"'
_COPIED = frozenset({names.PLACEMENT, names.REVISION})  # by controllers, from the template of the parent


def mark_errors(old: Workload, new: Workload, *, asks: bool, child: bool = False) -> Iterator[FieldError]:
    """Yield errors for changes of marks that only we may write; `/mutate` ran before, so its own changes pass.

    `child`: made by the controller of another workload, which copies our marks from its templates.
    """
    own = _messages(new)
    changes = _held_by_may_change(old, new, asks)
    yield from _annotations(old.annotations, new.annotations, "metadata", own, free={names.HELD_BY} if changes else ())
    yield from _labels(old.labels, new.labels, "metadata", ours={}, may_go=False, free=(names.REQUESTS_PLACEMENT,))
    was = {pod_set.name: pod_set for pod_set in old.pod_sets}
    for pod_set in templates(new).values():
        yield from _template(was.get(pod_set.name), pod_set, own, asks=asks, child=child)


def _template(
    old: PodSet | None, new: PodSet, own: Mapping[str, str], *, asks: bool, child: bool
) -> Iterator[FieldError]:
    where = path_of_steps((*new.path, "metadata"))
    annotations = old.template.annotations if old is not None else {}
    labels = old.template.labels if old is not None else {}
    yield from _annotations(
        annotations, new.template.annotations, where, own, free=_COPIED if child else (), may_go=not asks
    )
    yield from _labels(labels, new.template.labels, where, ours=_our_labels(new, asks, child), may_go=not asks)
    had, has = old is not None and names.GATE in old.template.gates, names.GATE in new.template.gates
    if has not in (had, asks):
        gates = path_of_steps((*new.path, "spec", "schedulingGates"))
        yield _forbidden(gates, f"{names.GATE} is set and removed only by topogate")


def _our_labels(pod_set: PodSet, asks: bool, child: bool) -> Mapping[str, str]:
    """Return the labels that we may have added to the template; a child keeps the pod set name of its parent."""
    if not asks:
        return {}
    name = pod_set.template.labels.get(names.POD_SET, pod_set.name) if child else pod_set.name
    return template_labels(name)


def _held_by_may_change(old: Workload, new: Workload, asks: bool) -> bool:
    if held_by_us(old):
        # resumed, or suspended by its user now: without the mark the suspension is not ours
        return names.HELD_BY not in new.annotations
    # A gang that its user resumes before it has slots is suspended again, by `/mutate`, and marked.
    return asks and old.suspended and held_by_us(new)


def _annotations(
    old: Mapping[str, str],
    new: Mapping[str, str],
    path: str,
    own: Mapping[str, str],
    *,
    free: Iterable[str] = (),
    may_go: bool = False,
) -> Iterator[FieldError]:
    for key in names.MARK_ANNOTATIONS:
        if old.get(key) == new.get(key) or key in free or (may_go and key not in new):
            continue
        yield _forbidden(f"{path}.annotations[{key}]", own[key])


def _labels(
    old: Mapping[str, str],
    new: Mapping[str, str],
    path: str,
    *,
    ours: Mapping[str, str],
    may_go: bool,
    free: Iterable[str] = (),
) -> Iterator[FieldError]:
    for key in names.MARK_LABELS:
        if old.get(key) == new.get(key) or key in free or (may_go and key not in new):
            continue
        if key in ours and new.get(key) == ours[key]:
            continue
        yield _forbidden(f"{path}.labels[{key}]", _WRITTEN)


def request_errors(
    old: Workload,
    new: Workload,
    *,
    before: PlacementRequest,
    after: PlacementRequest,
    placements: Iterable[Placement],
    policy: Policy,
) -> Iterator[FieldError]:
    """Yield errors for changes to a running, placed gang that would need another placement, or none.

    Only for requests that the user wrote.
    """
    if before.asked is None or not _runs(old, new, placements):
        return
    if after.asked is not None:
        for field in dict.fromkeys(_changed(old, new, before, after, policy)):
            yield _forbidden(field, f"the gang is placed and running; {_remedy(new)}")
    elif asks_nothing(after.ignored) and _removal_is_mistake(old, new, policy):
        message = f"the gang is placed and running, and would lose its slots; {_remedy(new)}, or set {_NOTHING_ASKED}"
        for one in request_annotations(old, policy=policy):
            if one.about in LEVELS:
                yield _forbidden(one.field, message)


def unheld_errors(
    old: Workload, new: Workload, *, before: PlacementRequest, after: PlacementRequest, policy: Policy
) -> Iterator[FieldError]:
    """Yield errors for a start of pods that nothing holds: our gate is not in templates that `/mutate` leaves alone.

    These are templates that never change, and those of a suspended workload that has started before. The request is
    new, or it was not in force when the workload was created, and its user resumes the workload now.
    """
    gated = all(names.GATE in one.template.gates for one in new.pod_sets)
    again = old.suspended and old.started
    if not after.asking or gated or not (new.templates_fixed or again):
        return
    cannot = "cannot change" if new.templates_fixed else "do not change after a start"
    fixed = f"the templates of this {new.kind} {cannot}, so its pods could not be held; delete it and create it again"
    if before.ignored is not None:
        message = f"comes too late: {fixed}"
    elif suspended_by_user(old) and not suspended_by_user(new):
        message = f"was not in force at its creation: {fixed}, or remove the request"
    else:
        return
    for one in request_annotations(new, policy=policy):
        if one.about in LEVELS:
            yield _forbidden(one.field, message)


def lost_request(
    old: Workload, new: Workload, *, before: PlacementRequest, after: PlacementRequest, placements: Iterable[Placement]
) -> Iterator[str]:
    """Yield the warning that a running, placed gang no longer has a request, if that is allowed."""
    if before.asked is not None and after.ignored is not None and _runs(old, new, placements):
        yield "the request was removed: the gang's slots are released, and new pods may run anywhere"


def _runs(old: Workload, new: Workload, placements: Iterable[Placement]) -> bool:
    assigned = any(placement.assignment is not None for placement in placements)
    return assigned and not (old.suspended or new.suspended or old.finished)


def _removal_is_mistake(old: Workload, new: Workload, policy: Policy) -> bool:
    """Return True if removing the request is taken for a mistake, mostly a manifest rendered without it.

    There must be another way to remove it: a kind that is never suspended has none, and a default of the policy is not
    in the user's manifest.
    """
    explicit = any(
        one.about == names.UNCONSTRAINED and one.value == "false" for one in request_annotations(new, policy=policy)
    )
    return new.suspend_path is not None and new.suspendable and not explicit and not by_default(old, policy)


def _changed(
    old: Workload, new: Workload, before: PlacementRequest, after: PlacementRequest, policy: Policy
) -> Iterator[str]:
    """Yield the path of each part of the request that has changed."""
    if before.topology != after.topology:
        yield _path(old, new, names.TOPOLOGY, policy)
    if before.profile != after.profile:
        yield _path(old, new, names.PROFILE, policy)
    for key in _separation_changed(before.separation or Separation(None), after.separation or Separation(None)):
        yield _path(old, new, key, policy)
    if before.gang is not None or after.gang is not None:
        gang = [(one.require, one.prefer) if one is not None else (None, None) for one in (before.gang, after.gang)]
        for key, was, now in zip((names.REQUIRE, names.PREFER), *gang, strict=True):
            if was != now:
                yield _own_path(old, new, key, policy)
    asked = {ask.name: ask for ask in before.pod_sets}
    written = (*request_annotations(old, policy=policy), *request_annotations(new, policy=policy))
    layered = any(one.about == names.SLICES for one in written)
    for pod_set, ask in zip(new.pod_sets, after.pod_sets, strict=True):
        earlier = asked.get(ask.name)
        for key in _differing(earlier, ask, layered=layered) if earlier is not None else ():
            yield _path(old, new, key, policy, pod_set)


def _path(old: Workload, new: Workload, key: str, policy: Policy, pod_set: PodSet | None = None) -> str:
    """Return the path of a key in the new object, or, if it was removed, in the old one: it may be an alias."""
    path = request_path(new, key, policy=policy, pod_set=pod_set)
    earlier = next((one for one in old.pod_sets if pod_set is not None and one.name == pod_set.name), None)
    before = request_path(old, key, policy=policy, pod_set=earlier)
    there, stood = ({one.field for one in request_annotations(workload, policy=policy)} for workload in (new, old))
    return before if path not in there and before in stood else path


def _own_path(old: Workload, new: Workload, key: str, policy: Policy) -> str:
    """Return the path of a key of the whole gang, as its user wrote it on the new object or on the old one."""
    written = (*request_annotations(new, policy=policy), *request_annotations(old, policy=policy))
    said = (one.field for one in written if one.about == key and one.field.startswith("metadata."))
    return next(said, f"metadata.annotations[{key}]")


def _separation_changed(was: Separation, now: Separation) -> Iterator[str]:
    """Yield the keys that differ."""
    parts = (
        (names.EXCLUSIVE, was.exclusive, now.exclusive),
        (names.SPREAD, was.spread, now.spread),
        (names.SPREAD_GROUP, was.group, now.group),
    )
    yield from (key for key, one, other in parts if one != other)


def _differing(was: PodSetRequest, now: PodSetRequest, *, layered: bool) -> Iterator[str]:
    """Yield the keys that differ; `layered`: slices are written as layers."""
    slices: tuple[tuple[str, object, object], ...] = (
        (names.SLICE_TOPOLOGY, [level for level, _ in was.slices], [level for level, _ in now.slices]),
        (names.SLICE_SIZE, [size for _, size in was.slices], [size for _, size in now.slices]),
    )
    parts = (
        (names.REQUIRE, was.require, now.require),
        (names.PREFER, was.prefer, now.prefer),
        *(((names.SLICES, was.slices, now.slices),) if layered else slices),
        (names.COLOCATE, was.colocate, now.colocate),
        (names.DEVICE_SCOPE, was.device_scope, now.device_scope),
        (names.GPU_STRATEGY, was.gpu_strategy, now.gpu_strategy),
        (names.DEVICE_SELECTOR, was.device_selector, now.device_selector),
        (names.RDMA_SELECTOR, was.rdma_selector, now.rdma_selector),
        (names.VF_SELECTOR, was.vf_selector, now.vf_selector),
        (names.RDMA_SCOPE, was.rdma_scope, now.rdma_scope),
    )
    yield from (key for key, one, other in parts if one != other)


def _remedy(workload: Workload) -> str:
    """Return how a user gets another placement."""
    if workload.suspend_path is not None and workload.suspendable:
        return f"suspend the {workload.kind}, change it and resume it"
    return f"delete the {workload.kind} and create it again"


def _forbidden(field: str, message: str) -> FieldError:
    return FieldError(field=field, kind="Forbidden", value=None, reason="ImmutableField", message=message)


def _messages(workload: Workload) -> Mapping[str, str]:
    """Return the message for each of our annotations when others write it."""
    start = f"to start the {workload.kind} without a placement remove its request"
    held = f"written only by topogate; {start}, to cancel it delete it"
    return {key: _WRITTEN for key in names.MARK_ANNOTATIONS} | {names.HELD_BY: held}


_WRITTEN = "written only by topogate; do not change it"
