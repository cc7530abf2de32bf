"""Gangs that want the same room: who goes first, who is not made to wait for ever, and who gives up a level."""

from __future__ import annotations

import json
import time

from local.service import Service
from tests.cluster.conftest import Kubectl
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import always, eventually
from tests.support.gang_steps import complete, delete_job, live_hosts, occupy, status_of, vacate
from tests.support.gangs import Json, Namespace, job_body, require

IMPATIENT = TEST_POLICY + "queue: {patience: 3s}\n"
RELAX = "topogate.dev/relax-after"
TIMEOUT = "topogate.dev/schedule-timeout"


def notes(gangs: Namespace, job: str, reason: str) -> list[str]:
    """What the Events of one reason say about a Job."""
    events = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events")
    return [one["note"] for one in events if (one["regarding"]["name"], one["reason"]) == (job, reason)]


def main(placement: Json | None) -> Json:
    """The request for the Job's pods as the Placement has it."""
    assert placement is not None
    (pod_set,) = placement["spec"]["podSets"]
    return dict(pod_set)


def test_small_gangs_do_not_starve_a_large_one(gangs: Namespace, policy: PolicyInForce) -> None:
    """Four hosts, each used by a small gang, and more small ones wait: the large one still gets all four."""
    policy.set(IMPATIENT)
    hosts = gangs.fleet.grid("1x1x4")
    for number in range(4):
        gangs.submit(f"small-{number}", pods=1, annotations=require("rack"))
    for number in range(4):
        gangs.all_bound(f"small-{number}", 1)
    gangs.submit("large", pods=4, annotations=require("rack"))
    message = gangs.waits("large", "RoomKept")["status"]["message"]
    assert "rack-00 (4 hosts) kept free until 4 pods fit" in message
    eventually(lambda: notes(gangs, "large", "RoomKept") == [message], message="the event says so too")
    for number in range(4, 8):
        gangs.submit(f"small-{number}", pods=1, annotations=require("rack"))
    for number in range(4):
        complete(gangs, f"small-{number}")
        eventually(lambda number=number: live_hosts(gangs, f"small-{number}") == [], message="it has ended")
    assert set(gangs.all_bound("large", 4).values()) == set(hosts)
    assert all(gangs.pods(f"small-{number}") == [] for number in range(4, 8))
    complete(gangs, "large")
    for number in range(4, 8):
        gangs.all_bound(f"small-{number}", 1)


def test_a_gang_that_is_held_back_says_for_whom(gangs: Namespace, policy: PolicyInForce, kubectl: Kubectl) -> None:
    """The free host is kept, and the forecast knows it; where nothing is kept, the small gang goes at once."""
    policy.set(IMPATIENT)
    hosts = gangs.fleet.grid("1x2x2")
    first = occupy(gangs, hosts[0])
    occupy(gangs, hosts[2])
    occupy(gangs, hosts[3])
    gangs.submit("large", pods=2, annotations=require("rack"))
    assert set(gangs.waits("large", "RoomKept")["status"]["keptHosts"]) == set(hosts[:2])
    body = json.dumps(job_body("small", pods=1, annotations=require("rack"), selector=gangs.fleet.selector))
    message = "the hosts that it needs are kept for large, which goes first"
    told = f"topogate: would wait: {message}"
    # A replica that does not lead knows it from the Placement, a moment later.
    eventually(
        lambda: told in kubectl("create", "--dry-run=server", "-f", "-", input=body).stderr, message="the forecast"
    )
    gangs.submit("small", pods=1, annotations=require("rack"))
    assert gangs.waits("small", "QueuedBehind")["status"]["message"] == message
    vacate(gangs, first)
    gangs.all_bound("large", 2)


def test_a_new_leader_keeps_the_room_of_a_gang_that_has_waited(
    gangs: Namespace, policy: PolicyInForce, service: Service
) -> None:
    """Killed while room is kept: the next leader knows since when the gang waits, and nobody slips in."""
    policy.set(IMPATIENT)
    hosts = gangs.fleet.grid("1x1x2")
    other = occupy(gangs, hosts[0])
    gangs.submit("large", pods=2, annotations=require("rack"))
    since = gangs.waits("large", "RoomKept")["status"]["waitingSince"]
    leader = eventually(service.leader, message="a replica leads")
    leader.kill()
    service.start(2)
    eventually(service.leader, message="another replica leads")
    gangs.submit("small", pods=1, annotations=require("rack"))
    assert gangs.waits("small", "QueuedBehind")["status"]["reason"] == "QueuedBehind"
    assert status_of(gangs, "large")["waitingSince"] == since
    vacate(gangs, other)
    gangs.all_bound("large", 2)


