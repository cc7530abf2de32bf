"""What users do to their Jobs: each change goes through the webhook of some replica."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.api import names
from tests.support.admission import gpu_container
from tests.support.fake_api import Json
from tests.support.lagging_cluster import webhook
from tests.support.lagging_cluster.api import JOBS
from tests.support.lagging_cluster.objects import completed, done, elastic, suspended_by_user
from tests.support.lagging_cluster.replica import Replica
from tests.support.lagging_cluster.world import World

MOST: Final = 6  # Jobs
_REQUESTS: Final = (
    {names.REQUIRE: "rack"},
    {names.REQUIRE: "rack"},
    {names.UNCONSTRAINED: "true"},
    {names.PREFER: "rack"},
)


class Users:
    """Users of one cluster; `replica` chooses whose webhook answers."""

    def __init__(self, world: World, replica: Callable[[], Replica]) -> None:
        self._world = world
        self._replica = replica

    def submit(self) -> None:
        """Submit a Job of up to five pods with some request, now and then with more completions than pods."""
        rng = self._world.rng
        if len(self._world.api.objects(JOBS)) >= MOST:
            return
        name, count = f"j{self._world.number()}", rng.choice((1, 2, 2, 3, 4, 5))
        request, more = self._request(count), rng.choice((0, 0, 0, 0, 0, 0, 0, 2))
        pods: Json = {"restartPolicy": "Never", "containers": [gpu_container(rng.choice((2, 4, 4, 8)))]}
        if (priority := rng.choice((None, 0, 5))) is not None:
            pods["priority"] = priority
        job = _job(name, request, pods, count=count, completions=count + more)
        job["metadata"]["creationTimestamp"] = self._world.stamp()
        self._world.note("submit", name, count, more, pods, request)
        webhook.create(self._world, self._replica(), job)

    def _request(self, count: int) -> dict[str, str]:
        rng = self._world.rng
        request: dict[str, str] = dict(rng.choice(_REQUESTS))
        if rng.random() < 0.2:
            request[names.MIN_AVAILABLE] = str(rng.randint(1, count))
        if rng.random() < 0.1:
            request[names.EXCLUSIVE] = rng.choice(("rack", "host"))
        if rng.random() < 0.1 and count % 2 == 0 and names.UNCONSTRAINED not in request:
            request |= {names.SLICE_TOPOLOGY: "host", names.SLICE_SIZE: "2"}
        if rng.random() < 0.1 and names.REQUIRE in request:
            request[names.RELAX_AFTER] = "30s"
        return request

    def delete(self) -> None:
        if (job := self._some()) is not None:
            self._world.note("delete", job["metadata"]["name"])
            self._world.api.remove(f"{JOBS}/{job['metadata']['name']}")

    def scale(self) -> None:
        """Change the number of pods of a Job that has as many completions."""
        job, count = self._some(), self._world.rng.randint(1, 5)
        if job is None or done(job) or elastic(job):
            return
        self._change(job, f"scale to {count}", parallelism=count, completions=count)
        left = [str(index) for index in sorted(completed(job)) if index < count]
        status = {"completedIndexes": ",".join(left), "succeeded": len(left)}
        self._world.api.put(f"{JOBS}/{job['metadata']['name']}", status=status)

    def suspend(self) -> None:
        job = self._some()
        if job is not None and not job["spec"]["suspend"]:
            self._change(job, "suspend", suspend=True)

    def resume(self) -> None:
        job = self._some()
        if job is None or not suspended_by_user(job):
            return
        stored = self._change(job, "resume", suspend=False)
        if not stored["spec"]["suspend"]:
            self._world.truth.excuse(stored)

    def _change(self, job: Json, what: str, **spec: Any) -> Json:
        name, replica = job["metadata"]["name"], self._replica()
        self._world.note("user:", what, name, f"by {replica.name}")
        stored = webhook.change(self._world, replica, name, spec=spec)
        self._world.note("suspended" if stored["spec"]["suspend"] else "not suspended")
        self._world.check(f"{what} of {name}")
        return stored

    def _some(self) -> Json | None:
        jobs = self._world.api.objects(JOBS)
        return self._world.rng.choice(jobs) if jobs else None


def _job(name: str, request: dict[str, str], pods: Json, *, count: int, completions: int) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": request},
        "spec": {
            "parallelism": count,
            "completions": completions,
            "completionMode": "Indexed",
            "suspend": False,
            "template": {"metadata": {}, "spec": pods},
        },
        "status": {},
    }
