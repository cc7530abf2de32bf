"""What can happen to the service and to what it has written, each as one act on a stage that a load goes over."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from certs.secret import DROP, RENEW
from local.controlplane import ControlPlane
from local.service import CONFIGURATIONS, NAMESPACE, Replica, Service
from tests.support.eventually import eventually
from tests.support.faulty_api import FaultyApi
from tests.support.gangs import Namespace
from tests.support.imitations.cert_manager import CertManager, apply_component, bundles
from tests.support.lease import LEASE, holder
from tests.support.standing_gangs import SETTLED
from tests.support.steady_load import Call, SteadyLoad

SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/topogate-ca"
POLICY = f"/api/v1/namespaces/{NAMESPACE}/configmaps/topogate-policy"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/placements.topogate.dev"
FROZEN = 6.0  # seconds
FAULTY = 10.0  # seconds
CLOCK = Path(__file__).parent / "clock"
CLOCKS = (600, -1500, 3000, 0)  # seconds; a leaf is good for an hour before it was made
LEAF_AGE = 5 * 86_400  # seconds: a leaf is renewed after two thirds of seven days


@dataclass(slots=True)
class Stage:
    """Two replicas, gangs that run and wait, and a load; `deaths` are the moments of each kill, before and after it."""

    plane: ControlPlane
    service: Service
    gangs: Namespace
    load: SteadyLoad
    deaths: list[tuple[float, float]] = field(default_factory=list)

    def leader(self) -> Replica:
        """The replica that leads."""
        found = eventually(self.service.leader, SETTLED, "a replica leads")
        assert found is not None
        return found

    def follower(self) -> Replica:
        """A replica that does not lead."""
        leader = self.leader()
        return next(one for one in self.service.running() if one is not leader)

    def kill(self, replica: Replica) -> None:
        """End a replica as a crash would, and note when."""
        before = time.monotonic()
        replica.kill()
        self.deaths.append((before, time.monotonic()))

    def lost(self) -> list[Call]:
        """Return the failed calls, without those that were under way when a replica died: nobody can save them."""
        return [
            one
            for one in self.load.failed()
            if not any(one.began < after and one.began + one.seconds > before for before, after in self.deaths)
        ]

    def replaced(self) -> None:
        """Replace one replica after the other, each when the one before serves."""
        for number in sorted(self.service.replicas):
            replica = self.service.replicas[number]
            if replica.child.running:
                replica.terminate()
            self.service.start(2)
            self.load.goes_on(10)

    def another_leads(self, old: str) -> None:
        """Wait until the Lease names somebody else."""
        eventually(lambda: self.holder() not in (old, ""), SETTLED, "another replica leads")

    def holder(self) -> str:
        """Whom the Lease names."""
        return holder(self.plane.client)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault. `short` ones run in every `make test`; `lost` is how many calls of objects that ask may fail.

    Calls that are under way when a replica dies are not among them. The limits are twice what was seen, and
    docs/tasks/admin/faults.md says why these fail. Of objects that do not ask none ever may.
    """

    name: str
    act: Callable[[Stage], None]
    short: bool = False
    lost: int = 0
    clock: bool = False  # replicas run with a clock of their own
    aged: bool = False  # which is days behind at first
    forgets: bool = False  # gangs that run are not managed afterwards


def rolling_restart(stage: Stage) -> None:
    """As an update does it."""
    stage.replaced()


def follower_killed(stage: Stage) -> None:
    """kill -9 of the replica that does not lead."""
    stage.kill(stage.follower())
    stage.load.goes_on()
    stage.service.start(2)


def leader_killed(stage: Stage) -> None:
    """kill -9 of the leader: the Lease runs out, the other one leads."""
    before = stage.holder()
    stage.kill(stage.leader())
    stage.another_leads(before)
    stage.service.start(2)


def leader_frozen(stage: Stage) -> None:
    """The leader stands still and goes on. Here nobody takes it out of service, as a cluster would after 6 s."""
    group = stage.leader().child.process.pid
    with frozen(group):
        time.sleep(FROZEN)