def test_a_required_level_is_given_up_after_waiting_long_enough(gangs: Namespace) -> None:
    """Six hosts are free, three in each rack: not before its time the gang goes across both, and says so."""
    hosts = gangs.fleet.grid("1x2x4")
    occupy(gangs, hosts[0])
    occupy(gangs, hosts[4])
    began = time.monotonic()
    gangs.submit("train", pods=4, annotations=require("rack") | {RELAX: "4s"})
    bound = gangs.all_bound("train", 4)
    assert time.monotonic() - began >= 3.0  # waitingSince has whole seconds
    assert len(gangs.racks(bound)) == 2
    asked = main(gangs.placement("train"))
    assert (asked.get("require"), asked["prefer"], asked["relaxed"]) == (None, "rack", "rack")
    told = eventually(lambda: notes(gangs, "train", "Fragmented"), message="the event says why it waited")
    assert "needs 4 hosts in one rack" in told[0]
    said = ["has waited for 4s: rack is preferred from now on, not required"]
    eventually(lambda: notes(gangs, "train", "LevelRelaxed") == said, message="the event says so too")


def test_the_policy_gives_up_levels_for_those_who_say_nothing(gangs: Namespace, policy: PolicyInForce) -> None:
    """`timeouts.relaxAfter`; an annotation that says longer goes before it."""
    policy.set(TEST_POLICY + "timeouts: {relaxAfter: 2s}\n")
    hosts = gangs.fleet.grid("1x2x2")
    occupy(gangs, hosts[0])
    occupy(gangs, hosts[2])
    gangs.submit("stubborn", pods=2, annotations=require("rack") | {RELAX: "1h"})
    gangs.waits("stubborn", "Fragmented")
    gangs.submit("train", pods=2, annotations=require("rack"))
    assert len(gangs.racks(gangs.all_bound("train", 2))) == 2
    assert main(gangs.placement("stubborn"))["require"] == "rack"


def test_a_gang_that_waits_too_long_is_requeued_or_given_up_as_the_policy_says(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """Two waiting gangs: the older goes behind the younger; then it is given up, and goes on when its user says so."""
    policy.set(TEST_POLICY + "queue: {order: strict}\n")
    hosts = gangs.fleet.grid("1x1x2")
    others = [occupy(gangs, host) for host in hosts]
    gangs.submit("old", pods=2, annotations=require("rack") | {TIMEOUT: "10s"})
    time.sleep(1.1)  # creation times have whole seconds
    gangs.submit("young", pods=2, annotations=require("rack"))
    gangs.waits("young", "QueuedBehind")
    gangs.waits("old", "QueuedBehind")
    requeued = "has waited for 10s without a placement: it goes to the end of its priority in the queue"
    told = eventually(lambda: notes(gangs, "old", "ScheduleTimeout"), message="the event says so")
    assert told[0] == f"{requeued}, and again after 20s"
    eventually(lambda: status_of(gangs, "old").get("requeues") == 1, message=lambda: gangs.describe("old"))
    policy.set(TEST_POLICY + "queue: {onTimeout: giveUp}\n")
    gangs.waits("old", "ScheduleTimeout")
    for other in others:
        vacate(gangs, other)
    gangs.all_bound("young", 2)
    delete_job(gangs, "young")
    eventually(lambda: not gangs.pods("young"), message="the hosts are free")
    always(lambda: not gangs.pods("old"), 2.0)
    assert gangs.job("old")["spec"]["suspend"] is True
    gangs.client.patch(f"{gangs.jobs_path}/old", {"metadata": {"annotations": {TIMEOUT: None}}})
    gangs.all_bound("old", 2)


def test_two_gangs_never_hold_each_others_halves(gangs: Namespace) -> None:
    """Each would fit alone and both race for the same four hosts: never is a part of one bound beside the other."""
    gangs.fleet.grid("1x1x4")
    names = [f"gang-{number}" for number in range(4)]
    for name in names:
        gangs.submit(name, pods=3, annotations=require("rack"))
    waiting = set(names)

    def running() -> list[str]:
        return [name for name in sorted(waiting) if len(gangs.bound(name)) == 3]

    while waiting:
        (first,) = eventually(running, message="one of them runs")
        waiting.discard(first)
        assert all(gangs.pods(name) == [] for name in waiting)
        complete(gangs, first)
