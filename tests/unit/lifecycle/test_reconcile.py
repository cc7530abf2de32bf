"""The gang's state machine: what is seen, and the one next action."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.field import FieldError
from engine.api.placement import Assignment, Placement, PodSetRequest
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Workload
from engine.capacity.capacity import Capacity
from engine.gang.gang import Gang
from engine.gang.request import PlacementRequest
from engine.lifecycle.actions import (
    Decision,
    Enqueue,
    EvictPods,
    Extend,
    NoAction,
    Release,
    Resume,
    Shrink,
    Status,
    Unmanage,
    Unplace,
)
from engine.lifecycle.gang_state import EXCLUDE_FIRST, REMOVE_AGAIN, Timers
from engine.lifecycle.host_health import HostHealth
from engine.lifecycle.reconcile import reconcile
from engine.policy.model import Policy, default_policy, parse_policy
from engine.resources.shape import shape_hash
from tests.support.cluster_records import REFUSAL, changed, job, placement, pod


def understood(workload: Workload) -> PlacementRequest:
    ask = PodSetRequest(
        name="main",
        count=workload.slots,
        min_available=workload.slots,
        require="rack",
        prefer=None,
        ranked=workload.pod_sets[0].ranked,
        shape_hash=shape_hash(workload.template.shape),
    )
    return PlacementRequest(pod_sets=(ask,), topology="default")


class SomeHosts(HostHealth):
    """Hosts as a test names them; all others are well."""

    def __init__(
        self, gang: Gang, *, overcommitted: frozenset[str], gone: frozenset[str], devices: Assignment | None
    ) -> None:
        super().__init__(gang, Capacity(), {}, now=0.0)
        self._other = devices
        self._overcommitted = overcommitted
        self._gone = gone

    def overcommitted(self, host: str) -> bool:
        return host in self._overcommitted

    def usable(self, host: str) -> bool:
        return host not in self._gone

    def down(self, host: str) -> float | None:
        return None

    def other_devices(self) -> Assignment | None:
        return self._other


def look(
    workload: Workload,
    placed: Placement | None = None,
    pods: tuple[Pod, ...] = (),
    *,
    timers: Timers | None = None,
    now: float = 0.0,
    policy: Policy | None = None,
    placement_request: PlacementRequest | None = None,
    overcommitted: frozenset[str] = frozenset(),
    gone: frozenset[str] = frozenset(),
    devices: Assignment | None = None,
) -> Decision:
    gang = Gang(
        workload=workload,
        request=placement_request or understood(workload),
        placement=placed,
        pods=pods,
        shapes={"main": workload.template.shape},
    )
    return reconcile(
        gang,
        timers=timers if timers is not None else Timers(),
        policy=policy or default_policy(),
        now=now,
        hosts=SomeHosts(gang, overcommitted=overcommitted, gone=gone, devices=devices),
    )


def test_a_held_workload_without_slots_is_planned() -> None:
    """We suspended it: it waits for a plan."""
    assert isinstance(look(job(held=True)).action, Enqueue)


def test_a_held_workload_with_slots_is_resumed() -> None:
    """The plan is written down: let it run."""
    gang = job(count=2, held=True)
    assert isinstance(look(gang, placement(gang, {"h0": 2})).action, Resume)


@pytest.mark.parametrize(
    "other", [{"device_scope": "pcie"}, {"device_selector": "{}"}, {"gpu_strategy": "spread"}], ids=str
)
def test_other_devices_are_another_request(other: dict[str, str]) -> None:
    """The user changed what the GPUs must be between the plan and the resume."""
    gang = job(count=2, held=True)
    asked = understood(gang)
    asks = replace(asked, pod_sets=tuple(replace(one, **other) for one in asked.pod_sets))  # type: ignore[arg-type]
    assert isinstance(look(gang, placement(gang, {"h0": 2}), placement_request=asks).action, Unplace)


def test_a_failed_start_ends_before_its_devices_are_chosen_anew() -> None:
    """The last leader suspended the gang for it; another revision would hide that."""
    gang = job(count=2, held=True)
    planned = placement(gang, {"h0": 2})
    assert planned.assignment is not None
    failed = {"count": 1, "hosts": ["h0"], "revision": planned.assignment.revision}
    decision = look(gang, replace(planned, status={"failedStarts": failed}), devices=planned.assignment)
    assert isinstance(decision.action, Unplace)
    assert decision.action.reason == "StartTimeout"


def test_the_time_for_pods_to_appear_begins_at_the_resume() -> None:
    """Its slots were to be given back, which could not be written: it is resumed, and not stopped again at once."""
    timers = Timers(empty_since=0.0)
    held = job(count=2, held=True)
    placed = placement(held, {"h0": 2})
    assert isinstance(look(held, placed, timers=timers, now=700.0).action, Resume)
    resumed = changed(held, suspended=False, annotations={}, started=True)
    assert isinstance(look(resumed, placed, timers=timers, now=701.0).action, NoAction)


def test_slots_for_another_question_are_given_back_before_the_resume() -> None:
    """The user changed the suspended workload after it was planned: the old answer does not start it."""
    gang = job(count=2, held=True)
    placed = placement(gang, {"h0": 2})
    grown = changed(gang, slots=3, total=3)
    action = look(grown, placed).action
    assert action == Unplace(suspend=False, reason="", message="the request changed: it is planned again")


@pytest.mark.parametrize("started", [False, True])
def test_no_pod_is_released_to_slots_that_break_the_level_which_its_gang_requires_now(started: bool) -> None:
    """The user changed it before the first pod had a host; a gang of which one runs keeps its slots."""
    gang = job(count=2, require="rack", suspendable=False)
    placed = placement(gang, {"h0": 1, "h1": 1})
    placed = replace(placed, pod_sets=(replace(placed.pod_sets[0], require=None, prefer="rack"),))
    first = pod(gang, 0, host="h0") if started else pod(gang, 0, gated=True)
    action = look(gang, placed, (first, pod(gang, 1, gated=True))).action
    if started:
        assert isinstance(action, Release)
    else:
        assert action == Unplace(suspend=False, reason="", message="the request changed: it is planned again")


def test_slots_that_another_profile_chose_are_given_back_before_the_resume() -> None:
    gang = job(count=2, held=True)
    placed = replace(placement(gang, {"h0": 2}), profile="spread")
    assert isinstance(look(gang, placed).action, Unplace)


def test_slots_on_a_host_that_is_gone_are_given_back_before_the_resume() -> None:
    """A host that stopped taking pods between plan and resume leads to another plan."""
    gang = job(count=2, held=True)
    action = look(gang, placement(gang, {"h0": 2}), gone=frozenset({"h0"})).action
    assert isinstance(action, Unplace)
    assert action.reason == "NodesUnhealthy"


def test_a_workload_suspended_by_its_user_gives_its_slots_back() -> None:
    """His suspension is not ours: nothing is reserved until he resumes it."""
    gang = replace(job(count=2), suspended=True)
    action = look(gang, placement(gang, {"h0": 2})).action
    assert isinstance(action, Unplace)
    assert not action.suspend


def test_a_workload_suspended_by_its_user_is_not_planned() -> None:
    """No Placement until he resumes it."""
    gang = replace(job(count=2), suspended=True)
    assert look(gang).action == NoAction()


def test_held_pods_are_released_when_the_whole_gang_has_slots() -> None:
    """The gate path: every held pod of a placed gang gets its slot at once."""
    gang = job(count=2)
    pods = (pod(gang, 0, gated=True), pod(gang, 1, gated=True))
    action = look(gang, placement(gang, {"h0": 2}), pods).action
    assert isinstance(action, Release)
    assert [seat.rank for seat in action.assignments] == [0, 1]


def test_held_pods_of_a_waiting_gang_stay_held() -> None:
    """Somebody resumed a waiting workload: its pods are held by the gate, and it goes on being planned."""
    gang = job(count=2)
    assert isinstance(look(gang, placement(gang, None), (pod(gang, 0, gated=True),)).action, Enqueue)


def test_a_gang_with_all_pods_bound_is_running() -> None:
    """Every slot has its pod."""
    gang = job(count=2)
    decision = look(gang, placement(gang, {"h0": 2}), (pod(gang, 0, host="h0"), pod(gang, 1, host="h0")))
    assert decision.action == NoAction()
    assert decision.status is not None and decision.status.phase == "Running"


def test_a_running_gang_that_lost_a_pod_is_incomplete_until_it_is_back() -> None:
    """A failed index makes the gang Incomplete, not Waiting: its slot is kept."""
    gang = job(count=2)
    placed = replace(placement(gang, {"h0": 2}), status={"phase": "Running"})
    decision = look(gang, placed, (pod(gang, 0, host="h0"), pod(gang, 1, host="h0", phase="Failed")))
    assert decision.action == NoAction()
    assert decision.status is not None and decision.status.phase == "Incomplete"


def test_a_pod_is_not_released_onto_a_host_that_others_filled() -> None:
    """Nothing started: suspend, plan again by what the ledger shows; the host is not left out beside that."""
    gang = job(count=2)
    timers = Timers()
    pods = (pod(gang, 0, gated=True), pod(gang, 1, gated=True))
    decision = look(gang, placement(gang, {"h0": 2}), pods, timers=timers, overcommitted=frozenset({"h0"}))
    assert isinstance(decision.action, Unplace) and decision.action.suspend
    assert decision.action.reason == "ReservedByOthers"
    assert timers.hosts_out(1.0) == frozenset()


def test_a_started_gang_is_never_suspended_for_lack_of_room() -> None:
    """Once a part runs the rest stays where it is, and only the lost rank is planned elsewhere."""
    gang = job(count=2)
    pods = (pod(gang, 0, host="h1"), pod(gang, 1, gated=True))
    decision = look(gang, placement(gang, {"h1": 1, "h0": 1}), pods, overcommitted=frozenset({"h0"}))
    assert isinstance(decision.action, Extend)
    assert decision.action.extension.lost == {"main": (1,)}
    assert decision.action.meanwhile.phase == "Incomplete"


def test_an_unbound_pod_ages_from_the_moment_it_is_seen() -> None:
    """Before timeouts.bind is over nothing happens but a wake-up at its end."""
    gang = job(count=1)
    timers = Timers()
    decision = look(gang, placement(gang, {"h0": 1}), (pod(gang, 0, pin="h0"),), timers=timers, now=100.0)
    assert decision.action == NoAction()
    assert decision.wake == pytest.approx(130.0)


def test_a_pod_that_is_not_bound_in_time_moves_the_whole_unstarted_gang() -> None:
    """Nothing has started: suspend (free of charge), leave the host out with growing back-off, quote the scheduler."""
    gang = job(count=1)
    timers = Timers()
    stuck = pod(gang, 0, pin="h0", unschedulable=REFUSAL)
    look(gang, placement(gang, {"h0": 1}), (stuck,), timers=timers, now=0.0)
    decision = look(gang, placement(gang, {"h0": 1}), (stuck,), timers=timers, now=31.0)
    assert isinstance(decision.action, Unplace) and decision.action.suspend
    assert "1 Insufficient cpu" in decision.action.message
    assert timers.hosts_out(31.0 + EXCLUDE_FIRST - 1) == frozenset({"h0"})
    assert timers.hosts_out(31.0 + EXCLUDE_FIRST) == frozenset()


@pytest.mark.parametrize("free", [True, False])
def test_a_pod_on_which_the_scheduler_says_nothing_moves_nobody(free: bool) -> None:
    """A scheduler that is down or behind, or a volume that is being made: the gang stays, no host is left out."""
    gang = job(count=1)
    if free:
        gang = replace(gang, suspendable=False, pod_sets=(replace(gang.pod_sets[0], replace="free"),))
    timers = Timers()
    mute = pod(gang, 0, pin="h0")
    look(gang, placement(gang, {"h0": 1}), (mute,), timers=timers, now=0.0)
    decision = look(gang, placement(gang, {"h0": 1}), (mute,), timers=timers, now=3600.0)
    assert decision.action == NoAction()
    message = "1 pod not bound after 30 s; the scheduler has given no reason: does it run?"
    assert decision.status == Status("Placed", "SchedulerSilent", message)
    assert timers.hosts_out(3600.0) == frozenset()
    spoken = replace(mute, unschedulable=REFUSAL)
    decision = look(gang, placement(gang, {"h0": 1}), (spoken,), timers=timers, now=3601.0)
    assert isinstance(decision.action, Extend if free else Unplace)
    assert timers.hosts_out(3601.0) == frozenset({"h0"})


def test_a_started_gang_says_that_the_scheduler_says_nothing() -> None:
    """Incomplete, and another reason than a refusal: its words, when they come, are news."""
    gang = job(count=2)
    placed = placement(gang, {"h0": 1, "h1": 1})
    timers = Timers()
    pods = (pod(gang, 0, host="h0"), pod(gang, 1, pin="h1"))
    look(gang, placed, pods, timers=timers, now=0.0)
    decision = look(gang, placed, pods, timers=timers, now=31.0)
    assert (decision.action, decision.status and decision.status.reason) == (NoAction(), "SchedulerSilent")
    pods = (pods[0], replace(pods[1], unschedulable=REFUSAL))
    decision = look(gang, placed, pods, timers=timers, now=32.0)
    assert (decision.action, decision.status and decision.status.reason) == (NoAction(), "SchedulerRefused")


def test_the_backoff_of_a_refused_host_doubles() -> None:
    """The second refusal keeps the host out twice as long."""
    timers = Timers()
    timers.exclude("h0", 0.0)
    timers.exclude("h0", 100.0)
    assert timers.hosts_out(100.0 + 2 * EXCLUDE_FIRST - 1) == frozenset({"h0"})


def test_a_late_pod_of_a_started_gang_costs_no_retry() -> None:
    """A part runs: no pod is deleted, no Job suspended; the gang is Incomplete with the scheduler's reason."""
    gang = job(count=2)
    pods = (pod(gang, 0, host="h0"), pod(gang, 1, pin="h1", unschedulable=REFUSAL))
    timers = Timers()
    placed = placement(gang, {"h0": 1, "h1": 1})
    look(gang, placed, pods, timers=timers, now=0.0)
    decision = look(gang, placed, pods, timers=timers, now=60.0)
    assert decision.action == NoAction()
    assert decision.status is not None
    assert (decision.status.phase, decision.status.reason) == ("Incomplete", "SchedulerRefused")


