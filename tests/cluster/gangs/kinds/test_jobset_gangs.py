"""JobSets as gangs: several replicated jobs, order, slices, restarts."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import names
from local.kubelets import complete_pod, fail_pod
from tests.support.eventually import always, eventually
from tests.support.gangs import require
from tests.support.kind_cases import CASES, job, jobset
from tests.support.kind_gangs import Gangs, told_right
from tests.support.workloads import Json

pytestmark = pytest.mark.controllers("jobset")
JOBSET = "jobset.sigs.k8s.io"


def replicated(
    gangs: Gangs, name: str, *, jobs: int = 1, pods: int = 1, gpus: int = 8, backoff: int = 0, **fields: Any
) -> Json:
    """A replicated job; `annotations` are those of its pod template."""
    template = gangs.template(restartPolicy="Never", gpus=gpus, annotations=fields.pop("annotations", None))
    spec = job(gangs, pods=pods, template=template, backoffLimit=backoff)
    return {"name": name, "replicas": jobs, "template": {"spec": spec}, **fields}


def submit(gangs: Gangs, *jobs: Json, asked: dict[str, str] | None = None, **spec: Any) -> None:
    gangs.create("JobSet", "train", {"replicatedJobs": list(jobs), **spec}, annotations=asked)


def at(pod_set: str, hosts: dict[tuple[str, str], str]) -> dict[int, str]:
    """Rank -> host of one pod set."""
    return {int(rank): host for (name, rank), host in hosts.items() if name == pod_set}


def test_all_replicated_jobs_share_the_domain_of_the_jobset(gangs: Gangs) -> None:
    """A driver without GPUs and two Jobs of two workers, in one rack: the annotation stands on the JobSet."""
    gangs.fleet.grid("1x3x4")
    driver, workers = replicated(gangs, "driver", gpus=0), replicated(gangs, "workers", jobs=2, pods=2)
    submit(gangs, driver, workers, asked=require("rack"))
    hosts = gangs.all_run(5)
    assert len(gangs.racks(hosts)) == 1
    assert len(set(at("workers", hosts).values())) == 4
    assert told_right(gangs) == []


def test_a_replicated_job_asks_for_itself(gangs: Gangs) -> None:
    """Only the workers' template asks: they share a rack; the driver, which fits nowhere there, runs beside it."""
    gangs.fleet.grid("1x2x2")
    driver = replicated(gangs, "driver")
    workers = replicated(gangs, "workers", jobs=2, pods=1, annotations=require("rack"))
    submit(gangs, driver, workers)
    eventually(
        lambda: [pod["status"]["phase"] for pod in gangs.pods().values()] == ["Running"] * 3,
        message=gangs.describe,
    )
    hosts = {name: host for name, host in gangs.hosts().items() if name[0] == "workers"}
    assert len(hosts) == 2
    assert len(gangs.racks(hosts)) == 1


def test_the_whole_and_a_part_may_both_ask(gangs: Gangs) -> None:
    """The JobSet in one block, the workers of it in one rack: the other job's pods are in the block's other rack."""
    gangs.fleet.grid("2x2x2")
    left = replicated(gangs, "left", pods=2, annotations=require("rack"))
    right = replicated(gangs, "right", pods=2, annotations=require("rack"))
    submit(gangs, left, right, asked=require("block"))
    hosts = gangs.all_run(4)
    racks = [gangs.racks({key: host for key, host in hosts.items() if key[0] == name}) for name in ("left", "right")]
    assert [len(found) for found in racks] == [1, 1]
    assert len({block for block, _ in racks[0] | racks[1]}) == 1


def test_one_domain_for_each_job_of_a_replicated_job(gangs: Gangs) -> None:
    """Slices without a size are the Jobs: each in a rack of its own choice."""
    gangs.fleet.grid("1x2x3")
    submit(gangs, replicated(gangs, "workers", jobs=2, pods=3), asked={names.SLICE_TOPOLOGY: "rack"})
    hosts = at("workers", gangs.all_run(6))
    for ranks in (range(3), range(3, 6)):
        assert len({gangs.fleet.rack_of(hosts[rank]) for rank in ranks}) == 1


def test_jobs_that_start_in_order_have_their_places_from_the_start(gangs: Gangs) -> None:
    """InOrder: the second job's pods come when the first runs, and have their slots though another gang wants them."""
    gangs.fleet.grid("1x1x4")
    first, second = replicated(gangs, "first", pods=2), replicated(gangs, "second", pods=2)
    order = {"startupPolicyOrder": "InOrder"}
    submit(gangs, first, second, asked=require("rack"), startupPolicy=order)
    gangs.planned("JobSet", "train")
    CASES["job"].submit(gangs, "other")
    hosts = gangs.all_run(4)
    assert {name for name, _ in hosts} == {"first", "second"}
    gangs.waits("Job", "other")


