"""A flood of connections to the webhook's port: nobody who asks the API server for something notices it."""

from __future__ import annotations

from pathlib import Path

from local.client import Client
from local.service import Replica, Service
from tests.support.eventually import eventually
from tests.support.flood import OPEN, Flood
from tests.support.gangs import Namespace, job_body, require

CALLS = 40
FAULTS = 'topogate_server_faults_total{port="webhook"} 0.0'


def workers(service: Service) -> set[str]:
    """The worker processes of all replicas."""
    found: set[str] = set()
    for replica in service.running():
        pid = replica.child.process.pid
        found.update(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return found


def made_room(replica: Replica) -> bool:
    """True once a replica has had more connections than places."""
    lines = replica.page("/metrics")[1].splitlines()
    told = [line for line in lines if line.startswith('topogate_connections_ended_total{reason="room"}')]
    return bool(told) and float(told[0].split()[1]) > 0


def test_a_flood_of_connections_ends_no_worker_and_refuses_nobody(
    gangs: Namespace, service: Service, client: Client
) -> None:
    """While thousands connect, say a byte and are given up, every call that goes through the webhooks is answered."""
    gangs.fleet.grid("1x2x2")
    body = job_body("train", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    before = workers(service)
    with Flood(service.port) as flood:
        eventually(lambda: all(made_room(replica) for replica in service.running()), message="no place is left")
        for _ in range(CALLS):
            client.create(gangs.jobs_path, body, dry_run=True)
        assert all(replica.page("/healthz")[0] == 200 for replica in service.running())
    assert flood.made > OPEN
    assert workers(service) == before
    assert all(FAULTS in replica.page("/metrics")[1] for replica in service.running())
