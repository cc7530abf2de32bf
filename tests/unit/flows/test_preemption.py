"""A gang of higher priority starts in the place of running ones, whatever happens on the way."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import PriorityClass, Quota
from engine.cache.state import Changes
from engine.decoding.objects import disruption_budget
from engine.decoding.workloads import job as decoded_job
from engine.gang.key import key_of
from engine.history.record import LOGGER
from engine.lifecycle.preemption import LIMIT
from engine.preemption.preempt import victims_may_help
from engine.scheduler.outcome import Waits
from engine.scheduler.schedule import answer_in_view
from tests.support.cluster_records import changed, gpu_nodes, job, pod, pod_set, shape, spec
from tests.support.leader import not_leader, unavailable
from tests.support.preempting import PREEMPTS, PreemptingCluster


def full(*, policy: str = PREEMPTS, suspendable: bool = True, low: int = 2) -> PreemptingCluster:
    """Two racks with a running gang each: `low-0`, which is younger, and `low-1`."""
    cluster = PreemptingCluster(policy=policy)
    for number in reversed(range(2)):
        cluster.submit(f"low-{number}", low, suspendable=suspendable)
        cluster.go_on(60)
    assert cluster.runs("low-0", "low-1")
    return cluster


def test_a_gang_of_lower_priority_is_suspended_and_starts_again_later() -> None:
    """The youngest of equals ends; it waits at its old age, and starts when there is room again."""
    cluster = full()
    cluster.submit("high", 2, priority=100)
    cluster.go_on()
    assert (cluster.ended(), cluster.reason("high")) == ([], "InsufficientFreeGPUs")
    cluster.go_on(11)
    assert cluster.ended() == ["suspend low-0"]
    assert cluster.runs("high", "low-1")
    cluster.wait(20)
    assert cluster.leader.status("high")[0] == "Running"
    assert not cluster.intent("high").active
    assert "keptHosts" not in cluster.leader.placed("high").status
    assert cluster.leader.status("low-0")[0] == "Waiting"
    cluster.finish("high")
    cluster.wait(20)
    assert cluster.runs("low-0", "low-1")
    assert cluster.ended() == ["suspend low-0"]


def test_hosts_kept_for_a_gang_that_goes_first_do_not_spare_a_gang_elsewhere() -> None:
    """On one rack a host is free, but kept for the older gang, which never fits; the later one needs only one host."""
    cluster = PreemptingCluster(policy=PREEMPTS + "queue: {patience: 30s}\n")
    for rack in range(2):
        cluster.submit(f"fill-{rack}", 1, require=None)
        cluster.submit(f"piece-{rack}", 1, priority=100, require=None)
        cluster.go_on()
    cluster.delete("fill-0")
    cluster.delete("fill-1")
    cluster.go_on()
    cluster.submit("wide", 2, priority=100)
    cluster.submit("low", 1, require=None)
    cluster.wait(60)
    assert cluster.runs("low", "piece-0", "piece-1") and cluster.reason("wide") == "RoomKept"
    cluster.submit("high", 1, priority=100)
    view = cluster.leader.view
    gang = view.gangs.get(key_of(cluster.workload("high")))
    assert gang is not None
    forecast = answer_in_view(view, gang, created=gang.workload.created)
    assert isinstance(forecast, Waits) and forecast.reason == "QueuedBehind" and victims_may_help(forecast)
    cluster.wait(60)
    assert cluster.ended() == ["suspend low"]
    assert cluster.runs("high") and cluster.reason("low") == "QueuedBehind"


def test_the_users_of_both_read_why() -> None:
    """The victim by whom, in the same namespace by name; the preemptor what ends, and where."""
    cluster = full()
    cluster.lingering = True
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    assert cluster.leader.status("high") == ("Waiting", "Preempting")
    assert cluster.message("high") == (
        "1 gang of lower priority ends for it (2 pods): b0-r1 (2 hosts) kept free until it fits"
    )
    said = [note for name, note in cluster.leader.hands.notes if name == "low-0" and "ended" in note]
    assert said == ["ended for Job/high, which has priority 100 and found no other room; it is queued again"]


def test_a_gang_for_which_others_end_is_not_relaxed_meanwhile() -> None:
    """They end for the level that it requires, and its status names the hosts that are kept for it."""
    cluster = full(policy=PREEMPTS + "timeouts: {relaxAfter: 20s}\n")
    cluster.lingering = True
    cluster.submit("high", 2, priority=100)
    cluster.wait(60)
    assert "high" not in cluster.leader.hands.of("relax")
    assert cluster.leader.status("high") == ("Waiting", "Preempting")
    assert cluster.leader.placed("high").status["keptHosts"] == ["b0-r1-h0", "b0-r1-h1"]
    cluster.wait(LIMIT)
    assert "high" in cluster.leader.hands.of("relax")


def test_a_gang_for_which_others_end_is_not_given_up_meanwhile() -> None:
    """They would have ended in vain."""
    cluster = full(policy=PREEMPTS + "queue: {onTimeout: giveUp}\n")
    cluster.lingering = True
    cluster.submit("high", 2, priority=100, annotations={names.SCHEDULE_TIMEOUT: "15s"})
    cluster.wait(40, every=2)
    assert cluster.leader.status("high") == ("Waiting", "Preempting")
    cluster.lingering = False
    cluster.wait(30)
    assert cluster.runs("high", "low-1")
    assert cluster.ended() == ["suspend low-0"]


def test_gangs_end_that_a_budget_allows_together_where_others_only_may_each_by_itself() -> None:
    """A budget of one for two gangs hides no other choice."""
    cluster = PreemptingCluster()
    for names_of_rack, namespace in ((("right-1", "right-2"), "default"), (("left-1", "left-2"), "a")):
        for name in names_of_rack:
            cluster.submit(name, 1, require=None, namespace=namespace)
        cluster.go_on(60)
    assert {host.rpartition("-")[0] for name in ("left-1", "left-2") for host in cluster.hosts(name)} == {"b0-r1"}
    raw = {
        "metadata": {"name": "left", "namespace": "a"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 1},
    }
    cluster.leader.stores.disruption_budgets.replace([disruption_budget(json.dumps(raw).encode())])
    cluster.submit("high", 2, priority=100)
    cluster.wait(60)
    assert cluster.runs("high", "left-1", "left-2")
    assert sorted(cluster.ended()) == ["suspend right-1", "suspend right-2"]


def test_nothing_ends_while_the_policy_does_not_preempt() -> None:
    """It is off by default."""
    cluster = full(policy="")
    cluster.submit("high", 2, priority=100)
    cluster.wait(300, every=30)
    assert cluster.ended() == []


@pytest.mark.parametrize("priority", [0, -5])
def test_no_gang_ends_for_one_of_the_same_or_a_lower_priority(priority: int) -> None:
    """It waits."""
    cluster = full()
    cluster.submit("other", 2, priority=priority)
    cluster.wait(300, every=30)
    assert cluster.ended() == []


def test_a_priority_that_a_user_writes_into_a_template_ends_nobody() -> None:
    """Only a PriorityClass gives one: the API server takes such a Job, and refuses its pods."""
    cluster = full()
    of_system = PriorityClass("system-node-critical", 2_000_001_000, default=False)
    cluster.leader.stores.priority_classes.apply("ADDED", of_system)
    resources = {"limits": {"nvidia.com/gpu": "8"}}
    template = {"spec": {"priority": 2_000_000_000, "containers": [{"name": "main", "resources": resources}]}}
    metadata = {
        "name": "claims",
        "namespace": "default",
        "uid": "uid-claims",
        "resourceVersion": "1",
        "creationTimestamp": "2027-01-15T08:00:00Z",
        "annotations": {names.REQUIRE: "rack", names.HELD_BY: names.HELD_BY_SUSPEND},
    }
    claims = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": template},
    }
    cluster.leader.has(decoded_job(json.dumps(claims).encode()))
    cluster.wait(30)
    assert (cluster.ended(), cluster.reason("claims")) == ([], "InsufficientFreeGPUs")


@pytest.mark.parametrize(("pods", "least"), [(0, None), (1, None), (1, 1)])
def test_who_may_not_use_a_priority_class_has_no_priority_by_it(pods: int, least: int | None) -> None:
    """Neither by a pod set without pods, nor by one that the gang does not need to start: the quota allows none."""
    cluster = full()
    classes, quotas = cluster.leader.stores.priority_classes, cluster.leader.stores.quotas
    classes.apply("ADDED", PriorityClass("urgent", 1000, False, resource_version="1"))
    scope = (("PriorityClass", "In", ("urgent",)),)
    quotas.apply("ADDED", Quota("default", "no-urgent", {"pods": 0}, {"pods": 0}, scope))
    sets = [
        pod_set(
            name,
            count=count,
            selector=(("role", name),),
            template=spec(shape=shape(gpu=8), gates=(names.GATE,), labels={names.MANAGED: "true"}, priority_class=of),
        )
        for name, count, of in (("worker", 1, ""), ("extra", pods, "urgent"))
    ]
    gang = replace(job("high", require="rack", held=True), pod_sets=tuple(sets))
    asks = {names.MIN_AVAILABLE: str(least)} if least is not None else {}
    cluster.leader.has(replace(gang, annotations={**gang.annotations, **asks}))
    cluster.leader.settle(30)
    for _ in range(5):
        cluster.leader.later(10)
    assert cluster.ended() == []
    assert cluster.runs("low-0", "low-1")


@pytest.mark.parametrize(
    "policy",
    ["queue: {order: strict}\n", "namespaces: {rules: [{namespaces: [default], maxWaitingGangs: 1}]}\n"],
    ids=["strict", "limit"],
)
def test_nobody_ends_for_a_gang_that_others_go_before(policy: str) -> None:
    """It would not be planned; the one that goes first does not fit whoever ends."""
    cluster = PreemptingCluster(policy=policy + "preemption: {mode: lower-priority, after: 60s}\n")
    cluster.submit("top", 2, priority=20)
    cluster.go_on()
    cluster.submit("low", 2)
    cluster.go_on()
    cluster.submit("high", 2, priority=5)
    cluster.go_on(20)
    assert cluster.reason("high") == "InsufficientFreeGPUs"
    cluster.submit("first", 4, priority=10, require="block")
    cluster.wait(300, every=20)
    assert cluster.reason("high") in ("QueuedBehind", "WaitingGangsLimit")
    assert cluster.ended() == []


@pytest.mark.parametrize("ranked", [True, False])
def test_a_pod_of_another_class_gives_no_right_to_the_class_of_its_template(ranked: bool) -> None:
    """Anybody may create a pod with a Job as its controller: the quota of the Job's PriorityClass never saw it."""
    cluster = full()
    classes, quotas = cluster.leader.stores.priority_classes, cluster.leader.stores.quotas
    classes.apply("ADDED", PriorityClass("urgent", 1000, False, resource_version="1"))
    scope = (("PriorityClass", "In", ("urgent",)),)
    quotas.apply("ADDED", Quota("default", "no-urgent", {"pods": 0}, {"pods": 0}, scope))
    template = spec(gates=(names.GATE,), labels={names.MANAGED: "true"}, priority_class="urgent")
    gang = job("high", count=1, held=True, template=template, ranked=ranked)
    forged = pod(gang, 0, gated=True, name="forged")
    cluster.leader.has(gang, replace(forged, spec=replace(forged.spec, priority_class="", shape=shape(cpu=1))))
    cluster.leader.settle(30)
    for _ in range(5):
        cluster.leader.later(10)
    assert (cluster.ended(), cluster.reason("high")) == ([], "QuotaExceeded")
    assert cluster.runs("low-0", "low-1")


