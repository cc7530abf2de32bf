"""Several workloads of one pod group: they start together or not at all, and others join them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.objects import PodGroupObject, PriorityClass, Quota
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache import pod_groups
from engine.cache.pod_groups import MAX_MEMBERS
from engine.gang.gang import held_by_us
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.families import plain
from tests.support.leader import POLICY, Leader, crash, not_leader, unavailable
from tests.support.preempting import PreemptingCluster


def member(name: str, *, count: int = 4, least: int = 8, group: str = "g", **more: object) -> Workload:
    """A held Job of a pod group."""
    found = job(name, count=count, held=True, require=None, **more)
    said = {names.POD_GROUP: group, names.MIN_AVAILABLE: str(least)}
    return replace(found, annotations={**found.annotations, **said})


def bare(name: str, *, least: int = 8) -> Pod:
    found = plain(name)
    said = {names.POD_GROUP: "g", names.MIN_AVAILABLE: str(least)}
    return replace(found, spec=replace(found.spec, annotations=said))


def led(*records: Workload | Pod, hosts: int = 8, policy: str = POLICY) -> Leader:
    leader = Leader(nodes=gpu_nodes(1, 1, hosts), policy=policy)
    leader.has(*records)
    leader.settle()
    return leader


def assigned(leader: Leader, name: str) -> int:
    found = leader.placed(name)
    plans = found.assignment.pod_sets if found is not None and found.assignment is not None else ()
    return sum(slot.count for plan in plans for slot in plan.slots)


def message(leader: Leader, name: str) -> str:
    found = leader.placed(name)
    return str(found.status["message"]) if found is not None else ""


def run(leader: Leader, *jobs: str) -> None:
    """All pods with slots are bound."""
    for name in jobs:
        found = leader.placed(name)
        assert found is not None
        assert found.assignment is not None
        for plan in found.assignment.pod_sets:
            for slot in plan.slots:
                for first, last in slot.ranks or ():
                    leader.has(*(pod(leader.workload(name), n, host=slot.host) for n in range(first, last + 1)))
    leader.settle()


def test_two_jobs_start_together() -> None:
    """Every Placement is written before the first of them is resumed."""
    leader = led(member("a"), member("b"))
    calls = [call for call, _ in leader.hands.calls if call in ("place", "resume")]
    assert calls == ["place", "place", "resume", "resume"]
    assert (assigned(leader, "a"), assigned(leader, "b")) == (4, 4)


def test_without_room_for_both_none_starts() -> None:
    leader = led(member("a"), member("b"), hosts=7)
    assert leader.hands.of("place") == []
    assert leader.hands.of("resume") == []
    for name in "ab":
        assert leader.status(name) == ("Waiting", "InsufficientFreeGPUs")
        assert "8 pods of pod group g start together; there is room for 7 of them" in message(leader, name)
    leader.has(*gpu_nodes(1, 1, 8))
    leader.settle()
    assert sorted(leader.hands.of("resume")) == ["a", "b"]


def test_what_does_not_start_takes_no_room() -> None:
    """A Job of no group goes where the first of the two would."""
    leader = led(member("a"), member("b"), job("alone", count=7, held=True), hosts=7)
    assert leader.hands.of("place") == ["alone"]


def test_one_waits_for_the_pods_of_the_other() -> None:
    leader = led(member("a"))
    leader.later(5)
    assert leader.status("a") == ("Waiting", "WaitingForMembers")
    assert message(leader, "a") == "4 of 8 pods of pod group g exist"
    leader.has(member("b"))
    leader.settle()
    assert sorted(leader.hands.of("resume")) == ["a", "b"]


@pytest.mark.parametrize("hosts", [6, 7])
def test_a_minimum_below_all_pods_starts_with_as_many_as_fit(hosts: int) -> None:
    leader = led(member("a", least=6), member("b", least=6), hosts=hosts)
    assert sorted(leader.hands.of("resume")) == ["a", "b"]
    assert assigned(leader, "a") + assigned(leader, "b") == hosts
    run(leader, "a", "b")
    leader.has(*gpu_nodes(1, 1, 8))
    leader.settle()
    assert (assigned(leader, "a"), assigned(leader, "b")) == (4, 4)


def test_a_job_that_comes_later_joins() -> None:
    """It needs no more than room for a pod, as the group has its minimum."""
    leader = led(member("a"), member("b"), hosts=9)
    run(leader, "a", "b")
    leader.has(member("c", count=2))
    leader.settle()
    assert assigned(leader, "c") == 1
    assert leader.hands.of("resume")[-1] == "c"


def test_the_larger_of_two_minimums_counts() -> None:
    leader = led(member("a", least=6), member("b", least=8), hosts=7)
    assert leader.hands.of("resume") == []


def test_namespaces_and_names_divide_groups() -> None:
    leader = led(member("a"), member("b", group="h"), member("c", namespace="other"))
    leader.later(5)
    assert leader.hands.of("resume") == []
    assert message(leader, "a") == "4 of 8 pods of pod group g exist"


def test_plain_pods_and_a_job_are_one_group() -> None:
    leader = led(member("a", least=6), bare("p", least=6), hosts=6)
    assert leader.hands.of("resume") == []
    leader.has(bare("q", least=6))
    leader.settle()
    assert leader.hands.of("resume") == ["a"]
    assert sorted(leader.hands.of("release")) == ["p", "q"]


PATIENT = f"{POLICY}queue: {{patience: 60s}}\n"


@pytest.mark.parametrize("counts", [(8,), (4, 4), (7, 1), (3, 3, 2)])
def test_a_group_that_waits_for_long_is_not_overtaken_for_ever(counts: tuple[int, ...]) -> None:
    """Hosts are kept for its whole minimum: each host that becomes free is kept, and small Jobs wait for it."""
    members = [member(f"m{number}", count=count) for number, count in enumerate(counts)]
    busy = [
        replace(pod(job("other", require=None), None, host=f"b0-r0-h{number}", name=f"x{number}"), owner=None)
        for number in range(6)
    ]
    leader = led(*busy, policy=PATIENT)
    leader.has(*members)
    leader.settle()
    leader.later(70)
    assert leader.status("m0") == ("Waiting", "RoomKept")
    assert "b0-r0 (8 hosts) kept free until 8 pods fit" in message(leader, "m0")
    small = {names.UNCONSTRAINED: "true", names.HELD_BY: names.HELD_BY_SUSPEND}
    for number, one in enumerate(busy):
        leader.stores.pods.apply("DELETED", one)
        leader.has(job(f"small{number}", count=1, held=True, require=None, created=5000.0 + number, annotations=small))
        leader.settle()
        leader.later(5)
    assert [assigned(leader, one.name) for one in members] == list(counts)
    assert not any(assigned(leader, f"small{number}") for number in range(6))


def test_a_suspension_by_the_user_takes_a_job_out_of_its_group() -> None:
    second = member("b")
    annotations = {key: text for key, text in second.annotations.items() if key != names.HELD_BY}
    leader = led(member("a"), replace(second, annotations=annotations))
    leader.later(5)
    assert message(leader, "a") == "4 of 8 pods of pod group g exist"


def test_a_job_that_needs_the_only_rack_gets_it() -> None:
    """The other, which is older, would take a part of it if it were planned first."""
    narrow = member("b", count=3, least=6)
    narrow = replace(narrow, annotations={**narrow.annotations, names.REQUIRE: "rack"})
    leader = Leader(nodes=[*gpu_nodes(1, 1, 3), *gpu_nodes(1, 4, 1)[1:]])
    leader.has(member("a", count=3, least=6), narrow)
    leader.settle()
    assert sorted(leader.hands.of("resume")) == ["a", "b"]


# -- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [unavailable, not_leader, crash])
@pytest.mark.parametrize("when", ["place", "resume"])
@pytest.mark.parametrize("first", [True, False])
def test_a_leader_that_fails_at_any_write_starts_no_half(fault: Callable[[str], None], when: str, first: bool) -> None:
    """Before the first resume both have their slots; what was written of them before is undone, or goes on."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    leader.has(member("a"), member("b"))
    calls: list[str] = []

    def broken(name: str) -> None:
        calls.append(name)
        if len(calls) == (1 if first else 2):
            fault(name)

    leader.hands.broken[when] = broken
    seen: list[bool] = []
    for _ in range(40):
        leader.turn()
        leader.work()
        running = [not held_by_us(leader.workload(name)) for name in "ab"]
        seen.append(any(running) and (assigned(leader, "a") < 4 or assigned(leader, "b") < 4))
        leader.now += 1
    assert not any(seen)
    assert not any(held_by_us(leader.workload(name)) for name in "ab")
    assert (assigned(leader, "a"), assigned(leader, "b")) == (4, 4)


