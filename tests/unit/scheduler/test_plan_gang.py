"""Planning pod sets that are unlike, and pods that join others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.device import NodeDevices
from engine.api.objects import Node
from engine.api.pod import Pod, Shape
from engine.api.resources import host_port
from engine.api.workload import PodSet, Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.slots import slot_by_rank
from engine.policy.model import Policy, parse_policy
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.schedule import new_placement, schedule_gang
from tests.support.cluster_records import gpu_nodes, job, node, shape
from tests.support.cluster_records import pod as pod_of
from tests.support.gpu_hosts import GIB, asking, gpu_node, gpus, share
from tests.support.pod_sets import member, pods_of, several

BIG, SMALL = shape(gpu=8, cpu=8000), shape(cpu=2000)


def planned(
    nodes: list[Node],
    workload: Workload,
    *pods: Pod,
    policy: Policy | None = None,
    devices: tuple[NodeDevices, ...] = (),
) -> Outcome:
    view, uid = view_of(nodes, workload, *pods, policy=policy, devices=devices)
    gang = view.gangs.get(uid)
    assert gang is not None
    assert gang.request.errors == ()
    return schedule_gang(view, gang)


def view_of(
    nodes: list[Node],
    workload: Workload,
    *pods: Pod,
    policy: Policy | None = None,
    devices: tuple[NodeDevices, ...] = (),
) -> tuple[ClusterState, str]:
    stores = Stores()
    view = ClusterState(stores, policy)
    stores.nodes.replace(nodes)
    stores.devices.replace(devices)
    stores.workloads.replace([workload])
    stores.pods.replace(pods)
    view.refresh()
    return view, workload.uid


def gpu_rack(number: int, *, count: int) -> tuple[list[Node], tuple[NodeDevices, ...]]:
    """Hosts of one rack with so many GPUs each, and their Device objects."""
    labels = {"cloud.provider.com/topology-block": "b", "cloud.provider.com/topology-rack": "r"}
    found = [f"h{host}" for host in range(number)]
    return [gpu_node(name, count, labels=labels) for name in found], tuple(gpus(name, count) for name in found)


def hosts(outcome: Outcome) -> dict[str, list[str]]:
    """Pod set -> host of every rank, in order."""
    assert isinstance(outcome, Placed), outcome
    found: dict[str, list[str]] = {}
    for plan in outcome.pod_sets:
        by_rank = slot_by_rank(plan)
        found[plan.name] = [by_rank[rank].host for rank in sorted(by_rank)]
    return found


def racks(outcome: Outcome) -> set[str]:
    return {host.rpartition("-")[0] for found in hosts(outcome).values() for host in found}


def launcher(**says: str) -> PodSet:
    return pods_of("launcher", 1, shape=SMALL, says=says)


def workers(count: int, **more: object) -> PodSet:
    return pods_of("workers", count, **({"shape": BIG} | more))  # type: ignore[arg-type]


def test_a_level_of_the_workload_holds_all_pod_sets_in_one_domain() -> None:
    """One rack for launcher and workers, though the first rack would do for the launcher alone."""
    full = job("other", count=1, require=None)
    gang = several(launcher(), workers(3), says={names.REQUIRE: "rack"})
    taken = pod_of(full, 0, host="b0-r0-h0")
    outcome = planned(gpu_nodes(1, 2, 3), gang, taken)
    assert racks(outcome) == {"b0-r1"}
    assert [len(found) for found in hosts(outcome).values()] == [1, 3]


def test_pod_sets_with_different_needs_each_get_their_own_level() -> None:
    """Workers in one rack; the launcher asks for no level and needs no GPU host."""
    gang = several(launcher(), workers(3, says={names.REQUIRE: "rack"}))
    plain = node("plain", labels=dict(gpu_nodes(1, 1, 1)[0].labels), allocatable={"cpu": 4000, "pods": 10})
    found = hosts(planned([*gpu_nodes(1, 1, 3), plain], gang))
    assert sorted(found["workers"]) == ["b0-r0-h0", "b0-r0-h1", "b0-r0-h2"]


def test_all_or_nothing_over_the_pod_sets() -> None:
    """The workers fit, the launcher's host is missing: nothing is placed, and the message names the pod set."""
    huge = pods_of("launcher", 1, shape=shape(cpu=95_000, gpu=1))
    outcome = planned(gpu_nodes(1, 1, 3), several(huge, workers(3, says={names.REQUIRE: "rack"})))
    assert isinstance(outcome, Never | Waits)
    assert "1 of launcher and 3 of workers" in outcome.message
    assert isinstance(outcome, Never)


