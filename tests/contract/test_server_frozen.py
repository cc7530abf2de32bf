"""A server that was stopped for a while, as a frozen container or machine is: what it does when it thaws."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.eventually import eventually
from tests.support.replica import Replica, read_answer, request_bytes, review_body
from webhook.server.worker import SWEEP_SECONDS
from webhook.server.wsgi import OVERSLEPT_SECONDS


@contextlib.contextmanager
def frozen(*processes: int) -> Iterator[None]:
    """Stop them; they go on one after the other, each when the one before has looked around."""
    with contextlib.ExitStack() as stack:
        for process in processes:
            handle = os.pidfd_open(process)
            stack.callback(os.close, handle)
            stack.callback(_send, handle, signal.SIGCONT)  # whatever happens: a stopped process ends for nobody
            _send(handle, signal.SIGSTOP)
        yield
        for process in processes:
            before = sleeps(process)
            os.kill(process, signal.SIGCONT)
            eventually(lambda process=process, before=before: sleeps(process) > before + 1)  # type: ignore[misc]


def _send(handle: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, number)


def sleeps(process: int) -> int:
    """How often it has gone to sleep by itself."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def test_who_has_hung_up_is_not_answered(folder: Path) -> None:
    """Reviews that were given up while the worker was frozen or busy cost it nothing any more."""
    with Replica(folder) as replica:
        client = replica.tls()
        with frozen(replica.worker):
            client.sendall(request_bytes(review_body("given-up", name="hold")))
            client.close()
        assert replica.ask()[0] == 200
        eventually(lambda: replica.metric("topogate_connections") == 0)
        assert "entered given-up" not in replica.seen


def test_the_time_for_a_review_counts_from_when_it_came_and_not_from_the_thaw(folder: Path) -> None:
    """A worker that was frozen for longer than the API server waits answers 503 instead of working for nobody."""
    with Replica(folder) as replica, replica.tls() as client:
        with frozen(replica.worker):
            client.sendall(request_bytes(review_body("late", name="hold"), path="/mutate?timeout=1s"))
            time.sleep(SWEEP_SECONDS + 1.5)
        assert read_answer(client)[0] == 503
        assert "entered late" not in replica.seen


def test_a_worker_that_thaws_after_its_arbiter_is_not_taken_for_dead(folder: Path) -> None:
    """Its silence is the arbiter's own: caches, connections and Lease are not thrown away."""
    with Replica(folder, heartbeat=3) as replica:
        with frozen(replica.process.pid, replica.worker):
            time.sleep(OVERSLEPT_SECONDS + 1.0)
        assert replica.ask()[0] == 200
        assert replica.worker_lives()
