"""The fair order among namespaces: what holds at every step of a stream of gangs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import floor

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.fairness import Job, stream
from engine.api.workload import GangKey
from engine.capacity.quota import Usage
from engine.scheduler.fairness import WeightedUsage, in_turns, turn_of
from engine.scheduler.queue import GangQueue, QueueEntry

SPACES = ("a", "b", "c")
weights_of_spaces = st.fixed_dictionaries({space: st.integers(1, 4) for space in SPACES})
job_lists = st.lists(
    st.tuples(st.sampled_from(SPACES), st.integers(1, 4), st.integers(0, 30), st.integers(1, 9), st.integers(0, 1)),
    min_size=1,
    max_size=40,
)
numbered = st.lists(
    st.tuples(st.sampled_from(SPACES), st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=12
).map(lambda rows: [(*row, number) for number, row in enumerate(rows)])


def jobs_of(rows: list[tuple[str, int, int, int, int]]) -> list[Job]:
    return [
        Job(f"{space}/j{number}", gpus, float(submit), float(duration), priority)
        for number, (space, gpus, submit, duration, priority) in enumerate(rows)
    ]


@settings(deadline=None)
@given(rows=job_lists, weights=weights_of_spaces, strict=st.booleans())
def test_who_starts_has_no_larger_share_than_any_other_that_would_fit(
    rows: list[tuple[str, int, int, int, int]], weights: Mapping[str, int], strict: bool
) -> None:
    """Of the gangs that wait at that moment and fit: not of a lower priority, and of the namespace that uses least."""
    jobs = jobs_of(rows)
    started = stream(jobs, 8, weights=weights, strict=strict)
    begins = {one.job.name: number for number, one in enumerate(started)}
    for number, one in enumerate(started):
        free = 8 - sum(one.used.values())
        for other in jobs:
            if other.submit <= one.at and begins[other.name] > number and (strict or other.gpus <= free):
                mine, theirs = (one.used.get(job.namespace, 0) / weights[job.namespace] for job in (one.job, other))
                assert (-one.job.priority, mine) <= (-other.priority, theirs)


@settings(deadline=None)
@given(rows=job_lists, weights=weights_of_spaces, strict=st.booleans())
def test_everybody_starts_and_no_gpu_is_idle_that_a_waiting_gang_could_use(
    rows: list[tuple[str, int, int, int, int]], weights: Mapping[str, int], strict: bool
) -> None:
    """Fair order is work conserving as the order by age: strict waits for the first gang only."""
    jobs = jobs_of(rows)

    def look(_now: float, used: Mapping[str, int], waiting: Sequence[Job]) -> None:
        free = 8 - sum(used.values())
        fits = [job.gpus <= free for job in waiting]
        assert not (all(fits) and fits if strict else any(fits))

    assert len(stream(jobs, 8, weights=weights, strict=strict, look=look)) == len(jobs)


@settings(max_examples=30, deadline=None)
@given(
    durations=st.lists(st.integers(1, 9), min_size=60, max_size=60),
    weights=weights_of_spaces,
    hog=st.sampled_from(SPACES),
    strict=st.booleans(),
)
def test_shares_follow_the_weights_and_no_namespace_starves(
    durations: list[int], weights: Mapping[str, int], hog: str, strict: bool
) -> None:
    """One namespace has filled all GPUs and more gangs wait than can run: as soon as each of those has ended once,
    every namespace has its part of the GPUs, down to a whole GPU, for as long as its gangs wait.
    """
    jobs = [Job(f"{hog}/first{number}", 1, 0.0, float(durations[number])) for number in range(12)]
    jobs += [
        Job(f"{space}/j{number:02}", 1, 0.5 + number / 100, float(duration))
        for space in SPACES
        for number, duration in enumerate(durations)
    ]

    def look(now: float, used: Mapping[str, int], waiting: Sequence[Job]) -> None:
        if now < 10.0 or {job.namespace for job in waiting} != set(SPACES):
            return
        total = sum(weights.values())
        for space in SPACES:
            assert used.get(space, 0) >= floor(12 * weights[space] / total) - 1
        shares = {space: used.get(space, 0) / weights[space] for space in SPACES}
        for one, other in itertools.permutations(SPACES, 2):
            assert shares[one] - shares[other] <= 1 / weights[one] + 1e-9

    assert len(stream(jobs, 12, weights=weights, strict=strict, look=look)) == len(jobs)


@given(rows=numbered, used=st.dictionaries(st.sampled_from(SPACES), st.integers(0, 5)), data=st.data())
def test_the_order_does_not_depend_on_the_order_of_arrival(
    rows: list[tuple[str, int, int, int]], used: Mapping[str, int], data: st.DataObject
) -> None:
    """Nor on what was added, dropped and added again before; by age the queue is as without usage."""

    def queue_of(entries: list[tuple[str, int, int, int]]) -> GangQueue:
        queue = GangQueue()
        for space, priority, created, number in entries:
            name = f"{space}/j{number}"
            queue.add(GangKey(name), QueueEntry(priority=priority, created=float(created), name=name))
        queue.usage = WeightedUsage({space: Usage(gpus, gpus) for space, gpus in used.items()}, lambda _: 1)
        return queue

    def order(entries: list[tuple[str, int, int, int]], placed: int) -> list[str]:
        queue = queue_of(entries)
        found = []
        for key in queue.in_turns(queue.take(0.0, strict=False)):
            found.append(str(key))
            if len(found) % 3 < placed and queue.usage is not None:
                queue.usage.charge(key.partition("/")[0], Usage(1, 1))
        return found

    placed = data.draw(st.integers(0, 3))
    assert order(rows, placed) == order(data.draw(st.permutations(rows)), placed)


@given(
    rows=numbered, used=st.dictionaries(st.sampled_from(SPACES), st.integers(0, 5)), grows=st.lists(st.integers(0, 3))
)
def test_turns_are_those_of_sorting_anew_at_each_step(
    rows: list[tuple[str, int, int, int]], used: Mapping[str, int], grows: list[int]
) -> None:
    """The iteration that saves the sorting gives the same order."""

    def usage() -> WeightedUsage:
        return WeightedUsage({space: Usage(gpus, 0) for space, gpus in used.items()}, lambda _: 1)

    def growth(number: int) -> Usage:
        return Usage(grows[number] if number < len(grows) else 0, 0)

    def turn(row: tuple[str, int, int, int], now: WeightedUsage) -> tuple[object, ...]:
        return turn_of(row[1], float(row[2]), f"{row[0]}/j{row[3]}", now)

    now, expected, left = usage(), [], list(rows)
    while left:
        first = min(left, key=lambda row: turn(row, now))
        left.remove(first)
        expected.append(first)
        if growth(len(expected)).gpus:
            now.charge(first[0], growth(len(expected)))
    now, found = usage(), []
    given_order = sorted(rows, key=lambda row: turn(row, now))
    for row in in_turns(given_order, lambda row: turn_of(row[1], float(row[2]), f"{row[0]}/j{row[3]}", now), now):
        found.append(row)
        if growth(len(found)).gpus:
            now.charge(row[0], growth(len(found)))
    assert found == expected
