"""The forecast at submit time says what the leader will say: one function answers both, and `simulate`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.objects import PriorityClass, Quota
from engine.api.workload import Workload
from engine.gang.key import placed_key
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.schedule import answer_in_view
from tests.support.cluster_records import gpu_nodes, job, pod, shape, spec
from tests.support.families import leader_worker_set
from tests.support.leader import POLICY, Leader
from webhook.admission import live_reader
from webhook.admission.forecast_budget import ForecastBudget
from webhook.admission.live_reader import LiveReader

GPU = "nvidia.com/gpu"
STRICT = POLICY + "queue: {order: strict}\n"
PATIENT = POLICY + "queue: {patience: 1m}\n"


def forecast(leader: Leader, workload: Workload) -> Outcome:
    """What a replica that does not lead says of a workload that is being made: it has the caches alone."""
    told = LiveReader(
        leader.view,
        own_username="us",
        own_namespace="ours",
        policy_loaded=lambda: True,
        wall=lambda: 1_800_000_000.0 + leader.now,
    )
    leader.view.refresh()
    outcome = told.forecast(workload, leader.view.request_of(workload), float("inf"))
    assert outcome is not None
    return outcome


def agreed(leader: Leader, workload: Workload) -> str:
    """The reason of both, the text too; "" when both place it."""
    outcome = forecast(leader, workload)
    leader.has(workload)
    leader.settle()
    leader.later(20)
    placed = leader.placed(workload.name)
    assert placed is not None
    if isinstance(outcome, Placed):
        assert placed.assignment is not None
        assert placed.assignment.pod_sets == outcome.pod_sets
        return ""
    assert (placed.status["reason"], placed.status["message"]) == (outcome.reason, outcome.message)
    return outcome.reason


def quota(**hard: int) -> Quota:
    return Quota("default", "team", hard=hard, used={}, scopes=())


def in_use(leader: Leader, *hosts: str) -> None:
    """Pods of somebody else, each on a whole host."""
    leader.has(*(pod(job("somebody"), rank, host=host, name=f"on-{host}") for rank, host in enumerate(hosts)))


def new(name: str = "train", **more: Any) -> Workload:
    """A Job that is made now, after all others."""
    return job(name, held=True, **({"created": 1_800_000_000.0 + 5000} | more))


def test_a_gang_that_has_room_is_placed_where_it_was_told() -> None:
    """Nothing goes before it."""
    assert agreed(Leader(nodes=gpu_nodes(1, 2, 4)), new()) == ""


def test_a_quota_that_does_not_take_the_gang_is_told() -> None:
    """Room on the hosts is not enough."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.stores.quotas.replace([quota(pods=3)])
    assert agreed(leader, new()) == "QuotaExceeded"


def test_what_placed_gangs_will_still_use_of_a_quota_is_counted() -> None:
    """Their pods do not exist yet."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.stores.quotas.replace([quota(pods=7)])
    assert agreed(leader, new("first")) == ""
    assert agreed(leader, new()) == "QuotaExceeded"


def test_in_strict_order_a_gang_is_told_that_another_goes_first() -> None:
    """There would be room for it, but it may not overtake."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=STRICT)
    in_use(leader, "b0-r0-h0")
    assert agreed(leader, new("big")) == "InsufficientFreeGPUs"
    assert agreed(leader, new(count=1, created=1_800_000_000.0 + 5001)) == "QueuedBehind"


def test_in_strict_order_a_higher_priority_goes_first() -> None:
    """It stands before the one that waits."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=STRICT)
    leader.stores.priority_classes.replace([PriorityClass("high", 1000, default=False)])
    in_use(leader, "b0-r0-h0")
    assert agreed(leader, new("big")) == "InsufficientFreeGPUs"
    urgent = new("urgent", count=1, created=1_800_000_000.0 + 5001)
    (main,) = urgent.pod_sets
    template = replace(main.template, priority_class="high")
    assert agreed(leader, replace(urgent, pod_sets=(replace(main, template=template),))) == ""


@pytest.mark.parametrize(
    "rule", ["queue: {order: strict}", "namespaces: {rules: [{namespaces: ['*'], maxWaitingGangs: 1}]}"]
)
def test_replicas_of_one_workload_are_told_who_goes_first_as_the_leader_tells_them(rule: str) -> None:
    """Priority, age and name are the same for all of them: the lower index goes first."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=f"{POLICY}{rule}\n")
    in_use(leader, "b0-r0-h0")
    leader.has(leader_worker_set(groups=3, size=2))
    leader.later(20)
    outcomes: dict[str | None, Waits | Never] = {}
    for placement in leader.stores.placements.values():
        gang = leader.view.gangs.get(placed_key(placement))
        assert gang is not None
        outcome = answer_in_view(leader.view, gang, created=gang.workload.created)
        assert not isinstance(outcome, Placed)
        outcomes[placement.group] = outcome
        assert (outcome.reason, outcome.message) == (placement.status["reason"], placement.status["message"])
    behind = "QueuedBehind" if "strict" in rule else "WaitingGangsLimit"
    assert [outcomes[group].reason for group in "012"] == ["InsufficientFreeGPUs", behind, behind]


