"""The reference page of the workload kinds: the registry as tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from engine.api.text import join_and
from engine.kinds.conditions import ObjectCondition
from engine.kinds.expressions import IntExpression
from engine.kinds.registry import Registry, built_in
from engine.kinds.schema import Cost, Creation, Handling, KindEntry, PodSetSpec, Text, Unit

_CREATION: Final[dict[Creation, str]] = {
    "all-at-once": "all at once",
    "ordered": "in order",
    "on-demand": "on demand",
}
_UNIT: Final[dict[Unit, str]] = {
    "workload": "the workload",
    "replica": "each replica group",
    "pod": "none: each pod alone, near the others",
    "child": "each object that it creates",
}
_COST: Final[dict[Cost, str]] = {
    "free": "nothing",
    "retry": "a retry",
    "group": "its replica group starts again",
    "workload": "the workload starts again",
    "lost": "the pod is lost",
}
_HOW: Final[dict[Handling, str]] = {
    "placed": "",
    "through": "placed through its {through}",
    "hint": "not placed itself",
    "pods": "",
}


def kinds_page(registry: Registry | None = None, *, tested: Mapping[str, str] | None = None) -> str:
    """Return the reference of the workload kinds: templates, counts, ranks, and how each kind is held.

    `tested`: name of an entry -> the controller that it is tested with.
    """
    entries = (registry or built_in()).entries
    lines = [
        "# Workload kinds",
        "",
        "<!-- Generated from engine/kinds/kinds.yaml by `python -m hack.reference`; do not edit. -->",
        "",
        "What Topogate knows about each kind. Paths with `[*]` (lists) or `{*}` (mappings) apply to each entry; paths "
        "of counts start at that entry. An unknown version is read like the newest known one.",
        "",
        "## How each kind is held and placed",
        "",
        "Held by suspension: the workload is created suspended and resumed when it has its slots. Held by the gate: "
        "its pods exist and wait with a scheduling gate. Created: the order in which its controller creates the pods; "
        "a gang is planned as a whole in any case. A replacement costs: the effect of deleting a pod before it runs, "
        "so that its controller creates another one.",
        "",
        "Tested with: the kind's real controller, or an imitation that creates and deletes pods with the names, "
        "labels, owners and order of the real one.",
        "",
        "| kind | API group | held by | gang | created | a replacement costs | tested with | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_kind_row(entry, (tested or {}).get(entry.name, "not tested")) for entry in entries]
    lines += [
        "",
        "## Pod sets, counts and ranks",
        "",
        "The rank of a pod is its index among the pods of its pod set, taken from the labels that its controller "
        "writes; a pod without an index takes any free slot of the pod set, with its rank. `or` is followed by the "
        "value that is used if the field is missing.",
        "",
        "| kind | pod set | template | pods | rank |",
        "|---|---|---|---|---|",
    ]
    lines += [_pod_set_row(entry, spec) for entry in entries for spec in entry.pod_sets]
    return "\n".join(lines) + "\n"


def formula(expression: IntExpression) -> str:
    """Return an expression as people write one: `min(.spec.parallelism or 1, .spec.completions)`."""
    match expression:
        case IntExpression(const=int(constant)):
            return f"{constant}"
        case IntExpression(var=str(name)):
            return name
        case IntExpression(
            when=ObjectCondition() as condition, then=IntExpression() as then, otherwise=IntExpression() as otherwise
        ):
            return f"({formula(then)} if {statement(condition)} else {formula(otherwise)})"
        case IntExpression(min=tuple(several)):
            return f"min({', '.join(map(formula, several))})"
        case IntExpression(max=tuple(several)):
            return f"max({', '.join(map(formula, several))})"
        case IntExpression(sum=tuple(several)):
            return " + ".join(map(formula, several)).replace("+ -", "- ")
        case IntExpression(mul=(one, IntExpression(const=-1))):
            return f"-{_factor(one)}"
        case IntExpression(mul=tuple(several)):
            return " x ".join(map(_factor, several))
    found = expression.label or expression.annotation or str(expression.path)
    return found if expression.default is None else f"{found} or {expression.default}"


def statement(condition: ObjectCondition) -> str:
    """Return a condition in words: `.spec.suspend is true`."""
    match condition:
        case ObjectCondition(every=tuple(several)):
            return " and ".join(map(statement, several))
        case ObjectCondition(some=tuple(several)):
            return " or ".join(map(statement, several))
        case ObjectCondition(negated=ObjectCondition() as inner):
            return f"not ({statement(inner)})"
        case ObjectCondition(path=None):
            return f"{condition.label or condition.annotation} is there"
        case ObjectCondition(where=ObjectCondition() as inner):
            return f"{condition.path} has one where {statement(inner)}"
        case ObjectCondition(exists=bool(there)):
            return f"{condition.path} is {'there' if there else 'not there'}"
    wanted = condition.among or (condition.equals,)
    return f"{condition.path} is {join_and([str(one).lower() for one in wanted], 'or')}"


def _factor(expression: IntExpression) -> str:
    text = formula(expression)
    return f"({text})" if expression.sum or expression.default is not None else text


def _kind_row(entry: KindEntry, tested: str) -> str:
    how = _HOW[entry.handling].format(through=entry.through.kind if entry.through is not None else "")
    gang, created = how, ""
    if entry.gang is not None:
        gang = _UNIT[entry.gang.unit]
        ways = dict.fromkeys((entry.gang.creation, *(one.creation for one in entry.gang.overrides)))
        created = " or ".join(_CREATION[way] for way in ways)
    cells = (
        _kind(entry),
        f"`{entry.match.group}`" if entry.match.group else "core",
        _held(entry),
        gang,
        created,
        _cost(entry),
        tested,
        entry.note or "",
    )
    return " ".join(f"| {' | '.join(cells)} |".split())


def _held(entry: KindEntry) -> str:
    if entry.handling == "hint":
        return ""
    if entry.suspend is None:
        return "gate"
    return f"`{entry.suspend.path}`" + (", where its controller allows it, else gate" if entry.suspend.when else "")


def _cost(entry: KindEntry) -> str:
    """Return every cost that a pod of the kind can have, the usual one first."""
    found = [one for one in (entry.replace, *(spec.replace for spec in entry.pod_sets)) if one is not None]
    ways = dict.fromkeys(cost for one in found for cost in (one.cost, *(other.cost for other in one.overrides)))
    return " or ".join(_COST[way] for way in ways)


def _pod_set_row(entry: KindEntry, spec: PodSetSpec) -> str:
    prefix = str(spec.for_each) if spec.for_each is not None else ""
    path = f"{prefix}{'' if spec.template.text == '.' and prefix else spec.template.text}"
    cells = (
        _kind(entry),
        _name(spec.name, spec),
        f"`{path}`" if path != "." else "the pod",
        f"`{_unfolded(spec.count, spec)}`",
        f"`{_unfolded(spec.rank, spec)}`" if spec.rank is not None else "none",
    )
    return f"| {' | '.join(cells)} |"


def _unfolded(expression: IntExpression, spec: PodSetSpec) -> str:
    """Return the formula, followed by its variables."""
    text = formula(expression)
    found: dict[str, str] = {}
    for name in reversed(list(spec.vars)):
        word = re.compile(rf"(?<![-.\w/]){name}(?![-.\w/])")
        if any(word.search(written) for written in (text, *found.values())):
            found[name] = formula(spec.vars[name])
    return text + "".join(f"; {name} = {inner}" for name, inner in found.items())


def _name(source: Text, spec: PodSetSpec) -> str:
    if source.text is not None:
        return source.text
    if source.path is not None:
        return f"`{source.path}`"
    keys = [key.lower() if source.key == "lower" else key for key in spec.keys or ()]
    return ", ".join(keys) or "the key"


def _kind(entry: KindEntry) -> str:
    """Return the kind, with its version or group if another entry has the same name."""
    others = [one.match for one in built_in().entries if one.match.kind == entry.match.kind and one.name != entry.name]
    if any(other.group == entry.match.group for other in others):
        return f"{entry.match.kind} {entry.match.versions[0]}"
    return f"{entry.match.kind} ({entry.match.group})" if others else entry.match.kind
