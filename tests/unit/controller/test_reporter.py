"""What a gang says while it lives follows what is so: its text, its request, its Placement; Events only tell news."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from engine.api import names
from engine.api.objects import PriorityClass, Quota
from engine.api.placement import Placement
from engine.api.pod import FailedPod, Pod, Readiness
from engine.api.workload import Workload
from engine.controller.reporter import PODS_AT_A_TIME, TEXT_EVERY
from engine.controller.term import PLACES, TEXTS
from engine.lifecycle.status import failures_text
from engine.policy.model import parse_policy
from tests.support.cluster_records import REFUSAL, changed, gpu_nodes, job, node, pod
from tests.support.families import plain
from tests.support.leader import POLICY, Leader


def full(*hosts: str) -> list[Pod]:
    """Pods of somebody else, each on a whole host."""
    return [pod(job("somebody"), rank, host=host, name=f"on-{host}") for rank, host in enumerate(hosts)]


def gone(leader: Leader, *pods: Pod) -> None:
    for one in pods:
        leader.stores.pods.apply("DELETED", one)


def pod_of(leader: Leader, rank: int) -> Pod:
    (found,) = [one for one in leader.stores.pods.values() if one.name == f"train-{rank}"]
    return found


def message(leader: Leader, name: str = "train") -> str:
    placed = leader.placed(name)
    return str(placed.status.get("message", "")) if placed is not None else ""


def waiting(*, blocks: int = 1, racks: int = 1, hosts: int = 4, policy: str = POLICY) -> tuple[Leader, list[Pod]]:
    """A leader whose hosts are all in use."""
    leader = Leader(nodes=gpu_nodes(blocks, racks, hosts), policy=policy)
    others = full(*(one.name for one in leader.stores.nodes.values()))
    leader.has(*others)
    return leader, others


# -- the text --------------------------------------------------------------------------------------------------------


def test_the_text_of_a_waiting_gang_follows_its_numbers_without_an_event() -> None:
    """Ten seconds after it was written last, and no sooner, it says what is free now."""
    leader, others = waiting()
    leader.has(job(held=True))
    leader.settle()
    assert "no rack has a free host" in message(leader)
    gone(leader, others[0])
    leader.later(TEXT_EVERY - 1)
    assert "no rack has a free host" in message(leader)
    leader.later(1)
    assert "best is b0-r0 with 1" in message(leader)
    assert len(leader.hands.told) == 1
    assert leader.hands.of("reword") == ["train"]


def test_a_text_that_is_right_is_not_written_again() -> None:
    """Whatever else changes on the nodes."""
    leader, _ = waiting()
    leader.has(job(held=True))
    leader.settle()
    for number in range(5):
        leader.has(replace(gpu_nodes(1, 1, 1)[0], labels={**gpu_nodes(1, 1, 1)[0].labels, "x": str(number)}))
        leader.later(60)
    assert leader.hands.of("reword") == []


def test_the_text_of_a_running_gang_follows_the_number_of_its_pods() -> None:
    """One more pod is no news, but it counts."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    run(leader, 3)
    assert message(leader) == "3 pods ready"
    leader.has(changed(leader.workload(), slots=4, total=4, remaining=4, resource_version=leader.hands.version()))
    leader.settle()
    leader.has(pod(leader.workload(), 3, host="b0-r0-h3"))
    leader.later(TEXT_EVERY)
    assert message(leader) == "4 pods ready"


def test_gangs_that_ask_the_same_all_learn_the_new_reason() -> None:
    """One plan answers them all, numbers and all."""
    leader, others = waiting(racks=2, hosts=2)
    leader.has(*(job(name, count=2, held=True, created=float(age)) for age, name in enumerate(("one", "two", "three"))))
    leader.settle()
    leader.hands.planned.clear()
    gone(leader, others[0], others[2])
    leader.turn()
    assert leader.hands.planned == ["one"]
    leader.settle()
    for name in ("one", "two", "three"):
        assert leader.status(name) == ("Waiting", "Fragmented")
        assert "best is b0-r0 with 1" in message(leader, name)


