"""What becomes of a running gang whose user asks that it is planned anew, from the annotation to what is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.placement import replan_record
from engine.api.pod import Pod
from engine.api.workload import GangKey, ReservationKey, Workload
from engine.lifecycle.moves import PODS_END_WITHIN
from engine.policy.model import Policy, parse_policy
from engine.scheduler.starvation import Nomination
from tests.support.cluster_records import changed, gpu_nodes, job, pod, shape, spec
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader, crash, not_leader, unavailable


def preferring(name: str = "train", *, count: int = 4, **more: object) -> Workload:
    """A held gang of whole hosts that prefers one rack."""
    gang = job(name, count=count, held=True, require=None, **more)
    return replace(gang, annotations={**gang.annotations, names.PREFER: "rack"})


def start(leader: Leader, gang: Workload) -> dict[int, Pod]:
    """The pods of a gang that is placed and bound, by rank."""
    leader.has(gang)
    leader.settle()
    return bind(leader, gang.name)


def bind(leader: Leader, name: str = "train") -> dict[int, Pod]:
    assert not leader.workload(name).suspended
    pods = {
        rank: replace(pod(leader.workload(name), rank, host=host), resource_version=leader.hands.version())
        for rank, host in ranks_of(leader.placed(name)).items()
    }
    leader.has(*pods.values())
    leader.later(10.0)
    assert leader.status(name) == ("Running", "")
    return pods


def ends(leader: Leader, pods: dict[int, Pod]) -> None:
    """Its controller has removed the pods."""
    for one in pods.values():
        leader.stores.pods.apply("DELETED", one)
    leader.settle()


def ask(leader: Leader, name: str = "train", **annotations: str | None) -> None:
    """The user annotates his workload; None removes."""
    gang = leader.workload(name)
    every = {**gang.annotations, **{f"topogate.dev/{key}": text for key, text in annotations.items()}}
    kept = {key: text for key, text in every.items() if text is not None}
    leader.has(replace(gang, annotations=kept, resource_version=leader.hands.version()))
    leader.settle()


def racks(leader: Leader, name: str = "train") -> set[str]:
    return {host.rpartition("-")[0] for host in ranks_of(leader.placed(name)).values()}


def answer(leader: Leader, name: str = "train") -> tuple[str, str] | None:
    """Value and outcome of the last answer."""
    placed = leader.placed(name)
    record = replan_record(placed.status) if placed is not None else None
    return (record.value, record.outcome) if record is not None else None


def message(leader: Leader) -> str:
    placed = leader.placed()
    record = replan_record(placed.status) if placed is not None else None
    return record.message if record is not None else ""


def cordon(leader: Leader, *hosts: str, unschedulable: bool = True) -> None:
    for host in hosts:
        node = leader.stores.nodes.get(host)
        assert node is not None
        leader.has(replace(node, unschedulable=unschedulable, resource_version=leader.hands.version()))


def split(policy: str = "") -> tuple[Leader, dict[int, Pod]]:
    """A gang of four over two racks of four hosts, of which two each were cordoned when it was placed."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=POLICY + policy)
    half = [f"b0-r{rack}-h{host}" for rack in (0, 1) for host in (2, 3)]
    cordon(leader, *half)
    pods = start(leader, preferring())
    assert len(racks(leader)) == 2
    cordon(leader, *half, unschedulable=False)
    leader.settle()
    leader.hands.calls.clear()
    leader.hands.notes.clear()
    return leader, pods


def test_a_split_gang_restarts_in_one_rack() -> None:
    """Decision, suspension, end of its pods, new slots, resume; it never was without slots."""
    leader, pods = split()
    revision = leader.placed().assignment.revision  # type: ignore[union-attr]
    ask(leader, replan="true")
    assert leader.hands.of("suspend") == ["train"]
    assert answer(leader) == ("true", "Restarting")
    leader.later(6.0)
    assert leader.status() == ("Placed", "Moving")
    placed = leader.placed()
    assert placed is not None and placed.assignment is not None
    assert placed.assignment.revision == revision
    assert placed.status["message"] == (f"{message(leader)}; 4 pods have to end first")
    assert "(topogate.dev/replan): 1 rack instead of 2" in message(leader)
    ends(leader, pods)
    assert leader.hands.of("move") == leader.hands.of("resume") == ["train"]
    assert len(racks(leader)) == 1
    assert answer(leader) == ("true", "Moved")
    assert leader.hands.of("give back") == leader.hands.of("place") == []
    bind(leader)
    leader.later(3600.0)
    assert leader.hands.of("suspend") == ["train"]
    assert leader.status() == ("Running", "")


