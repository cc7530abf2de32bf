"""Gangs: place, phase, the queue as the leader sees it, the planner's answer now, and when they can start."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.api import names
from engine.gang.summary import place_text
from engine.resources.selectors import parse_selector
from engine.scheduler.outcome import Waits
from tests.support.golden import golden
from tests.support.simulation import RACK, Json, grid, job, pod, policy_map, priority_class
from tests.support.snapshots import START, TAKEN, busy_cluster, placed, runs, snapshot, waiting_placement, waits
from tests.unit.queries.test_topologies import printed
from webhook.commands.gangs import SORTS as OPTION
from webhook.explanations.fits import fits
from webhook.queries.forecast import endings, forecasts, plan_now
from webhook.queries.gangs import QUEUE, SORTS, gangs, waiting_gangs
from webhook.queries.model import GangAnswer, GangsAnswer
from webhook.queries.subject import GangFilter, SubjectProblem
from webhook.queries.topologies import topologies
from webhook.snapshot.snapshot import Snapshot, Unread
from webhook.terminal.text import gangs_text

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "gangs.schema.json").read_text())


def by_name(answer: GangsAnswer) -> dict[str, GangAnswer]:
    return {one.name: one for one in answer.gangs}


def test_the_tables() -> None:
    busy = snapshot(busy_cluster())
    tenant = replace(busy, unread=(Unread("pods", except_in="alice"),))
    golden(
        "gangs",
        {
            "of all namespaces": printed(gangs_text(gangs(busy), namespaces=True)),
            "of all namespaces, wide": printed(gangs_text(gangs(busy), namespaces=True, wide=True)),
            "of one namespace": printed(gangs_text(gangs(busy, namespace="bob"), namespaces=False)),
            "pods of other namespaces cannot be read": printed(
                gangs_text(gangs(tenant, namespace="alice"), namespaces=False, wide=True)
            ),
            "none": printed(gangs_text(gangs(busy, namespace="carol"), namespaces=False)),
        },
    )


def test_waiting_gangs_come_first_in_the_order_of_the_queue() -> None:
    """By priority, then age; a position counts all namespaces, whichever are shown; who never fits does not queue."""
    objects = [
        *busy_cluster(),
        priority_class("high", 1000),
        waits("urgent", 4, {"require": "rack"}, minute=28, namespace="bob"),
    ]
    objects[-1]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    found = gangs(snapshot(objects))
    assert [one.name for one in found.gangs] == ["urgent", "wide", "later", "small", "huge", "train"]
    assert [(one.position, one.queued) for one in found.gangs[:4]] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.gangs[0].priority == 1000
    assert {(one.name, one.position, one.queued) for one in found.gangs[4:]} == {
        ("huge", None, None),
        ("train", None, None),
    }
    assert [one.position for one in gangs(snapshot(objects), namespace="alice").gangs] == [2, 4, None, None]


def test_the_answer_is_the_planners_and_not_the_stored_message() -> None:
    """A gang that waits by its status fits now; one whose numbers have changed gets those of this moment."""
    found = by_name(gangs(snapshot(busy_cluster())))
    assert (found["wide"].reason, found["wide"].fits_now) == ("Fragmented", False)
    assert found["wide"].message.startswith("needs 4 hosts in one rack; best is b1-r0 with 2")
    assert found["small"].fits_now is True
    assert found["small"].message.endswith("would place 2 pods in b1 / b1-r0 (2 hosts)")
    assert found["huge"].reason == "GangTooLarge"
    assert found["small"].waiting_seconds == 600


def test_a_gang_waits_for_as_long_as_its_turn_counts() -> None:
    """Suspended and resumed, it keeps its place in the queue, and so its age; requeued it loses both."""
    status = {"waitingSince": "2026-01-01T00:29:00Z"}
    requeued = {"requeuedAt": "2026-01-01T00:25:00Z", "waitingSince": "2026-01-01T00:29:00Z"}
    objects = [*grid(1, 1, 1), *runs("fill", ["b0-r0-h0"])]
    for name, known in (("resumed", status), ("requeued", requeued)):
        objects += [waits(name, 1, {"require": "rack"}, minute=10), waiting_placement(name, **known)]
    found = gangs(snapshot(objects)).gangs
    assert [(one.name, one.waiting_seconds) for one in found] == [("resumed", 1200), ("requeued", 300)]


def test_a_workload_without_pods_of_its_own_is_no_failure_of_the_others() -> None:
    """As a RayJob that uses another cluster, with a request from before the webhook refused that."""
    ray_job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": "borrows",
            "namespace": "alice",
            "uid": "borrows",
            "creationTimestamp": START,
            "annotations": {names.REQUIRE: "rack", names.HELD_BY: names.HELD_BY_SUSPEND},
        },
        "spec": {
            "suspend": True,
            "clusterSelector": {"ray.io/cluster": "other"},
            "submitterPodTemplate": {"spec": {"containers": [{"name": "main", "image": "example.com/submit"}]}},
        },
    }
    found = gangs(snapshot([*busy_cluster(), priority_class("system-node-critical", 2_000_001_000), ray_job]))
    borrows = by_name(found)["borrows"]
    assert (borrows.reason, borrows.priority, borrows.pods.wanted) == ("WaitingForMembers", 0, 0)
    assert by_name(found)["train"].phase == "Running"


def test_a_gang_with_slots_tells_where_it_is() -> None:
    train = by_name(gangs(snapshot(busy_cluster())))["train"]
    assert (train.phase, train.place, train.gpus) == ("Running", "b0/b0-r0", 24)
    assert (train.pods.bound, train.pods.wanted) == (2, 3)
    assert train.hosts == ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2")
    assert train.domains == (("b0", "b0-r0"),)
    assert (train.start, train.waiting_seconds, train.fits_now) == (None, None, None)


def test_a_start_is_known_where_what_runs_declares_its_end() -> None:
    """`fill` holds three hosts of rack b0-r1 until 01:00; the first in the queue gets the rack, the second does not."""
    found = by_name(gangs(snapshot(busy_cluster())))
    wide, later = found["wide"].start, found["later"].start
    assert wide is not None
    assert later is not None
    assert (wide.by, wide.after) == ("2026-01-01T01:00:00Z", ("others/job/fill",))
    assert (later.by, later.after) == (None, ())
    assert found["huge"].start is None


def test_gangs_with_deadlines_end_with_all_they_hold() -> None:
    """A gang's reservations go with it, and one whose deadline is over counts as ending now."""
    objects = [
        *grid(1, 1, 2),
        *placed("train", {"b0-r0-h0": ("b0/b0-r0", 1), "b0-r0-h1": ("b0/b0-r0", 1)}, bound=1),
        waits("next", 2, {"require": "rack"}),
    ]
    objects[2]["spec"]["activeDeadlineSeconds"] = 60
    found = by_name(gangs(snapshot(objects)))
    start = found["next"].start
    assert start is not None
    assert (start.by, start.after) == ("2026-01-01T00:30:00Z", ("alice/job/train",))