def test_a_gang_that_asks_for_more_pods_learns_its_own_numbers_later() -> None:
    """That it cannot fit is clear from the smaller one; its text is not."""
    leader, others = waiting()
    leader.has(job("small", count=2, held=True, created=1.0), job("big", count=4, held=True, created=2.0))
    leader.settle()
    gone(leader, others[0])
    leader.settle()
    assert "no rack has a free host" in message(leader, "big")
    leader.later(TEXT_EVERY)
    leader.later(1)
    assert "needs 4 hosts in one rack; best is b0-r0 with 1" in message(leader, "big")


def test_the_quota_of_a_gang_goes_before_what_others_were_answered() -> None:
    """It has an answer of its own, which is about its own namespace."""
    leader, _ = waiting()
    leader.has(job("other", count=2, held=True, created=1.0, namespace="b"))
    leader.stores.quotas.replace([Quota("default", "q", hard={"pods": 1}, used={}, scopes=())])
    leader.has(job(count=2, held=True, created=2.0))
    leader.settle()
    assert leader.status() == ("Waiting", "QuotaExceeded")


def test_a_gang_whose_priority_class_is_missing_holds_no_room_and_nobody_up() -> None:
    """Its pods could not be created: it is told so, also in strict order, and starts once the class is there."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + "queue: {order: strict}\n")
    leader.stores.priority_classes.replace([PriorityClass("other", 1, default=False)])
    typo = job("typo", count=4, held=True, created=1.0)
    (main,) = typo.pod_sets
    typo = replace(typo, pod_sets=(replace(main, template=replace(main.template, priority_class="high")),))
    leader.has(typo, job("train", count=4, held=True, created=2.0))
    leader.settle()
    assert leader.status("typo") == ("Waiting", "PriorityClassMissing")
    assert leader.hands.of("place") == ["train"]
    leader.stores.workloads.apply("DELETED", leader.stores.workloads.get(("batch", "Job", "default", "train")))
    leader.stores.priority_classes.apply("ADDED", PriorityClass("high", 1, default=False))
    leader.settle()
    leader.later(60)
    assert leader.hands.of("place") == ["train", "typo"]


def test_a_missing_priority_class_is_no_answer_for_gangs_that_name_none() -> None:
    """They ask for the same room, and are told why they have none."""
    leader, _ = waiting()
    leader.stores.priority_classes.replace([PriorityClass("other", 1, default=False)])
    typo = job("typo", count=2, held=True, created=1.0)
    (main,) = typo.pod_sets
    typo = replace(typo, pod_sets=(replace(main, template=replace(main.template, priority_class="high")),))
    leader.has(typo, job("train", count=2, held=True, created=2.0))
    leader.settle()
    assert leader.status("typo") == ("Waiting", "PriorityClassMissing")
    assert leader.status("train") == ("Waiting", "InsufficientFreeGPUs")


def test_who_goes_first_is_named_only_in_its_own_namespace() -> None:
    """Two gangs that meet the same answer, of which one may not know of the gang that has waited longer."""
    leader, others = waiting(policy=POLICY + "queue: {patience: 1m}\n")
    leader.has(job("patient", count=4, held=True, created=1.0))
    leader.settle()
    gone(leader, others[0])
    leader.later(61)
    assert leader.status("patient") == ("Waiting", "RoomKept")
    leader.has(job("near", count=1, held=True, created=2.0))
    leader.has(job("far", count=1, held=True, created=3.0, namespace="b"))
    leader.settle()
    assert "kept for patient," in message(leader, "near")
    assert "kept for a gang of another namespace," in message(leader, "far")


def test_what_many_gangs_say_is_brought_up_to_date_a_few_at_a_time() -> None:
    """However many wait, and however often the numbers change: ten writes a second."""
    leader, others = waiting()
    names = [f"train-{number:03}" for number in range(60)]
    leader.has(*(job(name, held=True) for name in names))
    leader.settle()
    assert len(leader.hands.told) == len(names)
    leader.now += TEXT_EVERY
    gone(leader, others[0])
    batch, every = TEXTS
    for second in range(1, 7):
        leader.settle()
        assert len(leader.hands.of("reword")) == second * batch
        leader.now += every
    leader.settle()
    assert sorted(leader.hands.of("reword")) == names


def test_a_new_leader_writes_nothing_of_what_is_right() -> None:
    """The Placement says what was told, and its text is compared, not trusted."""
    leader, others = waiting()
    leader.has(job(held=True))
    leader.settle()
    leader.leading = False
    leader.turn()
    leader.leading = True
    leader.later(60)
    assert (leader.hands.of("reword"), len(leader.hands.told)) == ([], 1)
    leader.leading = False
    leader.turn()
    gone(leader, others[0])
    leader.leading = True
    leader.later(60)
    assert (leader.hands.of("reword"), len(leader.hands.told)) == (["train"], 1)


# -- the numbers -----------------------------------------------------------------------------------------------------

PLACE = ("queuePosition", "queueLength")
NUMBERS = ("pods", "gpus", "columns", "observedGeneration", "needed", "have", "best", "proposal", *PLACE)


def numbers(leader: Leader, name: str = "train") -> dict[str, object]:
    placed = leader.placed(name)
    return {key: placed.status[key] for key in NUMBERS[:4] if placed is not None and key in placed.status}


def test_a_waiting_gang_has_its_pods_and_gpus_in_the_status() -> None:
    """As numbers, and as text for the columns of kubectl."""
    leader, _ = waiting()
    leader.has(job(held=True))
    leader.settle()
    assert numbers(leader) == {
        "pods": {"bound": 0, "wanted": 4},
        "gpus": 32,
        "columns": {"pods": "0/4", "queue": "1 of 1", "level": "rack"},
        "observedGeneration": 1,
    }


def test_a_running_gang_has_its_place_and_a_gang_that_lost_it_has_none() -> None:
    """Bound pods and domains come with the phase; both go with the slots."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    run(leader, 3)
    assert numbers(leader) == {
        "pods": {"bound": 3, "wanted": 3},
        "gpus": 24,
        "columns": {"pods": "3/3", "place": "b0/b0-r0", "level": "rack"},
        "observedGeneration": 1,
    }
    assert leader.hands.of("reword") == []
    leader.has(changed(leader.workload(), suspended=True, resource_version=leader.hands.version()))
    leader.later(TEXT_EVERY)
    assert leader.status() == ("Waiting", "Suspended")
    assert numbers(leader)["columns"] == {"pods": "3/3", "level": "rack"}


