"""The minimum of a gang of several templates, or of a pod group, in the life of a placed or starving gang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import Pod, PodConstraints, PodTerm, Readiness
from engine.api.workload import Workload
from engine.gang.key import key_of
from engine.scheduler.pod_group import joint_request
from tests.support.cluster_records import gpu_nodes, job, pod, shape
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader
from tests.support.pod_sets import member, pods_of, several
from tests.unit.controller import test_pod_group_gangs as groups

PATIENT = f"{POLICY}queue: {{patience: 60s}}\n"
EPOCH = 1_800_000_000.0  # of the leader's time of day, at 0


def server_and_workers(least: int | None = None) -> Workload:
    """A held JobSet of one parameter server and eight workers in one rack; `least` pods of all are enough."""
    minimum = {} if least is None else {names.MIN_AVAILABLE: str(least)}
    return several(pods_of("ps", 1), pods_of("worker", 8), says={names.REQUIRE: "rack", **minimum}, held=True)


def ranks(leader: Leader) -> list[tuple[str, int, str]]:
    """Pod set, rank and host of all slots."""
    placed = leader.placed("set")
    assert placed is not None
    assert placed.assignment is not None
    return [
        (plan.name, rank, slot.host)
        for plan in placed.assignment.pod_sets
        for slot in plan.slots
        for first, last in slot.ranks or ()
        for rank in range(first, last + 1)
    ]


@pytest.mark.parametrize("hosts", [6, 9])
def test_a_gang_that_loses_its_rack_moves_with_its_minimum_or_waits(hosts: int) -> None:
    """Six pods or all nine ran; the other rack has room for two."""
    first, second = gpu_nodes(1, 1, hosts), gpu_nodes(1, 2, 2)[2:]
    leader = Leader(nodes=[*first, *second])
    leader.has(server_and_workers(6))
    leader.settle()
    gang = next(iter(leader.stores.workloads.values()))
    slots = ranks(leader)
    assert len(slots) == hosts
    pods = [member(gang, name, rank, host=host, phase="Running") for name, rank, host in slots]
    leader.has(*pods)
    leader.settle()
    for node in first:
        version = leader.hands.version()
        leader.has(replace(node, ready=False, settled_at=EPOCH + leader.now, resource_version=version))
    for one, (name, rank, _) in zip(pods, slots, strict=True):
        leader.has(replace(one, phase="Failed", resource_version=leader.hands.version()))
        again = f"again-{name}-{rank}"
        leader.has(replace(member(gang, name, rank, gated=True), name=again, uid=again))
    leader.settle()
    leader.later(10)
    assert leader.hands.of("release") == []


@pytest.mark.parametrize("least", [None, 8])
def test_hosts_are_kept_where_the_gang_lacks_least(least: int | None) -> None:
    """Two of nine hosts of the first rack are free, seven of the second; each template has a minimum of one."""
    leader = Leader(nodes=gpu_nodes(1, 2, 9), policy=PATIENT)
    hosts = [f"b0-r0-h{number}" for number in range(2, 9)] + ["b0-r1-h7", "b0-r1-h8"]
    leader.has(*busy(hosts))
    leader.has(server_and_workers(least))
    leader.settle()
    leader.later(70)
    leader.later(10)
    placed = leader.placed("set")
    assert placed is not None
    assert placed.status["reason"] == "RoomKept"
    assert {host[:5] for host in placed.status["keptHosts"]} == {"b0-r1"}


def busy(hosts: list[str]) -> list[Pod]:
    other = job("other", require=None)
    return [replace(pod(other, None, host=host, name=f"x-{host}"), owner=None) for host in hosts]


@pytest.mark.parametrize(("least", "unready", "phase"), [(8, 0, "Running"), (8, 1, "Starting"), (7, 1, "Running")])
def test_a_member_of_a_pod_group_runs_when_the_minimum_of_the_group_can_be_ready(
    least: int, unready: int, phase: str
) -> None:
    """Two Jobs of four: each may lack as many ready pods as the group has slots beyond its minimum."""
    leader = groups.led(groups.member("a", least=least), groups.member("b", least=least))
    for name in "ab":
        gang = leader.workload(name)
        for rank, host in ranks_of(leader.placed(name)).items():
            is_ready = rank >= unready
            said = Readiness(is_ready, EPOCH, 0, "main", "" if is_ready else "ImagePullBackOff")
            leader.has(pod(gang, rank, host=host, phase="Running", bound=EPOCH, readiness=said))
    leader.settle()
    for _ in range(5):
        leader.later(15)
    assert leader.status("a")[0] == phase


def test_pods_of_a_group_that_share_a_host_are_kept_one_together() -> None:
    """Eight Jobs of one pod with one GPU, and four busy hosts of eight."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=PATIENT)
    leader.has(*busy([f"b0-r0-h{number}" for number in range(4)]))
    found = [groups.member(f"m{number}", count=1, least=8) for number in range(8)]
    for one in found:
        (only,) = one.pod_sets
        shape = replace(only.template.shape, requests=(("nvidia.com/gpu", 1), ("pods", 1)))
        leader.has(replace(one, pod_sets=(replace(only, template=replace(only.template, shape=shape)),)))
    leader.settle()
    leader.later(70)
    assert leader.status("m0") == ("Waiting", "RoomKept")
    assert "b0-r0-h0 kept free until 8 pods fit" in groups.message(leader, "m0")


