"""What users do to their workloads: each change goes through the webhook of some replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.api import names
from tests.support.admission import gpu_container
from tests.support.fake_api import Json
from tests.support.lagging_cluster import webhook
from tests.support.lagging_cluster.replica import Replica
from tests.support.lagging_cluster.workloads import (
    KINDS,
    done,
    elastic,
    kind_of,
    path_of,
    places,
    suspended,
    suspended_by_user,
)
from tests.support.lagging_cluster.world import World

MOST: Final = 6  # workloads
_REQUESTS: Final = (
    {names.REQUIRE: "rack"},
    {names.REQUIRE: "rack"},
    {names.UNCONSTRAINED: "true"},
    {names.PREFER: "rack"},
)
# What is asked beside a level, and is no request without one.
_OF_A_LEVEL: Final = (names.RELAX_AFTER, names.SLICE_TOPOLOGY, names.SLICE_SIZE)


class Users:
    """Users of one cluster; `replica` chooses whose webhook answers."""

    def __init__(self, world: World, replica: Callable[[], Replica]) -> None:
        self._world = world
        self._replica = replica

    def submit(self) -> None:
        """Submit a workload of up to five pods with some request; some Jobs have more completions than pods."""
        rng = self._world.rng
        if len(self._world.workloads()) >= MOST:
            return
        kind = rng.choice(self._world.kinds) if len(self._world.kinds) > 1 else self._world.kinds[0]
        name, count = f"j{self._world.number()}", rng.choice((1, 2, 2, 3, 4, 5))
        request, more = self._request(count, sliced=KINDS[kind].sliced), rng.choice((0, 0, 0, 0, 0, 0, 0, 2))
        pods: Json = {"restartPolicy": "Never", "containers": [gpu_container(rng.choice((2, 4, 4, 8)))]}
        if (priority := rng.choice((None, 0, 5))) is not None:
            pods["priority"] = priority
        workload = KINDS[kind].new(name, request, pods, rng, count=count, more=more)
        workload["metadata"]["creationTimestamp"] = self._world.stamp()
        self._world.note("submit", kind, name, count, more, pods, request)
        webhook.create(self._world, self._replica(), workload)

    def _request(self, count: int, *, sliced: bool) -> dict[str, str]:
        rng = self._world.rng
        request: dict[str, str] = dict(rng.choice(_REQUESTS))
        if rng.random() < 0.2:
            request[names.MIN_AVAILABLE] = str(rng.randint(1, count))
        if rng.random() < 0.1:
            request[names.EXCLUSIVE] = rng.choice(("rack", "host"))
        if rng.random() < 0.1 and count % 2 == 0 and names.UNCONSTRAINED not in request and sliced:
            request |= {names.SLICE_TOPOLOGY: "host", names.SLICE_SIZE: "2"}
        if rng.random() < 0.1 and names.REQUIRE in request:
            request[names.RELAX_AFTER] = "30s"
        return request

    def delete(self) -> None:
        if (workload := self._some()) is not None:
            self._world.note("delete", workload["metadata"]["name"])
            self._world.api.remove(path_of(workload))

    def scale(self) -> None:
        """Change the number of pods of a workload that has as many completions."""
        workload, count = self._some(), self._world.rng.randint(1, 5)
        if workload is None or done(workload) or elastic(workload):
            return
        kind = kind_of(workload)
        scaled = self._change(workload, f"scale to {count}", kind.sized(workload, count))
        if kind.counts_at_once:
            ends = kind.completed(workload, ()) & set(places(scaled))
            self._world.api.put(path_of(workload), status=kind.counted(scaled, ends))

    def suspend(self) -> None:
        workload = self._some()
        if workload is not None and not suspended(workload) and kind_of(workload).can_suspend:
            self._change(workload, "suspend", kind_of(workload).suspending(True))

    def resume(self) -> None:
        workload = self._some()
        if workload is None or not suspended_by_user(workload):
            return
        stored = self._change(workload, "resume", kind_of(workload).suspending(False))
        if not suspended(stored):
            self._world.truth.excuse(stored)

    def edit(self) -> None:
        """Ask for another level for a workload that waits."""
        waiting = [one for one in self._world.workloads() if suspended(one) and not suspended_by_user(one)]
        if not waiting:
            return
        workload = self._world.rng.choice(waiting)
        asked = workload["metadata"]["annotations"]
        levels = ({names.REQUIRE: "rack"}, {names.PREFER: "rack"}, {names.UNCONSTRAINED: "true"})
        other = self._world.rng.choice([one for one in levels if not one.items() <= asked.items()])
        self._world.note("user: edit", workload["metadata"]["name"], other)
        annotations = dict.fromkeys((names.REQUIRE, names.PREFER, names.UNCONSTRAINED, *_OF_A_LEVEL)) | other
        webhook.change(self._world, self._replica(), path_of(workload), metadata={"annotations": annotations})
        self._world.check(f"edit of {workload['metadata']['name']}")

    def _change(self, workload: Json, what: str, spec: Json) -> Json:
        name, replica = workload["metadata"]["name"], self._replica()
        self._world.note("user:", what, name, f"by {replica.name}")
        stored = webhook.change(self._world, replica, path_of(workload), spec=spec)
        self._world.note("suspended" if suspended(stored) else "not suspended")
        self._world.check(f"{what} of {name}")
        return stored

    def _some(self) -> Json | None:
        workloads = self._world.workloads()
        return self._world.rng.choice(workloads) if workloads else None
