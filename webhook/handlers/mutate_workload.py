"""What `/mutate` does to workloads: held by suspension, their templates marked; whatever of ours a user sent taken off.

The rules: docs/concepts/admission.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.api import names
from engine.api.workload import PodSet, Workload
from engine.gang.exemption import exemption_reason
from engine.gang.gang import can_suspend, held_by_us
from engine.gang.request import PlacementRequest, parse_request
from engine.policy.model import Policy
from webhook.admission.budget import Budget
from webhook.admission.objects import workload_of
from webhook.admission.patch import Edits, Path
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review, allowed, patched
from webhook.handlers.defaults import added_requests
from webhook.handlers.devices import translate_again, translate_in
from webhook.handlers.gating import (
    ANNOTATIONS,
    drop_all,
    drop_annotations,
    drop_copied_group,
    drop_labels,
    forged,
    mark,
    marked,
    restore,
    templates,
    without_marks,
)
from webhook.handlers.membership import Standing, parent_relation

HELD_BY: Path = ("metadata", "annotations", names.HELD_BY)
HELD_AGAIN = "topogate: the gang has no slots yet: it is held, and resumed automatically when placed"
LET_GO = "topogate: the gang has no slots yet: its pods are created and stay gated until it is placed"
# The controller of a child copies these out of the template of its parent, where the leader writes them.
_COPIED = (names.PLACEMENT, names.REVISION)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a workload asks for and what it is to others; `managed`: its pods are held and placed by us."""

    understanding: PlacementRequest
    standing: Standing

    @property
    def managed(self) -> bool:
        """True when its pods, or those of its gang, are placed by us; a request that is wrong counts."""
        return self.standing == "child" or (self.standing != "aside" and self.understanding.ignored is None)

    @property
    def marks(self) -> bool:
        """True when its templates are to carry our marks."""
        return self.managed and (self.standing == "child" or not self.understanding.errors)

    @property
    def wrong(self) -> bool:
        """True when it asks for what nobody can read: that is left to `/validate`."""
        return self.standing in ("alone", "unsure") and bool(self.understanding.errors)


@dataclass(frozen=True, slots=True)
class _Before:
    """A workload as it was before an UPDATE: read, and as it was sent."""

    workload: Workload
    document: Mapping[str, Any]

    def pod_set(self, name: str) -> PodSet | None:
        """The pod set of that name; None when it is new."""
        return next((one for one in self.workload.pod_sets if one.name == name), None)