def test_a_gang_that_cannot_be_suspended_is_evicted() -> None:
    """Its slots go first, its new pods wait, and none of them comes between."""
    cluster = full(suspendable=False)
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    assert len(cluster.ended()) == 2
    assert all(one.startswith("evict low-0") for one in cluster.ended())
    cluster.wait(10)
    assert cluster.runs("high", "low-1")
    assert all(one.held for one in cluster.pods("low-0"))
    cluster.finish("high")
    cluster.wait(20)
    assert cluster.runs("low-0", "low-1")


def test_an_eviction_that_is_refused_is_tried_again() -> None:
    """A disruption budget protects the pods for a while; the gang is not planned around them meanwhile."""
    cluster = full(suspendable=False)
    cluster.leader.hands.deaf = True
    cluster.submit("high", 2, priority=100)
    cluster.wait(100)
    tried = len(cluster.ended())
    assert 4 <= tried <= 8
    assert cluster.leader.placed("low-0").assignment is None
    assert cluster.reason("low-0") == "Preempted"
    cluster.leader.hands.deaf = False
    cluster.wait(60)
    assert cluster.runs("high", "low-1")


def test_a_preemption_that_does_not_come_to_an_end_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """The victim gets its slots back where it still runs, and the preemptor rests longer every time."""
    caplog.set_level(logging.INFO, LOGGER)
    cluster = full(suspendable=False)
    cluster.leader.hands.deaf = True
    cluster.submit("high", 2, priority=100)
    cluster.wait(615)
    assert cluster.intent("high").attempts == 1
    assert not cluster.intent("high").active
    assert "in vain: what was to end for it has not ended within 10m; not again before" in cluster.message("high")
    records = [vars(one)["decision"] for one in caplog.records if one.name == LOGGER]
    (ended,) = [one for one in records if one["event"] == "PreemptionEnded"]
    assert (ended["workload"], ended["reason"]) == ("Job/high", "Preempting")
    assert ended["message"] == "what was to end for it has not ended within 10m"
    cluster.wait(20)
    assert cluster.leader.placed("low-0").assignment is not None
    assert cluster.runs("low-0", "low-1")
    tried = len(cluster.ended())
    cluster.wait(30)
    assert len(cluster.ended()) == tried
    cluster.wait(60)
    assert cluster.intent("high").active
    assert cluster.intent("high").attempts == 1