@pytest.mark.parametrize(("limit", "outcome"), [(3, "Kept"), (4, "Moved")])
def test_the_hosts_that_it_would_leave_do_not_count_in_the_limit_of_its_namespace(limit: int, outcome: str) -> None:
    """It uses four hosts before and after: a limit of four lets it move, and a lower one does not."""
    leader, pods = split()
    rule = f"namespaces: {{rules: [{{namespaces: [default], maxReservedHosts: {limit}}}]}}\n"
    leader.view.set_policy(parse_policy(POLICY + rule))
    ask(leader, replan="true")
    if outcome == "Moved":
        ends(leader, pods)
        assert len(racks(leader)) == 1
    else:
        assert "needs 4 hosts; the limit is 3" in message(leader)
    assert answer(leader) == ("true", outcome)


def test_hosts_that_are_kept_for_another_gang_are_no_better_place() -> None:
    """Those for which others end or move, as those for a gang that has waited long; of a lower priority they count."""
    leader, _ = split()
    free = frozenset(f"b0-r{rack}-h{host}" for rack in (0, 1) for host in (2, 3))
    kept = Nomination(GangKey(ReservationKey("uid-other")), "default/other", 1, "default", free, "hosts")
    leader.controller._term.moving[kept.key] = kept
    ask(leader, replan="first")
    assert answer(leader) == ("first", "Kept")
    leader.controller._term.moving[kept.key] = replace(kept, priority=-1)
    ask(leader, replan="second")
    assert answer(leader) == ("second", "Restarting")


def test_its_old_slots_are_nobody_elses_meanwhile() -> None:
    """Another gang waits for three hosts of one rack: it gets them when the one that restarts has its new slots."""
    leader, pods = split()
    ask(leader, replan="true")
    held = ranks_of(leader.placed())
    leader.has(job("greedy", count=3, held=True, require="rack", created=1.0))
    leader.settle()
    assert not set(ranks_of(leader.placed("greedy")).values()) & set(held.values())
    ends(leader, pods)
    assert leader.hands.of("resume") == ["train", "greedy"]
    bind(leader)


def test_its_old_slots_are_nobody_elses_until_its_new_ones_are_written() -> None:
    """The other gang is planned in the same turn as the move, whose write fails: no host is promised to both."""
    leader, pods = split()
    ask(leader, replan="true")
    held = ranks_of(leader.placed())
    leader.has(job("greedy", count=3, held=True, require="rack", created=1.0))
    leader.settle()
    leader.hands.broken["move"] = unavailable
    ends(leader, pods)
    assert leader.hands.of("move") == ["train"]
    assert ranks_of(leader.placed()) == held
    assert not set(ranks_of(leader.placed("greedy")).values()) & set(held.values())
    del leader.hands.broken["move"]
    leader.later(60.0)
    assert leader.hands.of("resume") == ["train", "greedy"]


def test_a_gang_without_a_better_place_runs_on_and_is_told_so_once() -> None:
    """The annotation stays: nothing is planned again, also when a better place appears."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    start(leader, preferring())
    leader.hands.notes.clear()
    ask(leader, replan="true")
    assert leader.hands.of("suspend") == []
    assert answer(leader) == ("true", "Kept")
    told = [note for _, note in leader.hands.notes]
    assert told == [
        "stays in its place (topogate.dev/replan): no place is better now: it uses 1 block, 1 rack, 4 hosts"
    ]
    leader.has(*gpu_nodes(1, 2, 6))
    leader.later(3600.0)
    assert leader.hands.of("suspend") == []
    assert [note for _, note in leader.hands.notes] == told


def test_another_value_asks_again_and_so_does_the_same_after_it_was_taken_away() -> None:
    """`kubectl annotate --overwrite` with a time; or remove, and set again."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    start(leader, preferring())
    for value, answers in (("true", 1), ("2026-11-23T10:00:00Z", 2), (None, 3), ("true", 4), ("true", 4)):
        ask(leader, replan=value)
        assert len(leader.hands.of("answer")) == answers
        assert answer(leader) == ((value, "Kept") if value is not None else None)


