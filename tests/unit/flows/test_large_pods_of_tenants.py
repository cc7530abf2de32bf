"""One large pod in a gang of small ones: a pod keeps what it requests, and those to come what quotas admit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.pod import Pod, Shape
from engine.api.workload import Workload
from tests.support.cluster_records import gpu_nodes, job, placement, pod, shape, spec
from tests.support.families import plain
from tests.support.leader import Leader

HOSTS = [f"b0-r0-h{number}" for number in range(8)]
TINY, LARGE = shape(cpu=10), shape(cpu=90_000, gpu=8)
GATES = ("tenant.example/gate", names.GATE)


def rack(*gpus: int) -> Leader:
    """A rack of eight hosts, in a namespace with quotas of so many GPUs that are left."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    allow(leader, *gpus)
    return leader


def allow(leader: Leader, *gpus: int) -> None:
    hard = {"requests.nvidia.com/gpu": 8}
    quotas = [
        Quota("default", f"q{left}", hard=hard, used={"requests.nvidia.com/gpu": 8 - left}, scopes=()) for left in gpus
    ]
    leader.stores.quotas.replace(quotas)


def placed(leader: Leader, *, name: str = "tiny", ranked: bool = True, slots: dict[str, int] | None = None) -> Workload:
    """A gang of tiny pods with a slot on every host, of which none exists yet."""
    template = spec(shape=TINY, gates=(names.GATE,), labels={names.MANAGED: "true"})
    asked = {names.UNCONSTRAINED: "true"}
    slots = slots or dict.fromkeys(HOSTS, 1)
    more = {"count": sum(slots.values()), "uid": f"uid-{name}", "ranked": ranked}
    gang = job(name, require=None, template=template, annotations=asked, **more)
    leader.stores.workloads.apply("ADDED", gang)
    leader.stores.placements.apply("ADDED", placement(gang, slots))
    leader.view.refresh()
    return gang


def held(of: Workload, rank: int | None, asks: Shape, *gates: str, name: str = "") -> Pod:
    name = name or f"{of.name}-{rank}"
    one = sized(pod(of, rank, gated=True, name=name, uid=name), asks)
    return replace(one, spec=replace(one.spec, gates=gates or one.spec.gates))


def sized(one: Pod, asks: Shape) -> Pod:
    return replace(one, spec=replace(one.spec, shape=replace(one.spec.shape, requests=asks.requests)))


def free(leader: Leader) -> list[int]:
    leader.view.refresh()
    return [leader.view.capacity.free(host).get("nvidia.com/gpu", 0) for host in HOSTS]


def test_one_large_pod_of_a_plain_gang_keeps_nothing_on_the_hosts_of_the_others() -> None:
    """They exist, held by a gate of their user's, and need next to nothing: the rack is there for others."""
    leader, tiny = rack(), []
    for number in range(8):
        one = plain(f"tiny-{number}", size="8")
        requests = tuple(sorted((*TINY.requests, ("host port 9/TCP", 1))))
        own = replace(one.spec, gates=GATES, shape=replace(TINY, requests=requests))
        tiny.append(replace(one, uid=one.name, spec=own))
    leader.has(*tiny)
    leader.settle()
    leader.has(replace(tiny[0], name="large", uid="large", spec=replace(tiny[0].spec, shape=LARGE)))
    leader.settle()
    assert sum(free(leader)) >= 7 * 8
    leader.has(job("other", count=7, uid="uid-other", held=True, require="rack"))
    leader.settle()
    assert "other" in leader.hands.of("place")


@pytest.mark.parametrize("ranked", [True, False])
def test_a_large_pod_without_a_slot_keeps_nothing_on_the_hosts_of_pods_that_exist(ranked: bool) -> None:
    leader = rack()
    gang = placed(leader, ranked=ranked)
    for rank in range(8):
        leader.has(held(gang, rank if ranked else None, TINY, *GATES, name=f"tiny-{rank}"))
    leader.has(held(gang, 9 if ranked else None, LARGE, *GATES, name="z-large"))
    assert free(leader) == [8] * 8


@pytest.mark.parametrize(
    ("quotas", "left"), [((), 0), ((0,), 8), ((7,), 8)], ids=["no quota", "a full one", "less than a pod's"]
)
def test_pods_that_no_quota_admits_are_not_expected_to_be_large(quotas: tuple[int, ...], left: int) -> None:
    """Eight may come, and a ninth without a slot is large. Without a quota all eight may be like it."""
    leader = rack(*quotas)
    leader.has(held(placed(leader), 9, LARGE))
    assert free(leader) == [left] * 8


def test_what_is_expected_of_pods_to_come_follows_their_quota() -> None:
    """One pod is missing, and the others are as large: its room is kept while it may be created."""
    leader = rack(8)
    gang = placed(leader)
    for rank in range(7):
        leader.has(sized(pod(gang, rank, host=HOSTS[rank]), LARGE))
    assert free(leader) == [0] * 8
    allow(leader, 7)
    assert free(leader) == [0] * 7 + [8]
    allow(leader, 8)
    assert free(leader) == [0] * 8


def test_the_gangs_of_a_namespace_share_the_quota_for_larger_pods() -> None:
    """Each misses one, and there is quota for one: none of them is expected to be large."""
    leader = rack(8)
    for first, name in enumerate(("one", "two")):
        gang = placed(leader, name=name, slots={HOSTS[first]: 1})
        leader.has(held(gang, 9, LARGE, name=f"{name}-large"))
    assert free(leader) == [8] * 8
    leader.stores.workloads.apply("DELETED", leader.workload("one"))
    assert free(leader) == [8, 0, *[8] * 6]


def test_each_pod_to_come_to_a_host_keeps_its_own_requests() -> None:
    """One of eight on the same host is larger."""
    leader = rack()
    gang = placed(leader, slots={HOSTS[0]: 8})
    for rank in range(8):
        leader.has(held(gang, rank, shape(cpu=10, gpu=1) if rank == 3 else TINY))
    assert free(leader) == [7, *[8] * 7]
    assert dict(leader.view.capacity.reserved(gang.uid)) == {HOSTS[0]: 8}


def test_a_released_pod_without_a_slot_keeps_its_own_requests() -> None:
    """It is on its way to a host where its gang has no slot any more; another one is larger."""
    leader = rack()
    gang = placed(leader, slots={HOSTS[0]: 1})
    for rank, asks in ((1, TINY), (2, LARGE)):
        leader.has(sized(pod(gang, rank, pin=HOSTS[rank]), asks))
    assert free(leader)[1:3] == [8, 0]
