"""What forecasts may cost."""

from __future__ import annotations

import pytest

from webhook.admission import forecast_budget
from webhook.admission.forecast_budget import MOST, SHARE, ForecastBudget


class Time:
    """A clock and a processor that a test moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.computed = 0.0
        self.allowance = ForecastBudget(clock=lambda: self.now, cpu=lambda: self.computed)

    def forecast(self, namespace: str, seconds: float) -> None:
        with self.allowance.used(namespace):
            self.computed += seconds
            self.now += seconds


def test_a_namespace_uses_up_what_it_has_and_gets_its_share_back() -> None:
    """A dear forecast is made once; the next one when the namespace has earned it."""
    time = Time()
    time.forecast("a", MOST + 1.0)
    assert time.allowance.left("a") == pytest.approx(-1.0)
    time.now += 1.0 / SHARE - 0.1
    assert time.allowance.left("a") < 0
    time.now += 0.2
    assert time.allowance.left("a") > 0


def test_nobody_saves_up_more_than_what_everybody_begins_with() -> None:
    """However long a namespace was silent."""
    time = Time()
    time.forecast("a", 1.0)
    time.now += 1e6
    assert time.allowance.left("a") == time.allowance.left("b") == MOST


def test_other_namespaces_have_their_own() -> None:
    """One tenant's forecasts take nothing of another's."""
    time = Time()
    time.forecast("a", MOST + 1.0)
    assert time.allowance.left("b") == MOST


def test_a_forecast_that_fails_is_paid_for() -> None:
    """It was computed all the same."""
    time = Time()
    with pytest.raises(RuntimeError), time.allowance.used("a"):
        time.computed += 1.0
        raise RuntimeError
    assert time.allowance.left("a") == pytest.approx(MOST - 1.0)


def test_names_of_namespaces_take_no_memory_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many the one that has been silent for longest starts afresh."""
    monkeypatch.setattr(forecast_budget, "REMEMBERED", 2)
    time = Time()
    for namespace in ("a", "b", "a", "c"):
        time.forecast(namespace, 0.5)
    assert set(time.allowance._left) == {"a", "c"}
