"""Who is planned next."""

from __future__ import annotations

from engine.queue import Entry, Queue


def filled(**entries: tuple[int, float]) -> Queue:
    queue = Queue()
    for uid, (priority, created) in entries.items():
        queue.add(uid, Entry(priority=priority, created=created, name=uid))
    return queue


def test_higher_priority_goes_first_then_the_older_gang() -> None:
    """Priority, then age, then name."""
    queue = filled(young=(0, 20.0), old=(0, 10.0), urgent=(5, 30.0), twin=(0, 10.0))
    assert queue.take(0.0, strict=False) == ["urgent", "old", "twin", "young"]


def test_a_gang_that_did_not_fit_is_not_planned_again_without_room() -> None:
    """Nothing changed: the answer would be the same."""
    queue = filled(a=(0, 1.0))
    queue.take(0.0, strict=False)
    assert queue.take(1.0, strict=False) == []
    queue.room = True
    assert queue.take(2.0, strict=False) == ["a"]


def test_a_new_gang_is_planned_without_the_others() -> None:
    """Best effort: a newcomer is tried alone, the ones that did not fit wait for room."""
    queue = filled(a=(0, 1.0))
    queue.take(0.0, strict=False)
    queue.add("b", Entry(priority=0, created=2.0, name="b"))
    assert queue.take(1.0, strict=False) == ["b"]


def test_in_strict_order_a_newcomer_does_not_overtake() -> None:
    """Strict: whoever is ahead is asked first."""
    queue = filled(a=(0, 1.0))
    queue.take(0.0, strict=True)
    queue.add("b", Entry(priority=0, created=2.0, name="b"))
    assert queue.take(1.0, strict=True) == ["a", "b"]


def test_a_gang_in_back_off_waits_for_its_time() -> None:
    """not_before keeps a gang back, and it is still new when its time comes."""
    queue = Queue()
    queue.add("a", Entry(priority=0, created=1.0, name="a", not_before=10.0))
    assert queue.take(5.0, strict=False) == []
    assert queue.take(10.0, strict=False) == ["a"]


def test_a_dropped_gang_is_forgotten() -> None:
    """Placed, deleted or finished gangs leave the queue."""
    queue = filled(a=(0, 1.0))
    queue.drop("a")
    assert len(queue) == 0
    assert queue.take(0.0, strict=False) == []


def test_a_question_that_failed_is_not_asked_again_for_more_pods() -> None:
    """In one turn room only shrinks: what did not fit for 4 pods does not fit for 8."""
    queue = Queue()
    queue.missed(("rack", "shape"), 4)
    assert queue.hopeless(("rack", "shape"), 8)
    assert not queue.hopeless(("rack", "shape"), 3)
    queue.take(0.0, strict=False)
    assert not queue.hopeless(("rack", "shape"), 8)
