"""The tiny language of entries: paths, conditions and numbers, by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from engine.api.rank import Missing, value
from engine.kinds.conditions import ObjectCondition, holds
from engine.kinds.expressions import IntExpression, bind, number
from engine.kinds.paths import NodeError, PathNode, PathScope, each, find, parse_path
from engine.kinds.schema import KindEntry

KINDS = Path(__file__).parents[3] / "engine" / "kinds" / "kinds.yaml"


def scope(here: Any, root: Any = None) -> PathScope:
    node = PathNode(here)
    return PathScope(node if root is None else PathNode(root), node)


def expression(raw: Any) -> IntExpression:
    return IntExpression.model_validate(raw, strict=False)


def condition(raw: Any) -> ObjectCondition:
    return ObjectCondition.model_validate(raw, strict=False)


def test_a_path_from_the_dollar_starts_at_the_whole_object() -> None:
    """Inside an entry of a list both are needed."""
    inside = scope({"a": 1}, {"a": 2})
    assert [found.value for text in (".a", "$.a") if (found := find(parse_path(text), inside)) is not None] == [1, 2]


def test_keys_with_dots_stand_in_quotes() -> None:
    """Labels and annotations have them."""
    found = find(parse_path('.metadata.annotations["a.b/c"]'), scope({"metadata": {"annotations": {"a.b/c": "x"}}}))
    assert found is not None
    assert (found.value, found.field) == ("x", "metadata.annotations[a.b/c]")


@pytest.mark.parametrize("raw", [{}, {"a": None}, {"a": {}}, {"a": {"b": None}}])
def test_null_and_missing_are_the_same(raw: Any) -> None:
    """As in Go."""
    assert find(parse_path(".a.b"), scope(raw)) is None


def test_lists_keep_their_order_and_mappings_are_sorted() -> None:
    """The same object is read the same way every time."""
    assert [node.field for node in each(parse_path(".a[*].b"), scope({"a": [{"b": 1}, {}, {"b": 2}]}))] == [
        "a[0].b",
        "a[2].b",
    ]
    assert [node.field for node in each(parse_path(".a{*}"), scope({"a": {"z": 1, "b": 2, "n": None}}))] == [
        "a.b",
        "a.z",
    ]


@pytest.mark.parametrize(("text", "raw"), [(".a[*]", {"a": {}}), (".a{*}", {"a": []}), (".a.b", {"a": []})])
def test_a_node_of_another_type_is_an_error(text: str, raw: Any) -> None:
    """A list is no mapping, and a mapping no list."""
    with pytest.raises(NodeError) as caught:
        list(each(parse_path(text), scope(raw)))
    assert caught.value.steps == ("a",)


@pytest.mark.parametrize(
    "text", ["", "a", ".", "..a", ".a.", ".a[0]", ".a[]", '.["a]', ".a b", ".1", ".a[*", "$a", ".é"]
)
def test_texts_that_are_no_paths(text: str) -> None:
    """There is no other syntax."""
    if text == ".":
        assert parse_path(text).steps == ()
        return
    with pytest.raises(ValueError, match="path"):
        parse_path(text)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"min": [{"path": ".four"}, {"path": ".gone"}]}, 4),
        ({"max": [{"path": ".gone"}, {"const": -2}]}, -2),
        ({"sum": [{"path": ".four"}, {"const": -1}]}, 3),
        ({"mul": [{"path": ".four"}, {"path": ".gone", "default": 3}]}, 12),
        ({"mul": [{"const": 2**31 - 1}, {"const": 2**31 - 1}]}, 2**31 - 1),
        ({"mul": [{"const": 2**31 - 1}, {"const": -(2**31 - 1)}]}, -(2**31 - 1)),
        ({"when": {"path": ".four", "equals": 4}, "then": {"const": 1}, "else": {"path": ".gone"}}, 1),
    ],
)
def test_numbers(raw: Any, found: int) -> None:
    """Minimum and maximum go by what is there; results stay within 32 bits."""
    assert number(expression(raw), scope({"four": 4}), {}) == found


@pytest.mark.parametrize(
    "raw",
    [
        {"path": ".gone"},
        {"min": [{"path": ".gone"}]},
        {"sum": [{"path": ".gone"}, {"const": 1}]},
        {"mul": [{"const": 0}, {"path": ".gone"}]},
    ],
)
def test_what_is_missing_is_told(raw: Any) -> None:
    """No number is invented."""
    assert number(expression(raw), scope({}), {}) == Missing(".gone is missing")


def test_a_label_that_lies_is_not_passed_over() -> None:
    """A minimum goes by what is there, but not by half of the truth."""
    term = bind(expression({"min": [{"label": "a"}, {"const": 3}]}), scope({}), {})
    assert value(term, {"a": "1"}) == 1
    assert value(term, {}) == 3
    lie = value(term, {"a": "x"})
    assert isinstance(lie, Missing)
    assert lie.wrong


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"path": ".flag", "equals": True}, True),
        ({"path": ".one", "equals": True}, False),
        ({"path": ".one", "equals": 1}, True),
        ({"path": ".gone", "equals": "x", "default": "x"}, True),
        ({"path": ".gone", "in": ["x"]}, False),
        ({"path": ".gone", "exists": False}, True),
        ({"path": ".list[*].k", "equals": "b"}, True),
        ({"path": ".list[*]", "where": {"all": [{"path": ".k", "equals": "a"}, {"path": ".v", "equals": 2}]}}, False),
        ({"path": ".list[*]", "where": {"any": [{"path": ".k", "equals": "b"}, {"path": ".v", "equals": 9}]}}, True),
        ({"not": {"path": ".flag", "exists": True}}, False),
        ({"label": "l"}, True),
        ({"label": "m"}, False),
        ({"annotation": "l"}, False),
    ],
)
def test_conditions(raw: Any, found: bool) -> None:
    """One of several nodes is enough; true is not 1; `where` looks at one node at a time."""
    listed = [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    here = {"flag": True, "one": 1, "list": listed, "metadata": {"labels": {"l": ""}}}
    assert holds(condition(raw), scope(here)) is found


def test_the_schema_of_entries_can_be_given_to_editors() -> None:
    """The models have a JSON Schema: every built-in entry fits it, and a wrong one does not."""
    schema = KindEntry.model_json_schema(by_alias=True)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for entry in yaml.safe_load(KINDS.read_text(encoding="utf-8"))["kinds"]:
        validator.validate(entry)
    assert not validator.is_valid({"name": "a", "match": {"group": "a", "versions": [], "kind": "A", "resource": "a"}})
