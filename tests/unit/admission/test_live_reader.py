"""What the admission handlers are told of the ledger."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.objects import DaemonSet
from engine.api.pod import OwnerRef, Pod
from engine.api.resources import Requests
from engine.api.workload import PodSet
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import rank_of as gang_rank_of
from engine.gang.request import parse_request
from engine.gang.validation import checks
from engine.policy.model import default_policy
from tests.support.cluster_records import gpu_nodes, job, node, placement, pod, shape
from tests.support.cluster_records import spec as pod_spec
from tests.support.eventually import eventually
from webhook.admission import live_reader
from webhook.admission.concurrency import ReviewSlots
from webhook.admission.forecast_budget import ForecastBudget
from webhook.admission.live_reader import LiveReader

GANG = job(count=2)
GANG_NAME = placement(GANG, {}).name
REQUESTS: Requests = GANG.template.shape.requests
HOST, OTHER = (node.name for node in gpu_nodes(1, 1, 2))
STARTING = replace(placement(GANG, {HOST: 1, OTHER: 1}), status={"phase": "Placed"})
RUNNING = replace(STARTING, status={"phase": "Running"})
STRANGER = replace(pod(GANG, None, host=HOST, name="other"), owner=None)


@pytest.fixture
def view() -> ClusterState:
    """A gang of two pods of 8 GPUs, with a slot on each of two hosts; none of its pods exists yet."""
    found = ClusterState(Stores())
    found.stores.nodes.replace(gpu_nodes(1, 1, 2))
    found.stores.workloads.replace([GANG])
    found.stores.placements.replace([placement(GANG, {HOST: 1, OTHER: 1})])
    found.refresh()
    return found


@pytest.fixture
def told(view: ClusterState) -> LiveReader:
    return LiveReader(view, own_username="us", own_namespace="ours", policy_loaded=lambda: True)


def show(view: ClusterState, one: Pod, event: str = "MODIFIED") -> None:
    view.stores.pods.apply(event, replace(one, resource_version=str(int(one.resource_version) + 1)))


def test_a_slot_with_its_capacity_reserved_is_not_lost(view: ClusterState, told: LiveReader) -> None:
    """By the gang's own pod it is used instead: a slot counts once."""
    assert not told.slot_lost(STARTING, HOST, REQUESTS)
    show(view, pod(GANG, 0, host=HOST))
    view.refresh()
    assert not told.slot_lost(STARTING, HOST, REQUESTS)


def test_a_slot_is_lost_while_another_pod_uses_its_capacity(view: ClusterState, told: LiveReader) -> None:
    """On its host alone; that it is gone is looked up before a pod is held for it."""
    show(view, STRANGER)
    view.refresh()
    assert (told.slot_lost(STARTING, HOST, REQUESTS), told.slot_lost(STARTING, OTHER, REQUESTS)) == (True, False)
    view.stores.pods.apply("DELETED", replace(STRANGER, resource_version=str(int(STRANGER.resource_version) + 2)))
    assert not told.slot_lost(STARTING, HOST, REQUESTS)


def test_a_slot_on_a_host_that_nobody_knows_is_not_lost_to_others(told: LiveReader) -> None:
    """Whether the host exists is another question."""
    assert not told.slot_lost(STARTING, "nowhere", REQUESTS)


def test_a_slot_of_a_gang_that_has_started_is_judged_by_the_newest_news(view: ClusterState, told: LiveReader) -> None:
    """A pod that is replaced at once is looked at in the moment in which another one came to its host."""
    show(view, STRANGER)
    assert not told.slot_lost(STARTING, HOST, REQUESTS)
    assert told.slot_lost(RUNNING, HOST, REQUESTS)


def test_a_slot_is_lost_when_the_leader_is_about_to_write_others(view: ClusterState, told: LiveReader) -> None:
    """Nothing is reserved on its host from then on, so that the capacity there does not look taken."""
    show(view, STRANGER)
    view.refresh()
    newer = placement(GANG, {OTHER: 2}).assignment
    assert newer is not None
    view.assume(GANG.uid, replace(RUNNING, assignment=replace(newer, revision=2)))
    assert told.slot_lost(RUNNING, HOST, REQUESTS)


