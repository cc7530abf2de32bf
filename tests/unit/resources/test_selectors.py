"""Label selectors for devices: as text, as Kubernetes' JSON, and as one text for equal ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.device import LabelSelector
from engine.resources.selectors import SelectorError, format_selector, parse_selector, selector_of

keys = st.sampled_from(["a", "type", "example.com/pool", "x.y_z-1"])
values = st.lists(st.sampled_from(["", "b", "A1", "0.5_x-y"]), min_size=1, max_size=3).map(
    lambda some: tuple(sorted({*some}))
)
requirements = st.one_of(
    st.tuples(keys, st.sampled_from(["In", "NotIn"]), values),
    st.tuples(keys, st.sampled_from(["Exists", "DoesNotExist"]), st.just(())),
)
selectors = st.lists(requirements, max_size=5).map(lambda some: tuple(sorted({*some})))


@given(selectors)
def test_a_selector_survives_being_written(selector: LabelSelector) -> None:
    """As text and as JSON; the text of the one is that of the other."""
    assert parse_selector(format_selector(selector)) == selector
    raw = {
        "matchExpressions": [
            {"key": key, "operator": operator, "values": list(values)} for key, operator, values in reversed(selector)
        ]
    }
    assert selector_of(raw, "at") == selector


@given(st.text(max_size=60))
def test_any_text_is_a_selector_or_an_error(text: str) -> None:
    """Nothing else is raised, and what is read is written the same."""
    try:
        selector = parse_selector(text)
    except SelectorError:
        return
    assert parse_selector(format_selector(selector)) == selector


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["matchLabels", "matchExpressions", "key", "operator", "values", "a"]), inner),
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_a_selector_or_an_error(raw: Any) -> None:
    try:
        selector = selector_of(raw, "at")
    except SelectorError as error:
        assert error.path.startswith("at")
        return
    assert parse_selector(format_selector(selector)) == selector


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("*", ()),
        (" * ", ()),
        ("a=b", (("a", "In", ("b",)),)),
        ("a == b", (("a", "In", ("b",)),)),
        ("a=", (("a", "In", ("",)),)),
        ("a!=b", (("a", "NotIn", ("b",)),)),
        ("b,!a", (("a", "DoesNotExist", ()), ("b", "Exists", ()))),
        ("a in (c, b,c),a=b", (("a", "In", ("b",)), ("a", "In", ("b", "c")))),
        ("example.com/a notin (b)", (("example.com/a", "NotIn", ("b",)),)),
    ],
)
def test_the_form_of_kubectl(text: str, selector: LabelSelector) -> None:
    assert parse_selector(text) == selector


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must be * or a label selector"),
        (",", "must be * or a label selector"),
        ("a,", "must be * or a label selector"),
        ("a in b", "must be * or a label selector"),
        ("a in (b", "must be * or a label selector"),
        ("a in (b))", "must be * or a label selector"),
        ("a in (b)c", "must be * or a label selector"),
        ("(a)", "must be * or a label selector"),
        ("a=b=c", "must be * or a label selector"),
        ("-a", '"-a" must be a label key'),
        ("a=-", '"-" must be a label value'),
        ("a=\x1b", r'"\x1b" must be a label value'),
        ("a" * 3000, "must be at most 2,048 characters long"),
        (",".join(f"a{number}" for number in range(17)), "must be at most 16 requirements"),
        (f"a in ({','.join(f'v{number}' for number in range(65))})", '"a" must be followed by at most 64 values'),
    ],
)
def test_what_is_no_selector(text: str, told: str) -> None:
    with pytest.raises(SelectorError, match=r"^") as error:
        parse_selector(text)
    assert str(error.value).startswith(told)
