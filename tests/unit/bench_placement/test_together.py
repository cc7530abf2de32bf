"""Settings taken together: what is noise in each of them need not be in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from bench.placement import page
from bench.placement.metrics import Measured
from bench.placement.report import EXCESS, FIRST, WAIT, compare
from bench.placement.runs import Record, Setting
from bench.placement.together import pooled, together
from bench.placement.topologies import scenarios

MEASURED = Measured(*[1.0] * 16)
C, L = Setting("C", False, 0.9), Setting("L", False, 0.9)
STRICT = Setting("L", True, 0.7)


def records(waits: Mapping[tuple[Setting, str], Sequence[float]], attribute: str = "wait_mean") -> list[Record]:
    """Per setting and rule the number of each seed; all else is the same."""
    return [
        Record(setting, seed, 100, rule, replace(MEASURED, **{attribute: value}))
        for (setting, rule), values in waits.items()
        for seed, value in enumerate(values)
    ]


# Noise of opposite signs around 10 % more than the peer.
WORSE = {
    (C, "topogate"): [101.0, 119.0, 111.0],
    (C, "kueue"): [100.0, 100.0, 100.0],
    (L, "topogate"): [12.0, 10.0, 11.0],
    (L, "kueue"): [10.0, 10.0, 10.0],
}


def test_what_is_noise_in_each_setting_is_told_when_it_is_none_in_all() -> None:
    """Differences are averaged over the settings by seed, as shares of each peer's mean."""
    made = records(WORSE)
    for setting in (C, L):
        found = compare(made, setting, WAIT)
        assert found is not None
        assert found.verdict == "even"
    change = pooled(made, [C, L], WAIT)
    assert change is not None
    assert change.mean == pytest.approx((31 / 300 + 3 / 30) / 2)
    assert change.certain
    assert "_+10 ± 1 %_" in together(made, [("C", "L")])


def test_a_loss_together_is_on_the_page() -> None:
    """Above the goals, and only where there is more than one scenario of the group."""
    assert "_+10 ± 1 %_" in page.page(records(WORSE), scenarios().values(), command="").partition("## The goals")[0]
    alone = records({key: values for key, values in WORSE.items() if key[0] == C})
    assert "taken together" not in page.page(alone, scenarios().values(), command="").partition("## The goals")[0]


def test_shares_are_pooled_as_points() -> None:
    """A share is not divided by the peer's; more is better."""
    shares = {
        (setting, rule): [share, share] for setting in (C, L) for rule, share in (("topogate", 0.9), ("kueue", 0.5))
    }
    made = records(shares, "first_try")
    change = pooled(made, [C, L], FIRST)
    assert change is not None
    assert change.mean == pytest.approx(0.4)
    assert "**+40.0 ± 0.0 points**" in together(made, [("C", "L")])


def test_a_peer_without_any_is_left_out() -> None:
    """Nothing is no base for a share."""
    made = records(WORSE | {(C, "kueue"): [0.0, 0.0, 0.0]})
    assert pooled(made, [C, L], WAIT) == pooled(made, [L], WAIT)
    assert pooled(made, [C], WAIT) is None


def test_settings_of_unlike_seeds_are_not_pooled() -> None:
    """Seeds that are not in all settings would be no pairs."""
    made = records(WORSE | {(L, "topogate"): [12.0, 10.0], (L, "kueue"): [10.0, 10.0]})
    assert pooled(made, [C, L], EXCESS) is None


def test_the_strict_queue_is_not_taken_in() -> None:
    """Only settings with the best-effort queue are pooled; a single one is no group."""
    made = records({(C, "topogate"): [1.0, 1.0], (C, "kueue"): [2.0, 2.0]})
    made += records({(STRICT, "topogate"): [1.0, 1.0], (STRICT, "kueue"): [2.0, 2.0]})
    assert "load" not in together(made, [("C", "L")])
