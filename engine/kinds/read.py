"""Reads a raw object by the entry of its kind.

Custom resources may hold anything: the reader returns a `ParsedWorkload` or raises `UnreadableWorkload` with every
fault by its JSON path, and its work is bounded for any content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from engine.api.field import FieldError
from engine.api.rank import MAX_NUMBER, Missing
from engine.api.text import shown
from engine.kinds.components import contained_pod_sets
from engine.kinds.conditions import holds
from engine.kinds.expressions import IntExpression, number
from engine.kinds.paths import NodeError, PathNode, PathScope, each, find, mapping_at, parse_path, text_at
from engine.kinds.pod_sets import pod_sets_of
from engine.kinds.registry import Registry
from engine.kinds.schema import AsideReason, Finished, GangSpec, KindEntry
from engine.kinds.structure import ParsedGang, ParsedPodSet, ParsedSuspension, ParsedWorkload

T = TypeVar("T")
_CONDITIONS: Final = parse_path("$.status.conditions[*]")
_SUSPENDED: Final = "Suspended"  # the condition of Kubeflow's controllers and of JobSet's, no reason of ours


class UnreadableWorkload(ValueError):
    """The object cannot be read; `errors` holds every fault, in the order of reading."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = tuple(errors)


def read(entry: KindEntry, raw: object, *, registry: Registry) -> ParsedWorkload:
    """Parse an object of the entry's kind; objects inside it are read by their entries in the registry.

    Raises UnreadableWorkload, and nothing else, for any content.
    """
    if not isinstance(raw, Mapping):
        fault = NodeError(("metadata",), f"the object must be a mapping; got {shown(raw)}")
        raise UnreadableWorkload((fault.field_error(),))
    root = PathNode(raw)
    scope = PathScope(root, root)
    faults: list[NodeError] = []

    def attempt(part: Callable[[], T], *, otherwise: T) -> T:
        try:
            return part()
        except NodeError as fault:
            faults.append(fault)
            return otherwise

    gang = attempt(lambda: _gang(entry.gang, scope), otherwise=None)
    pod_sets, found = pod_sets_of(entry, scope, creation=gang.creation if gang is not None else "all-at-once")
    faults += found
    if entry.contains is not None:
        contained, found = contained_pod_sets(entry, scope, registry=registry)
        pod_sets, faults = (*pod_sets, *contained), [*faults, *found]
    faults += _duplicate_names(pod_sets)
    if entry.handling in ("placed", "pods") and not pod_sets and not faults:
        faults.append(_no_pod_sets(entry))
    none: tuple[str, ...] = ()
    ends = attempt(lambda: _ends(entry.finished, scope), otherwise=none)
    suspension = attempt(lambda: _suspension(entry, scope), otherwise=None)
    started = attempt(lambda: entry.started is not None and find(entry.started, scope) is not None, otherwise=False)
    rests = (suspension is not None and suspension.suspended) or (entry.started is not None and not started)
    if any(one.succeeded for one in pod_sets) and (rests or _suspended_by_status(scope)):
        # What had succeeded before a suspension may run again, and its status stays as it was until it starts.
        pod_sets = tuple(replace(one, succeeded=0) for one in pod_sets)
    structure = ParsedWorkload(
        version=attempt(lambda: _text(scope, "apiVersion"), otherwise="").rpartition("/")[2],
        name=attempt(lambda: _text(scope, "metadata", "name"), otherwise=""),
        pod_sets=pod_sets,
        gang=gang,
        suspension=suspension,
        started=started,
        finished=bool(ends),
        failed=any(map(_failed, ends)),
        stand_aside=attempt(lambda: _exemption(entry, scope), otherwise=None),
        scheduler=attempt(lambda: _scheduler(entry, scope), otherwise=None),
    )
    if faults:
        added = registry.added(entry)
        raise UnreadableWorkload(tuple(dict.fromkeys(fault.field_error(entry=added) for fault in faults)))
    return structure


