"""Pods that differ from their template: larger ones, as those of Spark, and what admission adds to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.objects import Taint
from engine.api.pod import Pod, Shape
from engine.api.resources import Requests, largest
from engine.api.workload import GangKey, ReservationKey, Workload
from engine.cache import pod_shapes
from engine.cache.pod_shapes import PodShapes
from engine.cache.stores import Stores
from engine.policy.model import parse_policy
from tests.support.cluster_records import gpu_nodes, job, pod, shape, spec
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader
from tests.support.pod_sets import member, pods_of, several

FEW = {"b0-r0-h2", "b0-r0-h3"}
SMALL, LARGE = shape(cpu=1000), shape(cpu=80_000)


def application() -> Workload:
    """A driver and two executors whose templates ask for next to nothing: all three fit one host."""
    driver = pods_of("driver", 1, shape=SMALL)
    executors = pods_of("executor", 2, shape=SMALL, ranked=False)
    return several(driver, executors, says={names.REQUIRE: "rack"}, held=True)


def hosts_of(leader: Leader, pod_set: str) -> list[str]:
    (placed,) = leader.view.gangs.placements()
    assert placed.assignment is not None
    return [slot.host for slot in placed.assignment.plan_of(pod_set).slots for _ in range(slot.count)]


def running(one: Workload, *, racks: int = 1, hosts: int) -> tuple[Leader, Workload]:
    """The driver runs, as Spark starts it first."""
    leader = Leader(nodes=gpu_nodes(1, racks, hosts))
    leader.has(one)
    leader.settle()
    (host,) = hosts_of(leader, "driver")
    live = leader.stores.workloads.get(one.key)
    assert live is not None
    leader.has(member(live, "driver", 0, host=host))
    leader.settle()
    return leader, live


def large(of: Workload, number: int) -> Pod:
    pod = replace(member(of, "executor", None, gated=True), name=f"executor-{number}")
    return replace(pod, spec=replace(pod.spec, shape=LARGE))


def test_a_plan_by_the_templates_is_made_anew_for_the_pods_as_they_are() -> None:
    """80 of 96 CPUs each: the first shows what all need, and each gets a host of its own."""
    leader, live = running(application(), hosts=3)
    assert len(set(hosts_of(leader, "executor"))) == 1
    for number in range(2):
        leader.has(large(live, number))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["executor-0", "executor-1"]
    assert len(set(hosts_of(leader, "executor"))) == 2


def test_without_room_for_them_as_they_are_no_host_is_overbooked() -> None:
    """One rack of one host: one of them goes, the other one waits and says so."""
    leader, live = running(application(), racks=2, hosts=1)
    for number in range(2):
        leader.has(large(live, number))
    leader.settle()
    leader.later(10)
    assert len(leader.hands.of("release")) <= 1
    (placed,) = leader.view.gangs.placements()
    assert placed.status.get("phase") == "Incomplete"


@pytest.mark.parametrize("policy", ["", "incomplete: restart\n"])
def test_a_gang_is_planned_on_the_hosts_that_admission_allows_its_pods(policy: str) -> None:
    """Its namespace has a node selector, by an admission plugin: held pods show it. The first start is ended."""
    nodes = gpu_nodes(1, 2, 4)
    labelled = [replace(one, labels={**one.labels, "zone": "a"}) for one in nodes if one.name not in FEW]
    leader = Leader(nodes=[*(one for one in nodes if one.name in FEW), *labelled], policy=POLICY + policy)
    leader.has(job("train", count=4, held=True, template=spec(shape=shape(gpu=8), gates=(names.GATE,))))
    leader.settle()
    live = leader.workload()
    assert set(ranks_of(leader.placed()).values()) >= FEW
    for rank in range(4):
        held = pod(live, rank, gated=True)
        limited = replace(held.spec.shape, node_selector=(("zone", "a"),))
        leader.has(replace(held, spec=replace(held.spec, shape=limited)))
    leader.settle()
    assert leader.hands.of("suspend") == ["train"]
    leader.stores.pods.replace([])
    leader.later(60)
    assert set(ranks_of(leader.placed()).values()) == {f"b0-r1-h{host}" for host in range(4)}
    assert leader.hands.of("resume") == ["train", "train"]
    leader.stores.workloads.apply("DELETED", leader.workload())
    leader.settle()
    assert len(leader.view.pod_shapes._held) == 0


@pytest.mark.parametrize(("asks", "merges"), [(SMALL, 0), (LARGE, 1)])
def test_equal_requests_of_many_pods_are_merged_once_at_most(
    monkeypatch: pytest.MonkeyPatch, asks: Shape, merges: int
) -> None:
    """Each change of a gang looks at all its pods, so that what most of them share must cost next to nothing."""
    merged: list[Requests] = []

    def counted(requests: Iterable[Requests]) -> Requests:
        merged.append(found := largest(requests))
        return found

    monkeypatch.setattr(pod_shapes, "largest", counted)
    workload = application()
    pods = [replace(one, spec=replace(one.spec, shape=asks)) for one in (large(workload, at) for at in range(50))]
    PodShapes(Stores()).observe(GangKey("g"), workload, pods)
    assert len(merged) == merges


def service(cpus: int, count: int = 2, **more: Any) -> Workload:
    """A Deployment with pods of so many of a host's 96 CPUs."""
    template = spec(gates=(names.GATE,), labels={names.MANAGED: "true"}, shape=shape(cpu=cpus * 1000))
    one = job("web", count=count, ranked=False, template=template)
    return replace(one, suspendable=False, unit="pod", **more)


