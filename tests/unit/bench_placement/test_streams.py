"""Streams that are drawn, and streams and trees that are read from files."""

from pathlib import Path

import numpy as np
import pytest

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, scaled
from bench.placement.mixes import DURATIONS, duration, mean_duration, stream
from bench.placement.topologies import RAGGED_RACKS, regular, scenarios
from bench.placement.traces import TraceError, fitted, part, read_jobs, read_tree

JOBS = "submit_s,duration_s,pods,gpus_per_pod,topology_mode,topology_level\n"


@pytest.mark.parametrize("name", ["A", "B", "C", "L"])
def test_a_stream_asks_for_its_load_and_fits(name: str) -> None:
    """GPU seconds over the time until the last arrival are the stated share, and no job is too big for the cluster."""
    scenario = scenarios()[name]
    gpus = scenario.gpus()
    jobs = stream(scenario.mix, jobs=400, load=0.8, total_gpus=int(gpus.sum()), seed=1)
    assert sum(job.size * job.duration for job in jobs) / jobs[-1].submit == pytest.approx(0.8 * gpus.sum())
    assert all(Cluster(scenario.tree, gpus).fits(job) for job in jobs)


def test_the_same_seed_makes_the_same_stream_and_another_makes_another() -> None:
    """Streams are values of their seed."""
    mix = scenarios()["A"].mix
    first, again, other = (stream(mix, jobs=20, load=1, total_gpus=100, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_stream_holds_the_stated_share_of_required_gangs() -> None:
    """90 % in scenario C, single pods never."""
    jobs = stream(scenarios()["C"].mix, jobs=4000, load=1, total_gpus=4608, seed=0)
    gangs = [job for job in jobs if job.pods > 1]
    assert sum(job.required for job in gangs) / len(gangs) == pytest.approx(0.9, abs=0.03)
    assert not any(job.required or job.level is not None for job in jobs if job.pods == 1)


def test_the_mean_duration_is_that_of_the_quantiles() -> None:
    """The closed form against a sum over ten thousand quantiles."""
    assert mean_duration() == pytest.approx(sum(duration((i + 0.5) / 10_000) for i in range(10_000)) / 10_000, rel=1e-4)
    assert (duration(0), duration(1)) == (DURATIONS[0][1], DURATIONS[-1][1])


def test_the_ragged_tree_has_the_published_racks() -> None:
    """847 hosts in 119 racks of 2 to 8."""
    tree = scenarios()["L"].tree
    sizes = np.diff([*tree.starts[1], len(tree.hosts)])
    assert {size: int((sizes == size).sum()) for size in RAGGED_RACKS} == RAGGED_RACKS
    assert (tree.size(0), tree.size(1), len(tree.hosts)) == (3, 119, 847)


def test_a_trace_becomes_jobs_by_submit_time(tmp_path: Path) -> None:
    """Levels become indices; time starts with the first job; other columns are left out of account."""
    path = tmp_path / "jobs.csv"
    path.write_text("queue," + JOBS + "x,70,5,2,8,required,rack\ny,60,9.5,1,1,none,\nz,80,1,4,4,preferred,block\n")
    assert read_jobs(path) == (
        Job(1, 0, 9.5, 1, 1),
        Job(0, 10, 5, 2, 8, level=1, required=True),
        Job(2, 20, 1, 4, 4, level=0),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column submit_s"),
        ("submit_s,duration_s\n1,2\n", "no column pods, gpus_per_pod"),
        (JOBS, "no jobs"),
        (JOBS + "0,1,1\n", ":2: too few values"),
        (JOBS + "0,1,1,1,none,\nsoon,1,1,1,none,\n", ":3: submit_s: 'soon'"),
        (JOBS + "nan,1,1,1,none,\n", "submit_s: 'nan'"),
        (JOBS + "-1,1,1,1,none,\n", "submit_s: '-1'"),
        (JOBS + "0,0,1,1,none,\n", "duration_s: '0' is not positive"),
        (JOBS + "0,inf,1,1,none,\n", "duration_s: 'inf'"),
        (JOBS + "0,1,0,1,none,\n", "pods: '0'"),
        (JOBS + "0,1,1.5,1,none,\n", "pods: '1.5'"),
        (JOBS + "0,1,1,99999999999,none,\n", "gpus_per_pod: '99999999999'"),
        (JOBS + "0,1,1,1,must,rack\n", "topology_mode: 'must'"),
        (JOBS + "0,1,1,1,required,zone\n", "topology_level: 'zone'"),
    ],
)
def test_a_trace_that_is_none_is_refused(text: str, words: str, tmp_path: Path) -> None:
    """With the file, the line and the column."""
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as error:
        read_jobs(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 end in a message."""
    path = tmp_path / "jobs.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match=r"jobs\.csv"):
        read_jobs(path)


def test_a_tree_is_read_with_racks_apart_by_block(tmp_path: Path) -> None:
    """Rack 0 of one block is not rack 0 of another."""
    path = tmp_path / "hosts.csv"
    path.write_text("host,block,rack\nh1,0,0\nh2,1,0\nh3,0,0\n")
    tree = read_tree(path)
    assert (tree.hosts, tree.size(0), tree.size(1)) == (("h1", "h3", "h2"), 2, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [("host,rack\nh,1\n", "no column block"), ("host,block,rack\nh,,1\n", ":2:"), ("host,block,rack\n", "no hosts"),
     ("host,block,rack\nh,1,1\nh,1,2\n", "more than once")],
)  # fmt: skip
def test_a_tree_that_is_none_is_refused(text: str, words: str, tmp_path: Path) -> None:
    """Missing columns, empty names, no hosts, a host twice."""
    path = tmp_path / "hosts.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        read_tree(path)


def test_a_job_too_big_for_its_level_gets_the_next(tmp_path: Path) -> None:
    """Rack, then block, then none; beyond the cluster it is refused."""
    cluster = Cluster(regular(blocks=2, racks=2, hosts=2), np.full(8, 8, dtype=np.int64))
    wish = [Job(i, 0, 1, pods, 8, level=1, required=True) for i, pods in enumerate((2, 3, 5))]
    made, raised = fitted(wish, cluster)
    assert [(job.level, job.required) for job in made] == [(1, True), (0, True), (None, False)]
    assert raised == 2
    with pytest.raises(TraceError, match="job 9"):
        fitted([Job(9, 0, 1, 9, 8)], cluster)


def test_parts_of_a_trace_are_consecutive_and_scaled_to_the_load() -> None:
    """Every part starts at zero; more parts than jobs is an error."""
    jobs = [Job(i, 10.0 * i, 5, 1, 2) for i in range(6)]
    second = part(jobs, 1, 2)
    assert [(job.number, job.submit) for job in second] == [(3, 0), (4, 10), (5, 20)]
    assert scaled(second, load=0.5, total_gpus=4)[-1].submit == pytest.approx(3 * 5 * 2 / (0.5 * 4))
    with pytest.raises(TraceError, match="cannot be split"):
        part(jobs, 0, 7)