def test_every_condition_names_the_generation_that_it_is_about() -> None:
    """`kubectl wait` takes none of an earlier one: a new assignment is followed, without an Event."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    run(leader, 3)
    told = len(leader.hands.told)
    edited(leader, slots=2, total=2, remaining=2)
    leader.stores.pods.apply("DELETED", next(one for one in leader.stores.pods.values() if one.name.endswith("-2")))
    leader.later(TEXT_EVERY)
    placed = leader.placed()
    assert placed is not None
    assert leader.hands.of("shrink") == ["train"]
    assert placed.generation == 2
    assert {one["observedGeneration"] for one in placed.status["conditions"]} == {2}
    assert len(leader.hands.told) == told


def shortage(leader: Leader, name: str = "train") -> dict[str, object]:
    placed = leader.placed(name)
    keys = ("needed", "have", "best", "podSet", "proposal")
    return {key: placed.status[key] for key in keys if placed is not None and key in placed.status}


def test_a_waiting_gang_has_the_numbers_of_its_message() -> None:
    """Needed, and what the best domain of each level has; what would fit; all of it goes when it is placed."""
    leader, others = waiting(racks=2)
    gone(leader, *others[:3], others[5])
    leader.has(job(held=True))
    leader.settle()
    assert message(leader) == (
        "needs 4 hosts in one rack; best is b0-r0 with 3 (2 racks looked at); one block has room now"
    )
    assert shortage(leader) == {
        "needed": 4,
        "have": 3,
        "best": [
            {"level": "block", "domain": "b0", "pods": 4},
            {"level": "rack", "domain": "b0/b0-r0", "pods": 3},
            {"level": "host", "domain": "b0/b0-r0", "pods": 1},
        ],
        "proposal": {"level": "block", "pods": 3},
    }
    gone(leader, others[3])
    leader.settle()
    leader.later(TEXT_EVERY)
    assert leader.status() == ("Placed", "")
    assert shortage(leader) == {}


def test_the_numbers_follow_what_others_take() -> None:
    """Nobody can start then, so nothing else plans the gang; one write, no Event, and none while nothing changes."""
    leader, others = waiting()
    gone(leader, *others[:3])
    leader.has(job(held=True))
    leader.settle()
    assert shortage(leader)["have"] == 3
    leader.has(*others[:2])
    leader.later(1)
    assert shortage(leader)["have"] == 3
    for _ in range(3):
        leader.later(TEXT_EVERY / 2)
    assert shortage(leader)["have"] == 1
    assert "best is b0-r0 with 1" in message(leader)
    leader.hands.planned.clear()
    for _ in range(5):
        leader.later(60)
    assert (leader.hands.of("reword"), len(leader.hands.told), leader.hands.planned) == (["train"], 1, [])


def test_in_strict_order_only_the_first_is_planned_for_its_numbers() -> None:
    """The others wait for it, whatever is free."""
    leader, others = waiting(policy=POLICY + "queue: {order: strict}\n")
    gone(leader, *others[:3])
    leader.has(job("first", count=4, held=True, created=1.0), job("second", count=4, held=True, created=2.0))
    leader.settle()
    leader.has(*others[:2])
    leader.hands.planned.clear()
    for _ in range(4):
        leader.later(TEXT_EVERY / 2)
    assert "best is b0-r0 with 1" in message(leader, "first")
    assert set(leader.hands.planned) == {"first"}
    assert leader.status("second") == ("Waiting", "QueuedBehind")


def place_of(leader: Leader, name: str) -> tuple[object, ...]:
    placed = leader.placed(name)
    assert placed is not None
    columns = placed.status["columns"]
    return (*(placed.status.get(key) for key in PLACE), columns.get("queue"))


def test_waiting_gangs_have_their_place_in_the_queue() -> None:
    """By priority, then age; when the first leaves the others move up, without an Event."""
    leader, others = waiting()
    leader.has(*(job(name, count=4, held=True, created=float(age)) for age, name in enumerate(("one", "two", "three"))))
    leader.settle()
    leader.later(TEXT_EVERY)
    assert [place_of(leader, name) for name in ("one", "two", "three")] == [
        (1, 3, "1 of 3"),
        (2, 3, "2 of 3"),
        (3, 3, "3 of 3"),
    ]
    told = len(leader.hands.told)
    gone(leader, *others)
    leader.settle()
    leader.later(TEXT_EVERY)
    leader.later(TEXT_EVERY)
    assert place_of(leader, "one") == (None, None, None)
    assert [place_of(leader, name) for name in ("two", "three")] == [(1, 2, "1 of 2"), (2, 2, "2 of 2")]
    assert [status.phase for _, status in leader.hands.told[told:]] == ["Placed"]


def test_a_gang_that_does_not_wait_for_room_has_no_place() -> None:
    """It never fits, or its user suspended it: nobody waits for it."""
    leader, _ = waiting()
    leader.has(job("train", count=4, held=True, created=2.0), job("never", count=40, held=True, created=1.0))
    leader.settle()
    leader.later(TEXT_EVERY)
    assert leader.status("never") == ("Waiting", "GangTooLarge")
    assert place_of(leader, "never") == (None, None, None)
    assert place_of(leader, "train") == (1, 1, "1 of 1")
    edited(leader, annotations={names.REQUIRE: "rack"})
    leader.later(TEXT_EVERY)
    assert leader.status() == ("Waiting", "Suspended")
    assert place_of(leader, "train") == (None, None, None)


def test_a_long_queue_that_moves_up_causes_few_writes() -> None:
    """All 400 move up when the first leaves: those whose place has changed by much are written, four a second."""
    leader, _ = waiting()
    gangs = [f"train-{number:03}" for number in range(400)]
    leader.has(*(job(name, held=True, created=float(age)) for age, name in enumerate(gangs)))
    for _ in range(60):
        leader.later(1)
    before = len(leader.hands.of("reword"))
    assert [place_of(leader, name)[0] for name in (gangs[0], gangs[5], gangs[399])] == [1, 6, 400]
    leader.stores.workloads.apply("DELETED", leader.workload(gangs[0]))
    batch, every = PLACES
    counts = []
    for _ in range(30):
        leader.later(every)
        counts.append(len(leader.hands.of("reword")))
    assert max(after - known for known, after in pairwise([before, *counts])) <= batch
    assert 10 <= counts[-1] - before <= 12
    assert [place_of(leader, name)[0] for name in gangs[1:11]] == list(range(1, 11))
    assert place_of(leader, gangs[399])[0] == 400
    for name in gangs[1:60]:
        leader.stores.workloads.apply("DELETED", leader.workload(name))
    for _ in range(120):
        leader.later(every)
    for right, name in enumerate(gangs[60:], start=1):
        written = place_of(leader, name)[0]
        assert isinstance(written, int)
        assert abs(written - right) * 10 <= max(written, right)
    assert len(leader.hands.told) == len(gangs)


def without_numbers(placement: Placement) -> Placement:
    """A Placement of an earlier version."""
    status = {key: value for key, value in placement.status.items() if key not in NUMBERS}
    return replace(placement, status=status, labels={})


def test_a_placement_of_an_earlier_version_gets_numbers_and_labels_once() -> None:
    """After an upgrade, without an Event."""
    leader, _ = waiting()
    leader.has(job(held=True))
    leader.settle()
    known, old = leader.placed(), numbers(leader)
    assert known is not None
    leader.leading = False
    leader.turn()
    leader.has(replace(without_numbers(known), resource_version=leader.hands.version()))
    stored = leader.stores.placements.get(known.key)
    assert stored is not None
    assert not stored.status.keys() & set(NUMBERS)
    leader.leading = True
    for _ in range(5):
        leader.later(60)
    after = leader.placed()
    assert after is not None
    assert numbers(leader) == old
    assert after.labels == {names.WORKLOAD_KIND: "Job", names.WORKLOAD_NAME: "train"}
    assert (leader.hands.of("reword"), len(leader.hands.told)) == (["train"], 1)


@pytest.mark.parametrize("running", [False, True])
def test_numbers_that_an_older_crd_drops_are_not_written_again_and_again(running: bool) -> None:
    """One write by each leader; the text is still kept up to date."""
    leader, others = waiting()
    leader.hands.drops = NUMBERS
    leader.has(job(held=True))
    leader.settle()
    if running:
        gone(leader, *others)
        leader.settle()
        for rank in range(4):
            leader.has(pod(leader.workload(), rank, host=f"b0-r0-h{rank}"))
        leader.later(TEXT_EVERY)
        assert leader.status() == ("Running", "")
    leader.leading = False
    leader.turn()
    leader.leading = True
    before = len(leader.hands.of("reword"))
    for _ in range(5):
        leader.has(leader.workload())
        leader.later(60)
    assert numbers(leader) == {}
    assert len(leader.hands.of("reword")) <= before + 1
    if not running:
        gone(leader, others[0])
        leader.later(TEXT_EVERY)
        assert "best is b0-r0 with 1" in message(leader)


# -- the request -----------------------------------------------------------------------------------------------------


def edited(leader: Leader, **more: object) -> None:
    known = leader.workload()
    leader.has(changed(known, resource_version=leader.hands.version(), generation=known.generation + 1, **more))


def test_the_placement_of_a_waiting_gang_follows_an_edit_at_once() -> None:
    """Pods, level and message are those of today; the reason is the same, so there is no Event."""
    leader, _ = waiting()
    leader.has(job(held=True))
    leader.settle()
    edited(leader, slots=3, total=3, remaining=3, annotations={**leader.workload().annotations, names.REQUIRE: "block"})
    leader.settle()
    written = leader.placed()
    assert written is not None
    assert (written.pod_sets[0].count, written.pod_sets[0].require) == (3, "block")
    assert message(leader).startswith("needs 3 hosts in one block")
    assert len(leader.hands.told) == 1


def test_the_placement_of_a_suspended_gang_follows_an_edit_too() -> None:
    """Its user sees that he was understood before he resumes it."""
    leader, _ = waiting()
    leader.has(job(held=True))
    leader.settle()
    edited(leader, annotations={names.REQUIRE: "block"})
    leader.settle()
    written = leader.placed()
    assert leader.status() == ("Waiting", "Suspended")
    assert written is not None
    assert written.pod_sets[0].require == "block"


def test_a_gang_that_was_relaxed_says_so_and_what_it_needs() -> None:
    """The level that it gave up is told as long as it waits."""
    leader, _ = waiting(policy=POLICY + "timeouts: {relaxAfter: 1m}\n")
    leader.has(job(held=True))
    leader.settle()
    leader.later(60)
    leader.later(TEXT_EVERY)
    text = message(leader)
    assert text.startswith("needs 4 hosts; none free")
    assert text.endswith("; rack was required until it had waited for 1m")


# -- the Placement ---------------------------------------------------------------------------------------------------


def test_a_deleted_placement_of_a_waiting_gang_comes_back_as_it_was() -> None:
    """Since when it waits is not lost, and nothing is told twice."""
    leader, _ = waiting()
    leader.has(job(held=True))
    leader.settle()
    before = leader.placed()
    assert before is not None
    leader.now += 300
    leader.stores.placements.apply("DELETED", before)
    leader.settle()
    after = leader.placed()
    assert after is not None
    assert after.pod_sets == before.pod_sets
    for what in ("phase", "reason", "message", "waitingSince"):
        assert after.status[what] == before.status[what]
    assert len(leader.hands.told) == 1


def test_a_deleted_placement_takes_no_patience_away() -> None:
    """Room is kept for the gang when it has waited for long enough in all."""
    leader, others = waiting(policy=POLICY + "queue: {patience: 1m}\n")
    leader.has(job(held=True))
    leader.settle()
    gone(leader, others[0])
    leader.now += 59
    before = leader.placed()
    assert before is not None
    leader.stores.placements.apply("DELETED", before)
    leader.settle()
    leader.later(2)
    assert leader.status() == ("Waiting", "RoomKept")


# -- Events ----------------------------------------------------------------------------------------------------------


def run(leader: Leader, count: int) -> Workload:
    """A gang of pods that are all bound where they were placed."""
    leader.has(job(count=count, held=True))
    leader.settle()
    for rank in range(count):
        leader.has(pod(leader.workload(), rank, host=f"b0-r0-h{rank}"))
    leader.later(TEXT_EVERY)
    assert leader.status() == ("Running", "")
    return leader.workload()


@pytest.mark.parametrize("hosts", [3, 4])
def test_growth_that_waits_is_told_as_waiting(hosts: int) -> None:
    """Where the others are is no answer to why the new one has no room."""
    leader = Leader(nodes=[*gpu_nodes(1, 1, hosts), node("elsewhere")])
    run(leader, hosts)
    more = hosts + 1
    edited(leader, slots=more, total=more, remaining=more)
    leader.later(TEXT_EVERY)
    assert leader.status()[0] == "Running"
    told, note = leader.hands.notes[-1]
    assert told == "train"
    assert note.startswith("1 more pod to join: ")
    assert "placed" not in note


def test_a_gang_whose_pods_are_all_ready_again_says_so_and_not_where_it_was_placed_once() -> None:
    """The Event of the first status has the place; later ones say what is so now."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    run(leader, 2)
    assert leader.hands.notes[-1] == ("train", "placed 2 pods in b0 / b0-r0 (2 hosts)")
    gone(leader, pod_of(leader, 1))
    leader.settle()
    leader.later(TEXT_EVERY)
    assert leader.status() == ("Incomplete", "WaitingForMembers")
    leader.has(pod(leader.workload(), 1, host="b0-r0-h1"))
    leader.later(TEXT_EVERY)
    assert leader.hands.notes[-1] == ("train", "2 pods ready")