def test_nobody_else_gets_the_hosts_that_are_made_free() -> None:
    """Neither a gang that came before nor the victim itself."""
    cluster = full()
    cluster.lingering = True
    cluster.submit("small", 1)
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    cluster.lingering = False
    cluster.wait(30)
    assert cluster.runs("high", "low-1")
    assert cluster.hosts("small") == []
    assert cluster.ended() == ["suspend low-0"]


def test_a_better_place_spares_the_victims() -> None:
    """Another gang ends by itself before the victim was touched: the preemptor starts there."""
    cluster = full()
    cluster.submit("high", 2, priority=100)
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(11)
    assert cluster.intent("high").active
    assert cluster.runs("low-0")
    cluster.finish("low-1")
    cluster.go_on()
    cluster.leader.hands.broken.clear()
    cluster.wait(40)
    assert cluster.runs("high", "low-0")
    assert cluster.reason("low-0") == ""


@pytest.mark.parametrize("how", ["delete", "suspend", "policy"])
def test_what_needs_no_room_any_more_ends_nobody(how: str) -> None:
    """The preemptor is deleted, its user suspends it, or the policy changes, before the victim was touched."""
    cluster = full()
    cluster.submit("high", 2, priority=100)
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(11)
    assert cluster.intent("high").active
    if how == "delete":
        cluster.delete("high")
    elif how == "suspend":
        cluster.leader.hands._change(cluster.workload("high"), suspended=True, held=False)
    else:
        cluster.leader.view.set_policy(PreemptingCluster(policy="").leader.view.policy)
    cluster.leader.hands.broken.clear()
    tried = len(cluster.ended())
    cluster.wait(60)
    assert len(cluster.ended()) == tried
    assert cluster.runs("low-0", "low-1")
    if how != "delete":
        assert not cluster.intent("high").active


