"""The controller of JobSets: it makes, suspends, resumes and deletes their Jobs, and counts those that have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOBS
from tests.support.lagging_cluster.job_sets import ATTEMPT, REPLICATED_JOB, attempt_of, new_jobs, resumed
from tests.support.lagging_cluster.objects import controller_of, deleting
from tests.support.lagging_cluster.workloads import done, failed, path_of
from tests.support.lagging_cluster.world import World


class JobSetController:
    """It acts on the JobSets of one cluster, as its reconciler does, step by step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._api = world.api

    def run(self, job_set: Json) -> None:
        """Reconcile a JobSet once."""
        uid, attempt = job_set["metadata"]["uid"], attempt_of(job_set)
        every = [one for one in self._api.objects(JOBS) if controller_of(one).get("uid") == uid]
        current = [one for one in every if one["metadata"]["labels"][ATTEMPT] == attempt]
        active = [one for one in current if not done(one)]
        self._count(job_set, current)
        if done(job_set):
            self._delete(active)
            return
        self._delete(one for one in every if one not in current)
        wanted = list(new_jobs(job_set))
        if any(map(failed, current)):
            self._restart(job_set)
        elif sum(map(done, current)) == len(wanted):
            self._api.put(path_of(job_set), status={"conditions": [{"type": "Completed", "status": "True"}]})
        else:
            names = {one["metadata"]["name"] for one in every}
            for job in wanted:
                if job["metadata"]["name"] not in names:
                    self._world.note("creates", job["metadata"]["name"])
                    self._api.put(path_of(job), **job)
            self._suspend_or_resume(job_set, active)

    def _count(self, job_set: Json, jobs: Iterable[Json]) -> None:
        """Write how many Jobs have succeeded and failed, if that is news."""
        succeeded, lost = Counter[str](), Counter[str]()
        for job in filter(done, jobs):
            (lost if failed(job) else succeeded)[job["metadata"]["labels"][REPLICATED_JOB]] += 1
        names = [one["name"] for one in job_set["spec"]["replicatedJobs"]]
        counted = [{"name": one, "succeeded": succeeded[one], "failed": lost[one]} for one in names]
        if job_set["status"].get("replicatedJobsStatus") != counted:
            self._api.put(path_of(job_set), status={"replicatedJobsStatus": counted})

    def _restart(self, job_set: Json) -> None:
        """All its Jobs are made again, if its policy allows another time."""
        restarts = int(attempt_of(job_set))
        if restarts < job_set["spec"]["failurePolicy"]["maxRestarts"]:
            self._world.note("restarts", job_set["metadata"]["name"])
            self._api.put(path_of(job_set), status={"restarts": restarts + 1})
        else:
            self._world.note("has failed", job_set["metadata"]["name"])
            self._api.put(path_of(job_set), status={"conditions": [{"type": "Failed", "status": "True"}]})

    def _suspend_or_resume(self, job_set: Json, active: Iterable[Json]) -> None:
        suspend = bool(job_set["spec"].get("suspend"))
        for job in active:
            if bool(job["spec"].get("suspend")) != suspend and not deleting(job):
                self._world.note("suspends" if suspend else "resumes", job["metadata"]["name"])
                self._api.put(path_of(job), spec={"suspend": True} if suspend else resumed(job, job_set))

    def _delete(self, jobs: Iterable[Json]) -> None:
        """In the foreground: they go after their pods."""
        for job in jobs:
            if not deleting(job):
                self._world.note("deletes", job["metadata"]["name"])
                self._api.put(path_of(job), metadata={"deletionTimestamp": self._world.stamp()})