def ca_rotated(stage: Stage) -> None:
    """A new CA on request, with an overlap; then the old one goes. Leaves are signed anew."""
    client = stage.plane.client
    before = _bundle(stage)
    client.patch(SECRET, {"metadata": {"annotations": {RENEW: "now"}}})
    eventually(lambda: _bundle(stage) != before, SETTLED, "the new CA is in the bundle")
    stage.load.goes_on()
    both = _bundle(stage)
    client.patch(SECRET, {"metadata": {"annotations": {DROP: "now"}}})
    eventually(lambda: _bundle(stage) != both, SETTLED, "the old CA is gone from the bundle")


def switched_to_cert_manager(stage: Stage) -> None:
    """The steps of docs/tasks/admin/certificates.md: to certificates of cert-manager, and back to those of our own."""
    client, service = stage.plane.client, stage.service
    theirs = CertManager(client, service.directory / "certificates")
    theirs.issue()
    try:
        both = base64.b64decode(client.get(SECRET)["data"]["ca.crt"]) + theirs.authority.pem
        client.patch(SECRET, {"data": {"ca.crt": base64.b64encode(both).decode()}})
        eventually(lambda: bundles(client) == {both}, SETTLED, "both CAs are trusted")
        stage.load.goes_on()
        service.options = ("--certificates-from", str(theirs.directory))
        stage.replaced()
        apply_component(service)
        theirs.inject(theirs.authority)
        eventually(lambda: bundles(client) == {theirs.authority.pem}, SETTLED, "only cert-manager's CA is trusted")
        stage.load.goes_on()
        client.delete(SECRET)
        stage.load.goes_on()
        files = {"ca.crt": theirs.authority.pem, "ca.key": theirs.authority.key_pem}
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        client.create(SECRET.rpartition("/")[0], {"metadata": {"name": "topogate-ca"}, "data": data})
    finally:
        service.options = ()
        service.apply()
        stage.replaced()
    ca_rotated(stage)
    eventually(lambda: client.get(SECRET)["data"]["ca.key"] != data["ca.key"], SETTLED, "a CA of our own signs")
    eventually(lambda: all(theirs.authority.pem not in one for one in bundles(client)), SETTLED, "theirs has gone")


def leaf_rotated(stage: Stage) -> None:
    """The clock of both replicas goes from five days ago to now: a leaf is due for renewal."""
    before = eventually(lambda: _ends(stage), SETTLED, "each replica tells when its leaf ends")
    assert len(before) == len(stage.service.replicas)
    set_clock(stage.service, 0)

    def renewed() -> bool:
        after = _ends(stage)
        return all(after[one] > end for one, end in before.items())

    eventually(renewed, SETTLED, "new leaves are served")


def secret_corrupt(stage: Stage) -> None:
    """Somebody writes something else into the Secret of the CA: the leader restores it."""
    client = stage.plane.client
    good = client.get(SECRET)["data"]
    client.patch(SECRET, {"data": dict.fromkeys(good, "bm90aGluZw==")})
    eventually(lambda: client.get(SECRET)["data"] == good, SETTLED, "the leader has restored the Secret")


def secret_deleted(stage: Stage) -> None:
    """Somebody deletes the Secret of the CA: the leader makes it again."""
    stage.plane.client.delete(SECRET)
    eventually(lambda: stage.plane.client.find(SECRET), SETTLED, "there is a Secret again")


def configurations_deleted(stage: Stage) -> None:
    """Somebody deletes the webhook configurations, and applies the manifests later."""
    stage.load.gangs_wanted = False  # nobody would hold them
    stage.load.goes_on(20)
    for path in CONFIGURATIONS:
        stage.plane.client.delete(path)
    stage.load.goes_on()
    stage.service.apply()
    eventually(stage.service.injected, SETTLED, "the CA bundle is in the configurations")
    stage.load.goes_well()
    stage.load.gangs_wanted = True


def definition_deleted(stage: Stage) -> None:
    """Somebody deletes the definition of Placements and with it all of them, and applies the manifests later."""
    client = stage.plane.client
    client.delete(DEFINITION)
    eventually(lambda: client.find(DEFINITION) is None, SETTLED, "the definition is gone")
    stage.load.goes_on()
    stage.service.apply()


def lease_deleted(stage: Stage) -> None:
    """Somebody deletes the Lease."""
    stage.plane.client.delete(LEASE)
    eventually(stage.holder, SETTLED, "somebody leads")