def test_two_preemptors_do_not_count_on_one_victim() -> None:
    """Each of them ends another gang, and both start."""
    cluster = full()
    cluster.lingering = True
    cluster.submit("high-0", 2, priority=100)
    cluster.submit("high-1", 2, priority=100)
    cluster.wait(20)
    assert sorted(cluster.ended()) == ["suspend low-0", "suspend low-1"]
    cluster.lingering = False
    cluster.wait(30)
    assert cluster.runs("high-0", "high-1")
    assert sorted(cluster.ended()) == ["suspend low-0", "suspend low-1"]


def test_one_of_two_preemptors_waits_if_there_is_one_victim() -> None:
    """The victim ends once, and the second one has nobody to end."""
    cluster = full(low=2)
    cluster.submit("higher", 2, priority=200)
    cluster.wait(30)
    assert cluster.runs("higher", "low-1")
    cluster.submit("high-0", 2, priority=100)
    cluster.submit("high-1", 2, priority=100)
    cluster.wait(120)
    assert sorted(cluster.ended()) == ["suspend low-0", "suspend low-1"]
    assert cluster.runs("higher", "high-0")
    assert cluster.hosts("high-1") == []


def test_a_gang_ends_for_the_quota_of_its_namespace() -> None:
    """There is a free rack; the preemptor starts as soon as the quota has room."""
    cluster = PreemptingCluster()
    cluster.submit("low", 2)
    cluster.go_on(60)
    assert cluster.runs("low")
    quota = Quota("default", "pods", {"pods": 3}, {"pods": 2}, (), resource_version=cluster.leader.hands.version())
    cluster.leader.stores.quotas.apply("ADDED", quota)
    cluster.submit("high", 2, priority=100)
    assert cluster.reason("high") == "QuotaExceeded"
    cluster.go_on(11)
    assert cluster.ended() == ["suspend low"]
    freed = replace(quota, used={"pods": 0}, resource_version=cluster.leader.hands.version())
    cluster.leader.stores.quotas.apply("MODIFIED", freed)
    cluster.wait(10)
    assert cluster.runs("high")


