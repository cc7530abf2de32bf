"""Replicas die again and again while gangs come and go: nothing is booked twice at any moment, nothing is left over."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import pytest

from local.client import Client, ClientError
from local.service import Service
from tests.support.books import Books, held
from tests.support.eventually import always, eventually
from tests.support.gangs import Namespace, prefer, require

pytestmark = pytest.mark.timeout(240)

SECONDS = 35.0
SEED = 20261121
SERVER_ERROR = 500


@dataclass
class Crowd:
    """The gangs of the test: made and deleted at random, each of one to four hosts."""

    gangs: Namespace
    rng: random.Random
    live: dict[str, tuple[int, bool]] = field(default_factory=dict)  # name -> pods, whether it requires a rack
    made: int = 0

    def come(self) -> None:
        """Submit a gang; while no replica answers it is refused, which is right."""
        name, pods, strict = f"gang-{self.made}", self.rng.randint(1, 4), self.rng.random() < 0.7
        self.made += 1
        try:
            self.gangs.submit(
                name,
                pods=pods,
                annotations=require("rack") if strict else prefer("rack"),
                indexed=self.rng.random() < 0.7,
            )
        except ClientError as error:
            if error.status != SERVER_ERROR:
                raise
        else:
            self.live[name] = (pods, strict)

    def go(self) -> None:
        """Delete a gang."""
        if self.live:
            name = self.rng.choice(sorted(self.live))
            del self.live[name]
            self.gangs.client.delete(f"{self.gangs.jobs_path}/{name}")

    def settled(self) -> bool:
        """Every gang is bound wholly, or waits with no pod at all."""
        for name, (pods, _) in self.live.items():
            bound = len(self.gangs.bound(name))
            waiting = self.gangs.phase(name) == "Waiting" and not self.gangs.pods(name)
            assert bound == pods or waiting, f"{name}: {bound} of {pods}\n{self.gangs.describe(name)}"
        return True


def harm(service: Service, rng: random.Random) -> None:
    """End the leader, another replica or all, by kill -9 or gracefully; start them again without waiting."""
    leader = service.leader()
    assert leader is not None
    match rng.choice(("leader", "other", "all", "end", "end")):
        case "leader":
            leader.kill()
        case "other":
            for replica in service.running():
                if replica is not leader:
                    replica.kill()
        case "all":
            service.kill_all()
        case "end":
            leader.child.process.terminate()
            leader.child.process.wait(20)
    service.start(2, wait=False)


def test_gangs_come_and_go_while_replicas_die(gangs: Namespace, service: Service, client: Client) -> None:
    """No host is overbooked at any moment; in the end every gang is placed wholly where it may be, or waits."""
    gangs.fleet.grid("1x3x4")
    books, rng = Books(client, gangs.fleet), random.Random(SEED)
    crowd = Crowd(gangs, rng)
    end = time.monotonic() + SECONDS
    leads_since: float | None = None
    harmed, patience, placed = 0, 0.0, set[str]()
    while time.monotonic() < end:
        if service.leader() is None:
            leads_since = None
        elif leads_since is None:
            leads_since = time.monotonic()
            patience = rng.uniform(0.0, 4.0)
        elif time.monotonic() >= leads_since + patience:
            harm(service, rng)
            harmed += 1
            leads_since = None
        (crowd.come if len(crowd.live) < 6 or rng.random() < 0.4 else crowd.go)()
        always(lambda: not books.overbooked(), rng.uniform(0.05, 0.4), "no host is overbooked")
        placed |= {name for name in crowd.live if gangs.phase(name) in ("Placed", "Running")}
    assert harmed >= 2
    assert placed  # a leader has worked in between
    service.start(2)
    eventually(service.leader, timeout=40, message="a replica leads")
    eventually(crowd.settled, timeout=40, message="every gang is whole or waits")
    assert crowd.live
    assert books.overbooked() == {}
    assert books.promised_twice(gangs) == {}
    for name, (pods, strict) in crowd.live.items():
        hosts = gangs.bound(name)
        assert not [pod for pod in gangs.pods(name) if held(pod)]
        assert not strict or len(gangs.racks(hosts)) <= 1
        placement = gangs.placement(name)
        assert placement is not None
        assert ("assignment" in placement["spec"] and placement["spec"]["assignment"] is not None) == (
            len(hosts) == pods
        )
    for name in sorted(crowd.live):
        client.delete(f"{gangs.jobs_path}/{name}")
    gangs.submit("last", pods=4, annotations=require("rack"))
    gangs.all_bound("last", 4)
