"""One large pod in a gang of small ones: a pod keeps what it requests, and those to come what quotas admit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.pod import Pod, Shape
from engine.api.workload import Workload
from engine.resources.shape import covers
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape, spec
from tests.support.families import plain
from tests.support.gpu_hosts import asking, gpus
from tests.support.leader import Leader
from webhook.admission.live_reader import LiveReader

HOSTS = [f"b0-r0-h{number}" for number in range(8)]
TINY, LARGE = shape(cpu=10), shape(cpu=90_000, gpu=8)
GATES = ("tenant.example/gate", names.GATE)


def rack(*gpus: int) -> Leader:
    """A rack of eight hosts, in a namespace with quotas of so many GPUs that are left."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    allow(leader, *gpus)
    return leader


def allow(leader: Leader, *gpus: int) -> None:
    asks = "requests.nvidia.com/gpu"
    quotas = [Quota("default", f"q{left}", hard={asks: 64}, used={asks: 64 - left}, scopes=()) for left in gpus]
    leader.stores.quotas.replace(quotas)


def placed(
    leader: Leader, *, name: str = "tiny", ranked: bool = True, slots: dict[str, int] | None = None, asks: Shape = TINY
) -> Workload:
    """A gang of tiny pods with a slot on every host, of which none exists yet."""
    template = spec(shape=asks, gates=(names.GATE,), labels={names.MANAGED: "true"})
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


def grown(leader: Leader, name: str, *, gpus: int, **more: int) -> None:
    """The template of a gang requests so many GPUs now."""
    one = leader.workload(name)
    template = replace(one.template, shape=shape(cpu=10, gpu=gpus))
    leader.has(replace(changed(one, template=template, **more), generation=2, resource_version=leader.hands.version()))


@pytest.mark.parametrize("started", [False, True])
def test_slots_are_no_larger_than_planned_while_no_pod_of_a_grown_template_exists(started: bool) -> None:
    """Neither quotas nor room were asked for more: one pod lives, and seven are to come."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    gang = placed(leader)
    here = {"host": HOSTS[0]} if started else {"gated": True}
    leader.has(sized(pod(gang, 0, name="first", uid="first", **here), TINY))
    grown(leader, "tiny", gpus=8)
    assert free(leader)[1:] == [8] * 7


@pytest.mark.parametrize("admitted", [False, True])
def test_slots_are_as_large_as_a_grown_template_once_pods_of_it_exist_and_quotas_admit_all(admitted: bool) -> None:
    """As with pods that are larger than their template; and they stay so while the last of them is replaced."""
    leader = rack(56 if admitted else 55)
    gang = placed(leader)
    grown(leader, "tiny", gpus=8)
    first = sized(pod(gang, 0, name="first", uid="first", host=HOSTS[0]), leader.workload("tiny").template.shape)
    leader.has(first)
    assert free(leader) == [0, *([0 if admitted else 8] * 7)]
    allow(leader, 64 if admitted else 63)
    leader.stores.pods.apply("DELETED", first)
    assert free(leader) == [0 if admitted else 8] * 8


def test_a_slot_is_no_larger_than_a_template_that_has_shrunk() -> None:
    """Pods to come are made from it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    placed(leader, asks=LARGE)
    assert free(leader) == [0] * 8
    grown(leader, "tiny", gpus=2)
    assert free(leader) == [6] * 8


