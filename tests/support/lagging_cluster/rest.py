"""What holds once everything has arrived, nothing fails any more, and time passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from engine.api import names
from engine.gang.key import key_of
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import schedule_gang
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import PLACEMENTS, PODS
from tests.support.lagging_cluster.controllers import Controllers
from tests.support.lagging_cluster.objects import owner_of, runs
from tests.support.lagging_cluster.replica import Replica
from tests.support.lagging_cluster.workloads import at_a_time, done, kind_of, suspended, suspended_by_user
from tests.support.lagging_cluster.world import World
from tests.support.raw_pods import held

# Seconds of each pause: beyond the back-offs, the time-outs of pods, and the rests after preemption and moves.
_PAUSES: Final = (1, 5, *[31] * 4, *[70] * 3, *[250] * 3, 11)
_QUIET: Final = (10, 100, 100)
_ROUNDS: Final = 400  # within one moment
_MOST_WRITES: Final = 8  # while nothing happens: statuses that tell of waiting times
# A gang waits though it fits: the policy keeps the room for another one, or it has ended for one that does not fit yet.
_KEPT: Final = ("QueuedBehind", "RoomKept", "Preempted")


class Rest:
    """Lets a cluster come to rest, and looks at what became of every workload."""

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
        for one in self._world.workloads():
            if not done(one) and not suspended_by_user(one) and (wrong := self._wrong(one, leader)):
                self._world.violate(f"at rest: {one['metadata']['name']} {wrong}")

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

    def _wrong(self, workload: Json, leader: Replica) -> str:
        """What is wrong with a workload that its user wants to run; "" if nothing is."""
        uid = workload["metadata"]["uid"]
        placement = next((one for one in self._world.api.objects(PLACEMENTS) if _is_of(one, uid)), {})
        status = placement.get("status", {})
        phase, reason = status.get("phase"), status.get("reason")
        if suspended(workload):
            return self._wrongly_waits(workload, leader, phase, reason)
        pods = self._world.api.objects(PODS)
        running = sum(owner_of(one) == uid and runs(one) for one in pods)
        kind = kind_of(workload)
        ends = kind.completed(workload, [*pods, *self._world.makers()])
        mine = [one for one in pods if owner_of(one) == uid]
        # Those that join later wait for room beside the first ones, even if these have completed and are deleted.
        joins = bool(ends) and reason and phase in ("Placed", "Running")
        if mine and all(map(held, mine)) and not joins:
            return self._wrongly_waits(workload, leader, phase, reason)
        needed = min(at_a_time(workload), kind.left(workload, ends))
        told = f"{running} of {needed} pods run, its status says {phase} {reason}: {status.get('message')}"
        if running == needed:
            return "" if phase in ("Running", "Starting") or reason == "NodeLost" else told
        whole = names.MIN_AVAILABLE not in workload["metadata"]["annotations"]
        return told if phase == "Running" and not reason and whole else ""

    def _wrongly_waits(self, workload: Json, leader: Replica, phase: str | None, reason: str | None) -> str:
        group, kind = workload["apiVersion"].partition("/")[0], workload["kind"]
        known = leader.view.stores.workloads.get((group, kind, "default", workload["metadata"]["name"]))
        gang = leader.view.gangs.get(key_of(known)) if known is not None else None
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