@pytest.mark.parametrize("trouble", ["quota", "never", "suspended", "deleted"])
def test_in_strict_order_a_gang_that_waits_for_no_room_holds_up_nobody(trouble: str) -> None:
    """Its namespace's quota, its own size or its user keep it, or it is gone."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=STRICT)
    first = new("first", count=5 if trouble == "never" else 4, namespace="other" if trouble == "quota" else "default")
    if trouble == "quota":
        leader.stores.quotas.replace([replace(quota(pods=1), namespace="other")])
    else:
        in_use(leader, "b0-r0-h0")
    leader.has(first)
    leader.settle()
    if trouble == "suspended":
        leader.has(replace(first, annotations={}, resource_version="999999"))
    if trouble == "deleted":
        leader.stores.workloads.apply("DELETED", first)
    assert agreed(leader, new(count=1, created=1_800_000_000.0 + 5001)) == ""


def test_room_that_is_kept_for_another_gang_is_not_promised() -> None:
    """The Placement of the gang that has waited too long names the hosts, and every replica reads them."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=PATIENT)
    in_use(leader, "b0-r0-h0")
    leader.has(new("large", created=1.0))
    leader.settle()
    leader.later(61)
    large = leader.placed("large")
    assert large is not None
    assert large.status["keptHosts"] == [f"b0-r0-h{n}" for n in range(4)]
    assert agreed(leader, new(count=2)) == "QueuedBehind"


def test_room_that_is_kept_no_longer_is_free_again() -> None:
    """The gang is gone, or it is placed: its Placement says nothing of kept hosts."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=PATIENT)
    in_use(leader, "b0-r0-h0")
    large = new("large", created=1.0)
    leader.has(large)
    leader.settle()
    leader.later(61)
    leader.has(replace(large, suspended=True, annotations={}, resource_version="999999"))
    leader.settle()
    leader.later(20)
    assert agreed(leader, new(count=2)) == ""


def test_a_gang_does_not_wait_for_its_own_room() -> None:
    """An UPDATE of the gang that has room kept is answered as the leader answers it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=PATIENT)
    in_use(leader, "b0-r0-h0")
    large = new("large", created=1.0)
    leader.has(large)
    leader.settle()
    leader.later(61)
    smaller = replace(large, pod_sets=(replace(large.pod_sets[0], slots=3, total=3, remaining=3),))
    assert isinstance(forecast(leader, smaller), Placed)


def test_a_gang_of_another_namespace_is_not_named() -> None:
    """Whoever may not see it learns that there is one, in the forecast too."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=STRICT)
    in_use(leader, "b0-r0-h0")
    leader.has(new("secret", namespace="other"))
    leader.settle()
    outcome = forecast(leader, new(count=1, created=1_800_000_000.0 + 5001))
    assert not isinstance(outcome, Placed)
    assert outcome.message == "a gang of another namespace goes first and does not fit yet (policy queue.order: strict)"


PREEMPTING = POLICY + "preemption: {mode: lower-priority}\n"


def urgent(count: int = 4) -> Workload:
    """A new Job of priority 10."""
    found = new("urgent", count=count)
    (main,) = found.pod_sets
    return replace(found, pod_sets=(replace(main, template=replace(main.template, priority=10)),))


def preempted(leader: Leader, workload: Workload, **more: Any) -> list[str] | None:
    """The victims that a replica forecasts."""
    reader = LiveReader(leader.view, own_username="us", own_namespace="ours", policy_loaded=lambda: True, **more)
    found = reader.preemption(workload, leader.view.request_of(workload), float("inf"))
    return None if found is None else [one.name for one in found.victims]


def test_what_would_be_preempted_is_forecast() -> None:
    """Of the gangs of lower priority the ones whose end makes room; without the policy none."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=PREEMPTING)
    leader.has(new("left", created=1.0), new("right-1", created=2.0, count=2), new("right-2", created=3.0, count=2))
    leader.settle()
    assert preempted(leader, urgent()) == ["left"]
    assert preempted(leader, new("equal")) is None
    never = Leader(nodes=gpu_nodes(1, 1, 4))
    never.has(new("left", created=1.0))
    never.settle()
    assert preempted(never, urgent()) is None


