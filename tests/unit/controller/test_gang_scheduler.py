"""What one gang's answer means for the others that wait: who is held up by whom, and who is not."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.placement import kept_hosts
from engine.api.pod import Pod
from engine.controller import executor, gang_scheduler
from engine.scheduler import schedule
from engine.scheduler.starvation import RENEW_EVERY
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader
from tests.support.pod_sets import pods_of, several

STRICT = POLICY + "queue: {order: strict}\n"


def on(*hosts: str) -> list[Pod]:
    """Pods of somebody else, each on a whole host."""
    return [pod(job("somebody"), rank, host=host, name=f"on-{host}") for rank, host in enumerate(hosts)]


def limited(leader: Leader, namespace: str, pods: int) -> None:
    leader.stores.quotas.replace([Quota(namespace, "q", hard={"pods": pods}, used={}, scopes=())])


def with_kept_hosts() -> Leader:
    """Two hosts, one in use, which are kept for the gang `patient`."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=POLICY + "queue: {patience: 1m}\n")
    leader.has(*on("b0-r0-h0"), job("patient", count=2, held=True, created=1.0))
    leader.settle()
    leader.later(61)
    assert leader.status("patient") == ("Waiting", "RoomKept")
    return leader


# -- quotas ----------------------------------------------------------------------------------------------------------


def test_a_gang_over_its_quota_holds_up_nobody_in_strict_order() -> None:
    """Only its own people can mend that, and no room that comes free."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=STRICT)
    limited(leader, "a", 1)
    leader.has(job("first", count=2, held=True, created=1.0, namespace="a"))
    leader.has(job("second", count=2, held=True, created=2.0))
    leader.settle()
    assert leader.status("first") == ("Waiting", "QuotaExceeded")
    assert leader.hands.of("place") == ["second"]


@pytest.mark.parametrize("policy", [POLICY, STRICT])
def test_a_gang_that_never_fits_says_so_though_its_quota_has_no_room_either(policy: str) -> None:
    """More quota would not help it, more hosts may. What is known of the current hosts is not asked again."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=policy)
    limited(leader, "a", 1)
    leader.has(job("large", count=5, held=True, created=1.0, namespace="a"))
    leader.has(job("small", count=4, held=True, created=2.0, namespace="a"))
    leader.settle()
    assert leader.status("large") == ("Waiting", "GangTooLarge")
    assert leader.status("small") == ("Waiting", "QuotaExceeded")
    with patch.object(gang_scheduler, "never_fits") as asked:
        limited(leader, "a", 2)
        leader.settle()
    asked.assert_not_called()
    leader.stores.nodes.apply("DELETED", gpu_nodes(1, 1, 4)[0])
    leader.settle()
    assert leader.status("small") == ("Waiting", "GangTooLarge")
    leader.has(*gpu_nodes(1, 1, 5))
    leader.settle()
    assert leader.status("large") == ("Waiting", "QuotaExceeded")
    leader.has(changed(job("large", count=6, held=True, created=1.0, namespace="a")))
    leader.settle()
    assert leader.status("large") == ("Waiting", "GangTooLarge")


def test_of_gangs_over_their_quota_that_are_alike_the_hosts_are_looked_at_for_one() -> None:
    """In a pass. Thousands may wait for a quota, and all of them are planned again whenever a host changes."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    limited(leader, "a", 1)
    with patch.object(gang_scheduler, "never_fits", wraps=schedule.never_fits) as asked:
        leader.has(*(job(f"g{number}", count=4, held=True, namespace="a") for number in range(20)))
        leader.settle()
        assert asked.call_count <= 3
        leader.stores.nodes.apply("DELETED", gpu_nodes(1, 1, 4)[0])
        leader.settle()
    assert {leader.status(f"g{number}")[1] for number in range(20)} == {"GangTooLarge"}


@pytest.mark.parametrize("why", ["QuotaExceeded", "ReservedHostsLimit"])
def test_a_gang_that_waits_for_hosts_holds_up_nobody_in_strict_order_once_its_namespace_is_why(why: str) -> None:
    """It is the first one, and no host has changed since."""
    rules = "namespaces: {rules: [{namespaces: [a], maxReservedHosts: 2}]}\n" if why == "ReservedHostsLimit" else ""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=STRICT + rules)
    leader.has(*(replace(one, unschedulable=True) for one in gpu_nodes(1, 1, 3)))
    leader.has(job("first", count=2, held=True, created=1.0, namespace="a"))
    leader.has(job("second", count=1, held=True, created=2.0))
    leader.settle()
    assert leader.status("first") == ("Waiting", "NodesUnhealthy")
    assert leader.status("second") == ("Waiting", "QueuedBehind")
    if rules:
        other = job("other", count=1, namespace="a")
        leader.has(other, placement(other, {"b0-r0-h0": 1}), pod(other, 0, host="b0-r0-h0"))
        leader.has(job("third", count=1, held=True, created=3.0))
    else:
        limited(leader, "a", 1)
    leader.settle()
    assert leader.status("first") == ("Waiting", why)
    assert leader.hands.of("place") == ["second"]


def test_for_a_gang_over_its_quota_no_room_is_kept() -> None:
    """However long it has waited: it could not use it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=POLICY + "queue: {patience: 1m}\n")
    limited(leader, "a", 1)
    leader.has(job("first", count=2, held=True, created=1.0, namespace="a"))
    leader.settle()
    leader.later(600)
    leader.has(job("second", count=2, held=True, created=2.0))
    leader.settle()
    assert leader.hands.of("place") == ["second"]


