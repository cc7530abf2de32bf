"""Koordinator's own cases of device requests, answered here; and the page that counts them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.koordinator_cases import KoordinatorCase, koordinator_cases

CASES = koordinator_cases()
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "gpu-cases.md"


@pytest.mark.parametrize("case", [case for case in CASES if case.outside is None], ids=lambda case: case.id)
def test_answers_the_case(case: KoordinatorCase) -> None:
    """What Koordinator answers, or what the case says we answer instead."""
    assert case.answer() == case.expected


def test_every_difference_has_its_reason_and_is_one() -> None:
    """A case decided differently says why; a case that says why is decided differently."""
    for case in CASES:
        assert (case.ours is None) == (case.differs is None), case.id
        assert case.ours != case.koordinator, case.id


def test_a_request_that_asks_for_nothing_says_why_silence_is_right() -> None:
    """Whoever writes a device means one: without it he is told, or the case says who tells him."""
    for case in CASES:
        assert (case.expected == {"dimensions": {}}) == (case.silent is not None), case.id


def test_the_tables_of_the_reference_are_true() -> None:
    """docs/reference/gpu-cases.md gives the counts that the cases give, by kind and by reason."""
    counted: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    for case in CASES:
        row = counted.setdefault(case.kind, Counter())
        row["cases"] += 1
        if case.outside is not None or case.differs is not None:
            row["outside" if case.outside is not None else "differs"] += 1
            reasons[case.outside or case.differs or ""] += 1
        else:
            row["both refuse" if case.koordinator == {"refused": True} else "the same"] += 1
    text = REFERENCE.read_text()
    columns = ["cases", "the same", "both refuse", "differs", "outside"]
    rows = {name: numbers for name, numbers in re.findall(r"^\| (\w+) \|((?: \d+ \|)+)", text, re.M)}
    told = {name: [int(number) for number in numbers.split("|")[:-1]] for name, numbers in rows.items()}
    assert told == {name: [row[column] for column in columns] for name, row in counted.items()}
    assert {
        reason: int(number) for reason, number in re.findall(r"^\| ([^|]{12,}) \| (\d+) \|$", text, re.M)
    } == reasons
