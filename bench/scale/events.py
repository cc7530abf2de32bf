"""Changes of the objects of the large cluster, so many a second, written into etcd: each is an event of a watch.

Of 25 changes 16 are pods that become ready or cease to be, 4 are deleted pods, 4 are pods in their place, and one is a
heartbeat in the status of a node.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Any, Final

from bench.scale.generator import Period
from bench.scale.objects import node_item, pod, pod_item
from bench.scale.storage import OPERATIONS, Storage
from local import nodes
from local.nodes import Grid

TICK: Final = 0.01  # seconds between two transactions
DELETED, CREATED, CHANGED = 4, 4, 16
Item = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Written:
    """How many changes were written, and by how much the last was late (seconds)."""

    count: int
    late: float


def writer(url: str, grid: Grid, pods: int) -> Callable[[], Callable[[Period[int]], Written]]:
    """Return what makes a generator of changes for an etcd; the order of a period is how many a second."""
    return partial(_start, url, grid, pods)


def changes(grid: Grid, pods: int, *, seed: int = 1) -> Iterator[Item]:
    """Yield the key and the new value of one object after the other, without end; None where it is deleted."""
    chosen, bodies = random.Random(seed), nodes.grid_nodes(grid)
    hosts = [body["metadata"]["name"] for body in bodies]
    lives, unready = [0] * pods, [False] * pods
    gone: deque[int] = deque()

    def as_it_is(number: int) -> dict[str, Any]:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        host = hosts[number % len(hosts)]
        return pod(number, host=host, life=lives[number], ready=not unready[number], since=now)

    for turn in count():
        for _ in range(DELETED):
            number = chosen.randrange(pods)
            while number in gone:
                number = chosen.randrange(pods)
            gone.append(number)
            yield pod_item(as_it_is(number))[0], None
        for _ in range(CHANGED):
            number = chosen.randrange(pods)
            while number in gone:
                number = chosen.randrange(pods)
            unready[number] = not unready[number]
            yield pod_item(as_it_is(number))
        for _ in range(CREATED):
            number = gone.popleft()
            lives[number], unready[number] = lives[number] + 1, False
            yield pod_item(as_it_is(number))
        number = turn % len(bodies)
        for condition in bodies[number]["status"]["conditions"]:
            condition["lastHeartbeatTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        yield node_item(number, bodies[number])


def _start(url: str, grid: Grid, pods: int) -> Callable[[Period[int]], Written]:
    return partial(_write, Storage(url), changes(grid, pods))


def _write(storage: Storage, items: Iterator[Item], period: Period[int]) -> Written:
    """Write by the clock: what could not be written at its time is written as soon as it can."""
    done, late = 0, 0.0
    for number in count(1):
        due = period.begin + number * TICK
        if due > period.end:
            return Written(done, late)
        if (early := due - time.monotonic()) > 0:
            time.sleep(early)
        wanted = round(number * TICK * period.order)
        if wanted > done:
            for transaction in _transactions(islice(items, wanted - done)):
                storage.write(transaction)
        done, late = wanted, time.monotonic() - due
    raise AssertionError


def _transactions(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Divide changes, so that no transaction has two of one object, or too many."""
    known: dict[str, bytes | None] = {}
    for key, value in items:
        if key in known or len(known) == OPERATIONS:
            yield list(known.items())
            known = {}
        known[key] = value
    yield list(known.items())
