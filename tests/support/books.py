"""Bookkeeping from outside: what the hosts of a test carry and what Placements promise, read from the API server."""

from __future__ import annotations

from collections import Counter

from local.client import Client
from tests.support.fleet import Fleet
from tests.support.gangs import Namespace
from tests.support.raw_placements import placements_path, slots
from tests.support.raw_pods import ended, gpus, host

PER_HOST = 8


class Books:
    """The pods and Placements of all namespaces on the hosts of one test."""

    def __init__(self, client: Client, fleet: Fleet) -> None:
        self._client = client
        self._hosts = frozenset(fleet.names)

    def overbooked(self) -> dict[str, int]:
        """Hosts on which bound and pinned pods ask for more GPUs than there are: one list, so one moment."""
        asked: Counter[str] = Counter()
        for pod in self._client.items("/api/v1/pods"):
            where = host(pod)
            if where in self._hosts and not ended(pod):
                asked[where] += gpus(pod)
        return {name: count for name, count in asked.items() if count > PER_HOST}

    def promised_twice(self, gangs: Namespace) -> dict[str, int]:
        """Hosts of which the Placements of the namespace's Jobs promise more GPUs than there are."""
        promised: Counter[str] = Counter()
        jobs = {job["metadata"]["uid"]: job for job in self._client.items(gangs.jobs_path)}
        for placement in self._client.items(placements_path(gangs.name)):
            job = jobs.get(placement["spec"]["workload"]["uid"])
            if job is None:
                continue
            each = gpus(job["spec"]["template"])
            for name, count in slots(placement).items():
                promised[name] += count * each
        return {name: count for name, count in promised.items() if count > PER_HOST}