def test_a_job_that_depends_on_the_end_of_another_gets_its_place(gangs: Gangs) -> None:
    """dependsOn Complete: the slots of both are kept; the second job starts in its own when the first has ended."""
    gangs.fleet.grid("1x1x4")
    second = replicated(gangs, "second", pods=2, dependsOn=[{"name": "first", "status": "Complete"}])
    submit(gangs, replicated(gangs, "first", pods=2), second, asked=require("rack"))
    before = gangs.all_run(2)
    assert {name for name, _ in before} == {"first"}
    gangs.complete()
    eventually(lambda: {name for name, _ in gangs.hosts()} == {"second"}, message=gangs.describe)
    after = gangs.all_run(2)
    assert set(after.values()).isdisjoint(before.values())


def test_a_full_restart_keeps_one_rack(gangs: Gangs) -> None:
    """failurePolicy: a pod fails, all Jobs are made again, and all pods run in one rack as a whole."""
    gangs.fleet.grid("1x2x4")
    submit(
        gangs,
        replicated(gangs, "workers", jobs=2, pods=2),
        asked=require("rack"),
        failurePolicy={"maxRestarts": 2},
    )
    gangs.all_run(4)
    fail_pod(gangs.client, gangs.namespace, gangs.members()[0]["metadata"]["name"])
    attempt = f"{JOBSET}/restart-attempt"
    eventually(
        lambda: [pod["metadata"]["labels"][attempt] for pod in gangs.members()] == ["1"] * 4,
        message=lambda: f"all pods are those of the next attempt\n{gangs.describe()}",
    )
    assert len(gangs.racks(gangs.all_run(4))) == 1
    assert told_right(gangs) == []


def test_a_single_pod_that_failed_goes_back_to_its_slot(gangs: Gangs) -> None:
    """Its Job makes it again under the same index."""
    gangs.fleet.grid("1x2x4")
    submit(gangs, replicated(gangs, "workers", jobs=2, pods=2, backoff=4), asked=require("rack"))
    before = gangs.all_run(4)
    failed = gangs.member(("workers", "3"))["metadata"]["name"]
    fail_pod(gangs.client, gangs.namespace, failed)
    eventually(lambda: failed not in {pod["metadata"]["name"] for pod in gangs.members()}, message="it has failed")
    assert gangs.all_run(4) == before


def test_success_gives_the_room_back(gangs: Gangs) -> None:
    """When all pods have ended well the next gang runs, though the JobSet still stands there."""
    gangs.fleet.grid("1x1x4")
    CASES["jobset"].submit(gangs)
    gangs.all_run(4)
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    gangs.complete()
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)
    eventually(lambda: gangs.phase("JobSet", "train") == "Finished", message="its Placement says so")


def test_a_replicated_job_that_has_completed_gives_its_slots_back(gangs: Gangs) -> None:
    """The others run on, nothing of the gang is missing, and another gang takes the host that is free."""
    gangs.fleet.grid("1x1x3")
    submit(gangs, replicated(gangs, "prepare"), replicated(gangs, "workers", pods=2), asked=require("rack"))
    hosts = gangs.all_run(3)
    gangs.create("Job", "other", job(gangs, pods=1), annotations=require("rack"))
    gangs.waits("Job", "other")
    complete_pod(gangs.client, gangs.namespace, gangs.member(("prepare", "0"))["metadata"]["name"])
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)
    (other,) = (
        pod for pod in gangs.members() if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == "other"
    )
    assert other["spec"]["nodeName"] == hosts["prepare", "0"]
    always(lambda: gangs.phase("JobSet", "train") == "Running", seconds=1.0)


def test_a_restart_runs_a_completed_job_again(gangs: Gangs) -> None:
    """failurePolicy: its slot was free, and is its own again."""
    gangs.fleet.grid("1x1x3")
    both = [replicated(gangs, "prepare"), replicated(gangs, "workers", pods=2)]
    submit(gangs, *both, asked=require("rack"), failurePolicy={"maxRestarts": 1})
    gangs.all_run(3)
    complete_pod(gangs.client, gangs.namespace, gangs.member(("prepare", "0"))["metadata"]["name"])
    eventually(lambda: len(gangs.members()) == 2, message=gangs.describe)
    fail_pod(gangs.client, gangs.namespace, gangs.member(("workers", "0"))["metadata"]["name"])
    attempt = f"{JOBSET}/restart-attempt"
    eventually(
        lambda: [pod["metadata"]["labels"][attempt] for pod in gangs.members()] == ["1"] * 3,
        message=lambda: f"all pods are those of the next attempt\n{gangs.describe()}",
    )
    gangs.all_run(3)
    eventually(lambda: gangs.phase("JobSet", "train") == "Running", message=gangs.describe)
    assert told_right(gangs) == []


