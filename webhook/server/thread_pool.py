"""The threads that work on connections: many reviews are small, and none of them waits behind a large one.

What a review costs grows with its size, and its size is its sender's choice. Small ones share a few turns. Of large
ones (as soon as the head says so) one thread reads the bytes and one computes the answers, one after the other: they
cost the others a bounded share of the processor and no place in a queue. So do handshakes, which anybody can ask for.
In each queue the addresses take turns: a crowd that comes past the API server does not keep it waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

from webhook.admission.concurrency import ReviewSlots
from webhook.server.connection import Connection, Progress
from webhook.server.fair_queue import FairQueue
from webhook.server.processor_share import ProcessorShare

MAX_WAITING: Final = 16 * 1024 * 1024  # bytes of large requests that are here and wait for their answer

Work = Callable[..., Progress]


class ThreadPool:
    """What gunicorn's worker takes for its thread pool.

    All threads are there from the start: one that could only be had later may not be had then. Raises RuntimeError.
    """

    def __init__(self, turns: ReviewSlots) -> None:
        share = ProcessorShare()
        self._small = _Pool(turns.count + turns.places, "review", guard=turns.turn)
        self._handshakes = _Pool(1, "handshakes")
        self._reading = _Pool(1, "large-reading", guard=share.piece)
        self._large = _Pool(1, "large-review", guard=share.piece)
        self._lock = threading.Lock()
        self._waiting = 0

    def submit(self, work: Work, connection: Connection) -> Future[Progress]:
        """Have `work(connection)` done where the connection's request belongs.

        A large request for which there is no room is handed to `work` with `busy=True`.
        """
        if not connection.handshaken:
            return self._handshakes.submit(work, connection)
        if not connection.large:
            return self._small.submit(work, connection)
        if not connection.complete:
            return self._reading.submit(work, connection)
        size = len(connection.buffer)
        with self._lock:
            if self._waiting + size > MAX_WAITING:
                return self._small.submit(work, connection, busy=True)
            self._waiting += size
        future = self._large.submit(work, connection)
        future.add_done_callback(lambda _: self._over(size))
        return future

    def shutdown(self, wait: bool = True) -> None:
        """Take no more work; `wait` for what is under way."""
        for pool in (self._handshakes, self._small, self._reading, self._large):
            pool.shutdown(wait)

    def _over(self, size: int) -> None:
        with self._lock:
            self._waiting -= size


class _Task(NamedTuple):
    future: Future[Progress]
    work: Work
    connection: Connection
    options: dict[str, Any]


class _Pool:
    """Threads that take their tasks from a fair queue, each within `guard()`."""

    def __init__(
        self, count: int, name: str, *, guard: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self._guard = guard
        self._tasks: FairQueue[_Task] = FairQueue()
        self._executor = _started(count, name)

    def submit(self, work: Work, connection: Connection, **options: Any) -> Future[Progress]:
        task = _Task(Future(), work, connection, options)
        self._tasks.put(connection.address, task)
        self._executor.submit(self._run_next)
        return task.future

    def shutdown(self, wait: bool) -> None:
        self._executor.shutdown(wait)

    def _run_next(self) -> None:
        """Run one task: which one is known only within the guard, since others may have come meanwhile."""
        with self._guard():
            task = self._tasks.take()
            try:
                progress = task.work(task.connection, **task.options)
            except BaseException as error:
                task.future.set_exception(error)
                return
        task.future.set_result(progress)


def _started(count: int, name: str) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    all_here = threading.Barrier(count)
    try:
        for _ in range(count):
            pool.submit(all_here.wait)
    except RuntimeError:
        all_here.abort()  # else those that there are would wait for ever, and the process for them
        raise
    return pool
