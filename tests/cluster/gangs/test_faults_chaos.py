"""Random schedules: gangs come and go while users, hosts, other people's pods and our replicas do their worst.

`pytest tests/cluster/gangs/test_faults_chaos.py --schedules 50 --first-seed 1000 --seconds 30` goes through fifty. What
holds at every moment is in tests/support/witness.py; what holds in the end, when all faults are over, is here.
"""

from __future__ import annotations

import sys
import time

import pytest

from local import nodes
from local.client import Client
from local.nodes import BLOCK, RACK, Grid
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.books import Books
from tests.support.crowd import Crowd, Member
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import Namespace
from tests.support.raw_pods import held
from tests.support.schedules import schedule
from tests.support.sights import Sight
from tests.support.upheaval import Upheaval
from tests.support.witness import Witness

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("jobset", "lws")]

# Times short enough that what they guard happens here: a schedule is over in seconds.
TIMES = (
    TEST_POLICY
    + "timeouts: {bind: 5s, hold: 10s, node: 3s, start: 4s, recover: 10s}\nqueue: {maxStartAttempts: 1000}\n"
)
POLICIES = [
    f"{TIMES}nodeLoss: {loss}\nincomplete: {incomplete}\n"
    for loss in ("wait", "evict", "restart")
    for incomplete in ("keep", "restart")
]
SETTLED = 90.0  # seconds: a fail-over, pods of a revived host that kwok looks at again, times of the policy
LAYOUT = "2x2x3"
RACK_HOSTS, BLOCK_HOSTS = 3, 6


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed that the command line asks for."""
    if "seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--schedules")
        metafunc.parametrize("seed", range(first, first + count))


@pytest.fixture
def seconds(pytestconfig: pytest.Config) -> float:
    """How long things happen."""
    return float(pytestconfig.getoption("--seconds"))


@pytest.fixture
def crowd(seed: int, client: Client, namespace: str, nodes: Fleet, policy: PolicyInForce) -> Crowd:
    """Twelve hosts in four racks, and nobody there yet."""
    policy.set(POLICIES[seed % len(POLICIES)])
    return Crowd(Namespace(client, namespace, nodes), rack=RACK_HOSTS, block=BLOCK_HOSTS, jobsets=True)


def test_everything_holds_whatever_happens(
    seed: int, seconds: float, crowd: Crowd, client: Client, service: Service
) -> None:
    """Nothing is booked twice, started in part or torn apart at any moment; in the end every gang gets its room."""
    fleet = crowd.gangs.fleet
    bodies = {
        body["metadata"]["name"]: body
        for body in nodes.grid_nodes(Grid.parse(LAYOUT), prefix=fleet.prefix, labels=fleet.selector)
    }
    fleet.add(bodies.values())
    places = {name: {key: body["metadata"]["labels"][key] for key in (BLOCK, RACK)} for name, body in bodies.items()}
    upheaval = Upheaval(crowd, service, client, bodies)
    witness = Witness(client, crowd.gangs.name, crowd.members, upheaval.strangers, places, crowd.collections)
    began = time.monotonic()
    try:
        with witness:
            upheaval.run(schedule(seed, seconds))
            _quiet(upheaval, service, client)
            eventually(lambda: _settled(witness, crowd), SETTLED, "every gang is whole or waits for a reason")
            _drained(witness, crowd, upheaval)
        assert witness.looks > 0
        assert witness.breaches == []
        assert Books(client, fleet).overbooked() == {}
        crowd.gangs.submit("last", pods=len(bodies), annotations={"topogate.dev/unconstrained-topology": "true"})
        crowd.gangs.all_bound("last", len(bodies))
        print(
            f"seed {seed}: {crowd.made} gangs, {len(upheaval.diary)} acts, {upheaval.faults} faults of hosts, "
            f"{upheaval.harms} of replicas, {witness.looks} looks, {time.monotonic() - began:.0f} s"
        )
    except BaseException:
        _tell(seed, seconds, began, upheaval, witness)
        raise


def _quiet(upheaval: Upheaval, service: Service, client: Client) -> None:
    """All faults are over: two replicas serve, one leads, every host is Ready; nobody is suspended by his user."""
    service.start(2)
    eventually(service.leader, 60.0, "a replica leads")
    eventually(lambda: not nodes.unready(client, upheaval.bodies), 60.0, "every host is Ready")
    crowd = upheaval.crowd
    for name in sorted(one for one, member in crowd.members.items() if member.suspended):
        if client.find(crowd.members[name].path) is not None:
            crowd.suspend(name, suspended=False)


def _settled(witness: Witness, crowd: Crowd) -> bool:
    """Every gang has ended, is whole, waits with no part started and says why, or lost room to others and says so."""
    for name, sight in witness.scene().gangs.items():
        if name in crowd.members:
            assert _at_rest(sight, crowd.members[name]), f"{name}: {sight.summary()}\n{crowd.describe(name)}"
    return True


def _at_rest(sight: Sight, member: Member) -> bool:
    if sight.over:
        return not any(held(pod) for pod in sight.live)
    phase, reason, message = sight.told
    explained = bool(reason) and bool(message)
    if phase == "Waiting":
        return explained and not sight.released and sight.planned is None
    # A gang that has started waits for room that somebody else took; `_drained` sees whether it gets that.
    return _enough(sight, member) or (
        phase == "Incomplete" and explained and bool(sight.bound) and sight.planned is not None
    )


def _whole(sight: Sight) -> bool:
    return len(sight.bound) == sight.wanted == len(sight.live) and not sight.suspended


def _enough(sight: Sight, member: Member) -> bool:
    """Whole, or as large as its user is content with while the others of it are held."""
    if member.least is None or sight.suspended:
        return _whole(sight)
    return len(sight.bound) >= min(member.least, sight.wanted) and sight.bound == sight.released


def _drained(witness: Witness, crowd: Crowd, upheaval: Upheaval) -> None:
    """Others go; whoever is whole goes, until nobody is left: each gang gets its room when there is some."""
    for name in sorted(upheaval.strangers):
        upheaval.client.delete(f"/api/v1/namespaces/{crowd.gangs.name}/pods/{name}")

    def satisfied() -> list[str]:
        scene = witness.scene()
        return [
            name
            for name, member in crowd.members.items()
            if (sight := scene.gangs.get(name)) is None or sight.over or _enough(sight, member)
        ]

    def unsatisfied() -> str:
        return "\n".join(crowd.describe(name) for name in sorted(crowd.members))

    while crowd.members:
        done = eventually(satisfied, 60.0, unsatisfied)
        for name in done:
            crowd.go(name)


def _tell(seed: int, seconds: float, began: float, upheaval: Upheaval, witness: Witness) -> None:
    """The whole history of a schedule that failed."""
    lines = [f"seed {seed}, {seconds:g} s; again: --schedules 1 --first-seed {seed} --seconds {seconds:g}"]
    for when, what in sorted(upheaval.diary + [(at, f"    {line}") for at, line in witness.diary]):
        lines.append(f"{when - began:7.2f} {what}")
    lines += [f"breach: {one}" for one in witness.breaches]
    lines.append(f"under way: {upheaval.state()}")
    for replica in upheaval.service.replicas.values():
        lines += [f"replica {replica.number}:", replica.log()[-6000:]]
    print("\n".join(lines), file=sys.stderr)
