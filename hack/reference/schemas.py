"""The JSON Schemas under `schemas/`: of the policy, of the entry of a workload kind, and of what commands print."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel

from engine.api.duration import format_duration
from engine.kinds.schema import KindEntry
from engine.policy.model import Policy
from webhook.simulate.model import Simulation

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema_text(schema: dict[str, Any]) -> str:
    """Return a schema as it is committed."""
    return json.dumps(schema, indent=2) + "\n"


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of `policy.yaml`, for editors and for checks before a change is applied."""
    schema, entry = (_tidy(model.model_json_schema(by_alias=True)) for model in (Policy, KindEntry))
    # The policy keeps its kinds as they are written; what they may say is the schema of an entry.
    schema["properties"]["kinds"]["items"] = {"$ref": "#/$defs/KindEntry"}
    inner = entry.pop("$defs")
    definitions = {key: value for key, value in schema["$defs"].items() if key != "JsonValue"}
    schema["$defs"] = {**definitions, **inner, "KindEntry": entry}
    return {"$schema": _DIALECT, "title": "Topogate policy", **schema}


def kind_entry_schema() -> dict[str, Any]:
    """Return the JSON Schema of the entry of a workload kind, in `kinds.yaml` or in a policy."""
    schema = _tidy(KindEntry.model_json_schema(by_alias=True))
    return {"$schema": _DIALECT, "title": "Topogate workload kind", **schema}


def simulate_schema() -> dict[str, Any]:
    """Return the JSON Schema of what `topogate simulate -o json` prints."""
    schema = _tidy(Simulation.model_json_schema(by_alias=True, mode="serialization"))
    return {"$schema": _DIALECT, "title": "Topogate simulation", **schema}


def answer_schema(model: type[BaseModel], command: str) -> dict[str, Any]:
    """Return the JSON Schema of what a command that asks a cluster prints with `-o json`."""
    schema = _tidy(model.model_json_schema(by_alias=True, mode="serialization"))
    return {"$schema": _DIALECT, "title": f"topogate {command}", **schema}


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