def test_of_a_group_of_many_that_require_levels_the_hosts_of_one_are_kept_at_a_time() -> None:
    """A joint plan would take too long, and reviews wait for it."""
    leader = Leader(nodes=gpu_nodes(1, 6, 2), policy=PATIENT)
    leader.has(*busy([f"b0-r{rack}-h{number}" for rack in range(6) for number in range(2)]))
    for number in range(6):
        one = groups.member(f"m{number}", count=2, least=12)
        leader.has(replace(one, annotations={**one.annotations, names.REQUIRE: "rack"}))
    leader.settle()
    leader.later(70)
    assert leader.status("m0") == ("Waiting", "RoomKept")
    placed = leader.placed("m0")
    assert placed is not None
    assert len(placed.status["keptHosts"]) == 2


APART = PodConstraints(anti_affinity=(PodTerm("kubernetes.io/hostname", (), ("default",)),))


@pytest.mark.parametrize("how", ["alike", "keeps apart", "pod affinity", "a level for all templates", "too few pods"])
def test_a_group_is_planned_as_one_gang_only_where_its_workloads_ask_for_nothing_of_their_own(how: str) -> None:
    """Else hosts are kept for one of them at a time, by its own plan."""
    first = groups.member("a", least=9 if how == "too few pods" else 8)
    (only,) = first.pod_sets
    if how == "keeps apart":
        first = replace(first, annotations={**first.annotations, names.EXCLUSIVE: "rack"})
    if how == "pod affinity":
        first = replace(first, pod_sets=(replace(only, template=replace(only.template, constraints=APART)),))
    if how == "a level for all templates":
        both = tuple(pods_of(name, 2) for name in ("ps", "worker"))
        first = replace(first, annotations={**first.annotations, names.REQUIRE: "rack"}, pod_sets=both)
    members = [first, groups.member("b", least=8)]
    leader = groups.led(*members, hosts=2)
    gangs = [found for one in members if (found := leader.view.gangs.get(key_of(one))) is not None]
    group = gangs[0].pod_group
    assert group is not None
    assert (joint_request(gangs, group) is not None) is (how == "alike")


@pytest.mark.parametrize(
    ("least", "taken", "reason", "says"),
    [
        (129, 0, "GangTooLarge", "so many together do not fit even on empty hosts"),
        (128, 4, "InsufficientFreeGPUs", "so many do not fit together now"),
    ],
)
def test_a_minimum_that_no_division_meets_says_what_lacks(least: int, taken: int, reason: str, says: str) -> None:
    """Of 400 pods 128 fit on two pools of hosts; there are more divisions of the minimum than are tried."""
    nodes = [replace(node, labels={**node.labels, "pool": node.name[:5]}) for node in gpu_nodes(1, 2, 8)]
    leader = Leader(nodes=nodes)
    leader.has(*busy([f"b0-r0-h{number}" for number in range(8 - taken, 8)]))
    wanted = [replace(shape(gpu=1), node_selector=(("pool", f"b0-r{rack}"),)) for rack in range(2)]
    pod_sets = [pods_of(name, 200, shape=one) for name, one in zip("ab", wanted, strict=True)]
    leader.has(several(*pod_sets, says={names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: str(least)}, held=True))
    leader.settle()
    placed = leader.placed("set")
    assert placed is not None
    assert placed.status["reason"] == reason
    assert placed.status["message"] == f"needs room for {least} of 400 pods (200 of a and 200 of b); {says}"
