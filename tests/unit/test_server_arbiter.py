"""When the process beside the worker ends it: the clock and gunicorn's own judgement are the test's."""

from __future__ import annotations

import pytest
from gunicorn.arbiter import Arbiter

import webhook.server
from webhook.server import OVERSLEPT_SECONDS, PatientArbiter

HEARTBEAT = 30


def test_a_worker_is_judged_every_second_but_not_soon_after_the_judge_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was stopped along with his worker gives it the time of a heartbeat to give a sign of life."""
    now, judged = [1000.0], list[float]()
    monkeypatch.setattr(webhook.server.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Arbiter, "murder_workers", lambda _: judged.append(now[0]))
    arbiter = object.__new__(PatientArbiter)
    arbiter.timeout = HEARTBEAT

    def look(after: float) -> bool:
        now[0] += after
        arbiter.murder_workers()
        return judged[-1:] == [now[0]]

    assert [look(1.0) for _ in range(3)] == [True] * 3
    assert not look(OVERSLEPT_SECONDS + 1.0)
    assert [look(1.0) for _ in range(HEARTBEAT)] == [False] * (HEARTBEAT - 1) + [True]
