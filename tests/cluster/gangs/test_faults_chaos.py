"""Random schedules: gangs come and go while users, hosts, other people's pods and our replicas do their worst.

`pytest tests/cluster/gangs/test_faults_chaos.py --schedules 50 --first-seed 1000 --seconds 30` goes through fifty. What
holds at every moment is in tests/support/witness.py; what holds in the end, when all faults are over, is here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from local import nodes
from local.client import Client
from local.nodes import BLOCK, RACK, Grid
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.books import Books
from tests.support.crowd import PER_HOST, SCOPES, Crowd, Member
from tests.support.device_objects import DeviceObjects
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import Json, Namespace
from tests.support.raw_pods import held
from tests.support.schedules import schedule
from tests.support.sights import Sight
from tests.support.upheaval import Upheaval
from tests.support.witness import Scene, Witness

pytestmark = pytest.mark.usefixtures("jobset", "lws")

# Times short enough that what they guard happens here: a schedule is over in seconds.
TIMES = TEST_POLICY + "timeouts: {bind: 5s, hold: 10s, node: 3s, start: 4s, recover: 10s}\n"
POLICIES = [
    f"{TIMES}nodeLoss: {loss}\nincomplete: {incomplete}\nqueue: {{maxStartAttempts: 1000, onTimeout: {late}}}\n"
    for late, loss in zip(("giveUp", "requeue", "giveUp"), ("wait", "evict", "restart"), strict=True)
    for incomplete in ("keep", "restart")
]
PREEMPTS = "preemption: {mode: lower-priority, after: 1s}\n"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SETTLED = 180.0  # seconds: a fail-over, pods of a revived host that kwok looks at again, times of the policy
LAYOUT = "2x2x3"
VOLUMES = "/api/v1/persistentvolumes"
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
def urgent(seed: int, client: Client, namespace: str, policy: PolicyInForce) -> Iterator[str]:
    """A PriorityClass of this test's own, for which others end under the policy; "" every second time: none does."""
    name = "" if seed % 2 else f"{namespace}-urgent"
    if name:
        client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1000})
    policy.set(POLICIES[seed % len(POLICIES)] + (PREEMPTS if name else ""))
    yield name
    if name:
        client.delete(f"{PRIORITY_CLASSES}/{name}")


@pytest.fixture
def crowd(seed: int, client: Client, namespace: str, nodes: Fleet, urgent: str) -> Crowd:
    """Twelve hosts in four racks, and nobody there yet; every second time the hosts report their devices."""
    return Crowd(
        Namespace(client, namespace, nodes),
        rack=RACK_HOSTS,
        block=BLOCK_HOSTS,
        jobsets=True,
        scopes=bool(seed % 2),
        urgent=urgent,
    )


@pytest.fixture
def volumes(crowd: Crowd, client: Client) -> Iterator[dict[str, str]]:
    """Two claims with a volume each, in reach of one rack: claim -> rack."""
    racks = {f"data-{number}": f"{crowd.gangs.fleet.prefix}rack-{number:02d}" for number in range(2)}
    for claim, rack in racks.items():
        made = persistent_volume(crowd.gangs.name, claim, rack)
        client.create(VOLUMES, made)
        client.create(f"/api/v1/namespaces/{crowd.gangs.name}/persistentvolumeclaims", claim_of(made))
    yield racks
    for claim in racks:
        client.delete(f"{VOLUMES}/{crowd.gangs.name}-{claim}")


@pytest.fixture
def devices(crowd: Crowd, client: Client, service: Service) -> Iterator[Callable[[Iterable[str]], None]]:
    """Lets hosts report their GPUs, and waits until every replica knows; they are forgotten in the end."""
    objects = DeviceObjects(client, service)

    def report(hosts: Iterable[str]) -> None:
        names = list(hosts)
        for host in names:
            objects.report(host, gpus_of_a_host())
        objects.known(len(names))

    yield report
    objects.clear()


def test_everything_holds_whatever_happens(
    *,
    seed: int,
    seconds: float,
    crowd: Crowd,
    volumes: dict[str, str],
    devices: Callable[[Iterable[str]], None],
    client: Client,
    service: Service,
) -> None:
    """Nothing is booked twice, started in part or torn apart at any moment; in the end every gang gets its room."""
    crowd.volumes = volumes
    fleet = crowd.gangs.fleet
    bodies = {
        body["metadata"]["name"]: body
        for body in nodes.grid_nodes(Grid.parse(LAYOUT), prefix=fleet.prefix, labels=fleet.selector)
    }
    fleet.add(bodies.values())
    if crowd.scopes:
        devices(bodies)
    places = {name: {key: body["metadata"]["labels"][key] for key in (BLOCK, RACK)} for name, body in bodies.items()}
    upheaval = Upheaval(crowd, service, client, bodies)
    witness = Witness(
        client, crowd.gangs.name, crowd.members, upheaval.strangers, places, crowd.collections, left=crowd.left
    )
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
        crowd.gangs.all_bound("last", len(bodies), SETTLED)
        print(
            f"seed {seed}: {crowd.made} gangs ({_counts(crowd)}), {len(upheaval.diary)} acts, "
            f"{upheaval.faults} faults of hosts, {upheaval.harms} of replicas, {witness.looks} looks, "
            f"{time.monotonic() - began:.0f} s"
        )
    except BaseException:
        for name in sorted(upheaval.daemons):  # they would make pods for ever
            upheaval.daemons_go(name)
        _tell(seed, seconds, began, upheaval, witness)
        raise