def test_for_a_member_of_a_pod_group_no_preemption_is_forecast() -> None:
    """Nothing is preempted for one of several workloads."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=PREEMPTING)
    group = {names.POD_GROUP: "g", names.MIN_AVAILABLE: "2"}
    other, mine = new("other", count=8), urgent()
    other, member = (replace(one, annotations={**one.annotations, **group}) for one in (other, mine))
    leader.has(new("left", created=1.0), new("right", created=2.0), other)
    leader.settle()
    assert preempted(leader, mine) is not None
    assert preempted(leader, member) is None


def test_a_forecast_of_a_preemption_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said then, and nothing has changed: the next plan is the same as without it."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=PREEMPTING)
    leader.has(new("left", created=1.0), new("right", created=2.0))
    leader.settle()
    before = forecast(leader, urgent())
    monkeypatch.setattr(live_reader, "PREEMPTION_CPU", -1.0)
    assert preempted(leader, urgent()) is None
    assert forecast(leader, urgent()) == before
    monkeypatch.undo()
    budget = ForecastBudget(cpu=itertools.count(step=10.0).__next__)
    assert preempted(leader, urgent(), allowance=budget) is not None
    assert budget.left("default") < 0
    assert preempted(leader, urgent(), allowance=budget) is None
    assert forecast(leader, urgent()) == before


def test_where_nodes_are_requested_too_large_a_gang_waits_for_them() -> None:
    """At submit and in the leader alike; without a class it never fits."""
    asks = POLICY + "topologies: [{name: default, preset: demo}]\n"
    nodes = "autoscaling: {provisioningRequest: {className: a, after: 1h}}\n"
    for gpus in (8, 64):
        large = job("large", count=9, held=True, template=spec(gates=(names.GATE,), shape=shape(**{GPU: gpus})))
        assert agreed(Leader(nodes=gpu_nodes(1, 1, 2), policy=asks + nodes), large) == "InsufficientFreeHosts"
        never = forecast(Leader(nodes=gpu_nodes(1, 1, 2), policy=asks), large)
        assert isinstance(never, Never)
    assert agreed(Leader(policy=asks + nodes), job("first", count=2, held=True)) == "InsufficientFreeHosts"
    bare = [replace(node, labels={}) for node in gpu_nodes(1, 1, 2)]
    assert agreed(Leader(nodes=bare, policy=asks + nodes), job("labels", count=2, held=True)) == "LabelsMissing"


def test_in_strict_order_a_gang_past_its_limit_is_told_who_goes_first() -> None:
    """As the leader tells it: the gangs that count towards the limit are ahead of it in the queue of all."""
    limited = "namespaces: {rules: [{namespaces: [default], maxWaitingGangs: 1}]}\n"
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=STRICT + limited)
    leader.has(job("fill", count=2, created=1.0, held=True))
    leader.settle()
    leader.has(job("wide", count=3, created=2.0, held=True))
    leader.settle()
    late = job("late", count=1, created=3.0, held=True)
    told = forecast(leader, late)
    leader.has(late)
    leader.settle()
    written = leader.placed("late")
    assert written is not None and not isinstance(told, Placed)
    assert (told.reason, told.message) == (written.status["reason"], written.status["message"])
    assert told.reason == "QueuedBehind"


@pytest.mark.parametrize(("pods", "minimum", "starts"), [(5, 4, True), (3, 5, False)])
def test_a_member_of_a_pod_group_that_never_fits_by_itself_may_start_in_part(
    pods: int, minimum: int, starts: bool
) -> None:
    """The group's minimum is about all of its members: so `neverFits: deny` does not refuse one of them."""
    grouped = {names.POD_GROUP: "g", names.MIN_AVAILABLE: str(minimum)}
    leader = Leader(nodes=gpu_nodes(1, 3, 2))
    first = job("first", count=2, require=None, held=True)
    leader.has(replace(first, annotations={**first.annotations, names.UNCONSTRAINED: "true", **grouped}))
    leader.settle()
    wide = job("wide", count=pods, require="rack", held=True)
    wide = replace(wide, annotations={**wide.annotations, **grouped})
    told = LiveReader(leader.view, own_username="us", own_namespace="ours", policy_loaded=lambda: True)
    leader.view.refresh()
    outcome = told.forecast(wide, leader.view.request_of(wide), float("inf"))
    assert outcome is None  # the plans of both decide
    leader.has(wide)
    leader.settle()
    placed = leader.placed("wide")
    assert placed is not None and (placed.assignment is not None) is starts


def test_a_member_of_a_pod_group_of_which_no_pod_fits_never_fits() -> None:
    """The group does not help it, whatever the others do."""
    leader = Leader(nodes=gpu_nodes(1, 3, 2))
    grouped = {names.REQUIRE: "rack", names.POD_GROUP: "g", names.MIN_AVAILABLE: "4"}
    large = replace(job("large", count=2, held=True, template=spec(shape=shape(gpu=16))), annotations=grouped)
    assert isinstance(forecast(leader, large), Never)
