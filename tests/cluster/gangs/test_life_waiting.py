"""Gangs that wait: nothing of them starts, and what lets them start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from local.client import Client
from local.nodes import RACK
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import (
    complete,
    delete_job,
    held_pods,
    live_hosts,
    occupy,
    resume,
    status_of,
    vacate,
)
from tests.support.gangs import Namespace, prefer, require

pytestmark = pytest.mark.core

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
STRICT = TEST_POLICY + "queue: {order: strict}\n"


@pytest.fixture
def priority_class(client: Client, namespace: str) -> Iterator[Callable[[str, int], str]]:
    """Makes PriorityClasses of this test's own that never preempt."""
    made: list[str] = []

    def make(name: str, value: int) -> str:
        made.append(f"{namespace}-{name}")
        client.create(PRIORITY_CLASSES, {"metadata": {"name": made[-1]}, "value": value, "preemptionPolicy": "Never"})
        return made[-1]

    yield make
    for name in made:
        client.delete(f"{PRIORITY_CLASSES}/{name}")


def test_a_gang_of_which_only_a_part_fits_starts_nothing_until_all_of_it_fits(gangs: Namespace) -> None:
    """Three free hosts in each rack are six, but no rack has four: no pod exists; with the fourth all four run."""
    hosts = gangs.fleet.grid("1x2x4")
    occupy(gangs, hosts[0])
    fourth = occupy(gangs, hosts[4])
    gangs.submit("train", pods=4, annotations=require("rack"))
    message = gangs.waits("train", "Fragmented")["status"]["message"]
    assert "needs 4 hosts in one rack" in message
    assert "with 3" in message
    assert gangs.pods("train") == []
    vacate(gangs, fourth)
    assert set(gangs.all_bound("train", 4).values()) == set(hosts[4:])


