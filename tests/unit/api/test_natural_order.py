from __future__ import annotations

import pytest

from engine.api.field import natural_order
from engine.policy.model import PolicyError, parse_policy


def test_numbers_are_ordered_by_value() -> None:
    """containers[10] comes after containers[2]."""
    assert sorted(["a[10]", "a[2]", "a"], key=natural_order) == ["a", "a[2]", "a[10]"]


def test_digits_that_are_no_numbers_are_text() -> None:
    """A superscript between numbers: `int` does not read what `isdigit` takes for a digit."""
    with pytest.raises(PolicyError, match="a1²2"):
        parse_policy("a1²2: 1")