def test_a_lost_rank_without_room_in_its_rack_moves_the_gang_to_another_one() -> None:
    """The gang is incomplete, its rack is full: the user asks, and it restarts where all of it fits."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    pods = start(leader, job("train", count=4, held=True, require="rack"))
    before = ranks_of(leader.placed())
    cordon(leader, before[1])
    leader.stores.pods.apply("DELETED", pods.pop(1))
    leader.later(10.0)
    leader.later(10.0)
    assert leader.status()[0] == "Incomplete"
    ask(leader, replan="true")
    assert f"1 pod has its slot on {before[1]}, no longer accepting pods of it" in message(leader)
    ends(leader, pods)
    assert not set(ranks_of(leader.placed()).values()) & set(before.values())
    assert len(bind(leader)) == 4


def test_a_better_place_that_is_gone_when_the_pods_have_ended_leaves_the_old_one() -> None:
    """It is resumed where it was, at no further cost."""
    leader, pods = split()
    before = ranks_of(leader.placed())
    ask(leader, replan="true")
    free = {one.name for one in gpu_nodes(1, 2, 4)} - set(before.values())
    cordon(leader, *free)
    ends(leader, pods)
    assert answer(leader) == ("true", "Kept")
    assert leader.hands.of("resume") == ["train"]
    assert ranks_of(leader.placed()) == before
    bind(leader)


def test_a_request_that_is_taken_back_while_its_pods_end_leaves_the_old_place() -> None:
    """It is suspended already: it is resumed at once, where it was."""
    leader, pods = split()
    before = ranks_of(leader.placed())
    ask(leader, replan="true")
    ask(leader, replan=None)
    assert leader.hands.of("resume") == ["train"]
    ends(leader, pods)
    assert ranks_of(leader.placed()) == before
    bind(leader)
    assert answer(leader) is None


def test_a_user_who_resumes_it_meanwhile_has_decided() -> None:
    """It stays where it is, and is not suspended a second time for the same value."""
    leader, pods = split()
    before = ranks_of(leader.placed())
    ask(leader, replan="true")
    gang = leader.workload()
    free = {key: text for key, text in gang.annotations.items() if key != names.HELD_BY}
    leader.has(
        replace(
            gang,
            annotations=free,
            suspended=False,
            generation=gang.generation + 1,
            resource_version=leader.hands.version(),
        )
    )
    leader.settle()
    ends(leader, pods)
    bind(leader)
    assert leader.hands.of("suspend") == ["train"]
    assert answer(leader) == ("true", "Kept")
    assert ranks_of(leader.placed()) == before


def test_a_pod_that_never_ends_does_not_hold_its_gang_for_ever() -> None:
    """A finalizer of somebody else: after ten minutes the gang goes on without that host."""
    leader, pods = split()
    ask(leader, replan="true")
    stays = pods.pop(0)
    ends(leader, pods)
    leader.has(replace(stays, deleting=True, resource_version=leader.hands.version()))
    leader.later(PODS_END_WITHIN - 20.0)
    assert leader.hands.of("resume") == []
    leader.later(30.0)
    assert leader.hands.of("resume") == ["train"]


def test_a_pod_on_a_dead_host_is_not_waited_for() -> None:
    leader, pods = split()
    ask(leader, replan="true")
    node = leader.stores.nodes.get(pods[0].spec.node_name)
    assert node is not None
    leader.has(replace(node, ready=False, settled_at=1_800_000_000.0 + leader.now, resource_version="20000000"))
    stays = pods.pop(0)
    leader.has(replace(stays, deleting=True, resource_version=leader.hands.version()))
    ends(leader, pods)
    assert leader.hands.of("resume") == ["train"]
    assert stays.spec.node_name not in ranks_of(leader.placed()).values()


def test_a_pod_on_a_dead_host_that_its_controller_has_not_deleted_yet_is_waited_for() -> None:
    """Resumed before that, the controller would keep the pod, and no other one would take the new slot."""
    leader, pods = split()
    node = leader.stores.nodes.get(pods[0].spec.node_name)
    assert node is not None
    leader.has(replace(node, ready=False, settled_at=1_800_000_000.0 + leader.now, resource_version="20000000"))
    ask(leader, replan="true")
    stays = pods.pop(0)
    ends(leader, pods)
    assert leader.hands.of("suspend") == ["train"] and leader.hands.of("resume") == []
    leader.has(replace(stays, deleting=True, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("resume") == ["train"]


def test_a_gang_that_cannot_be_suspended_stays_and_is_told() -> None:
    """The webhook refuses it; where none was there, the leader answers."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    gang = changed(preferring(), suspendable=True)
    start(leader, gang)
    owned = replace(
        leader.workload(),
        owner=replace(pod(leader.workload(), 0).owner, kind="Pipeline"),  # type: ignore[type-var]
        resource_version=leader.hands.version(),
    )
    leader.has(owned)
    leader.settle()
    ask(leader, replan="true")
    assert leader.hands.of("suspend") == []
    assert message(leader) == "stays in its place (topogate.dev/replan): this Job cannot be suspended"


def test_nothing_restarts_on_hold() -> None:
    """It could not start again."""
    leader, _ = split()
    leader.view.set_policy(Leader(policy=POLICY + "mode: hold\n").view.policy)
    ask(leader, replan="true")
    assert leader.hands.of("suspend") == []
    assert answer(leader) == ("true", "Kept")


