"""How often the controller's loop turns."""

from __future__ import annotations

import itertools
import threading
import time
from typing import cast

import pytest

from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.controller.controller import FOLLOW_EVERY, GANG_REST, LONGEST_REST, Controller
from engine.controller.executor import ActionExecutor
from engine.gang.gang import Gang
from engine.lifecycle.status import MANY
from tests.support.cluster_records import gpu_nodes, job
from tests.support.leader import Leader


class CountingView(ClusterState):
    """Counts how often it was brought up to date."""

    refreshed = 0

    def refresh(self) -> None:
        self.refreshed += 1
        super().refresh()


def test_a_burst_of_changes_is_taken_in_together() -> None:
    view = CountingView(Stores())
    controller = Controller(view, cast(ActionExecutor, None), leads=lambda: False, begin_term=lambda: False)
    began = time.monotonic()
    loop = threading.Thread(target=controller.run)
    loop.start()
    while view.refreshed < 4:
        view.changed.set()
        time.sleep(0.0005)
    turns = view.refreshed
    controller.stop()
    loop.join(5.0)
    assert not loop.is_alive()
    assert (turns - 1) * FOLLOW_EVERY <= time.monotonic() - began


@pytest.mark.parametrize(("seconds", "rest"), [(0.0, 0.0), (0.01, GANG_REST * 0.01), (1.0, LONGEST_REST)])
def test_a_gang_rests_after_a_look_that_was_dear(monkeypatch: pytest.MonkeyPatch, seconds: float, rest: float) -> None:
    """While its pods come one by one it is looked at now and then, and once more in the end, not at every one."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job(count=4, held=True))
    leader.settle()
    get, looks = leader.view.gangs.get, list[float]()

    def slow(key: str) -> Gang | None:
        looks.append(leader.now)
        leader.now += seconds
        return get(key)

    leader.later(60.0)  # everything about it is told
    monkeypatch.setattr(leader.view.gangs, "get", slow)
    for _ in range(2000):
        leader.view.reconsider("uid-train")
        leader.turn()
        leader.now += 0.001
    leader.turn()
    last = len(looks)
    leader.now += LONGEST_REST
    leader.turn()
    assert len(looks) == last + (seconds > 0)
    between = [later - (look + seconds) for look, later in itertools.pairwise(looks[:last])]
    assert len(between) > 4
    assert all(rest - 1e-6 <= one <= rest + 0.0015 for one in between)


@pytest.mark.parametrize(("gangs", "rest"), [(MANY, LONGEST_REST), (MANY - 1, 0.0)])
def test_placed_gangs_rest_while_many_others_are_placed(
    monkeypatch: pytest.MonkeyPatch, gangs: int, rest: float
) -> None:
    """Their pods come one by one; those that still wait for slots go first. Afterwards each change is looked at."""
    leader = Leader(nodes=gpu_nodes(1, 1, MANY))
    leader.has(*(job(f"gang-{number}", count=1, held=True) for number in range(gangs)))
    leader.settle()
    leader.later(LONGEST_REST)
    get, looks = leader.view.gangs.get, list[float]()

    def look(key: str) -> Gang | None:
        looks.append(leader.now)
        return get(key)

    def turn(seconds: float) -> None:
        looks.clear()
        end = leader.now + seconds
        while leader.now < end:
            leader.view.reconsider("uid-gang-0")
            leader.turn()
            leader.now += 0.01

    monkeypatch.setattr(leader.view.gangs, "get", look)
    turn(1.0)
    between = [later - one for one, later in itertools.pairwise(looks)]
    assert len(between) >= 3
    assert all(rest - 1e-6 <= one <= rest + 0.015 for one in between)
    leader.later(60.0)  # everything about it is told
    turn(1.0)
    assert len(looks) >= 99
