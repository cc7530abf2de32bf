"""The queue, the clock and the victims of the simulation with priorities."""

from collections.abc import Callable

import pytest

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from bench.placement.preemption.classes import HIGH, LOW, NORMAL
from bench.placement.preemption.measured import Usage, outcome
from bench.placement.preemption.rules import AT_ONCE, NEVER, SCHEDULERS
from bench.placement.preemption.simulator import History, simulate
from bench.placement.rules import OURS

Build = Callable[..., Cluster]


def job(number: int, submit: float, duration: float, gpus: int, priority: int = LOW, *, pods: int = 1) -> Job:
    return Job(number, submit, duration, pods, gpus, priority=priority)


def played(cluster: Cluster, scheduler: str, *jobs: Job) -> tuple[History, list[tuple[int, float]]]:
    history = simulate(cluster, jobs, SCHEDULERS[scheduler])
    return history, [(one.job.number, one.at) for one in history.finished]


def test_a_higher_priority_waits_in_front(cluster: Build) -> None:
    """Without preemption too: both wait for the first, and the one that came later starts earlier."""
    jobs = (job(0, 0, 10, 8), job(1, 1, 10, 8, LOW), job(2, 2, 10, 8, NORMAL))
    assert played(cluster([[[8]]]), NEVER, *jobs)[1] == [(0, 10), (2, 20), (1, 30)]


def test_a_victim_starts_again_from_zero_at_its_old_age(cluster: Build) -> None:
    """Its 40 s are lost; it runs before the job of its class that came after it."""
    jobs = (job(0, 0, 100, 8), job(1, 20, 10, 8), job(2, 40, 10, 8, HIGH))
    history, ends = played(cluster([[[8]]]), AT_ONCE, *jobs)
    assert ends == [(2, 50), (0, 150), (1, 160)]
    assert (history.lost, history.preemptions, history.restarts, history.broken) == (40 * 8, 1, 1, 0)
    assert {one.job.number: one.delay for one in history.finished} == {0: 50, 1: 130, 2: 0}


def test_only_the_highest_class_preempts(cluster: Build) -> None:
    """A normal job waits for a low one."""
    history, ends = played(cluster([[[8]]]), AT_ONCE, job(0, 0, 100, 8, LOW), job(1, 10, 10, 8, NORMAL))
    assert ends == [(0, 100), (1, 110)]
    assert history.preemptions == 0


def test_ours_waits_before_it_preempts(cluster: Build) -> None:
    """30 s as the policy's default; room that comes before is taken without a victim."""
    history, ends = played(cluster([[[8]]]), OURS, job(0, 0, 100, 8), job(1, 10, 10, 8, HIGH))
    assert ends == [(1, 50), (0, 150)]
    history, ends = played(cluster([[[8]]]), OURS, job(0, 0, 35, 8), job(1, 10, 10, 8, HIGH))
    assert ends == [(0, 35), (1, 45)]
    assert history.preemptions == 0


def test_a_freed_place_goes_to_whoever_waits(cluster: Build) -> None:
    """The victim had two hosts, the preemptor takes one, and a small job that waited takes the other."""
    jobs = (job(0, 0, 100, 8, pods=2), job(1, 5, 10, 8), job(2, 10, 20, 8, HIGH))
    assert played(cluster([[[8, 8]]]), "kueue", *jobs)[1] == [(1, 20), (2, 30), (0, 130)]


def test_a_gang_that_lost_a_pod_stands_still_until_it_has_it_again(cluster: Build) -> None:
    """kube-scheduler's victim keeps a host in vain for 20 s, after 10 s of lost work on both."""
    history, ends = played(cluster([[[8, 8]]]), "native", job(0, 0, 100, 8, pods=2), job(1, 10, 20, 8, HIGH))
    assert ends == [(1, 30), (0, 130)]
    assert history.lost == 10 * 16 + 20 * 8
    assert (history.restarts, history.broken) == (1, 1)


def test_lost_pods_wait_behind_jobs_that_came_before_they_were_lost(cluster: Build) -> None:
    """They are new pods: the older job takes the host, and the rest of the gang stands still meanwhile."""
    jobs = (job(0, 0, 100, 8, pods=2), job(1, 5, 50, 8), job(2, 10, 20, 8, HIGH))
    assert played(cluster([[[8, 8]]]), "native", *jobs)[1] == [(2, 30), (1, 80), (0, 180)]


def test_gangs_that_block_each_other_for_ever_are_ended(cluster: Build) -> None:
    """Each misses pods, and the others' hold the hosts: the one that stood still last is ended, and all run."""
    jobs = (
        Job(0, 0, 9, 4, 4, priority=NORMAL),
        Job(1, 1, 2, 2, 4, level=0, required=True, priority=NORMAL),
        Job(2, 1, 6, 1, 2, level=0, required=True, priority=NORMAL),
        Job(3, 7, 1, 4, 2, priority=HIGH),
        Job(4, 8, 3, 1, 4, level=1, required=True, priority=HIGH),
        Job(5, 8, 10, 1, 2, level=1, required=True, priority=LOW),
    )
    history, ends = played(cluster([[[4, 4], [4, 4]]], gpus=4), "native", *jobs)
    assert history.given_up == 1
    assert sorted(number for number, _ in ends) == list(range(6))


def test_streams_that_make_no_sense_are_refused(cluster: Build) -> None:
    """A job that never fits, and one that comes before the job ahead of it."""
    with pytest.raises(ValueError, match="job 7: 1 pods of 9 GPUs never fit"):
        simulate(cluster([[[8]]]), [job(7, 0, 1, 9)], SCHEDULERS[OURS])
    with pytest.raises(ValueError, match="job 8: submitted at 4 s"):
        simulate(cluster([[[8]]]), [job(7, 5, 1, 1), job(8, 4, 1, 1)], SCHEDULERS[OURS])


def test_the_numbers_of_a_run_can_be_counted_on_one_hand(cluster: Build) -> None:
    """One preemption in five jobs; the first fifth of the jobs is not measured."""
    made = cluster([[[8, 8]]])
    jobs = (job(0, 0, 10, 1), job(1, 1, 100, 8, pods=2), job(2, 60, 20, 8, HIGH), job(3, 200, 10, 8), job(4, 301, 9, 1))
    usage = Usage(jobs)
    history = simulate(made, jobs, SCHEDULERS[AT_ONCE], passed=usage.passed)
    found = outcome(made, jobs, history, usage, rack_gpus=16)
    # Job 1 starts at 10 s, when job 0 ends, and again at 80 s, when job 2 ends. Measured from 1 to 301 s.
    assert (found.preemptions, found.restarts, found.high_mean) == (200, 200, 0)
    assert found.low_mean == pytest.approx(79 / 3)
    assert found.lost == pytest.approx(50 * 16 / (10 + 1600 + 160 + 80 + 9))
    assert found.useful == pytest.approx((9 + 1600 + 160 + 80) / (300 * 16))
    assert found.in_use == pytest.approx((9 + 1600 + 160 + 80 + 800) / (300 * 16))
    assert found.excess_racks == 0