@pytest.mark.parametrize(
    ("cost", "refused", "deleted"),
    [("free", False, True), ("group", False, False), ("group", True, True), ("retry", True, False)],
)
def test_a_pod_pinned_to_a_host_that_is_not_its_slot_is_replaced(cost: str, refused: bool, deleted: bool) -> None:
    """Its slot was moved while it was created. At once if that is free; a group is restarted only for a refused pod."""
    gang = job(count=2)
    gang = replace(gang, suspendable=False, pod_sets=(replace(gang.pod_sets[0], replace=cost),))
    waits = pod(gang, 1, pin="h1", unschedulable=REFUSAL if refused else "")
    pods = (pod(gang, 0, host="h0"), waits)
    moved = placement(gang, {"h0": 1, "h2": 1})
    action = look(gang, moved, pods, timers=Timers(), now=0.0).action
    if not deleted:
        assert action == NoAction()
        return
    assert isinstance(action, EvictPods) and action.pods == (waits,) and not action.evict
    assert action.message == "1 pod waits for h1, but its slot is elsewhere now: deleted, to be created again"
    stays = placement(gang, {"h0": 1, "h1": 1})
    assert look(gang, stays, pods, timers=Timers(), now=0.0).action == NoAction()


@pytest.mark.parametrize(
    ("cost", "refused", "deleted"),
    [("free", False, False), ("free", True, True), ("group", True, True), ("retry", True, False)],
)
def test_a_pod_pinned_by_an_older_plan_is_replaced_if_it_has_no_slot_any_more(
    cost: str, refused: bool, deleted: bool
) -> None:
    """Another gang may have its host by now. While the scheduler refuses it no slot would be looked for elsewhere."""
    gang = job(count=2)
    gang = replace(gang, suspendable=False, pod_sets=(replace(gang.pod_sets[0], replace=cost),))
    waits = pod(gang, 1, pin="h0", unschedulable=REFUSAL if refused else "")
    action = look(gang, placement(gang, {"h0": 1}), (pod(gang, 0, host="h0"), waits), timers=Timers()).action
    assert isinstance(action, EvictPods) == deleted
    if isinstance(action, EvictPods):
        assert action.pods == (waits,) and not action.evict
        assert action.message == "1 pod waits for h0, but has no slot any more: deleted, to be created again"