def test_pods_that_are_not_managed_are_evicted_where_the_policy_says_so() -> None:
    """All pods of their owner, by the preemptor's own step."""
    cluster = PreemptingCluster(policy="preemption: {mode: lower-priority, after: 10s, victims: all}\n", racks=1)
    one = cluster.outsider("web", "b0-r0-h0", priority=-1)
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    assert cluster.ended() == [f"evict {one.name}"]
    cluster.wait(10)
    assert cluster.runs("high")


def test_pods_that_are_not_managed_and_refuse_are_tried_again() -> None:
    """A disruption budget refuses them: every half minute, until the preemption is given up."""
    cluster = PreemptingCluster(policy="preemption: {mode: lower-priority, after: 10s, victims: all}\n", racks=1)
    cluster.outsider("web", "b0-r0-h0", priority=-1)
    cluster.leader.hands.deaf = True
    cluster.submit("high", 2, priority=100)
    cluster.wait(100)
    assert cluster.ended() == ["evict web"] * 4
    cluster.wait(600)
    assert cluster.intent("high").attempts == 1


def test_all_intents_together_look_for_their_pods_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods of the cluster are read in each pass: not for each of many gangs that wait for others to end."""
    cluster = PreemptingCluster(policy="preemption: {mode: lower-priority, after: 10s, victims: all}\n", racks=2)
    for host in ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1"):
        cluster.outsider(f"web-{host}", host, priority=-1)
    cluster.leader.hands.deaf = True
    reads, pods = [0], cluster.leader.stores.pods
    values = type(pods).values

    def counted(store: object) -> object:
        reads[0] += store is pods
        return values(store)  # type: ignore[arg-type]

    for number in range(2):
        cluster.submit(f"high-{number}", 2, priority=100)
    cluster.wait(20)
    assert all(len(cluster.intent(f"high-{number}").pods) == 2 for number in range(2))
    monkeypatch.setattr(type(pods), "values", counted)
    cluster.leader.controller._preemptor.refresh(Changes(), cluster.leader.now)
    assert reads == [1]


@pytest.mark.parametrize("how", ["victims: managed", "protected namespace", "raised priority"])
def test_pods_that_are_not_managed_are_spared_once_the_policy_spares_them(how: str) -> None:
    """A budget refused their eviction, so they are still there: the preemptor waits again, and nobody is tried."""
    policy = "preemption: {mode: lower-priority, after: 10s, victims: all}\n"
    cluster = PreemptingCluster(policy=policy, racks=1)
    web = cluster.outsider("web", "b0-r0-h0", priority=-1)
    cluster.leader.hands.deaf = True
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    assert cluster.intent("high").active
    tried = cluster.ended()
    if how == "raised priority":
        cluster._change(web, spec=replace(web.spec, priority=200))
    else:
        other = "victims: managed" if how == "victims: managed" else "victims: all, protect: {namespaces: [default]}"
        policy = f"preemption: {{mode: lower-priority, after: 10s, {other}}}\n"
        cluster.leader.view.set_policy(PreemptingCluster(policy=policy).leader.view.policy)
    cluster.wait(100)
    assert cluster.ended() == tried
    assert not cluster.intent("high").active


def test_an_intent_that_names_a_pod_that_may_not_end_ends_nobody() -> None:
    """Whoever has written it: pods of system namespaces, of DaemonSets, and of higher priority are never evicted."""
    policy = "preemption: {mode: lower-priority, after: 10s, victims: all}\n"
    for namespace, kind, priority in (("kube-system", "ReplicaSet", -1), ("a", "DaemonSet", -1), ("a", "Job", 200)):
        cluster = PreemptingCluster(policy=policy, racks=1)
        cluster.outsider("web", "b0-r0-h0", priority=-1)
        cluster.leader.hands.deaf = True
        cluster.submit("high", 2, priority=100)
        cluster.go_on(11)
        other = cluster.outsider("other", "b0-r0-h1", priority=priority)
        assert other.owner is not None
        cluster.leader.stores.pods.apply("DELETED", other)
        other = replace(other, namespace=namespace, uid="uid-other", owner=replace(other.owner, kind=kind))
        cluster.leader.has(other)
        plan = next(one for one in cluster.leader.stores.placements.values() if "high" in one.name)
        intent = {**plan.status["preemption"], "pods": [{"uid": other.uid, "host": "b0-r0-h1"}]}
        version = cluster.leader.hands.version()
        cluster.leader.has(replace(plan, status={**plan.status, "preemption": intent}, resource_version=version))
        cluster.wait(100)
        assert "evict other" not in cluster.ended()


def test_pods_that_are_not_managed_stay_otherwise() -> None:
    """By default only gangs end."""
    cluster = PreemptingCluster(racks=1)
    cluster.outsider("web", "b0-r0-h0", priority=-1)
    cluster.submit("high", 2, priority=100)
    cluster.wait(100)
    assert cluster.ended() == []


def test_room_that_comes_anyway_is_waited_for() -> None:
    """Pods that terminate make it: nobody else ends."""
    cluster = full()
    cluster.lingering = True
    cluster.delete("low-1")
    cluster.submit("high", 2, priority=100)
    cluster.wait(60)
    assert cluster.ended() == []
    cluster.lingering = False
    cluster.wait(10)
    assert cluster.runs("high", "low-0")


def test_a_victim_that_was_placed_again_is_another_gang() -> None:
    """The intent names an assignment: one that came later is not touched."""
    cluster = full()
    cluster.submit("high", 2, priority=100)
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(11)
    placed = cluster.leader.placed("low-0")
    assert placed is not None
    hands = cluster.leader.hands
    other = replace(placed.assignment, revision=placed.assignment.revision + 5)
    hands.put(replace(placed, assignment=other))
    cluster.leader.hands.broken.clear()
    tried = len(cluster.ended())
    cluster.go_on(20)
    assert cluster.runs("low-0")
    assert len(cluster.ended()) == tried


@pytest.mark.parametrize("suspendable", [True, False], ids=["suspended", "evicted"])
@pytest.mark.parametrize("after", range(0, 12))
def test_the_next_leader_continues_at_any_step(suspendable: bool, after: int) -> None:
    """However many actions the last one has finished: the gang starts, and nobody ends twice for it."""
    cluster = full(suspendable=suspendable)
    cluster.submit("high", 2, priority=100)
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
    cluster.wait(60)
    assert cluster.runs("high", "low-1"), (cluster.message("high"), cluster.ended())
    assert len(cluster.ended()) == len(set(cluster.ended())) == (1 if suspendable else 2)


def test_a_leader_that_lost_its_lease_touches_nobody() -> None:
    """Its intent was not written: the next one decides anew."""
    cluster = full()
    cluster.submit("high", 2, priority=100)
    cluster.go_on()
    cluster.leader.hands.broken["tell"] = not_leader
    cluster.leader.now += 11
    cluster.leader.turn()
    cluster.leader.work()
    assert cluster.ended() == []
    cluster.leader.hands.broken.clear()
    cluster.wait(30)
    assert cluster.runs("high", "low-1")


def test_an_annotation_spares_a_gang_where_the_policy_allows_it() -> None:
    """Also one that was named before it was annotated."""
    policy = "preemption: {mode: lower-priority, after: 10s, protect: {annotated: true}}\n"
    cluster = full(policy=policy)
    cluster.submit("high", 2, priority=100)
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(11)
    assert cluster.intent("high").active
    gang = cluster.workload("low-0")
    spared = {**gang.annotations, names.PREEMPTIBLE: "false"}
    cluster.leader.has(replace(gang, annotations=spared, resource_version=cluster.leader.hands.version()))
    cluster.leader.hands.broken.clear()
    cluster.wait(60)
    assert cluster.runs("low-0", "high")


def test_a_gang_whose_class_preempts_nobody_waits() -> None:
    """`preemptionPolicy: Never` counts as for the scheduler."""
    cluster = full()
    patient = PriorityClass("patient", 100, default=False, preempts=False)
    cluster.leader.stores.priority_classes.apply("ADDED", patient)
    cluster.submit("high", 2, priority_class="patient")
    cluster.wait(120)
    assert cluster.ended() == []
    eager = replace(patient, preempts=True)
    cluster.leader.stores.priority_classes.apply("MODIFIED", eager)
    cluster.submit("eager", 2, priority_class="patient")
    cluster.wait(120)
    assert cluster.ended() != []


@pytest.mark.parametrize(
    "words",
    [
        "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.",
    ],
    ids=["the pod", "the host"],
)
def test_a_gang_whose_pods_are_not_bound_after_a_preemption_rests_longer_every_time(words: str) -> None:
    """The victim gets its hosts back; in four hours it ends a dozen times at most."""
    cluster = full()
    cluster.refuses["high"] = words
    cluster.submit("high", 2, priority=100)
    cluster.wait(50)
    assert cluster.intent("high").attempts == 1
    cluster.wait(4 * 3600.0, every=20)
    victims = [one for one in cluster.ended() if one != "suspend high"]
    assert 5 <= len(victims) <= 13
    assert cluster.intent("high").attempts == len(victims)
    assert "other gangs have ended for it in vain" in cluster.message("high")
    assert "its pods did not start" in cluster.message("high")
    cluster.refuses.clear()
    cluster.wait(1900, every=20)
    assert cluster.leader.status("high")[0] == "Running"
    assert cluster.intent("high").attempts == 0


def test_a_gang_of_higher_priority_takes_what_another_one_has_made_free() -> None:
    """It needs no victims of its own; the other one says why it did not start, and rests before it tries again."""
    cluster = PreemptingCluster(racks=1)
    cluster.submit("low", 2)
    cluster.go_on()
    cluster.lingering = True
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    assert cluster.intent("high").active
    cluster.submit("higher", 2, priority=200)
    cluster.wait(15)
    assert cluster.ended() == ["suspend low"]
    cluster.lingering = False
    cluster.wait(50)
    assert cluster.runs("higher")
    assert cluster.ended() == ["suspend low"]
    assert not cluster.intent("high").active
    assert cluster.intent("high").attempts == 1
    assert "in vain: what has ended for it does not suffice any more" in cluster.message("high")


def test_a_preemptor_is_a_victim_of_a_gang_of_higher_priority() -> None:
    """What it has preempted itself is nobody's any more, and it starts again before that."""
    cluster = PreemptingCluster(racks=1)
    cluster.submit("low", 2)
    cluster.go_on()
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    cluster.submit("higher", 2, priority=200)
    cluster.wait(15)
    assert cluster.runs("higher")
    assert cluster.ended() == ["suspend low", "suspend high"]
    assert not cluster.intent("high").active
    cluster.finish("higher")
    cluster.wait(20)
    assert cluster.runs("high")
    assert cluster.ended() == ["suspend low", "suspend high"]


