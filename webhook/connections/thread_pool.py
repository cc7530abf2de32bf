"""The threads that work on connections, arranged so that small reviews never wait behind a large one.

The cost of a review grows with its size, and its sender chooses the size. Small reviews share a few slots. For large
ones (known from the head) one thread reads the bytes and one computes the answers, one after the other: they take a
bounded share of the processor and no place in a queue. Handshakes, which any client can start, have a thread too. In
each queue the addresses take turns, so that a crowd that bypasses the API server does not delay the API server. Where
reviews of one address wait, their tenants take turns, so that the flood of one does not delay the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, Protocol

from webhook.admission.concurrency import ReviewSlots
from webhook.connections.connection import Connection, Progress
from webhook.connections.fair_queue import FairQueue
from webhook.connections.processor_share import ProcessorShare
from webhook.connections.review_queue import ReviewQueue
from webhook.connections.tenant import tenant_of

MAX_WAITING: Final = 16 * 1024 * 1024  # bytes of large requests that have arrived and wait for their answer

Work = Callable[..., Progress]


class ThreadPool:
    """The thread pool for gunicorn's worker, with separate queues by kind of work.

    All threads start at once, because starting one later may fail. Raises RuntimeError.
    """

    def __init__(self, turns: ReviewSlots) -> None:
        share = ProcessorShare()
        self._small = _Pool(turns.count + turns.places, "review", ReviewQueue(_tenant), guard=turns.turn)
        self._handshakes = _Pool(1, "handshakes", FairQueue())
        self._reading = _Pool(1, "large-reading", FairQueue(), guard=share.piece)
        self._large = _Pool(1, "large-review", ReviewQueue(_tenant), guard=share.piece)
        self._lock = threading.Lock()
        self._waiting = 0

    def submit(self, work: Work, connection: Connection) -> Future[Progress]:
        """Run `work(connection)` in the queue for the connection's kind of request.

        A large request that exceeds MAX_WAITING is passed to `work` with `busy=True`.
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
        """Refuse further work; with `wait` also wait for tasks in progress."""
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


def _tenant(task: _Task) -> str | None:
    """Read what has arrived, and return the tenant of a complete review.

    Returns None for one that goes back to its owner, because it is none yet.
    """
    connection = task.connection
    try:
        progress = Progress.ANSWER if connection.complete else connection.advance()
    except OSError:
        return ""  # the work meets it again, and reports it
    except Exception as error:
        task.future.set_exception(error)
        return None
    if progress is Progress.ANSWER:
        return tenant_of(connection.buffer)
    task.future.set_result(progress)
    return None


class _Queue(Protocol):
    """The tasks that wait for a thread."""

    def put(self, address: str, item: _Task, /) -> None: ...

    def take(self) -> _Task | None: ...


class _Pool:
    """Threads that take their tasks from a queue and run each within `guard()`."""

    def __init__(
        self,
        count: int,
        name: str,
        tasks: _Queue,
        *,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._guard = guard
        self._tasks = tasks
        self._executor = _started(count, name)

    def submit(self, work: Work, connection: Connection, **options: Any) -> Future[Progress]:
        task = _Task(Future(), work, connection, options)
        self._tasks.put(connection.address, task)
        self._executor.submit(self._run_next)
        return task.future

    def shutdown(self, wait: bool) -> None:
        self._executor.shutdown(wait)

    def _run_next(self) -> None:
        """Run the next task; it is chosen inside the guard, because others may have arrived while waiting."""
        with self._guard():
            task = self._tasks.take()
            if task is None:
                return
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
        all_here.abort()  # else the started threads would wait for ever, and the process for them
        raise
    return pool
