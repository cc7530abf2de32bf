"""What `/mutate` does to workloads: held by suspension, their templates marked; whatever of ours a user sent taken off.

The rules: docs/concepts/admission.md.
"""

from __future__ import annotations

from engine import names
from engine.aside import standing_aside
from engine.gangs import can_suspend
from engine.members import held_by_us
from engine.policy import Policy
from engine.records import Workload
from engine.requests import Understanding, understand
from webhook.devices import translate_again, translate_in
from webhook.marks import (
    ANNOTATIONS,
    TEMPLATE,
    drop_all,
    drop_annotations,
    drop_labels,
    mark,
    marked,
)
from webhook.objects import decoded, workload_of
from webhook.patch import Edits, Path
from webhook.review import Response, Review, allowed, patched
from webhook.view import View

SUSPEND: Path = ("spec", "suspend")
HELD_BY: Path = ("metadata", "annotations", names.HELD_BY)
HELD_AGAIN = "topogate: the gang has no slots yet: it is held, and resumed by itself when it is placed"


def mutate_workload(review: Review, view: View, policy: Policy) -> Response:
    """Answer a CREATE or UPDATE of a workload; an invalid request is left as it is (`/validate` refuses it)."""
    workload = workload_of(review, review.object)
    understanding = understand(workload, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)
    if workload.deleting:
        return allowed()
    edits = Edits(decoded(review.object))
    translates = standing_aside(workload, policy=policy, own_namespace=view.own_namespace) is None
    managed = understanding.ignored is None
    if review.operation == "CREATE":
        if not understanding.errors:
            _create(edits, workload, understanding)
        if translates:
            translate_in(edits, TEMPLATE, managed=managed, view=view, policy=policy)
        return patched(edits.operations)
    old = workload_of(review, review.old_object)
    _pass_on(edits, old, workload)
    warnings = () if understanding.errors else _update(edits, old, workload, understanding, view)
    if translates:
        translate_again(
            edits,
            decoded(review.old_object),
            TEMPLATE,
            may_change=_template_open(old),
            managed=managed,
            view=view,
            policy=policy,
        )
    return patched(edits.operations, warnings)


def _create(edits: Edits, workload: Workload, understanding: Understanding) -> None:
    drop_labels(edits)
    if understanding.ask is None:
        drop_annotations(edits)
        drop_all(edits, TEMPLATE)
        return
    # Called a second time for one CREATE we see our own suspension; a user's own comes without our marks.
    held = held_by_us(workload) and marked(workload.template)
    if not workload.suspended and can_suspend(workload):
        edits.put(SUSPEND, True)
        held = True
    drop_annotations(edits, keep=(names.HELD_BY,) if held else ())
    if held:
        edits.put(HELD_BY, names.HELD_BY_SUSPEND)
    drop_annotations(edits, TEMPLATE)
    drop_labels(edits, TEMPLATE, keep=(names.MANAGED, names.POD_SET))
    mark(edits, TEMPLATE)


def _pass_on(edits: Edits, old: Workload, new: Workload) -> None:
    """Whoever else starts or ends a suspension takes it over from us."""
    if old.suspended != new.suspended and (held_by_us(old) or new.suspended):
        edits.drop(HELD_BY)


def _update(edits: Edits, old: Workload, new: Workload, understanding: Understanding, view: View) -> tuple[str, ...]:
    """Edit an UPDATE; the answer is warnings."""
    template_open = _template_open(old)
    if understanding.ask is None:
        if template_open:
            drop_all(edits, TEMPLATE)
        if held_by_us(old) and held_by_us(new):
            edits.put(SUSPEND, False)
            edits.drop(HELD_BY)
        return ()
    if template_open:
        _keep_marks(edits, old)
    resumed_his_own = old.suspended and not new.suspended and not held_by_us(old)
    if resumed_his_own and can_suspend(new) and not _assigned(new, view):
        edits.put(SUSPEND, True)
        edits.put(HELD_BY, names.HELD_BY_SUSPEND)
        return (HELD_AGAIN,)
    return ()


def _template_open(old: Workload) -> bool:
    """The API server refuses a changed template of a live Job, also from a webhook: not even a finalizer could go."""
    return old.suspended and not old.started


def _keep_marks(edits: Edits, old: Workload) -> None:
    """Mark a template that may still change, and put back what a replaced manifest has lost of our annotations."""
    mark(edits, TEMPLATE)
    for key in ANNOTATIONS:
        value = old.template.annotations.get(key)
        if value is not None and edits.get(*TEMPLATE, "metadata", "annotations", key) is None:
            edits.put((*TEMPLATE, "metadata", "annotations", key), value)


def _assigned(workload: Workload, view: View) -> bool:
    placement = view.placement_of(workload.uid)
    return placement is not None and placement.assignment is not None