def mutate_workload(review: Review, view: Reader, policy: Policy) -> Response:
    """Answer a CREATE or UPDATE of a workload; an invalid request is left as it is (`/validate` refuses it)."""
    workload, document = workload_of(review, review.object, view)
    if workload.deleting or workload.handling == "hint":
        return allowed()
    edits = Edits(document)
    added = added_requests(review, workload, view, policy)
    if added.annotations:
        workload = replace(workload, annotations={**workload.annotations, **added.annotations})
        for key, value in added.annotations.items():
            edits.put(("metadata", "annotations", key), value)
    understanding = parse_request(workload, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
    asked = _Asked(understanding, parent_relation(workload, view, policy))
    translates = exemption_reason(workload, policy=policy, own_namespace=view.own_namespace) is None
    if review.operation == "CREATE":
        warnings = () if asked.wrong else _create(edits, workload, asked)
        for root in templates(workload) if translates else ():
            review.budget.check()
            translate_in(edits, root, managed=asked.managed, view=view, policy=policy)
        return patched(edits.operations, (*added.warnings, *warnings), document=edits.document)
    before = _Before(*workload_of(review, review.old_object, view))
    if translates:
        _translate_again(edits, before, workload, managed=asked.managed, view=view, policy=policy, budget=review.budget)
    _pass_on(edits, before.workload, workload)
    warnings = () if asked.wrong else _update(edits, before, workload, asked, view, budget=review.budget)
    return patched(edits.operations, warnings, document=edits.document)


def _create(edits: Edits, workload: Workload, asked: _Asked) -> tuple[str, ...]:
    """Edit a new workload; the answer is warnings."""
    if asked.standing in ("child", "unsure"):
        drop_labels(edits)
        _create_child(edits, workload, asked)
        return ()
    # Called a second time for one CREATE we see our own suspension; a user's own comes without our marks.
    held = held_by_us(workload) and all(marked(one.template, one.name) for one in templates(workload).values())
    warnings = _taken_off(workload, asked, held=held)
    if not asked.marks:
        for root in ((), *templates(workload)):
            drop_copied_group(edits, root)
        drop_labels(edits)
        drop_annotations(edits)
        for root in templates(workload):
            drop_all(edits, root)
        return warnings
    drop_labels(edits)
    if not workload.suspended and can_suspend(workload) and workload.suspend_path is not None:
        edits.put(workload.suspend_path, True)
        held = True
    drop_annotations(edits, keep=(names.HELD_BY,) if held else ())
    if held:
        edits.put(HELD_BY, names.HELD_BY_SUSPEND)
    for root, pod_set in templates(workload).items():
        _mark_new(edits, root, pod_set)
    return warnings


def _taken_off(workload: Workload, asked: _Asked, *, held: bool) -> tuple[str, ...]:
    """The warning about marks of ours that somebody else wrote; what somebody else places is none of our business."""
    found = forged(workload, held=held, managed=asked.marks) if asked.standing == "alone" else ()
    return (f"topogate: removed, as only topogate sets them: {', '.join(found)}",) if found else ()


def _mark_new(edits: Edits, root: Path, pod_set: PodSet) -> None:
    drop_annotations(edits, root)
    drop_labels(edits, root, keep=(names.MANAGED, names.POD_SET))
    mark(edits, root, pod_set=pod_set.name)


def _create_child(edits: Edits, workload: Workload, asked: _Asked) -> None:
    """What a controller makes out of the templates of its own workload, whose marks it copies with them.

    While its parent is not known, what carries marks keeps them: the answer is "hold".
    """
    drop_annotations(edits)
    for root, pod_set in templates(workload).items():
        if asked.marks or names.GATE in pod_set.template.gates:
            drop_annotations(edits, root, keep=_COPIED)
            drop_labels(edits, root, keep=(names.MANAGED, names.POD_SET))
            mark(edits, root, pod_set=pod_set.name, keep=True)
        else:
            drop_all(edits, root)


def _pass_on(edits: Edits, old: Workload, new: Workload) -> None:
    """Whoever else starts or ends a suspension takes it over from us."""
    if old.suspended != new.suspended and (held_by_us(old) or new.suspended):
        edits.drop(HELD_BY)


def _update(
    edits: Edits, before: _Before, new: Workload, asked: _Asked, view: Reader, *, budget: Budget
) -> tuple[str, ...]:
    """Edit an UPDATE; the answer is warnings."""
    old = before.workload
    for root, pod_set in templates(new).items():
        budget.check()
        _settle(edits, root, pod_set, before, asked)
    if not asked.marks:
        if held_by_us(old) and held_by_us(new) and new.suspend_path is not None:
            edits.put(new.suspend_path, False)
            edits.drop(HELD_BY)
        return ()
    if not (old.suspended and not new.suspended) or _assigned(new, view):
        return ()
    if held_by_us(old):
        return (LET_GO,)
    if can_suspend(new) and new.suspend_path is not None:
        edits.put(new.suspend_path, True)
        edits.put(HELD_BY, names.HELD_BY_SUSPEND)
        return (HELD_AGAIN,)
    return ()


def _settle(edits: Edits, root: Path, pod_set: PodSet, before: _Before, asked: _Asked) -> None:
    """Mark a template that is updated, or take our marks off, where that rolls nothing out and ends no Job.

    A template that differs from the one before by our marks alone is put back as it was: the pods of a live workload
    are made of it already. One that its user changes besides is made anew anyway.
    """
    old = before.pod_set(pod_set.name)
    if old is None:
        if asked.marks:
            _mark_new(edits, root, pod_set)
        else:
            drop_all(edits, root)
        return
    stood = Edits(before.document).get(*old.path)
    if not template_open(before.workload) and without_marks(edits.get(*root)) == without_marks(stood):
        restore(edits, root, stood)
    elif not template_open(before.workload) and before.workload.api_version.startswith("batch/"):
        return  # a live Job's template is fixed: its change is refused, whatever we do
    elif asked.marks:
        _keep_marks(edits, root, pod_set, old, keep=asked.standing != "alone")
    elif asked.standing != "unsure":
        drop_all(edits, root)


def template_open(old: Workload) -> bool:
    """The API server refuses a changed template of a live Job, also from a webhook: not even a finalizer could go."""
    return old.suspended and not old.started


def _keep_marks(edits: Edits, root: Path, pod_set: PodSet, old: PodSet, *, keep: bool) -> None:
    """Mark a template that may still change, and put back what a replaced manifest has lost of our annotations."""
    mark(edits, root, pod_set=pod_set.name, keep=keep)
    for key in ANNOTATIONS:
        value = old.template.annotations.get(key)
        if value is not None and edits.get(*root, "metadata", "annotations", key) is None:
            edits.put((*root, "metadata", "annotations", key), value)


def _translate_again(
    edits: Edits, before: _Before, new: Workload, *, managed: bool, view: Reader, policy: Policy, budget: Budget
) -> None:
    may_change = template_open(before.workload) or before.workload.suspend_path is None
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
                managed=managed,
                view=view,
                policy=policy,
            )


def _assigned(workload: Workload, view: Reader) -> bool:
    placement = view.placement_of(workload.uid)
    return placement is not None and placement.assignment is not None