def test_a_plan_records_what_its_pods_request_and_an_extension_no_more_than_that() -> None:
    """The slots that are kept were not planned for a larger template: its pods have only what they request."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    gang = job("tiny", count=2, held=True, require="rack", template=spec(shape=shape(cpu=10, gpu=1)), ranked=False)
    leader.has(gang)
    leader.settle()
    assert asked_of(leader) == {"cpu": 10, "nvidia.com/gpu": 1, "pods": 1}
    for number in range(2):
        leader.has(
            sized(pod(gang, None, name=f"one-{number}", uid=f"one-{number}", host=HOSTS[number]), gang.template.shape)
        )
    grown(leader, "tiny", gpus=8, slots=3, total=3, remaining=3)
    leader.has(sized(pod(gang, None, name="third", uid="third", gated=True), leader.workload("tiny").template.shape))
    leader.settle()
    placed = leader.placed("tiny")
    assert placed is not None and placed.assignment is not None and placed.assignment.count == 3
    assert asked_of(leader) == {"cpu": 10, "nvidia.com/gpu": 1, "pods": 1}


def asked_of(leader: Leader) -> dict[str, int]:
    found = leader.placed("tiny")
    assert found is not None and found.assignment is not None
    return dict(found.assignment.plan_of("main").requests or ())


def test_a_gang_with_a_grown_template_is_planned_anew_and_not_its_neighbours() -> None:
    """No pod of it exists: it gives its slots back, and its quota does not admit what it asks for now."""
    leader = rack(8)
    leader.has(job("tiny", count=8, uid="uid-tiny", held=True, require="rack", template=spec(shape=TINY)))
    leader.settle()
    template = spec(shape=shape(cpu=10, gpu=8))
    other = job("other", count=8, uid="uid-other", held=True, require="rack", template=template)
    leader.has(replace(other, namespace="honest"))
    leader.settle()
    grown(leader, "tiny", gpus=8)
    leader.settle()
    leader.later(20)
    known = {one.workload.name: one for one in leader.stores.placements.values()}
    assert {name: one.assignment is not None for name, one in known.items()} == {"tiny": False, "other": True}
    assert leader.status("tiny") == ("Waiting", "QuotaExceeded")


def test_a_larger_pod_gets_no_slot_at_creation_that_was_planned_for_a_smaller_template() -> None:
    """The leader releases it, when it has seen that there is room."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    placed(leader)
    grown(leader, "tiny", gpus=8)
    known = leader.placed("tiny")
    assert known is not None
    reader = LiveReader(leader.view, own_username="us", own_namespace="ours", policy_loaded=lambda: True)
    slot = reader.planned_shape(known, leader.workload("tiny").pod_sets[0])
    assert slot is not None and not covers(slot, leader.workload("tiny").template.shape)


def test_held_pods_without_a_slot_keep_no_more_than_they_request() -> None:
    """As many run where somebody put them, and have the slots; held ones would get the next that is free."""
    leader = rack(8)
    gang = placed(leader, ranked=False, asks=LARGE)
    assert free(leader) == [0] * 8
    for number in range(8):
        leader.has(pod(gang, None, host="elsewhere", pin=HOSTS[number], name=f"there-{number}"))
        leader.has(held(gang, None, TINY, name=f"held-{number}"))
    assert free(leader) == [8] * 8


def test_a_pod_of_a_tenant_that_ends_well_without_gpus_completes_no_rank() -> None:
    """When it is deleted, the slot of its rank would be promised twice."""
    leader = rack(8)
    gang = placed(leader, asks=LARGE)
    leader.has(sized(pod(gang, 3, host="elsewhere", phase="Succeeded"), TINY))
    assert free(leader) == [0] * 8


def come_and_go(leader: Leader, gang: Workload, forged: list[Pod], *, beside: Pod) -> None:
    """Pods of a gang that are put on hosts by hand and removed, while another one stays."""
    leader.has(gang, *forged, beside)
    leader.settle()
    for one in forged:
        leader.stores.pods.apply("DELETED", one)
    leader.settle()


