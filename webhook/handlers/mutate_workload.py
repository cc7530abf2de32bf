"""`/mutate` for workloads: held by suspension, templates marked, and forged marks of users removed.

The rules: docs/concepts/admission.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.api import names
from engine.api.workload import PodSet, Workload
from engine.gang.exemption import exemption_reason, kueue_queues
from engine.gang.gang import can_suspend, held_by_us, suspended_by_user
from engine.gang.key import key_of
from engine.gang.relaxation import effective_request
from engine.gang.request import PlacementRequest, parse_request, requires_others
from engine.policy.model import Policy
from webhook.admission.budget import Budget
from webhook.admission.objects import Unreadable, decoded, workload_of
from webhook.admission.patch import Edits, Path
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review, allowed, patched
from webhook.rules.defaults import added_requests
from webhook.rules.devices import translate_again, translate_in
from webhook.rules.gating import (
    drop_all,
    drop_annotations,
    drop_copied_group,
    drop_labels,
    drop_marks,
    forged,
    leave_variables,
    mark,
    marked,
    restore,
    restore_variables,
    show_devices,
    templates,
    without_marks,
)
from webhook.rules.membership import ParentRelation, parent_relation
from webhook.rules.warnings import fixed_fields

HELD_BY: Path = ("metadata", "annotations", names.HELD_BY)
HELD_AGAIN = "topogate: the gang is held until it has slots, and resumed automatically then"
TAKEN_OVER = "topogate: without held-by the suspension is its user's: the gang is not planned until it is resumed"
STAYS = "topogate: without held-by the suspension is its user's: it stays suspended until it is resumed"
TO_KUEUE = "topogate: Kueue manages it now: it stays suspended until Kueue admits it"
LET_GO = "topogate: the gang has no slots yet: its pods are created and stay gated until it is placed"
# The controller of a child copies these from the template of its parent, where the leader writes them.
_COPIED = (names.PLACEMENT, names.REVISION)
_OWN_LABELS = (names.REQUESTS_PLACEMENT,)  # of a workload itself
# Of the pods of a suspended object the API server, or the kind's own webhook, lets only scheduling fields change (of a
# Job its containers' resources too), and refuses other changes also if a webhook makes them.
_FIXED_CONTAINERS = frozenset({("batch", "Job"), ("jobset.x-k8s.io", "JobSet")})


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request of a workload and its relation to its parent."""

    request: PlacementRequest
    relation: ParentRelation

    @property
    def managed(self) -> bool:
        """Return True if its pods, or those of its gang, are placed by us; an invalid request counts."""
        return self.relation == "child" or (self.relation != "exempt" and self.request.ignored is None)

    @property
    def marks(self) -> bool:
        """Return True if its templates should carry our marks."""
        return self.managed and (self.relation == "child" or not self.request.errors)

    @property
    def wrong(self) -> bool:
        """Return True if its request is invalid: that is left to `/validate`."""
        return self.relation in ("root", "unknown") and bool(self.request.errors)


@dataclass(frozen=True, slots=True)
class _Before:
    """A workload before an UPDATE: decoded, and as it was sent."""

    workload: Workload
    document: Mapping[str, Any]

    def pod_set(self, name: str) -> PodSet | None:
        """Return the pod set of that name; None if it is new."""
        return next((one for one in self.workload.pod_sets if one.name == name), None)