def test_a_new_leader_gives_back_a_half_that_was_written() -> None:
    """And places both again, when there is room for both."""
    leader = led(member("a"), member("b"))
    done = leader.placed("a")
    assert done is not None
    later = Leader(nodes=gpu_nodes(1, 1, 7))
    later.has(done, member("a"), member("b"))
    later.settle()
    assert later.hands.of("resume") == []
    assert assigned(later, "a") == 0
    assert later.status("a") == ("Waiting", "InsufficientFreeGPUs")
    later.has(*gpu_nodes(1, 1, 8))
    later.settle()
    assert sorted(later.hands.of("resume")) == ["a", "b"]


def test_a_started_half_stays_when_the_other_loses_its_slots() -> None:
    """A pod of it runs: nothing of it is taken back, and the other waits for its room."""
    leader = led(member("a"), member("b"))
    run(leader, "a")
    leader.later(700)  # no pod of b appears: its slots go back
    assert assigned(leader, "a") == 4
    assert not leader.workload("a").suspended


def test_a_part_that_cannot_be_suspended_starts_no_further_pod_before_the_rest_has_slots() -> None:
    """Its slots were written without those of the other; one of its pods is free already, and may be bound."""
    before = led(member("a"), member("b"))
    done = before.placed("a")
    assert done is not None
    first = replace(member("a"), suspended=False, suspendable=False)
    leader = Leader(nodes=gpu_nodes(1, 1, 7))
    pods = [pod(first, 0, gated=False), *(pod(first, rank, gated=True) for rank in (1, 2, 3))]
    leader.has(done, first, member("b"), *pods)
    leader.settle()
    leader.later(5)
    assert leader.hands.of("release") == []
    assert assigned(leader, "a") == 4
    assert leader.status("a") == ("Placed", "WaitingForMembers")
    assert message(leader, "a") == "4 of 8 pods of pod group g have slots"
    leader.has(*gpu_nodes(1, 1, 8))
    leader.settle()
    assert assigned(leader, "b") == 4
    assert len(leader.hands.of("release")) == 3