def test_what_does_not_go_together_now_and_would_on_empty_hosts_waits() -> None:
    """The same gang with one more host that is in use: no proof against it."""
    huge = pods_of("launcher", 1, shape=shape(cpu=95_000, gpu=1))
    other = job("other", count=1, require=None)
    gang = several(huge, workers(3), says={names.REQUIRE: "rack"})
    outcome = planned(gpu_nodes(1, 1, 4), gang, pod_of(other, 0, host="b0-r0-h3"))
    assert isinstance(outcome, Waits)
    assert outcome.reason == "InsufficientFreeGPUs"
    assert "needs room for 4 pods (1 of launcher and 3 of workers) in one rack" in outcome.message


def test_the_pod_set_that_has_no_room_is_named_with_its_own_numbers() -> None:
    outcome = planned(gpu_nodes(1, 1, 2), several(launcher(), workers(4, says={names.REQUIRE: "rack"})))
    assert isinstance(outcome, Never)
    assert outcome.reason == "GangTooLarge"
    assert outcome.message.startswith("pod set workers: 4 pods x 8 GPUs")


def test_pod_sets_that_share_a_domain_go_to_one_with_room_for_both() -> None:
    """The first rack has room for each of them, the second for both."""
    shared = {names.COLOCATE: "c", names.REQUIRE: "rack"}
    nodes = [one for one in gpu_nodes(1, 2, 4) if one.name != "b0-r0-h3"]
    gang = several(pods_of("head", 2, shape=BIG, says={names.COLOCATE: "c"}), workers(2, says=shared))
    assert racks(planned(nodes, gang)) == {"b0-r1"}


@pytest.mark.parametrize("level", ["rack", "auto"])
@pytest.mark.parametrize("more", [(), (pods_of("tail", 1, shape=BIG, says={names.COLOCATE: "c"}),)])
def test_pod_sets_share_a_domain_also_where_the_one_that_names_it_has_no_pods(
    level: str, more: tuple[PodSet, ...]
) -> None:
    """Each rack has one free host: the pods wait, though the two hosts of different racks would be enough."""
    head = pods_of("head", 0, shape=BIG, says={names.COLOCATE: "c", names.REQUIRE: level})
    gang = several(head, workers(2 - len(more), says={names.COLOCATE: "c"}), *more)
    full = job("other", count=2, require=None)
    taken = [pod_of(full, rank, host=f"b0-r{rank}-h0") for rank in range(2)]
    outcome = planned(gpu_nodes(1, 2, 2), gang, *taken)
    assert isinstance(outcome, Waits), outcome
    assert "in one rack" in outcome.message
    assert len(racks(planned(gpu_nodes(1, 2, 2), gang))) == 1


def test_without_sharing_the_same_pod_sets_may_part() -> None:
    """Three hosts a rack: four whole-host pods need two racks."""
    gang = several(
        pods_of("head", 2, shape=BIG, says={names.REQUIRE: "rack"}), workers(2, says={names.REQUIRE: "rack"})
    )
    assert racks(planned(gpu_nodes(1, 2, 3), gang)) == {"b0-r0", "b0-r1"}
    shared = {names.COLOCATE: "c", names.REQUIRE: "rack"}
    outcome = planned(gpu_nodes(1, 2, 3), several(pods_of("head", 2, shape=BIG, says=shared), workers(2, says=shared)))
    assert isinstance(outcome, Never)
    assert "in one rack" in outcome.message


@pytest.mark.parametrize(("workers_", "level"), [(2, "rack"), (5, "block")])
def test_auto_of_the_whole_gang_is_the_lowest_level_that_holds_all(workers_: int, level: str) -> None:
    gang = several(pods_of("head", 1, shape=BIG), workers(workers_), says={names.REQUIRE: "auto"})
    outcome = planned(gpu_nodes(2, 2, 3), gang)
    assert isinstance(outcome, Placed)
    assert outcome.require == level


def test_auto_of_pod_sets_that_share_a_domain_counts_both() -> None:
    """Three workers fit a rack of three hosts alone, not beside the head."""
    says = {names.COLOCATE: "c", names.REQUIRE: "auto"}
    outcome = planned(gpu_nodes(2, 2, 3), several(pods_of("head", 1, shape=BIG, says=says), workers(3, says=says)))
    assert isinstance(outcome, Placed)
    assert outcome.levels_of("head") == outcome.levels_of("workers") == ("block", None)


