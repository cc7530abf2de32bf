"""The rules across fields of a registry entry."""

from __future__ import annotations

from collections.abc import Iterator

from engine.api.text import quote
from engine.kinds.expressions import MAX_DEPTH, IntExpression
from engine.kinds.schema import KindEntry, PodSetSpec, Text

Steps = tuple[str | int, ...]
Problem = tuple[Steps, str]
# The kinds of the core group that have pods. With any other one a policy could make us hold all Secrets in memory.
_CORE = frozenset({"Pod", "ReplicationController"})


def problems(entry: KindEntry) -> Iterator[Problem]:
    """Yield the errors across the fields of an entry: steps inside the entry, and a sentence."""
    yield from _core(entry)
    yield from _handling(entry)
    yield from _gang(entry)
    if (entry.finished.path is None) != (not entry.finished.values):
        yield ("finished",), "path and values must be given together"
    known: list[str] = []
    for index, spec in enumerate(entry.pod_sets):
        yield from _pod_set(("podSets", index), spec, known=known)
        known += [spec.name.text] if spec.name.text else [key.lower() for key in spec.keys or ()]


def _core(entry: KindEntry) -> Iterator[Problem]:
    refs: list[tuple[Steps, str, str]] = [(("match", "kind"), entry.match.group, entry.match.kind)]
    refs += [(("owners", index, "kind"), owner.group, owner.kind) for index, owner in enumerate(entry.owners)]
    for at, group, kind in refs:
        if group == "" and kind not in _CORE:
            yield at, f"{quote(kind)} of the core group has no pods"


def _handling(entry: KindEntry) -> Iterator[Problem]:
    if (entry.handling == "through") != (entry.through is not None):
        yield ("through",), "is required with handling: through, and allowed only there"
    pods = bool(entry.pod_sets) or entry.contains is not None
    if entry.handling in ("placed", "pods") and not pods:
        yield ("podSets",), "is required: a kind that is placed has pods"
    if entry.handling in ("through", "hint") and pods:
        yield ("podSets",), f"handling: {entry.handling} has no pods of its own"
    if entry.handling == "hint" and entry.suspend is not None:
        yield ("suspend",), "handling: hint is never held"
    if pods and entry.gang is None:
        yield ("gang",), "is required"
    if pods and entry.replace is None and not all(spec.replace for spec in entry.pod_sets):
        yield ("replace",), "is required: the cost of deleting an unbound pod"


def _gang(entry: KindEntry) -> Iterator[Problem]:
    if entry.gang is None:
        return
    groups = (entry.gang.replicas is not None, entry.gang.replica_label is not None)
    if groups != ((entry.gang.unit == "replica"),) * 2:
        yield ("gang",), "replicas and replicaLabel are required with unit: replica, and allowed only there"
    if entry.gang.unit == "child" and not entry.owners:
        yield ("owners",), "is required: with unit: child they name the objects that are gangs"
    for name, expression in (("minimum", entry.gang.minimum), ("replicas", entry.gang.replicas)):
        if expression is not None:
            yield from _expression(("gang", name), expression, variables=(), labels=False)


def _pod_set(at: Steps, spec: PodSetSpec, *, known: list[str]) -> Iterator[Problem]:
    variables: tuple[str, ...] = ()
    for name, expression in spec.vars.items():
        yield from _expression((*at, "vars", name), expression, variables=variables, labels=False)
        variables = (*variables, name)
    numbers: dict[str, IntExpression | None] = {"count": spec.count, "minimum": spec.minimum}
    numbers |= {"total": spec.total, "replica": spec.replica}
    for name, number in numbers.items():
        if number is not None:
            yield from _expression((*at, name), number, variables=variables, labels=False)
    if spec.succeeded is not None and spec.succeeded.pods is not None:
        where = (*at, "succeeded", "pods")
        yield from _expression(where, spec.succeeded.pods, variables=variables, labels=False)
    if spec.rank is not None:
        yield from _expression((*at, "rank"), spec.rank, variables=variables, labels=True)
    if spec.first_ordinal is not None:
        yield from _expression((*at, "firstOrdinal"), spec.first_ordinal, variables=variables, labels=False)
        if spec.claim_templates is None:
            yield (*at, "firstOrdinal"), "is allowed only with claimTemplates"
    if spec.ranked is not None and spec.rank is None:
        yield (*at, "ranked"), "is allowed only with rank"
    if spec.keys is not None and spec.for_each is None:
        yield (*at, "keys"), "is allowed only with forEach"
    sources: dict[Steps, Text] = {(*at, "name"): spec.name}
    sources |= {(*at, "selector", key): source for key, source in spec.selector.items()}
    for where, source in sources.items():
        if source.key is not None and spec.for_each is None:
            yield (*where, "key"), "is allowed only with forEach"
    if spec.name.present:
        yield (*at, "name", "present"), "a name is a text of its own"


def _expression(
    at: Steps, expression: IntExpression, *, variables: tuple[str, ...], labels: bool, depth: int = 1
) -> Iterator[Problem]:
    if depth > MAX_DEPTH:
        yield at, f"is nested deeper than {MAX_DEPTH} levels"
        return
    if expression.var is not None and expression.var not in variables:
        yield (*at, "var"), f"{quote(expression.var)} is none of the variables before it"
    if expression.label is not None and not labels:
        yield (*at, "label"), "labels of pods are allowed only in rank"
    for steps, part in expression.parts():
        inside = labels and steps != ("below",)
        yield from _expression((*at, *steps), part, variables=variables, labels=inside, depth=depth + 1)