def test_a_pod_without_ranks_is_replaced_where_its_gang_has_no_slot() -> None:
    """Any slot of a host is as good as another: only a host without one is wrong."""
    gang = job(count=2)
    gang = replace(gang, suspendable=False, pod_sets=(replace(gang.pod_sets[0], replace="free", ranked=False),))
    right, wrong = pod(gang, None, pin="h0", name="right"), pod(gang, None, pin="h1", name="wrong")
    action = look(gang, placement(gang, {"h0": 1, "h2": 1}, ranked=False), (right, wrong), timers=Timers()).action
    assert isinstance(action, EvictPods) and action.pods == (wrong,)


def test_evictions_are_forgotten_when_they_would_be_repeated() -> None:
    """A gang that runs for months loses many pods."""
    gang, timers = job(count=2), Timers()
    first, second = pod(gang, 0, host="h0"), pod(gang, 1, host="h0")
    assert timers.remove([first], 0.0) == (first,)
    assert timers.remove([first, second], 1.0) == (second,)
    assert timers.remove([first, second], REMOVE_AGAIN) == (first,)
    assert timers.remove([second], 2 * REMOVE_AGAIN) == (second,)
    assert timers.removed.keys() == {second.uid}


def test_slots_without_any_pod_go_back_after_the_hold_timeout() -> None:
    """A gang whose pods never appear does not keep the room for ever."""
    gang = job(count=2)
    timers = Timers()
    placed = placement(gang, {"h0": 2})
    first = look(gang, placed, timers=timers, now=0.0)
    assert first.action == NoAction() and first.wake == pytest.approx(600.0)
    action = look(gang, placed, timers=timers, now=600.0).action
    assert isinstance(action, Unplace) and action.suspend and action.reason == "HoldExpired"


