"""A steady load on the API server, whatever happens to the service: so many calls a second, each of them counted.

The calls come at their times, whether those before were answered or not. Most are dry runs, which go through the same
reviews: Pods and Jobs that ask for nothing, Jobs and Pods that ask for a rack. Some are real gangs, which are placed,
run for a while and are deleted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import urllib3

from local.client import Client, ClientError
from tests.support.eventually import eventually
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.invariants import GANG_LABEL

OURS = "topogate.dev"  # in the API server's words about a call that failed because of one of our webhooks
TURN: Sequence[str] = ("plain pod", "asking job", "plain job", "asking pod")
# Seconds that a dry run of a plain pod, which takes milliseconds and never comes to us, takes on a machine with so much
# other work that webhooks do not answer within their two seconds either: this is nothing that a fault has done.
STARVED = 1.0
# Calls under way. One that comes when there are so many is left out and counted: they would pile up where the API
# server does not get through with twenty a second, and keep it from everything else.
PARALLEL = 24
GANG_EVERY = 16  # calls
MOST_GANGS = 4  # at a time
GANG_PODS = 2


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what it was, when it began, how long it took, and what the API server said; "" when all was well."""

    what: str
    began: float
    seconds: float
    fault: str

    @property
    def asks(self) -> bool:
        """Whether its object asks us for something."""
        return self.what not in ("plain pod", "plain job", "delete")

    def overlaps(self, other: Call) -> bool:
        """Whether both were under way at one moment."""
        return self.began < other.began + other.seconds and other.began < self.began + self.seconds

    @property
    def ours(self) -> bool:
        """Whether it failed because of us: the API server names one of our webhooks, or policies."""
        return OURS in self.fault


class SteadyLoad:
    """Makes calls from threads of its own for as long as a block runs; `rate` of them a second.

    `gangs_wanted` may be set to False for a while: then none are created, only deleted.
    """

    def __init__(self, client: Client, gangs: Namespace, *, rate: float = 20.0) -> None:
        self.calls: list[Call] = []
        self.gangs_wanted = True
        self.made = 0
        self.left_out = 0
        self.live: deque[str] = deque()
        self.faults: list[str] = []  # of this class, not of those that it calls
        self._client = client
        self._gangs = gangs
        self._rate = rate
        self._places = threading.BoundedSemaphore(PARALLEL)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        assert self.faults == []

    def goes_on(self, calls: int = 30) -> None:
        """Return when so many more calls have ended."""
        wanted = len(self.calls) + calls
        eventually(lambda: len(self.calls) >= wanted, message="the load goes on")

    def goes_well(self, calls: int = 20) -> None:
        """Return when the last so many calls, all made from now on, have ended well."""
        began = time.monotonic()

        def well() -> bool:
            last = self.calls[-calls:]
            return len(last) == calls and all(one.began > began and not one.fault for one in last)

        eventually(well, message=lambda: f"calls end well again; the last: {self.calls[-3:]}")

    def failed(self) -> list[Call]:
        """The calls that failed because of us; not those at a moment at which the whole machine stood still."""
        calls = list(self.calls)
        starved = [one for one in calls if one.what == "plain pod" and one.seconds > STARVED]
        return [one for one in calls if one.ours and not any(map(one.overlaps, starved))]

    def summary(self) -> str:
        """Counts, on one line."""
        calls = list(self.calls)
        others = Counter(one.fault[:60] for one in calls if one.fault and not one.ours)
        failed = Counter(one.what for one in self.failed())
        starved = sum(one.ours for one in calls) - sum(failed.values())
        late = sorted(one.seconds for one in calls)
        aside = f" and {starved} on a machine that stood still" if starved else ""
        aside += f", {self.left_out} left out" if self.left_out else ""
        return (
            f"{len(calls)} calls, {self.made} gangs, failed {dict(failed) or 0}{aside}, "
            f"other faults {sum(others.values())}, "
            f"median {late[len(late) // 2] * 1000:.0f} ms, longest {late[-1] * 1000:.0f} ms"
        )

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="steady-load") as pool:
            while not self._over.wait(max(0.0, began + number / self._rate - time.monotonic())):
                if self._places.acquire(blocking=False):
                    pool.submit(self._guarded, number)
                else:
                    self.left_out += 1
                number += 1

    def _guarded(self, number: int) -> None:
        try:
            self._turn(number)
        except Exception as error:
            self.faults.append(repr(error))
        finally:
            self._places.release()

    def _turn(self, number: int) -> None:
        gangs = self._gangs
        if number % GANG_EVERY == 0 and self.gangs_wanted:
            body = self._job(f"load-{number}", GANG_PODS, asks=True)
            if self._call("gang", lambda: self._client.create(gangs.jobs_path, body)):
                self.live.append(f"load-{number}")
                self.made += 1
            return
        if number % GANG_EVERY == GANG_EVERY // 2 and len(self.live) > MOST_GANGS:
            name = self.live.popleft()
            if not self._call("delete", lambda: self._client.delete(f"{gangs.jobs_path}/{name}")):
                self.live.append(name)
            return
        what = TURN[number % len(TURN)]
        if what.endswith("job"):
            path, body = gangs.jobs_path, self._job(f"dry-{number}", GANG_PODS, asks=what == "asking job")
        else:
            path, body = f"/api/v1/namespaces/{gangs.name}/pods", self._pod(f"dry-{number}", asks=what == "asking pod")
        self._call(what, lambda: self._client.create(path, body, dry_run=True))

    def _job(self, name: str, pods: int, *, asks: bool) -> Json:
        annotations, labels = require("rack") if asks else {}, {GANG_LABEL: name}
        selector = self._gangs.fleet.selector
        return job_body(name, pods=pods, annotations=annotations, selector=selector, pod_labels=labels)

    def _pod(self, name: str, *, asks: bool) -> Json:
        template = self._job(name, 1, asks=False)["spec"]["template"]
        return {"metadata": {"name": name, "annotations": require("rack") if asks else {}}, "spec": template["spec"]}

    def _call(self, what: str, act: Callable[[], object]) -> bool:
        began, fault = time.monotonic(), ""
        try:
            act()
        except ClientError as error:
            fault = str(error)
        except urllib3.exceptions.HTTPError as error:
            fault = f"no answer: {type(error).__name__}"
        self.calls.append(Call(what, began, time.monotonic() - began, fault))
        return not fault