def test_replicated_jobs_that_run_one_after_the_other_are_a_running_gang(gangs: Gangs) -> None:
    """dependsOn: the workers start when the first Job has completed; from then on the gang runs."""
    gangs.fleet.grid("1x1x3")
    after = [{"name": "prepare", "status": "Complete"}]
    workers = replicated(gangs, "workers", pods=2, dependsOn=after)
    submit(gangs, replicated(gangs, "prepare"), workers, asked=require("rack"))
    eventually(lambda: len(gangs.hosts()) == 1, message=gangs.describe)
    eventually(lambda: gangs.phase("JobSet", "train") == "Placed", message=gangs.describe)
    complete_pod(gangs.client, gangs.namespace, gangs.member(("prepare", "0"))["metadata"]["name"])
    eventually(lambda: gangs.phase("JobSet", "train") == "Running", message=gangs.describe)
    assert len(at("workers", gangs.hosts())) == 2


def test_a_pod_that_completes_before_its_job_is_not_missing(gangs: Gangs) -> None:
    """Its slot is kept for a restart, but the gang is whole: its Job says that the index has completed."""
    gangs.fleet.grid("1x1x2")
    submit(gangs, replicated(gangs, "workers", pods=2), asked=require("rack"))
    gangs.all_run(2)
    complete_pod(gangs.client, gangs.namespace, gangs.member(("workers", "0"))["metadata"]["name"])
    eventually(
        lambda: gangs.message("JobSet", "train") == "1 pod ready",
        message=lambda: f"one pod is enough now\n{gangs.describe()}",
    )
    assert gangs.phase("JobSet", "train") == "Running"
    gangs.create("Job", "other", job(gangs, pods=1), annotations=require("rack"))
    gangs.waits("Job", "other")


def test_every_index_of_jobs_with_more_completions_than_parallelism_runs(gangs: Gangs) -> None:
    """A later index gets the slot of a completed one."""
    gangs.fleet.grid("1x1x4")
    workers = replicated(gangs, "workers", jobs=2, pods=2)
    workers["template"]["spec"]["completions"] = 4
    submit(gangs, workers, asked=require("rack"))
    hosts = set(gangs.all_run(4).values())
    first = {pod["metadata"]["name"] for pod in gangs.members()}
    gangs.complete()
    eventually(
        lambda: len({pod["metadata"]["name"] for pod in gangs.members()} - first) == 4,
        message=lambda: f"the other indexes are created\n{gangs.describe()}",
    )
    assert set(gangs.all_run(4).values()) == hosts
    assert told_right(gangs) == []
    gangs.complete()
    eventually(lambda: gangs.phase("JobSet", "train") == "Finished", message=gangs.describe)


def test_a_success_policy_ends_it_early(gangs: Gangs) -> None:
    """successPolicy Any on the driver: its end is the JobSet's, and the workers' slots are free."""
    gangs.fleet.grid("1x1x4")
    driver, workers = replicated(gangs, "driver", gpus=0), replicated(gangs, "workers", pods=4)
    policy = {"operator": "Any", "targetReplicatedJobs": ["driver"]}
    submit(gangs, driver, workers, asked=require("rack"), successPolicy=policy)
    gangs.all_run(5)
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    complete_pod(gangs.client, gangs.namespace, gangs.member(("driver", "0"))["metadata"]["name"])
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)


def test_its_jobs_are_no_gangs_of_their_own(gangs: Gangs) -> None:
    """One Placement, that of the JobSet; a Job of it is never suspended by us while the JobSet runs."""
    gangs.fleet.grid("1x1x4")
    gangs.create("JobSet", "train", jobset(gangs), annotations=require("rack"))
    gangs.all_run(4)
    always(lambda: len(gangs.placements()) == 1, seconds=0.5)
    assert {placement["spec"]["workload"]["kind"] for placement in gangs.placements()} == {"JobSet"}
    assert not any(one["metadata"].get("annotations", {}).get(names.HELD_BY) for one in gangs.items("Job"))