@pytest.mark.parametrize("has_slots", [False, True])
def test_large_pods_on_reserved_hosts_bring_no_slots_there(has_slots: bool) -> None:
    """Their user put them there by hand. When they go, the hosts are those of the gang that has had slots there."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    leader.has(job("other", held=True))
    leader.settle()
    gang = job("tiny")
    if has_slots:
        leader.has(gang)
        leader.settle()
    forged = [pod(gang, rank, host=HOSTS[rank]) for rank in range(3)]
    come_and_go(leader, gang, forged, beside=pod(gang, 3, gated=True))
    assert min(free(leader)) >= 0


@pytest.mark.parametrize("at", ["on its host", "elsewhere", "held", "leaving"])
def test_a_small_pod_leaves_its_slot_reserved(at: str) -> None:
    """Its host would be given to others, and promised twice when the pod goes."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    gang = placed(leader, asks=LARGE)
    where = {"held": {"gated": True}, "elsewhere": {"host": "elsewhere"}}.get(at, {"host": HOSTS[3]})
    for asks in (TINY, shape(cpu=10, gpu=4)):
        leader.has(sized(pod(gang, 3, deleting=at == "leaving", **where), asks))
        assert free(leader) == [0] * 8


@pytest.mark.parametrize("has_slots", [False, True])
def test_small_pods_on_hosts_of_others_bring_no_slots_there(has_slots: bool) -> None:
    """Anybody may put pods on any hosts. When they go, a slot as large as their template would take another's."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    leader.has(job("other", held=True))
    leader.settle()
    assert free(leader) == [0] * 4 + [8] * 4
    gang = job("tiny")
    if has_slots:
        leader.has(gang)
        leader.settle()
        assert free(leader) == [0] * 8
    forged = [sized(pod(gang, rank, host=HOSTS[rank]), TINY) for rank in range(4)]
    come_and_go(leader, gang, forged, beside=held(gang, 9, TINY, *GATES))
    assert min(free(leader)) >= 0
    assert leader.hands.of("place").count("other") == 1


def test_pods_that_ran_before_their_gang_had_slots_keep_their_hosts() -> None:
    """Also with fewer processors than their template, where there is no room for more."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    template = spec(shape=LARGE, gates=(names.GATE,), labels={names.MANAGED: "true"})
    gang = job("train", template=template)
    fewer = shape(cpu=1_000, gpu=8)
    leader.has(gang, *(sized(pod(gang, rank, host=HOSTS[rank + 4]), fewer if rank else LARGE) for rank in range(3)))
    leader.has(*(sized(pod(job("beside"), rank, host=HOSTS[rank + 5]), shape(cpu=90_000)) for rank in range(2)))
    leader.has(pod(gang, 3, gated=True))
    leader.settle()
    found = leader.placed("train")
    assert found is not None and found.assignment is not None
    assert found.assignment.hosts > set(HOSTS[4:7])


def standing(leader: Leader, *, gpus: int) -> Workload:
    """A gang that runs, each pod with so many GPUs on a host of its own."""
    placed(leader, asks=shape(cpu=10, gpu=gpus))
    anew(leader)
    assert leader.status("tiny") == ("Running", "")
    return leader.workload("tiny")


def anew(leader: Leader, *, but: int = 0) -> None:
    """Its pods, without the last few, are replaced by such of its template of now."""
    gang = leader.workload("tiny")
    for one in [one for one in leader.stores.pods.values() if one.owner is not None and one.owner.uid == gang.uid]:
        leader.stores.pods.apply("DELETED", one)
    leader.has(*(pod(gang, rank, host=HOSTS[rank]) for rank in range(8 - but)))
    leader.settle()


def test_pods_made_of_a_template_while_it_requested_less_fill_their_slots() -> None:
    """It has shrunk and grown back. They were all that their gang asked for, and it goes on."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    standing(leader, gpus=8)
    grown(leader, "tiny", gpus=2)
    anew(leader)
    grown(leader, "tiny", gpus=8)
    leader.settle()
    assert free(leader) == [6] * 8
    for seconds in (300, 301, 10):
        leader.later(seconds)
    assert leader.status("tiny") == ("Running", "")
    assert asked_of(leader)["nvidia.com/gpu"] == 2


def test_slots_that_have_shrunk_with_their_template_take_nothing_back_of_what_others_got() -> None:
    """It grows back when the room is given to others. One pod is missing, and has a slot of the smaller size."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    standing(leader, gpus=8)
    grown(leader, "tiny", gpus=2)
    anew(leader, but=1)
    leader.has(job("other", count=8, held=True, require="rack", template=spec(shape=shape(cpu=10, gpu=6))))
    leader.settle()
    assert free(leader) == [0] * 8
    grown(leader, "tiny", gpus=8)
    leader.settle()
    assert free(leader) == [0] * 8
    assert leader.hands.gang_events == []


