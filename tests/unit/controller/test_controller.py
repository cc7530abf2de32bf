"""The leader's loop: who is planned next, and what a failed, late or foreign write does to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from engine.api import names
from engine.api.placement import Placement
from engine.cache.grace import GRACE_SECONDS
from engine.cluster.writes import WriteRefused
from engine.controller.orphans import ORPHANED_AFTER, SWEEP_EVERY
from engine.gang.gang import pinned_host
from engine.lifecycle.gang_state import PAUSE_FIRST, RETRY_FIRST, RETRY_MOST
from engine.lifecycle.running import BLOCKED_CHECK
from tests.support.cluster_records import REFUSAL, changed, gpu_nodes, job, placement, pod
from tests.support.families import plain
from tests.support.leader import POLICY, Leader, crash, not_leader, unavailable

GROUP = gpu_nodes(1, 1, 4)


def refused(_name: str) -> None:
    raise WriteRefused("another webhook refuses it")


def rack(hosts: int = 4) -> Leader:
    """One rack of whole hosts; a gang of `n` takes `n` of them."""
    return Leader(nodes=gpu_nodes(1, 1, hosts))


def hosts_of(placed: Placement | None) -> list[str]:
    assert placed is not None
    assert placed.assignment is not None
    return [slot.host for pod_set in placed.assignment.pod_sets for slot in pod_set.slots]


@pytest.mark.parametrize("queue", ["{patience: 10m}", "{order: strict, patience: 10m}"])
def test_gangs_are_read_under_the_lock_of_the_view(monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    """Reviews and writes fold what happened into the same tables, each in a thread of its own."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + f"queue: {queue}\n")
    lock, unlocked, read = leader.view.lock, set[str](), set[str]()

    class Watched:
        depth = 0

        def __enter__(self) -> None:
            lock.acquire()
            self.depth += 1

        def __exit__(self, *_: object) -> None:
            self.depth -= 1
            lock.release()

    watched = Watched()
    monkeypatch.setattr(leader.view, "lock", watched)

    def noted(name: str, method: Callable[..., object], *args: object) -> object:
        read.add(name)
        if not watched.depth:
            unlocked.add(name)
        return method(*args)

    for name in ("get", "gang_of", "keys", "knows", "placements"):
        method = getattr(leader.view.gangs, name)
        monkeypatch.setattr(leader.view.gangs, name, partial(noted, name, method))
    leader.has(pod(job("somebody"), 0, host="b0-r0-h0"), pod(job("nobody"), 0, gated=True))
    leader.has(job("big", count=4, held=True, created=1.0), job("small", count=2, held=True, created=2.0))
    leader.has(placement(job("gone"), None))
    for seconds in (0, 5, ORPHANED_AFTER, SWEEP_EVERY, 600, SWEEP_EVERY):
        leader.later(seconds)
    assert read == {"get", "gang_of", "keys", "knows", "placements"}
    assert unlocked == set()


# -- the queue -------------------------------------------------------------------------------------------------------


def test_a_held_gang_is_placed_then_resumed() -> None:
    """The Placement is written before the Job runs."""
    leader = rack()
    leader.has(job(count=4, held=True))
    leader.settle()
    assert leader.hands.calls[:2] == [("place", "train"), ("resume", "train")]
    assert len(hosts_of(leader.placed())) == 4
    assert not leader.workload().suspended


