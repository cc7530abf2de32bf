"""The life of a lagging cluster: random steps, drawn from a seed alone, and then rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from tests.support.lagging_cluster import webhook
from tests.support.lagging_cluster.controllers import Controllers
from tests.support.lagging_cluster.hosts import Hosts
from tests.support.lagging_cluster.replica import Replica
from tests.support.lagging_cluster.rest import Rest
from tests.support.lagging_cluster.users import Users
from tests.support.lagging_cluster.workloads import JOB
from tests.support.lagging_cluster.world import World

POLICIES: Final = (
    "",
    "",
    "nodeLoss: evict\n",
    "nodeLoss: restart\n",
    "incomplete: restart\n",
    "queue: {order: strict}\n",
    "queue: {patience: 30s}\n",
    "preemption: {mode: lower-priority, after: 10s}\n",
    "preemption: {mode: lower-priority, after: 10s}\ndefragment: {mode: act, after: 10s}\n",
)
FAULTY: Final = (0.0, 0.1, 0.3)  # the part of requests that meets a fault
LEADER: Final = 0.8  # how often it is the leader that turns, or writes
# Within this many seconds a watch shows everything, and a write happens.
LAG: Final = 1.5
PAUSES: Final = (0.1, 0.5, 5, 31, 70, 200)
SKEWS: Final = (-3600, 3600, -5, 5)
# How often each step is drawn. What a leader does, what arrives, what Kubernetes does, users, hosts, what we suffer.
STEPS: Final[Mapping[str, float]] = {
    "turn": 16,
    "work": 14,
    "deliver": 25,
    "run workloads": 9,
    "schedule": 9,
    "end pods": 5,
    "collect garbage": 2,
    "pause": 5,
    "submit": 4,
    "delete": 1,
    "scale": 1,
    "suspend": 4,
    "resume": 8,
    "complete": 4,
    "fail": 1,
    "cordon": 1,
    "die": 0.5,
    "remove host": 0.5,
    "add host": 1,
    "list again": 1,
    "elect": 1.5,
    "crash": 1,
    "set clock": 0.3,
}
EDITS: Final[Mapping[str, float]] = {"edit": 6}  # in some lives only: the others stay what they were


class Life:
    """One life of a cluster with workloads of these kinds; the same seed draws the same one."""

    def __init__(self, seed: int, *, kinds: tuple[str, ...] = (JOB,), edits: bool = False) -> None:
        chance = random.Random(f"policy of {seed}")
        self.world = World(seed, policy=chance.choice(POLICIES), faulty=chance.choice(FAULTY), kinds=kinds)
        self._rng = self.world.rng
        self._edits = edits
        hosts = Hosts(self.world)
        self._replicas = [Replica(self.world, "A"), Replica(self.world, "B")]
        self.world.elect("A")
        users = Users(self.world, self._any)
        controllers = Controllers(self.world, self._create_pod)
        self._rest = Rest(self.world, lambda: self._replicas, controllers)
        self._steps: Mapping[str, Callable[[], object]] = {
            "turn": self._turn,
            "work": self._work,
            "deliver": lambda: self._any().deliver(self._collection(), self._rng.randint(1, 6)),
            "run workloads": lambda: controllers.run_workloads(some=True),
            "schedule": controllers.schedule,
            "end pods": lambda: controllers.end_pods(slow=True),
            "collect garbage": controllers.collect_garbage,
            "pause": self._pause,
            "submit": users.submit,
            "delete": users.delete,
            "scale": users.scale,
            "suspend": users.suspend,
            "resume": users.resume,
            "edit": users.edit,
            "complete": hosts.complete_pod,
            "fail": hosts.fail_pod,
            "cordon": hosts.cordon,
            "die": hosts.die,
            "remove host": hosts.remove,
            "add host": hosts.add,
            "list again": lambda: self._any().list(self._collection()),
            "elect": lambda: self.world.elect(self._any().name),
            "crash": self._crash,
            "set clock": self._set_clock,
        }
        self._shown_until = self.world.now

    def live(self, steps: int) -> None:
        """Go through so many steps, then come to rest; ends at the first violation."""
        drawn = STEPS | EDITS if self._edits else STEPS
        names, weights = list(drawn), list(drawn.values())
        for name in self._rng.choices(names, weights, k=steps):
            self._steps[name]()
            if self.world.violated:
                return
        self._rest.come()

    def _collection(self) -> str:
        return self._rng.choice(self.world.collections)

    def _any(self) -> Replica:
        return self._rng.choice(self._replicas)

    def _one(self) -> Replica:
        """The leader, mostly: another one may still think that it leads, or has writes that wait."""
        leader = next(one for one in self._replicas if one.name == self.world.leader)
        return leader if self._rng.random() < LEADER else self._any()

    def _turn(self) -> None:
        self._one().controller.turn()

    def _work(self) -> None:
        """Some of the writes that wait happen, in any order."""
        waiting = self._one().pool.waiting
        for _ in range(min(len(waiting), self._rng.randint(1, 3))):
            waiting.pop(self._rng.randrange(len(waiting)))()

    def _create_pod(self, body: dict[str, object]) -> None:
        replica = self._any()
        created = webhook.create(self.world, replica, body)
        self.world.note("created", created["metadata"]["name"], f"by {replica.name}")
        self.world.check("a pod was created")

    def _pause(self) -> None:
        """Time passes; more than `LAG` only when everything has arrived."""
        pause = self._rng.choice(PAUSES)
        if self.world.now + pause - self._shown_until > LAG:
            for replica in self._replicas:
                replica.work()
            for replica in self._replicas:
                replica.catch_up()
            self._shown_until = self.world.now + pause
        self.world.now += pause

    def _crash(self) -> None:
        """A replica is gone with what it was about to write; another one starts."""
        gone = self._rng.choice(self._replicas)
        self.world.note("crash", gone.name)
        new = Replica(self.world, f"{gone.name[0]}{self.world.number()}")
        self._replicas[self._replicas.index(gone)] = new
        if self.world.leader == gone.name:
            self.world.elect(self._any().name)

    def _set_clock(self) -> None:
        self.world.skew += self._rng.choice(SKEWS)
        self.world.note("the wall clock is off by", self.world.skew)