@pytest.mark.parametrize(("cpu", "gpus"), [(20, 8), (5, 8), (10, 4)], ids=["more", "fewer", "fewer GPUs"])
def test_a_gang_that_has_run_keeps_its_slots_while_all_of_its_pods_are_replaced(cpu: int, gpus: int) -> None:
    """As those of a Deployment of strategy Recreate, or the only one of a StatefulSet: another gang waits for them."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    gang = standing(leader, gpus=8)
    leader.has(job("other", count=1, held=True))
    leader.settle()
    template = replace(gang.template, shape=shape(cpu=cpu, gpu=gpus))
    leader.has(replace(changed(gang, template=template), generation=2, resource_version=leader.hands.version()))
    for one in leader.stores.pods.values():
        leader.has(replace(one, deleting=True, resource_version=leader.hands.version()))
    leader.settle()
    for one in list(leader.stores.pods.values()):
        leader.stores.pods.apply("DELETED", one)
    leader.later(10)
    leader.has(*(pod(leader.workload("tiny"), rank, gated=True) for rank in range(8)))
    leader.settle()
    assert leader.hands.of("give back") == leader.hands.of("suspend") == []
    assert len(leader.hands.of("release")) == 8
    assert leader.status("other")[0] == "Waiting"


def test_pods_of_an_earlier_template_fill_slots_that_an_earlier_version_has_written() -> None:
    """It did not note what they were planned for. A pod more joins, of a template that requests more by now."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    standing(leader, gpus=2)
    known = leader.placed("tiny")
    assert known is not None and known.assignment is not None
    unknown = tuple(replace(plan, requests=None) for plan in known.assignment.pod_sets)
    before = replace(known, assignment=replace(known.assignment, pod_sets=unknown))
    leader.has(replace(before, resource_version=leader.hands.version()))
    grown(leader, "tiny", gpus=4, slots=9, total=9, remaining=9)
    leader.has(pod(leader.workload("tiny"), 8, gated=True))
    leader.settle()
    after = leader.placed("tiny")
    assert after is not None and after.assignment is not None and after.assignment.count == 9
    assert after.assignment.pod_sets[0].requests is None
    assert min(free(leader)) >= 0


def test_pods_that_ran_without_a_port_of_their_template_keep_their_hosts() -> None:
    """It was added with the request, and free capacity does not count ports."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    with_port = replace(TINY, requests=tuple(sorted((*TINY.requests, ("host port 9/TCP", 1)))))
    gang = job("train", template=spec(shape=with_port, gates=(names.GATE,), labels={names.MANAGED: "true"}))
    leader.has(gang, *(sized(pod(gang, rank, host=HOSTS[rank + 4]), TINY) for rank in range(3)))
    leader.has(pod(gang, 3, gated=True))
    leader.settle()
    found = leader.placed("train")
    assert found is not None and found.assignment is not None
    assert found.assignment.hosts >= set(HOSTS[4:7])


@pytest.mark.parametrize("has_slots", [False, True])
def test_small_pods_on_full_hosts_bring_no_more_than_they_request(has_slots: bool) -> None:
    """Of a template without devices. When they go, pods of others that run there are replaced where they were."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    template = spec(shape=shape(cpu=95_000), gates=(names.GATE,), labels={names.MANAGED: "true"})
    other = job("other", count=4, held=True, template=template)
    leader.has(other)
    leader.settle()
    leader.has(*(pod(leader.workload("other"), rank, host=HOSTS[rank]) for rank in range(4)))
    gang = job("tiny", template=template)
    if has_slots:
        leader.has(gang)
        leader.settle()
    forged = [sized(pod(gang, rank, host=HOSTS[rank]), TINY) for rank in range(4)]
    come_and_go(leader, gang, forged, beside=held(gang, 9, TINY, *GATES))
    leader.view.refresh()
    assert min(leader.view.capacity.free(host)["cpu"] for host in HOSTS) >= 0


