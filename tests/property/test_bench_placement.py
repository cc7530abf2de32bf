"""What must hold in every simulation, and the exact answer against plain enumeration."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.optimum import fewest, used
from bench.placement.preemption.classes import HIGH, LOW, NORMAL
from bench.placement.preemption.rules import MOVERS, SCHEDULERS
from bench.placement.preemption.rules.running import Running, lower, without
from bench.placement.preemption.simulator import simulate as simulate_with_priorities
from bench.placement.rules import OURS, RULES
from bench.placement.simulator import simulate
from engine.planner.tree import build_tree

SMALL = settings(max_examples=60, deadline=None)


@st.composite
def clusters(draw: st.DrawFn, most: int = 8) -> Cluster:
    """Up to `most` hosts of 4 GPUs in up to 3 blocks, some GPUs taken."""
    places = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=most))
    paths = [(f"b{b}", f"b{b}-r{r}", f"h{i}") for i, (b, r) in enumerate(places)]
    cluster = Cluster(build_tree(("block", "rack", "host"), paths), np.full(len(paths), 4, dtype=np.int64))
    cluster.free[:] = draw(st.lists(st.integers(0, 4), min_size=len(paths), max_size=len(paths)))
    return cluster


@st.composite
def jobs(draw: st.DrawFn, number: int = 0) -> Job:
    """A small gang with any wish."""
    level = draw(st.sampled_from([None, 0, 1]))
    required = level is not None and draw(st.booleans())
    submit, duration = draw(st.integers(0, 30)), draw(st.integers(1, 20))
    return Job(
        number,
        submit,
        duration,
        draw(st.integers(1, 6)),
        draw(st.sampled_from([1, 2, 4])),
        level=level,
        required=required,
    )


def placements(slots: list[int], pods: int) -> list[Placement]:
    """All ways to put the pods on the hosts."""
    found = []
    for counts in itertools.product(*(range(min(room, pods) + 1) for room in slots)):
        if sum(counts) == pods:
            found.append(tuple((host, count) for host, count in enumerate(counts) if count))
    return found


@SMALL
@given(clusters(most=6), jobs())
def test_the_optimum_is_that_of_plain_enumeration(cluster: Cluster, job: Job) -> None:
    """Fewest blocks, then racks, then hosts, of all placements that keep the required level."""
    domains = cluster.tree.domains
    allowed = [
        used(cluster, np.array([host for host, _ in placement]))
        for placement in placements(cluster.slots(2, job.gpus).tolist(), job.pods)
        if not job.required or job.level is None or len({int(domains[job.level][host]) for host, _ in placement}) == 1
    ]
    assert fewest(cluster, job) == min(allowed, default=None)
    assert cluster.fits(job) == bool(allowed)


@pytest.mark.parametrize("name", RULES)
@SMALL
@given(data=st.data())
def test_a_rule_places_exactly_what_fits(name: str, data: st.DataObject) -> None:
    """All gangs are of equal pods, so no rule may miss a placement, and none may overcommit or leave the level."""
    cluster, job = data.draw(clusters()), data.draw(jobs())
    placement = RULES[name](cluster, job)
    assert (placement is not None) == cluster.fits(job)
    if placement is not None:
        cluster.take(job, placement)


@SMALL
@given(clusters(), jobs())
def test_ours_has_the_optimum_of_gangs_with_a_level(cluster: Cluster, job: Job) -> None:
    """The planner against the benchmark's own exact answer."""
    placement = RULES[OURS](cluster, job)
    if placement is not None and job.level is not None:
        assert used(cluster, np.array([host for host, _ in placement])) == fewest(cluster, job)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_job_runs_once_and_no_gpu_twice(name: str, strict: bool, data: st.DataObject) -> None:
    """Each job starts once, not before it came; at every instant hosts hold no more than they have."""
    cluster = data.draw(clusters())
    cluster.free[:] = cluster.gpus
    drawn = [data.draw(jobs(number)) for number in range(data.draw(st.integers(1, 12)))]
    stream = sorted((job for job in drawn if cluster.fits(job)), key=lambda job: (job.submit, job.number))
    starts = simulate(cluster, stream, RULES[name], strict=strict)
    assert sorted(start.job.number for start in starts) == sorted(job.number for job in stream)
    assert all(start.wait >= 0 and (start.wait == 0 or not start.at_once) for start in starts)
    for now in {start.at for start in starts}:
        taken = np.zeros(len(cluster.gpus), dtype=np.int64)
        for start in starts:
            if start.at <= now < start.at + start.job.duration:
                for host, pods in start.placement:
                    taken[host] += pods * start.job.gpus
        assert (taken <= cluster.gpus).all()
    if strict:
        assert [start.job for start in starts] == stream