def serves(of: Workload, *, cpus: int) -> Leader:
    """Two hosts with one of its pods each, which turn out to need so many CPUs."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(of, *(pod(of, None, name=f"old-{number}", gated=True) for number in range(2)))
    leader.settle()
    for number in range(2):
        found = pod(of, None, name=f"old-{number}", host=f"b0-r0-h{number}", resource_version=leader.hands.version())
        leader.has(replace(found, spec=replace(found.spec, shape=shape(cpu=cpus * 1000))))
    leader.settle()
    return leader


def test_pods_of_an_earlier_template_say_nothing_about_those_of_the_new_one() -> None:
    """A rollout to smaller pods: there is room for the first of them beside the old ones, on full hosts."""
    leader = serves(service(80), cpus=80)
    new = service(10, generation=2, resource_version=leader.hands.version())
    leader.has(new, pod(new, None, name="new-0", gated=True))
    leader.settle()
    assert leader.hands.of("release")[-1] == "new-0"


def test_when_the_larger_pods_are_gone_the_template_counts_again() -> None:
    """A sidecar is injected no more; or this leader has not seen the template that they were made from."""
    leader = serves(service(45), cpus=80)
    one = leader.workload("web")
    leader.has(*(pod(one, None, name=f"new-{number}", host=f"b0-r0-h{number}") for number in range(2)))
    for old in ("old-0", "old-1"):
        known = leader.stores.pods.get(("default", old))
        assert known is not None
        leader.stores.pods.apply("DELETED", known)
    leader.settle()
    more = service(45, count=3, resource_version=leader.hands.version())
    leader.has(more, pod(more, None, name="new-2", gated=True))
    leader.settle()
    assert leader.hands.of("release")[-1] == "new-2"


def test_a_held_pod_of_an_earlier_template_is_planned_as_it_is() -> None:
    """A rollout that does not go on, and a pod of the old ReplicaSet is lost: the next one needs as much as that."""
    leader = serves(service(80), cpus=80)
    new = service(10, generation=2, resource_version=leader.hands.version())
    lost = leader.stores.pods.get(("default", "old-0"))
    assert lost is not None
    leader.has(new)
    leader.settle()
    leader.stores.pods.apply("DELETED", lost)
    again = pod(new, None, name="old-2", gated=True)
    leader.has(replace(again, spec=replace(again.spec, shape=shape(cpu=80_000))))
    leader.settle()
    leader.later(10)
    assert leader.hands.of("release")[-1] == "old-2"


def test_the_pods_of_one_replica_group_do_not_hide_those_of_another() -> None:
    """Groups of one workload share its templates; with a group what its pods needed goes."""
    one, shapes = service(45), PodShapes(Stores())
    usual = pod(one, None, host="h0")
    larger = replace(usual, spec=replace(usual.spec, shape=shape(cpu=80_000)))
    first, second = (GangKey(ReservationKey(f"{one.uid}/{group}")) for group in range(2))
    shapes.observe(first, one, [larger])
    shapes.observe(second, one, [usual])
    assert dict(shapes.shapes_of(one)["main"].requests)["cpu"] == 80_000
    shapes.leave(first)
    assert (dict(shapes.shapes_of(one)["main"].requests)["cpu"], len(shapes)) == (45_000, 0)


def test_taints_by_the_names_of_requested_resources_are_tolerated_where_the_api_server_adds_that() -> None:
    """The plugin ExtendedResourceToleration changes pods alone; as templates are, the gang would wait for ever."""
    taint = Taint("nvidia.com/gpu", "present", "NoSchedule")
    leader = Leader(nodes=[replace(one, taints=(taint,)) for one in gpu_nodes(1, 1, 2)])
    leader.has(job("train", count=2, held=True))
    leader.settle()
    assert leader.status()[1] == "NodesExcluded"
    added = POLICY.replace("settle: 0s", "settle: 0s, extendedResourceToleration: true")
    leader.view.set_policy(parse_policy(added))
    leader.settle()
    assert leader.hands.of("place") == ["train"]


def stateful(gpus: int, **more: Any) -> Workload:
    """A StatefulSet of four pods with so many GPUs."""
    template = spec(gates=(names.GATE,), labels={names.MANAGED: "true"}, shape=shape(gpu=gpus))
    return replace(job("web", template=template), suspendable=False, **more)


def test_pods_of_an_earlier_template_that_waited_fill_the_slots_of_their_gang() -> None:
    """Their template was raised while they were held. No other pod is to come, and they run until they are replaced."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    beside = job("beside")
    leader.has(*(pod(beside, rank, host=f"b0-r0-h{rank}") for rank in range(4)))
    old, new = stateful(2), stateful(4, generation=2)
    leader.has(old, *(pod(old, rank, gated=True) for rank in range(4)))
    leader.settle()
    leader.has(new)
    leader.settle()
    for rank in range(4):
        leader.stores.pods.apply("DELETED", leader.stores.pods.get(("default", f"beside-{rank}")))
    leader.later(60)
    assert len(leader.hands.of("release")) == 4
    for rank, host in ranks_of(leader.placed("web")).items():
        leader.has(replace(pod(old, rank, host=host), resource_version=leader.hands.version()))
    leader.later(10)
    assert leader.status("web") == ("Running", "")
    leader.later(3600)
    leader.later(10)
    assert leader.status("web") == ("Running", "")
    assert leader.hands.of("give back") == []