def mutate_workload(review: Review, view: Reader, policy: Policy) -> Response:
    """Answer a CREATE or UPDATE of a workload; an invalid request stays unchanged (`/validate` refuses a new one)."""
    workload, document = workload_of(review, review.object, view)
    if workload.deleting or workload.handling == "hint":
        return allowed()
    edits = Edits(document)
    added = added_requests(review, workload, view, policy)
    if added.annotations:
        workload = replace(workload, annotations={**workload.annotations, **added.annotations})
        for key, value in added.annotations.items():
            edits.put(("metadata", "annotations", key), value)
    request = parse_request(workload, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
    asked = _Asked(request, parent_relation(workload, view, policy))
    translates = exemption_reason(workload, policy=policy, own_namespace=view.own_namespace) is None
    if review.operation == "CREATE":
        warnings = () if asked.wrong else _create(edits, workload, asked)
        _show_request(edits, asked)
        for root in templates(workload) if translates else ():
            review.budget.check()
            translate_in(edits, root, managed=asked.managed, view=view, policy=policy)
            if asked.marks:
                show_devices(edits, root, policy=policy)
        return patched(edits.operations, (*added.warnings, *warnings), document=edits.document)
    before = _before(review, workload, view)
    if translates:
        _translate_again(edits, before, workload, asked, view, policy=policy, budget=review.budget)
    # With resources as translated: of a file that is applied again the same as before.
    fixed = fixed_fields(before.document, edits.document, workload, resources=view.resources_fixed)
    _hand_over_suspension(edits, before.workload, workload)
    if asked.wrong:
        warnings = _kept_as_before(edits, before, workload)
    else:
        warnings = _update(edits, before, workload, asked, view, policy=policy, budget=review.budget)
    _show_request(edits, asked)
    return patched(edits.operations, (*fixed, *warnings), document=edits.document)


def _before(review: Review, new: Workload, view: Reader) -> _Before:
    """Return the workload before an UPDATE; a suspended one that cannot be read has no pod sets: all templates are new.

    Whoever corrects an object may ask for a placement and resume it at once. Raises Unreadable for one that runs: what
    its pods are made from is not touched.
    """
    try:
        return _Before(*workload_of(review, review.old_object, view))
    except Unreadable:
        old = Edits(document := decoded(review.old_object))
        if new.suspend_path is None or old.get(*new.suspend_path) is not True or new.started:
            raise
    held = {names.HELD_BY: names.HELD_BY_SUSPEND} if old.get(*HELD_BY) == names.HELD_BY_SUSPEND else {}
    return _Before(replace(new, suspended=True, annotations=held, pod_sets=()), document)


def _show_request(edits: Edits, asked: _Asked) -> None:
    """Label a workload with a request, or remove that label: by it the API server selects what `/validate` gets."""
    where = ("metadata", "labels", names.REQUESTS_PLACEMENT)
    if asked.managed:
        edits.put(where, "true")
    else:
        edits.drop(where)


def _create(edits: Edits, workload: Workload, asked: _Asked) -> tuple[str, ...]:
    """Edit a new workload; return warnings."""
    if asked.relation in ("child", "unknown"):
        drop_labels(edits, keep=_OWN_LABELS)
        _create_child(edits, workload, asked)
        return ()
    # In a second call for one CREATE the suspension is our own; a suspension by the user comes without our marks.
    held = held_by_us(workload) and all(marked(one.template, one.name) for one in templates(workload).values())
    warnings = _forged_warning(workload, asked, held=held)
    if not asked.marks:
        for root in ((), *templates(workload)):
            drop_copied_group(edits, root)
        drop_labels(edits, keep=_OWN_LABELS)
        drop_annotations(edits)
        for root in templates(workload):
            drop_all(edits, root)
        # Another webhook may have taken the request away, or given the workload to others, since we suspended it.
        return _let_go(edits, workload) if held else warnings
    drop_labels(edits, keep=_OWN_LABELS)
    if not workload.suspended and can_suspend(workload) and workload.suspend_path is not None:
        edits.put(workload.suspend_path, True)
        held = True
    drop_annotations(edits, keep=(names.HELD_BY,) if held else ())
    if held:
        edits.put(HELD_BY, names.HELD_BY_SUSPEND)
    for root, pod_set in templates(workload).items():
        _mark_new(edits, root, pod_set)
    return warnings


def _forged_warning(workload: Workload, asked: _Asked, *, held: bool) -> tuple[str, ...]:
    """Return the warning about forged marks; on a workload that another system places there is none."""
    found = forged(workload, held=held, managed=asked.marks) if asked.relation == "root" else ()
    return (f"topogate: removed, as only topogate sets them: {', '.join(found)}",) if found else ()


def _mark_new(edits: Edits, root: Path, pod_set: PodSet) -> None:
    drop_annotations(edits, root)
    drop_labels(edits, root, keep=(names.MANAGED, names.POD_SET))
    mark(edits, root, pod_set=pod_set.name)


def _create_child(edits: Edits, workload: Workload, asked: _Asked) -> None:
    """Edit a child, which its controller makes from the templates of its own workload, with the marks in them.

    While its parent is unknown, marked templates keep their marks, so that their pods are held.
    """
    drop_annotations(edits)
    for root, pod_set in templates(workload).items():
        if asked.marks or names.GATE in pod_set.template.gates:
            drop_annotations(edits, root, keep=_COPIED)
            drop_labels(edits, root, keep=(names.MANAGED, names.POD_SET))
            mark(edits, root, pod_set=pod_set.name, keep=True)
        else:
            drop_all(edits, root)


def _hand_over_suspension(edits: Edits, old: Workload, new: Workload) -> None:
    """Remove our mark from a suspension that another client has started or ended."""
    if old.suspended != new.suspended and (held_by_us(old) or new.suspended):
        edits.drop(HELD_BY)


def _update(
    edits: Edits, before: _Before, new: Workload, asked: _Asked, view: Reader, *, policy: Policy, budget: Budget
) -> tuple[str, ...]:
    """Edit an UPDATE; return warnings."""
    old = before.workload
    for root, pod_set in templates(new).items():
        budget.check()
        leave_variables(edits, root)
        if _mark_or_restore(edits, root, pod_set, before, asked):
            show_devices(edits, root, policy=policy)
    if held_by_us(old) and suspended_by_user(new):
        return (TAKEN_OVER if asked.marks else STAYS,)
    if not asked.marks:
        return _let_go(edits, new) if held_by_us(old) and held_by_us(new) else ()
    if not (old.suspended and not new.suspended):
        return ()
    if held_by_us(old):
        return () if _assigned(new, asked.request, view, policy) else (LET_GO,)
    # What its user has suspended loses its slots. They may be in the Placement still, and no pod must get one of them.
    if can_suspend(new) and new.suspend_path is not None:
        edits.put(new.suspend_path, True)
        edits.put(HELD_BY, names.HELD_BY_SUSPEND)
        return (HELD_AGAIN,)
    return ()


def _kept_as_before(edits: Edits, before: _Before, new: Workload) -> tuple[str, ...]:
    """Restore the gated templates of a workload with an invalid request; return warnings.

    `/validate` lets an UPDATE pass if the old object has the same errors, as under a later policy: a file that is
    applied or replaced again must not take the gate from pods that wait, or start a rollout.
    """
    old = before.workload
    for root, pod_set in templates(new).items():
        was = before.pod_set(pod_set.name)
        if was is not None and names.GATE in was.template.gates:
            restore(edits, root, Edits(before.document).get(*was.path))
    if not held_by_us(old):
        return ()
    if suspended_by_user(new):
        return (TAKEN_OVER,)
    return () if new.suspended else (LET_GO,)


def _let_go(edits: Edits, workload: Workload) -> tuple[str, ...]:
    """Resume a workload that we hold and no longer place; return warnings.

    One that Kueue queues stays suspended, whether its request goes or not: Kueue resumes what it admits, and refuses a
    queue to what runs.
    """
    edits.drop(HELD_BY)
    if kueue_queues(workload):
        return (TO_KUEUE,)
    if workload.suspend_path is not None:
        edits.put(workload.suspend_path, False)
    return ()


def _mark_or_restore(edits: Edits, root: Path, pod_set: PodSet, before: _Before, asked: _Asked) -> bool:
    """Mark an updated template, or remove our marks, if that causes no rollout and does not fail a Job.

    Returns True if it is marked and its containers may change. A template that differs from the old one by our marks
    alone is restored: the pods of a live workload are already made from it. A template that its user changes otherwise
    is rolled out anyway.
    """
    old = before.pod_set(pod_set.name)
    if old is None:
        if asked.marks:
            _mark_new(edits, root, pod_set)
        else:
            drop_all(edits, root)
        return asked.marks
    old_template = Edits(before.document).get(*old.path)
    if not template_open(before.workload) and without_marks(edits.get(*root)) == without_marks(old_template):
        restore(edits, root, old_template)
    elif not template_open(before.workload) and before.workload.api_version.startswith("batch/"):
        return False  # a live Job's template is immutable: its change is refused anyway
    else:
        fixed = before.workload.key[:2] in _FIXED_CONTAINERS
        if fixed:
            restore_variables(edits, root, old_template)  # pods get, or lose, theirs when they are created
        if asked.marks:
            _keep_marks(edits, root, pod_set, old, keep=asked.relation != "root")
            return not fixed
        if asked.relation != "unknown":
            (drop_marks if fixed else drop_all)(edits, root)
    return False


def template_open(old: Workload) -> bool:
    """Return True if a template may change; for a live Job the API server refuses a change by a webhook too.

    Such a refusal would also block removing a finalizer. The webhook of some kinds refuses every change.
    """
    return old.suspended and not old.started and not old.templates_fixed


def _keep_marks(edits: Edits, root: Path, pod_set: PodSet, old: PodSet, *, keep: bool) -> None:
    """Mark a template that may still change, and restore our annotations that a replaced manifest has lost."""
    mark(edits, root, pod_set=pod_set.name, keep=keep)
    for key in names.MARK_ANNOTATIONS:
        value = old.template.annotations.get(key)
        if value is not None and edits.get(*root, "metadata", "annotations", key) is None:
            edits.put((*root, "metadata", "annotations", key), value)


def _translate_again(
    edits: Edits, before: _Before, new: Workload, asked: _Asked, view: Reader, *, policy: Policy, budget: Budget
) -> None:
    managed, may_change = asked.managed, template_open(before.workload) or before.workload.suspend_path is None
    # The first request of a workload without pods; of an object whose resources are fixed it would be refused for it.
    joins = asked.marks and template_open(before.workload) and not _fixes_resources(before.workload, view)
    for root, pod_set in templates(new).items():
        budget.check()
        old = before.pod_set(pod_set.name)
        if old is None:
            translate_in(edits, root, managed=managed, view=view, policy=policy)
        else:
            translate_again(
                edits,
                before.document,
                root,
                old.path,
                may_change=may_change,
                joins=joins and names.MANAGED not in old.template.labels,
                marked=names.MANAGED in old.template.labels,
                managed=managed,
                view=view,
                policy=policy,
            )


def _fixes_resources(workload: Workload, view: Reader) -> bool:
    """Return True if the resources of containers are fixed, even while the workload is suspended."""
    fixed = workload.key[:2] in _FIXED_CONTAINERS
    return workload.templates_fixed or (fixed and (workload.kind != "Job" or view.resources_fixed))


def _assigned(workload: Workload, request: PlacementRequest, view: Reader, policy: Policy) -> bool:
    """Return True if a workload has slots that keep to its request: its user may edit that while it is suspended."""
    placement = view.placement_of(key_of(workload))
    if placement is None or placement.assignment is None:
        return False
    return not requires_others(placement, effective_request(request, placement, policy))
