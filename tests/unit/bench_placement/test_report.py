"""What is said about runs: verdicts, tables, plots, the command."""

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.placement import page, report
from bench.placement.__main__ import main
from bench.placement.metrics import Measured
from bench.placement.runs import Record, Setting, line, read
from bench.placement.topologies import scenarios

SETTING = Setting("L", False, 0.9)
MEASURED = Measured(*[1.0] * 16)


def records(**excess: list[float]) -> list[Record]:
    """Excess racks per rule and seed; all else is the same."""
    return [
        Record(SETTING, seed, 100, rule, replace(MEASURED, excess_racks=value))
        for rule, values in excess.items()
        for seed, value in enumerate(values)
    ]


def verdict(**excess: list[float]) -> tuple[str, str]:
    found = report.compare(records(**excess), SETTING, report.EXCESS)
    assert found is not None
    return found.peer, found.verdict


def test_we_are_compared_with_the_best_peer() -> None:
    """Not with the one that makes us look best, and not with the oracle."""
    assert verdict(topogate=[1, 1.1], kueue=[2, 2.1], native=[9, 9], capacity=[0, 0]) == ("kueue", "better")


def test_a_loss_is_a_loss() -> None:
    """Worse when the interval lies on the peer's side."""
    assert verdict(topogate=[2, 2.1], kai=[1, 1.1]) == ("kai", "worse")


def test_what_may_be_chance_is_even() -> None:
    """The interval of the differences holds zero."""
    assert verdict(topogate=[1, 3, 2], kueue=[2, 2, 3]) == ("kueue", "even")


def test_more_is_better_on_the_first_try() -> None:
    """The direction belongs to the number."""
    made = [
        Record(SETTING, seed, 100, rule, replace(MEASURED, first_try=share))
        for rule, share in (("topogate", 0.9), ("kueue", 0.7), ("volcano", 0.8))
        for seed in (0, 1)
    ]
    found = report.compare(made, SETTING, report.FIRST)
    assert found is not None
    assert (found.peer, found.verdict, found.told) == ("volcano", "better", "+10.0 ± 0.0 points")


def test_the_page_says_where_we_lose() -> None:
    """A lost comparison and a missed goal are on the page."""
    text = page.page(records(topogate=[2, 2.1], kueue=[1, 1.1]), scenarios().values(), command="make it")
    lost = text.partition("## Where Topogate does not win")[2]
    assert "worse in 1." in lost
    assert "excess racks 2.050 vs 1.050 (kueue)" in lost
    assert states(text) == ["missed"]


def states(text: str) -> list[str]:
    """What became of the first goal."""
    goal = text.partition("## The goals")[2].partition("- More gangs")[0]
    return re.findall(r"\*\*(.+)\*\*", goal)


@pytest.mark.parametrize(
    ("ours", "state"),
    [
        ([0.5, 0.51, 0.5], "met"),
        ([0.4, 0.7, 0.8], "met on average, the interval reaches beyond"),
        ([0.8, 0.8, 0.81], "missed"),
    ],
)
def test_a_goal_is_met_for_certain_or_on_average_or_missed(ours: list[float], state: str) -> None:
    """30 % below: by the far end of the interval, by the mean, or not."""
    made = records(topogate=ours, kueue=[1.0, 1.0, 1.0])
    assert states(page.page(made, scenarios().values(), command="")) == [state]


def test_plots_are_well_formed_and_draw_every_rule_but_the_far_off_one() -> None:
    """XML with a line in the legend per rule."""
    made = page.images(records(topogate=[1, 2], kueue=[2, 3], native=[50, 60]))
    for text in made.values():
        words = [element.text for element in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
        assert "topogate" in words
        assert "kueue" in words
        assert "native" not in words


def test_rules_are_told_apart_without_colours() -> None:
    """Every rule has a mark of its own, the same in the legend and on its line."""
    made = page.images(records(topogate=[1, 2], kueue=[2, 3], kai=[3, 4], volcano=[4, 5], capacity=[0, 1]))
    marks: dict[str, set[str]] = {}
    for element in ElementTree.fromstring(made["placement-first-try.svg"]).iter("{http://www.w3.org/2000/svg}path"):
        if "fill" in element.attrib and element.get("fill") != "none":
            marks.setdefault(element.attrib["fill"], set()).add(element.attrib["d"].split("m")[1])
    assert [len(found) for found in marks.values()] == [1] * 5
    assert len({mark for found in marks.values() for mark in found}) == 5


def test_records_survive_the_file(tmp_path: Path) -> None:
    """Also what is not a number."""
    record = Record(SETTING, 3, 100, "kueue", replace(MEASURED, optimal=math.nan))
    path = tmp_path / "records.jsonl"
    path.write_text(line(record) + "\n")
    (again,) = read(path)
    assert math.isnan(again.measured.optimal)
    assert replace(again, measured=MEASURED) == replace(record, measured=MEASURED)


@pytest.mark.parametrize("text", ["{}", "[]", "1", "{", '{"measured": {}}', '{"measured": []}'])
def test_a_line_that_is_no_record_is_named(text: str, tmp_path: Path) -> None:
    """File and line."""
    path = tmp_path / "records.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(ValueError, match=r"records.jsonl:1: not a record"):
        read(path)


def test_the_command_runs_keeps_and_publishes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two tiny streams; then the page again from the records alone, the same to the byte."""
    out, docs, again = tmp_path / "out.jsonl", tmp_path / "docs", tmp_path / "again"
    tiny = ["--quick", "--scenario", "C", "--jobs", "60", "--out", str(out), "--publish", str(docs)]
    assert main(tiny) == 0
    assert "C, best effort, load 0.9" in capsys.readouterr().out
    assert main(["--read", str(out), "--publish", str(again)]) == 0
    files = sorted(path.relative_to(docs) for path in docs.rglob("*.*"))
    assert len(files) == 4
    assert all((docs / path).read_bytes() == (again / path).read_bytes() for path in files)


def test_a_trace_replaces_the_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its jobs run on the scenario's cluster; levels that are too small for a job are told."""
    trace = tmp_path / "jobs.csv"
    rows = [f"{i * 60},600,{20 if i % 2 else 1},8,required,rack" for i in range(40)]
    trace.write_text("submit_s,duration_s,pods,gpus_per_pod,topology_mode,topology_level\n" + "\n".join(rows))
    assert main(["--quick", "--scenario", "L", "--trace", str(trace), "--out", str(tmp_path / "out.jsonl")]) == 0
    output = capsys.readouterr()
    assert "L (jobs.csv), best effort" in output.out
    assert "20 jobs are too big for their level" in output.err


@pytest.mark.parametrize(
    "wrong", [["--trace", "/nowhere/jobs.csv"], ["--topology", "/nowhere/hosts.csv"], ["--read", "/nowhere/x.jsonl"]]
)
def test_a_file_that_is_not_there_is_told(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the file's name, no stack."""
    assert main(wrong) == 2
    assert "/nowhere/" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["--load", "0"], ["--load", "nan"], ["--seeds", "0"], ["--jobs", "x"], ["--scenario", "Z"]]
)
def test_options_that_make_no_sense_are_refused(wrong: list[str]) -> None:
    """By the parser, with its exit code."""
    with pytest.raises(SystemExit) as stop:
        main(wrong)
    assert stop.value.code == 2