# -- failed pods -----------------------------------------------------------------------------------------------------

FAILED = FailedPod(at=0.0, rank=1, name="train-1-x", host="b0-r0-h1", how="container main: exit code 137, OOMKilled")
SENTENCE = "rank 1 failed on b0-r0-h1 (container main: exit code 137, OOMKilled)"


def wall(leader: Leader) -> float:
    return 1_800_000_000.0 + leader.now


def failing(leader: Leader) -> None:
    """The second of two pods fails, and no watch shows it any more."""
    run(leader, 2)
    leader.hands.failed = [replace(FAILED, at=wall(leader))]
    gone(leader, pod_of(leader, 1))
    leader.settle()


def test_a_gang_that_misses_a_failed_pod_says_which_one_where_and_how() -> None:
    """In its Event and its status; read once, as finished pods are in no watch; the next leader reads nothing."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    failing(leader)
    leader.later(TEXT_EVERY)
    expected = f"{SENTENCE}; waits for 1 pod of the gang to be created and bound again"
    assert (message(leader), leader.hands.notes[-1]) == (expected, ("train", expected))
    for _ in range(3):
        leader.later(TEXT_EVERY)
    assert (message(leader), leader.hands.of("read failed pods")) == (expected, ["train"])
    leader.hands.calls.clear()
    leader.leading = False
    leader.turn()
    leader.leading = True
    leader.later(60)
    assert (message(leader), leader.hands.calls) == (expected, [])


def test_a_pod_that_fails_later_is_named_anew() -> None:
    """Another number of missing pods is another message."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    failing(leader)
    leader.later(TEXT_EVERY)
    leader.hands.failed.append(replace(FAILED, at=wall(leader), rank=0, host="b0-r0-h0"))
    gone(leader, pod_of(leader, 0))
    for _ in range(2):
        leader.later(TEXT_EVERY)
    assert message(leader).startswith("2 pods failed, rank 1 on b0-r0-h1 first (container main: exit code 137")
    assert leader.hands.of("read failed pods") == ["train", "train"]


