"""The reference page of the entries that describe workload kinds: every section, every field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from engine.api.schema import fields_of, section_of
from engine.kinds.conditions import ObjectCondition
from engine.kinds.expressions import IntExpression
from engine.kinds.schema import KindEntry
from hack.reference.policy_page import at_most, takes
from hack.reference.schemas import kind_entry_schema

_TITLES: Final[Mapping[type[BaseModel], str]] = {
    KindEntry: "An entry",
    IntExpression: "Expression",
    ObjectCondition: "Condition",
}


def kind_entries_page() -> str:
    """Return the reference of a kind entry: each section in the order in which an entry leads to it."""
    schema = kind_entry_schema()
    sections: list[type[BaseModel]] = [*_sections(KindEntry), IntExpression, ObjectCondition]
    names = {model.__name__: _title(model) for model in sections}
    lines = [
        "# Entries of workload kinds",
        "",
        "<!-- Generated from engine/kinds/schema.py by `python -m hack.reference`; do not edit. -->",
        "",
        "An entry describes, as data, how Topogate reads one kind of workload. The built-in entries in "
        "`engine/kinds/kinds.yaml` are examples; [workload kinds](kinds.md) shows them as tables. "
        "[A policy](../tasks/admin/policy.md#add-custom-kinds-of-workloads) adds entries under `kinds`. "
        "`schemas/kind-entry.schema.json` has the same content as a JSON Schema. `topogate policy check --object FILE` "
        "tries an entry on a sample of its kind.",
        "",
        'A path is written `.spec.replicas`, or `.metadata.labels["any.key"]`. A path with `.` at the beginning starts '
        "at the element that `forEach` iterates, without `forEach` at the object. A path with `$` starts at the "
        "object. `[*]` stands for the items of a list, `{*}` for the values of a mapping; only a *path of several* may "
        "contain them.",
    ]
    for model in sections:
        rules = schema if model is KindEntry else schema["$defs"][model.__name__]
        lines += ["", f"## {names[model.__name__]}", "", *_prose(model), ""]
        lines += ["| field | takes | default | meaning |", "|---|---|---|---|"]
        lines += [_row(name, rules["properties"][name], model, names, schema["$defs"]) for name in fields_of(model)]
    return "\n".join(lines) + "\n"


def _sections(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the sections of an entry, each once, without conditions and expressions."""
    found = [model]
    for field in fields_of(model).values():
        inner = section_of(field.annotation)
        if inner is not None and inner not in (ObjectCondition, IntExpression):
            found += [one for one in _sections(inner) if one not in found]
    return list(dict.fromkeys(found))


def _title(model: type[BaseModel]) -> str:
    return _TITLES.get(model) or model.__name__.removesuffix("Spec")


def _prose(model: type[BaseModel]) -> Iterator[str]:
    paragraphs = (model.__doc__ or "").split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        yield from ([""] if number else [])
        yield " ".join(paragraph.split())


def _row(
    name: str, rule: Mapping[str, Any], model: type[BaseModel], names: Mapping[str, str], defs: Mapping[str, Any]
) -> str:
    field = fields_of(model)[name]
    if field.is_required():
        default = "required"
    else:
        plain = rule.get("default") not in (None, [], {}) and not isinstance(rule["default"], dict)
        default = f"`{json.dumps(rule['default'])}`" if plain else ""
    inner = section_of(field.annotation)
    form = _takes(rule, f"[{names[inner.__name__]}](#{_anchor(names[inner.__name__])})") if inner else takes(rule, defs)
    return " ".join(f"| `{name}` | {form} | {default} | {field.description} |".split())


def _takes(rule: Mapping[str, Any], section: str) -> str:
    """Return the form of a field that contains another section: one, a list or a mapping of them."""
    options = [rule, *(rule.get("anyOf") or ())]
    for one in options:
        if one.get("type") in ("array", "object"):
            return f"{'list' if one['type'] == 'array' else 'map'} of {section}{at_most(one)}"
    return section


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