def test_slices_hold_in_a_gang_of_several_pod_sets() -> None:
    gang = several(launcher(), workers(4, says={names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}))
    found = hosts(planned(gpu_nodes(1, 2, 3), gang))["workers"]
    assert found[0][:5] == found[1][:5]
    assert found[2][:5] == found[3][:5]


def test_hosts_that_take_one_pod_set_only_are_left_to_it() -> None:
    """A nodeSelector of the launcher: its own hosts, and no others, count for it."""
    own = replace(SMALL, node_selector=(("pool", "cpu"),))
    nodes = gpu_nodes(1, 1, 3)
    nodes[1] = replace(nodes[1], labels={**nodes[1].labels, "pool": "cpu"})
    found = hosts(planned(nodes, several(pods_of("launcher", 1, shape=own), workers(3), says={names.REQUIRE: "rack"})))
    assert found["launcher"] == ["b0-r0-h1"]


def test_a_claim_of_one_pod_set_is_not_given_twice() -> None:
    """A host port is had once per host: a launcher that wants the workers' port needs a host of its own."""
    asks = Shape(requests=tuple(sorted({"pods": 1, "cpu": 1, host_port(8080, "TCP"): 1}.items())))
    gang = several(pods_of("launcher", 1, shape=asks), pods_of("workers", 2, shape=asks), says={names.REQUIRE: "rack"})
    found = hosts(planned(gpu_nodes(1, 1, 3), gang))
    assert sorted(found["launcher"] + found["workers"]) == ["b0-r0-h0", "b0-r0-h1", "b0-r0-h2"]


def test_devices_of_two_pod_sets_are_not_given_twice() -> None:
    """By numbers 2 x 60 % and 80 % are 200 %: no two GPUs hold them, so the 80 % go to the other host."""
    pair = [pods_of("heads", 2, shape=share(60)), pods_of("tail", 1, shape=share(80))]
    nodes = [gpu_node(name, 2) for name in ("a", "b")]
    told = tuple(gpus(name, 2) for name in ("a", "b"))
    found = hosts(planned(nodes, several(*pair, says={names.UNCONSTRAINED: "true"}), devices=told))
    assert found["heads"] == [found["heads"][0]] * 2
    assert found["tail"] != found["heads"][:1]
    alone = planned(nodes[:1], several(*pair, says={names.UNCONSTRAINED: "true"}), devices=told[:1])
    assert not isinstance(alone, Placed)


@pytest.mark.parametrize("listed", [True, False], ids=["Device objects", "numbers alone"])
@pytest.mark.parametrize("whole", [asking(gpu=1), share(100)], ids=["vendor's name", "Koordinator's names"])
@pytest.mark.parametrize("whole_first", [True, False])
def test_whole_gpus_and_halves_go_to_two_hosts_by_whatever_names(
    whole: Shape, *, whole_first: bool, listed: bool
) -> None:
    """4 whole GPUs and 3 halves are 5.5 GPUs: on a rack of 3 hosts with 4 each they take two."""
    pair = [pods_of("whole", 4, shape=whole), pods_of("halves", 3, shape=share(50))]
    nodes, told = gpu_rack(3, count=4)
    gang = several(*(pair if whole_first else pair[::-1]), says={names.REQUIRE: "rack"})
    outcome = planned(nodes, gang, devices=told if listed else ())
    found = hosts(outcome)
    assert isinstance(outcome, Placed)
    assert outcome.proven
    assert [len(found[name]) for name in ("whole", "halves")] == [4, 3]
    assert len({*found["whole"], *found["halves"]}) == 2


def test_a_rack_is_filled_by_whole_gpus_and_halves_of_different_names() -> None:
    """9 whole GPUs and 6 halves are all 12 GPUs; one half more never fits, and the message does not say otherwise."""
    nodes, told = gpu_rack(3, count=4)

    def outcome(halves: int) -> Outcome:
        pair = [pods_of("whole", 9, shape=asking(gpu=1)), pods_of("halves", halves, shape=share(50))]
        return planned(nodes, several(*pair, says={names.REQUIRE: "rack"}), devices=told)

    assert isinstance(outcome(6), Placed)
    assert outcome(7) == Never(
        "GangTooLarge",
        "needs room for 16 pods (9 of whole and 7 of halves) in one rack;"
        " each pod set fits alone, but all of them together do not fit even on empty hosts",
    )


