"""The placement cases of Kueue, KAI-Scheduler and Volcano, answered by our planner."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from engine.planner.gang import GangPlan
from engine.planner.plan import NoFit
from tests.support.peer_cases import PeerCase, peer_cases

CASES = peer_cases()
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "peer-cases.md"


@pytest.mark.parametrize("case", [case for case in CASES if case.differs is None], ids=lambda case: case.name)
def test_fits_where_the_peer_says_so_in_no_more_domains(case: PeerCase) -> None:
    """Feasibility is the peer's; the plan is proven, and opens no more domains than the peer's placement."""
    answer = case.answer()
    assert isinstance(answer, GangPlan if case.fits else NoFit)
    if isinstance(answer, GangPlan):
        assert answer.proven
        if case.places is not None:
            ours, theirs = case.costs(answer)
            assert ours <= theirs
            assert case.best in (None, ours)


def _decided(case: PeerCase) -> str:
    try:
        answer = case.answer()
    except ValueError as error:
        return str(error).partition(":")[0]
    return "fits" if isinstance(answer, GangPlan) else "no"


@pytest.mark.parametrize(
    ("differs", "peer", "ours"),
    [
        pytest.param("count is not whole slices", "fits", "slices", id="Kueue drops the rest of the pods"),
        pytest.param("host level", "fits", "no", id="Kueue sums up the hosts of a rack, eligible or not"),
        pytest.param("pod set without a level", "no", "fits", id="Kueue wants a level on each pod set"),
        pytest.param("slice level above the required level", "no", "fits", id="Kueue refuses what is true anyway"),
    ],
)
def test_where_we_decide_differently(differs: str, peer: str, ours: str) -> None:
    """Each difference has its reason, and is the same in all of its cases."""
    cases = [case for case in CASES if case.differs == differs]
    assert cases
    assert {"fits" if case.fits else "no" for case in cases} == {peer}
    assert {_decided(case) for case in cases} == {ours}


def test_the_table_of_the_reference_is_true() -> None:
    """docs/reference/peer-cases.md gives the counts that the cases give."""
    counted: dict[str, Counter[str]] = {}
    for case in CASES:
        row = counted.setdefault(case.peer, Counter())
        row["cases"] += 1
        answer = None if case.differs else case.answer()
        if answer is None:
            row["differs"] += 1
        elif not isinstance(answer, GangPlan):
            row["both refuse"] += 1
        elif case.places is None:
            row["both place"] += 1
        else:
            ours, theirs = case.costs(answer)
            fewer = "fewer, by level" if case.levelled else "fewer, unconstrained"
            row["as many" if ours == theirs else fewer] += 1
    columns = ["cases", "both refuse", "both place", "as many", "fewer, by level", "fewer, unconstrained", "differs"]
    rows = {
        name.lower(): numbers
        for name, numbers in re.findall(r"^\| (\w+) \|((?: \d+ \|)+)$", REFERENCE.read_text(), re.M)
    }
    told = {name: [int(number) for number in numbers.split("|")[:-1]] for name, numbers in rows.items()}
    assert told == {name: [row[column] for column in columns] for name, row in counted.items()}