def test_what_is_placed_meanwhile_takes_its_room_from_those_behind() -> None:
    """Two racks come free one after the other: each for the next in the queue."""
    objects = [
        *grid(1, 2, 2),
        *runs("first", ["b0-r0-h0", "b0-r0-h1"], deadline=3600),
        *runs("second", ["b0-r1-h0", "b0-r1-h1"], deadline=7200),
        *(waits(f"w{number}", 2, {"require": "rack"}, minute=number) for number in range(3)),
    ]
    starts = [one.start.by if one.start else "" for one in gangs(snapshot(objects)).gangs]
    assert starts == ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z", None]


@pytest.mark.parametrize(
    ("count", "limits"), [(5, {}), (2, {"pods": 1})], ids=["more than the hosts", "more than the quota"]
)
def test_in_strict_order_nobody_waits_for_a_gang_that_no_end_helps(count: int, limits: dict[str, int]) -> None:
    """The leader has not planned it yet, because another one goes first."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "bob"}}
    objects = [
        *grid(1, 1, 4),
        policy_map("queue: {order: strict}\n"),
        *runs("fill", [f"b0-r0-h{number}" for number in range(4)], deadline=3600),
        waits("first", 2, {"require": "rack"}, minute=1),
        waiting_placement("first"),
        waits("stuck", count, {"require": "rack"}, minute=2, namespace="bob"),
        waiting_placement("stuck", namespace="bob", reason="QueuedBehind"),
        waits("last", 2, {"require": "rack"}, minute=3),
        waiting_placement("last", reason="QueuedBehind"),
        *([quota | {"spec": {"hard": limits}, "status": {"hard": limits, "used": {"pods": 0}}}] if limits else []),
    ]
    found = by_name(gangs(snapshot(objects)))
    starts = {name: one.start.by if one.start else "" for name, one in found.items() if name != "fill"}
    an_hour_later = "2026-01-01T01:00:00Z"
    assert {"first": an_hour_later, "last": an_hour_later}.items() <= starts.items()
    assert not starts["stuck"]


FAIR = "queue: {fairness: {mode: namespaces}}\n"


def test_what_is_placed_meanwhile_counts_in_a_fair_order() -> None:
    """The first gang of a namespace lets that of another one go before the second, as the leader plans them."""
    waiting = [
        waits("a0", 1, {"require": "rack"}, minute=1),
        waits("a1", 1, {"require": "rack"}, minute=2),
        waits("b0", 1, {"require": "rack"}, minute=3, namespace="bob"),
    ]
    cluster = [*grid(1, 1, 2), policy_map(FAIR)]
    now = by_name(gangs(snapshot([*cluster, *waiting])))
    assert [name for name, one in now.items() if one.fits_now] == ["a0", "b0"]
    later = by_name(gangs(snapshot([*cluster, *runs("fill", ["b0-r0-h0", "b0-r0-h1"], deadline=3600), *waiting])))
    starts = {name: one.start.by if one.start else "" for name, one in later.items()}
    assert starts == {"a0": "2026-01-01T01:00:00Z", "a1": None, "b0": "2026-01-01T01:00:00Z"}


def test_what_has_ended_meanwhile_counts_in_a_fair_order() -> None:
    """A namespace goes first from the moment on at which it uses less, however old the gangs of others are."""
    objects = [
        *grid(1, 1, 3),
        policy_map(FAIR),
        *runs("first", ["b0-r0-h0", "b0-r0-h1"], deadline=3600, namespace="bob"),
        *runs("second", ["b0-r0-h2"], deadline=7200, namespace="alice"),
        waits("a0", 2, {"require": "rack"}, minute=1),
        waits("b0", 2, {"require": "rack"}, minute=2, namespace="bob"),
    ]
    found = by_name(gangs(snapshot(objects)))
    assert {name: one.start.by if one.start else "" for name, one in found.items()} == {
        "a0": None,
        "b0": "2026-01-01T01:00:00Z",
    }


def test_pods_that_end_count_as_work_of_a_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pods end, and two more an hour later: each needs as much of the bound as a plan here."""
    monkeypatch.setattr("webhook.queries.forecast._PODS_A_PLAN", 1)
    objects = [
        *grid(1, 2, 2),
        *runs("first", ["b0-r0-h0", "b0-r0-h1"], deadline=3600),
        *runs("second", ["b0-r1-h0", "b0-r1-h1"], deadline=7200),
        *(waits(f"w{number}", 2, {"require": "rack"}, minute=number) for number in range(2)),
    ]
    found = snapshot(objects)
    waiting = sorted(waiting_gangs(found), key=lambda one: one.workload.name)

    def known(plans: int) -> list[bool]:
        planned = forecasts(found, waiting, plans=plans)
        return [planned[one.key].by is not None for one in waiting]

    assert (known(4), known(6), known(9)) == ([False, False], [True, False], [True, True])


