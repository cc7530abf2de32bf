"""Who is planned next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.placement import PodSetRequest
from engine.gang.key import key_of, workload_key
from engine.gang.request import PlacementRequest
from engine.scheduler.outcome import Waits
from engine.scheduler.queue import GangQueue, Miss, PlanKey, QueueEntry, QueuePlace, plan_key
from tests.support.cluster_records import shape
from tests.support.families import leader_worker_set


def filled(**entries: tuple[int, float]) -> GangQueue:
    queue = GangQueue()
    for uid, (priority, created) in entries.items():
        queue.add(uid, QueueEntry(priority=priority, created=created, name=uid))
    return queue


def test_higher_priority_goes_first_then_the_older_gang() -> None:
    """Priority, then age, then name."""
    queue = filled(young=(0, 20.0), old=(0, 10.0), urgent=(5, 30.0), twin=(0, 10.0))
    assert queue.take(0.0, strict=False) == ["urgent", "old", "twin", "young"]


def test_replicas_of_one_workload_have_an_order() -> None:
    """Priority, age and name are the same: the lower index goes first, and each has its place."""
    queue, keys = GangQueue(), [key_of(leader_worker_set(), group) for group in ("10", "0", "2")]
    for key in keys:
        queue.add(key, QueueEntry(priority=0, created=10.0, name="serve"))
    first, second, third = keys[1], keys[2], keys[0]
    assert queue.take(0.0, strict=True) == [first, second, third]
    assert queue.later_than(first) == [second, third]


def test_a_gang_that_did_not_fit_is_not_planned_again_without_room() -> None:
    """Nothing changed: the answer would be the same."""
    queue = filled(a=(0, 1.0))
    queue.take(0.0, strict=False)
    assert queue.take(1.0, strict=False) == []
    queue.capacity_freed = True
    assert queue.take(2.0, strict=False) == ["a"]


def test_a_new_gang_is_planned_without_the_others() -> None:
    """Best effort: a newcomer is tried alone, the ones that did not fit wait for room."""
    queue = filled(a=(0, 1.0))
    queue.take(0.0, strict=False)
    queue.add("b", QueueEntry(priority=0, created=2.0, name="b"))
    assert queue.take(1.0, strict=False) == ["b"]


def test_in_strict_order_a_newcomer_does_not_overtake() -> None:
    """Strict: whoever is ahead is asked first."""
    queue = filled(a=(0, 1.0))
    queue.take(0.0, strict=True)
    queue.add("b", QueueEntry(priority=0, created=2.0, name="b"))
    assert queue.take(1.0, strict=True) == ["a", "b"]


def test_a_gang_in_back_off_waits_for_its_time() -> None:
    """not_before keeps a gang back, and it is still new when its time comes."""
    queue = GangQueue()
    queue.add("a", QueueEntry(priority=0, created=1.0, name="a", not_before=10.0))
    assert queue.take(5.0, strict=False) == []
    assert queue.take(10.0, strict=False) == ["a"]


def test_a_dropped_gang_is_forgotten() -> None:
    """Placed, deleted or finished gangs leave the queue."""
    queue = filled(a=(0, 1.0))
    queue.drop("a")
    assert len(queue) == 0
    assert queue.take(0.0, strict=False) == []


def test_a_question_that_failed_is_not_asked_again_for_more_pods() -> None:
    """In one turn room only shrinks: what did not fit for 4 pods does not fit for 8, and for the same reason."""
    queue = GangQueue()
    queue.record_miss(PlanKey(("rack", "shape"), 4), "Fragmented")
    assert queue.known_miss(PlanKey(("rack", "shape"), 8)) == "Fragmented"
    assert queue.known_miss(PlanKey(("rack", "shape"), 3)) is None
    assert queue.known_miss(PlanKey(("block", "shape"), 8)) is None
    queue.take(0.0, strict=False)
    assert queue.known_miss(PlanKey(("rack", "shape"), 8)) is None


def asking(*counts: int, require: str | None = "rack", **more: object) -> PlanKey:
    asks = tuple(
        PodSetRequest(f"set-{i}", count, count, require, None, True, "h", **more)  # type: ignore[arg-type]
        for i, count in enumerate(counts)
    )
    return plan_key(
        PlacementRequest(pod_sets=asks, topology="default"), {ask.name: shape(gpu=8) for ask in asks}, "out"
    )


def test_the_question_of_equal_pods_is_the_same_for_any_number() -> None:
    """Only the number differs."""
    assert asking(4).about == asking(8).about
    assert (asking(4).count, asking(8).count) == (4, 8)


def test_the_question_of_several_pod_sets_has_all_of_them() -> None:
    """A launcher that fits says nothing about its workers: another second pod set is another question."""
    assert asking(1, 4) == asking(1, 4)
    assert asking(1, 4).about != asking(1, 2).about
    assert asking(1, 4).about != asking(1).about


def test_the_question_of_auto_has_its_number() -> None:
    """The number decides which level it is, and more pods may fit a coarser one."""
    assert asking(4, require="auto").about != asking(8, require="auto").about


def test_what_stands_beside_decides_too() -> None:
    """Levels, slices, colocation."""
    plain = asking(4).about
    assert asking(4, require="block").about != plain
    assert asking(4, slices=(("rack", 2),)).about != plain
    assert asking(4, colocate="x").about != plain


def test_who_has_waited_too_long_is_named_in_order() -> None:
    """Highest priority first, then the oldest; nobody before his time."""
    queue = GangQueue()
    queue.add("young", QueueEntry(priority=0, created=2.0, name="young", patient_until=10.0))
    queue.add("old", QueueEntry(priority=0, created=1.0, name="old", patient_until=10.0))
    queue.add("urgent", QueueEntry(priority=5, created=3.0, name="urgent", patient_until=20.0))
    queue.add("patient", QueueEntry(priority=9, created=0.0, name="patient"))
    assert queue.impatient(10.0) == ["old", "young"]
    assert queue.impatient(20.0) == ["urgent", "old", "young"]


def test_one_gang_may_be_planned_again_alone() -> None:
    """The others wait for room; whoever is gone stays gone."""
    queue = filled(a=(0, 1.0), b=(0, 2.0))
    queue.take(0.0, strict=False)
    queue.requeue("b")
    queue.requeue("c")
    assert queue.take(1.0, strict=False) == ["b"]


def test_as_many_pods_of_a_larger_gang_are_as_hopeless() -> None:
    """What decides is how many want room, not how many the gang has in all."""
    queue = GangQueue()
    miss = Miss(Waits("Fragmented", "no"))
    queue.record_miss(PlanKey(("about",), 4, 4), miss)
    assert queue.known_miss(PlanKey(("about",), 4, 9)) is miss
    assert queue.known_miss(PlanKey(("about",), 5, 9)) is miss
    assert queue.known_miss(PlanKey(("about",), 3, 9)) is None


@given(
    st.lists(
        st.tuples(st.integers(-2, 2), st.integers(0, 3), st.sampled_from(["a", "b"]), st.booleans()),
        max_size=30,
    )
)
def test_a_place_counts_those_that_wait_for_the_same_topology(gangs: list[tuple[int, int, str, bool]]) -> None:
    """By priority, age and name; gangs that do not wait for room are left out."""
    queue, counted = GangQueue(), set()
    entries = {}
    for number, (priority, created, topology, queues) in enumerate(gangs):
        key = workload_key(f"u{number}")
        entries[key] = QueueEntry(priority, float(created), f"n/g{number:02}", topology=topology)
        queue.add(key, entries[key])
        counted |= {key} if queues else set()
    found = queue.places(counted.__contains__)
    assert found.keys() == entries.keys()
    for key, entry in entries.items():
        line = [entries[other] for other in counted if entries[other].topology == entry.topology]
        mine = (-entry.priority, entry.created, entry.name)
        ahead = [one for one in line if (-one.priority, one.created, one.name) < mine]
        assert found[key] == (QueuePlace(len(ahead) + 1, len(line)) if key in counted else None)


@pytest.mark.parametrize(
    ("before", "now", "near"),
    [
        ((3, 20), (3, 20), True),
        ((3, 20), (2, 20), False),
        ((3, 20), (3, 19), False),
        ((100, 1000), (91, 950), True),
        ((100, 1000), (89, 1000), False),
        ((100, 1000), (100, 800), False),
        ((11, 1000), (10, 1000), False),
    ],
)
def test_far_behind_a_tenth_is_no_news(before: tuple[int, int], now: tuple[int, int], near: bool) -> None:
    """Near the front every place is."""
    assert QueuePlace(*before).is_near(QueuePlace(*now)) == near
