"""The reference pages and schemas that are generated from code: `python -m webhook.reference` rewrites them all.

A test holds the committed files against what this module would write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from engine import names
from engine.durations import format_duration
from engine.policy import Policy, default_policy
from engine.policy_sections import fields_of, section_of
from engine.presets import HOST, presets
from engine.reasons import REASONS, Kind
from local.controllers.catalogue import how_tested
from webhook.cli_reference import cli_page
from webhook.kinds_reference import kinds_page
from webhook.manifest_pages import webhooks_page, workloads_role_page
from webhook.simulation_output import Simulation

_SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_KINDS: Final[dict[Kind, str]] = {
    "user": "Faults of a request",
    "policy": "Refused by policy",
    "not-now": "Not now",
    "engine": "The engine",
    "standing-aside": "Standing aside",
    "ignored": "Not ours",
}
_WHEN: Final[dict[Kind, str]] = {
    "user": "The object is refused (422, one cause for each fault); GangTooLarge and HostTooSmall are warnings unless "
    "the policy says `neverFits: deny`.",
    "policy": "The object is refused (403).",
    "not-now": "The gang waits and starts by itself when there is room: the reason of the Placement and of the Event.",
    "engine": "Trouble of Topogate itself, never a denial of a workload.",
    "standing-aside": "Somebody else places this workload; nothing of it is changed.",
    "ignored": "Nothing is asked of Topogate, or it must not touch the object.",
}


def pages() -> dict[str, str]:
    """Return the text of every generated file by its path in the repository."""
    return {
        "schemas/policy.schema.json": json.dumps(policy_schema(), indent=2) + "\n",
        "schemas/simulate.schema.json": json.dumps(simulate_schema(), indent=2) + "\n",
        "docs/reference/policy.md": policy_page(),
        "docs/reference/messages.md": messages_page(),
        "docs/reference/cli.md": cli_page(),
        "docs/reference/kinds.md": kinds_page(tested=how_tested()),
        "manifests/base/webhooks.yaml": webhooks_page(),
        "manifests/base/rbac-workloads.yaml": workloads_role_page(),
    }


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of `policy.yaml`, for editors and for checks before a change is applied."""
    schema = _tidy(Policy.model_json_schema(by_alias=True))
    return {"$schema": _SCHEMA_DIALECT, "title": "Topogate policy", **schema}


def simulate_schema() -> dict[str, Any]:
    """Return the JSON Schema of what `topogate simulate -o json` prints."""
    schema = _tidy(Simulation.model_json_schema(by_alias=True, mode="serialization"))
    return {"$schema": _SCHEMA_DIALECT, "title": "Topogate simulation", **schema}


def _tidy(schema: Any) -> Any:
    """The schema without the titles that only repeat the names, durations as text."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(value) for key, value in schema.items() if key != "title"}
    if schema.get("type") == "string" and isinstance(schema.get("default"), float):
        tidy["default"] = format_duration(schema["default"])
    return tidy


def policy_page() -> str:
    """Return the reference of the policy: every field with what it takes, its default and its meaning."""
    schema = policy_schema()
    lines = [
        "# The policy",
        "",
        "<!-- Generated from engine/policy.py by `python -m webhook.reference`; do not edit. -->",
        "",
        f"One YAML document under the key `{names.POLICY_KEY}` of the ConfigMap `{names.POLICY_NAME}` in Topogate's "
        "namespace. Every field may be left out; a field that is null counts as left out. A policy with a fault is "
        "refused with every fault by its path, and the last good one stays in force. Durations are written as in Go "
        "(`90s`, `1h30m`). `off` needs no quotes: the text is read as YAML 1.2. "
        "`schemas/policy.schema.json` is the same as a JSON Schema.",
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
        f"- The level `{names.HOST_LEVEL}` is always there, last, by node name; it may be written as the last level, "
        "without keys. `auto` is no level name.",
        "- A label key is not the name of another level of the same topology.",
        "",
        "## Presets",
        "",
        "Levels coarse to fine, each with its candidate label keys; the level `host` follows. Without `topologies` the "
        "first preset applies of which every level is on some node, in this order.",
        "",
        "| preset | levels |",
        "|---|---|",
    ]
    for name, levels in presets().items():
        told = "; ".join(
            f"{level.name}: {', '.join(f'`{key}`' for key in level.keys)}" for level in levels if level is not HOST
        )
        lines.append(f"| {name} | {told} |")
    return "\n".join(lines) + "\n"


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
        takes = _takes(rule, definitions)
        default = f"`{json.dumps(defaults[name])}`" if defaults is not None and name in defaults else ""
        if inner is not None and not many and defaults is not None and isinstance(defaults.get(name), dict):
            yield from _rows(inner, schema, f"{path}.", defaults[name])
            continue
        if defaults is None:
            default = "required" if field.is_required() else f"`{json.dumps(rule.get('default'))}`"
        yield (f"`{path}`", takes, default, f"{field.description}")
        if inner is not None:
            yield from _rows(inner, schema, f"{path}[]." if many else f"{path}.", None)


def _takes(rule: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    match rule:
        case {"$ref": str(ref)}:
            return _takes(definitions[ref.rsplit("/", 1)[-1]], definitions)
        case {"anyOf": options}:
            return next(_takes(one, definitions) for one in options if one.get("type") != "null")
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value}`"
        case {"type": "array", "items": items}:
            items_are = _takes(items, definitions)
            return f"list of {items_are}{'s' if items_are in ('section', 'map') else ''}"
        case {"$comment": str(bounds)}:
            return bounds
        case {"type": "integer"}:
            return f"{rule['minimum']:,} to {rule['maximum']:,}"
        case {"type": "object", "properties": _}:
            return "section"
        case {"type": "object"}:
            return "map"
    return "text"


def messages_page() -> str:
    """Return the reference of the reason codes."""
    lines = [
        "# Messages and reason codes",
        "",
        "<!-- Generated from engine/reasons.py by `python -m webhook.reference`; do not edit. -->",
        "",
        "Codes are a stable API: they do not change their meaning. How messages are written: one sentence for one "
        "problem; numbers as needed / have / best candidate; *never* (bigger than any domain could ever hold) or *not "
        "now*; one dominant reason, the rest as counts that add up to the total; never the name of somebody else's "
        "workload.",
    ]
    for kind, title in _KINDS.items():
        lines += ["", f"## {title}", "", _WHEN[kind], "", "| code | meaning |", "|---|---|"]
        lines += [f"| `{code}` | {reason.description} |" for code, reason in REASONS.items() if reason.kind == kind]
    return "\n".join(lines) + "\n"


def main(root: Path) -> None:
    """Write every generated file below the root of the repository."""
    for path, text in pages().items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
