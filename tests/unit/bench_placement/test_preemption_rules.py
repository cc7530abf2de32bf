"""Whom each scheduler's rule ends, on cases that can be played through on paper."""

from collections.abc import Callable

import pytest

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.preemption.classes import HIGH, LOW, NORMAL, with_classes
from bench.placement.preemption.rules import SCHEDULERS, kai, kueue, moves, native, ours, volcano
from bench.placement.preemption.rules.running import Preemption, Running

RACK = 1
Build = Callable[..., Cluster]


def running(number: int, placement: Placement, *, since: float, priority: int = LOW, gpus: int = 8) -> Running:
    """A gang that came when it started."""
    pods = sum(count for _, count in placement)
    return Running(Job(number, since, 9_000, pods, gpus, priority=priority), placement, since)


def urgent(pods: int, gpus: int = 8, *, require: int | None = None) -> Job:
    return Job(99, 1_000, 60, pods, gpus, level=require, required=require is not None, priority=HIGH)


def ask(rule: Callable[..., Preemption | None], cluster: Cluster, job: Job, *gangs: Running) -> Preemption | None:
    return rule(cluster, job, {one.job.number: one for one in gangs}, 1_000.0)


def ended(rule: Callable[..., Preemption | None], cluster: Cluster, job: Job, *gangs: Running) -> set[int]:
    found = ask(rule, cluster, job, *gangs)
    assert found is not None
    return set(found.ended)


FULL = [[[0, 0], [0, 0]]]


def test_ours_ends_the_fewest_gangs(cluster: Build) -> None:
    """One gang of a whole rack, though it runs for longest, instead of two on the other rack."""
    gangs = (running(1, ((0, 1), (1, 1)), since=0), running(2, ((2, 1),), since=900), running(3, ((3, 1),), since=901))
    assert ended(ours.preempt, cluster(FULL), urgent(2, require=RACK), *gangs) == {1}


def test_ours_spares_gangs_that_run_for_long_if_it_has_to(cluster: Build) -> None:
    """`protect.runningFor`: the two young ones end instead of the old one; None where only old ones would do."""
    gangs = (running(1, ((0, 1), (1, 1)), since=0), running(2, ((2, 1),), since=900), running(3, ((3, 1),), since=901))
    found = ours.preempt(
        cluster(FULL), urgent(2, require=RACK), {one.job.number: one for one in gangs}, 1_000.0, young_for=600
    )
    assert found is not None
    assert set(found.ended) == {2, 3}
    assert ours.preempt(cluster(FULL), urgent(3), {1: gangs[0]}, 1_000.0, young_for=600) is None


def test_kueue_takes_the_last_admitted_of_the_lowest_priority(cluster: Build) -> None:
    """The normal gang stays, though it started later."""
    gangs = (
        running(1, ((0, 1),), since=10),
        running(2, ((1, 1),), since=20),
        running(3, ((2, 1), (3, 1)), since=30, priority=NORMAL),
    )
    assert ended(kueue.preempt, cluster(FULL), urgent(1), *gangs) == {2}


def test_kueue_gives_back_whom_the_topology_did_not_need(cluster: Build) -> None:
    """Gangs 4 and 3 are taken first and given back, as the rack of 1 and 2 becomes free only with the last of them."""
    gangs = (
        running(1, ((0, 1),), since=10),
        running(2, ((1, 1),), since=30),
        running(3, ((2, 1),), since=40),
        running(4, ((3, 1),), since=5, priority=NORMAL),
    )
    assert ended(kueue.preempt, cluster(FULL), urgent(2, require=RACK), *gangs) == {1, 2}


def test_volcano_gives_nobody_back(cluster: Build) -> None:
    """The cluster is one candidate: all gangs until there is enough for all pods, the newest first."""
    gangs = (running(1, ((0, 1),), since=10), running(2, ((1, 1),), since=20), running(3, ((2, 1), (3, 1)), since=5))
    assert ended(volcano.preempt, cluster(FULL), urgent(2), *gangs) == {1, 2}
    assert ended(volcano.preempt, cluster(FULL), urgent(3), *gangs) == {1, 2, 3}


def test_volcano_ends_only_gangs_with_pods_in_the_domain(cluster: Build) -> None:
    """In whichever rack it looks, the gangs of the other one stay."""
    gangs = tuple(running(number, ((number, 1),), since=number) for number in range(4))
    found = ask(volcano.preempt, cluster(FULL), urgent(2, require=RACK), *gangs)
    assert found is not None
    assert set(found.ended) in ({0, 1}, {2, 3})
    assert {host for host, _ in found.placement} == set(found.ended)


def test_kai_moves_a_victim_that_fits_elsewhere(cluster: Build) -> None:
    """Both racks have 8 of 16 GPUs free: the newer gang goes to the other rack, and the job gets a whole rack."""
    gangs = (running(1, ((0, 1),), since=10), running(2, ((2, 1),), since=20))
    found = ask(kai.preempt, cluster([[[0, 8], [0, 8]]]), urgent(2, require=RACK), *gangs)
    assert found is not None
    assert found.placement == ((2, 1), (3, 1))
    assert (found.ended, found.moved) == ({2: ((2, 1),)}, {2: ((1, 1),)})


def test_kai_lets_gathered_gangs_run_that_are_not_in_the_way(cluster: Build) -> None:
    """The newest is gathered first but stays on its host, as the job goes to the other rack."""
    gangs = (running(1, ((0, 1), (1, 1)), since=10), running(2, ((3, 1),), since=20))
    assert ended(kai.preempt, cluster([[[0, 0], [0, 0]]], 8), urgent(2, require=RACK), *gangs) == {1}


