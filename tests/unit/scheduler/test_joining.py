"""The rest of a gang joins the part that runs."""

from __future__ import annotations

import pytest

from engine.api import names
from engine.api.objects import Node
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.scheduler.outcome import Outcome, Placed, Waits
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import REFUSAL, gpu_nodes, job, node, pod, shape
from tests.support.pod_sets import member, pods_of, several


def planned(nodes: list[Node], workload: Workload, pods: list[Pod], *others: Pod) -> Outcome:
    """The answer for a gang without a Placement, some pods of which are there."""
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(nodes)
    stores.workloads.replace([workload])
    stores.pods.replace([*pods, *others])
    view.refresh()
    gang = view.gangs.get(workload.uid)
    assert gang is not None
    return schedule_gang(view, gang)


def seats(outcome: Outcome) -> dict[int, str]:
    assert isinstance(outcome, Placed), outcome
    return {
        rank: slot.host
        for slot in outcome.pod_sets[0].slots
        for first, last in slot.ranks or ()
        for rank in range(first, last + 1)
    }


def test_the_missing_pods_go_to_the_rack_of_those_that_run() -> None:
    """Bound pods keep their hosts; the others join them in the required rack, though another one is emptier."""
    gang = job(count=3)
    running = [pod(gang, 0, host="b0-r1-h0"), pod(gang, 2, host="b0-r1-h2")]
    found = seats(planned(gpu_nodes(1, 2, 3), gang, running))
    assert found == {0: "b0-r1-h0", 1: "b0-r1-h1", 2: "b0-r1-h2"}


def test_a_gang_that_fills_its_rack_is_completed_in_it() -> None:
    """Three hosts, three pods, one of them bound: its own host counts as its own slot."""
    gang = job(count=3)
    found = seats(planned(gpu_nodes(1, 1, 3), gang, [pod(gang, 1, host="b0-r0-h0")]))
    assert found[1] == "b0-r0-h0"
    assert sorted(found.values()) == ["b0-r0-h0", "b0-r0-h1", "b0-r0-h2"]


def test_without_room_in_that_rack_the_rest_waits() -> None:
    """A required level is not broken for a replacement: room elsewhere does not count."""
    gang, other = job(count=2), job("other", count=1, require=None)
    answer = planned(gpu_nodes(1, 2, 2), gang, [pod(gang, 0, host="b0-r0-h0")], pod(other, 0, host="b0-r0-h1"))
    assert isinstance(answer, Waits)
    assert answer.reason == "Fragmented"
    assert answer.message == "needs room for 1 more pod in the rack of the running pods, which has room for 0"


def test_what_a_growth_needs_and_has_is_told_in_numbers() -> None:
    """Two more pods, and one host left in their rack."""
    gang, other = job(count=4), job("other", count=1, require=None)
    running = [pod(gang, 0, host="b0-r0-h0"), pod(gang, 1, host="b0-r0-h1")]
    answer = planned(gpu_nodes(1, 2, 4), gang, running, pod(other, 0, host="b0-r0-h2"))
    assert isinstance(answer, Waits)
    assert answer.message == "needs room for 2 more pods in the rack of the running pods, which has room for 1"


def test_what_room_elsewhere_is_of_no_use_to_a_slice_is_told() -> None:
    """The topology has room for one more pod, the rack of its slice has none."""
    says = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}
    gang, other = job(count=2, require=None, annotations=says), job("other", count=1, require=None)
    answer = planned(gpu_nodes(1, 2, 2), gang, [pod(gang, 0, host="b0-r0-h0")], pod(other, 0, host="b0-r0-h1"))
    assert isinstance(answer, Waits)
    assert answer.message == "needs room for 1 more pod in the topology; each slice of 2 pods shares one rack"


@pytest.mark.parametrize(
    ("running", "least", "says"),
    [
        ({"lead": 0}, None, "pod set worker: needs room for 4 more pods in one host"),
        ({"lead": 0, "worker": 1}, None, "pod set worker: needs room for 3 more pods in the host of the running pods"),
        ({"lead": 0, "worker": 1}, "4", "needs room for 2 more pods in the hosts of the running pods"),
    ],
)
def test_the_pod_set_without_room_is_told(running: dict[str, int], least: str | None, says: str) -> None:
    """Four workers have to share a host; both hosts are full."""
    quarter = shape(gpu=2)
    workers = pods_of("worker", 4, shape=quarter, says={names.REQUIRE: "host"})
    minimum = {} if least is None else {names.MIN_AVAILABLE: least}
    gang = several(pods_of("lead", 1, shape=quarter), workers, says=minimum)
    pods = [member(gang, name, 0, host=f"b0-r0-h{host}") for name, host in running.items()]
    full = job("other", count=2, require=None)
    answer = planned(gpu_nodes(1, 1, 2), gang, pods, *(pod(full, rank, host=f"b0-r0-h{rank}") for rank in range(2)))
    assert isinstance(answer, Waits)
    assert answer.message == says