def test_the_quota_of_one_gang_is_no_answer_for_another() -> None:
    """They ask the same of the hosts, in namespaces of their own; one has no room in its quota, the other one has."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    others = on("b0-r0-h0")
    leader.has(*others)
    limited(leader, "a", 1)
    leader.has(job("first", count=2, held=True, created=1.0, namespace="a"))
    leader.has(job("second", count=2, held=True, created=2.0))
    leader.settle()
    assert leader.status("second") == ("Waiting", "InsufficientFreeGPUs")
    leader.stores.pods.apply("DELETED", others[0])
    leader.settle()
    assert leader.status("first") == ("Waiting", "QuotaExceeded")
    assert leader.hands.of("place") == ["second"]


def test_a_gang_over_its_quota_is_not_planned_around_kept_room() -> None:
    """Where it would go without that room is no question: it goes nowhere."""
    leader = with_kept_hosts()
    leader.hands.planned.clear()
    limited(leader, "a", 0)
    leader.has(job("other", count=1, held=True, created=2.0, namespace="a"))
    leader.turn()
    assert leader.hands.planned.count("other") == 1
    leader.settle()
    assert leader.status("other") == ("Waiting", "QuotaExceeded")


# -- order -----------------------------------------------------------------------------------------------------------


def test_in_strict_order_nobody_overtakes_a_gang_whose_write_is_under_way() -> None:
    """That it waits is being written; whether it still does is known when that has come back."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=STRICT)
    leader.has(*on("b0-r0-h0"), job("first", count=4, held=True, created=1.0))
    leader.turn()
    assert leader.pool.waiting
    leader.has(job("second", count=2, held=True, created=2.0))
    leader.hands.planned.clear()
    leader.turn()
    assert leader.hands.planned == []
    leader.settle()
    assert leader.hands.of("place") == []
    assert leader.status("second") == ("Waiting", "QueuedBehind")


# -- kept hosts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["best-effort", "strict"])
def test_a_gang_keeps_its_turn_and_its_hosts_while_its_level_is_relaxed(order: str) -> None:
    """The relaxed request is planned before the gangs behind it: they would take the hosts kept for it."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=POLICY + f"queue: {{patience: 10s, order: {order}}}\n")
    in_rack = (("cloud.provider.com/topology-rack", "b0-r0"),)
    leader.has(*on("b0-r0-h3", "b0-r1-h0", "b0-r1-h1", "b0-r1-h2"))
    large = job("large", count=4, held=True, created=1.0)
    leader.has(changed(large, annotations={**large.annotations, names.RELAX_AFTER: "20s"}))
    leader.settle()
    leader.later(12)
    small = replace(job().template, shape=replace(shape(gpu=8), node_selector=in_rack))
    leader.has(changed(job("second", count=1, held=True, created=2.0), template=small))
    leader.settle()
    assert leader.hands.of("place") == []
    leader.has(changed(job("third", count=1, held=True, created=3.0), template=small))
    leader.later(8)
    assert leader.hands.of("relax") == ["large"]
    leader.settle()
    assert leader.hands.of("place") == ["large"]


def test_a_gang_whose_kept_hosts_are_let_go_says_so_at_once() -> None:
    """Also if only other hosts can help it, and no plan is due."""
    leader = with_kept_hosts()
    lost = next(one for one in leader.stores.nodes.values() if one.name == "b0-r0-h1")
    cordoned = replace(lost, unschedulable=True, resource_version=leader.hands.version())
    leader.stores.nodes.apply("MODIFIED", cordoned)
    leader.settle()
    leader.later(RENEW_EVERY)
    assert leader.status("patient")[1] != "RoomKept"
    found = leader.placed("patient")
    assert found is not None
    assert kept_hosts(found.status) == ()


def test_hosts_are_kept_where_the_templates_of_a_gang_together_lack_fewest() -> None:
    """One whole rack lacks one of four pods, the first lacks two, though each template by itself would fit there."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=POLICY + "queue: {patience: 1m}\n")
    leader.has(*on("b0-r0-h0", "b0-r0-h1", "b0-r1-h0"))
    pod_sets = [pods_of("driver", 2, shape=shape(gpu=8)), pods_of("workers", 2, shape=shape(gpu=8))]
    leader.has(several(*pod_sets, says={names.REQUIRE: "rack"}, held=True))
    leader.settle()
    leader.later(61)
    (kept,) = leader.controller._term.nominator.kept()
    assert kept.where == "b0-r1 (4 hosts)"