def test_pods_without_an_owner_end_by_their_own_deadline() -> None:
    bare = pod("bare", "b0-r0-h0", uid="bare")
    bare["spec"]["activeDeadlineSeconds"] = 3600
    bare["status"]["startTime"] = "2026-01-01T00:00:00Z"
    owned = json.loads(json.dumps(bare)) | {"metadata": {"name": "owned", "namespace": "others", "uid": "owned"}}
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    ]
    owned["spec"]["nodeName"] = "b0-r0-h1"
    found = endings(snapshot([*grid(1, 1, 2), bare, owned]))
    assert [(one.at, one.name) for one in found] == [(TAKEN + 1800, "others/pod/bare")]  # the other is made again


def test_a_forecast_leaves_the_state_as_it_was() -> None:
    found = snapshot(busy_cluster())

    def state(one: Snapshot) -> object:
        hosts = [host.name for host in one.view.stores.nodes.values()]
        placements = sorted(item.key for item in one.view.stores.placements.values())
        return {host: one.view.capacity.free(host) for host in hosts}, placements, one.view.gangs.keys()

    before = state(found)
    first = gangs(found)
    assert state(found) == before
    assert gangs(found) == first
    assert gangs(snapshot(busy_cluster())) == first


def test_the_work_of_a_forecast_is_bounded() -> None:
    found = snapshot(busy_cluster())
    waiting = sorted(waiting_gangs(found), key=lambda gang: gang.workload.created)
    assert len(forecasts(found, waiting, plans=2)) == 2
    assert forecasts(found, waiting, plans=0) == {}


