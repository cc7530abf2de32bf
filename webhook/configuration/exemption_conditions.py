"""Exemptions as CEL: objects that `engine.gang.exemption` exempts must not depend on the service being up.

A test on a real API server compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.api import names
from engine.kinds.conditions import ObjectCondition, Value
from engine.kinds.registry import Registry
from engine.kinds.schema import ANY_VERSION, KindEntry
from webhook.configuration.cel import indented, nodes, text, texts

DEFAULT_SCHEDULERS = (names.DEFAULT_SCHEDULER,)

_QUEUE = text(names.KUEUE_QUEUE)
_WORKLOAD = text(names.KUEUE_WORKLOAD)
_EXCLUSIVE = texts(sorted(names.EXCLUSIVE_TOPOLOGY))
_KUEUE_GATE = f"g.name.startsWith('{names.KUEUE_GATE_PREFIX}')"


def workload_exempt(registry: Registry, schedulers: Iterable[str] = DEFAULT_SCHEDULERS) -> str:
    """Return the expression that the workload `o` with the templates `tsss` is exempt.

    `schedulers` are those that the policy serves. Templates of pods in no gang are without a spec, and do not count.
    """
    return f"""\
[o.metadata.?labels.orValue({{}}), o.metadata.?annotations.orValue({{}})].exists(l, {_QUEUE} in l) ||
{_EXCLUSIVE}.exists(k, k in o.metadata.?annotations.orValue({{}})) ||
{_of_kinds(registry)}{of_other_schedulers(registry, schedulers)} ||
tsss.exists(tss, tss.exists(ts, ts.exists(t, has(t.spec) && (
  [?t.?metadata].exists(m, type(m) == map && (
    [?m.?labels].exists(l, type(l) == map && {_QUEUE} in l) ||
    [?m.?annotations].exists(a, type(a) == map && ({_WORKLOAD} in a || {_EXCLUSIVE}.exists(k, k in a))))) ||
  [?t.?spec].exists(p, type(p) == map && (
    [?p.?schedulingGroup, ?p.?workloadRef].exists(g, g != null) ||
    [?p.?nodeName].exists(n, type(n) == string && n != '') ||
    [?p.?schedulingGates].exists(gs, type(gs) == list &&
      gs.exists(g, type(g) == map && has(g.name) && type(g.name) == string && {_KUEUE_GATE}))))))))"""


def of_other_schedulers(registry: Registry, schedulers: Iterable[str]) -> str:
    """Return the expression that pods of `o` with the templates `tsss` use none of these schedulers."""
    served = texts(("", *schedulers))
    found = f"""\
tsss.exists(tss, tss.exists(ts, ts.exists(t, [?t.?spec].exists(p, type(p) == map &&
  [?p.?schedulerName].exists(n, type(n) == string && !(n in {served}))))))"""
    for entry in registry.entries:
        if entry.scheduler is not None:
            named, _ = nodes("o", entry.scheduler.path.steps, last=False)
            other = f"{named}.exists(n, type(n) == string && !(n in {served}))"
            if entry.scheduler.default not in schedulers:
                there = "n, n != null && n != ''"
                other = f"(!{named}.exists({there}) || {other})"
            found = f"({_is(registry, entry)} ? {other} :\n{indented(found, 1)})"
    return found


def pod_exempt(schedulers: Iterable[str] = DEFAULT_SCHEDULERS) -> str:
    """Return the expression that a pod without a node is exempt, as far as the pod itself shows it."""
    return f"""\
{_QUEUE} in object.metadata.?labels.orValue({{}}) ||
[{_WORKLOAD}, {_EXCLUSIVE[1:-1]}].exists(k, k in object.metadata.?annotations.orValue({{}})) ||
object.spec.?schedulingGates.orValue([]).exists(g, {_KUEUE_GATE}) ||
has(object.spec.schedulingGroup) || has(object.spec.workloadRef) ||
{pod_of_other_schedulers(schedulers)}"""


def pod_of_other_schedulers(schedulers: Iterable[str]) -> str:
    """Return the expression that a pod uses none of these schedulers."""
    return f"!(object.spec.?schedulerName.orValue('') in {texts(('', *schedulers))})"


def _of_kinds(registry: Registry) -> str:
    """Return the exemptions of the registry's entries; kinds with the same exemption share one expression."""
    same: dict[str, list[KindEntry]] = {}
    for entry in registry.entries:
        if entry.stand_aside:
            condition = " ||\n".join(f"({_holds(one.when, 'o')})" for one in entry.stand_aside)
            same.setdefault(condition, []).append(entry)
    return "".join(
        f"(({' || '.join(_is(registry, entry) for entry in entries)}) && (\n{indented(condition, 2)})) ||\n"
        for condition, entries in same.items()
    )


def _is(registry: Registry, entry: KindEntry) -> str:
    """Return the expression that the object is of the entry's kind, in one of the entry's versions."""
    match = entry.match
    found = f"request.kind.kind == {text(match.kind)} && request.kind.group == {text(match.group)}"
    others = [one for one in registry.of_kind(match.group, match.kind) if one is not entry]
    if others and ANY_VERSION in match.versions:
        named = sorted({version for one in others for version in one.match.versions} - {*match.versions, ANY_VERSION})
        return f"({found} && !(request.kind.version in {texts(named)}))"
    return f"({found} && request.kind.version in {texts(match.versions)})" if others else f"({found})"


def _holds(condition: ObjectCondition, here: str) -> str:
    """Return a condition of the registry as CEL; it is false where the object has another form than expected."""
    if condition.every is not None:
        return " && ".join(f"({_holds(one, here)})" for one in condition.every)
    if condition.some is not None:
        return " || ".join(f"({_holds(one, here)})" for one in condition.some)
    if condition.negated is not None:
        return f"!({_holds(condition.negated, here)})"
    if condition.label is not None:
        return f"{text(condition.label)} in o.metadata.?labels.orValue({{}})"
    if condition.annotation is not None:
        return f"{text(condition.annotation)} in o.metadata.?annotations.orValue({{}})"
    assert condition.path is not None  # the model has exactly one subject
    found, _ = nodes("o" if condition.path.whole else here, condition.path.steps, last=False)
    if condition.exists is not None:
        there = f"{found}.exists(x, x != null)"
        return there if condition.exists else f"!{there}"
    if condition.where is not None:
        inner = "e" if here == "o" else f"{here}e"
        return f"{found}.exists({inner}, {inner} != null && ({_holds(condition.where, inner)}))"
    wanted = condition.among if condition.among is not None else (condition.equals,)
    among = f"{found}.exists(x, {_is_among('x', wanted)})"
    default = condition.default
    if default is not None and any(type(one) is type(default) and one == default for one in wanted):
        return f"!{found}.exists(x, x != null) || {among}"
    return among


def _is_among(name: str, wanted: Iterable[Value | None]) -> str:
    """Return the expression that a variable has one of these values; all values in a list of CEL have one type."""
    lists: dict[type, list[str]] = {}
    for one in wanted:
        lists.setdefault(type(one), []).append(_literal(one))
    return " || ".join(f"{name} in [{', '.join(values)}]" for values in lists.values())


def _literal(value: Value | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else text(value or "")