def test_a_victim_is_queued_at_its_old_age() -> None:
    """It goes before gangs of its priority that came after it."""
    cluster = PreemptingCluster(racks=1)
    cluster.submit("low", 2)
    cluster.go_on(5)
    cluster.submit("later", 2)
    cluster.submit("high", 2, priority=100)
    cluster.wait(15)
    assert cluster.runs("high")
    cluster.finish("high")
    cluster.wait(20)
    assert cluster.runs("low")
    assert cluster.hosts("later") == []


def test_a_victim_starts_elsewhere_if_there_is_room() -> None:
    """Its rack is needed; one host of another rack is enough for it."""
    cluster = PreemptingCluster(racks=2)
    cluster.submit("wide", 1, annotations={}, gpus=8)
    cluster.go_on(10)
    taken = cluster.hosts("wide")[0]
    other = "b0-r1" if taken.startswith("b0-r0") else "b0-r0"
    blocker = cluster.outsider("web", f"{other}-h0", priority=500)
    cluster.submit("high", 2, priority=100)
    cluster.wait(30)
    assert cluster.runs("high")
    assert cluster.ended() == ["suspend wide"]
    assert cluster.hosts("wide") == [f"{other}-h1"]
    assert blocker in cluster.on(f"{other}-h0")


def test_hosts_that_become_free_one_by_one_are_kept() -> None:
    """A small gang of the same priority would fit on the first of them."""
    cluster = PreemptingCluster(racks=1)
    cluster.submit("low", 2)
    cluster.go_on()
    cluster.lingering = True
    cluster.submit("high", 2, priority=100)
    cluster.go_on(11)
    assert cluster.ended() == ["suspend low"]
    cluster.submit("small", 1, priority=100)
    first, _ = sorted(cluster.pods("low"), key=lambda one: one.name)
    cluster.leader.stores.pods.apply("DELETED", first)
    cluster.go_on(5)
    assert cluster.hosts("small") == []
    assert cluster.reason("small") == "QueuedBehind"
    cluster.lingering = False
    cluster.wait(10)
    assert cluster.runs("high")


