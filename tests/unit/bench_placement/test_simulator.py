"""The queue and the clock of the simulation."""

from collections.abc import Callable

import pytest

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.rules import kueue
from bench.placement.simulator import SCAN, simulate

Build = Callable[..., Cluster]


def job(number: int, submit: float, duration: float, gpus: int) -> Job:
    return Job(number, submit, duration, 1, gpus)


def starts(cluster: Cluster, *jobs: Job, strict: bool = False) -> list[tuple[int, float, bool]]:
    return [(s.job.number, s.at, s.at_once) for s in simulate(cluster, jobs, kueue.place, strict=strict)]


def test_a_job_starts_when_it_comes_if_it_fits(cluster: Build) -> None:
    """Without a wait, and in its own place."""
    assert starts(cluster([[[8]]]), job(0, 1, 10, 4), job(1, 2, 10, 4)) == [(0, 1, True), (1, 2, True)]


def test_a_job_waits_for_the_first_end_that_makes_room(cluster: Build) -> None:
    """Its start is the end of the job before it."""
    assert starts(cluster([[[8]]]), job(0, 0, 10, 8), job(1, 3, 10, 8)) == [(0, 0, True), (1, 10, False)]


def test_a_job_that_comes_as_another_ends_finds_its_room(cluster: Build) -> None:
    """Ends come before arrivals in the same instant."""
    assert starts(cluster([[[8]]]), job(0, 0, 10, 8), job(1, 10, 10, 8)) == [(0, 0, True), (1, 10, True)]


def test_best_effort_lets_a_small_job_pass_a_large_one(cluster: Build) -> None:
    """The large one keeps its place in the queue."""
    jobs = (job(0, 0, 10, 4), job(1, 1, 10, 8), job(2, 2, 3, 4))
    assert starts(cluster([[[8]]]), *jobs) == [(0, 0, True), (2, 2, True), (1, 10, False)]


def test_strict_lets_nobody_pass(cluster: Build) -> None:
    """The small one waits behind the large one, though it would fit."""
    jobs = (job(0, 0, 10, 4), job(1, 1, 10, 8), job(2, 2, 3, 4))
    assert starts(cluster([[[8]]]), *jobs, strict=True) == [(0, 0, True), (1, 10, False), (2, 20, False)]


def test_a_pass_ends_after_so_many_refusals(cluster: Build) -> None:
    """A small job behind 64 that do not fit is not looked at until one of them starts."""
    large = [job(1 + i, 1, 1, 8) for i in range(SCAN)]
    found = starts(cluster([[[8]]]), job(0, 0, 10, 4), *large, job(1 + SCAN, 2, 1, 4))
    assert [number for number, _, _ in found] == list(range(SCAN + 2))
    assert found[1][1] == 10


def test_a_rule_that_finds_no_place_makes_the_job_wait(cluster: Build) -> None:
    """It is asked again at the next end."""
    asked: list[float] = []

    def shy(cluster: Cluster, job: Job) -> Placement | None:
        asked.append(job.number)
        return None if len(asked) == 2 else ((0, 1),)

    assert [s.at for s in simulate(cluster([[[8]]]), (job(0, 0, 10, 4), job(1, 1, 10, 4)), shy)] == [0, 10]


@pytest.mark.parametrize(
    "placement",
    [(), ((0, 1),), ((0, 3),), ((0, 1), (0, 1)), ((0, 2), (1, 0)), ((0, 1), (1, 1))],
    ids=["nowhere", "too few", "too many", "a host twice", "no pod", "two racks"],
)
def test_a_placement_that_is_none_is_refused(placement: Placement, cluster: Build) -> None:
    """A faulty rule stops the simulation instead of looking good."""
    made = cluster([[[8], [8]]])
    with pytest.raises(ValueError, match="job 7"):
        made.take(Job(7, 0, 1, 2, 4, level=1, required=True), placement)
    assert made.free.tolist() == [8, 8]


def test_more_than_is_free_cannot_be_taken(cluster: Build) -> None:
    """No host is overcommitted."""
    with pytest.raises(ValueError, match="more than is free"):
        cluster([[[7]]]).take(job(1, 0, 1, 8), ((0, 1),))


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ((job(0, 5, 1, 1), job(1, 4, 1, 1)), "before the job ahead"),
        ((job(0, 0, 1, 9),), "never fit"),
        ((job(0, 0, 0, 1),), "must be positive"),
        ((job(0, 0, 1, 0),), "must be positive"),
    ],
)
def test_streams_that_make_no_sense_are_refused(jobs: tuple[Job, ...], words: str, cluster: Build) -> None:
    """Before anything runs, naming the job."""
    with pytest.raises(ValueError, match=words):
        simulate(cluster([[[8]]]), jobs, kueue.place)
