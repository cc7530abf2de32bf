"""The lives of gangs under replicas that see everything late, and whose writes fail."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.controller import writer
from tests.support.lagging_cluster.life import Life
from tests.support.lagging_cluster.workloads import JOB, JOB_SET, NON_INDEXED_JOB, STATEFUL_SET, TRAINING_JOB
from tests.support.lives import lives

JOBS: Final = (JOB,)
TRAINING_JOBS: Final = (TRAINING_JOB,)
STATEFUL_SETS: Final = (STATEFUL_SET,)
NON_INDEXED_JOBS: Final = (NON_INDEXED_JOB,)
JOB_SETS: Final = (JOB_SET,)
ALL: Final = (JOB, TRAINING_JOB, STATEFUL_SET)
ALL_OF_JOBS: Final = (JOB, NON_INDEXED_JOB, JOB_SET)
KINDS: Final = (JOBS, TRAINING_JOBS, STATEFUL_SETS, ALL, NON_INDEXED_JOBS, JOB_SETS, ALL_OF_JOBS)
# 11 and 76 of Jobs and 1135 of StatefulSets find defects again when their mends are taken out.
LIVES: Final = (
    *((JOBS, seed) for seed in (*range(1, 25), 76)),
    *((TRAINING_JOBS, seed) for seed in range(1, 11)),
    *((STATEFUL_SETS, seed) for seed in (*range(1, 7), 1135)),
    *((ALL, seed) for seed in range(1, 7)),
    *((NON_INDEXED_JOBS, seed) for seed in (3, 4, 8)),
    *((JOB_SETS, seed) for seed in range(2, 6)),
    *((ALL_OF_JOBS, seed) for seed in (2, 4, 6)),
)
STEPS: Final = 250


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Placement is read back at once; in these lives only the model's clock tells the time."""
    monkeypatch.setattr(writer, "READ_BACK_EVERY", 0.0)


def check(kinds: tuple[str, ...], seed: int, *, edits: bool = False) -> None:
    life = Life(seed, kinds=kinds, edits=edits)
    life.live(STEPS)
    if life.world.violated:
        pytest.fail(life.world.report(), pytrace=False)


@pytest.mark.parametrize(("kinds", "seed"), LIVES)
def test_gangs_live_under_lagging_watches(kinds: tuple[str, ...], seed: int) -> None:
    """No host is promised twice, no gang starts in part, and at rest every gang runs or rightly waits."""
    check(kinds, seed)


# All three find a defect again when its mend is taken out.
@pytest.mark.parametrize("seed", [16, 69, 250])
def test_what_waits_is_asked_for_anew(seed: int) -> None:
    """The same where users edit the requests of gangs that wait, which the leader sees late."""
    check(JOBS, seed, edits=True)


# Another seed is another life: nothing is learnt from smaller ones.
@settings(lives(5, steps=1), phases=(Phase.explicit, Phase.generate))
@given(kinds=st.sampled_from(KINDS), seed=st.integers(1_000, 2**31), edits=st.booleans())
def test_gangs_live_under_lagging_watches_that_nobody_has_tried(kinds: tuple[str, ...], seed: int, edits: bool) -> None:
    """The same with seeds that `make test-random` and `make test-nightly` draw anew; those that failed are examples."""
    check(kinds, seed, edits=edits)