def test_a_new_leader_keeps_the_hosts_for_the_gang_that_had_them() -> None:
    """Also if an older gang could have them by now: it reads them from the Placement."""
    hosts = gpu_nodes(1, 1, 3)
    cordoned = replace(hosts[2], unschedulable=True)
    leader = Leader(nodes=[*hosts[:2], cordoned], policy=POLICY + "queue: {patience: 1m}\n")
    leader.has(*on("b0-r0-h0", "b0-r0-h2"))
    leader.has(job("older", count=3, held=True, created=1.0), job("second", count=2, held=True, created=2.0))
    leader.settle()
    leader.later(61)
    assert leader.status("second") == ("Waiting", "RoomKept")
    leader.has(replace(cordoned, unschedulable=False, resource_version=leader.hands.version()))
    leader.later(RENEW_EVERY)
    message = str(leader.controller._term.nominator.kept()[0].where)
    for leading in (False, True):
        leader.leading = leading
        leader.settle()
    leader.later(1)
    (kept,) = leader.controller._term.nominator.kept()
    assert (kept.name, kept.hosts, kept.where) == ("default/second", {"b0-r0-h0", "b0-r0-h1"}, message)
    assert leader.status("second") == ("Waiting", "RoomKept")
    assert leader.status("older") != ("Waiting", "RoomKept")


# -- gangs that join pods which stay ---------------------------------------------------------------------------------


def test_a_gang_that_joins_pods_which_stay_asks_for_itself_alone() -> None:
    """It has no room beside its own pod; another gang of the same shape has some elsewhere."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    others = on("b0-r0-h1", "b0-r1-h0")
    leader.has(*others)
    joining = job("joining", count=2, created=1.0)
    leader.has(joining, pod(joining, 0, host="b0-r0-h0"), pod(joining, 1, gated=True))
    leader.has(job("other", count=2, held=True, created=2.0))
    leader.settle()
    assert leader.hands.of("place") == []
    leader.stores.pods.apply("DELETED", others[1])
    leader.settle()
    assert leader.hands.of("place") == ["other"]
    assert {host.rpartition("-")[0] for host in ranks_of(leader.placed("other")).values()} == {"b0-r1"}
    assert leader.placed("joining") is not None
    assert not ranks_of(leader.placed("joining"))


def test_the_answer_of_another_gang_is_none_for_one_that_joins_pods_which_stay() -> None:
    """No rack has two free hosts; it needs only one more beside its own pod."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    leader.has(*on("b0-r0-h1", "b0-r1-h0", "b0-r1-h1"))
    joining = job("joining", count=2, created=2.0)
    leader.has(joining, pod(joining, 0, host="b0-r0-h0"), pod(joining, 1, gated=True))
    leader.has(job("other", count=2, held=True, created=1.0))
    leader.settle()
    assert leader.hands.of("place") == []
    leader.stores.pods.apply("DELETED", next(one for one in leader.stores.pods.values() if one.name == "on-b0-r0-h1"))
    leader.settle()
    assert leader.hands.of("place") == ["joining"]


def test_gangs_with_the_same_minimum_are_told_their_own_size() -> None:
    """Both need two hosts to start, and that is all that they share."""
    leader = Leader(nodes=gpu_nodes(1, 1, 6))
    leader.has(*on(*(f"b0-r0-h{number}" for number in range(5))))
    for created, size in ((1.0, 4), (2.0, 6)):
        asks = {names.MIN_AVAILABLE: "2", names.REQUIRE: "rack", names.HELD_BY: names.HELD_BY_SUSPEND}
        leader.has(job(f"of-{size}", count=size, held=True, created=created, annotations=asks))
    leader.settle()
    for size in (4, 6):
        placed = leader.placed(f"of-{size}")
        assert placed is not None
        assert placed.status["message"].startswith(f"needs 2 of {size} hosts in one rack")


# -- who plans ---------------------------------------------------------------------------------------------------------


def test_a_gang_is_planned_on_a_node_once_that_has_settled() -> None:
    """`nodes.settle` after it became ready, by the time of day."""
    leader = Leader(policy=POLICY.replace("settle: 0s", "settle: 15s"))
    joined = 1_800_000_000.0 + leader.now
    nodes = [replace(one, settled_at=joined) for one in gpu_nodes(1, 1, 2)]
    leader.has(*nodes, job("train", count=2, held=True))
    leader.later(14.0)
    assert leader.hands.of("place") == []
    leader.now += 2.0
    leader.has(replace(nodes[0], labels={**nodes[0].labels, "any": "event"}, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("place") == ["train"]


def test_what_stays_of_a_gang_is_read_once_for_a_plan() -> None:
    """The scheduler gets it from the one who asks."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(job("train", count=2, held=True))
    with patch.object(schedule, schedule.kept_assignment.__name__, side_effect=AssertionError("read again")):
        leader.settle()
    assert leader.hands.of("place") == ["train"]


def test_who_writes_asks_for_no_plan() -> None:
    """The gang scheduler and the extension scheduler ask the scheduler's own functions."""
    planning = {schedule.schedule_gang, schedule.schedule_extension, schedule.answer_in_view}
    assert planning.isdisjoint(one for one in vars(executor).values() if callable(one) and hash(one))