def test_what_a_tenant_may_not_know_is_left_out() -> None:
    """Without the pods of others no position, no start: the stored reason is all there is."""
    tenant = replace(snapshot(busy_cluster()), unread=(Unread("pods", except_in="alice"),))
    wide = by_name(gangs(tenant, namespace="alice"))["wide"]
    assert (wide.reason, wide.message) == ("Fragmented", "old")
    assert (wide.position, wide.queued, wide.start, wide.fits_now) == (None, None, None, None)


def test_a_tenant_reads_his_place_from_the_placement() -> None:
    """The leader sees all gangs. Who reads all pods gets the answer of this moment instead."""
    whole = snapshot(busy_cluster())
    status = {"phase": "Waiting", "reason": "Fragmented", "queuePosition": 7, "queueLength": 9}
    for known in list(whole.view.stores.placements.values()):
        if known.workload.name == "wide":
            whole.view.stores.placements.apply_own_write(replace(known, status=status, resource_version="999999"))
    whole.view.refresh()
    tenant = replace(whole, unread=(Unread("pods", except_in="alice"),))
    wide = by_name(gangs(tenant, namespace="alice"))["wide"]
    assert (wide.position, wide.queued, wide.start) == (7, 9, None)
    now = by_name(gangs(whole))["wide"]
    assert now.position is not None
    assert now.queued not in (None, 9)


def test_a_level_that_only_seems_to_be_wrong_is_no_error() -> None:
    """Without the nodes, or with the default policy in place of the unknown one, no request is called invalid."""
    objects = [*busy_cluster(), waits("odd", 2, {"require": "zone"}), waiting_placement("odd")]
    assert by_name(gangs(snapshot(objects)))["odd"].reason == "UnknownLevel"
    for collection in ("nodes", "configmaps"):
        seen = [one for one in objects if collection != "nodes" or one["kind"] != "Node"]
        odd = by_name(gangs(replace(snapshot(seen), unread=(Unread(collection),))))["odd"]
        assert (odd.reason, odd.message) == ("Fragmented", "old")


def test_suspended_and_invalid_gangs_wait_and_do_not_queue() -> None:
    stopped = job("stopped", 2, {"require": "rack"}, suspend=True)
    stopped["metadata"] |= {"uid": "stopped", "namespace": "alice"}
    wrong = waits("wrong", 2, {"require": "rak"})
    found = by_name(gangs(snapshot([*grid(1, 1, 4), stopped, wrong, waits("good", 2, {"require": "rack"})])))
    assert (found["wrong"].reason, found["wrong"].position) == ("UnknownLevel", None)
    assert "allowed: block, rack, host" in found["wrong"].message
    assert found["stopped"].position is None
    assert (found["good"].position, found["good"].queued) == (1, 1)


@pytest.mark.parametrize(
    ("reason", "since"),
    [("StartLimitExceeded", "5 starts in a row have failed"), ("ScheduleTimeout", "it has waited for 1h")],
)
def test_a_gang_that_was_given_up_is_not_said_to_fit(reason: str, since: str) -> None:
    """The leader does not plan it: it has no place in the queue and takes no room from those behind it."""
    objects = [
        *grid(1, 1, 2),
        waits("ended", 2, {"require": "rack"}),
        waiting_placement("ended", reason=reason, message=since),
        waits("next", 2, {"require": "rack"}, minute=20),
    ]
    found = by_name(gangs(snapshot(objects)))
    assert (found["ended"].reason, found["ended"].message) == (reason, since)
    assert (found["ended"].fits_now, found["ended"].position, found["ended"].start) == (False, None, None)
    assert (found["next"].fits_now, found["next"].position, found["next"].queued) == (True, 1, 1)