def test_a_gang_that_loses_all_pods_after_hours_has_the_whole_hold_timeout_for_new_ones() -> None:
    """It runs, nothing changes, and nobody looks at it until its host takes all of it away."""
    gang = job(count=2)
    timers = Timers()
    placed = placement(gang, {"h0": 2}, status={"phase": "Running"})
    look(gang, placed, (pod(gang, 0, host="h0"), pod(gang, 1, host="h0")), timers=timers, now=0.0)
    decision = look(gang, placed, timers=timers, now=36_000.0)
    assert decision.action == NoAction()
    action = look(gang, placed, timers=timers, now=36_600.0).action
    assert isinstance(action, Unplace) and action.reason == "HoldExpired"


def test_a_job_owned_by_another_controller_is_never_suspended() -> None:
    """Its suspend field belongs to its owner: the gate holds its pods."""
    gang = job(count=1, owner=OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "js", "u", True))
    timers = Timers()
    pods = (pod(gang, 0, pin="h0", unschedulable=REFUSAL),)
    look(gang, placement(gang, {"h0": 1}), pods, timers=timers, now=0.0)
    assert look(gang, placement(gang, {"h0": 1}), pods, timers=timers, now=60.0).action == NoAction()


def test_a_workload_that_asks_for_nothing_any_more_is_let_go() -> None:
    """Held by us without a request: resume it, free its pods, forget the Placement."""
    gang = job(count=1, held=True)
    held = pod(gang, 0, gated=True)
    ignored = PlacementRequest(ignored="NoTopologyRequested")
    decision = look(gang, placement(gang, None), (held,), placement_request=ignored)
    assert isinstance(decision.action, Unmanage)
    assert (decision.action.pods, decision.action.resume, decision.action.forget) == ((held,), True, True)
    assert decision.action.reason == "NoTopologyRequested"


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_switching_enforcement_off_lets_everything_held_go(mode: str) -> None:
    """observe and off resume what we suspended and release what we hold."""
    gang = job(count=1, held=True)
    action = look(gang, placement(gang, None), policy=parse_policy(f"mode: {mode}")).action
    assert isinstance(action, Unmanage) and action.resume