def test_a_failed_workload_says_how_its_pod_failed() -> None:
    """One that has ended well reads nothing."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    failing(leader)
    edited(leader, finished=True, failed=True)
    leader.later(TEXT_EVERY)
    assert message(leader) == f"{SENTENCE}; the Job has failed; its slots are free"
    well = Leader(nodes=gpu_nodes(1, 1, 4))
    failing(well)
    edited(well, finished=True)
    well.later(TEXT_EVERY)
    assert (message(well), well.hands.of("read failed pods")) == ("the Job has ended; its slots are free", [])


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([], ""),
        ([replace(FAILED, at=98.0)], ""),  # before the gang was ready: another pod has its rank now
        ([replace(FAILED, at=98.0), replace(FAILED, at=100.0, rank=2)], SENTENCE.replace("rank 1", "rank 2")),
        ([replace(FAILED, at=100.0, rank=None)], SENTENCE.replace("rank 1", "train-1-x")),
        ([replace(FAILED, at=100.0, host="", how="Evicted")], "rank 1 failed (Evicted)"),
        ([replace(FAILED, at=100.0, how="")], "rank 1 failed on b0-r0-h1"),
        (
            [replace(FAILED, at=100.0), replace(FAILED, at=101.0, rank=0), replace(FAILED, at=159.0, rank=3)],
            SENTENCE.replace("rank 1 failed", "3 pods failed, rank 1").replace("h1", "h1 first"),
        ),
        ([replace(FAILED, at=100.0), replace(FAILED, at=200.0, rank=7)], SENTENCE.replace("rank 1", "rank 7")),
    ],
)
def test_of_several_failed_pods_the_first_of_the_last_is_named(pods: list[FailedPod], said: str) -> None:
    """The others of these often fail because it did; older ones have been replaced."""
    changed_at = {"conditions": [{"type": "Ready", "lastTransitionTime": "1970-01-01T00:01:40Z"}]}
    assert failures_text(pods, {"phase": "Running", **changed_at}) == said
    earlier = [replace(one, at=one.at - 14.0) for one in pods if one.at >= 100.0]
    assert failures_text(earlier, {"phase": "Incomplete", **changed_at}) == said


def test_the_first_status_of_a_placement_comes_soon_while_its_pods_start() -> None:
    """A phase is there two seconds after the Placement, although each phase of the start is over before it is told."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job(count=2, held=True))
    leader.settle()
    assert leader.status() == ("", "")
    leader.later(1.5)
    starting = Readiness(ready=False, since=wall(leader), restarts=0, container="main", waiting="ContainerCreating")
    for rank in range(2):
        one = pod(leader.workload(), rank, host=f"b0-r0-h{rank}")
        leader.has(replace(one, bound=wall(leader), readiness=starting))
    leader.settle()
    assert leader.status() == ("", "")
    leader.later(0.5)
    assert leader.status() == ("Starting", "")


