"""Good news waits while many gangs are being placed; nothing else does."""

from __future__ import annotations

import pytest

from engine.controller.controller import LONGEST_REST
from engine.lifecycle.status import BURST_CHECK, LATER, LATER_STILL, MANY, WITHIN, BurstDetector
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.leader import Leader


def running(leader: Leader, gangs: int) -> None:
    """So many gangs of one pod are placed at once and bound."""
    names = [f"gang-{number}" for number in range(gangs)]
    leader.has(*(job(name, count=1, held=True) for name in names))
    leader.settle()
    for name in names:
        bind(leader, name)
    leader.settle()


def start(leader: Leader, name: str) -> None:
    """A gang of one pod is placed and bound."""
    leader.has(job(name, count=1, held=True))
    leader.settle()
    bind(leader, name)
    leader.settle()


def bind(leader: Leader, name: str) -> None:
    placed = leader.placed(name)
    assert placed is not None
    assert placed.assignment is not None
    leader.has(pod(leader.workload(name), 0, host=placed.assignment.pod_sets[0].slots[0].host))


def told(leader: Leader) -> list[str]:
    return sorted(name for name, status in leader.hands.told if status.phase == "Running")


def test_a_gang_alone_is_told_at_once() -> None:
    """Nobody waits for the API server but its own people."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    running(leader, 1)
    assert told(leader) == ["gang-0"]


def test_a_handful_of_gangs_is_told_at_once() -> None:
    """Five Jobs of one person, submitted together."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    running(leader, 5)
    assert len(told(leader)) == 5


def test_in_a_rush_good_news_waits_and_is_told_once() -> None:
    """The writes of placing go first; afterwards every gang is told."""
    leader = Leader(nodes=gpu_nodes(1, 1, MANY))
    running(leader, MANY)
    leader.later(LONGEST_REST)
    assert told(leader) == []
    leader.later(LATER / 2)
    assert told(leader) == []
    leader.later(LATER)
    assert told(leader) == sorted(f"gang-{number}" for number in range(MANY))


def test_while_a_rush_goes_on_good_news_waits_for_its_end_but_not_for_ever() -> None:
    """A gang each tenth of a second: what is told meanwhile would take the processors from those that still come."""
    pace = 0.1
    leader = Leader(nodes=gpu_nodes(1, 1, 200))

    def go_on(seconds: float, first: int) -> int:
        count = round(seconds / pace)
        for number in range(first, first + count):
            start(leader, f"gang-{number}")
            leader.later(pace)
        return first + count

    begun = go_on(LATER + LATER_STILL, 0)
    early = len(told(leader))
    assert early < MANY  # before it was known as a rush
    begun = go_on(MANY * pace + BURST_CHECK + LATER_STILL, begun)
    assert early < len(told(leader)) < begun
    leader.later(WITHIN)
    leader.later(LATER)
    assert len(told(leader)) == begun


def test_what_waited_for_the_end_of_a_rush_is_told_soon_after_it() -> None:
    """Its time was up while the rush went on."""
    pace = 0.1
    leader = Leader(nodes=gpu_nodes(1, 1, 100))
    for number in range(round((LATER + LATER_STILL / 2) / pace)):
        start(leader, f"gang-{number}")
        leader.later(pace)
    assert "gang-17" not in told(leader)
    leader.later(WITHIN)
    leader.later(BURST_CHECK)
    assert "gang-17" in told(leader)


def test_in_a_rush_a_gang_that_waits_is_told_why_at_once() -> None:
    """People act on that."""
    leader = Leader(nodes=gpu_nodes(1, 1, MANY))
    running(leader, MANY)
    leader.has(job("late", count=1, held=True))
    leader.settle()
    assert [(name, status.phase) for name, status in leader.hands.told] == [("late", "Waiting")]


@pytest.mark.parametrize(("pause", "delay"), [(WITHIN / MANY, LATER), (WITHIN, 0.0)])
def test_a_rush_is_many_placements_in_a_short_time(pause: float, delay: float) -> None:
    """The same number at a slower pace is none."""
    bursts = BurstDetector()
    for number in range(MANY):
        assert bursts.delay("Running", number * pause) == 0.0
        bursts.placed(number * pause)
    assert bursts.delay("Running", (MANY - 1) * pause) == delay
    assert bursts.delay("Incomplete", (MANY - 1) * pause) == 0.0