@pytest.mark.parametrize("ranked", [True, False])
def test_further_slots_of_a_gang_take_no_devices_of_a_slot_beside_a_small_pod(ranked: bool) -> None:
    """The devices are free until its successor comes, and on that host are enough for one pod of the gang."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    template = spec(shape=LARGE, gates=(names.GATE,), labels={names.MANAGED: "true"})
    gang, other = job("tiny", count=2, ranked=ranked, template=template), job("other", count=1)
    leader.has(other, pod(other, 0, host=HOSTS[1]))
    leader.has(gang, sized(pod(gang, 1 if ranked else None, host=HOSTS[0], name="there"), TINY))
    leader.has(held(gang, 0 if ranked else None, LARGE))
    leader.settle()
    assert free(leader)[0] == 8 and leader.status("tiny")[0] == "Waiting"


def of_shape(one: Pod, asks: Shape) -> Pod:
    return sized(replace(one, spec=replace(one.spec, shape=replace(one.spec.shape, devices=asks.devices))), asks)


def beside(planned: Shape, others: Shape, *, hosts: int = 2, reported: bool = False) -> tuple[Leader, Workload]:
    """A gang of two pods planned for so much on one host, and one of others with a slot there and on each other."""
    leader = Leader(nodes=gpu_nodes(1, 1, hosts))
    for host in HOSTS[:hosts] if reported else ():
        leader.stores.devices.apply("ADDED", gpus(host, 8))
    asked = {names.UNCONSTRAINED: "true", names.HELD_BY: names.HELD_BY_SUSPEND}
    template = spec(gates=(names.GATE,), labels={names.MANAGED: "true"}, shape=planned)
    leader.has(job("tiny", count=2, held=True, require=None, annotations=asked, template=template))
    leader.settle()
    template = replace(template, shape=others)
    other = job("other", count=hosts, held=True, require=None, annotations=asked, template=template)
    leader.has(replace(other, namespace="honest"))
    leader.settle()
    found = leader.placed("tiny")
    assert found is not None and found.assignment is not None and found.assignment.hosts == {HOSTS[0]}
    return leader, replace(changed(other, suspended=False), namespace="honest")


def of_others(other: Workload, rank: int, asks: Shape | None = None, **more: bool | str) -> Pod:
    one = pod(other, rank, **({"gated": True} | more))
    return replace(of_shape(one, asks) if asks is not None else one, namespace=other.namespace)


@pytest.mark.parametrize("first", ["theirs", "ours"])
@pytest.mark.parametrize(
    ("planned", "asks", "others", "others_ask"),
    [
        (TINY, shape(cpu=90_000), shape(cpu=90_000), None),
        (TINY, shape(cpu=90_000), shape(cpu=80_000), shape(cpu=90_000)),
        (shape(cpu=10, gpu=1), shape(cpu=10, gpu=8), shape(cpu=10, gpu=6), None),
        (TINY, asking(gpu=8), asking(gpu=6), None),
        (asking(gpu=1), asking(gpu=8), asking(gpu=6), None),
    ],
    ids=["CPUs", "less beyond their plan", "GPUs", "known GPUs, none planned", "known GPUs"],
)
def test_larger_held_pods_than_planned_take_no_host_of_others(
    planned: Shape, asks: Shape, others: Shape, others_ask: Shape | None, first: str
) -> None:
    """The other gang is placed and starts, and neither has started: it keeps its slots, and the larger pods wait."""
    leader, other = beside(planned, others, reported=others.devices is not None)
    pods = [of_shape(pod(leader.workload("tiny"), rank, gated=True), asks) for rank in range(2)]
    theirs = [of_others(other, rank, others_ask) for rank in range(2)]
    leader.has(*(pods + theirs if first == "ours" else theirs + pods))
    leader.settle()
    leader.later(10)
    assert sorted(leader.hands.of("release")) == sorted(one.name for one in theirs)
    assert leader.hands.of("suspend") == ["tiny"]
    assert (leader.status("other")[0], leader.status("tiny")[0]) == ("Placed", "Waiting")


def test_a_gang_with_larger_held_pods_does_not_keep_another_incomplete() -> None:
    """It runs, so that it is not planned again: its pod waits for room. The other's last pod goes to its slot."""
    leader, other = beside(TINY, shape(cpu=90_000), hosts=3)
    leader.has(pod(leader.workload("tiny"), 0, host=HOSTS[0]))
    leader.has(*(of_others(other, rank, gated=False, host=HOSTS[rank]) for rank in (1, 2)))
    leader.settle()
    leader.has(sized(pod(leader.workload("tiny"), 1, gated=True), shape(cpu=80_000)), of_others(other, 0))
    leader.settle()
    leader.later(10)
    assert leader.hands.of("release") == ["other-0"]
    assert leader.status("tiny")[0] == "Incomplete"