def test_only_a_gang_that_starts_goes_on_while_the_view_is_busy(
    view: ClusterState, told: LiveReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread keeps it for longer than a review waits. A replaced pod is held: the leader knows what is free."""
    monkeypatch.setattr(live_reader, "LEDGER_WAIT", 0.01)
    show(view, STRANGER)
    view.refresh()
    has, done = threading.Event(), threading.Event()

    def keep() -> None:
        with view.lock:
            has.set()
            done.wait(10)

    busy = threading.Thread(target=keep)
    busy.start()
    try:
        assert has.wait(10)
        assert not told.slot_lost(STARTING, HOST, REQUESTS)
        assert told.slot_lost(RUNNING, OTHER, REQUESTS)
    finally:
        done.set()
        busy.join()
    assert told.slot_lost(STARTING, HOST, REQUESTS)
    assert not told.slot_lost(RUNNING, OTHER, REQUESTS)


OWNER = OwnerRef(api_version="batch/v1", kind="Job", name="late", uid="late-uid", controller=True)
LATE = replace(GANG, name="late", uid="late-uid")


def awaited(told: LiveReader, what: str) -> object:
    if what == "owner":
        return told.await_owner(LATE.namespace, OWNER, math.inf)
    if what == "pod":
        return told.await_pod(STRANGER.namespace, STRANGER.name, math.inf)
    return told.await_revision(GANG.namespace, GANG.uid, 2, math.inf)


def bring(view: ClusterState, what: str) -> None:
    if what == "owner":
        view.stores.workloads.apply("ADDED", LATE)
    elif what == "pod":
        show(view, STRANGER)
    else:
        (known,) = view.stores.placements.values()
        assert known.assignment is not None
        newer = str(int(known.resource_version) + 1)
        view.stores.placements.apply(
            "MODIFIED", replace(known, resource_version=newer, assignment=replace(known.assignment, revision=2))
        )


@pytest.mark.parametrize("what", ["owner", "revision", "pod"])
def test_what_comes_while_a_review_waits_is_seen_at_once(
    view: ClusterState, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache wakes whoever waits for it; other reviews have his turn meanwhile."""
    monkeypatch.setattr(live_reader, "REVISION_WAIT", 60.0)
    turns = ReviewSlots(1)
    told = LiveReader(view, own_username="us", own_namespace="ours", policy_loaded=lambda: True, turns=turns)
    found: list[object] = []

    def review() -> None:
        with turns.turn():
            found.append(awaited(told, what))

    waiting = threading.Thread(target=review)
    waiting.start()
    eventually(lambda: told._arrivals._waiting)
    with turns.turn():
        bring(view, what)
    waiting.join(10)
    assert found and found[0]
    assert not told._arrivals._waiting


@pytest.mark.parametrize("what", ["owner", "revision"])
def test_what_does_not_come_is_waited_for_a_moment(
    view: ClusterState, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the pod is held; nobody is remembered as waiting."""
    monkeypatch.setattr(live_reader, "REVISION_WAIT", 0.01)
    turns = ReviewSlots(1)
    told = LiveReader(view, own_username="us", own_namespace="ours", policy_loaded=lambda: True, turns=turns)
    with turns.turn():
        assert not awaited(told, what)
    assert not told._arrivals._waiting


@pytest.mark.parametrize("what", ["owner", "revision"])
def test_nobody_waits_when_too_many_do(view: ClusterState, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is held at once, unless it is there already."""
    monkeypatch.setattr(live_reader, "REVISION_WAIT", 60.0)
    turns = ReviewSlots(1, places=0)
    told = LiveReader(view, own_username="us", own_namespace="ours", policy_loaded=lambda: True, turns=turns)
    with turns.turn():
        assert not awaited(told, what)
        bring(view, what)
        assert awaited(told, what)


ASKING = parse_request(GANG, policy=default_policy(), topologies={})


def forecast(told: LiveReader) -> object:
    return told.forecast(GANG, ASKING, math.inf)


def test_a_namespace_that_has_used_its_share_gets_no_forecast(view: ClusterState) -> None:
    """Another one does; so does everybody where nothing is shared out (`simulate`)."""
    view.stores.nodes.replace(view.stores.nodes.values())
    spent = ForecastBudget(cpu=iter((0.0, 100.0)).__next__)
    with spent.used(GANG.namespace):
        pass
    names = {"own_username": "us", "own_namespace": "ours"}
    assert forecast(LiveReader(view, policy_loaded=lambda: True, allowance=spent, **names)) is None
    assert forecast(LiveReader(view, policy_loaded=lambda: True, allowance=ForecastBudget(), **names)) is not None
    assert forecast(LiveReader(view, policy_loaded=lambda: True, **names)) is not None


def test_a_forecast_that_would_cost_too_much_is_not_made(view: ClusterState, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many requirements of the templates times nodes as one may look at, and one less."""
    told = LiveReader(
        view, own_username="us", own_namespace="ours", policy_loaded=lambda: True, allowance=ForecastBudget()
    )
    dear = len(view.stores.nodes) * checks(GANG.template.shape)
    monkeypatch.setattr(live_reader, "FORECAST_CHECKS", dear)
    assert forecast(told) is not None
    monkeypatch.setattr(live_reader, "FORECAST_CHECKS", dear - 1)
    assert forecast(told) is None


def owned(kind: str, api_version: str, uid: str) -> Pod:
    """A pod that asks for a GPU of a host of which all are reserved."""
    one = pod(job("x", count=1), None)
    spec = replace(one.spec, labels={names.MANAGED: "true"}, shape=shape(gpu=1))
    return replace(one, spec=spec, owner=OwnerRef(api_version, kind, "agent", uid, True))


@pytest.mark.parametrize(
    ("one", "free"),
    [
        (owned("DaemonSet", "apps/v1", "uid-agent"), True),
        (owned("DaemonSet", "apps/v1", "invented"), False),
        (owned("DaemonSet", "example.com/v1", "uid-agent"), False),
        (owned("ReplicaSet", "apps/v1", "uid-agent"), False),
    ],
)
def test_only_pods_of_gangs_and_daemon_sets_that_exist_get_reserved_capacity(one: Pod, free: bool) -> None:
    """An owner reference must name a DaemonSet that is there; a label proves nothing."""
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace([node("h0")])
    gang, other = job("train", count=8), job("other", count=1)
    stores.workloads.replace([gang, other])
    stores.placements.replace([placement(gang, {"h0": 8})])
    template = pod_spec(shape=shape(gpu=1))
    stores.daemon_sets.replace([DaemonSet("default", "agent", template, deleting=False, uid="uid-agent")])
    stores.pods.replace([one, (member := pod(gang, 0, pin="h0")), (stranger := pod(other, 0))])
    view.refresh()
    reader = LiveReader(view, own_username="us", own_namespace="topogate-system", policy_loaded=lambda: True)
    assert (reader.reserved_resource(one, "h0") is None) == free
    assert reader.reserved_resource(member, "h0") is None
    assert reader.reserved_resource(stranger, "h0") is not None


def member(rank: int, *, marked_by: str = "labels", **more: Any) -> Pod:
    """A pod of the gang as the watch shows it, its index in its labels, or only in its annotations."""
    found = pod(GANG, None, host=HOST, name=f"member-{rank}-{marked_by}-{len(more)}", **more)
    labels = {**found.spec.labels, names.GANG: GANG_NAME}
    marks = {"labels": labels, "annotations": dict(found.spec.annotations)}
    marks[marked_by][names.COMPLETION_INDEX] = str(rank)
    return replace(found, spec=replace(found.spec, **marks))


@pytest.mark.parametrize("marked_by", ["labels", "annotations"])
def test_a_rank_is_claimed_by_a_live_pod_of_the_gang(view: ClusterState, told: LiveReader, marked_by: str) -> None:
    """By its index, wherever the Job controller wrote it; not by one that has ended, is leaving, or is nobody's."""
    pod_set = GANG.pod_sets[0]
    (gang,) = view.stores.placements.values()
    for other in (
        member(1, marked_by=marked_by, phase="Failed"),
        member(1, marked_by=marked_by, deleting=True, phase="Running"),
        replace(member(1, marked_by=marked_by), name="stranger", owner=None),
        member(11, marked_by=marked_by),
    ):
        show(view, other, "ADDED")
    assert told.live_claimants(gang, pod_set, 1) == 0
    mine = member(1, marked_by=marked_by)
    show(view, mine, "ADDED")
    assert told.live_claimants(gang, pod_set, 1) == 1
    show(view, replace(mine, resource_version="1000000"), "DELETED")
    assert told.live_claimants(gang, pod_set, 1) == 0


def test_a_review_does_not_look_at_every_pod_of_a_large_gang(
    view: ClusterState, told: LiveReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its pods has a review: together they would look at the square of their number."""
    view.stores.pods.replace([member(rank) for rank in range(500)])
    looked_at: list[Pod] = []

    def rank_of(one: Pod, pod_set: PodSet) -> int | None:
        looked_at.append(one)
        return gang_rank_of(one, pod_set)

    monkeypatch.setattr(live_reader, "rank_of", rank_of)
    (gang,) = view.stores.placements.values()
    assert told.live_claimants(gang, GANG.pod_sets[0], 7) == 1
    assert len(looked_at) == 1
