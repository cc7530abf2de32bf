"""Every row of the page of source designs names tests that exist, or says why the feature is not here."""

from __future__ import annotations

import re

from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "source-designs.md"
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"(?m)(?:def |^)(test_\w+)(?=\(| = )", path.read_text())
}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| feature")
]


def test_every_row_names_a_test_that_exists_or_says_that_the_feature_is_not_here() -> None:
    assert len(ROWS) > 60
    for feature, here, tests in ROWS:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names or here.startswith("-: "), f"{feature}: neither a test nor a reason"
        assert set(names) <= TESTS, f"{feature}: {sorted(set(names) - TESTS)}"


def test_no_feature_stands_in_a_design_twice() -> None:
    for part in PAGE.read_text().split("\n## ")[1:]:
        features = re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE)
        assert len(features) == len(set(features)), part.partition("\n")[0]