def test_larger_held_pods_than_planned_are_released_where_there_is_room() -> None:
    """Admission adds to them: what others have reserved is enough with them."""
    leader, other = beside(TINY, shape(cpu=60_000))
    pods = [sized(pod(leader.workload("tiny"), rank, gated=True), shape(cpu=18_000)) for rank in range(2)]
    leader.has(*pods, *(of_others(other, rank) for rank in range(2)))
    leader.settle()
    assert len(leader.hands.of("release")) == 4
    assert leader.hands.of("suspend") == []


def test_gangs_with_equally_larger_pods_than_planned_do_not_get_the_same_room() -> None:
    """Both are planned again, for what they request."""
    leader, other = beside(TINY, TINY, hosts=1)
    leader.has(*(sized(pod(leader.workload("tiny"), rank, gated=True), shape(cpu=40_005)) for rank in range(2)))
    leader.has(of_others(other, 0, shape(cpu=80_000)))
    leader.settle()
    leader.later(10)
    assert sorted(leader.hands.of("suspend")) == ["other", "tiny"]
    assert leader.hands.of("release") in (["tiny-0", "tiny-1"], ["other-0"])


@pytest.mark.parametrize("by", ["a suspension", "a larger pod"])
def test_gangs_that_lose_their_devices_at_once_get_different_ones(by: str) -> None:
    """Both look for others beside a slot without known devices: each is written once, and both start."""
    leader = Leader(nodes=gpu_nodes(1, 1, 1))
    leader.stores.devices.apply("ADDED", gpus(HOSTS[0], 8))
    asked = {names.UNCONSTRAINED: "true", names.HELD_BY: names.HELD_BY_SUSPEND}
    for name, each in (("first", 1), ("second", 1), ("tenant", 2)):
        template = spec(gates=(names.GATE,), labels={names.MANAGED: "true"}, shape=asking(gpu=each))
        gang = job(name, count=2, held=True, require=None, annotations=asked, template=template)
        leader.has(replace(gang, namespace="default" if name == "tenant" else "honest"))
        leader.settle()
        leader.later(6)
    tenant = leader.workload("tenant")
    if by == "a suspension":
        leader.has(changed(tenant, suspended=True, generation=9, resource_version=leader.hands.version()))
    else:
        leader.has(of_shape(pod(tenant, 1, gated=True), asking(gpu=8)))
    leader.settle()
    both = [one for one in leader.stores.workloads.values() if one.namespace == "honest"]
    leader.has(*(of_others(one, rank, asking(gpu=1)) for one in both for rank in range(2)))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["first-0", "first-1", "second-0", "second-1"]
    assert len(leader.hands.of("shrink")) <= 2