def _gang(spec: GangSpec | None, scope: PathScope) -> ParsedGang | None:
    if spec is None:
        return None
    override = next((one.creation for one in spec.overrides if holds(one.when, scope)), None)
    replicas = _number(spec.replicas, scope)
    return ParsedGang(
        unit=spec.unit,
        creation=override or spec.creation,
        replicas=1 if replicas is None else replicas,
        replica_label=spec.replica_label,
        minimum=_number(spec.minimum, scope),
    )


def _number(expression: IntExpression | None, scope: PathScope) -> int | None:
    if expression is None:
        return None
    found = number(expression, scope, {})
    return None if isinstance(found, Missing) else max(0, min(found, MAX_NUMBER))


def _duplicate_names(pod_sets: Iterable[ParsedPodSet]) -> Iterable[NodeError]:
    first: dict[str, ParsedPodSet] = {}
    for pod_set in pod_sets:
        if pod_set.beside:
            continue  # nothing is kept by its name, and users choose theirs
        other = first.setdefault(pod_set.name, pod_set)
        if other is not pod_set:
            message = f"two pod sets have the name {shown(pod_set.name)} (the first is at {other.field})"
            yield NodeError(pod_set.steps, message, kind="Duplicate value")


def _no_pod_sets(entry: KindEntry) -> NodeError:
    paths = [spec.for_each or spec.template for spec in entry.pod_sets]
    if entry.contains is not None:
        paths.append(entry.contains.for_each)
    message = f"no pod template of this {entry.match.kind} was found"
    return NodeError(paths[0].start, message, kind="Required value", absent=True)


def _text(scope: PathScope, *steps: str) -> str:
    node: PathNode | None = scope.root
    for step in steps:
        node = None if node is None else PathNode(mapping_at(node).get(step), (*node.steps, step))
        if node is not None and node.value is None:
            return ""
    return "" if node is None else text_at(node)


def _suspension(entry: KindEntry, scope: PathScope) -> ParsedSuspension | None:
    if entry.suspend is None:
        return None
    node = find(entry.suspend.path, scope)
    if node is not None and not isinstance(node.value, bool):
        raise NodeError(node.steps, f"must be true or false; got {shown(node.value)}")
    return ParsedSuspension(
        steps=entry.suspend.path.steps,
        suspended=node is not None and node.value is True,
        allowed=entry.suspend.when is None or holds(entry.suspend.when, scope),
        fixed=entry.suspend.templates == "fixed",
    )


def _ends(spec: Finished, scope: PathScope) -> tuple[str, ...]:
    """Return the conditions that end the workload, or the value of the field that does."""
    ends: list[str] = []
    if spec.conditions:
        ends += [str(one) for one in _true_conditions(scope) if one in spec.conditions]
    node_of_path = find(spec.path, scope) if spec.path is not None else None
    if node_of_path is not None and node_of_path.value in spec.values:
        ends.append(str(node_of_path.value))
    return tuple(ends)


def _suspended_by_status(scope: PathScope) -> bool:
    """Return whether the controller has not seen yet that the workload was resumed; False where nobody can tell."""
    try:
        return _SUSPENDED in list(_true_conditions(scope))
    except NodeError:
        return False


def _true_conditions(scope: PathScope) -> Iterator[object]:
    """Yield the types of the status' conditions that hold."""
    for node in each(_CONDITIONS, scope):
        condition = mapping_at(node)
        if condition.get("status") == "True":
            yield condition.get("type")


def _failed(end: str) -> bool:
    """Return whether the end is a failure: `Failed`, `FAILED`, `FailureTarget`; no kind has another word for it."""
    return end.lower().startswith("fail")


def _exemption(entry: KindEntry, scope: PathScope) -> AsideReason | None:
    return next((rule.reason for rule in entry.stand_aside if holds(rule.when, scope)), None)


def _scheduler(entry: KindEntry, scope: PathScope) -> str | None:
    if entry.scheduler is None:
        return None
    node = find(entry.scheduler.path, scope)
    return text_at(node) or entry.scheduler.default if node is not None else entry.scheduler.default
