"""Gangs that are kept apart: exclusive ones from all others, spread ones from their siblings."""

from __future__ import annotations

from dataclasses import replace

from engine.api import names
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Workload
from tests.support.cluster_records import changed, gpu_nodes, job, node, pod, spec
from tests.support.leader import POLICY, Leader

RACK = "cloud.provider.com/topology-rack"
TWO_TOPOLOGIES = f"""{POLICY}topologies:
- {{name: fine, levels: [{{name: rack, keys: [{RACK}]}}]}}
- {{name: coarse, levels: [{{name: block, keys: [cloud.provider.com/topology-block]}}]}}
"""


def gang(name: str, *, count: int = 1, created: float = 1000.0, asked: dict[str, str] | None = None) -> Workload:
    found = job(name, count=count, held=True, created=created)
    return replace(found, annotations={**found.annotations, **(asked or {})})


def exclusive(name: str, *, count: int = 1, created: float = 1000.0, level: str = "rack") -> Workload:
    return gang(name, count=count, created=created, asked={names.EXCLUSIVE: level})


def spread(name: str, *, count: int = 1, level: str = "rack", group: str = "web", created: float = 1000.0) -> Workload:
    return gang(name, count=count, created=created, asked={names.SPREAD: level, names.SPREAD_GROUP: group})


def racks(leader: Leader, name: str) -> set[str]:
    found = leader.placed(name)
    if found is None or found.assignment is None:
        return set()
    return {slot.host.rpartition("-")[0] for plan in found.assignment.pod_sets for slot in plan.slots}


def message(leader: Leader, name: str) -> str:
    found = leader.placed(name)
    assert found is not None
    return str(found.status["message"])


def run(leader: Leader, name: str) -> None:
    """The pods of a placed Job are there, each on the host of its slot."""
    found, workload = leader.placed(name), leader.workload(name)
    assert found is not None and found.assignment is not None
    hosts = [slot.host for slot in found.assignment.pod_sets[0].slots for _ in range(slot.count)]
    leader.has(*(pod(workload, rank, host=host) for rank, host in enumerate(hosts)))
    leader.settle()


def end(leader: Leader, name: str) -> None:
    for one in list(leader.stores.pods.values()):
        if one.owner is not None and one.owner.name == name:
            leader.stores.pods.apply("DELETED", one)
    found = changed(leader.workload(name), remaining=0)
    leader.has(replace(found, finished=True, resource_version=leader.hands.version()))
    leader.settle()


def grow(leader: Leader, name: str, count: int) -> None:
    before = leader.workload(name)
    grown = changed(before, slots=count, total=count, remaining=count, resource_version=leader.hands.version())
    leader.has(grown, *(pod(grown, rank, gated=True) for rank in range(before.slots, count)))
    leader.settle()
    leader.later(10)


# -- exclusive -------------------------------------------------------------------------------------------------------


def test_an_exclusive_gang_waits_until_a_domain_is_without_other_gangs() -> None:
    """There is room beside the others all the time; it starts when one of them has ended."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(gang("a", count=3), gang("b", count=3, created=1001.0))
    leader.settle()
    assert racks(leader, "a") != racks(leader, "b")
    run(leader, "a")
    run(leader, "b")
    leader.has(exclusive("alone", created=1002.0))
    leader.settle()
    assert leader.status("alone") == ("Waiting", "ExclusiveDomains")
    assert message(leader, "alone") == "needs room for 1 pod in racks without other gangs; 2 racks = 2 with other gangs"
    free = racks(leader, "a")
    end(leader, "a")
    assert racks(leader, "alone") == free


def test_other_gangs_keep_out_until_it_ends() -> None:
    """A gang that would fit beside it waits with the reason, and starts when it has ended."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(exclusive("alone"), gang("a", count=4, created=1001.0), gang("b", created=1002.0))
    leader.settle()
    assert leader.hands.of("place") == ["alone", "a"]
    assert leader.status("b") == ("Waiting", "ExclusiveDomains")
    assert message(leader, "b") == (
        "needs room for 1 pod outside the domains of exclusive gangs; 2 racks = 1 of exclusive gangs + 1 without room"
    )
    run(leader, "alone")
    end(leader, "alone")
    assert leader.hands.of("place") == ["alone", "a", "b"]


