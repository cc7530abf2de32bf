"""Limits of a namespace that make gangs wait: how many wait for capacity, and on how many hosts they have slots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.policy.model import parse_policy
from tests.support.cluster_records import changed, gpu_nodes, job, pod, shape, spec
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader


def limited(rule: str, *, more: str = "") -> str:
    return f"{POLICY}{more}namespaces: {{rules: [{{namespaces: [a*], {rule}}}]}}\n"


def occupied(leader: Leader, *hosts: str) -> list[Pod]:
    found = [pod(job("somebody"), rank, host=host, name=f"on-{host}") for rank, host in enumerate(hosts)]
    leader.has(*found)
    return found


def gang(name: str, *, namespace: str = "a", count: int = 1, created: float = 1.0, **more: object) -> object:
    return job(name, count=count, held=True, namespace=namespace, created=created, **more)  # type: ignore[arg-type]


def vacate(leader: Leader, *pods: Pod) -> None:
    for one in pods:
        leader.stores.pods.apply("DELETED", one)
    leader.settle()


def end(leader: Leader, name: str, namespace: str = "a") -> None:
    """The Job ends, and the leader writes so."""
    found = leader.stores.workloads.get(("batch", "Job", namespace, name))
    assert found is not None
    leader.has(replace(changed(found, remaining=0), finished=True, resource_version=leader.hands.version()))
    leader.settle()


def limit_of(leader: Leader, name: str) -> str:
    """The message of a gang that waits for the limit of its namespace's hosts."""
    placement = leader.placed(name)
    assert placement is not None
    assert placement.status["reason"] == "ReservedHostsLimit"
    return str(placement.status["message"])


# -- waiting gangs ---------------------------------------------------------------------------------------------------


def test_a_gang_behind_too_many_of_its_namespace_waits_for_them() -> None:
    """The first ones in the order of the queue wait for capacity; the message says how many and which field."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=limited("maxWaitingGangs: 2"))
    occupied(leader, "b0-r0-h0", "b0-r0-h1")
    leader.has(*(gang(f"g{n}", created=float(n)) for n in range(4)))  # type: ignore[arg-type]
    leader.settle()
    assert [leader.status(f"g{n}")[1] for n in range(4)] == ["InsufficientFreeGPUs"] * 2 + ["WaitingGangsLimit"] * 2
    placement = leader.placed("g3")
    assert placement is not None
    assert placement.status["message"] == (
        "2 gangs of its namespace wait ahead of it, which is the limit (policy namespaces.rules[0].maxWaitingGangs)"
    )


def test_it_goes_on_when_one_of_them_is_placed_or_gone() -> None:
    """Each end lets the next one wait for capacity, and be placed."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=limited("maxWaitingGangs: 1"))
    first, _ = occupied(leader, "b0-r0-h0", "b0-r0-h1")
    leader.has(*(gang(f"g{n}", created=float(n)) for n in range(3)))  # type: ignore[arg-type]
    leader.settle()
    assert leader.status("g1")[1] == "WaitingGangsLimit"
    vacate(leader, first)
    assert leader.hands.of("place") == ["g0"]
    assert [leader.status(f"g{n}")[1] for n in (1, 2)] == ["InsufficientFreeGPUs", "WaitingGangsLimit"]
    g1 = leader.stores.workloads.get(("batch", "Job", "a", "g1"))
    assert g1 is not None
    leader.stores.workloads.apply("DELETED", g1)
    leader.settle()
    assert leader.status("g2")[1] == "InsufficientFreeGPUs"