def test_a_pod_that_is_pinned_and_not_bound_stays_where_it_will_be() -> None:
    """A released pod cannot be moved: its host is its slot."""
    gang = job(count=2)
    found = seats(planned(gpu_nodes(1, 2, 2), gang, [pod(gang, 1, pin="b0-r1-h1")]))
    assert found[1] == "b0-r1-h1"
    assert found[0] == "b0-r1-h0"


def test_unranked_pods_fill_what_is_left() -> None:
    """Where there are no ranks only the counts per host matter."""
    gang = job(count=2, ranked=False)
    answer = planned(gpu_nodes(1, 1, 2), gang, [pod(gang, None, host="b0-r0-h1")])
    assert isinstance(answer, Placed)
    assert {slot.host: slot.count for slot in answer.pod_sets[0].slots} == {"b0-r0-h0": 1, "b0-r0-h1": 1}


def test_a_pod_outside_the_topology_is_named() -> None:
    """A member on a node without labels cannot share a rack with anybody."""
    gang = job(count=2)
    answer = planned(gpu_nodes(1, 1, 2), gang, [pod(gang, 0, host="stray")])
    assert isinstance(answer, Waits)
    assert "stray" in answer.message


@pytest.mark.parametrize("key", [names.PREFER, names.REQUIRE])
def test_only_the_pods_of_whom_a_level_is_required_have_to_be_in_the_topology(key: str) -> None:
    """Workers share a rack wherever the leader of the gang is, unless the whole gang shares it."""
    workers = pods_of("worker", 2, says={names.REQUIRE: "rack"})
    gang = several(pods_of("lead", 2), workers, says={key: "block"})
    running = [member(gang, "lead", 1, host="stray"), member(gang, "worker", 0, host="b0-r1-h0")]
    answer = planned([*gpu_nodes(1, 2, 3), node("stray")], gang, running)
    if key == names.REQUIRE:
        assert isinstance(answer, Waits)
        assert answer.reason == "NodesExcluded"
        return
    assert isinstance(answer, Placed)
    found = {plan.name: {slot.ranks: slot.host for slot in plan.slots} for plan in answer.pod_sets}
    assert found["lead"].pop(((1, 1),)) == "stray"
    assert found == {
        "lead": {((0, 0),): "b0-r1-h2"},
        "worker": {((0, 0),): "b0-r1-h0", ((1, 1),): "b0-r1-h1"},
    }
    assert answer.message.endswith("; 1 pod stays outside the topology")


def test_a_minimum_counts_the_pods_outside_the_topology() -> None:
    """Two are enough, and one runs: there is room for one more."""
    gang = job(count=4, require=None, annotations={names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: "2"})
    answer = planned([*gpu_nodes(1, 1, 1), node("stray")], gang, [pod(gang, 2, host="stray")])
    assert seats(answer) == {0: "b0-r0-h0", 2: "stray"}


def test_a_pod_that_the_scheduler_refused_uses_no_slot_twice() -> None:
    """It is counted nowhere: with its slot and what is free on its host, the host would be promised twice."""
    gang = job(count=2)
    refused = pod(gang, 0, pin="b0-r0-h0", unschedulable=REFUSAL)
    assert not isinstance(planned(gpu_nodes(1, 1, 1), gang, [refused]), Placed)
    found = seats(planned(gpu_nodes(1, 1, 2), gang, [refused]))
    assert sorted(found.values()) == ["b0-r0-h0", "b0-r0-h1"]


def test_a_pod_on_its_way_keeps_its_host() -> None:
    """The scheduler may bind it at any moment."""
    gang = job(count=2)
    found = seats(planned(gpu_nodes(1, 1, 3), gang, [pod(gang, 0, pin="b0-r0-h2")]))
    assert found[0] == "b0-r0-h2"