def test_a_gang_starts_when_others_end_though_one_ahead_is_kept_waiting_by_its_own_pods() -> None:
    """The answer of that one is none for a gang of the same shape whose pods keep nobody away."""
    apart = waits("apart", 2, {"require": "rack"}, minute=10)
    template = apart["spec"]["template"]
    template["metadata"] = {"labels": {"app": "x"}}
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "x"}}}
    template["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster = [*grid(1, 1, 2), *runs("old", ["b0-r0-h0", "b0-r0-h1"], deadline=3600)]
    found = by_name(gangs(snapshot([*cluster, apart, waits("behind", 2, {"require": "rack"}, minute=20)])))
    assert found["apart"].start.by is None
    assert found["behind"].start.by == "2026-01-01T01:00:00Z"


def test_no_size_is_proposed_to_a_gang_of_which_fewer_pods_need_a_finer_level() -> None:
    """`auto` means the block for five pods, and the rack for four: the block has room for four, no rack has."""
    used = [pod(f"p-{host}", host) for host in ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1")]
    taken = snapshot([*grid(1, 2, 4), *used, waits("train", 5, {"require": "auto"})])
    gang = taken.view.gangs.get("train")
    assert gang is not None
    outcome = plan_now(taken, gang)
    assert isinstance(outcome, Waits)
    assert outcome.shortage is not None
    assert (outcome.shortage.have, outcome.shortage.proposal) == (4, None)


def test_a_pod_group_takes_its_room_before_those_behind_it() -> None:
    """Its members are planned together: now, or when something has ended; the next gang does not get the same hosts."""
    asks = {"unconstrained": "true", names.POD_GROUP: "g", names.MIN_AVAILABLE: "4"}
    members = [waits("first", 2, asks), waits("second", 2, asks, minute=11)]
    behind = waits("next", 4, {"require": "rack"}, minute=20)
    free = snapshot([*grid(1, 1, 4), *members, behind])
    found = by_name(gangs(free))
    assert [(found[name].fits_now, found[name].position) for name in ("first", "second")] == [(True, 1), (True, 2)]
    assert (found["next"].fits_now, found["next"].reason) == (False, "InsufficientFreeGPUs")
    assert by_name(gangs(free)) == found  # nothing of the trial is left

    ends = runs("fill", ["b0-r0-h0"], deadline=3600)
    found = by_name(gangs(snapshot([*grid(1, 1, 4), *ends, *members, behind])))
    for name in ("first", "second"):
        assert found[name].start is not None
        assert (found[name].fits_now, found[name].start.by) == (False, "2026-01-01T01:00:00Z")
    assert found["next"].start is not None
    assert found["next"].start.by is None


def test_a_member_without_room_in_a_pod_group_that_starts_waits_alone() -> None:
    """Two pods are enough: the first member starts, the second is planned beside it, as by the leader."""
    asks = {"unconstrained": "true", names.POD_GROUP: "g", names.MIN_AVAILABLE: "2"}
    members = [waits("first", 2, asks), waits("second", 2, asks, minute=11)]
    found = by_name(gangs(snapshot([*grid(1, 1, 2), *members])))
    assert (found["first"].fits_now, found["second"].fits_now) == (True, False)
    assert found["second"].message.startswith("needs 1 of 2 hosts; none free")


def test_a_pod_group_that_lacks_pods_takes_no_room() -> None:
    asks = {"unconstrained": "true", names.POD_GROUP: "g", names.MIN_AVAILABLE: "4"}
    behind = waits("next", 4, {"require": "rack"}, minute=20)
    found = by_name(gangs(snapshot([*grid(1, 1, 4), waits("first", 2, asks), behind])))
    assert (found["first"].fits_now, found["next"].fits_now) == (None, True)


@pytest.mark.parametrize("reason", ["StartTimeout", "SchedulerRefused", "HoldExpired", "PodsNotReady"])
def test_a_gang_that_failed_to_start_is_not_said_to_fit_during_its_pause(reason: str) -> None:
    """The leader plans it again later, and gives its room to those behind it until then; why stays to be read."""
    said = "1 pod not ready on b0-r0-h0; start 1 of 3 has failed: it is planned again in 1m"
    objects = [
        *grid(1, 1, 2),
        waits("failed", 2, {"require": "rack"}),
        waiting_placement("failed", reason=reason, message=said),
        waits("next", 2, {"require": "rack"}, minute=20),
    ]
    found = by_name(gangs(snapshot(objects)))
    assert (found["failed"].reason, found["failed"].message) == (reason, said)
    assert (found["failed"].fits_now, found["failed"].start) == (False, None)
    assert found["next"].fits_now


def test_pods_that_never_came_are_waited_for() -> None:
    """A Deployment cannot be suspended: after HoldExpired it is planned when one of its pods is created."""
    spec = {"schedulingGates": [{"name": names.GATE}], "containers": [{"name": "main"}]}
    serve = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "namespace": "alice", "uid": "serve", "annotations": {names.REQUIRE: "rack"}},
        "spec": {"replicas": 2, "template": {"spec": spec}},
    }
    held = waiting_placement("serve", reason="HoldExpired", message="no pod of it was created in 10m")
    held["spec"]["workload"] |= {"apiVersion": "apps/v1", "kind": "Deployment"}
    (one,) = gangs(snapshot([*grid(1, 1, 2), serve, held])).gangs
    assert (one.reason, one.fits_now, one.position) == ("HoldExpired", False, None)


