"""What is said about runs with priorities: pairs, tables, the page, the command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest

from bench.placement.preemption import page, report
from bench.placement.preemption.__main__ import main
from bench.placement.preemption.measured import Outcome
from bench.placement.preemption.records import Record, Setting, line, read
from bench.placement.preemption.rules import AT_ONCE, CONSOLIDATES, KAI_STAYS, MOVES, NEVER, STAY
from bench.placement.rules import OURS
from bench.placement.topologies import scenarios

SETTING = Setting("L", 0.95, 0.1)
OUTCOME = Outcome(*[1.0] * len(fields(Outcome)))


def records(values: Mapping[str, Sequence[float]], attribute: str = "lost", setting: Setting = SETTING) -> list[Record]:
    """One number per scheduler and seed; all else is the same."""
    return [
        Record(setting, seed, 100, scheduler, replace(OUTCOME, **{attribute: value}))
        for scheduler, numbers in values.items()
        for seed, value in enumerate(numbers)
    ]


def test_ours_without_a_delay_is_held_against_the_best_peer() -> None:
    """As the peers have no delay either; ours with the policy's default is not compared with them."""
    made = records({OURS: [0.0, 0.0], AT_ONCE: [0.02, 0.021], "kueue": [0.01, 0.011], "kai": [0.03, 0.03]})
    found = report.best_peer(made, SETTING, report.LOST)
    assert found is not None
    assert (found.other, found.verdict) == ("kueue", "worse")
    assert found.cell == "2.05% vs 1.05% (kueue): _+1.00 ± 0.00 points_"


def test_what_may_be_chance_is_even() -> None:
    """The interval of the differences holds zero."""
    found = report.best_peer(records({AT_ONCE: [1, 3, 2], "kai": [2, 2, 3]}), SETTING, report.LOST)
    assert found is not None
    assert found.verdict == "even"


def test_more_useful_work_is_better() -> None:
    """The direction belongs to the number."""
    found = report.best_peer(
        records({AT_ONCE: [0.9, 0.91], "kai": [0.8, 0.8], "kueue": [0.85, 0.86]}, "useful"), SETTING, report.USEFUL
    )
    assert found is not None
    assert (found.other, found.verdict) == ("kueue", "better")


def test_the_gain_is_beside_the_same_without_preemption() -> None:
    """Per cent of the wait without; a wait of nothing is no base."""
    made = records({OURS: [1.0, 2.0], NEVER: [20.0, 20.0]}, "high_mean")
    assert "1.5 s vs 20 s: **-92 ± 32 %**" in report.gained_table(made)
    assert "1.5 s vs 0.0 s: -" in report.gained_table(records({OURS: [1.0, 2.0], NEVER: [0.0, 0.0]}, "high_mean"))


def test_moves_are_beside_the_same_scheduler_without() -> None:
    """Ours beside ours and KAI beside KAI, with a line for each; settings with classes are not among them."""
    waits = {STAY: [20.0, 20.0], MOVES: [15.0, 15.0], KAI_STAYS: [30.0, 30.0], CONSOLIDATES: [60.0, 60.0]}
    made = [*records(waits, "gang_wait_mean", Setting("C", 0.9, 0.0)), *records({OURS: [1.0, 1.0]})]
    text = report.moves_table(made)
    assert "| C, load 0.9: topogate, moves | 15 s vs 20 s: **-25 ± 0 %**" in text
    assert "| C, load 0.9: kai, consolidation | 60 s vs 30 s: _+100 ± 0 %_" in text
    assert "L, load" not in text
    assert "What moves change" in page.page(made, scenarios().values(), command="make it")


def test_the_page_lists_what_we_lose() -> None:
    """With both numbers and the peer's name."""
    text = page.page(records({AT_ONCE: [2, 2.1], "kueue": [1, 1.1]}), scenarios().values(), command="make it")
    assert "worse in 1:" in text
    assert "`protect.runningFor` bounds" in text
    assert "- L, load 0.95, 10% high: GPU time lost 205.00% vs 105.00% (kueue): +100.00 ± 0.00 points" in text


def test_records_survive_the_file(tmp_path: Path) -> None:
    """Also what is not a number."""
    record = Record(SETTING, 3, 100, "kueue", replace(OUTCOME, low_p95=math.nan))
    path = tmp_path / "records.jsonl"
    path.write_text(line(record) + "\n")
    (again,) = read(path)
    assert math.isnan(again.outcome.low_p95)
    assert replace(again, outcome=OUTCOME) == replace(record, outcome=OUTCOME)


@pytest.mark.parametrize("text", ["{}", "[]", "1", "{", '{"outcome": {}}', '{"outcome": []}'])
def test_a_line_that_is_no_record_is_named(text: str, tmp_path: Path) -> None:
    """File and line; so is a file without any."""
    path = tmp_path / "records.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(ValueError, match=r"records.jsonl:1: not a record"):
        read(path)
    path.write_text("")
    with pytest.raises(ValueError, match=r"records.jsonl: no records"):
        read(path)


def test_the_command_runs_keeps_and_publishes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two tiny streams; then the page again from the records alone, the same to the byte."""
    out, docs, again = tmp_path / "out.jsonl", tmp_path / "docs", tmp_path / "again"
    assert main(["--quick", "--jobs", "60", "--out", str(out), "--publish", str(docs)]) == 0
    printed = capsys.readouterr().out
    assert "L, load 0.95, 10% high" in printed
    assert "L, load 0.95: topogate, moves" in printed
    assert main(["--read", str(out), "--publish", str(again)]) == 0
    (written,) = docs.rglob("*.*")
    assert written == docs / "benchmarks" / "preemption.md"
    assert written.read_bytes() == (again / "benchmarks" / "preemption.md").read_bytes()


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the file's name, no stack."""
    assert main(["--read", "/nowhere/x.jsonl"]) == 2
    assert "/nowhere/x.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--load", "0"], ["--part", "x"], ["--seeds", "0"], ["--scenario", "x"]])
def test_options_that_make_no_sense_are_refused(wrong: list[str]) -> None:
    """By the parser, with its exit code."""
    with pytest.raises(SystemExit) as stop:
        main(wrong)
    assert stop.value.code == 2
