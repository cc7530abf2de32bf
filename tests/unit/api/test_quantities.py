from __future__ import annotations

import pytest

from engine.api.resources import MAX_UNITS, Quantity, QuantityError, format_units, nano, nano_to_units


@pytest.mark.parametrize(
    ("resource", "quantity", "units"),
    [
        ("cpu", "8", 8000),
        ("cpu", "500m", 500),
        ("cpu", "1.5", 1500),
        ("cpu", ".5", 500),
        ("cpu", "2.", 2000),
        ("cpu", "+2", 2000),
        ("cpu", "1e3", 1_000_000),
        ("cpu", "5E-1", 500),
        ("cpu", "250000u", 250),
        ("cpu", "100000000n", 100),
        ("cpu", "1k", 1_000_000),
        ("memory", "64Gi", 65536),
        ("memory", "1048576", 1),
        ("memory", "1.5Ki", 1),
        ("memory", "512Mi", 512),
        ("memory", "1Ti", 2**20),
        ("memory", "1048576000m", 1),
        ("ephemeral-storage", "10Gi", 10240),
        ("hugepages-2Mi", "4Mi", 4),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", "2k", 2000),
        ("nvidia.com/gpu", "8000m", 8),
        ("kubernetes.io/odd", "1500m", 2),  # native, so the API server admits fractions; the scheduler rounds them up
        ("example.kubernetes.io/odd", "1m", 1),
        ("pods", "110", 110),
        ("pods", "1E", MAX_UNITS + 1),
    ],
)
def test_reads_what_kubernetes_reads(resource: str, quantity: str, units: int) -> None:
    """Sign, decimals, decimal and binary suffixes and exponents mean what they mean in resource.Quantity."""
    assert nano_to_units(resource, nano(resource, quantity), up=True) == units


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 ", " 1", "1\n", ".", "+", "-", "Ki", "1KI", "1ki", "1K", "1g", "1mi", "1.2.3", "1,5", "1_000"),
        *("1e", "1e1.5", "e3", "1e3Ki", "1Ki3", "--1", "0x10", "NaN", "inf", "٣", "1²", "1m1", "1\x00"),
    ],
)
def test_refuses_what_is_no_quantity(text: str) -> None:
    """Text outside the grammar is an error, never a guess."""
    with pytest.raises(QuantityError, match="is not a quantity"):
        nano_to_units("cpu", nano("cpu", text), up=True)


def test_rounds_requests_up_and_capacity_down() -> None:
    """The same amount is never smaller as a request than as capacity."""
    assert nano_to_units("memory", nano("memory", "1G"), up=True) == 954
    assert nano_to_units("memory", nano("memory", "1G"), up=False) == 953
    assert nano_to_units("cpu", nano("cpu", "1500u"), up=True) == 2
    assert nano_to_units("cpu", nano("cpu", "1500u"), up=False) == 1


def test_a_huge_string_is_refused_before_it_is_read() -> None:
    """Text longer than any amount costs nothing."""
    with pytest.raises(QuantityError, match="longer than 64"):
        nano_to_units("memory", nano("memory", "9" * 10_000_000), up=True)


@pytest.mark.parametrize("text", ["1e999999999999", "9" * 64, "1e60", "9999999999999Ei"])
def test_an_absurd_amount_is_capped_so_that_it_fits_nowhere(text: str) -> None:
    """A capped request is larger than any capped capacity."""
    assert nano_to_units("memory", nano("memory", text), up=False) == MAX_UNITS
    assert nano_to_units("memory", nano("memory", text), up=True) == MAX_UNITS + 1


def test_a_tiny_exponent_rounds_up_to_one_billionth() -> None:
    """Nothing that is not zero becomes zero as a request."""
    assert nano("cpu", "1e-999999999999") == 1
    assert nano_to_units("cpu", nano("cpu", "1e-999999999999"), up=True) == 1
    assert nano_to_units("cpu", nano("cpu", "1e-999999999999"), up=False) == 0


def test_zeros_and_an_exponent_cancel_out() -> None:
    """Fifty zeros behind the point and an exponent of sixty are still exact."""
    assert nano_to_units("cpu", nano("cpu", f"0.{'0' * 50}1e54"), up=False) == 1_000_000


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "pods", "koordinator.sh/gpu-core", "count/pods"])
@pytest.mark.parametrize("quantity", ["500m", "0.5", 1.5, "1n"])
def test_what_is_counted_in_wholes_has_no_fractions(resource: str, quantity: Quantity) -> None:
    """Devices and pods must be whole numbers."""
    with pytest.raises(QuantityError, match="must be a whole number"):
        nano_to_units(resource, nano(resource, quantity), up=True)


@pytest.mark.parametrize(("number", "units"), [(8, 8000), (0.5, 500), (0.1, 100), (1e3, 1_000_000), (1e22, MAX_UNITS)])
def test_a_number_means_what_its_text_says(number: float, units: int) -> None:
    """YAML and JSON numbers are read as they were written, without binary rounding."""
    assert nano_to_units("cpu", nano("cpu", number), up=False) == units


@pytest.mark.parametrize("number", [float("nan"), float("inf"), True, None, [], b"1", 10**400])
def test_what_is_neither_text_nor_a_finite_number_is_refused(number: object) -> None:
    """A wrong type is a clear error."""
    with pytest.raises(QuantityError):
        nano_to_units("cpu", nano("cpu", number), up=True)  # type: ignore[arg-type]


def test_a_negative_amount_stays_negative() -> None:
    """The sign is the caller's to judge."""
    assert nano_to_units("cpu", nano("cpu", "-1.0005"), up=True) == -1000
    assert nano_to_units("cpu", nano("cpu", "-1.0005"), up=False) == -1001
    assert nano_to_units("memory", nano("memory", "-1e99"), up=True) == -MAX_UNITS


def test_the_error_shows_no_control_characters() -> None:
    """What the user wrote is quoted, short and printable."""
    with pytest.raises(QuantityError) as caught:
        nano_to_units("cpu", nano("cpu", "\x1b[31m" * 10), up=True)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("resource", "units", "text"),
    [
        ("cpu", 8000, "8"),
        ("cpu", 500, "500m"),
        ("cpu", 1500, "1500m"),
        ("cpu", 0, "0"),
        ("memory", 65536, "64Gi"),
        ("memory", 1, "1Mi"),
        ("memory", 1536, "1536Mi"),
        ("memory", 3 * 2**20, "3Ti"),
        ("memory", 2**30, "1Pi"),
        ("memory", 0, "0"),
        ("nvidia.com/gpu", 8, "8"),
        ("pods", 1024, "1024"),
    ],
)
def test_units_are_shown_as_people_write_them(resource: str, units: int, text: str) -> None:
    """Amounts in messages carry Kubernetes' own suffixes."""
    assert format_units(resource, units) == text