def test_kai_consolidates_only_if_nobody_waits_afterwards(cluster: Build) -> None:
    """A gang of any priority moves; where it would find no other host, it stays."""
    gangs = (running(1, ((0, 1),), since=10, priority=HIGH), running(2, ((2, 1),), since=20, priority=HIGH))
    found = ask(kai.consolidate, cluster([[[0, 8], [0, 8]]]), urgent(2, require=RACK), *gangs)
    assert found == Preemption(((2, 1), (3, 1)), {2: ((2, 1),)}, {2: ((1, 1),)})
    assert ask(kai.consolidate, cluster([[[0, 0], [0, 8]]]), urgent(2, require=RACK), *gangs) is None


def test_ours_moves_the_fewest_and_smallest_gangs(cluster: Build) -> None:
    """One small gang leaves a rack, not the larger one the other rack; where both run for too long, none does."""
    halves = [[[0, 8, 8], [0, 0, 8]]]
    gangs = (running(1, ((0, 1),), since=10), running(2, ((3, 1), (4, 1)), since=20))
    found = ask(moves.move, cluster(halves), urgent(3, require=RACK), *gangs)
    assert found == Preemption(((0, 1), (1, 1), (2, 1)), {1: ((0, 1),)}, {1: ((5, 1),)})
    known = {one.job.number: one for one in gangs}
    assert moves.move(cluster(halves), urgent(3, require=RACK), known, 1_000.0, young_for=600) is None


def test_ours_moves_nobody_where_too_few_gpus_are_free(cluster: Build) -> None:
    """A move frees nothing; a gang that nobody has to move for is none of its business either."""
    gangs = (running(1, ((0, 1),), since=10), running(2, ((2, 1),), since=20))
    assert ask(moves.move, cluster([[[0, 0], [0, 8]]]), urgent(2, require=RACK), *gangs) is None


def test_a_moved_gang_is_no_further_apart_than_before(cluster: Build) -> None:
    """It prefers one rack and has one: it does not move where only two racks have room for it."""
    apart = Running(Job(1, 0, 9_000, 2, 8, level=RACK, priority=LOW), ((0, 1), (1, 1)), 0.0)
    free = [[[0, 0], [0, 8], [0, 8]]]
    others = (running(2, ((2, 1),), since=10, priority=HIGH), running(3, ((4, 1),), since=10, priority=HIGH))
    found = moves.move(cluster(free), urgent(2, require=RACK), {1: apart}, 1_000.0)
    assert found is None
    assert ask(moves.move, cluster(free), urgent(2, require=RACK), apart, *others) is not None


def test_native_ends_single_pods_and_leaves_the_rest(cluster: Build) -> None:
    """A gang of four loses one pod: that the others are useless then is unknown to it."""
    gang = running(1, ((0, 1), (1, 1), (2, 1), (3, 1)), since=10)
    found = ask(native.preempt, cluster(FULL), urgent(1), gang)
    assert found == Preemption(((0, 1),), {1: ((0, 1),)})


@pytest.mark.parametrize(
    ("first", "second", "host"),
    [
        ({"priority": NORMAL, "gpus": 8}, {"priority": LOW, "gpus": 8}, 1),
        ({"gpus": 4}, {"gpus": 8}, 1),
        ({"since": 10}, {"since": 20}, 1),
        ({"since": 20}, {"since": 10}, 0),
    ],
    ids=["lowest highest priority", "fewest pods", "latest start", "latest start on the first"],
)
def test_native_takes_the_host_with_the_cheapest_pods(
    first: dict[str, int], second: dict[str, int], host: int, cluster: Build
) -> None:
    """In the order of kube-scheduler; a host of two small pods costs two."""
    gangs = []
    for number, traits in enumerate((first, second)):
        gpus, since = traits.get("gpus", 8), float(traits.get("since", 5))
        gangs.append(
            running(number, ((number, 8 // gpus),), since=since, gpus=gpus, priority=traits.get("priority", LOW))
        )
    assert ended(native.preempt, cluster([[[0], [0]]]), urgent(1), *gangs) == {host}


def test_native_gives_back_the_longest_running_pod_of_a_host(cluster: Build) -> None:
    """One of two small pods is enough: the newer one ends."""
    gangs = (running(1, ((0, 1),), since=10, gpus=4), running(2, ((0, 1),), since=20, gpus=4))
    assert ended(native.preempt, cluster([[[0]]]), urgent(1, 4), *gangs) == {2}


@pytest.mark.parametrize("name", [name for name, one in SCHEDULERS.items() if one.preempt is not None])
def test_nobody_ends_where_it_would_not_help(name: str, cluster: Build) -> None:
    """The only gang has the same priority."""
    rule = SCHEDULERS[name].preempt
    assert rule is not None
    assert ask(rule, cluster([[[0]]]), urgent(1), running(1, ((0, 1),), since=990, priority=HIGH)) is None


def test_classes_are_drawn_apart_from_the_jobs() -> None:
    """The same seed gives the same classes, in about the wanted shares; all else of a job stays."""
    jobs = [Job(number, number, 60, 1, 1) for number in range(4_000)]
    made = with_classes(jobs, seed=3, high=0.2)
    assert made == with_classes(jobs, seed=3, high=0.2)
    shares = [sum(job.priority == priority for job in made) / 4_000 for priority in (HIGH, NORMAL, LOW)]
    assert shares == pytest.approx([0.2, 0.4, 0.4], abs=0.03)
    assert [job.submit for job in made] == [job.submit for job in jobs]
    with pytest.raises(ValueError, match=r"high: 1\.5"):
        with_classes(jobs, seed=3, high=1.5)
