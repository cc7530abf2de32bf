from __future__ import annotations

import math
from typing import Any

import pytest

from engine.api.strict_yaml import YAMLTextError
from webhook.snapshot.yaml_documents import MAX_DEPTH, documents, scalar


def load(text: str) -> Any:
    (value,) = documents(text)
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("on", True),
        ("off", False),
        ("No", False),
        ("8", 8),
        ("-8", -8),
        ("+8", 8),
        ("0644", 420),
        ("0x1F", 31),
        ("1_000", 1000),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e+3", 1000.0),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("1e999", "1e999"),
        (".inf", ".inf"),
        ("64Gi", "64Gi"),
        ("500m", "500m"),
        ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z"),
        ("2026-11-21", "2026-11-21"),
        ("12:30:45", "12:30:45"),
        ("099", 99.0),
        ("0o17", 15),
        ("0o", "0o"),
        ("-0O", "-0O"),
        ("-", "-"),
        ("9" * 41, "9" * 41),
        ("18446744073709551615", 18446744073709551615),
    ],
)
def test_scalars_mean_what_they_mean_to_kubectl(text: str, value: object) -> None:
    """Unquoted words and numbers as in sigs.k8s.io/yaml; timestamps stay text."""
    found = scalar(text)
    assert (found, type(found)) == (value, type(value))


def test_a_number_beyond_64_bits_is_a_float() -> None:
    """As goyaml reads it: never an integer of unbounded size."""
    assert math.isclose(scalar("99999999999999999999"), 1e20)


def test_quoted_scalars_are_text() -> None:
    """Quotes, and an explicit tag, keep what looks like something else."""
    assert load("- \"8\"\n- 'off'\n- !!str 8\n- |-\n  true\n") == ["8", "off", "8", "true"]


def test_documents_come_one_by_one_and_empty_ones_are_none() -> None:
    """A file holds many documents."""
    assert list(documents("a: 1\n---\n---\n- b\n--- text\n...\n")) == [{"a": 1}, None, ["b"], "text"]


def test_anchors_and_merges_work() -> None:
    """People share parts of manifests; a key of its own wins over a merged one, an earlier merge over a later."""
    text = "base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\none: *b\ntwo: {<<: [*b, *o], x: 9}\n"
    assert load(text) == {
        "base": {"x": 1, "y": 2},
        "other": {"y": 3, "z": 4},
        "one": {"x": 1, "y": 2},
        "two": {"x": 9, "y": 2, "z": 4},
    }


def test_anchors_end_with_their_document() -> None:
    """An alias to another document's anchor means nothing."""
    with pytest.raises(YAMLTextError, match="no complete anchor") as caught:
        list(documents("a: &x 1\n---\nb: *x\n"))
    assert caught.value.document == 2
    assert caught.value.problems[0].startswith("line 3: ")


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (bomb(12), "aliases stand for more than"),
        ("a: &a [*a]", "no complete anchor"),
        ("a: &a {b: *a}", "no complete anchor"),
        ("[" * 5000, f"nested deeper than {MAX_DEPTH} levels"),
        ("a: 1\nb: 2\na: 3", 'duplicate key "a"'),
        ("{a: 1, [b]: 2}", "keys must be text"),
        ("&a a: 1\n*b : 2", "keys must be text"),
        ("a: !!python/object/apply:os.system [ls]", "the tag"),
        ("a: !!binary aGk=", "the tag"),
        ("a: !!timestamp 2026-01-01", "the tag"),
        ("a: {<<: 5}", "only mappings can be merged"),
        ("a: [1, 2", "not valid YAML"),
        ("a: \x07", "not valid YAML"),
        ("\tx: 1", "not valid YAML"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    """Bombs, loops, depth, lost keys, tags and broken text are errors with a document, never a hang or a trace."""
    with pytest.raises(YAMLTextError, match=problem) as caught:
        list(documents(text))
    assert caught.value.document == 1


def test_aliases_cannot_nest_deeper_than_text_can() -> None:
    """Each line may be shallow while what the aliases build is not."""
    chain = "a0: &a0 [[[[[[[[[[x]]]]]]]]]]\n"
    chain += "\n".join(f"a{n}: &a{n} [[[[[[[[[*a{n - 1}]]]]]]]]]" for n in range(1, 9))
    with pytest.raises(YAMLTextError, match=f"nested deeper than {MAX_DEPTH} levels"):
        list(documents(chain))
