"""What may not change in an UPDATE of a workload: our own marks, and the request of a gang that runs.

Marks are judged against the old object, so that whatever an old manifest carries does no harm. The rules:
docs/concepts/admission.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine import names
from engine.members import held_by_us
from engine.outcomes import FieldError
from engine.policy import Policy
from engine.records import Placement, Workload
from engine.requests import Understanding, path_of
from engine.seats import slots_of
from webhook.marks import ANNOTATIONS, LABELS, TEMPLATE_LABELS

RESTART = "suspend the Job, change it and resume it"


def mark_errors(old: Workload, new: Workload, *, asks: bool) -> Iterator[FieldError]:
    """Changes of what only we may write; `/mutate` has been there already, so its own changes are let through."""
    yield from _annotations(old.annotations, new.annotations, "metadata", held_by=_held_by_may_change(old, new, asks))
    yield from _labels(old.labels, new.labels, "metadata", ours={}, may_go=False)
    where = "spec.template.metadata"
    yield from _annotations(old.template.annotations, new.template.annotations, where, may_go=not asks)
    ours = TEMPLATE_LABELS if asks else {}
    yield from _labels(old.template.labels, new.template.labels, where, ours=ours, may_go=not asks)
    had, has = names.GATE in old.template.gates, names.GATE in new.template.gates
    if has not in (had, asks):
        yield _forbidden("spec.template.spec.schedulingGates", f"{names.GATE} is set and removed by topogate alone")


def _held_by_may_change(old: Workload, new: Workload, asks: bool) -> bool:
    if held_by_us(old):
        return not new.suspended and names.HELD_BY not in new.annotations  # resumed: the mark goes with the suspension
    # A gang that its user resumes before it has slots is suspended again, by `/mutate`, and marked.
    return asks and old.suspended and held_by_us(new)


def _annotations(
    old: Mapping[str, str], new: Mapping[str, str], path: str, *, held_by: bool = False, may_go: bool = False
) -> Iterator[FieldError]:
    for key in ANNOTATIONS:
        if old.get(key) == new.get(key) or (key == names.HELD_BY and held_by) or (may_go and key not in new):
            continue
        yield _forbidden(f"{path}.annotations[{key}]", _ALONE[key])


def _labels(
    old: Mapping[str, str], new: Mapping[str, str], path: str, *, ours: Mapping[str, str], may_go: bool
) -> Iterator[FieldError]:
    for key in LABELS:
        if old.get(key) == new.get(key) or (may_go and key not in new):
            continue
        if key in ours and new.get(key) == ours[key]:
            continue
        yield _forbidden(f"{path}.labels[{key}]", _WRITTEN)


def request_errors(
    old: Workload,
    new: Workload,
    *,
    before: Understanding,
    after: Understanding,
    placement: Placement | None,
    policy: Policy,
) -> Iterator[FieldError]:
    """Changes of a running, placed gang that would need another placement."""
    if old.suspended or new.suspended or placement is None or placement.assignment is None or after.ask is None:
        return
    if before.ask is not None:
        for key, was, now in (
            (names.REQUIRE, before.ask.require, after.ask.require),
            (names.PREFER, before.ask.prefer, after.ask.prefer),
            (names.UNCONSTRAINED, before.ask.unconstrained, after.ask.unconstrained),
            (names.TOPOLOGY, before.topology, after.topology),
        ):
            if was != now:
                yield _forbidden(path_of(new, key, policy=policy), f"the gang is placed and runs; {RESTART}")
    have = sum(slot.count for slot in slots_of(placement.assignment))
    if new.slots > max(old.slots, have):
        yield FieldError(
            field="spec.parallelism",
            kind="Forbidden",
            value=None,
            reason="FeatureNotAvailable",
            message=f"a running gang cannot grow in this version (it has {have} slots); {RESTART}",
        )


def _forbidden(field: str, message: str) -> FieldError:
    return FieldError(field=field, kind="Forbidden", value=None, reason="ImmutableField", message=message)


_WRITTEN = "written by topogate alone; leave it as it is"
_ALONE: Mapping[str, str] = {key: _WRITTEN for key in ANNOTATIONS} | {
    names.HELD_BY: "written by topogate alone; to take the Job out of the queue set spec.suspend to false, or delete it"
}