def policy_deleted(stage: Stage) -> None:
    """Somebody deletes the policy, and writes it again later: the defaults are in force meanwhile."""
    client = stage.plane.client
    data = client.get(POLICY)["data"]
    client.delete(POLICY)
    stage.load.goes_on(40)
    client.create(POLICY.rpartition("/")[0], {"metadata": {"name": "topogate-policy"}, "data": data})


def api_server_restarted(stage: Stage) -> None:
    """The API server ends and starts again; calls fail meanwhile, but none because of us."""
    stage.plane.restart_api_server()


def api_server_faulty(stage: Stage) -> None:
    """Of what the replicas ask the API server, much is refused, late, cut or lost, at random, for ten seconds."""
    with FaultyApi(stage.plane.url, stage.plane.ca_certificate, seed=1) as api:
        stage.service.api_server = api.url
        try:
            stage.replaced()
            api.calm = False
            until, met = time.monotonic() + FAULTY, ("429", "500", "409", "lost", "cut")
            eventually(
                lambda: time.monotonic() > until and all(api.drawn[one] for one in met),
                SETTLED,
                lambda: f"each fault was met; {api.drawn}",
            )
            api.calm = True
            stage.load.goes_well()
        finally:
            api.calm = True
            stage.service.api_server = ""
            stage.replaced()


def clock_jumps(stage: Stage) -> None:
    """The clock of both replicas jumps to and fro, by minutes."""
    for offset in CLOCKS:
        set_clock(stage.service, offset)
        stage.load.goes_on(60)


def scaled(stage: Stage) -> None:
    """1 -> 3 -> 1 replicas."""
    stage.service.replicas[1].terminate()
    stage.load.goes_on()
    stage.service.start(3)
    stage.load.goes_on()
    for number in (0, 2):
        stage.service.replicas[number].terminate()
        stage.load.goes_on()
    stage.service.start(2)


SCENARIOS = (
    Scenario("rolling restart", rolling_restart, short=True),
    Scenario("follower killed", follower_killed, lost=2),
    Scenario("leader killed", leader_killed, short=True, lost=2),
    Scenario("leader frozen", leader_frozen, lost=20),
    Scenario("CA rotated", ca_rotated),
    Scenario("switched to cert-manager and back", switched_to_cert_manager),
    Scenario("leaf rotated", leaf_rotated, clock=True, aged=True),
    Scenario("Secret corrupt", secret_corrupt),
    Scenario("Secret deleted", secret_deleted, short=True),
    Scenario("configurations deleted", configurations_deleted, lost=6),
    Scenario("definition deleted", definition_deleted, forgets=True),
    Scenario("Lease deleted", lease_deleted),
    Scenario("policy deleted", policy_deleted),
    Scenario("API server restarted", api_server_restarted, short=True),
    Scenario("API server faulty", api_server_faulty),
    Scenario("clock jumps", clock_jumps, clock=True),
    Scenario("scaled 1-3-1", scaled),
)


@contextmanager
def frozen(group: int) -> Iterator[None]:
    """Stop all processes of a group for as long as the block runs."""
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(group, signal.SIGCONT)


def clock_of_its_own(service: Service) -> dict[str, str]:
    """The environment of replicas whose wall clock `clock_file` sets; time that passes is left alone."""
    return {"PYTHONPATH": f"{CLOCK}:{service.root}", "TEST_CLOCK": str(clock_file(service))}


def clock_file(service: Service) -> Path:
    """Where the offset of the replicas' clock stands, in seconds."""
    return service.directory / "clock"


def set_clock(service: Service, offset: int) -> None:
    """Set the clock of replicas that have one of their own, in seconds from the real one."""
    clock_file(service).write_text(f"{offset}\n")


def _bundle(stage: Stage) -> str:
    return str(stage.plane.client.get(CONFIGURATIONS[0])["webhooks"][0]["clientConfig"]["caBundle"])


def _ends(stage: Stage) -> dict[int, float]:
    """When the leaf of each replica ends."""
    wanted = 'topogate_certificate_end_timestamp_seconds{certificate="leaf"} '
    found = {}
    for number, replica in stage.service.replicas.items():
        ends = [line for line in replica.page("/metrics")[1].splitlines() if line.startswith(wanted)]
        assert len(ends) == 1, f"replica {number} tells {ends}"
        found[number] = float(ends[0].removeprefix(wanted))
    return found
