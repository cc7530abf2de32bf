"""Carries a random schedule out: users, hosts, other people's pods, and our own replicas, each at its worst."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from local import nodes
from local.client import Client, ClientError
from local.kubelets import crash_pod, ready_pod
from local.service import Replica, Service
from tests.support.crowd import Crowd, refused_for_now
from tests.support.gangs import Json
from tests.support.lease import holder
from tests.support.schedules import Step

OTHERS = "other"
MOST_LIVE = 8  # gangs at a time
MOST_DAEMONS = 1
DAEMON_CORES = (20, 93, 95)  # of 96: beside the larger ones a host has room for three pods of gangs, and for one
HANDOVER = 20.0  # seconds that somebody may need to lead again after a crash


@dataclass(slots=True)
class Upheaval:
    """Does one step after the other; `diary` is what was done when, `ends` what ends a fault that is under way."""

    crowd: Crowd
    service: Service
    client: Client
    bodies: dict[str, Json]  # the nodes as they were made, by name
    strangers: dict[str, Json] = field(default_factory=dict)
    diary: list[tuple[float, str]] = field(default_factory=list)
    ends: list[tuple[float, str, Callable[[], None]]] = field(default_factory=list)
    hurt: set[str] = field(default_factory=set)  # hosts with a fault under way
    daemons: set[str] = field(default_factory=set)  # DaemonSets
    dead: set[str] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)  # process groups
    ending: set[int] = field(default_factory=set)  # processes that were told to end
    made: int = 0
    spared_until: float = 0.0
    harms: int = 0  # to our own replicas
    faults: int = 0  # of hosts

    def run(self, steps: tuple[Step, ...]) -> None:
        """Carry out all steps at their times, then end every fault that is still under way."""
        for step in steps:
            self._wait(step.after)
            self._note(step.act, lambda step=step: self._do(step.act, random.Random(step.seed)))  # type: ignore[misc]
        self.calm()

    def calm(self) -> None:
        """End all faults, now."""
        for _, what, end in sorted(self.ends, key=lambda one: one[0]):
            self._note(what, end)
        self.ends.clear()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            for due in [one for one in self.ends if one[0] <= now]:
                self.ends.remove(due)
                self._note(due[1], due[2])
            for name in self.dead:
                self._keep_dead(name)
            if now >= until:
                return
            time.sleep(min(0.05, until - now))

    def _note(self, what: str, act: Callable[[], str | None]) -> None:
        began = time.monotonic()
        try:
            said = act() or ""
        except ClientError as error:
            if not refused_for_now(error):
                raise
            said = f"refused: {error.status} {error.message[:150]}"
        self.diary.append((began, f"{what}: {said}"))

    def _do(self, act: str, rng: random.Random) -> str:
        crowd = self.crowd
        names = sorted(crowd.members)
        match act:
            case "come" | "come and crash":
                if len(names) >= MOST_LIVE:
                    return "enough"
                said = crowd.come(rng)
                if act == "come":
                    return said
                self._wait(rng.uniform(0.0, 0.5))
                return f"{said}; {self._harm('leader crashes', rng)}"
            case "others come":
                return self._others_come(rng)
            case "others go":
                return self._others_go(rng)
            case "daemons come":
                return self._daemons_come(rng)
            case "daemons go":
                return self.daemons_go(rng.choice(sorted(self.daemons)) if self.daemons else None)
            case "host cordoned" | "host dead" | "host removed":
                return self._hurt(act, rng)
            case "API server freezes":
                pid, seconds = self.service.control_plane.pids["kube-apiserver"], rng.uniform(0.2, 2.5)
                os.kill(pid, signal.SIGSTOP)
                try:
                    time.sleep(seconds)
                finally:
                    os.kill(pid, signal.SIGCONT)
                return f"for {seconds:.1f} s"
            case "leader crashes" | "follower crashes" | "all crash" | "leader ends" | "leader freezes":
                return self._harm(act, rng)
        if not names:
            return "nobody is there"
        name = rng.choice(names)
        match act:
            case "go":
                return crowd.go(name)
            case "shrink" | "grow":
                return crowd.scale(name, grow=act == "grow", rng=rng)
            case "suspend":
                idle = sorted(one for one in names if crowd.members[one].suspended)
                if idle and rng.random() < 0.6:
                    return crowd.suspend(rng.choice(idle), suspended=False)
                return crowd.suspend(name, suspended=not crowd.members[name].suspended)
            case "complete":
                return crowd.complete(name)
            case "pod not ready":
                return self._crash(name, rng)
            case _:
                return crowd.lose_pod(name, act, rng)

    # -- other people ------------------------------------------------------------------------------------------------

    def _others_come(self, rng: random.Random) -> str:
        """A pod of somebody else, through the scheduler: it takes what looks free there. It is never refused."""
        name = f"{OTHERS}-{self.made}"
        self.made += 1
        gpus = rng.choice((1, 4, 8))
        container = {
            "name": "main",
            "image": "example.com/other:1",
            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        }
        spec = {
            "nodeSelector": self.crowd.gangs.fleet.selector,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        path = f"/api/v1/namespaces/{self.crowd.gangs.name}/pods"
        try:
            stored = self.client.create(path, {"metadata": {"name": name, "labels": {"app": "other"}}, "spec": spec})
        except ClientError as error:
            raise AssertionError(f"a pod that is not ours was refused: {error}") from error
        self.strangers[name] = stored
        return f"{name} of {gpus} GPUs"

    def _others_go(self, rng: random.Random) -> str:
        if not self.strangers:
            return "nobody is there"
        name = rng.choice(sorted(self.strangers))
        self.client.delete(f"/api/v1/namespaces/{self.crowd.gangs.name}/pods/{name}")
        del self.strangers[name]
        return name

    def _daemons_come(self, rng: random.Random) -> str:
        """A DaemonSet whose pods leave room for fewer pods of gangs on every host of the fleet."""
        if len(self.daemons) >= MOST_DAEMONS:
            return "enough"
        name, cores = f"daemon-{self.made}", rng.choice(DAEMON_CORES)
        self.made += 1
        container = {"name": "main", "image": "example.com/agent:1", "resources": {"requests": {"cpu": str(cores)}}}
        spec = {
            "nodeSelector": self.crowd.gangs.fleet.selector,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        template = {"metadata": {"labels": {"app": name}}, "spec": spec}
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}
        self.client.create(self._daemon_sets, body)
        self.daemons.add(name)
        return f"{name} of {cores} cores"

    def daemons_go(self, name: str | None) -> str:
        """A DaemonSet goes, with its pods."""
        if name is None:
            return "nobody is there"
        self.client.delete(f"{self._daemon_sets}/{name}")
        self.daemons.discard(name)
        return name

    @property
    def _daemon_sets(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.crowd.gangs.name}/daemonsets"

    # -- containers --------------------------------------------------------------------------------------------------

    def _crash(self, gang: str, rng: random.Random) -> str:
        """A running pod is not ready for a while."""
        pod, namespace = self.crowd.pod_of(gang, rng, running=True), self.crowd.gangs.name
        if pod is None:
            return f"{gang} has none"
        crash_pod(self.client, namespace, pod)
        seconds = rng.uniform(0.5, 15.0)

        def over() -> None:
            with suppress(ClientError):  # it may be gone
                ready_pod(self.client, namespace, pod)

        self.ends.append((time.monotonic() + seconds, f"{pod} is ready again", over))
        return f"{pod} for {seconds:.1f} s"

    # -- hosts -------------------------------------------------------------------------------------------------------

    def _hurt(self, act: str, rng: random.Random) -> str:
        name = rng.choice(sorted(self.bodies))
        if name in self.hurt:
            return f"{name} has its trouble already"
        self.hurt.add(name)
        self.faults += 1
        seconds = rng.uniform(0.5, 8.0)
        end: Callable[[str], None]
        match act:
            case "host cordoned":
                nodes.cordon(self.client, name)
                end = partial(nodes.uncordon, self.client)
            case "host dead":
                nodes.leave(self.client, name)
                self.dead.add(name)
                end = self._revive
            case _:
                nodes.remove(self.client, [name])
                end = self._bring_back

        def over() -> None:
            self.hurt.discard(name)
            end(name)

        self.ends.append((time.monotonic() + seconds, f"{act} {name} is over", over))
        return f"{name} for {seconds:.1f} s"

    def _keep_dead(self, name: str) -> None:
        with suppress(ClientError):
            nodes.keep_failed(self.client, name)

    def _revive(self, name: str) -> None:
        self.dead.discard(name)
        nodes.recover(self.client, name)

    def _bring_back(self, name: str) -> None:
        nodes.add(self.client, [self.bodies[name]], wait=False)

    # -- our own replicas --------------------------------------------------------------------------------------------

    def leader(self) -> Replica | None:
        """The replica that the Lease names; a frozen one may still be named."""
        named = holder(self.client)
        return next((one for one in self.service.running() if named.startswith(f"topogate-{one.number}")), None)

    def _harm(self, act: str, rng: random.Random) -> str:
        """At most one harm in so many seconds, so that somebody leads in between (but for a crash right after one)."""
        now = time.monotonic()
        if now < self.spared_until:
            return "spared"
        running, leader = self.service.running(), self.leader()
        if leader is None or len(running) < 2:
            return "nobody to harm"
        self.harms += 1
        back = rng.uniform(0.0, 4.0)
        self.spared_until = now + rng.choice((3.0, HANDOVER))
        match act:
            case "leader crashes":
                victims = [leader]
            case "follower crashes":
                victims = [one for one in running if one is not leader]
            case "all crash":
                victims = running
            case "leader ends":
                leader.child.process.terminate()
                self.ending.add(leader.child.process.pid)
                self.ends.append((now + back, "replicas start", self._start))
                return f"replica {leader.number} is told to end"
            case _:
                return self._freeze(leader, rng.choice((rng.uniform(0.2, 3.0), rng.uniform(12.0, 18.0))))
        for one in victims:
            one.kill()
        self.ends.append((now + back, "replicas start", self._start))
        return f"replicas {[one.number for one in victims]}, back in {back:.1f} s"

    def _freeze(self, replica: Replica, seconds: float) -> str:
        group = replica.child.process.pid
        os.killpg(group, signal.SIGSTOP)
        self.frozen.add(group)

        def thaw() -> None:
            self.frozen.discard(group)
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)

        self.ends.append((time.monotonic() + seconds, f"replica {replica.number} thaws", thaw))
        return f"replica {replica.number} for {seconds:.1f} s"

    def _start(self) -> None:
        for one in self.service.running():
            # One that was told to end is not there any more in a moment; it has to be, or nobody takes its place.
            pid = one.child.process.pid
            if one.child.process.poll() is None and (pid in self.ending or not one.ready()) and pid not in self.frozen:
                with suppress(Exception):
                    one.child.process.wait(15)
        self.service.start(2, wait=False)

    def state(self) -> dict[str, Any]:
        """Who is frozen, dead or hurt now."""
        return {"hurt": sorted(self.hurt), "dead": sorted(self.dead), "frozen": sorted(self.frozen)}