def test_nobody_waits_for_a_gang_in_the_pause_after_a_failed_start() -> None:
    """It does not wait for capacity then: the next one of its namespace is placed on what it gave back."""
    leader = Leader(nodes=gpu_nodes(1, 1, 1), policy=limited("maxWaitingGangs: 1"))
    leader.has(gang("first"))  # type: ignore[arg-type]
    leader.settle()
    leader.later(60)
    leader.has(gang("second", created=2.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["first"]
    leader.later(541)  # nobody has created a pod of it
    leader.later(6)
    assert leader.status("first")[1] == "HoldExpired"
    assert leader.hands.of("place") == ["first", "second"]


def test_room_for_several_is_used_by_all_of_them() -> None:
    """The limit is for gangs that wait: in one turn each that is placed makes way for the next one."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=limited("maxWaitingGangs: 1"))
    leader.has(*(gang(f"g{n}", created=float(n)) for n in range(4)))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["g0", "g1", "g2", "g3"]


def test_each_namespace_has_its_own_limit_and_others_have_none() -> None:
    """A rule for a pattern counts for every namespace by itself."""
    leader = Leader(nodes=gpu_nodes(1, 1, 1), policy=limited("maxWaitingGangs: 1"))
    occupied(leader, "b0-r0-h0")
    leader.has(*(gang(f"{space}{n}", namespace=space) for space in ("a1", "a2", "b") for n in range(2)))  # type: ignore[arg-type]
    leader.settle()
    found = [leader.status(f"{space}{n}")[1] for space in ("a1", "a2", "b") for n in range(2)]
    assert found == ["InsufficientFreeGPUs", "WaitingGangsLimit"] * 2 + ["InsufficientFreeGPUs"] * 2


def test_in_strict_order_nobody_waits_for_a_gang_behind_its_own_limit() -> None:
    """It is out of the queue until its turn; a gang of another namespace that fits goes ahead of it, but not of the
    first.
    """
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=limited("maxWaitingGangs: 1", more="queue: {order: strict}\n"))
    limit = Quota("a", "q", hard={"pods": 1}, used={}, scopes=())
    leader.stores.quotas.replace([limit])
    leader.has(gang("large", count=2), gang("next", created=2.0), gang("other", namespace="b", created=3.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.status("large")[1] == "QuotaExceeded"
    assert leader.hands.of("place") == ["next", "other"]


def test_a_gang_that_no_capacity_helps_does_not_count() -> None:
    """One over its quota waits for its owners: it keeps no other of its namespace from waiting for capacity."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=limited("maxWaitingGangs: 1"))
    occupied(leader, "b0-r0-h0", "b0-r0-h1")
    leader.stores.quotas.replace([Quota("a", "q", hard={"pods": 1}, used={}, scopes=())])
    leader.has(gang("large", count=2), gang("next", created=2.0), gang("last", created=3.0))  # type: ignore[arg-type]
    leader.settle()
    found = [leader.status(name)[1] for name in ("large", "next", "last")]
    assert found == ["QuotaExceeded", "InsufficientFreeGPUs", "WaitingGangsLimit"]
    leader.stores.nodes.apply("DELETED", gpu_nodes(1, 1, 2)[1])
    leader.settle()
    found = [leader.status(name)[1] for name in ("large", "next", "last")]
    assert found == ["GangTooLarge", "InsufficientFreeGPUs", "WaitingGangsLimit"]


def test_another_leader_and_another_policy_find_the_same_order() -> None:
    """Nothing is remembered: the gangs that may wait are the first in the order of the queue."""
    leader = Leader(nodes=gpu_nodes(1, 1, 1), policy=limited("maxWaitingGangs: 1"))
    other = occupied(leader, "b0-r0-h0")
    leader.has(*(gang(f"g{n}", created=float(n)) for n in range(2)))  # type: ignore[arg-type]
    leader.settle()
    leader.leading = False
    leader.settle()
    leader.has(gang("g-old", created=0.0))  # type: ignore[arg-type]
    leader.leading = True
    leader.settle()
    found = {name: leader.status(name)[1] for name in ("g-old", "g0", "g1")}
    assert found == {"g-old": "InsufficientFreeGPUs", "g0": "WaitingGangsLimit", "g1": "WaitingGangsLimit"}
    leader.view.set_policy(parse_policy(POLICY))
    leader.settle()
    assert {leader.status(name)[1] for name in found} == {"InsufficientFreeGPUs"}
    vacate(leader, *other)
    assert leader.hands.of("place") == ["g-old"]


# -- hosts -----------------------------------------------------------------------------------------------------------


def test_a_gang_that_needs_more_hosts_than_its_namespace_may_have_waits() -> None:
    """Whether slots are reserved or used; the message has the numbers. It goes on when a gang has ended."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8), policy=limited("maxReservedHosts: 3"))
    leader.has(gang("first", count=2), gang("second", count=2, created=2.0), gang("third", created=3.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["first", "third"]
    assert limit_of(leader, "second") == (
        "needs 2 more hosts; its namespace has slots on 2 hosts; the limit is 3 "
        "(policy namespaces.rules[0].maxReservedHosts)"
    )
    end(leader, "first")
    assert leader.hands.of("place") == ["first", "third", "second"]


def test_a_gang_past_its_limit_that_lacks_capacity_says_so_at_once() -> None:
    """Also if a smaller gang has got the same answer in this pass: from now on others may have to wait for it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=limited("maxReservedHosts: 2"))
    partly(leader, "b0-r0-h0", "b0-r0-h1", "b0-r0-h2")
    leader.has(quarters("second", count=3, created=2.0))
    leader.settle()
    assert leader.status("second")[1] == "ReservedHostsLimit"
    leader.has(
        *(replace(quarters(name, count=pods, created=0.0), namespace="b") for name, pods in (("a3", 3), ("older", 2)))
    )
    leader.settle()
    assert leader.hands.of("place") == ["a3"]
    assert [leader.status(name)[1] for name in ("older", "second")] == ["InsufficientFreeGPUs"] * 2


def test_nobody_waits_for_a_gang_that_needs_more_hosts_than_its_namespace_may_have() -> None:
    """Its namespace may have one more host, and the gang needs two at least, unless larger ones come."""
    policy = limited("maxReservedHosts: 2", more="queue: {order: strict}\n")
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=policy)
    leader.has(gang("first"), gang("second", count=2, created=2.0), gang("b", namespace="b", created=3.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["first", "b"]
    assert limit_of(leader, "second") == (
        "needs at least 2 more hosts; its namespace has slots on 1 host; the limit is 2 "
        "(policy namespaces.rules[0].maxReservedHosts)"
    )
    (node,) = gpu_nodes(1, 1, 3)[2:]
    leader.has(replace(node, allocatable={name: 2 * amount for name, amount in node.allocatable.items()}))
    leader.later(60.0)
    assert leader.hands.of("place") == ["first", "b", "second"]


def test_at_the_limit_nobody_waits_for_a_gang_that_lacks_capacity() -> None:
    """Its namespace may have no more hosts, so the free one would not help it, and neither would a second one."""
    policy = limited("maxReservedHosts: 2", more="queue: {order: strict}\n")
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=policy)
    leader.has(gang("first", count=2), gang("second", count=2, created=2.0), gang("b", namespace="b", created=3.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["first", "b"]
    assert limit_of(leader, "second") == (
        "its namespace has slots on 2 hosts, and it does not fit there now; the limit is 2 "
        "(policy namespaces.rules[0].maxReservedHosts)"
    )
    end(leader, "first")
    assert leader.hands.of("place") == ["first", "b", "second"]


def test_a_gang_at_the_limit_does_not_get_the_answer_of_an_equal_one_elsewhere() -> None:
    """The one of the other namespace waits for capacity."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=limited("maxReservedHosts: 1"))
    leader.has(gang("first"))  # type: ignore[arg-type]
    leader.settle()
    leader.has(gang("b", namespace="b", count=2, created=2.0), gang("second", count=2, created=3.0))  # type: ignore[arg-type]
    leader.settle()
    assert [leader.status(name)[1] for name in ("b", "second")] == ["InsufficientFreeGPUs", "ReservedHostsLimit"]


def test_hosts_of_the_namespace_are_used_before_it_waits() -> None:
    """A gang for which the planner chose new hosts is planned on those that the namespace has."""
    leader = Leader(
        nodes=gpu_nodes(1, 2, 2), policy=limited("maxReservedHosts: 1", more="planner: {profile: spread}\n")
    )
    half = {"annotations": {names.UNCONSTRAINED: "true", names.HELD_BY: names.HELD_BY_SUSPEND}}
    first, second = (gang(name, created=at, **half) for name, at in (("first", 1.0), ("second", 2.0)))
    small = [
        changed(
            one,
            template=replace(
                one.template, shape=replace(one.template.shape, requests=(("nvidia.com/gpu", 2), ("pods", 1)))
            ),
        )  # type: ignore[attr-defined,arg-type]
        for one in (first, second)
    ]
    leader.has(*small)
    leader.settle()
    assert leader.hands.of("place") == ["first", "second"]
    assert len(leader.view.gangs.hosts_in("a")) == 1


def test_a_namespace_with_more_hosts_than_it_may_have_by_now_goes_on_using_them() -> None:
    """The planner chose a new host first; the limit was higher when the others were taken."""
    spread = "planner: {profile: spread}\n"
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=limited("maxReservedHosts: 2", more=spread))
    leader.has(quarters("first", count=1), quarters("second", count=1, created=2.0))
    leader.settle()
    assert len(leader.view.gangs.hosts_in("a")) == 2
    leader.view.set_policy(parse_policy(limited("maxReservedHosts: 1", more=spread)))
    leader.has(quarters("third", count=2, created=3.0))
    leader.settle()
    assert leader.hands.of("place") == ["first", "second", "third"]
    assert len(leader.view.gangs.hosts_in("a")) == 2


def quarters(name: str, *, count: int, gpu: int = 2, created: float = 1.0, **annotations: str) -> Workload:
    """A held gang of pods with a part of a host's 8 GPUs each, wherever there is room."""
    template = spec(shape=shape(gpu=gpu), gates=(names.GATE,), labels={names.MANAGED: "true", names.POD_SET: "main"})
    found = job(name, count=count, held=True, namespace="a", created=created, require=None, template=template)
    return replace(found, annotations={**found.annotations, names.UNCONSTRAINED: "true"} | annotations)


def partly(leader: Leader, *hosts: str) -> list[Pod]:
    """Pods of somebody with 6 of the 8 GPUs of hosts."""
    owner = job("somebody", template=spec(shape=shape(gpu=6)))
    found = [pod(owner, rank, host=host, name=f"on-{host}") for rank, host in enumerate(hosts)]
    leader.has(*found)
    return found


def test_a_gang_whose_minimum_fits_on_its_largest_host_is_placed_there() -> None:
    """The first host of the plan takes one pod, the second all that the gang needs to start: it gets the second."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=limited("maxReservedHosts: 1"))
    partly(leader, "b0-r0-h0")
    leader.has(quarters("train", count=6, **{names.MIN_AVAILABLE: "4"}))
    leader.settle()
    assert leader.hands.of("place") == ["train"]
    assert leader.view.gangs.hosts_in("a") == {"b0-r0-h1"}


def test_the_new_host_that_takes_most_pods_comes_first() -> None:
    """Beside a host that the namespace has, a gang may have one more: the empty one, not a nearly full one."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=limited("maxReservedHosts: 2"))
    others = partly(leader, "b0-r0-h0", "b0-r0-h1")
    leader.has(quarters("first", count=1, gpu=6))
    leader.settle()
    assert leader.view.gangs.hosts_in("a") == {"b0-r0-h2"}
    vacate(leader, others[1])
    leader.has(quarters("second", count=5, created=2.0))
    leader.settle()
    assert leader.hands.of("place") == ["first", "second"]
    assert leader.view.gangs.hosts_in("a") == {"b0-r0-h1", "b0-r0-h2"}


def test_a_gang_is_placed_in_the_rack_where_it_keeps_the_limit() -> None:
    """Two racks fit it equally well: in the one that the planner chose two hosts are new, in the other only one."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2), policy=limited("maxReservedHosts: 2"))
    others = occupied(leader, "b0-r0-h0", "b0-r0-h1")
    leader.has(quarters("first", count=1, gpu=4))
    leader.settle()
    assert leader.view.gangs.hosts_in("a") == {"b0-r1-h0"}
    vacate(leader, *others)
    leader.has(pod(job("somebody", template=spec(shape=shape(gpu=4))), 0, host="b0-r0-h0", name="half"))
    asked = {names.HELD_BY: names.HELD_BY_SUSPEND, names.REQUIRE: "rack"}
    leader.has(replace(quarters("second", count=3, gpu=4, created=2.0), annotations=asked))
    leader.settle()
    assert leader.hands.of("place") == ["first", "second"]
    assert leader.view.gangs.hosts_in("a") == {"b0-r1-h0", "b0-r1-h1"}


@pytest.mark.parametrize(("most", "told"), [(3, False), (4, True)])
def test_changes_that_the_limit_may_forbid_are_not_told(most: int, told: bool) -> None:
    """A block has room for the four pods, one on each host: with room for so many hosts the change is sure to help."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2), policy=limited(f"maxReservedHosts: {most}"))
    partly(leader, "b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1")
    asked = {names.HELD_BY: names.HELD_BY_SUSPEND, names.REQUIRE: "rack"}
    leader.has(replace(quarters("train", count=4), annotations=asked))
    leader.settle()
    placement = leader.placed("train")
    assert placement is not None
    assert placement.status["reason"] == "Fragmented"
    assert placement.status["message"].endswith("; one block has room now") is told
    assert placement.status.get("proposal") == ({"level": "block", "pods": 2} if told else None)


def alone(name: str, level: str = "rack", *, namespace: str = "a", count: int = 1, created: float = 1.0) -> object:
    asked = {names.REQUIRE: "rack", names.EXCLUSIVE: level, names.HELD_BY: names.HELD_BY_SUSPEND}
    return gang(name, namespace=namespace, count=count, created=created, annotations=asked)


def test_domains_that_placed_gangs_keep_count_whole_for_later_gangs() -> None:
    """One pod that keeps a rack of four takes four hosts of the limit; those of other namespaces take none."""
    leader = Leader(nodes=gpu_nodes(1, 3, 4), policy=limited("maxReservedHosts: 4"))
    leader.has(alone("first"), alone("elsewhere", namespace="b"), gang("second", created=2.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["first", "elsewhere"]
    assert limit_of(leader, "second") == (
        "needs 1 more host; its namespace has slots on, or keeps, 4 hosts; the limit is 4 "
        "(policy namespaces.rules[0].maxReservedHosts)"
    )
    end(leader, "first")
    assert leader.hands.of("place") == ["first", "elsewhere", "second"]


def test_an_exclusive_gang_takes_a_domain_that_is_within_the_limit() -> None:
    """The planner prefers the rack of four, which counts whole; the rack of two is large enough too."""
    policy = limited("maxReservedHosts: 2", more="planner: {profile: spread}\n")
    leader = Leader(nodes=gpu_nodes(1, 2, 4)[:6], policy=policy)
    leader.has(alone("first"))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["first"]
    assert leader.view.gangs.hosts_in("a") <= {"b0-r1-h0", "b0-r1-h1"}


def test_a_domain_of_one_host_counts_once() -> None:
    """A gang that keeps only its hosts takes no more of the limit than any other."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=limited("maxReservedHosts: 2"))
    leader.has(alone("first", "host"), alone("second", "host", created=2.0), gang("third", created=3.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["first", "second"]
    assert leader.status("third")[1] == "ReservedHostsLimit"


def test_an_exclusive_gang_grows_in_the_domain_that_it_keeps() -> None:
    """Its other hosts were counted when it was placed."""
    leader = Leader(nodes=gpu_nodes(1, 2, 3), policy=limited("maxReservedHosts: 3"))
    leader.has(alone("train", count=2))  # type: ignore[arg-type]
    leader.settle()
    running = leader.stores.workloads.get(("batch", "Job", "a", "train"))
    assert running is not None
    hosts = sorted(leader.view.gangs.hosts_in("a"))
    leader.has(*(pod(running, rank, host=host) for rank, host in enumerate(hosts)))
    leader.settle()
    leader.later(5)
    grown = changed(running, slots=3, total=3, remaining=3, resource_version=leader.hands.version())
    leader.has(grown, pod(grown, 2, gated=True))
    leader.settle()
    leader.later(10)
    assert len(leader.view.gangs.hosts_in("a")) == 3


def test_kept_domains_of_a_topology_that_is_gone_do_not_count() -> None:
    """The policy has another topology now: what the gang kept cannot be said any more; its slots still count."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=limited("maxReservedHosts: 4"))
    leader.has(alone("first"))  # type: ignore[arg-type]
    leader.settle()
    renamed = "topologies: [{name: other, preset: demo}]\n"
    leader.view.set_policy(parse_policy(limited("maxReservedHosts: 4").replace(POLICY, renamed)))
    leader.has(gang("second", created=2.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["first", "second"]


def test_other_namespaces_are_not_held_up_by_it_in_strict_order() -> None:
    """Only its own namespace can end the wait."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8), policy=limited("maxReservedHosts: 1", more="queue: {order: strict}\n"))
    leader.has(gang("large", count=2), gang("other", namespace="b", created=2.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.status("large") == ("Waiting", "ReservedHostsLimit")
    assert leader.hands.of("place") == ["other"]


def test_no_hosts_are_kept_for_it_however_long_it_waits() -> None:
    """Patience is for gangs that capacity helps."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=limited("maxReservedHosts: 1", more="queue: {patience: 1m}\n"))
    leader.has(gang("large", count=2))  # type: ignore[arg-type]
    leader.settle()
    leader.later(600)
    leader.has(gang("other", namespace="b", count=2, created=2.0))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.of("place") == ["other"]


def test_growth_waits_for_the_limit_and_lost_slots_do_not() -> None:
    """A gang may not grow onto more hosts; what it loses it gets again, wherever there is room."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=limited("maxReservedHosts: 2"))
    leader.has(gang("train", count=2))  # type: ignore[arg-type]
    leader.settle()
    running = leader.stores.workloads.get(("batch", "Job", "a", "train"))
    assert running is not None
    hosts = sorted(leader.view.gangs.hosts_in("a"))
    leader.has(*(pod(running, rank, host=host) for rank, host in enumerate(hosts)))
    leader.settle()
    leader.later(5)
    grown = changed(running, slots=3, total=3, remaining=3, resource_version=leader.hands.version())
    leader.has(grown, pod(grown, 2, gated=True))
    leader.settle()
    leader.later(10)
    assert len(leader.view.gangs.hosts_in("a")) == 2
    assert leader.status("train")[1] == "ReservedHostsLimit"
    leader.view.set_policy(parse_policy(limited("maxReservedHosts: 1")))
    leader.settle()
    lost = next(node for node in leader.stores.nodes.values() if node.name == hosts[1])
    leader.stores.nodes.apply("DELETED", lost)
    leader.stores.pods.apply("DELETED", next(one for one in leader.stores.pods.values() if one.name == "train-1"))
    leader.has(pod(grown, 1, name="train-1-again", gated=True))
    leader.settle()
    leader.later(30)
    assert "train" in leader.hands.of("repair")


# -- levels ----------------------------------------------------------------------------------------------------------


def test_a_rule_that_came_later_does_not_keep_a_running_gang_from_the_level_that_it_needs() -> None:
    """`auto` meant the block when it was placed: its lost pod gets a slot there, though the rule allows no block."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(job("train", count=5, require="auto", held=True))
    leader.settle()
    train, hosts = leader.workload(), ranks_of(leader.placed())
    pods = {rank: pod(train, rank, host=host) for rank, host in hosts.items()}
    leader.has(*pods.values())
    leader.settle()
    leader.view.set_policy(parse_policy(limited("levels: [rack, host]").replace("[a*]", "['*']")))
    leader.settle()
    lost = next(one for one in leader.stores.nodes.values() if one.name == hosts[4])
    leader.stores.nodes.apply("DELETED", lost)
    leader.stores.pods.apply("DELETED", pods[4])
    leader.has(pod(train, 4, gated=True, name="train-4b"))
    for _ in range(3):
        leader.later(10)
    repaired = leader.placed()
    assert repaired is not None
    assert repaired.assignment is not None
    assert sum(slot.count for slot in repaired.assignment.pod_sets[0].slots) == 5
    assert lost.name not in repaired.assignment.hosts