def test_hosts_that_it_shall_leave_are_left_when_it_restarts() -> None:
    """Both annotations: that a pod is on such a host is what becomes better."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    gang = preferring()
    gang = replace(gang, pod_sets=tuple(replace(one, evictable=True) for one in gang.pod_sets))
    pods = start(leader, gang)
    before = ranks_of(leader.placed())
    leader.hands.deaf = True
    ask(leader, replan="true", replace=before[0])
    assert leader.hands.of("suspend") == ["train"]
    ends(leader, pods)
    assert before[0] not in ranks_of(leader.placed()).values()
    bind(leader)


Fault = Callable[[str], None]


@pytest.mark.parametrize("step", ["answer", "suspend", "move", "second answer", "resume"])
@pytest.mark.parametrize("fault", [unavailable, not_leader, crash])
def test_a_leader_that_ends_at_any_step_is_continued_by_the_next(step: str, fault: Fault) -> None:
    """The gang ends in one rack, all of it, with one suspension for its user, who reads that it has moved."""
    leader, pods = split()
    answers = 0

    def second(name: str) -> None:
        nonlocal answers
        answers += 1
        if answers == 2:
            fault(name)

    call, broken = ("answer", second) if step == "second answer" else (step, fault)
    leader.hands.broken[call] = broken

    def next_leader() -> None:
        leader.hands.broken.clear()
        leader.leading = False
        leader.turn()
        leader.leading = True
        leader.later(60.0)

    ask(leader, replan="true")
    if step in ("answer", "suspend"):
        next_leader()
    assert leader.workload().suspended
    ends(leader, pods)
    if step not in ("answer", "suspend"):
        next_leader()
    leader.later(60.0)
    assert not leader.workload().suspended
    assert len(racks(leader)) == 1
    bind(leader)
    leader.later(600.0)
    assert leader.status() == ("Running", "")
    assert leader.workload().generation == 4  # resumed at first, suspended once, resumed once
    assert answer(leader) == ("true", "Moved")


def limited(hosts: int) -> Policy:
    rule = f"namespaces: {{rules: [{{namespaces: [default], maxReservedHosts: {hosts}}}]}}\n"
    return parse_policy(POLICY + "planner: {profile: spread}\n" + rule)


def single(name: str, *, created: float = 1.0) -> Workload:
    """A held gang of one pod with a quarter of a host."""
    template = spec(shape=shape(gpu=2), gates=(names.GATE,), labels={names.MANAGED: "true", names.POD_SET: "main"})
    return job(name, count=1, held=True, template=template, created=created)


def test_a_gang_moves_to_keep_a_limit_of_hosts_that_was_lowered() -> None:
    """It uses one host here and there, but there its namespace has another gang."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=POLICY + "planner: {profile: spread}\n")
    pods = start(leader, single("train"))
    leader.has(single("other", created=2.0))
    leader.settle()
    bind(leader, "other")
    assert len(leader.view.gangs.hosts_in("default")) == 2
    leader.view.set_policy(limited(1))
    ask(leader, replan="true")
    assert answer(leader) == ("true", "Restarting")
    assert message(leader).endswith(
        "its namespace has slots on 2 hosts; the limit is 1 (policy namespaces.rules[0].maxReservedHosts)"
    )
    ends(leader, pods)
    assert answer(leader) == ("true", "Moved")
    assert len(leader.view.gangs.hosts_in("default")) == 1


def test_a_gang_of_which_fewer_pods_fit_within_a_lowered_limit_stays_and_says_so() -> None:
    """Two pods of four would be enough to start, but a replan takes no slot away."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang = job("train", count=4, held=True)
    start(leader, replace(gang, annotations={**gang.annotations, names.MIN_AVAILABLE: "2"}))
    leader.view.set_policy(limited(2))
    ask(leader, replan="true")
    assert answer(leader) == ("true", "Kept")
    assert message(leader).endswith(
        "it uses 1 block, 1 rack, 4 hosts; its namespace has slots on 4 hosts; the limit is 2 "
        "(policy namespaces.rules[0].maxReservedHosts), within which fewer of its pods fit"
    )


def test_a_gang_moves_to_a_rack_that_it_may_keep_within_a_lowered_limit() -> None:
    """All hosts of its exclusive rack count: four of them there, two in the other one."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4)[:6], policy=POLICY + "planner: {profile: spread}\n")
    gang = job("train", count=1, held=True)
    pods = start(leader, replace(gang, annotations={**gang.annotations, names.EXCLUSIVE: "rack"}))
    assert racks(leader) == {"b0-r0"}
    leader.view.set_policy(limited(2))
    ask(leader, replan="true")
    ends(leader, pods)
    assert answer(leader) == ("true", "Moved")
    assert racks(leader) == {"b0-r1"}