def persistent_volume(namespace: str, claim: str, rack: str) -> Json:
    """A volume for one claim, in reach of one rack."""
    terms = [{"matchExpressions": [{"key": RACK, "operator": "In", "values": [rack]}]}]
    return {
        "metadata": {"name": f"{namespace}-{claim}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "nfs": {"server": "nfs.example.com", "path": "/"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "claimRef": {"namespace": namespace, "name": claim},
        },
    }


def claim_of(volume: Json) -> Json:
    """The claim that a volume is for."""
    spec = {key: volume["spec"][key] for key in ("accessModes", "storageClassName")}
    resources = {"requests": volume["spec"]["capacity"]}
    return {
        "metadata": {"name": volume["spec"]["claimRef"]["name"]},
        "spec": {**spec, "volumeName": volume["metadata"]["name"], "resources": resources},
    }


def gpus_of_a_host() -> list[Json]:
    """The GPUs that a host reports."""
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    return [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"GPU-{minor}",
            "health": True,
            "resources": {**amounts, "koordinator.sh/gpu-memory": "80Gi"},
            "topology": {"socketID": 0, "nodeID": minor // SCOPES["numa"], "pcieID": f"p{minor // SCOPES['pcie']}"},
        }
        for minor in range(PER_HOST)
    ]


def _counts(crowd: Crowd) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(crowd.drawn.items()))


def _quiet(upheaval: Upheaval, service: Service, client: Client) -> None:
    """All faults are over: two replicas serve, one leads, every host is Ready; nobody is suspended by his user."""
    service.start(2)
    eventually(service.leader, message="a replica leads")
    eventually(lambda: not nodes.unready(client, upheaval.bodies), message="every host is Ready")
    crowd = upheaval.crowd
    for name in sorted(one for one, member in crowd.members.items() if member.suspended):
        if client.find(crowd.members[name].path) is not None:
            crowd.suspend(name, suspended=False)


def _settled(witness: Witness, crowd: Crowd) -> bool:
    """Every gang has ended, is whole, waits with no part started and says why, or lost room to others and says so."""
    scene = witness.scene()
    assert witness.invariants.rest(scene, crowd.members) == []
    for name, sight in scene.gangs.items():
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
    # A gang that has started waits for room that somebody else took: for pods that it lost, or, while all that it
    # started with run, for pods that its user added. `_drained` sees whether it gets that.
    waits = phase == "Incomplete" or (phase == "Running" and sight.bound == sight.released)
    return _enough(sight, member) or (waits and explained and bool(sight.bound) and sight.planned is not None)


def _whole(sight: Sight) -> bool:
    return len(sight.bound) == sight.wanted == len(sight.live) and not sight.suspended


def _enough(sight: Sight, member: Member) -> bool:
    """Whole, or as large as its user is content with while the others of it are held."""
    if member.least is None or sight.suspended:
        return _whole(sight)
    return len(sight.bound) >= min(member.least, sight.wanted) and sight.bound == sight.released


def _has_room(sight: Sight) -> bool:
    """True when all its pods have their slots, and its Job has yet to create some: minutes after many failures."""
    slots = sum(slot["count"] for slot in sight.planned or ())
    return sight.told[1] == "WaitingForMembers" and slots >= sight.wanted and sight.live == sight.bound != ()


def _too_few(scene: Scene, crowd: Crowd, member: Member) -> bool:
    """True when the pod group of a gang has fewer pods left than must start together."""
    if member.group is None:
        return False
    of_group = [name for name, one in crowd.members.items() if one.group == member.group]
    left = [sight for name in of_group if (sight := scene.gangs.get(name)) is not None and not sight.over]
    return sum(sight.wanted for sight in left) < member.group_least


def _drained(witness: Witness, crowd: Crowd, upheaval: Upheaval) -> None:
    """Others go; whoever is whole goes, until nobody is left: each gang gets its room when there is some."""
    for name in sorted(upheaval.strangers):
        upheaval.client.delete(f"/api/v1/namespaces/{crowd.gangs.name}/pods/{name}")
    for name in sorted(upheaval.daemons):
        upheaval.daemons_go(name)

    def satisfied() -> list[str]:
        scene = witness.scene()
        return [
            name
            for name, member in crowd.members.items()
            if (sight := scene.gangs.get(name)) is None
            or sight.over
            or ((_enough(sight, member) or _has_room(sight)) and witness.has_seen(member))
            or (member.timed and sight.told[1] == "ScheduleTimeout")
            or (sight.told[1] == "WaitingForMembers" and _too_few(scene, crowd, member))
        ]

    def unsatisfied() -> str:
        return "\n".join(crowd.describe(name) for name in sorted(crowd.members))

    while crowd.members:
        done = eventually(satisfied, message=unsatisfied)
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