def test_it_counts_neither_pods_without_a_gang_nor_those_of_daemon_sets() -> None:
    """Its rack is without other gangs, not without other pods."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    plain = replace(pod(job("nobody", require=None), 0, host="b0-r0-h0"), owner=None)
    daemon = replace(
        pod(job("agent", require=None), 1, host="b0-r0-h1"),
        owner=OwnerRef("apps/v1", "DaemonSet", "agent", "uid-d", True),
    )
    of_job = job("other", require=None, template=spec())
    strange = replace(pod(of_job, 2, host="b0-r0-h2"), owner=OwnerRef("batch/v1", "Job", "other", "uid-other", True))
    leader.has(of_job, *(_unmarked(one) for one in (plain, daemon, strange)), exclusive("alone"))
    leader.settle()
    assert racks(leader, "alone") == {"b0-r0"}


def _unmarked(one: Pod) -> Pod:
    return replace(one, spec=replace(one.spec, labels={}))


def test_pods_of_an_ended_gang_count_until_they_are_gone() -> None:
    """A deleted Job leaves pods that terminate: until they are gone the domain is not without other gangs."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(gang("a"))
    leader.settle()
    run(leader, "a")
    (one,) = leader.stores.pods.values()
    leader.has(replace(one, deleting=True, resource_version=leader.hands.version()))
    leader.stores.workloads.apply("DELETED", leader.workload("a"))
    leader.has(exclusive("alone", created=1001.0))
    leader.settle()
    assert leader.status("alone")[1] == "ExclusiveDomains"
    leader.stores.pods.apply("DELETED", one)
    leader.settle()
    leader.later(5)
    assert racks(leader, "alone") == {"b0-r0"}


def test_two_exclusive_gangs_of_one_turn_get_different_domains() -> None:
    """The second is planned beside the plan of the first, before that is written."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(*(exclusive(name, count=2, created=1000.0 + n) for n, name in enumerate("abc")))
    leader.settle()
    assert sorted(map(sorted, (racks(leader, name) for name in "abc"))) == [[], ["b0-r0"], ["b0-r1"]]
    assert message(leader, "c") == "needs room for 2 pods in racks without other gangs; 2 racks = 2 of exclusive gangs"


def test_a_new_leader_keeps_the_same_gangs_apart() -> None:
    """All that it needs is in the Placements."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(exclusive("alone"))
    leader.settle()
    second = Leader(nodes=gpu_nodes(1, 1, 4))
    second.has(leader.workload("alone"), *leader.stores.placements.values(), gang("b", created=1001.0))
    second.settle()
    assert second.status("b")[1] == "ExclusiveDomains"


def test_growth_of_an_exclusive_gang_stays_where_no_other_is() -> None:
    """Its own domain is open to it; with a required rack that is full it waits."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(exclusive("alone", count=2), gang("b", count=2, created=1001.0))
    leader.settle()
    run(leader, "alone")
    run(leader, "b")
    grow(leader, "alone", 4)
    found = leader.placed("alone")
    assert found is not None and found.assignment is not None
    assert sum(slot.count for slot in found.assignment.pod_sets[0].slots) == 4
    assert racks(leader, "alone").isdisjoint(racks(leader, "b"))


def test_growth_of_another_gang_keeps_out_of_its_domain() -> None:
    """A gang that could grow into the block grows no further than its own racks."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    wide = replace(
        gang("wide", count=2, created=1001.0), annotations={names.REQUIRE: "block", names.HELD_BY: "suspend"}
    )
    leader.has(exclusive("alone"), wide)
    leader.settle()
    run(leader, "alone")
    run(leader, "wide")
    grow(leader, "wide", 3)
    assert racks(leader, "wide").isdisjoint(racks(leader, "alone"))
    assert leader.status("wide")[1] == "ExclusiveDomains"
    end(leader, "alone")
    leader.later(10)
    assert len(racks(leader, "wide")) == 2


def test_repair_of_another_gang_keeps_out_of_its_domain() -> None:
    """A lost slot is replaced outside of it, or waits."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    wide = replace(
        gang("wide", count=2, created=1001.0), annotations={names.REQUIRE: "block", names.HELD_BY: "suspend"}
    )
    leader.has(exclusive("alone"), wide)
    leader.settle()
    run(leader, "alone")
    run(leader, "wide")
    lost = next(one for one in leader.stores.pods.values() if one.name == "wide-0")
    leader.stores.nodes.apply("DELETED", leader.stores.nodes.get(lost.spec.node_name))
    leader.stores.pods.apply("DELETED", lost)
    leader.has(pod(leader.workload("wide"), 0, name="wide-0-again", gated=True))
    leader.settle()
    leader.later(30)
    assert racks(leader, "wide").isdisjoint(racks(leader, "alone"))
    assert "repair" not in [call for call, _ in leader.hands.calls]


def test_a_domain_stays_its_own_while_a_host_of_it_is_gone() -> None:
    """A rack of which it had one host is not given away before that slot is replaced."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(exclusive("alone"))
    leader.settle()
    run(leader, "alone")
    (one,) = leader.stores.pods.values()
    leader.stores.nodes.apply("DELETED", leader.stores.nodes.get(one.spec.node_name))
    leader.has(gang("b", created=1001.0))
    leader.settle()
    assert leader.status("b")[1] == "ExclusiveDomains"


