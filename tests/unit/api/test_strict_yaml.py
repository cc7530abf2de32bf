from __future__ import annotations

import pytest

from engine.api.strict_yaml import MAX_BYTES, YAMLTextError, load


def test_off_is_text() -> None:
    """Scalars are those of YAML 1.2: on, off, yes and no are text, so that `mode: off` needs no quotes."""
    assert load("[off, on, yes, no, true, FALSE, ~, null, 010, 0x1f, 1:30, 12, 1.5, 2026-11-21]") == [
        *("off", "on", "yes", "no"),
        *(True, False, None, None),
        *("010", "0x1f", "1:30", 12, 1.5, "2026-11-21"),
    ]


def test_json_is_yaml() -> None:
    """A JSON document is read as it stands."""
    assert load('{"a": ["b", 1, null, true]}') == {"a": ["b", 1, None, True]}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_nothing_is_none(text: str) -> None:
    """A text without a document, or with an empty one, holds nothing."""
    assert load(text) is None


def test_aliases_are_read() -> None:
    """A small alias is expanded."""
    assert load("a: &x [1]\nb: *x") == {"a": [1], "b": [1]}


BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", 'line 3: duplicate key "a" (first in line 1)'),
        ("x: {a: 1, a: 2}", 'line 1: duplicate key "a" (first in line 1)'),
        ("1: a", "line 1: keys must be text, not 1"),
        ("null: a", "line 1: keys must be text, not null"),
        ("[a]: b", "line 1: keys must be text"),
        ("a: !!python/object/apply:os.system [id]", "tag:yaml.org,2002:python/object/apply:os.system"),
        ("a: !secret b", 'the tag "!secret" is not allowed'),
        ("a: !!binary aGVsbG8=", "is not allowed here"),
        ("a: !!int b", "is not allowed here"),
        ("a: [", "not valid YAML"),
        ("a: b: c", "line 1, column 5: not valid YAML"),
        ("a: *nowhere", 'line 1: the alias "nowhere" has no complete anchor before it'),
        ("a: 1\n---\nb: 2", "line 2: a second document starts"),
        ("a: \x00", "not valid YAML"),
        ("a: \ud800", "not valid Unicode"),
        ("[" * 5000, "nested deeper than 32 levels"),
        ("a: &a [*a]", "has no complete anchor before it"),
        (BOMB, "aliases stand for more than 20,000 values"),
        ("a: " + "x" * MAX_BYTES, "at most 262,144 are allowed"),
    ],
)
def test_refuses(text: str, says: str) -> None:
    """Whatever could be lost, misread or blown up is refused, with its line where there is one."""
    with pytest.raises(YAMLTextError) as caught:
        load(text)
    assert says in str(caught.value)


def test_all_faults_at_once() -> None:
    """Every double key and every odd key is named."""
    with pytest.raises(YAMLTextError) as caught:
        load("a: 1\na: 2\n3: 4\n")
    assert len(caught.value.problems) == 2
