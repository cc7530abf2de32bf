"""The reference page of the policy: every field, the rules across fields, the presets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from engine.api import names
from engine.api.schema import fields_of, section_of
from engine.policy.model import Policy, default_policy
from engine.topology.levels import HOST, presets
from hack.reference.schemas import policy_schema


def policy_page() -> str:
    """Return the reference of the policy: every field with what it takes, its default and its meaning."""
    schema = policy_schema()
    lines = [
        "# The policy",
        "",
        "<!-- Generated from engine/policy/model.py by `python -m hack.reference`; do not edit. -->",
        "",
        f"One YAML document under the key `{names.POLICY_KEY}` of the ConfigMap `{names.POLICY_NAME}` in Topogate's "
        "namespace. Every field may be left out; a field that is null counts as left out. An invalid policy is "
        "refused with all its errors, each with its path; the last good one stays in force. Durations are written as "
        "in Go (`90s`, `1h30m`). `off` needs no quotes, because the text is read as YAML 1.2. "
        "`schemas/policy.schema.json` has the same content as a JSON Schema, and is stricter: it refuses null. So a "
        "policy in the values of the Helm chart, which are checked against it, has no empty section, and `off` in "
        "quotes.",
        "",
        "| field | takes | default | meaning |",
        "|---|---|---|---|",
    ]
    defaults = default_policy().model_dump(mode="json")
    lines += [" | ".join(("", *row, "")).strip() for row in _rows(Policy, schema, "", defaults)]
    lines += [
        "",
        "## Rules across fields",
        "",
        "- Topology names are unique, and so are the level names and the label keys of one topology.",
        "- A topology has exactly one of `preset`, `levels` and `fromObject`.",
        f"- The last level is always `{names.HOST_LEVEL}`, by node name; it may be written as the last level, without "
        "keys. `auto` cannot be a level name.",
        "- A label key is not the name of another level of the same topology.",
        "- No entry of `fallbacks` is the same as a class before it. A class of the cluster autoscaler with others "
        "behind it has the parameter with which its requests fail in a useful time (`ValidUntilSeconds`, `noRetry`).",
        "",
        "## Presets",
        "",
        "Levels coarse to fine, each with its label keys; the level `host` follows. Without `topologies` the first "
        "preset in this order applies that has a label on some node for each of its levels.",
        "",
        "| preset | for | levels |",
        "|---|---|---|",
    ]
    notes = _preset_notes()
    for name, levels in presets().items():
        listed = "; ".join(
            f"{level.name}: {', '.join(f'`{key}`' for key in level.keys)}" for level in levels if level is not HOST
        )
        lines.append(f"| {name} | {notes[name]} | {listed} |")
    return "\n".join(lines) + "\n"


def _preset_notes() -> dict[str, str]:
    """Return the comment of each preset, which says for what nodes it is."""
    text = resources.files("engine.topology").joinpath("presets.yaml").read_text(encoding="utf-8")
    found = re.findall(r"^((?:# .+\n)+)([a-z0-9-]+):$", text, re.MULTILINE)
    return {name: " ".join(comment.replace("# ", "").split()) for comment, name in found}


def _rows(
    model: type[Any], schema: Mapping[str, Any], prefix: str, defaults: Mapping[str, Any] | None
) -> Iterator[tuple[str, str, str, str]]:
    definitions = schema.get("$defs", {})
    own = schema if model is Policy else definitions[model.__name__]
    for name, field in fields_of(model).items():
        path = prefix + name
        rule = own["properties"][name]
        inner = section_of(field.annotation)
        many = rule.get("type") == "array" or any(one.get("type") == "array" for one in rule.get("anyOf", ()))
        accepted = takes(rule, definitions)
        default = f"`{json.dumps(defaults[name])}`" if defaults is not None and name in defaults else ""
        if inner is not None and not many and defaults is not None and isinstance(defaults.get(name), dict):
            yield from _rows(inner, schema, f"{path}.", defaults[name])
            continue
        if defaults is None:
            default = "required" if field.is_required() else f"`{json.dumps(rule.get('default'))}`"
        yield (f"`{path}`", accepted, default, f"{field.description}")
        if inner is not None:
            yield from _rows(inner, schema, f"{path}[]." if many else f"{path}.", None)


def takes(rule: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return in words what a field of the schema takes."""
    match rule:
        case {"$ref": str(ref)}:
            return takes(definitions[ref.rsplit("/", 1)[-1]], definitions)
        case {"anyOf": options}:
            accepted = (takes(one, definitions) for one in options if one.get("type") != "null")
            return " or ".join(dict.fromkeys(accepted))
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value if isinstance(value, str) else json.dumps(value)}`"
        case {"type": "array", "items": items}:
            items_are = takes(items, definitions)
            limit = "" if "enum" in items else at_most(rule)  # each of its values once
            return f"list of {items_are}{'s' if items_are in ('section', 'map') else ''}{limit}"
        case {"$comment": str(bounds)}:
            return bounds
        case {"type": "boolean"}:
            return "`true` or `false`"
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"{least:,} to {most:,}"
        case {"type": "integer"}:
            return "a whole number"
        case {"type": "number", "minimum": least, "maximum": most}:
            return f"a number from {least:,g} to {most:,g}"
        case {"type": "object", "properties": _}:
            return "section"
        case {"type": "object"}:
            return f"map{at_most(rule)}"
    return "text"


def at_most(rule: Mapping[str, Any]) -> str:
    """Return in words how many entries a list or a mapping of the schema takes; "" if there is no limit."""
    most = rule.get("maxItems", rule.get("maxProperties"))
    return "" if most is None else f", at most {most:,}"