@pytest.mark.parametrize("hosts", [4, 8])
def test_running_pods_of_an_earlier_template_keep_their_hosts_where_the_new_one_has_room(hosts: int) -> None:
    """Three of four run when the gang is placed, as with a StatefulSet's partition; the rest of their slots is kept."""
    leader = Leader(nodes=gpu_nodes(1, 1, hosts))
    old, new = stateful(4), stateful(8)
    leader.has(new, *(pod(old, rank, host=f"b0-r0-h{rank}") for rank in range(3)), pod(new, 3, gated=True))
    leader.settle()
    assert ranks_of(leader.placed("web")) == {rank: f"b0-r0-h{rank}" for rank in range(4)}
    leader.has(replace(pod(new, 3, host="b0-r0-h3"), resource_version=leader.hands.version()))
    leader.later(10)
    assert leader.status("web") == ("Running", "")
    found = leader.placed("web")
    assert found is not None
    assert found.status["message"] == "4 pods ready; 3 pods request fewer devices than planned"
    assert [leader.view.capacity.free(f"b0-r0-h{rank}")["nvidia.com/gpu"] for rank in range(4)] == [0] * 4


@pytest.mark.parametrize(
    ("cpus", "reserved"), [((30, 30, 30), 0), ((30, 40, 20), 0), ((80, 80, 80), 0), ((30,) * 3, 2)]
)
def test_pods_that_run_with_other_processors_than_their_template_keep_full_hosts(
    cpus: tuple[int, ...], reserved: int
) -> None:
    """As a VerticalPodAutoscaler has it; not where their successors would take what is reserved for others."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    small = spec(shape=shape(cpu=2000), gates=(names.GATE,), labels={names.MANAGED: "true"})
    others = job("others", count=reserved, held=True, template=small)
    leader.has(*(_with_cpus(pod(job("full"), at, host=f"b0-r0-h{at}"), 94 - cpu) for at, cpu in enumerate(cpus)))
    web = service(60, count=4)
    if reserved:
        leader.has(others)
        leader.settle()
    leader.has(web, *(_with_cpus(pod(web, None, name=f"w{at}", host=f"b0-r0-h{at}"), c) for at, c in enumerate(cpus)))
    leader.has(_with_cpus(pod(web, None, name="new", gated=True), max(cpus)))
    leader.settle()
    kept = {f"b0-r0-h{at}" for at in range(3)} & set(hosts_of_main(leader))
    taken = set(ranks_of(leader.placed("others")).values()) if reserved else set()
    assert bool(taken & {f"b0-r0-h{at}" for at in range(3)}) == bool(reserved)
    assert kept == {f"b0-r0-h{at}" for at in range(3)} - taken
    assert leader.hands.of("release")[-1:] == ["new"]


def _with_cpus(one: Pod, cpus: int) -> Pod:
    return replace(one, spec=replace(one.spec, shape=replace(one.spec.shape, requests=shape(cpu=cpus * 1000).requests)))


def hosts_of_main(leader: Leader) -> list[str]:
    found = leader.placed("web")
    assert found is not None and found.assignment is not None
    return [slot.host for slot in found.assignment.plan_of("main").slots]
