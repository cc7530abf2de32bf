"""Koordinator's own cases of choosing devices, answered here; and the page that counts them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.device_cases import DeviceCase, device_cases

CASES = device_cases()
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "device-cases.md"


@pytest.mark.parametrize("case", [case for case in CASES if case.outside is None], ids=lambda case: case.id)
def test_chooses_the_devices_of_the_case(case: DeviceCase) -> None:
    """The devices that Koordinator's allocator gives, or those that the case says we give instead."""
    assert case.answer() == case.expected


def test_every_different_choice_has_its_reason_and_is_one() -> None:
    """A case decided differently says why; a case that says why is decided differently; none is told twice."""
    for case in CASES:
        assert (case.ours is None) == (case.differs is None), case.id
        assert case.ours != case.koordinator, case.id
    assert len({case.id for case in CASES}) == len(CASES)


def test_the_tables_of_the_page_are_true() -> None:
    """docs/reference/device-cases.md gives the counts that the cases give, by host and by reason."""
    counted: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    for case in CASES:
        row = counted.setdefault(case.host, Counter())
        row["cases"] += 1
        row["outside" if case.outside else "differs" if case.differs else "the same"] += 1
        if case.outside or case.differs:
            reasons[case.outside or case.differs or ""] += 1
    text = REFERENCE.read_text()
    rows = re.findall(r"^\| ([a-z, ]+) \|((?: \d+ \|){4})$", text, re.M)
    told = {name: [int(number) for number in numbers.split("|")[:-1]] for name, numbers in rows}
    columns = ["cases", "the same", "differs", "outside"]
    assert told == {name: [row[column] for column in columns] for name, row in counted.items()}
    assert {reason: int(n) for reason, n in re.findall(r"^\| ([^|]{12,}) \| (\d+) \|$", text, re.M)} == reasons