def test_a_preferring_gang_does_not_start_in_part_either(gangs: Namespace) -> None:
    """Preferred or not: a gang of three waits in front of two hosts, and starts with the third."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=3, annotations=prefer("rack"))
    gangs.waits("train")
    assert gangs.pods("train") == []
    gangs.fleet.host("host-002", block="block-0", rack="rack-01")
    gangs.all_bound("train", 3)


def test_of_two_gangs_that_race_for_the_last_rack_one_runs_and_the_other_runs_later(gangs: Namespace) -> None:
    """Both are submitted at once; the loser has no pod while the winner runs, and gets the same rack afterwards."""
    hosts = gangs.fleet.grid("1x1x4")
    names = {"left", "right"}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: gangs.submit(name, pods=4, annotations=require("rack")), names))
    winner = eventually(lambda: next((name for name in names if len(gangs.bound(name)) == 4), None))
    assert winner is not None
    (loser,) = names - {winner}
    gangs.waits(loser)
    assert gangs.pods(loser) == []
    complete(gangs, winner)
    assert set(gangs.all_bound(loser, 4).values()) == set(hosts)


def test_a_quota_too_small_for_the_gang_lets_nothing_start_until_it_is_raised(gangs: Namespace) -> None:
    """Two of four pods would fit the quota: none exists, the reason has the numbers; raised, all four run."""
    quotas = f"/api/v1/namespaces/{gangs.name}/resourcequotas"
    gangs.client.create(
        quotas, {"metadata": {"name": "team"}, "spec": {"hard": {"requests.nvidia.com/gpu": "16", "pods": "10"}}}
    )
    eventually(lambda: gangs.client.get(f"{quotas}/team").get("status", {}).get("hard"), message="the quota counts")
    gangs.fleet.grid("1x1x4")  # the leader knows the quota by now
    gangs.submit("train", pods=4, annotations=require("rack"))
    message = gangs.waits("train", "QuotaExceeded")["status"]["message"]
    assert "quota team allows 16 of requests.nvidia.com/gpu in all, 4 pods need 32: it never has room" in message
    assert gangs.pods("train") == []
    gangs.client.patch(f"{quotas}/team", {"spec": {"hard": {"requests.nvidia.com/gpu": "32"}}})
    gangs.all_bound("train", 4)


def test_two_gangs_do_not_share_a_quota_that_takes_only_one(gangs: Namespace) -> None:
    """Placed one after the other within milliseconds, the second one counts what the first one will use."""
    quotas = f"/api/v1/namespaces/{gangs.name}/resourcequotas"
    gangs.client.create(quotas, {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "3"}}})
    eventually(lambda: gangs.client.get(f"{quotas}/team").get("status", {}).get("hard"), message="the quota counts")
    gangs.fleet.grid("1x2x2")  # the leader knows the quota by now
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: gangs.submit(name, pods=2, annotations=require("rack")), ("left", "right")))
    winner = eventually(lambda: next((name for name in ("left", "right") if len(gangs.bound(name)) == 2), None))
    loser = "left" if winner == "right" else "right"
    gangs.waits(loser, "QuotaExceeded")
    assert gangs.pods(loser) == []
    delete_job(gangs, str(winner))
    gangs.all_bound(loser, 2)


def test_the_pods_of_a_waiting_job_that_somebody_resumes_stay_gated_until_there_is_room(gangs: Namespace) -> None:
    """Resumed by hand the pods exist and our gate holds them; when the rack is free they go to it."""
    hosts = gangs.fleet.grid("1x1x3")
    other = occupy(gangs, hosts[1])
    gangs.submit("train", pods=3, annotations=require("rack"))
    gangs.waits("train")
    resume(gangs, "train")
    held_pods(gangs, "train", 3)
    vacate(gangs, other)
    bound = gangs.all_bound("train", 3)
    assert [bound[rank] for rank in range(3)] == hosts
    assert gangs.job("train")["status"].get("failed") is None


def test_a_pod_whose_gate_somebody_took_off_counts_where_it_lands(gangs: Namespace) -> None:
    """The scheduler binds it beside the plan; the rest stays held, and no slot is kept for its rank besides."""
    hosts = gangs.fleet.grid("1x1x4")
    others = [occupy(gangs, hosts[0]), occupy(gangs, hosts[3])]
    gangs.submit("train", pods=3, annotations=require("rack"))
    gangs.waits("train")
    resume(gangs, "train")
    (loose, *_) = held_pods(gangs, "train", 3)
    path = f"/api/v1/namespaces/{gangs.name}/pods/{loose['metadata']['name']}"
    gangs.client.patch(path, {"spec": {"schedulingGates": []}})
    landed = eventually(lambda: gangs.bound("train"), message="the scheduler binds it")
    assert len(landed) == 1
    for other in others:
        vacate(gangs, other)
    bound = gangs.all_bound("train", 3)
    assert bound.items() >= landed.items()
    gangs.submit("next", pods=1, annotations=require("rack"))
    assert set(gangs.all_bound("next", 1).values()) == set(hosts) - set(bound.values())


def test_a_waiting_gang_starts_when_a_node_joins(gangs: Namespace) -> None:
    """Three hosts for four pods: the fourth one joins the rack and the gang starts by itself."""
    gangs.fleet.grid("1x1x3")
    gangs.submit("train", pods=4, annotations=require("rack"))
    gangs.waits("train")
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    assert len(gangs.racks(gangs.all_bound("train", 4))) == 1


def test_a_waiting_gang_starts_when_a_node_moves_into_its_rack(gangs: Namespace) -> None:
    """A host is relabelled from the other rack: the rack of three becomes one of four."""
    hosts = gangs.fleet.grid("1x2x2")
    gangs.submit("train", pods=3, annotations=require("rack"))
    gangs.waits("train")
    gangs.fleet.patch(hosts[2], {"metadata": {"labels": {RACK: f"{gangs.fleet.prefix}rack-00"}}})
    bound = gangs.all_bound("train", 3)
    assert set(bound.values()) == set(hosts[:3])


def test_the_gang_of_the_higher_priority_goes_first_when_room_appears(
    gangs: Namespace, priority_class: Callable[[str, int], str]
) -> None:
    """The low gang is older (and first by name, should both be of one second); the high one gets the rack."""
    low = {"priorityClassName": priority_class("low", 10)}
    high = {"priorityClassName": priority_class("high", 1000)}
    hosts = gangs.fleet.grid("1x1x2")  # the leader knows the classes by now
    other = occupy(gangs, hosts[0])
    gangs.submit("early", pods=2, annotations=require("rack"), pod_spec=low)
    gangs.waits("early")
    gangs.submit("urgent", pods=2, annotations=require("rack"), pod_spec=high)
    placement = gangs.waits("urgent")
    assert placement["spec"]["priority"] == 1000
    vacate(gangs, other)
    gangs.all_bound("urgent", 2)
    assert gangs.pods("early") == []
    complete(gangs, "urgent")
    gangs.all_bound("early", 2)


def test_a_small_gang_may_pass_a_large_one_that_cannot_start(gangs: Namespace) -> None:
    """The default order: what fits goes."""
    hosts = gangs.fleet.grid("1x1x4")
    occupy(gangs, hosts[0])
    gangs.submit("large", pods=4, annotations=require("rack"))
    gangs.waits("large")
    gangs.submit("small", pods=1, annotations=require("rack"))
    gangs.all_bound("small", 1)


def test_with_strict_order_nothing_passes_the_gang_at_the_head(gangs: Namespace, policy: PolicyInForce) -> None:
    """The small gang would fit and says whom it waits for; when the large one has gone first, it goes too."""
    policy.set(STRICT)
    hosts = gangs.fleet.grid("1x1x4")
    other = occupy(gangs, hosts[0])
    gangs.submit("large", pods=3, annotations=require("rack"))
    gangs.all_bound("large", 3)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    gangs.submit("small", pods=1, gpus=0, annotations=require("rack"))
    gangs.waits("small", "QueuedBehind")
    assert live_hosts(gangs, "small") == []
    vacate(gangs, other)
    delete_job(gangs, "large")
    gangs.all_bound("next", 2)
    gangs.all_bound("small", 1)


def test_the_reason_of_a_waiting_gang_follows_what_changes(gangs: Namespace) -> None:
    """Others use the hosts; then one is cordoned, and that is what the gang lacks even in an empty cluster."""
    hosts = gangs.fleet.grid("1x1x2")
    occupy(gangs, hosts[0])
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train", "InsufficientFreeGPUs")
    gangs.fleet.cordon(hosts[1])
    eventually(lambda: status_of(gangs, "train").get("reason") == "NodesUnhealthy", message="the reason follows")