def test_a_request_that_became_wrong_keeps_the_gang_held_and_says_why() -> None:
    """A policy change took its level away: never started elsewhere, the reason is shown."""
    gang = job(count=1, held=True)
    wrong = PlacementRequest(
        errors=(FieldError("metadata.annotations[x]", "Invalid value", "y", "UnknownLevel", "allowed"),)
    )
    decision = look(gang, placement(gang, None), placement_request=wrong)
    assert decision.action == NoAction()
    assert decision.status is not None and decision.status.reason == "UnknownLevel"


def test_a_workload_that_ran_before_us_is_left_alone() -> None:
    """No gate in its template, not held, running: new workloads only."""
    gang = job(count=1)
    gang = changed(gang, template=replace(gang.template, gates=()))
    assert look(gang, None, (pod(gang, 0, host="h9"),)).action == NoAction()


def test_a_gang_that_was_let_go_and_runs_is_left_alone() -> None:
    """Back from `mode: off` its template still carries the gate: no plan for pods that run elsewhere already."""
    gang = job(count=2)
    bound = (pod(gang, 0, host="h8"), pod(gang, 1, host="h9"))
    assert look(gang, None, bound).action == NoAction()
    assert isinstance(look(gang, None, (bound[0], pod(gang, 1, gated=True))).action, Enqueue)


