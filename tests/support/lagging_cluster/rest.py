"""What holds once everything has arrived, nothing fails any more, and time passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from engine.api import names
from engine.gang.key import key_of
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import schedule_gang
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOBS, PLACEMENTS, PODS
from tests.support.lagging_cluster.controllers import Controllers
from tests.support.lagging_cluster.objects import completed, done, owner_of, runs, suspended_by_user
from tests.support.lagging_cluster.replica import Replica
from tests.support.lagging_cluster.world import World

# Seconds of each pause: beyond the back-offs, the time-outs of pods, and the rests after preemption and moves.
_PAUSES: Final = (1, 5, *[31] * 4, *[70] * 3, *[250] * 3, 11)
_QUIET: Final = (10, 100, 100)
_ROUNDS: Final = 400  # within one moment
_MOST_WRITES: Final = 8  # while nothing happens: statuses that tell of waiting times
# A gang waits though it fits: the policy keeps the room for another one.
_KEPT: Final = ("QueuedBehind", "RoomKept")


class Rest:
    """Lets a cluster come to rest, and looks at what became of every Job."""

    def __init__(self, world: World, replicas: Callable[[], Sequence[Replica]], controllers: Controllers) -> None:
        self._world = world
        self._replicas = replicas
        self._controllers = controllers

    def come(self) -> None:
        """Come to rest; what is wrong then is noted as violated."""
        self._world.faulty = 0.0
        self._world.note("everything comes to rest")
        self._pass(_PAUSES)
        before = self._world.writes
        self._pass(_QUIET)
        if self._world.violated:
            return
        if self._world.writes > before + _MOST_WRITES:
            self._world.violate(f"{self._world.writes - before} writes at rest")
        leader = next(one for one in self._replicas() if one.name == self._world.leader)
        for job in self._world.api.objects(JOBS):
            if not done(job) and not suspended_by_user(job) and (wrong := self._wrong(job, leader)):
                self._world.violate(f"at rest: {job['metadata']['name']} {wrong}")

    def _pass(self, pauses: Iterable[int]) -> None:
        for pause in pauses:
            if self._world.violated:
                return
            self._settle()
            self._world.now += pause

    def _settle(self) -> None:
        """Everybody acts until nothing changes any more."""
        for _ in range(_ROUNDS):
            before = self._world.api.seen()
            for replica in self._replicas():
                replica.catch_up()
                replica.controller.turn()
                replica.work()
            self._controllers.all()
            if self._world.api.seen() == before:
                return
        self._world.violate("it never comes to rest")

    def _wrong(self, job: Json, leader: Replica) -> str:
        """What is wrong with a Job that its user wants to run; "" if nothing is."""
        uid = job["metadata"]["uid"]
        placement = next((one for one in self._world.api.objects(PLACEMENTS) if _is_of(one, uid)), {})
        status = placement.get("status", {})
        phase, reason = status.get("phase"), status.get("reason")
        if job["spec"]["suspend"]:
            return self._wrongly_waits(job, leader, phase, reason)
        running = sum(owner_of(one) == uid and runs(one) for one in self._world.api.objects(PODS))
        needed = min(job["spec"]["parallelism"], job["spec"]["completions"] - len(completed(job)))
        told = f"{running} of {needed} pods run, its status says {phase} {reason}: {status.get('message')}"
        if running == needed:
            return "" if phase in ("Running", "Starting") or reason == "NodeLost" else told
        whole = names.MIN_AVAILABLE not in job["metadata"]["annotations"]
        return told if phase == "Running" and not reason and whole else ""

    def _wrongly_waits(self, job: Json, leader: Replica, phase: str | None, reason: str | None) -> str:
        workload = leader.view.stores.workloads.get(("batch", "Job", "default", job["metadata"]["name"]))
        gang = leader.view.gangs.get(key_of(workload)) if workload is not None else None
        if gang is None:
            return "is unknown to the leader"
        if gang.request.errors:
            return ""
        with leader.view.lock:
            outcome = schedule_gang(leader.view, gang)
        if isinstance(outcome, Placed):
            return "" if reason in _KEPT else f"waits ({phase} {reason}) though it fits: {outcome.message}"
        return "" if phase == "Waiting" else f"waits, but its status says {phase} {reason}"


def _is_of(placement: Json, uid: str) -> bool:
    return bool(placement["spec"]["workload"]["uid"] == uid)