def test_a_suspended_gang_says_so_before_the_leader_does() -> None:
    stopped = waits("stopped", 2, {"require": "rack"})
    del stopped["metadata"]["annotations"][names.HELD_BY]
    for placement in ([], [waiting_placement("stopped")]):
        (one,) = gangs(snapshot([*grid(1, 1, 2), stopped, *placement])).gangs
        assert (one.reason, one.fits_now, one.position) == ("Suspended", False, None)


def test_what_is_let_go_is_no_gang() -> None:
    """In mode observe nothing is held; nor is a Job that is older than its request, or its pods."""
    running = placed("train", {"b0-r0-h0": ("b0/b0-r0", 1)}, bound=1)
    old = job("old", 2, {"require": "rack"})
    old["metadata"] |= {"namespace": "alice", "uid": "old"}
    waiting = [*grid(1, 1, 4), *running, waits("w", 2, {"require": "rack"}), waiting_placement("w"), old]
    assert [one.name for one in gangs(snapshot(waiting)).gangs] == ["w", "train"]
    assert [one.name for one in gangs(snapshot([*waiting, policy_map("mode: observe\n")])).gangs] == ["train"]


def test_jobs_that_ask_for_nothing_are_no_gangs() -> None:
    assert gangs(snapshot([*grid(1, 1, 1), *runs("fill", ["b0-r0-h0"])])).gangs == ()


@pytest.mark.parametrize(
    ("domains", "hosts", "levels", "text"),
    [
        ([("b0", "r1")], ["h1", "h2"], ("block", "rack"), "b0/r1"),
        ([("b0", "r1"), ("b0", "r2")], ["h1", "h2"], ("block", "rack"), "b0 (2 racks)"),
        ([("b0", "r1"), ("b1", "r1")], ["h1", "h2"], ("block", "rack"), "2 blocks"),
        ([()], ["h1"], (), "h1"),
        ([()], ["h1", "h2"], (), "2 hosts"),
        ([("b0", "r1")], ["h1", "h2"], (), "b0/r1"),  # the topology has gone
        ([("b0", "r1"), ("b0", "r2")], ["h1", "h2"], ("rack",), "b0 (2 domains)"),  # a level was dropped
        ([("r1",), ("r2",)], ["h1", "h2"], ("block", "rack"), "2 domains"),  # a level was added
        ([], [], ("block",), ""),
    ],
)
def test_a_place_in_short(domains: list[tuple[str, ...]], hosts: list[str], levels: tuple[str, ...], text: str) -> None:
    assert place_text(domains, hosts, levels) == text


def test_a_tenant_without_the_nodes_sees_the_racks_of_the_placement() -> None:
    """Without them the levels have no names here; the leader has written where the gang is."""
    slots = {f"b0-r{rack}-h0": (f"b0/b0-r{rack}", 1) for rack in range(2)}
    running = placed("train", slots, bound=2, columns={"place": "b0 (2 racks)"})
    tenant = replace(snapshot(running), unread=(Unread("nodes"),))
    assert by_name(gangs(tenant))["train"].place == "b0 (2 racks)"
    assert by_name(gangs(replace(snapshot(placed("train", slots, bound=2)))))["train"].place == "b0 (2 domains)"
    stale = placed("train", slots, bound=2, columns={"place": "2 hosts"})
    assert by_name(gangs(snapshot([*grid(1, 2, 1), *stale])))["train"].place == "b0 (2 racks)"