@pytest.mark.parametrize("nth", [1, 2])
def test_a_plan_that_fails_leaves_none_of_its_group_assumed(nth: int) -> None:
    """The room is free for others meanwhile, and the group is planned again."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    leader.has(member("a"), member("b"))

    def broken(name: str) -> None:
        if len(leader.hands.planned) == nth:
            crash(name)

    leader.hands.broken["plan"] = broken
    leader.turn()
    assert [leader.view.gangs.holds(f"uid-{name}") for name in "ab"] == [False, False]
    leader.has(job("alone", count=8, held=True))
    leader.settle(2)
    assert leader.hands.of("place") == ["alone"]


# -- members that have ended -----------------------------------------------------------------------------------------


def ended(leader: Leader, name: str) -> None:
    found = leader.workload(name)
    leader.has(replace(found, finished=True, resource_version=leader.hands.version()))
    leader.settle()


def wall(leader: Leader) -> float:
    return 1_800_000_000.0 + leader.now


def test_a_member_that_has_ended_counts_for_those_that_started_with_it() -> None:
    """The other one gets new slots after it lost all of its own."""
    leader = led(member("a"), member("b"))
    run(leader, "a")
    leader.later(3)
    ended(leader, "a")
    assert assigned(leader, "b") == 4
    leader.later(700)  # no pod of b appears: its slots go back, and it is planned again after a while
    leader.later(700)
    assert leader.hands.of("suspend") == ["b"]
    assert assigned(leader, "b") == 4


def test_a_member_that_ends_before_the_other_has_a_pod_takes_nothing_from_it() -> None:
    leader = led(member("a"), member("b"))
    ended(leader, "a")
    assert assigned(leader, "b") == 4
    assert leader.hands.of("give back") == leader.hands.of("suspend") == []


def test_a_member_of_an_earlier_run_counts_for_none_of_the_next() -> None:
    """As with the Jobs of a CronJob: each is all or nothing, whatever of the group has ended before."""
    leader = led(member("a", least=4))
    run(leader, "a")
    leader.later(3)
    ended(leader, "a")
    leader.has(job("other", count=2, held=True))  # two hosts are left beside the pods of a
    leader.settle()
    leader.later(60)
    leader.has(member("b", least=4, created=wall(leader)))
    leader.settle()
    assert assigned(leader, "b") == 0
    assert leader.status("b")[0] == "Waiting"


def test_a_member_planned_again_waits_once_the_ended_one_is_deleted_until_its_minimum_is_lowered() -> None:
    leader = led(member("a"), member("b"))
    run(leader, "b")
    leader.later(3)
    ended(leader, "b")
    leader.stores.workloads.apply("DELETED", leader.workload("b"))
    leader.later(700)  # no pod of a appears: its slots go back
    leader.later(700)
    assert leader.hands.of("suspend") == ["a"]
    assert message(leader, "a") == "4 of 8 pods of pod group g exist"
    found = leader.workload("a")
    lowered = {**found.annotations, names.MIN_AVAILABLE: "4"}
    leader.has(replace(found, annotations=lowered, resource_version=leader.hands.version()))
    leader.settle()
    assert assigned(leader, "a") == 4
    assert leader.hands.of("resume")[-1] == "a"


# -- the limit of members --------------------------------------------------------------------------------------------


RACK = {names.REQUIRE: "rack"}


def crowd(count: int, *, least: int) -> list[Workload]:
    """Jobs of one pod each, the oldest first."""
    return [member(f"m{number:02}", count=1, least=least, created=1000.0 + number) for number in range(count)]


def test_the_oldest_workloads_of_a_pod_group_count_up_to_its_limit_and_the_next_join_as_they_end() -> None:
    leader = led(*crowd(MAX_MEMBERS, least=8), hosts=80)
    run(leader, *(f"m{number:02}" for number in range(MAX_MEMBERS)))
    leader.has(*crowd(MAX_MEMBERS + 2, least=8)[MAX_MEMBERS:])
    leader.settle()
    leader.later(5)
    assert len(leader.hands.of("resume")) == MAX_MEMBERS
    for late in ("m64", "m65"):
        assert leader.status(late) == ("Waiting", "WaitingForMembers")
        assert message(leader, late) == "pod group g has more than 64 workloads; others join when some have ended"
    ended(leader, "m07")
    leader.later(5)
    assert leader.hands.of("resume")[MAX_MEMBERS:] == ["m64"]


def test_a_large_pod_group_that_is_seen_before_its_topology_starts_too() -> None:
    """As in the first moments of every replica, under a policy with topologies of its own."""
    large = [replace(one, annotations={**one.annotations, **RACK}) for one in crowd(MAX_MEMBERS + 2, least=8)]
    leader = led(*large, hosts=80, policy=f"{POLICY}topologies: [{{name: default, preset: demo}}]\n")
    leader.later(5)
    assert len(leader.hands.of("resume")) == MAX_MEMBERS


@pytest.mark.parametrize("turned", [False, True])
def test_pods_of_workloads_above_the_limit_do_not_make_up_the_minimum(turned: bool) -> None:
    """In whatever order the watch shows them."""
    found = crowd(MAX_MEMBERS + 2, least=MAX_MEMBERS + 1)
    leader = led(*(found[::-1] if turned else found), hosts=80)
    leader.later(5)
    assert leader.hands.of("place") == []
    assert message(leader, "m00") == "64 of 65 pods of pod group g exist"
    assert message(leader, "m64").startswith("pod group g has more than 64 workloads")


def test_workloads_that_ended_leave_room_below_the_limit() -> None:
    """The Jobs of a CronJob stay for a while after they have ended."""
    past = [replace(one, finished=True) for one in crowd(MAX_MEMBERS + 6, least=4)]
    leader = led(*past, member("next", least=4, created=2000.0))
    assert leader.hands.of("resume") == ["next"]


def test_an_event_of_a_workload_above_the_limit_concerns_no_other() -> None:
    leader = led(*crowd(MAX_MEMBERS + 2, least=8), hosts=4)
    assert leader.view.gangs.in_group_with(["uid-m65"]) == set()
    assert len(leader.view.gangs.in_group_with(["uid-m00"])) == MAX_MEMBERS


# -- PodGroup objects ------------------------------------------------------------------------------------------------


def of_object(name: str, *, count: int = 4) -> Workload:
    """A held Job whose label names the PodGroup object `g`, as admission leaves it."""
    found = job(name, count=count, held=True, require=None, labels={names.SCHEDULER_PLUGINS_POD_GROUP: "g"})
    return replace(found, annotations={**found.annotations, names.POD_GROUP: "g", names.UNCONSTRAINED: "true"})


def says(leader: Leader, minimum: int, *, timeout: float | None = None, problem: str = "") -> PodGroupObject:
    found = PodGroupObject("default", "g", minimum, timeout, problem, resource_version=leader.hands.version())
    leader.stores.pod_groups.apply("MODIFIED", found)
    leader.settle()
    return found


def test_the_minimum_of_a_pod_group_object_counts_and_may_come_late() -> None:
    leader = led(of_object("a"), of_object("b"))
    leader.later(5)
    assert leader.status("a") == ("Waiting", "WaitingForMembers")
    assert message(leader, "a") == (
        "PodGroup g (scheduling.x-k8s.io) not found: create it with spec.minMember, the number of pods that start "
        "together; or set topogate.dev/min-available on each member, or remove its topogate.dev/pod-group"
    )
    says(leader, 9)
    leader.later(10)
    assert message(leader, "a") == "8 of 9 pods of pod group g exist"
    says(leader, 8)
    assert sorted(leader.hands.of("resume")) == ["a", "b"]


def edited(leader: Leader, name: str, **annotations: str | None) -> None:
    """Its user edits annotations of a waiting Job; None removes one."""
    found = leader.workload(name)
    every = {
        **found.annotations,
        **{f"topogate.dev/{key.replace('_', '-')}": text for key, text in annotations.items()},
    }
    kept = {key: text for key, text in every.items() if text is not None}
    leader.has(replace(found, annotations=kept, resource_version=leader.hands.version()))
    leader.settle()


def test_members_that_say_their_minimum_need_no_pod_group_object() -> None:
    """One of the ways out that the message names; each member has to say it."""
    leader = led(of_object("a"), of_object("b"))
    edited(leader, "a", min_available="8")
    leader.later(5)
    assert leader.hands.of("resume") == []
    edited(leader, "b", min_available="8")
    leader.later(5)
    assert sorted(leader.hands.of("resume")) == ["a", "b"]


def test_a_member_that_leaves_its_group_needs_no_pod_group_object() -> None:
    """The other way out: it is a gang by itself then, and the others wait on."""
    leader = led(of_object("a"), of_object("b"))
    edited(leader, "a", pod_group=None)
    leader.later(5)
    assert leader.hands.of("resume") == ["a"]
    assert leader.status("b") == ("Waiting", "WaitingForMembers")


def test_one_job_of_a_pod_group_object_starts_with_its_minimum() -> None:
    leader = led(of_object("a"), hosts=3)
    says(leader, 3)
    assert leader.hands.of("resume") == ["a"]
    assert assigned(leader, "a") == 3


def test_garbage_in_a_pod_group_object_holds_its_jobs_and_says_why() -> None:
    leader = led(of_object("a"), of_object("b"))
    says(leader, 0, problem="spec.minMember: must be a whole number")
    leader.later(5)
    assert message(leader, "a") == "PodGroup g cannot be read: spec.minMember: must be a whole number"
    assert leader.hands.of("resume") == []


def test_a_group_that_runs_goes_on_without_its_object() -> None:
    """It was removed, or its kind: what has slots keeps them, and nothing joins."""
    leader = led(of_object("a"), of_object("b"), hosts=9)
    known = says(leader, 8)
    run(leader, "a", "b")
    leader.stores.pod_groups.apply("DELETED", known)
    leader.settle()
    leader.has(of_object("c", count=1))
    leader.settle()
    leader.later(5)
    assert (assigned(leader, "a"), assigned(leader, "b"), assigned(leader, "c")) == (4, 4, 0)
    assert leader.status("c") == ("Waiting", "WaitingForMembers")


def test_the_time_out_of_a_pod_group_object_counts_for_jobs_without_one() -> None:
    leader = led(of_object("a"), of_object("b"), hosts=7)
    says(leader, 8, timeout=60.0)
    leader.later(61)
    assert sorted(leader.hands.of("requeue")) == ["a", "b"]


# -- any group -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    least=st.integers(1, 16),
    hosts=st.integers(1, 12),
    taken=st.integers(0, 6),
)
def test_a_group_starts_exactly_when_its_minimum_exists_and_has_room(
    counts: list[int], least: int, hosts: int, taken: int
) -> None:
    """Equal pods, one for a host: with less than the minimum not one has a slot, else as many as there is room for."""
    leader = led(*([job("other", count=min(taken, hosts), held=True, require="block")] if taken else []), hosts=hosts)
    leader.has(*(member(f"m{number}", count=count, least=least) for number, count in enumerate(counts)))
    leader.settle(40)
    room = hosts - (min(taken, hosts) if taken else 0)
    slots = sum(assigned(leader, f"m{number}") for number in range(len(counts)))
    assert slots == (min(sum(counts), room) if min(sum(counts), room) >= least else 0)
    resumed = [number for number in range(len(counts)) if not held_by_us(leader.workload(f"m{number}"))]
    assert resumed == [number for number in range(len(counts)) if assigned(leader, f"m{number}")]


@example([(0, "runs"), (1, "runs"), (2, "runs"), (3, "runs"), (3, "ended")])
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["runs", "ended", "suspended", "gone"])), max_size=30))
def test_which_workloads_count_depends_on_the_cluster_alone(changes: list[tuple[int, str]]) -> None:
    """Not on the order of the changes: the three oldest that run, here, and the last three that ended."""
    leader = Leader(nodes=gpu_nodes(1, 1, 1))
    now: dict[int, str] = {}
    with patch.object(pod_groups, "MAX_MEMBERS", 3):
        for number, what in changes:
            made = member(f"m{number}", count=1, least=2, created=1000.0 + number)
            if what == "gone":
                if now.pop(number, None):
                    leader.stores.workloads.apply("DELETED", leader.workload(made.name))
            else:
                now[number] = what
                said = {names.POD_GROUP: "g", names.MIN_AVAILABLE: "2"} if what == "suspended" else made.annotations
                leader.has(
                    replace(made, finished=what == "ended", annotations=said, resource_version=leader.hands.version())
                )
            leader.view.take_changes()
            running = [f"uid-m{one}" for one in sorted(now) if now[one] == "runs"]
            past = [f"uid-m{one}" for one in sorted(now) if now[one] == "ended"]
            if len(now) > 3:
                for key in running:
                    expected = {*running[:3], *past[-3:]} if key in running[:3] else set()
                    assert leader.view.gangs.in_group_with([key]) == expected


def test_in_strict_order_no_member_waits_behind_another_one() -> None:
    """All of them wait for the same."""
    leader = led(member("a"), member("b"), hosts=1, policy=POLICY + "queue: {order: strict}\n")
    leader.later(20)
    assert leader.status("a")[1] == leader.status("b")[1] != "QueuedBehind"
    assert message(leader, "a") == message(leader, "b")


@pytest.mark.parametrize("order", ["best-effort", "strict"])
def test_a_member_that_no_quota_allows_its_class_takes_no_others_ahead(order: str) -> None:
    """Neither onto hosts that are kept for a gang of another namespace, nor past it in strict order."""
    cluster = PreemptingCluster(policy=f"queue: {{order: {order}, patience: 30s}}\n", racks=1)
    stores = cluster.leader.stores
    for name, value in (("middle", 500), ("urgent", 1000)):
        stores.priority_classes.apply("ADDED", PriorityClass(name, value, False, resource_version="1"))
    scope = (("PriorityClass", "In", ("urgent",)),)
    stores.quotas.apply("ADDED", Quota("evil", "no-urgent", {"pods": 0}, {"pods": 0}, scope))
    cluster.submit("runs", 1, require=None)
    cluster.go_on(10)
    cluster.submit("first", 2, namespace="other", priority_class="middle")
    cluster.wait(60)
    asks = {names.POD_GROUP: "g", names.MIN_AVAILABLE: "1"}
    cluster.submit("small", 1, namespace="evil", annotations=asks)
    cluster.submit("forbidden", 1, namespace="evil", annotations=asks, priority_class="urgent")
    cluster.wait(30)
    assert (cluster.hosts("small"), cluster.reason("forbidden")) == ([], "QuotaExceeded")
    cluster.finish("runs")
    cluster.wait(20)
    assert cluster.runs("first")
