"""Building JSON Patches."""

from __future__ import annotations

import jsonpatch

from engine.api.field import json_pointer
from webhook.admission.patch import Edits


def applied(document: dict[str, object], edits: Edits) -> object:
    return jsonpatch.apply_patch(document, [dict(one) for one in edits.operations])


def test_tilde_is_escaped_before_slash() -> None:
    assert json_pointer(("a", "x/~1", 0)) == "/a/x~1~01/0"


def test_absent_and_null_parents_are_created_once() -> None:
    edits = Edits({"metadata": {"labels": None}})
    edits.put(("metadata", "labels", "a"), "1")
    edits.put(("metadata", "labels", "b"), "2")
    edits.put(("spec", "x", "y"), 1)
    assert [one["path"] for one in edits.operations] == [
        "/metadata/labels",
        "/metadata/labels/a",
        "/metadata/labels/b",
        "/spec",
        "/spec/x",
        "/spec/x/y",
    ]


def test_a_map_that_is_there_is_never_wiped() -> None:
    document: dict[str, object] = {"labels": {"app": "x"}}
    edits = Edits(document)
    edits.put(("labels", "a"), "1")
    assert applied(document, edits) == {"labels": {"app": "x", "a": "1"}}
    assert document == {"labels": {"app": "x"}}


def test_what_is_there_already_or_absent_already_is_no_operation() -> None:
    edits = Edits({"a": {"b": 1}, "items": [1]})
    edits.put(("a", "b"), 1)
    edits.drop(("a", "c"))
    edits.drop(("x", "y"))
    edits.drop_items(("items",), lambda item: item == 2)
    edits.drop_items(("nothing",), lambda item: True)
    assert edits.operations == []


def test_items_are_dropped_from_the_end_and_what_has_moved_can_be_edited() -> None:
    document: dict[str, object] = {"items": [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]}
    edits = Edits(document)
    edits.put(("items", 0, "seen"), True)
    edits.drop_items(("items",), lambda item: item["n"] in (0, 2))
    edits.put(("items", 0, "seen"), True)
    assert edits.document == {"items": [{"n": 1, "seen": True}, {"n": 3}]}
    assert applied(document, edits) == edits.document
    assert document == {"items": [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]}