def chosen(found: Snapshot, *words: str, selector: str = "*", **options: Any) -> list[str]:
    only = GangFilter.of(found, words, parse_selector(selector))
    return [one.name for one in gangs(found, only=only, **options).gangs]


def test_gangs_are_chosen_by_name_and_kind() -> None:
    found = snapshot(busy_cluster())
    assert chosen(found, "wide", "job/train") == ["wide", "train"]
    assert chosen(found, "jobs.batch/wide", "deploy/train") == ["wide"]
    assert chosen(found, "later", namespace="alice") == []
    answer = gangs(found, only=GangFilter.of(found, ["wid", "train"]))
    assert (answer.gangs[0].name, answer.remarks[-1]) == ("train", 'no gang "wid"; did you mean "wide"?')
    with pytest.raises(SubjectProblem, match='no kind "jobb"'):
        GangFilter.of(found, ["jobb/train"])


def test_gangs_are_chosen_by_all_labels_of_their_workload() -> None:
    """Also by those that Topogate does not read, and by those of plain pods."""
    team = {"wide": {"team": "a", "stage": "test"}, "train": {"team": "a"}}
    found = replace(snapshot(busy_cluster()), labels=team)
    assert chosen(found, selector="team=a") == ["wide", "train"]
    assert chosen(found, selector="team=a,stage!=test") == ["train"]
    assert chosen(found, selector="!team") == ["later", "small", "huge"]
    assert chosen(found, "train", selector="stage") == []


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("queue", ["wide", "later", "small", "huge", "train"]),
        ("name", ["huge", "small", "train", "wide", "later"]),
        ("age", ["train", "wide", "later", "small", "huge"]),
        ("gpus", ["huge", "wide", "later", "train", "small"]),
        ("waiting", ["wide", "later", "small", "huge", "train"]),
    ],
)
def test_gangs_are_sorted(sort: str, expected: list[str]) -> None:
    assert {QUEUE, *SORTS} == set(OPTION)
    assert [one.name for one in gangs(snapshot(busy_cluster()), sort=sort).gangs] == expected


def test_the_output_fits_its_schema() -> None:
    answer = gangs(snapshot(busy_cluster()))
    document = json.loads(answer.model_dump_json(by_alias=True))
    jsonschema.validate(document, SCHEMA)
    assert GangsAnswer.model_validate(document) == answer


def test_ten_thousand_hosts_take_seconds() -> None:
    """2,000 Jobs with and without deadlines on 10,240 hosts, 100 gangs that wait; most of it is reading the files."""
    nodes = grid(16, 16, 40)
    hosts = [one["metadata"]["name"] for one in nodes]
    objects = list(nodes)
    for first in range(0, 8_000, 4):
        objects += runs(f"j{first}", hosts[first : first + 4], deadline=(None, 3600, 7200)[first % 3])
    objects += [waits(f"w{one}", (4, 16, 64)[one % 3], {"require": "rack"}, minute=one % 60) for one in range(100)]
    found = snapshot(objects)
    begun = time.process_time()
    (topology,) = topologies(found, level="host").topologies
    assert (topology.hosts, topology.gpus.used) == (10_240, 64_000)
    rows = gangs(found).gangs
    assert [one.position for one in rows if one.position] == list(range(1, 1 + sum(1 for one in rows if one.position)))
    assert fits(found, pods=16, gpus=8, require="rack").levels[1].largest_gang == 40
    assert time.process_time() - begun < 20  # three on a processor of 2025


