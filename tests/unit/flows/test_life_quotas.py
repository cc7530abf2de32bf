"""Gangs that may start with a part of their pods, in namespaces with a ResourceQuota."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.pod import Pod
from engine.api.workload import Workload
from tests.support.cluster_records import changed, gpu_nodes, job, pod, pod_set, shape, spec
from tests.support.leader import POLICY, Leader
from tests.unit.controller.test_pod_group_gangs import assigned, member, message


def with_quota(pods: int, *, policy: str = POLICY, **hard: int) -> Leader:
    leader = Leader(nodes=gpu_nodes(1, 2, 8), policy=policy)
    allow(leader, pods, **hard)
    return leader


def allow(leader: Leader, pods: int, *, used: int = 0, **hard: int) -> None:
    limits = {"pods": pods, **{f"requests.{name}": amount for name, amount in hard.items()}}
    leader.stores.quotas.replace([Quota("default", "team", hard=limits, used={"pods": used}, scopes=())])


def of_templates(least: int, gpus: dict[str, int], **asked: str) -> Workload:
    """A held gang of templates with four pods each that ask for so many GPUs; `least` pods of all are enough."""
    annotations = {names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: str(least), names.HELD_BY: names.HELD_BY_SUSPEND}
    gang = job(count=4, held=True, require=None, annotations=annotations | asked)
    held = {"gates": (names.GATE,), "labels": {names.MANAGED: "true"}}
    sets = (pod_set(name, count=4, template=spec(shape=shape(gpu=gpu), **held)) for name, gpu in gpus.items())
    return replace(gang, pod_sets=tuple(sets))


@pytest.mark.parametrize(("pods", "slots"), [(5, 0), (6, 8), (20, 8)])
def test_the_minimum_of_a_gang_of_several_templates_has_to_be_admitted(pods: int, slots: int) -> None:
    """It is about all of them, each with one pod at least."""
    leader = with_quota(pods)
    leader.has(of_templates(6, {"a": 1, "b": 1}))
    leader.settle()
    assert assigned(leader, "train") == slots
    assert (leader.status("train")[1] == "QuotaExceeded") == (not slots)


@pytest.mark.parametrize(("gpus", "starts"), [(11, False), (12, True)])
def test_any_pods_that_are_enough_may_be_those_that_the_quota_admits(gpus: int, starts: bool) -> None:
    """One of each, and three more of the template that asks for least: four times one GPU, and twice four."""
    leader = with_quota(100, **{"nvidia.com/gpu": gpus})
    leader.has(of_templates(6, {"a": 4, "b": 1, "c": 4}))
    leader.settle()
    assert leader.hands.of("resume") == (["train"] if starts else [])


@pytest.mark.parametrize("pods", range(4, 10))
def test_a_gang_with_a_minimum_and_slices_is_not_placed_again_and_again(pods: int) -> None:
    leader = with_quota(pods)
    gang = of_templates(6, {"a": 1, "b": 1})
    sliced = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"}
    a, b = gang.pod_sets
    leader.has(replace(gang, pod_sets=(replace(a, template=replace(a.template, annotations=sliced)), b)))
    leader.settle()
    for _ in range(20):
        leader.later(30)
        leader.settle()
    assert len(leader.hands.of("resume")) <= 1


def test_a_lost_slot_of_a_job_is_replaced_though_its_quota_has_room_for_what_is_left_alone() -> None:
    """Pods that have completed are not created again: another Job may use their quota."""
    leader = with_quota(8)
    asked = {names.UNCONSTRAINED: "true", names.HELD_BY: names.HELD_BY_SUSPEND}
    leader.has(job(count=8, held=True, require=None, annotations=asked))
    leader.settle()
    gang = leader.workload()
    assignment = leader.placed("train").assignment  # type: ignore[union-attr]
    assert assignment is not None
    hosts = [slot.host for slot in assignment.pod_sets[0].slots]
    leader.has(changed(gang, finished_ranks=((0, 3),), remaining=4, resource_version=leader.hands.version()))
    leader.has(*(pod(gang, rank, host=hosts[rank], phase="Running") for rank in range(4, 8)))
    allow(leader, 8, used=7)  # these four, and three of another Job
    leader.settle()
    lost = leader.stores.pods.get(("default", "train-7"))
    assert lost is not None
    leader.stores.nodes.apply("DELETED", leader.stores.nodes.get(hosts[7]))
    leader.stores.pods.apply("DELETED", lost)
    leader.has(pod(gang, 7, gated=True, name="train-7-again"))
    leader.settle()
    leader.later(20)
    assert leader.status()[1] != "QuotaExceeded"
    assert leader.hands.of("release") == ["train-7-again"]


@pytest.mark.parametrize("pods", [5, 7, 8])
def test_a_pod_group_starts_if_the_quota_admits_its_minimum(pods: int) -> None:
    """Two Jobs of four pods, which have to start together; no hosts are kept for what could not start there."""
    leader = with_quota(pods, policy=f"{POLICY}queue: {{patience: 60s}}\n")
    leader.has(member("a"), member("b"))
    leader.settle()
    if pods == 8:
        assert (assigned(leader, "a"), assigned(leader, "b")) == (4, 4)
        return
    assert (assigned(leader, "a"), assigned(leader, "b")) == (0, 0)
    assert leader.status("a") == ("Waiting", "QuotaExceeded")
    assert f"quota team allows {pods} of pods in all, 8 pods need 8 at least: it never has room" in message(leader, "a")
    leader.later(70)
    assert leader.status("a") == ("Waiting", "QuotaExceeded")


def test_a_pod_group_that_lacks_room_says_so_though_the_quota_does_not_admit_all_of_it() -> None:
    """Its minimum is admitted: it waits for hosts, and they are kept for it when it has waited for long."""
    leader = with_quota(7, policy=f"{POLICY}queue: {{patience: 60s}}\n")
    busy = [
        replace(pod(job("other", require=None), None, host=host, name=f"x-{host}"), owner=None)
        for host in [f"b0-r{rack}-h{number}" for rack in range(2) for number in range(8)][2:]
    ]
    leader.has(*busy)
    leader.settle()
    leader.has(member("a", count=8, least=4), member("b", count=4, least=4))
    leader.settle()
    assert leader.status("a") == ("Waiting", "InsufficientFreeGPUs")
    leader.later(70)
    assert leader.status("a") == ("Waiting", "RoomKept")


@pytest.mark.parametrize("grouped", [False, True])
def test_pods_without_the_gpus_of_their_template_do_not_take_the_place_of_those_that_a_quota_admits(
    grouped: bool,
) -> None:
    """Anybody may create pods with a Job as their controller: four that ask for no GPU do not stand for 32 GPUs."""
    leader = with_quota(100, **{"nvidia.com/gpu": 8})
    gang = member("train", least=4) if grouped else job("train", count=4, held=True)
    forged = [pod(gang, rank, gated=True, name=f"forged-{rank}") for rank in range(4)]
    leader.has(gang, *(replace(one, spec=replace(one.spec, shape=shape(cpu=10))) for one in forged))
    leader.settle()
    assert (assigned(leader, "train"), leader.status("train")[1]) == (0, "QuotaExceeded")
    leader.has(*(pod(leader.workload("train"), rank, gated=True, name=f"real-{rank}") for rank in range(3)))
    leader.later(60)
    assert assigned(leader, "train") == 4


def test_pods_with_less_memory_than_their_template_are_those_of_the_gang() -> None:
    """Admission made them smaller; the quota has no room for four more."""
    leader = with_quota(4)
    allow(leader, 4, used=4)
    template = spec(gates=(names.GATE,), labels={names.MANAGED: "true"}, shape=shape(gpu=8, memory=8))
    gang = replace(job(), pod_sets=(replace(job().pod_sets[0], template=template),))
    leader.has(gang)
    made = [pod(gang, rank, gated=True) for rank in range(4)]
    leader.has(*(replace(one, spec=replace(one.spec, shape=shape(gpu=8, memory=4))) for one in made))
    leader.settle()
    assert assigned(leader, "train") == 4


@pytest.mark.parametrize(("rank", "host"), [(0, ""), (1, ""), (1, "b0-r0-h0")])
def test_a_gang_with_pods_that_no_slot_waits_for_uses_the_quota_of_its_template(rank: int, host: str) -> None:
    """A quota for one gang is one for one gang, also if each has a pod without GPUs: held, or put on a host by hand."""
    leader = with_quota(100, **{"nvidia.com/gpu": 8})
    for name in ("a", "b", "c"):
        leader.has(job(name, count=1, held=True))
        leader.settle()
        forged = pod(leader.workload(name), rank, gated=not host, host=host, name=f"forged-{name}")
        gates = () if host else ("example.com/mine", names.GATE)
        leader.has(replace(forged, spec=replace(forged.spec, gates=gates, shape=shape(cpu=10))))
        leader.settle()
    leader.later(300)
    assert [assigned(leader, name) for name in ("a", "b", "c")] == [1, 0, 0]
    assert leader.status("b") == ("Waiting", "QuotaExceeded")
    leader.later(3600)
    assert sum(assigned(leader, name) for name in ("a", "b", "c")) <= 1


@pytest.mark.parametrize("ranks", [(4, 5, 6, 7), (3, 3, 3, 3), (0, 1, 2, 3)])
def test_pods_on_hosts_without_a_slot_of_their_own_are_not_those_that_a_quota_admits(ranks: tuple[int, ...]) -> None:
    """Anybody may put small pods with a Job as their controller on hosts, with any index."""
    leader = with_quota(100, **{"nvidia.com/gpu": 16})
    gang = job("train", count=4, held=True)
    for number, rank in enumerate(ranks):
        forged = pod(gang, rank, host="b0-r0-h0", name=f"forged-{number}")
        leader.has(replace(forged, spec=replace(forged.spec, shape=shape(cpu=10))))
    leader.has(gang)
    leader.settle()
    assert (assigned(leader, "train"), leader.status("train")[1]) == (0, "QuotaExceeded")


@pytest.mark.parametrize("scope", ["PriorityClass", "CrossNamespacePodAffinity"])
def test_each_pod_counts_in_the_scopes_of_its_template(scope: str) -> None:
    """One of two existing pods is of the class, or has the affinity, that the quota allows once."""
    leader = with_quota(100)
    of_class = (("PriorityClass", "In", ("urgent",)),)
    crossing = (("CrossNamespacePodAffinity", "Exists", ()),)
    classes = scope == "PriorityClass"
    once = Quota("default", "once", {"pods": 1}, {"pods": 1}, of_class if classes else crossing)
    leader.stores.quotas.apply("ADDED", once)
    own = {"priority_class": "urgent"} if classes else {"cross_namespace": True}
    other = {"priority_class": ""} if classes else {"cross_namespace": False}
    held = {"gates": (names.GATE,), "labels": {names.MANAGED: "true"}}
    gang = job("train", count=2, held=True, template=spec(**held, **own))
    leader.has(gang)
    for rank, fields in enumerate((own, other)):
        one = pod(gang, rank, gated=True)
        leader.has(replace(one, spec=replace(one.spec, **fields)))
    leader.settle()
    assert (assigned(leader, "train"), leader.status("train")[1]) == (0, "QuotaExceeded")


def held_by_user(one: Pod) -> Pod:
    return replace(one, spec=replace(one.spec, gates=("example.com/mine", names.GATE)))


def of_no_gpu(one: Pod) -> Pod:
    return replace(one, spec=replace(one.spec, shape=replace(one.spec.shape, requests=shape(cpu=10).requests)))


def test_pods_on_hosts_beyond_the_slots_of_a_member_are_not_those_that_a_group_needs() -> None:
    """Eight pods start together; those without GPUs of a member of one pod do not stand for the seven of the other."""
    leader = with_quota(100, **{"nvidia.com/gpu": 8})
    one = member("one", count=1, ranked=False)
    leader.has(one, member("seven", count=7))
    leader.has(*(of_no_gpu(pod(one, None, host="b0-r1-h7", name=f"forged-{number}")) for number in range(8)))
    leader.settle()
    assert (assigned(leader, "seven"), leader.status("seven")[1]) == (0, "QuotaExceeded")


def test_small_pods_elsewhere_are_not_those_that_the_slots_of_a_gang_wait_for() -> None:
    """A quota for one gang is one for one gang, also if as many pods without GPUs run beside its slots."""
    leader = with_quota(100, **{"nvidia.com/gpu": 32})
    for name in ("a", "b"):
        gang = job(name, require=None, ranked=False, annotations={names.UNCONSTRAINED: "true"})
        leader.has(gang)
        for number in range(4):
            leader.has(held_by_user(of_no_gpu(pod(gang, None, gated=True, name=f"{name}-held-{number}"))))
        leader.settle()
        leader.has(*(of_no_gpu(pod(gang, None, host="other", name=f"{name}-{number}")) for number in range(4)))
        leader.settle()
    assert [assigned(leader, name) for name in ("a", "b")] == [4, 0]
    assert leader.status("b") == ("Waiting", "QuotaExceeded")


def test_held_pods_that_terminate_for_ever_do_not_stand_for_those_to_come() -> None:
    """A finalizer keeps them, and no quota counts a pod that has had its time to end."""
    leader = with_quota(100, **{"nvidia.com/gpu": 32})
    leader.has(job("a", held=True))
    leader.settle()
    ends = [pod(leader.workload("a"), rank, gated=True, deleting=True) for rank in range(4)]
    leader.has(*ends, job("b", held=True))
    leader.settle()
    assert [assigned(leader, name) for name in ("a", "b")] == [4, 0]
    assert leader.status("b") == ("Waiting", "QuotaExceeded")


@pytest.mark.parametrize("host", ["", "b0-r0-h0"])
def test_a_gang_with_pods_without_its_gpus_alone_gives_its_slots_back_in_time(host: str) -> None:
    """Real ones were there when it was placed; the quota is free again, and room is not kept with what costs none."""
    leader = with_quota(100, **{"nvidia.com/gpu": 32})
    for name in ("a", "b"):
        leader.has(job(name))
        gang = leader.workload(name)
        real = [held_by_user(pod(gang, rank, gated=True, name=f"{name}-{rank}")) for rank in range(4)]
        leader.has(*real)
        leader.settle()
        forged = of_no_gpu(pod(gang, 9 if not host else 0, gated=not host, host=host, name=f"{name}-forged"))
        leader.has(forged if host else held_by_user(forged))
        for one in real:
            leader.stores.pods.apply("DELETED", one)
        leader.settle()
    assert [assigned(leader, name) for name in ("a", "b")] == [4, 4]
    for seconds in (300, 301, 10):
        leader.later(seconds)
    assert sum(assigned(leader, name) for name in ("a", "b")) <= 4  # what the quota admits
    if not host:
        assert [leader.status(name) for name in ("a", "b")] == [("Waiting", "HoldExpired")] * 2
        last = leader.placed("a")
        assert last is not None and "no pod with the devices of its template was created" in last.status["message"]


def test_pods_in_their_slots_need_no_quota_again_when_their_template_asks_for_more() -> None:
    """Three run with what the template asked for before; the quota has room for the one that has lost its slot."""
    leader = with_quota(100, **{"nvidia.com/gpu": 32})
    gang = job(suspendable=False, template=spec(gates=(names.GATE,), shape=shape(gpu=4)))
    leader.has(gang)
    leader.settle()
    assignment = leader.placed("train").assignment  # type: ignore[union-attr]
    assert assignment is not None
    hosts = [slot.host for slot in assignment.pod_sets[0].slots for _ in range(slot.count)]
    leader.has(*(pod(gang, rank, host=hosts[rank]) for rank in range(3)))
    larger = changed(gang, template=spec(gates=(names.GATE,), shape=shape(gpu=8)))
    leader.stores.nodes.apply("DELETED", leader.stores.nodes.get(hosts[3]))
    leader.has(larger, pod(larger, 3, gated=True))
    used = {"pods": 4, "requests.nvidia.com/gpu": 20}
    hard = {"pods": 100, "requests.nvidia.com/gpu": 28}
    leader.stores.quotas.replace([Quota("default", "team", hard=hard, used=used, scopes=())])
    leader.settle()
    leader.later(20)
    assert leader.status()[1] != "QuotaExceeded"