def test_a_running_gang_whose_request_is_taken_off_says_so() -> None:
    """Its Placement goes, and with it what kept room for its next pods."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    run(leader, 3)
    edited(leader, annotations={})
    leader.settle()
    assert leader.placed() is None
    assert leader.hands.notes[-1] == (
        "train",
        "no longer asks for a topology or a gang; "
        "its slots are released: running pods stay where they are, new pods may run anywhere",
    )


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_gangs_that_are_let_go_by_the_policy_say_so(mode: str) -> None:
    """Nobody touched them: their people learn from their own Events that it was the policy."""
    leader, _ = waiting()
    leader.has(job("one", held=True), job("two", held=True))
    leader.settle()
    leader.hands.notes.clear()
    leader.view.set_policy(parse_policy(f"{POLICY}mode: {mode}\n"))
    leader.settle()
    said = f"the policy's mode is {mode}; it is resumed and runs like any other workload"
    assert sorted(leader.hands.notes) == [("one", said), ("two", said)]


def test_a_request_that_became_wrong_is_told_with_its_value() -> None:
    """What is allowed says little without what was asked for."""
    leader, _ = waiting()
    leader.has(job(held=True, require="zone"))
    leader.settle()
    (_, note) = leader.hands.notes[-1]
    assert note.startswith(f'metadata.annotations[{names.REQUIRE}]: Unsupported value: "zone": allowed: block, rack')


# -- pods that are held ----------------------------------------------------------------------------------------------


def test_every_pod_of_a_faulty_gang_is_told() -> None:
    """Also those that come later, whatever is wrong with the others; each is told once."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(plain("a", size="3"), plain("b", size="4"))
    leader.settle()
    leader.has(*(plain(f"right-{number}", size="4") for number in range(PODS_AT_A_TIME + 5)))
    leader.settle()
    leader.later(1.0)
    leader.later(1.0)
    told = [name for name, reason in leader.hands.pod_events if reason == "GangSizeMismatch"]
    assert sorted(told) == sorted(pod.name for pod in leader.stores.pods.values())