@pytest.mark.parametrize("name", [*SCHEDULERS, *MOVERS])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_with_priorities_or_moves_every_job_ends_and_all_gpu_time_is_accounted_for(
    name: str, data: st.DataObject
) -> None:
    """GPU time in use is what the jobs need and what was lost; only kube-scheduler's gangs ever miss pods."""
    cluster = data.draw(clusters())
    cluster.free[:] = cluster.gpus
    drawn = [data.draw(jobs(number)) for number in range(data.draw(st.integers(1, 14)))]
    classes = [data.draw(st.sampled_from((HIGH, NORMAL, LOW))) for _ in drawn]
    with_classes = [replace(job, priority=priority) for job, priority in zip(drawn, classes, strict=True)]
    stream = sorted((job for job in with_classes if cluster.fits(job)), key=lambda job: (job.submit, job.number))
    used_seconds = 0.0

    def passed(cluster: Cluster, running: Mapping[int, Running], since: float, now: float) -> None:
        nonlocal used_seconds
        used_seconds += (now - since) * int((cluster.gpus - cluster.free).sum())
        held = np.zeros(len(cluster.gpus), dtype=np.int64)
        for one in running.values():
            for host, pods in one.placement:
                held[host] += pods * one.job.gpus
            if name != "native":
                assert sum(pods for _, pods in one.placement) == one.job.pods
        assert (held == cluster.gpus - cluster.free).all()

    scheduler = MOVERS.get(name) or SCHEDULERS[name]
    history = simulate_with_priorities(cluster, stream, scheduler, passed=passed)
    assert sorted(one.job.number for one in history.finished) == sorted(job.number for job in stream)
    assert used_seconds == pytest.approx(sum(job.size * job.duration for job in stream) + history.lost)
    assert all(one.at >= one.job.submit + one.job.duration for one in history.finished)
    if name in MOVERS:
        assert history.restarts == history.moved
    if scheduler.preempt is None:
        assert history.lost == history.restarts == 0
    for one in history.finished:
        if one.job.required and one.job.level is not None:
            assert len({int(cluster.tree.domains[one.job.level][host]) for host, _ in one.placement}) == 1


@pytest.mark.parametrize("name", [name for name, one in SCHEDULERS.items() if one.preempt is not None])
@SMALL
@given(data=st.data())
def test_a_preemption_ends_only_lower_priorities_and_makes_room(name: str, data: st.DataObject) -> None:
    """The preemptor's and the moved gangs' places are free once the pods have ended; nothing that helps is missed."""
    cluster = data.draw(clusters())
    cluster.free[:] = cluster.gpus
    running = {}
    for number in range(data.draw(st.integers(0, 8))):
        job = replace(data.draw(jobs(number)), priority=data.draw(st.sampled_from((HIGH, NORMAL, LOW))))
        placement = RULES[OURS](cluster, job) if cluster.fits(job) else None
        if placement is not None:
            cluster.take(job, placement)
            running[number] = Running(job, placement, data.draw(st.integers(0, 29)))
    urgent = replace(data.draw(jobs(99)), priority=HIGH)
    rule = SCHEDULERS[name].preempt
    assert rule is not None
    if cluster.fits(urgent):
        return
    free = cluster.free.copy()
    found = rule(cluster, urgent, running, 30.0)
    assert (cluster.free == free).all()
    if found is None:
        assert name == "volcano" or not without(cluster, lower(running, urgent)).fits(urgent)
        return
    for number, ended in found.ended.items():
        one = running[number]
        assert one.job.priority < HIGH
        assert name == "native" or ended == one.placement
        cluster.give(replace(one.job, pods=sum(pods for _, pods in ended)), ended)
    cluster.take(urgent, found.placement)
    for number, placement in found.moved.items():
        cluster.take(running[number].job, placement)
