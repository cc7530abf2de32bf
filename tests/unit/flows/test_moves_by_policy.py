"""Running gangs restart elsewhere so that a waiting one fits, where the policy says so, whatever happens on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.duration import timestamp
from engine.api.objects import DisruptionBudget, PriorityClass, Quota
from engine.controller.mover import KEEP_PLACES
from engine.lifecycle.preemption import MOVED_REST
from tests.support.cluster_records import changed, gpu_nodes
from tests.support.leader import POLICY, Leader, not_leader, unavailable
from tests.support.preempting import EPOCH, MOVES, PreemptingCluster


def in_pieces(policy: str = MOVES, *, priority: int = 0, racks: int = 2) -> PreemptingCluster:
    """Racks of two hosts, each with one running gang of one pod: `one` is older than `two`."""
    cluster = PreemptingCluster(policy=policy, racks=racks)
    kept: list[str] = []
    for rack in range(racks):
        cluster.submit(f"fill-{rack}", 1, require=None)
        cluster.submit(name := ("one", "two", "three")[rack], 1, require=None, priority=priority)
        cluster.go_on(5)
        kept.append(name)
    for rack in range(racks):
        cluster.delete(f"fill-{rack}")
    cluster.go_on()
    assert cluster.runs(*kept)
    assert len({host.rpartition("-")[0] for name in kept for host in cluster.hosts(name)}) == racks
    return cluster


def moved(cluster: PreemptingCluster) -> list[str]:
    return cluster.called("suspend")


def test_a_gang_restarts_elsewhere_and_the_waiting_one_starts() -> None:
    """The younger of two equals; both run at the end, and nobody else was touched."""
    cluster = in_pieces()
    cluster.submit("wide", 2)
    cluster.go_on(5)
    assert moved(cluster) == []
    cluster.wait(60)
    assert moved(cluster) == ["suspend two"]
    assert cluster.runs("wide", "one", "two")
    assert not cluster.intent("wide").active
    assert "keptHosts" not in cluster.leader.placed("wide").status


@pytest.mark.parametrize("priority", [0, 5])
def test_the_waiting_gang_leaves_the_moved_one_its_place(priority: int) -> None:
    """Also if it has the higher priority: both are in one plan, and only gangs with another place restart."""
    cluster = PreemptingCluster(policy=MOVES)
    cluster.leader = Leader(nodes=gpu_nodes(1, 2, 3), policy=POLICY + MOVES)
    for name, host, gpus in (("small-0", "b0-r1-h2", 2), ("small-1", "b0-r1-h0", 2), ("fill", "b0-r0-h2", 8)):
        nodes = cluster.leader.stores.nodes.values()
        cordoned = [replace(one, unschedulable=True) for one in nodes if one.name != host]
        for unschedulable in (True, False):
            version = cluster.leader.hands.version
            cluster.leader.has(
                *(replace(one, unschedulable=unschedulable, resource_version=version()) for one in cordoned)
            )
            if unschedulable:
                cluster.submit(name, 1, require=None, gpus=gpus)
            cluster.go_on(60)
        assert cluster.hosts(name) == [host]
    cluster.submit("big", 3, require=None)
    cluster.go_on(60)
    assert cluster.hosts("big") == ["b0-r0-h0", "b0-r0-h1", "b0-r1-h1"]
    cluster.delete("fill")
    cluster.submit("wait", 4, gpus=4, priority=priority)
    cluster.wait(90)
    assert moved(cluster) == ["suspend big"]
    assert cluster.runs("wait", "big", "small-0", "small-1")


def test_the_users_of_both_read_why() -> None:
    """No names of another namespace, in neither of the two."""
    cluster = in_pieces()
    cluster.lingering = True
    cluster.submit("wide", 2, namespace="other")
    cluster.wait(30)
    assert cluster.leader.status("wide") == ("Waiting", "Preempting")
    assert cluster.message("wide") == (
        "1 running gang (1 pod) restarts elsewhere for it: b0-r1 (2 hosts) kept free until it fits"
    )
    said = [note for name, note in cluster.leader.hands.notes if name == "two" and "restarts" in note]
    assert said == [
        "restarts elsewhere so that a gang of another namespace fits (policy defragment); "
        "it is queued again at its old age"
    ]


@pytest.mark.parametrize(
    ("policy", "priority"),
    [
        ("", 0),
        ("defragment: {mode: propose, after: 10s}\n", 0),
        ("defragment: {mode: act, after: 1h}\n", 0),
        ("defragment: {mode: act, after: 10s, protect: {runningFor: 1s}}\n", 0),
        ("defragment: {mode: act, after: 10s, protect: {namespaces: [def*]}}\n", 0),
        (MOVES, 1),
    ],
    ids=["default", "propose", "early", "running", "namespace", "priority"],
)
def test_nothing_restarts(policy: str, priority: int) -> None:
    """Off by default; too early; protected; or of a higher priority."""
    cluster = in_pieces(policy, priority=priority)
    cluster.submit("wide", 2)
    cluster.wait(120, every=10)
    assert moved(cluster) == []
    assert cluster.runs("one", "two")


@pytest.mark.parametrize("why", ["budget", "quota", "priority class", "not suspendable"])
def test_a_gang_that_might_not_come_back_is_left_alone(why: str) -> None:
    """A budget forbids it to end, its pods could not be created again, or it cannot be suspended."""
    cluster = PreemptingCluster(policy=MOVES)
    stores, version = cluster.leader.stores, cluster.leader.hands.version
    if why == "priority class":
        for name in ("low", "other"):
            stores.priority_classes.apply("ADDED", PriorityClass(name, 0, default=False))
    for rack in range(2):
        cluster.submit(f"fill-{rack}", 1, require=None)
        of_class = {"priority_class": "low"} if why == "priority class" else {}
        cluster.submit(f"g{rack}", 1, require=None, suspendable=why != "not suspendable", **of_class)
        cluster.go_on(5)
    for rack in range(2):
        cluster.delete(f"fill-{rack}")
    cluster.go_on()
    assert cluster.runs("g0", "g1")
    if why == "budget":
        budget = DisruptionBudget("default", "none", {}, 0, resource_version=version())
        stores.disruption_budgets.apply("ADDED", budget)
    elif why == "quota":
        stores.quotas.apply("ADDED", Quota("default", "q", {"pods": 1}, {"pods": 2}, (), resource_version=version()))
    elif why == "priority class":
        stores.priority_classes.apply("DELETED", PriorityClass("low", 0, default=False))
    cluster.submit("wide", 2, namespace="other")
    cluster.wait(120, every=10)
    assert moved(cluster) == []


def test_of_gangs_that_a_budget_does_not_let_restart_together_others_restart() -> None:
    """The two youngest are the cheapest, and their budget allows one of them to end; two older ones will do."""
    cluster = PreemptingCluster(policy=MOVES)
    gangs = ("old-0", "old-1", "young-0", "young-1")
    for name in gangs:
        namespace = "team" if name.startswith("young") else "default"
        cluster.submit(f"fill-{name}", 1, require=None, gpus=4)
        cluster.submit(name, 1, require=None, gpus=4, namespace=namespace)
        cluster.go_on(5)
    for name in gangs:
        cluster.delete(f"fill-{name}")
    cluster.go_on()
    assert [cluster.hosts(name)[0][:5] for name in gangs] == ["b0-r0", "b0-r0", "b0-r1", "b0-r1"]
    budget = DisruptionBudget("team", "one", (), 1, resource_version=cluster.leader.hands.version())
    cluster.leader.stores.disruption_budgets.apply("ADDED", budget)
    cluster.submit("wide", 2)
    cluster.wait(120, every=10)
    assert sorted(moved(cluster)) == ["suspend old-0", "suspend old-1"]
    assert cluster.runs("wide", *gangs)


def test_two_equal_gangs_do_not_move_each_other_in_turn() -> None:
    """However often both are looked at: a gang that was moved is left alone for an hour, and moves nobody itself."""
    cluster = in_pieces()
    cluster.submit("wide", 2)
    cluster.wait(60)
    assert moved(cluster) == ["suspend two"]
    cluster.finish("wide")
    cluster.delete("wide")
    at = cluster.leader.placed("two").status["movedAt"]
    assert at >= timestamp(EPOCH)
    for number in range(6):
        cluster.submit(f"wide-{number}", 2)
        cluster.wait(300, every=25)
        assert len([one for one in moved(cluster) if one == "suspend two"]) == 1
        if cluster.runs(f"wide-{number}"):
            cluster.finish(f"wide-{number}")
        cluster.delete(f"wide-{number}")
        cluster.go_on()
    assert len(moved(cluster)) == len(set(moved(cluster)))


def test_a_gang_that_waits_as_it_was_moved_moves_nobody() -> None:
    """Its own place was taken: it waits as any other gang, with its reason, until there is room."""
    cluster = in_pieces()
    cluster.submit("wide", 2)
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(15)
    (planned,) = cluster.leader.controller._term.moving.values()
    (host,) = planned.hosts
    cluster.outsider("web", host)
    cluster.leader.hands.broken.clear()
    cluster.wait(60)
    assert cluster.runs("wide", "one")
    assert cluster.leader.status("two") == ("Waiting", "InsufficientFreeGPUs")
    assert "needs 1 host" in cluster.message("two")
    tried = moved(cluster)
    assert set(tried) == {"suspend two"}
    cluster.wait(2 * KEEP_PLACES, every=20)
    assert moved(cluster) == tried
    assert cluster.leader.controller._term.moving == {}
    cluster.finish("wide")
    cluster.delete("wide")
    cluster.wait(30)
    assert cluster.runs("one", "two")


def submit_until_one_moves(cluster: PreemptingCluster) -> None:
    """Submit `wide`, and go on until a gang is on its way for it; its pods do not end."""
    cluster.lingering = True
    cluster.submit("wide", 2)
    cluster.go_on(11)
    for _ in range(8):
        if cluster.called("suspend"):
            break
        cluster.go_on(2, steps=1)


def test_the_new_place_of_a_moved_gang_is_kept_for_it() -> None:
    """A gang that comes while it is on its way does not get it."""
    cluster = in_pieces()
    submit_until_one_moves(cluster)
    cluster.submit("small", 1, require=None)
    cluster.go_on()
    cluster.lingering = False
    cluster.wait(60)
    assert cluster.runs("wide", "one", "two")
    assert cluster.hosts("small") == []


def test_the_whole_rack_is_kept_for_a_moved_gang_that_shares_it_with_nobody() -> None:
    """A gang that comes while it is on its way gets no other host there: the moved one could not start beside it."""
    cluster = PreemptingCluster(policy=MOVES)
    nodes = {one.name: one for one in cluster.leader.stores.nodes.values()}
    first, second = (nodes[f"b0-r1-h{number}"] for number in range(2))
    small = replace(second, allocatable={**second.allocatable, "nvidia.com/gpu": 4})
    for ready in (False, True):
        version = cluster.leader.hands.version()
        cluster.leader.has(*(replace(one, ready=ready, resource_version=version) for one in (first, small)))
        if not ready:
            cluster.submit("alone", 1, gpus=4, annotations={names.EXCLUSIVE: "rack"})
            cluster.go_on(5)
    assert cluster.hosts("alone")[0].startswith("b0-r0")
    submit_until_one_moves(cluster)
    assert moved(cluster) == ["suspend alone"]
    cluster.submit("small", 1, gpus=4, require=None)
    cluster.go_on()
    cluster.lingering = False
    cluster.wait(60)
    assert cluster.runs("wide", "alone")
    assert cluster.hosts("small") == []


def test_one_waiting_gang_is_helped_at_a_time() -> None:
    """The second one only when the gangs that moved for the first one have their new slots."""
    cluster = in_pieces(racks=3)
    cluster.lingering = True
    cluster.submit("wide-0", 2)
    cluster.submit("wide-1", 2)
    cluster.wait(60)
    assert len(moved(cluster)) == 1
    active = [name for name in ("wide-0", "wide-1") if cluster.intent(name).active]
    assert len(active) == 1


@pytest.mark.parametrize("after", range(0, 12))
def test_the_next_leader_continues_at_any_step(after: int) -> None:
    """However many actions the last one has finished: all run at the end, and one gang restarts once."""
    cluster = in_pieces()
    cluster.submit("wide", 2)
    cluster.go_on()
    cluster.leader.now += 11
    for _ in range(after):
        cluster.leader.turn()
        if not cluster.leader.pool.waiting:
            cluster.controllers()
            cluster.scheduler()
            cluster.kubelets()
            continue
        cluster.leader.pool.waiting.pop(0)()
    cluster.another_leader()
    cluster.wait(120)
    assert cluster.runs("wide", "one", "two"), (cluster.message("wide"), cluster.message("two"), moved(cluster))
    assert len(moved(cluster)) == 1


def test_a_leader_that_lost_its_lease_touches_nobody() -> None:
    """Its intent was not written: the next one decides anew."""
    cluster = in_pieces()
    cluster.submit("wide", 2)
    cluster.go_on()
    cluster.leader.hands.broken["tell"] = not_leader
    cluster.leader.now += 11
    cluster.leader.turn()
    cluster.leader.work()
    assert moved(cluster) == []
    cluster.leader.hands.broken.clear()
    cluster.wait(60)
    assert cluster.runs("wide", "one", "two")


@pytest.mark.parametrize("how", ["delete", "suspend", "policy", "protect", "annotation", "priority", "group"])
def test_a_gang_that_need_not_or_may_not_move_any_more_is_spared(how: str) -> None:
    """The waiting gang goes away, or the other one is protected, between the decision and the restart."""
    annotated = "protect: {annotated: true}"
    policy = f"defragment: {{mode: act, after: 10s, {annotated}}}\n"
    cluster = in_pieces(policy)
    hands = cluster.leader.hands
    cluster.submit("wide", 2)
    hands.broken["suspend"] = unavailable
    cluster.go_on(15)
    assert cluster.intent("wide").moves
    two = cluster.workload("two")
    if how == "delete":
        cluster.delete("wide")
    elif how == "suspend":
        hands._change(cluster.workload("wide"), suspended=True, held=False)
    elif how == "annotation":
        own = {**two.annotations, names.PREEMPTIBLE: "false"}
        cluster.leader.has(replace(two, annotations=own, resource_version=hands.version()))
    elif how == "priority":
        raised = changed(two, template=replace(two.template, priority=1))
        cluster.leader.has(replace(raised, resource_version=hands.version()))
        for made in cluster.leader.stores.pods.values():
            if made.owner is not None and made.owner.uid == two.uid:
                own = replace(made.spec, priority=1)
                cluster.leader.has(replace(made, spec=own, resource_version=hands.version()))
    else:
        other = {"policy": "", "protect": "defragment: {mode: act, after: 10s, protect: {namespaces: [default]}}\n"}
        other["group"] = (
            "defragment: {mode: act, after: 10s}\nnamespaces: {modes: [{namespaces: [def*], mode: hold}]}\n"
        )
        cluster.leader.view.set_policy(PreemptingCluster(policy=other[how]).leader.view.policy)
    tried = len(moved(cluster))
    hands.broken.clear()
    cluster.wait(40)
    assert [one for one in moved(cluster)[tried:] if one == "suspend two"] == []
    assert "two" in cluster.names
    assert cluster.runs("two")


def test_a_better_place_spares_the_gang() -> None:
    """The other gang ends by itself first."""
    cluster = in_pieces()
    cluster.submit("wide", 2)
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(15)
    assert cluster.intent("wide").active
    cluster.finish("one")
    cluster.go_on()
    cluster.leader.hands.broken.clear()
    cluster.wait(40)
    assert cluster.runs("wide", "two")
    assert cluster.leader.controller._term.moving == {}


def test_a_move_that_does_not_come_to_an_end_is_given_up() -> None:
    """Its pods do not end: the waiting gang says so and rests; when they have ended, both run."""
    cluster = in_pieces()
    cluster.lingering = True
    cluster.submit("wide", 2)
    cluster.wait(620)
    assert not cluster.intent("wide").active
    assert cluster.intent("wide").attempts == 1
    assert "other gangs have ended for it in vain: what was to end for it has not" in cluster.message("wide")
    cluster.lingering = False
    cluster.wait(120)
    assert cluster.runs("one", "two", "wide")
    assert moved(cluster) == ["suspend two"]


def was_moved(cluster: PreemptingCluster, *names: str) -> None:
    """These gangs were moved just now, as their Placements say."""
    for name in names:
        plan = cluster.leader.placed(name)
        assert plan is not None
        status = {**plan.status, "movedAt": timestamp(EPOCH + cluster.leader.now)}
        cluster.leader.hands.put(replace(plan, status=status), spec=False)


def test_a_gang_may_be_moved_again_after_an_hour() -> None:
    """Not before, and although nothing else changes in the cluster."""
    cluster = in_pieces()
    was_moved(cluster, "one", "two")
    cluster.submit("wide", 2)
    cluster.wait(MOVED_REST - 60, every=50)
    assert moved(cluster) == []
    cluster.wait(600, every=50)
    assert len(moved(cluster)) == 1
    assert cluster.runs("wide", "one", "two")


def test_no_other_gang_is_moved_for_one_that_was_moved() -> None:
    """It gets the proposal alone, for an hour."""
    cluster = in_pieces()
    cluster.submit("wide", 2)
    was_moved(cluster, "wide")
    cluster.wait(120, every=10)
    assert moved(cluster) == []
    assert cluster.leader.placed("wide").status["proposal"]["restarts"]


def test_nobody_is_moved_for_a_gang_whose_class_preempts_nobody() -> None:
    """`preemptionPolicy: Never` counts for moves too."""
    cluster = in_pieces()
    patient = PriorityClass("patient", 0, default=False, preempts=False)
    cluster.leader.stores.priority_classes.apply("ADDED", patient)
    cluster.submit("wide", 2, priority_class="patient")
    cluster.wait(120, every=10)
    assert moved(cluster) == []


def test_equal_gangs_move_and_none_of_lower_priority_ends_where_both_are_allowed() -> None:
    """A preemption ends for a higher priority alone, also of the gang for which another one moves."""
    cluster = in_pieces(f"{MOVES}preemption: {{mode: lower-priority, after: 10s}}\n")
    cluster.submit("wide", 2)
    cluster.wait(60)
    assert cluster.runs("wide", "one", "two")
    assert len(moved(cluster)) == 1


def test_an_intent_without_its_flag_ends_nobody_of_the_same_priority() -> None:
    """An older definition of Placements drops the field: what is left is a preemption, and those need more."""
    for policy in (MOVES, f"{MOVES}preemption: {{mode: lower-priority, after: 10s}}\n"):
        cluster = in_pieces(policy)
        cluster.leader.hands.broken["suspend"] = unavailable
        cluster.submit("wide", 2)
        cluster.go_on(15)
        plan = cluster.leader.placed("wide")
        assert plan is not None
        intent = {key: one for key, one in plan.status["preemption"].items() if key != "moves"}
        cluster.leader.hands.put(replace(plan, status={**plan.status, "preemption": intent}), spec=False)
        cluster.leader.view.set_policy(PreemptingCluster(policy=policy.replace("act", "never")).leader.view.policy)
        cluster.leader.hands.broken.clear()
        tried = len(moved(cluster))
        cluster.wait(60)
        assert len(moved(cluster)) == tried
        assert cluster.runs("one", "two")


def test_in_strict_order_a_moved_gang_without_a_place_goes_first() -> None:
    """It is older, and its pods take their time: it gets its old place again, and the other gang waits."""
    cluster = in_pieces(f"{MOVES}queue: {{order: strict}}\n")
    cluster.submit("wide", 2)
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(15)
    (planned,) = cluster.leader.controller._term.moving.values()
    (host,) = planned.hosts
    cluster.outsider("web", host)
    cluster.lingering = True
    cluster.leader.hands.broken.clear()
    cluster.wait(60)
    cluster.lingering = False
    cluster.wait(60)
    assert cluster.runs("one", "two")
    assert cluster.hosts("wide") == []
    assert cluster.message("wide")
    assert not cluster.intent("wide").active


def test_in_strict_order_a_move_succeeds_too() -> None:
    """The moved gang is planned first, beside the hosts that are kept for the other one."""
    cluster = in_pieces(f"{MOVES}queue: {{order: strict}}\n")
    cluster.submit("wide", 2)
    cluster.wait(60)
    assert cluster.runs("wide", "one", "two")


def test_in_strict_order_nobody_restarts_for_a_gang_that_others_go_before() -> None:
    """It would not be planned; the one that goes first does not fit whoever restarts."""
    cluster = in_pieces("queue: {order: strict}\ndefragment: {mode: act, after: 60s}\n")
    cluster.submit("wide", 2)
    cluster.go_on(20)
    assert cluster.reason("wide") == "Fragmented"
    cluster.submit("first", 4, priority=5, require="block")
    cluster.wait(300, every=20)
    assert cluster.reason("wide") == "QueuedBehind"
    assert moved(cluster) == []
    assert cluster.runs("one", "two")


def test_in_strict_order_a_moved_gang_starts_again_whoever_waits_before_it() -> None:
    """Its new host is kept for it, so it is of no use for the one that goes first."""
    cluster = in_pieces("queue: {order: strict}\ndefragment: {mode: act, after: 60s}\n", racks=3)
    cluster.submit("wide", 2, priority=5)
    cluster.go_on(5)
    cluster.submit("next", 6, priority=3, require="block")
    cluster.wait(120)
    assert len(moved(cluster)) == 1
    assert cluster.runs("wide", "one", "two", "three")
    assert cluster.leader.status("next")[0] == "Waiting"