@pytest.mark.parametrize("busy", [False, True])
def test_a_gang_that_is_too_large_together_is_told_so_on_a_busy_cluster_too(busy: bool) -> None:
    """Else it would wait for ever, and in strict order everybody behind it until the cluster is empty."""
    pair = [pods_of("driver", 1), pods_of("workers", 4)]
    gang = several(*pair, says={names.REQUIRE: "rack"})
    taken = [pod_of(job("other"), None, host=f"b0-r{rack}-h{host}") for rack in range(2) for host in range(2)]
    assert planned(gpu_nodes(1, 2, 4), gang, *(taken if busy else ())) == Never(
        "GangTooLarge",
        "needs room for 5 pods (1 of driver and 4 of workers) in one rack;"
        " each pod set fits alone, but all of them together do not fit even on empty hosts",
    )
    if busy:
        smaller = several(pods_of("driver", 1), pods_of("workers", 3), says={names.REQUIRE: "rack"})
        waits = planned(gpu_nodes(1, 2, 4), smaller, *taken)
        assert isinstance(waits, Waits)
        assert waits.message.startswith("pod set workers: needs 3 hosts in one rack; best is b0-r0 with 2")


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("level", ["rack", "host"])
def test_a_gang_with_a_template_that_never_fits_is_told_so_also_while_another_one_has_no_room(
    level: str, *, busy: bool
) -> None:
    """The driver waits for others to end; the workers would still not fit then."""
    workers = pods_of("workers", 9, shape=asking(gpu=4), says={names.REQUIRE: level})
    gang = several(pods_of("driver", 1, shape=asking(gpu=8), says={names.UNCONSTRAINED: "true"}), workers)
    taken = [pod_of(job("other"), None, host=f"b0-r{rack}-h{host}") for rack in range(2) for host in range(4)]
    outcome = planned(gpu_nodes(1, 2, 4), gang, *(taken if busy else ()))
    assert isinstance(outcome, Never)
    assert outcome.message.startswith(f"pod set workers: 9 pods x 4 GPUs = 36 GPUs must share one {level}, but")
    assert outcome.shortage is not None
    assert outcome.shortage.have == (0 if busy else 8 if level == "rack" else 2)


@pytest.mark.parametrize(("cordoned", "for_hosts"), [(0, False), (1, True)])
@pytest.mark.parametrize("used", [1, 3])
def test_a_gang_of_several_templates_that_no_end_of_others_helps_waits_for_hosts(
    used: int, cordoned: int, *, for_hosts: bool
) -> None:
    """It needs all four hosts. With three in use no template has room even alone, with one each of them has."""
    nodes = [replace(one, unschedulable=number < cordoned) for number, one in enumerate(gpu_nodes(1, 1, 4))]
    taken = [pod_of(job("other"), None, host=one.name) for one in nodes[4 - used :]]
    pair = [pods_of(name, 2, shape=asking(gpu=8)) for name in ("drivers", "workers")]
    outcome = planned(nodes, several(*pair, says={names.UNCONSTRAINED: "true"}), *taken)
    assert isinstance(outcome, Waits)
    assert outcome.message.startswith("pod set" if used > 1 else "needs room for 4 pods")
    assert outcome.for_hosts == for_hosts


def test_a_gpu_that_is_too_small_for_a_part_is_not_counted_against_whole_ones() -> None:
    """40 GiB GPUs hold none of the parts of 60 GiB, and whole ones all the same."""
    nodes = [gpu_node("small", 2, memory=40 * GIB), gpu_node("large", 2)]
    told = (gpus("small", 2, memory=40 * GIB), gpus("large", 2))
    pair = [pods_of("whole", 3, shape=asking(gpu=1)), pods_of("parts", 1, shape=asking(memory=60 * GIB))]
    found = hosts(planned(nodes, several(*pair, says={names.UNCONSTRAINED: "true"}), devices=told))
    assert found["parts"] == ["large"]
    assert sorted(found["whole"]) == ["large", "small", "small"]


def test_parts_in_bytes_and_in_percent_are_divided_until_the_devices_of_hosts_hold_them() -> None:
    """The numbers of one host suffice for all, its GPUs do not; the plan after that is not called proven."""
    pair = [pods_of("bytes", 8, shape=asking(memory=30 * GIB)), pods_of("halves", 4, shape=share(50))]
    nodes, told = gpu_rack(2, count=4)
    gang = several(*pair, says={names.REQUIRE: "rack"})
    outcome = planned(nodes, gang, devices=told)
    assert isinstance(outcome, Placed)
    assert not outcome.proven
    assert {slot.host for plan in outcome.pod_sets for slot in plan.slots} == {"h0", "h1"}