def test_a_level_of_one_topology_keeps_out_gangs_of_another_with_the_same_nodes() -> None:
    """The hosts count, whatever the topology calls their domain."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=TWO_TOPOLOGIES)
    other = replace(
        gang("b", created=1001.0),
        annotations={names.REQUIRE: "block", names.TOPOLOGY: "coarse", names.HELD_BY: "suspend"},
    )
    leader.has(exclusive("alone"), other)
    leader.settle()
    assert leader.status("b")[1] == "ExclusiveDomains"


def test_hosts_are_kept_for_an_exclusive_gang_that_waits_too_long() -> None:
    """Its domain has room for it all the time, but never without other gangs: then no new ones come."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=f"{POLICY}queue: {{patience: 1m}}\n")
    leader.has(gang("a", count=3), gang("b", count=4, created=1001.0))
    leader.settle()
    run(leader, "a")
    run(leader, "b")
    leader.has(exclusive("alone", created=1002.0))
    leader.settle()
    leader.later(70)
    assert leader.status("alone") == ("Waiting", "RoomKept")
    found = leader.placed("alone")
    assert found is not None
    assert len(found.status["keptHosts"]) == 4
    leader.has(gang("late", created=1003.0))
    leader.settle()
    assert leader.status("late")[1] == "QueuedBehind"
    end(leader, "a" if "r0" in str(found.status["keptHosts"]) and racks(leader, "a") == {"b0-r0"} else "b")
    leader.later(10)
    assert "alone" in leader.hands.of("place")


# -- spread ----------------------------------------------------------------------------------------------------------


def test_gangs_of_a_spread_group_get_different_domains() -> None:
    """The third of them waits, and starts when one of the others has ended; gangs outside the group do not matter."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(gang("stranger"), *(spread(name, created=1001.0 + n) for n, name in enumerate("abc")))
    leader.settle()
    assert racks(leader, "a") | racks(leader, "b") == {"b0-r0", "b0-r1"}
    assert leader.status("c") == ("Waiting", "SpreadDomains")
    assert message(leader, "c") == (
        'needs room for 1 pod outside the racks of the other gangs of spread group "web"; 2 racks = 2 with such gangs'
    )
    free = racks(leader, "a")
    run(leader, "a")
    end(leader, "a")
    assert racks(leader, "c") == free


def test_a_gang_that_its_own_group_keeps_waiting_holds_up_nobody_in_strict_order() -> None:
    """Only its own namespace can end that wait; an exclusive gang that waits for room does hold up the others."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=f"{POLICY}queue: {{order: strict}}\n")
    leader.has(spread("a"), spread("b", created=1001.0), gang("later", created=1002.0))
    leader.settle()
    assert leader.hands.of("place") == ["a", "later"]
    assert leader.status("b") == ("Waiting", "SpreadDomains")
    leader.has(exclusive("alone", created=1003.0), gang("last", created=1004.0))
    leader.settle()
    assert leader.status("last")[1] == "QueuedBehind"
    run(leader, "a")
    end(leader, "a")
    assert "b" in leader.hands.of("place")


def test_of_two_levels_in_a_group_the_coarser_one_counts_for_both() -> None:
    """Whoever comes second may not break what the first one asked for."""
    for first, second in (("rack", "block"), ("block", "rack")):
        leader = Leader(nodes=gpu_nodes(1, 2, 4))
        leader.has(spread("a", level=first), spread("b", level=second, created=1001.0))
        leader.settle()
        assert leader.status("b")[1] == "SpreadDomains"


def test_groups_of_the_same_name_in_two_namespaces_are_two_groups() -> None:
    """A name is nobody's beyond its namespace."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    elsewhere = replace(spread("b", created=1001.0), namespace="elsewhere")
    leader.has(spread("a"), elsewhere)
    leader.settle()
    assert leader.hands.of("place") == ["a", "b"]


def test_growth_keeps_gangs_spread() -> None:
    """A gang that may span racks grows into no rack of its group."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    asked = {names.REQUIRE: "block", names.HELD_BY: "suspend", names.SPREAD: "rack", names.SPREAD_GROUP: "web"}
    leader.has(*(replace(gang(name, count=2), annotations=asked) for name in "ab"))
    leader.settle()
    run(leader, "a")
    run(leader, "b")
    grow(leader, "a", 3)
    assert leader.status("a")[1] in {"SpreadDomains", "InsufficientFreeGPUs", "Fragmented"}
    leader.has(node("b0-r1-h9", labels=dict(next(iter(leader.stores.nodes.values())).labels)))
    assert racks(leader, "a").isdisjoint(racks(leader, "b"))


def test_hosts_without_the_level_s_labels_make_the_gang_wait() -> None:
    """A level that no node has keeps nothing apart."""
    leader = Leader(nodes=[node("n0")])
    leader.has(gang("a", asked={names.EXCLUSIVE: "rack"}))
    leader.settle()
    assert leader.hands.of("place") == []
