from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.resources import MAX_UNITS, QuantityError, format_units, nano, nano_to_units

_SCALES = {
    **{"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)},
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}
_UNITS = {"cpu": Fraction(1, 1000), "memory": Fraction(2**20), "hugepages-1Gi": Fraction(2**20)}


@st.composite
def _quantities(draw: st.DrawFn) -> tuple[str, Fraction]:
    """Text of the grammar, and its value rounded away from zero to billionths as Kubernetes does."""
    whole = draw(st.text("0123456789", max_size=22))
    fraction = draw(st.none() | st.text("0123456789", min_size=0 if whole else 1, max_size=14))
    sign = draw(st.sampled_from(("", "+", "-")))
    if not whole and fraction is None:
        whole = "0"
    number = whole + ("" if fraction is None else f".{fraction}")
    value = Fraction(int(whole + (fraction or "")), 10 ** len(fraction or ""))
    if draw(st.booleans()):
        suffix = draw(st.sampled_from(sorted(_SCALES)))
        value *= _SCALES[suffix]
    else:
        exponent = draw(st.integers(-30, 30))
        suffix = f"{draw(st.sampled_from('eE'))}{draw(st.sampled_from(('', '+'))) if exponent >= 0 else ''}{exponent}"
        value *= Fraction(10) ** exponent
    value = Fraction(ceil(value * 10**9), 10**9)
    return f"{sign}{number}{suffix}", -value if sign == "-" else value


@given(_quantities(), st.sampled_from(sorted(_UNITS)))
def test_amounts_are_exact(quantity: tuple[str, Fraction], resource: str) -> None:
    """Every text of the grammar means the same as exact fractions say, rounded the way that was asked for."""
    text, value = quantity
    exact = value / _UNITS[resource]
    assert nano_to_units(resource, nano(resource, text), up=True) == max(-MAX_UNITS, min(ceil(exact), MAX_UNITS + 1))
    assert nano_to_units(resource, nano(resource, text), up=False) == max(-MAX_UNITS, min(floor(exact), MAX_UNITS))


@given(_quantities())
def test_devices_are_whole_or_refused(quantity: tuple[str, Fraction]) -> None:
    """A count is what the text says when that is a whole number, an error otherwise."""
    text, value = quantity
    if value.denominator == 1:
        assert nano_to_units("nvidia.com/gpu", nano("nvidia.com/gpu", text), up=False) == max(
            -MAX_UNITS, min(int(value), MAX_UNITS)
        )
    else:
        with pytest.raises(QuantityError, match="whole number"):
            nano_to_units("nvidia.com/gpu", nano("nvidia.com/gpu", text), up=True)


@given(st.text("0123456789.+-eEinumkKMGTPE \x00", max_size=70) | st.text(max_size=70))
def test_any_text_is_an_amount_or_a_quantity_error(text: str) -> None:
    """No text raises anything but QuantityError."""
    with suppress(QuantityError):
        assert -MAX_UNITS <= nano_to_units("memory", nano("memory", text), up=True) <= MAX_UNITS + 1


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, MAX_UNITS))
def test_what_is_shown_reads_back(resource: str, units: int) -> None:
    """The text of an amount is a quantity of the same amount."""
    assert nano_to_units(resource, nano(resource, format_units(resource, units)), up=True) == units