def test_gangs_of_every_sort() -> None:
    """Replica groups one by one, several pod sets as one, pods by name and alone: each with its place in the queue."""
    asks = {names.REQUIRE: "rack"}
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    gate = {"schedulingGates": [{"name": names.GATE}], "containers": containers}
    template = {"spec": gate}

    def body(api_version: str, kind: str, name: str, spec: Json, **metadata: Any) -> Json:
        about = {"name": name, "namespace": "alice", "uid": name, "annotations": asks, "creationTimestamp": START}
        return {"apiVersion": api_version, "kind": kind, "metadata": about | metadata, "spec": spec}

    managed = {"labels": {names.MANAGED: "true"}}
    of_gang = {"annotations": asks | {names.GANG_NAME: "plain", names.GANG_SIZE: "2"}, **managed}
    per_job = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template}
    found = gangs(
        snapshot(
            [
                *grid(2, 2, 4),
                body("batch/v1", "Job", "job", per_job),
                body(
                    "leaderworkerset.x-k8s.io/v1",
                    "LeaderWorkerSet",
                    "serve",
                    {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
                ),
                body(
                    "jobset.x-k8s.io/v1alpha2",
                    "JobSet",
                    "set",
                    {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": per_job}}]},
                ),
                *(body("v1", "Pod", f"plain-{number}", gate, **of_gang) for number in range(2)),
                body("v1", "Pod", "single", gate, **managed),
            ]
        )
    )
    assert [(one.kind, one.name, one.group, one.pods.wanted, one.position) for one in found.gangs] == [
        ("Job", "job", None, 2, 1),
        ("Pod", "plain", None, 2, 2),
        ("LeaderWorkerSet", "serve", "0", 2, 3),
        ("LeaderWorkerSet", "serve", "1", 2, 4),
        ("JobSet", "set", None, 4, 5),
        ("Pod", "single", None, 1, 6),
    ]
    assert {one.gpus // one.pods.wanted for one in found.gangs} == {8}
    shown = printed(gangs_text(found, namespaces=False))
    assert "leaderworkerset/serve[1]" in shown


def test_replicas_of_one_workload_wait_in_the_order_of_their_indices() -> None:
    """As the leader plans them: what there is room for is for the first ones, not for the tenth before the second."""
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    template = {"spec": {"schedulingGates": [{"name": names.GATE}], "containers": containers}}
    serve = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": "alice", "uid": "serve", "creationTimestamp": START},
        "spec": {"replicas": 12, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}},
    }
    serve["metadata"]["annotations"] = {names.REQUIRE: "rack"}
    found = gangs(snapshot([*grid(1, 1, 3), serve])).gangs
    assert [one.group for one in found] == [str(number) for number in range(12)]
    assert [one.group for one in found if one.fits_now] == ["0", "1", "2"]


def test_kept_hosts_are_told_as_the_leader_does() -> None:
    """Unless the gang cannot fit at all: then nothing is kept for it any more."""
    objects = [
        *grid(1, 1, 4),
        *runs("fill", ["b0-r0-h0"]),
        waiting_placement("w", kept=["b0-r0-h1"], reason="RoomKept"),
    ]
    (one,) = gangs(snapshot([*objects, waits("w", 4, {"require": "rack"})])).gangs
    assert (one.reason, one.message, one.position) == ("RoomKept", "old", 1)
    (one,) = gangs(snapshot([*objects, waits("w", 40, {"require": "rack"})])).gangs
    assert (one.reason, one.position) == ("GangTooLarge", None)


def test_a_gang_for_which_others_end_says_so() -> None:
    """With the leader's reason, while its hosts are kept; its victims wait for what the planner says."""
    intent = {"since": START, "victims": [{"uid": "p-train", "revision": 1, "pods": 1, "priority": 0}]}
    kept = ["b0-r0-h0", "b0-r0-h1"]
    message = "1 gang of lower priority ends for it (1 pod): b0-r0 (2 hosts) kept free until it fits"
    cluster = [
        *grid(1, 1, 2),
        *placed("train", {"b0-r0-h0": ("b0/b0-r0", 1)}, bound=1),
        waits("urgent", 2, {"require": "rack"}),
        waiting_placement("urgent", kept=kept, reason="Preempting", message=message, preemption=intent),
    ]
    found = by_name(gangs(snapshot(cluster)))["urgent"]
    assert (found.phase, found.reason, found.message, found.fits_now) == ("Waiting", "Preempting", message, False)
    assert found.kept_hosts == tuple(kept)


def test_garbage_in_a_status_is_no_failure() -> None:
    objects = [*grid(1, 1, 1), waits("w", 2, {"require": "rack"}), waiting_placement("w")]
    for status in (
        {},
        {"phase": 7, "reason": ["x"], "message": {}},
        {"keptHosts": "b0", "waitingSince": "soon"},
        {"preemption": 5},
    ):
        objects[-1]["status"] = status
        (one,) = gangs(snapshot(objects)).gangs
        assert (one.name, one.phase) == ("w", "Waiting")