def test_pods_of_a_gang_that_was_resumed_by_hand_say_what_they_wait_for() -> None:
    """They exist and are held; the Job's own Event is an hour old by then."""
    leader, _ = waiting()
    leader.has(job(held=True))
    leader.settle()
    edited(leader, suspended=False, started=True, annotations={names.REQUIRE: "rack"})
    leader.has(*(pod(leader.workload(), rank, gated=True) for rank in range(4)))
    leader.settle()
    leader.later(60)
    assert sorted(leader.hands.pod_events) == [(f"train-{rank}", "HeldWithoutSlot") for rank in range(4)]
    assert dict(leader.hands.notes)["train-0"].startswith(
        "the Job train waits for slots (InsufficientFreeGPUs): needs 4 hosts in one rack"
    )


def test_why_a_gang_lost_its_slots_is_told_however_soon_it_is_planned_again() -> None:
    """The write takes its time, and the next plan has a reason of its own."""
    leader = Leader(nodes=gpu_nodes(1, 1, 1))
    leader.has(job(count=1, held=True))
    leader.settle()
    late = pod(leader.workload(), 0, pin="b0-r0-h0", unschedulable=REFUSAL)
    leader.has(late)
    leader.settle()
    leader.now += 30
    leader.turn()
    leader.now += 30
    leader.work()
    leader.stores.pods.apply("DELETED", late)
    leader.settle()
    assert [status.reason for _, status in leader.hands.told] == ["SchedulerRefused", "InsufficientFreeGPUs"]


def test_the_placement_of_a_gang_that_was_scaled_down_says_how_many_pods_it_has() -> None:
    """Request and slots agree; scaled up again it grows."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    run(leader, 4)
    edited(leader, slots=3, total=3, remaining=3)
    leader.settle()
    placed = leader.placed()
    assert placed is not None
    assert (placed.pod_sets[0].count, placed.pod_sets[0].min_available) == (3, 3)
    gone(leader, next(one for one in leader.stores.pods.values() if one.name == "train-3"))
    leader.settle()
    edited(leader, slots=4, total=4, remaining=4)
    leader.settle()
    placed = leader.placed()
    assert placed is not None
    assert placed.pod_sets[0].count == 4