def test_a_victim_that_would_grow_meanwhile_ends_with_the_others() -> None:
    """It grows while the intent is not written yet; growth would give it another revision than the intent names."""
    cluster = PreemptingCluster(racks=1)
    cluster.leader.stores.nodes.replace(gpu_nodes(1, 1, 4))
    for name, pods, priority in (("grows", 2, 0), ("small", 1, 0), ("full", 1, 50)):
        cluster.submit(name, pods, priority=priority)
        cluster.go_on(2)
    job = cluster.workload("grows")
    job = replace(job, generation=2, resource_version=cluster.leader.hands.version())
    cluster.leader.has(changed(job, slots=3, total=3, remaining=3))
    cluster.go_on(2)
    cluster.submit("high", 3, priority=10)
    while key_of(cluster.workload("high")) not in cluster.leader.controller._term.preempting:
        cluster.leader.settle(5)
        cluster.leader.now += 1
        cluster.leader.turn()
    cluster.delete("full")  # room to grow
    cluster.kubelets()
    cluster.leader.turn()
    cluster.wait(10)
    assert cluster.runs("high")
    assert sorted(cluster.ended()) == ["suspend grows", "suspend small"]


def test_an_intent_of_before_the_gang_was_placed_ends_nobody() -> None:
    """The leader ended before it wrote the status, and the gang has lost its slots again since."""
    cluster = full()
    cluster.submit("high", 2, priority=100, suspendable=False)
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(11)
    assert cluster.intent("high").active
    cluster.finish("low-1")
    cluster.leader.settle()
    placed = cluster.leader.placed("high")
    assert placed is not None
    assert placed.assignment is not None
    assert cluster.intent("high").active
    cluster.leader.hands.put(replace(placed, assignment=None))
    cluster.leader.hands.broken.clear()
    tried = len(cluster.ended())
    cluster.another_leader()
    cluster.wait(30)
    assert cluster.runs("high", "low-0")
    assert len(cluster.ended()) == tried


def test_a_victim_whose_priority_was_raised_is_spared() -> None:
    """Its PriorityClass is another one by the time that it was to end."""
    cluster = PreemptingCluster(racks=1)
    low = PriorityClass("low", 1, default=False)
    for one in (low, PriorityClass("high", 100, default=False)):
        cluster.leader.stores.priority_classes.apply("ADDED", one)
    cluster.submit("low", 2, priority_class="low")
    cluster.go_on()
    assert cluster.runs("low")
    cluster.submit("high", 2, priority_class="high")
    cluster.leader.hands.broken["suspend"] = unavailable
    cluster.go_on(11)
    assert cluster.intent("high").active
    cluster.leader.stores.priority_classes.apply("MODIFIED", replace(low, value=100))
    cluster.leader.hands.broken.clear()
    tried = len(cluster.ended())
    cluster.wait(60)
    assert cluster.runs("low")
    assert len(cluster.ended()) == tried
    assert not cluster.intent("high").active