def test_a_scaled_down_gang_writes_its_smaller_assignment() -> None:
    """Scaling down gives the highest ranks' slots back for good."""
    gang = job(count=1)
    action = look(gang, placement(job(count=2), {"h0": 1, "h1": 1}), (pod(gang, 0, host="h0"),)).action
    assert isinstance(action, Shrink)
    assert [slot.host for slot in action.assignment.pod_sets[0].slots] == ["h0"]


def test_a_finished_gang_rests() -> None:
    """A finished workload holds nothing and nothing is done for it but to say so."""
    gang = replace(job(count=1), finished=True)
    decision = look(gang, placement(gang, {"h0": 1}))
    assert decision.action == NoAction()
    assert decision.status is not None and decision.status.phase == "Finished"


@pytest.mark.parametrize(("failed", "said"), [(True, "has failed"), (False, "has ended")])
def test_a_finished_gang_says_whether_it_failed(failed: bool, said: str) -> None:
    """Its slots are free either way."""
    gang = replace(job(count=1), finished=True, failed=failed)
    status = look(gang, placement(gang, {"h0": 1})).status
    assert status is not None
    assert status.message == f"the Job {said}; its slots are free"


def test_our_gate_under_a_foreign_one_is_not_taken_off() -> None:
    """A member that somebody else holds too is not ready; nothing of it is released."""
    gang = job(count=1)
    held: Any = pod(gang, 0, gated=True)
    held = replace(held, spec=replace(held.spec, gates=(names.GATE, "example.com/theirs")))
    assert look(gang, placement(gang, {"h0": 1}), (held,)).action == NoAction()


# -- moments that are easy to get wrong --------------------------------------------------------------------------------

REFUSED_NOW = PlacementRequest(
    errors=(FieldError("metadata.annotations[x]", "Invalid value", "y", "UnknownLevel", "allowed"),)
)


def test_slots_that_others_have_taken_are_given_back_before_the_resume() -> None:
    """Time has passed between plan and resume: what was free then may be in use now."""
    gang = job(count=2, held=True)
    action = look(gang, placement(gang, {"h0": 1, "h1": 1}), overcommitted=frozenset({"h1"})).action
    assert isinstance(action, Unplace)
    assert (action.suspend, action.reason) == (False, "ReservedByOthers")


