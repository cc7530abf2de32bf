from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.duration import format_duration, parse_duration
from engine.policy.model import PolicyError, default_policy, parse_policy

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=8,
)
DEFAULT: dict[str, Any] = json.loads(default_policy().model_dump_json())
DEFAULT["topologies"] = [{"name": "a", "levels": [{"name": "rack", "keys": ["x/rack"]}], "nodeSelector": {"a": "b"}}]


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in inner for place in places(item, (*at, key)))]


PLACES = [place for place in places(DEFAULT) if place]


def check(text: str) -> None:
    try:
        policy = parse_policy(text)
    except PolicyError as error:
        told = str(error)
        assert error.errors
        assert all(one.message and one.field for one in error.errors)
        assert all(line.isprintable() for line in told.split("\n"))
        for jargon in ("pydantic", "Input should", "NoneType", "<class", "dict_type", "validator"):
            assert jargon not in told
        assert "is not valid here" not in told
    else:
        assert parse_policy(policy.model_dump_json()) == policy


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=300))
def test_any_text_is_a_policy_or_a_clear_refusal(text: str) -> None:
    """No text raises anything but a refusal."""
    check(text)


@settings(max_examples=600, deadline=None)
@given(place=st.sampled_from(PLACES), value=ANYTHING)
def test_any_value_in_any_place_is_read_or_refused_in_plain_words(place: tuple[str | int, ...], value: Any) -> None:
    """Every field refuses what it cannot take, by our own words; what is accepted reads back as the same policy."""
    document = json.loads(json.dumps(DEFAULT))
    target = document
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    check(json.dumps(document, allow_nan=True))


@given(milliseconds=st.integers(0, 10**11))
def test_a_written_duration_reads_back(milliseconds: int) -> None:
    """Whatever we write is what we read."""
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds
