"""The growth benchmark: its exponents, and that what it measures happens."""

from __future__ import annotations

import pytest

from bench.growth.__main__ import exponents
from bench.growth.measures import Scene, measure


def row(hosts: int, **figures: float | None) -> dict[str, float | None]:
    unknown = dict.fromkeys(
        ("memory", "begin", "idle", "pod_event", "node_event", "node_joins", "plan_rack", "plan_block"), 1.0
    )
    return {"hosts": hosts, "freed": None, "freed_all": None, **unknown, **figures}


def test_a_figure_in_proportion_has_exponent_one() -> None:
    rows = [row(hosts, memory=hosts / 64, begin=hosts**2, idle=3.0) for hosts in (1_000, 10_000, 100_000)]
    found = exponents(rows, "hosts")
    assert found["memory"] == pytest.approx(1.0)
    assert found["begin"] == pytest.approx(2.0)
    assert found["idle"] == pytest.approx(0.0, abs=1e-9)


def test_a_figure_that_was_not_measured_has_none() -> None:
    assert "freed" not in exponents([row(1_000), row(10_000)], "hosts")


def test_one_size_has_no_growth() -> None:
    assert exponents([row(1_000)], "hosts") == {}


@pytest.mark.parametrize("hosts", [0, 1_000])
def test_hosts_are_whole_blocks(hosts: int) -> None:
    with pytest.raises(ValueError, match="not blocks of 1024"):
        Scene(hosts, 1).size()


def test_a_freed_gang_s_hosts_go_to_a_waiting_one() -> None:
    """All hosts are in use; the benchmark only returns when the leader has placed a gang on what it freed."""
    found = measure(Scene(1_024, 3, full=True), rounds=1)
    assert (found.hosts, found.running, found.waiting) == (1_024, 64, 3)
    assert found.freed is not None and found.freed_all is not None
    assert 0 < found.freed <= found.freed_all