def test_a_gang_that_has_run_keeps_its_slots_while_its_job_backs_off() -> None:
    """All pods failed an hour after the start: the Job's own pause is not a hold that has expired."""
    gang, timers = job(count=1), Timers()
    placed = placement(gang, {"h0": 1})
    look(gang, placed, (pod(gang, 0, host="h0"),), timers=timers, now=0.0)
    look(gang, placed, (pod(gang, 0, host="h0"),), timers=timers, now=3600.0)
    assert isinstance(look(gang, placed, (), timers=timers, now=3605.0).action, NoAction)
    expired = look(gang, placed, (), timers=timers, now=3605.0 + default_policy().timeouts.hold).action
    assert isinstance(expired, Unplace)


def test_a_gang_of_no_pods_waits_for_none() -> None:
    """Parallelism 0: nothing is held back, so nothing expires."""
    gang, timers = job(count=0), Timers()
    for now in (0.0, 10_000.0):
        decision = look(gang, placement(gang, {}), timers=timers, now=now)
        assert isinstance(decision.action, NoAction)
        assert decision.wake is None


def test_nothing_is_released_when_a_part_of_the_gang_has_lost_its_host() -> None:
    """All or nothing, also where suspension is not ours to use: the slots go back, every pod stays held."""
    gang = replace(job(count=2), owner=OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "uid-set", True))
    pods = (pod(gang, 0, gated=True), pod(gang, 1, gated=True))
    action = look(gang, placement(gang, {"h0": 1, "h1": 1}), pods, gone=frozenset({"h1"})).action
    assert isinstance(action, Unplace)
    assert not action.suspend


def test_a_placed_gang_goes_on_when_a_new_policy_would_refuse_its_request() -> None:
    """Its slots are written down: replacement pods go back to them."""
    gang = job(count=2)
    pods = (pod(gang, 0, host="h0"), pod(gang, 1, gated=True))
    action = look(gang, placement(gang, {"h0": 1, "h1": 1}), pods, placement_request=REFUSED_NOW).action
    assert isinstance(action, Release)
    assert [one.slot.host for one in action.assignments] == ["h1"]


def test_a_held_gang_gives_its_slots_back_when_a_new_policy_refuses_its_request() -> None:
    """It does not start as it is, and keeps nobody else waiting."""
    gang = job(count=2, held=True)
    action = look(gang, placement(gang, {"h0": 1, "h1": 1}), placement_request=REFUSED_NOW).action
    assert isinstance(action, Unplace)
    assert (action.suspend, action.reason) == (False, "UnknownLevel")


def test_a_gang_that_grew_before_anything_of_it_started_is_planned_anew() -> None:
    """A scale that no webhook sees: its pods would wait for slots that do not exist."""
    gang = job(count=3)
    action = look(gang, placement(gang, {"h0": 2}), (pod(gang, 2, gated=True),)).action
    assert isinstance(action, Unplace)
    assert action.suspend
    started = look(gang, placement(gang, {"h0": 2}), (pod(gang, 0, host="h0"), pod(gang, 2, gated=True)))
    assert isinstance(started.action, Extend)
    assert started.action.extension.more == 1


def test_a_pod_that_somebody_else_holds_is_not_late() -> None:
    """Our gate is gone, another one is not: the scheduler has not been asked yet."""
    gang, timers = job(count=1), Timers()
    held = pod(gang, 0, pin="h0")
    held = replace(held, spec=replace(held.spec, gates=("example.com/other",)))
    for now in (0.0, 10_000.0):
        assert isinstance(look(gang, placement(gang, {"h0": 1}), (held,), timers=timers, now=now).action, NoAction)


def test_a_placement_that_is_being_deleted_is_not_deleted_again() -> None:
    """A finalizer of somebody else's keeps it: asking over and over would not help."""
    gang = job(count=1)
    off = parse_policy('apiVersion: topogate.dev/v1alpha1\nkind: Policy\nmode: "off"\n')
    going = replace(placement(gang, {"h0": 1}), deleting=True)
    assert isinstance(look(gang, going, (pod(gang, 0, host="h0"),), policy=off).action, NoAction)
