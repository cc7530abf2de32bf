"""When the process beside the worker ends it: the clock and gunicorn's own judgement are the test's."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from gunicorn.arbiter import Arbiter

from webhook.server import wsgi
from webhook.server.wsgi import HEARTBEAT_SECONDS, OVERSLEPT_SECONDS, PatientArbiter, Server, Service

SERVICE = Service(start=Mock(), ready=Mock(), context=Mock())


@pytest.mark.parametrize("looks", [0, 3])
def test_a_worker_is_judged_every_second_but_not_soon_after_the_judge_slept(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Whoever was stopped along with his worker, also before his first look, gives it the time of a heartbeat."""
    now, judged = [1000.0], list[float]()
    monkeypatch.setattr(wsgi.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Arbiter, "murder_workers", lambda _: judged.append(now[0]))
    arbiter = PatientArbiter(Server(SERVICE, port=0))

    def look(after: float) -> bool:
        now[0] += after
        arbiter.murder_workers()
        return judged[-1:] == [now[0]]

    assert [look(1.0) for _ in range(looks)] == [True] * looks
    assert not look(OVERSLEPT_SECONDS + 1.0)
    assert [look(1.0) for _ in range(HEARTBEAT_SECONDS)] == [False] * (HEARTBEAT_SECONDS - 1) + [True]
