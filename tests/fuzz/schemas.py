"""Values by a JSON Schema, drawn by hypothesis: of the keywords that our own schemas use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import HypothesisProvider

ROOT: Final = Path(__file__).parents[2]
Schema = Mapping[str, Any]

_MOST: Final = 3  # items of a list and optional keys of an object


def policy_schema() -> Schema:
    """The schema of policy.yaml, with that of additional kinds inside."""
    return dict(json.loads((ROOT / "schemas/policy.schema.json").read_text(encoding="utf-8")))


def placement_schema() -> Schema:
    """The schema of a Placement, from the CustomResourceDefinition."""
    definition = yaml.safe_load((ROOT / "manifests/base/crd.yaml").read_text(encoding="utf-8"))
    return dict(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def drawn(strategy: st.SearchStrategy[Any], *, count: int, chance: int) -> list[Any]:
    """Up to `count` examples, the same ones for the same `chance`."""
    found: list[Any] = []

    @seed(chance)
    @settings(
        max_examples=count,
        database=None,
        derandomize=False,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    # Else it draws constants of whatever modules are imported by then, and the same seed gives other inputs elsewhere.
    with patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_args, **_options: None):
        collect()
    return found


def values_of(schema: Schema, root: Schema | None = None) -> st.SearchStrategy[Any]:
    """The values that a schema allows, and now and then one that a pattern refuses."""
    root = schema if root is None else root
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return _later(target, root)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return st.one_of([values_of(one, root) for one in schema[choice]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    found = _of_type(schema, root)
    return st.none() | found if schema.get("nullable") else found


def _later(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: values_of(schema, root))


def _of_type(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    match schema.get("type"):
        case "object":
            return _objects(schema, root)
        case "array":
            most = max(schema.get("minItems", 0), min(schema.get("maxItems", _MOST), _MOST))
            return st.lists(values_of(schema.get("items", {}), root), min_size=schema.get("minItems", 0), max_size=most)
        case "string":
            if "pattern" in schema:
                return st.from_regex(schema["pattern"], fullmatch=True) | st.text(max_size=8)
            longest = min(schema.get("maxLength", 20), 20)
            words = st.sampled_from(["rack", "block", "host", "default", "main", "example.com/x", "spec.template"])
            return words | st.text(min_size=min(schema.get("minLength", 0), longest), max_size=longest)
        case "integer":
            return st.integers(schema.get("minimum", -5), schema.get("maximum", 2**31))
        case "number":
            return st.floats(schema.get("minimum", 0), schema.get("maximum", 1e6), allow_nan=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case _:
            return st.none() | st.booleans() | st.integers(-1, 9) | st.text(max_size=8)


def _objects(schema: Schema, root: Schema) -> st.SearchStrategy[Any]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    if not properties:
        inner = schema.get("additionalProperties")
        values = values_of(inner, root) if isinstance(inner, Mapping) else st.text(max_size=8)
        keys = st.sampled_from(["a", "example.com/rack", "topogate.dev/prefer-topology", "cpu"])
        return st.dictionaries(keys, values, min_size=schema.get("minProperties", 0), max_size=_MOST)
    fields = {key: _later(one, root) for key, one in properties.items()}

    @st.composite
    def some(draw: st.DrawFn) -> dict[str, Any]:
        optional = [key for key in fields if key not in required]
        chosen = draw(st.lists(st.sampled_from(optional), max_size=_MOST, unique=True)) if optional else []
        return {key: draw(fields[key]) for key in (*sorted(required), *chosen)}

    return some()