def test_the_highest_priority_goes_first_then_the_oldest() -> None:
    """With room for one of three, the important one gets it; then the older of the other two."""
    leader = rack()
    important = job("late-but-important", count=4, held=True, created=3000.0)
    important = changed(important, template=replace(important.template, priority=10))
    leader.has(job("young", count=4, held=True, created=2000.0), job("old", count=4, held=True), important)
    leader.settle()
    assert leader.hands.of("place") == ["late-but-important"]
    leader.has(replace(leader.workload("late-but-important"), finished=True, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("place") == ["late-but-important", "old"]


def test_a_small_gang_may_go_before_a_big_one_that_does_not_fit() -> None:
    """Order best-effort: what fits goes."""
    leader = rack(3)
    leader.has(job("big", count=4, held=True, created=1.0), job("small", count=2, held=True, created=2.0))
    leader.settle()
    assert leader.hands.of("place") == ["small"]


def test_in_strict_order_nothing_overtakes_a_waiting_gang() -> None:
    """Order strict: the small gang waits behind the big one, and is told so."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + "queue: {order: strict}\n")
    leader.has(pod(job("somebody"), 0, host="b0-r0-h0"))
    leader.has(job("big", count=4, held=True, created=1.0), job("small", count=2, held=True, created=2.0))
    leader.settle()
    assert leader.hands.of("place") == []
    assert ("small", "QueuedBehind") in [(name, status.reason) for name, status in leader.hands.told]


def test_two_gangs_of_one_turn_never_get_the_same_slots() -> None:
    """The first plan counts as reserved before it is written."""
    leader = rack(4)
    leader.has(job("one", count=2, held=True), job("two", count=2, held=True))
    leader.turn()
    assert len(leader.pool.waiting) == 2
    leader.work()
    assert not set(hosts_of(leader.placed("one"))) & set(hosts_of(leader.placed("two")))


def test_a_change_of_reason_is_told_once() -> None:
    """The same reason again is not news, whatever the numbers are."""
    leader = rack(3)
    leader.has(job(count=4, held=True))
    leader.settle()
    assert len(leader.hands.told) == 1
    for _ in range(3):
        leader.has(replace(gpu_nodes(1, 1, 1)[0], labels={**gpu_nodes(1, 1, 1)[0].labels, "x": "y"}))
        leader.later(1.0)
    assert len(leader.hands.told) == 1


# -- failed writes ---------------------------------------------------------------------------------------------------


def test_a_failed_write_is_tried_again_with_growing_pauses() -> None:
    """No spin: nothing is sent before the pause is over, and the pauses double."""
    leader = rack()
    leader.has(job(count=4, held=True))
    leader.hands.broken["place"] = unavailable
    leader.settle()
    assert leader.hands.of("place") == ["train"]
    leader.later(RETRY_FIRST * 0.9)
    assert leader.hands.of("place") == ["train"]
    leader.later(RETRY_FIRST * 0.2)
    assert leader.hands.of("place") == ["train"] * 2
    leader.later(RETRY_FIRST * 1.1)
    assert leader.hands.of("place") == ["train"] * 2
    del leader.hands.broken["place"]
    leader.later(RETRY_FIRST)
    assert leader.hands.of("place") == ["train"] * 3
    assert not leader.workload().suspended


def test_a_resume_that_is_refused_for_ever_keeps_no_slots_for_ever() -> None:
    """Another webhook refuses it: after timeouts.hold the slots go back, and it is planned again after a pause."""
    leader = rack()
    leader.hands.broken["resume"] = refused
    leader.has(job(count=4, held=True, created=1.0))
    leader.settle()
    leader.has(job("later", count=4, held=True, created=2.0))
    for _ in range(120):
        leader.later(5.0)
    assert hosts_of(leader.placed())
    del leader.hands.broken["resume"]
    leader.hands.broken["resume"] = lambda name: refused(name) if name == "train" else None
    for _ in range(8):
        leader.later(5.0)
    assert leader.status() == ("Waiting", "HoldExpired")
    assert len(hosts_of(leader.placed("later"))) == 4
    leader.has(changed(leader.workload("later"), finished=True, resource_version=leader.hands.version()))
    leader.hands.broken.clear()
    leader.later(PAUSE_FIRST + RETRY_MOST)
    assert not leader.workload().suspended


def test_a_failed_write_does_not_end_a_pause() -> None:
    """That the gang is requeued meanwhile is not written at once: it rests for as long as without that."""
    leader = rack()
    leader.hands.broken["resume"] = refused
    gang = job(count=4, held=True)
    leader.has(replace(gang, annotations={**gang.annotations, names.SCHEDULE_TIMEOUT: "30s"}))
    while leader.status() != ("Waiting", "HoldExpired"):
        leader.later(5.0)
    leader.hands.broken = {"requeue": unavailable}
    leader.later(PAUSE_FIRST / 2 + 1.0)
    assert leader.hands.of("requeue") == ["train"]
    leader.hands.broken.clear()
    leader.later(RETRY_FIRST + 0.1)
    assert leader.hands.of("requeue") == ["train"] * 2
    assert leader.hands.of("place") == ["train"]
    leader.later(PAUSE_FIRST / 2)
    assert leader.hands.of("place") == ["train"] * 2


def test_a_resume_that_is_refused_later_has_the_whole_time() -> None:
    """What an earlier plan had used of it does not count."""
    leader = rack()
    leader.hands.broken["resume"] = refused
    leader.has(job(count=4, held=True))
    for _ in range(80):
        leader.later(5.0)
    leader.hands.broken.clear()
    leader.later(RETRY_MOST)
    assert not leader.workload().suspended
    leader.later(300.0)
    leader.hands.broken["resume"] = refused
    gang, placed = leader.workload(), leader.placed()
    assert placed is not None
    leader.hands.put(replace(placed, assignment=None))
    version = leader.hands.version()
    leader.has(changed(gang, suspended=True, annotations=job(held=True).annotations, resource_version=version))
    leader.settle()
    for _ in range(110):
        leader.later(5.0)
    assert len(hosts_of(leader.placed())) == 4


def test_a_faulting_gang_does_not_stop_the_others() -> None:
    """A gang that crashes its own planning, writing or look leaves the others alone, and the term goes on."""

    def poisoned(name: str) -> None:
        if name == "a-poisoned":
            crash(name)

    for what in ("plan", "place", "tell"):
        leader = rack(4)
        leader.hands.broken[what] = poisoned
        leader.has(job("a-poisoned", count=5 if what == "tell" else 2, held=True, created=1.0))
        leader.has(job("b-fine", count=2, held=True, created=2.0))
        leader.settle()
        assert not leader.workload("b-fine").suspended, what
        assert leader.begun == 1, what


def test_a_gang_that_cannot_be_looked_at_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a decision raises is that gang's own trouble, and is tried again with pauses."""
    leader = rack(4)
    decide, looks = leader.view.gangs.get, []

    def gang(uid: str) -> object:
        if uid == "uid-a-poisoned":
            looks.append(uid)
            crash(uid)
        return decide(uid)

    monkeypatch.setattr(leader.view.gangs, "get", gang)
    leader.has(job("a-poisoned", count=2, held=True), job("b-fine", count=2, held=True))
    leader.settle()
    assert not leader.workload("b-fine").suspended
    assert leader.begun == 1
    assert len(looks) == 1
    leader.later(1.0)
    assert len(looks) == 2


def test_a_pod_that_nobody_claims_is_freed_although_the_first_attempt_failed() -> None:
    """Nothing stays held for ever because one PATCH was lost."""
    leader = rack()
    stray = replace(pod(job(), None, gated=True), owner=None)
    leader.has(stray)
    leader.hands.broken["free"] = unavailable
    leader.settle()
    leader.later(ORPHANED_AFTER)
    assert leader.hands.of("free") == [stray.name]
    del leader.hands.broken["free"]
    leader.later(ORPHANED_AFTER)
    leader.later(ORPHANED_AFTER)
    assert leader.hands.of("free") == [stray.name] * 2


def test_a_freed_pod_that_the_watch_has_not_shown_yet_is_left_alone() -> None:
    """One PATCH is enough."""
    leader = rack()
    stray = replace(pod(job(), None, gated=True), owner=None)
    leader.has(stray)
    leader.settle()
    leader.later(ORPHANED_AFTER)
    for _ in range(5):
        leader.later(ORPHANED_AFTER)
    assert leader.hands.of("free") == [stray.name]


def test_an_orphaned_pod_is_given_time_for_its_job_to_show_up() -> None:
    """The watches of pods and Jobs run apart: a pod may be seen before its Job."""
    leader = rack()
    gang = job(count=1)
    leader.has(pod(gang, 0, gated=True))
    leader.settle()
    leader.now += ORPHANED_AFTER / 2
    leader.has(gang)
    leader.settle()
    leader.later(ORPHANED_AFTER)
    assert leader.hands.of("free") == []
    assert leader.hands.of("release") == ["train-0"]


def test_with_mode_off_pods_that_nobody_can_place_are_freed_too() -> None:
    """Everything held is released."""
    leader = Leader(nodes=GROUP, policy=POLICY + 'mode: "off"\n')
    asking = pod(job(), None, gated=True)
    asking = replace(asking, owner=None, spec=replace(asking.spec, annotations={names.REQUIRE: "rack"}))
    leader.has(asking)
    leader.settle()
    leader.later(ORPHANED_AFTER)
    freed = leader.stores.pods.get(asking.key)
    assert freed is not None
    assert freed.spec.gates == ()


# -- actions under way -----------------------------------------------------------------------------------------------


def test_a_gang_is_left_alone_while_its_write_is_under_way() -> None:
    """What happens meanwhile is looked at afterwards, once."""
    leader = rack()
    gang = job(count=4, held=True)
    leader.has(gang)
    leader.turn()
    leader.has(replace(gang, started=True, resource_version=leader.hands.version()))
    leader.turn()
    assert len(leader.pool.waiting) == 1


def test_a_busy_gang_does_not_keep_the_loop_awake() -> None:
    """While a write is under way its gang's timers do not matter: its end wakes the loop."""
    leader = rack()
    gang = job(count=1)
    leader.has(gang, placement(gang, {"b0-r0-h0": 1}), pod(gang, 0, pin="b0-r0-h0"))
    leader.turn()
    leader.now += 3.0
    leader.turn()
    assert len(leader.pool.waiting) == 1  # its status, which the API server does not answer
    leader.now += 60.0  # its pod is late by now
    assert leader.controller._pause() > 1.0


def test_a_gang_never_runs_on_a_plan_whose_write_failed() -> None:
    """Between the end of a failed write and its clean-up no turn may take the unwritten plan for a Placement."""
    leader = rack()
    gang = job(count=4, held=True)
    leader.has(gang)
    leader.hands.broken["place"] = unavailable
    leader.turn()
    settle = leader.view.confirm

    def interrupted(uid: str, **more: bool) -> None:
        leader.has(replace(gang, started=True, resource_version=leader.hands.version()))
        leader.turn()
        settle(uid, **more)

    leader.view.confirm = interrupted  # type: ignore[method-assign]
    leader.work()
    leader.work()
    assert leader.hands.of("resume") == []


def test_the_end_of_a_write_is_never_missed() -> None:
    """A change that comes while the gang is busy is acted on when it is free, whoever looks in between."""
    leader = rack()
    gang = job(count=4, held=True)
    leader.has(gang)
    leader.turn()
    settle = leader.view.confirm

    def interrupted(uid: str, **more: bool) -> None:
        settle(uid, **more)
        leader.turn()

    leader.view.confirm = interrupted  # type: ignore[method-assign]
    leader.work()
    leader.has(pod(leader.workload(), 0, gated=True))
    leader.settle()
    assert leader.hands.of("release") == ["train-0"]


# -- leadership ------------------------------------------------------------------------------------------------------


def test_without_the_lease_nothing_is_decided() -> None:
    """A replica that does not lead keeps its view and writes nothing."""
    leader = rack()
    leader.leading = False
    leader.has(job(count=4, held=True))
    leader.settle()
    assert leader.hands.calls == []
    assert leader.hands.planned == []


def test_losing_the_lease_stops_everything_and_a_new_term_begins_afresh() -> None:
    """What was queued is forgotten; the next term reads the cluster again first."""
    leader = rack(3)
    leader.has(job(count=4, held=True))
    leader.settle()
    leader.leading = False
    planned = len(leader.hands.planned)
    leader.has(gpu_nodes(1, 1, 4)[3])
    leader.later(60.0)
    assert len(leader.hands.planned) == planned
    leader.leading = True
    leader.settle()
    assert leader.begun == 2
    assert leader.hands.of("place") == ["train"]


def test_a_new_term_waits_for_the_writes_of_the_last_one() -> None:
    """Two actions for one gang never run at once."""
    leader = rack()
    leader.has(job(count=4, held=True))
    leader.turn()
    leader.leading = False
    leader.turn()
    leader.leading = True
    leader.turn()
    assert leader.begun == 1
    leader.work()
    leader.turn()
    assert leader.begun == 2


def test_a_term_lost_and_won_between_two_turns_is_noticed_at_the_first_write() -> None:
    """The fence belongs to the term before: without a new one every write would be refused for ever."""
    leader = rack()
    leader.has(job(count=4, held=True))
    leader.hands.broken["place"] = not_leader
    leader.turn()
    leader.work()
    del leader.hands.broken["place"]
    leader.settle()
    assert leader.begun == 2
    assert not leader.workload().suspended


def test_a_term_that_cannot_begin_writes_nothing() -> None:
    """No decision on a view that may be old."""
    leader = rack()
    leader.begins = False
    leader.controller._stop.set()  # do not wait between the attempts
    leader.has(job(count=4, held=True))
    leader.turn()
    leader.turn()
    assert leader.begun == 2
    assert leader.hands.calls == []


def test_a_replica_that_does_not_lead_remembers_nothing_of_what_passes() -> None:
    """Months of other people's pods leave no trace."""
    leader = rack()
    leader.leading = False
    for serial in range(50):
        one = job(f"j{serial}", count=1)
        passing = pod(one, 0, gated=True)
        leader.has(one, passing)
        leader.turn()
        leader.stores.pods.apply("DELETED", passing)
        leader.stores.workloads.apply("DELETED", one)
        leader.turn()
    assert not leader.view._pending.gangs
    assert not leader.view._pending.held_pods
    assert all(not kept for kept in vars(leader.view._pods).values())


def test_a_leader_forgets_a_workload_that_goes_while_everything_changes() -> None:
    """A new policy has every gang looked at: of those that are there, and those that are not any more."""
    leader = rack()
    one = job(count=1, held=True)
    leader.has(one)
    leader.settle()
    leader.stores.placements.apply("DELETED", leader.placed() or placement(one, None))
    leader.stores.workloads.apply("DELETED", leader.workload())
    leader.view.set_policy(leader.view.policy)
    leader.settle()
    assert not leader.controller._term.gang_state


def test_a_leader_forgets_the_workloads_that_are_gone() -> None:
    """Months of other people's Jobs leave no trace."""
    leader = rack()
    for serial in range(20):
        one = job(f"j{serial}", count=1, held=True)
        leader.has(one)
        leader.settle()
        leader.stores.placements.apply("DELETED", leader.placed(one.name) or placement(one, None))
        leader.stores.workloads.apply("DELETED", leader.workload(one.name))
        leader.settle()
    leader.later(GRACE_SECONDS)
    assert not leader.controller._term.gang_state
    assert not leader.controller._orphans
    assert not leader.view.gangs._held
    assert not leader.view.pod_shapes
    assert not leader.view.capacity.reserving()


# -- room ------------------------------------------------------------------------------------------------------------


def test_a_finished_rank_makes_room_for_a_waiting_gang() -> None:
    """The pod goes first, the Job's status says later that its rank is done: only that frees the slot."""
    leader = rack(2)
    running = job("running", count=2)
    first, second = pod(running, 0, host="b0-r0-h0"), pod(running, 1, host="b0-r0-h1")
    leader.has(running, placement(running, {"b0-r0-h0": 1, "b0-r0-h1": 1}), first, second)
    leader.has(job("waiting", count=1, held=True))
    leader.settle()
    leader.stores.pods.apply("DELETED", replace(first, phase="Succeeded", resource_version=leader.hands.version()))
    leader.later(1.0)
    assert leader.workload("waiting").suspended
    leader.has(
        replace(changed(running, remaining=1, finished_ranks=((0, 0),)), resource_version=leader.hands.version())
    )
    leader.later(1.0)
    assert not leader.workload("waiting").suspended


def test_a_job_replaced_by_another_of_its_name_makes_room() -> None:
    """Seen as one change (after a relist): the old one's slots and traces are gone all the same."""
    leader = rack(2)
    running = job("running", count=2)
    leader.has(running, placement(running, {"b0-r0-h0": 1, "b0-r0-h1": 1}), job("waiting", count=2, held=True))
    leader.settle()
    assert leader.workload("waiting").suspended
    other = replace(running, uid="uid-other", annotations={}, resource_version=leader.hands.version())
    other = changed(other, template=replace(other.template, gates=()))
    leader.stores.workloads.replace([other, leader.workload("waiting")], resource_version=leader.hands.version())
    leader.settle()
    leader.later(GRACE_SECONDS)
    assert not leader.workload("waiting").suspended


@pytest.mark.parametrize("later", [0.0, 5.0])
def test_plain_pods_created_again_under_their_old_name_are_placed_as_they_ask_now(later: float) -> None:
    """The slots of the pods before them were in two racks, and nobody has swept their Placement yet."""
    nodes = gpu_nodes(1, 2, 2)
    leader = Leader(nodes=[replace(one, unschedulable=one.name.endswith("h1")) for one in nodes])
    anywhere = {names.UNCONSTRAINED: "true"}
    leader.has(plain("a", says=anywhere), plain("b", says=anywhere))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b"]
    for one in list(leader.stores.pods.values()):
        host = pinned_host(one.spec.shape)
        assert host is not None
        leader.has(
            replace(one, spec=replace(one.spec, node_name=host), resource_version=leader.hands.version()),
        )
    leader.has(*(replace(one, resource_version=leader.hands.version()) for one in nodes))
    leader.later(5.0)
    for one in list(leader.stores.pods.values()):
        leader.stores.pods.apply("DELETED", one)
    if later:
        leader.later(later)
    leader.has(plain("c", says={names.REQUIRE: "rack"}), plain("d", says={names.REQUIRE: "rack"}))
    leader.later(10.0)
    hosts = [pinned_host(one.spec.shape) or "" for one in leader.stores.pods.values()]
    assert len({host.rpartition("-")[0] for host in hosts}) == 1, hosts
    assert sorted(leader.hands.of("release")) == ["a", "b", "c", "d"]


def test_a_host_left_out_for_a_while_is_tried_again_by_itself() -> None:
    """Nothing happens in the cluster: the gang whose only hosts were left out starts when that time is over."""
    leader = rack(1)
    gang = job(count=1, held=True)
    leader.has(gang)
    leader.settle()
    leader.has(pod(leader.workload(), 0, pin="b0-r0-h0", unschedulable=REFUSAL))
    leader.settle()
    leader.later(31.0)
    assert leader.hands.of("suspend") == ["train"]
    leader.stores.pods.replace([])
    leader.later(10.0)
    assert leader.workload().suspended
    leader.later(60.0)
    assert leader.hands.of("place") == ["train"] * 2


def test_a_gang_that_is_late_moves_as_soon_as_the_scheduler_speaks() -> None:
    """A word of the scheduler after timeouts.bind is an event, not something to be seen by the way."""
    leader = rack(1)
    leader.has(job(count=1, held=True))
    leader.settle()
    mute = pod(leader.workload(), 0, pin="b0-r0-h0")
    leader.has(mute)
    leader.settle()
    leader.later(600.0)
    assert leader.hands.of("suspend") == []
    leader.has(replace(mute, unschedulable=REFUSAL, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("suspend") == ["train"]


def test_a_heartbeat_of_a_node_plans_nothing_again() -> None:
    """Five thousand nodes report all the time: only a change that matters is worth a plan."""
    leader = rack(3)
    leader.has(job(count=4, held=True))
    leader.settle()
    planned = len(leader.hands.planned)
    for one in gpu_nodes(1, 1, 3):
        leader.has(replace(one, resource_version=leader.hands.version()))
        leader.later(1.0)
    assert len(leader.hands.planned) == planned


# -- Placements that nobody owns -------------------------------------------------------------------------------------


def test_placements_of_workloads_that_are_gone_are_swept() -> None:
    """After two looks, so that a Job that shows up late keeps its slots."""
    leader = rack()
    leader.has(placement(job("gone"), {"b0-r0-h0": 1}))
    leader.settle()
    leader.later(SWEEP_EVERY / 2)
    assert leader.hands.of("forget") == []
    leader.later(SWEEP_EVERY)
    leader.later(SWEEP_EVERY)
    assert leader.hands.of("forget") == ["job-gone-00000000"]
    assert leader.view.gangs.placements() == []


def test_pods_that_take_the_name_of_a_gang_whose_sweep_fails_are_placed() -> None:
    """They come while its Placement is being deleted, and the API server does not answer: no event follows."""
    leader = rack()
    gone = [plain("a"), plain("b")]
    leader.has(*gone)
    leader.settle()
    for one in gone:
        leader.stores.pods.apply("DELETED", one)
    leader.settle()
    leader.later(SWEEP_EVERY)
    leader.now += SWEEP_EVERY
    leader.turn()
    leader.hands.broken["forget"] = unavailable
    leader.hands.calls.clear()
    leader.has(*(replace(one, uid=f"new-{one.name}", resource_version=leader.hands.version()) for one in gone))
    leader.turn()
    leader.work()
    assert leader.hands.of("forget") == ["pods-mesh-d30ca7a7"]
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["a", "b"]


def test_placements_of_a_kind_that_may_not_be_read_are_left_alone() -> None:
    """That its workload is not seen proves nothing: gangs that run would lose their slots to a missing right."""
    leader = rack()
    leader.hidden = {("batch", "Job")}
    leader.has(placement(job("unseen"), {"b0-r0-h0": 1}))
    leader.settle()
    for _ in range(3):
        leader.later(SWEEP_EVERY)
    assert leader.hands.of("forget") == []
    leader.hidden = set()
    for _ in range(3):
        leader.later(SWEEP_EVERY)
    assert leader.hands.of("forget") == ["job-unseen-00000000"]


def test_of_two_placements_the_older_one_counts() -> None:
    """Whatever they are called: somebody made a second one by hand."""
    leader = rack()
    gang = job(count=1)
    first = replace(placement(gang, {"b0-r0-h0": 1}), name="z-first", created=1.0)
    second = replace(placement(gang, {"b0-r0-h1": 1}), name="a-second", uid="uid-second", created=2.0)
    leader.has(gang, first, second)
    leader.view.refresh()
    assert hosts_of(leader.placed()) == ["b0-r0-h0"]


def test_a_placement_in_another_namespace_than_its_workload_counts_for_nothing() -> None:
    """The namespace is the boundary, also for whoever may write Placements by hand."""
    leader = rack()
    gang = job(count=2, held=True)
    forged = replace(placement(gang, {"b0-r0-h3": 2}), namespace="elsewhere", created=1.0)
    leader.has(forged, gang)
    leader.settle()
    placed = leader.placed()
    assert placed is not None
    assert placed.namespace == "default"
    assert "b0-r0-h3" not in hosts_of(placed)


def test_slots_that_others_took_are_not_resumed_into() -> None:
    """Two gangs that hold the same slots on paper (an answer was lost, an admin wrote one): they never both start."""
    leader = rack(4)
    one, two = job("one", count=4, held=True), job("two", count=4, held=True)
    hosts = {f"b0-r0-h{index}": 1 for index in range(4)}
    leader.has(one, two, placement(one, hosts), placement(two, hosts))
    leader.settle()
    running = [name for name in ("one", "two") if not leader.workload(name).suspended]
    assert len(running) == 1


def test_a_gang_planned_anew_beside_its_old_pods_gets_room_of_its_own() -> None:
    """Suspended and resumed while the old pods terminate slowly: nobody else gets the new slots."""
    leader = rack(4)
    gang = job(count=2, held=True)
    leader.has(gang)
    for rank, host in enumerate(("b0-r0-h0", "b0-r0-h1")):
        leader.has(pod(gang, rank, host=host, deleting=True))
    leader.settle()
    leader.has(job("other", count=2, held=True))
    leader.settle()
    assert set(hosts_of(leader.placed())) == {"b0-r0-h2", "b0-r0-h3"}
    assert leader.hands.of("place") == ["train"]


def test_a_replacement_does_not_follow_its_host_into_another_rack() -> None:
    """The required level holds also for a host whose labels were changed under the gang."""
    leader = rack(2)
    gang = job(count=2)
    leader.has(gang, placement(gang, {"b0-r0-h0": 1, "b0-r0-h1": 1}), pod(gang, 0, host="b0-r0-h0"))
    leader.settle()
    mover = gpu_nodes(1, 1, 2)[1]
    leader.has(replace(mover, labels={**mover.labels, "cloud.provider.com/topology-rack": "b0-r9"}))
    leader.has(pod(gang, 1, gated=True))
    leader.settle()
    assert leader.hands.of("release") == []
    leader.has(replace(mover, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("release") == ["train-1"]


def test_a_replacement_is_released_when_its_room_comes_back() -> None:
    """Somebody else's pod stood on the reserved host: when it goes, no event of the gang says so."""
    leader = rack(2)
    gang = job(count=2)
    other = pod(job("somebody"), 0, host="b0-r0-h1")
    leader.has(gang, placement(gang, {"b0-r0-h0": 1, "b0-r0-h1": 1}), pod(gang, 0, host="b0-r0-h0"), other)
    leader.has(pod(gang, 1, gated=True))
    leader.settle()
    assert leader.hands.of("release") == []
    leader.stores.pods.apply("DELETED", replace(other, resource_version=leader.hands.version()))
    leader.later(BLOCKED_CHECK)
    assert leader.hands.of("release") == ["train-1"]


def test_a_gate_taken_off_by_hand_is_told_once_and_the_rest_joins_that_pod() -> None:
    """The pod counts where it landed; its gang is completed in the same rack."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    gang = job(count=2)
    stray = pod(gang, 0, host="b0-r1-h1")
    stray = replace(stray, spec=replace(stray.spec, shape=gang.template.shape))
    leader.has(gang, stray, pod(gang, 1, gated=True))
    leader.settle()
    leader.later(1.0)
    assert leader.hands.pod_events == [("train-0", "GateRemoved")]
    assert sorted(hosts_of(leader.placed())) == ["b0-r1-h0", "b0-r1-h1"]
    assert leader.hands.of("release") == ["train-1"]


def test_a_gang_that_is_placed_again_has_its_whole_time_for_pods_to_appear() -> None:
    """Its slots went back because no pod came; the time counts anew from the second placement on."""
    leader = rack()
    leader.has(job(count=2, held=True))
    leader.settle()
    leader.later(601.0)
    assert leader.hands.of("suspend") == ["train"]
    for _ in range(600):
        if len(leader.hands.of("place")) == 2:
            break
        leader.later(5.0)
    leader.later(500.0)
    assert leader.hands.of("suspend") == ["train"]
    leader.later(101.0)
    assert leader.hands.of("suspend") == ["train", "train"]


def test_slots_that_could_not_be_given_back_are_given_back_after_the_ordinary_back_off() -> None:
    """A suspension that failed does not start the waiting time for pods afresh."""
    leader = rack()
    leader.has(job(count=2, held=True))
    leader.settle()
    leader.hands.broken["suspend"] = unavailable
    leader.later(601.0)
    assert leader.hands.of("suspend") == ["train"]
    leader.later(RETRY_FIRST + 0.1)
    assert leader.hands.of("suspend") == ["train"] * 2
    del leader.hands.broken["suspend"]
    leader.later(2 * RETRY_FIRST + 0.1)
    assert leader.workload().suspended
    placement = leader.placed()
    assert placement is not None and placement.assignment is None
    leader.later(PAUSE_FIRST - 10)
    assert leader.workload().suspended, "the pause is as long as after the first try"
    leader.later(20)
    assert not leader.workload().suspended


def test_a_pod_that_could_not_be_moved_is_moved_after_the_ordinary_back_off() -> None:
    """A suspension that failed does not start timeouts.bind afresh."""
    leader = rack()
    leader.has(job(count=1, held=True))
    leader.settle()
    leader.has(pod(leader.workload(), 0, pin="b0-r0-h0", unschedulable=REFUSAL))
    leader.settle()
    leader.hands.broken["suspend"] = unavailable
    leader.later(31.0)
    leader.later(RETRY_FIRST + 0.1)
    assert leader.hands.of("suspend") == ["train"] * 2


def test_a_write_that_succeeds_ends_the_growing_pauses() -> None:
    """The next fault, much later, is tried again as soon as the first one was."""
    leader = rack()
    leader.hands.broken["place"] = unavailable
    leader.has(job(count=2, held=True))
    leader.settle()
    for _ in range(6):
        leader.later(40.0)
    del leader.hands.broken["place"]
    leader.later(40.0)
    assert len(leader.hands.of("place")) > 3
    leader.hands.broken["shrink"] = unavailable
    leader.has(changed(leader.workload(), slots=1, total=1, remaining=1, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("shrink") == ["train"]
    leader.later(RETRY_FIRST + 0.1)
    assert leader.hands.of("shrink") == ["train"] * 2


@pytest.mark.timeout(30)
@pytest.mark.parametrize("ranked", [True, False])
def test_a_gang_that_is_scaled_beyond_all_bounds_costs_nothing(ranked: bool) -> None:
    """Nobody reviews the scale subresource: two thousand million pods are neither counted through nor planned."""
    leader = rack()
    gang = replace(job(count=2, ranked=ranked), kind="StatefulSet", api_version="apps/v1", suspendable=False)
    leader.has(gang, placement(gang, {"b0-r0-h0": 1, "b0-r0-h1": 1}, ranked=ranked))
    leader.has(pod(gang, 0, host="b0-r0-h0"), pod(gang, 1, host="b0-r0-h1"))
    leader.settle()
    most = 2**31 - 1
    version = leader.hands.version()
    leader.has(changed(gang, slots=most, total=most, remaining=most, resource_version=version))
    leader.has(job("other", count=1, held=True))
    leader.later(60.0)
    assert hosts_of(leader.placed()) == ["b0-r0-h0", "b0-r0-h1"]
    assert leader.hands.of("place") == ["other"]
    leader.stores.nodes.apply("DELETED", leader.stores.nodes.values()[1])  # the host of one of its pods
    leader.later(600.0)