def test_devices_that_pod_sets_find_no_way_to_share_are_no_missing_room() -> None:
    """Two parts of 30 GiB fill a GPU of 80 GiB for a half: 8 of them leave no room for 4 halves."""
    pair = [pods_of("bytes", 8, shape=asking(memory=30 * GIB)), pods_of("halves", 4, shape=share(50))]
    nodes, told = gpu_rack(1, count=4)
    assert planned(nodes, several(*pair, says={names.REQUIRE: "rack"}), devices=told) == Waits(
        "SearchLimit",
        "needs room for 12 pods (8 of bytes and 4 of halves) in one rack; the free resources of hosts suffice, but no"
        " way to share their devices was found; it is tried again when capacity is freed; equal parts of devices, or"
        " whole ones, in all pod sets avoid it",
    )


def test_pod_sets_on_one_host_get_different_devices() -> None:
    pair = [pods_of("heads", 1, shape=share(100)), pods_of("tail", 1, shape=share(100))]
    gang = several(*pair, says={names.REQUIRE: "host"})
    outcome = planned([gpu_node("a", 2)], gang, devices=(gpus("a", 2),))
    assert isinstance(outcome, Placed)
    given = [use.minor for plan in outcome.pod_sets for uses in plan.slots[0].devices or () for use in uses]
    assert sorted(given) == [0, 1]


def test_a_pod_set_of_no_pods_has_no_slots() -> None:
    outcome = planned(gpu_nodes(1, 1, 2), several(pods_of("extra", 0), workers(2), says={names.REQUIRE: "rack"}))
    assert {name: len(found) for name, found in hosts(outcome).items()} == {"extra": 0, "workers": 2}


def test_the_rest_of_several_pod_sets_joins_what_runs() -> None:
    """No Placement is left to go by: the missing pods go to the rack of those that run."""
    gang = several(launcher(), workers(3), says={names.REQUIRE: "rack"})
    running = [member(gang, "workers", 1, host="b0-r1-h2"), member(gang, "launcher", 0, host="b0-r1-h0")]
    found = hosts(planned(gpu_nodes(1, 2, 3), gang, *running))
    assert found["launcher"] == ["b0-r1-h0"]
    assert found["workers"][1] == "b0-r1-h2"
    assert sorted(found["workers"]) == ["b0-r1-h0", "b0-r1-h1", "b0-r1-h2"]


def test_pods_that_run_in_two_racks_are_no_gang_of_one() -> None:
    """Somebody bound them there: nothing is raised, and nothing of it grows."""
    gang = several(launcher(), workers(3), says={names.REQUIRE: "rack"})
    running = [member(gang, "workers", 0, host="b0-r0-h0"), member(gang, "workers", 1, host="b0-r1-h0")]
    outcome = planned(gpu_nodes(1, 2, 3), gang, *running)
    assert isinstance(outcome, Waits)
    assert outcome.reason == "Fragmented"


def test_a_search_that_runs_out_of_steps_waits() -> None:
    policy = parse_policy("planner: {steps: 1000}")
    shapes = [shape(cpu=cpu, memory=memory) for cpu, memory in ((61_000, 9), (37_000, 600_000), (52_000, 350_000))]
    sets = [pods_of(f"s{n}", 5, shape=one) for n, one in enumerate(shapes)]
    outcome = planned(gpu_nodes(1, 1, 9), several(*sets, says={names.REQUIRE: "rack"}), policy=policy)
    assert isinstance(outcome, Placed | Waits | Never)


def test_the_placement_tells_every_pod_set() -> None:
    """What is written is what was planned, by name."""
    gang = several(launcher(), workers(2), says={names.REQUIRE: "rack"})
    view, uid = view_of(gpu_nodes(1, 1, 2), gang)
    seen = view.gangs.get(uid)
    assert seen is not None
    outcome = schedule_gang(view, seen)
    assert isinstance(outcome, Placed)
    placement = new_placement(seen, outcome, priority=0, now=0.0)
    assert placement.assignment is not None
    assert [one.name for one in placement.pod_sets] == [one.name for one in placement.assignment.pod_sets]
    assert placement.gang == seen.request.gang
    view.assume(uid, placement)
    assert view.capacity.reserved_by(uid) == {"launcher": 1, "workers": 2}
    free = view.capacity.free("b0-r0-h0")
    assert free["nvidia.com/gpu"] == 0
