"""The record of the versions that the core of the cluster tests ran on, and the README's table of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hack.matrix.results import README, NoTable, Result, load, save, table, table_in, with_table
from local.releases import RELEASES, patch_version

RESULT = Result(version="v1.30.14", date="2026-01-02", passed=12, skipped=0, failed=[], seconds=300)
OTHER = dataclasses.replace(RESULT, version="v1.9.1", skipped=2, failed=["tests/x.py::test_y"])


VERSIONS = {minor: patch_version(minor) for minor in RELEASES}


def test_the_readme_shows_what_ran() -> None:
    """Its table is the recorded one: nobody claims a version by hand."""
    assert table_in(README.read_text(encoding="utf-8")) == table(load(), VERSIONS)


def test_what_ran_is_what_would_be_built_now() -> None:
    """Another patch of a version is another version: run `make test-matrix`."""
    found = load()
    assert {minor: one.version for minor, one in found.items()} == {minor: VERSIONS[minor] for minor in found}


def test_the_core_passes_where_it_ran() -> None:
    """What fails on a version is mended, or the version is not supported."""
    found = load()
    assert {minor: one.failed for minor, one in found.items() if one.failed} == {}
    assert [minor for minor, one in found.items() if one.passed < 100] == []


def test_the_table_names_what_failed_and_what_never_ran() -> None:
    """The oldest version first, by number and not by letters."""
    shown = table({"1.30": RESULT, "1.9": OTHER}, {"1.9": "v1.9.1", "1.30": "v1.30.14", "1.31": "v1.31.2"})
    assert shown.splitlines()[2:] == [
        "| 1.9 | 1.9.1 | 2026-01-02 | 12 passed, 1 failed, 2 skipped |",
        "| 1.30 | 1.30.14 | 2026-01-02 | 12 passed |",
        "| 1.31 | 1.31.2 | - | not yet |",
    ]


def test_results_are_written_as_they_are_read(tmp_path: Path) -> None:
    """In the order of the versions."""
    path = tmp_path / "results.json"
    save({"1.30": RESULT, "1.9": OTHER}, path)
    assert list(load(path).items()) == [("1.9", OTHER), ("1.30", RESULT)]


def test_a_page_gets_the_table_between_its_comments() -> None:
    """The rest of the page stays; a page without the comments is refused."""
    before = README.read_text(encoding="utf-8")
    page = with_table(before, table({"1.30": RESULT}, {}))
    assert table_in(page) == table({"1.30": RESULT}, {})
    assert with_table(page, table_in(before)) == before
    with pytest.raises(NoTable):
        with_table("no table", "")
    with pytest.raises(NoTable):
        table_in("no table")
