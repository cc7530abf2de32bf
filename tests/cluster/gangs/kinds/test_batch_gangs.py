"""Spark applications, Volcano Jobs (both imitated), AppWrappers and plain pods as gangs."""

from __future__ import annotations

import pytest

from engine.api import names
from local.kubelets import complete_pod
from tests.support.eventually import always, eventually
from tests.support.gangs import require
from tests.support.kind_cases import CASES, app_wrapper, job, plain_pods, spark, volcano
from tests.support.kind_gangs import Gangs

SPARK = pytest.mark.controllers("spark")
VOLCANO = pytest.mark.controllers("volcano")
WRAPPER = pytest.mark.controllers("appwrapper")


@SPARK
def test_executors_have_their_places_before_the_driver_makes_them(gangs: Gangs) -> None:
    """The driver is released alone; its executors' slots are kept from another gang."""
    gangs.fleet.grid("1x1x4")
    CASES["sparkapplication"].submit(gangs)
    gangs.planned("SparkApplication", "train")
    CASES["job"].submit(gangs, "other", require("host"), parallelism=1, completions=1)
    assert sorted(name for name, _ in gangs.all_run(4)) == ["driver", "executor", "executor", "executor"]
    gangs.waits("Job", "other")


@SPARK
def test_an_executor_that_is_lost_is_replaced_under_another_number(gangs: Gangs) -> None:
    """Numbers are no ranks: the next executor takes the free slot."""
    gangs.fleet.grid("1x1x4")
    CASES["sparkapplication"].submit(gangs)
    before = sorted(gangs.all_run(4).values())
    lost = next(pod for pod in gangs.members() if pod["metadata"]["labels"]["spark-role"] == "executor")
    gangs.remove(lost)
    eventually(lambda: "4" in {pod["metadata"]["labels"].get("spark-exec-id") for pod in gangs.members()}, message="4")
    assert sorted(gangs.all_run(4).values()) == before


@SPARK
def test_the_end_of_the_driver_gives_the_room_back(gangs: Gangs) -> None:
    """Its executors go with it, and the next gang runs."""
    gangs.fleet.grid("1x1x4")
    CASES["sparkapplication"].submit(gangs)
    gangs.all_run(4)
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    complete_pod(gangs.client, gangs.namespace, "train-driver")
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)


@SPARK
def test_executors_may_ask_alone(gangs: Gangs) -> None:
    """Only the executors' template asks: they share a rack, wherever the driver runs."""
    gangs.fleet.grid("1x2x3")
    spec = spark(gangs)
    spec["executor"]["template"]["metadata"] = {"annotations": require("rack")}
    gangs.create("SparkApplication", "train", spec)
    eventually(
        lambda: [pod["status"].get("phase") for pod in gangs.pods().values()] == ["Running"] * 4, message=gangs.describe
    )
    assert len(gangs.racks({key: host for key, host in gangs.hosts().items() if key[0] == "executor"})) == 1


@VOLCANO
def test_a_job_of_volcanos_own_scheduler_is_left_alone(gangs: Gangs) -> None:
    """schedulerName volcano: no gate, no Placement."""
    gangs.fleet.grid("1x1x4")
    gangs.create("VolcanoJob", "train", volcano(gangs, schedulerName="volcano"), annotations=require("rack"))
    eventually(lambda: len(gangs.pods()) == 4, message="its pods exist")
    assert not any("schedulingGates" in pod["spec"] for pod in gangs.pods().values())
    assert gangs.placements() == []


@VOLCANO
def test_a_task_that_depends_on_another_has_its_places(gangs: Gangs) -> None:
    """dependsOn: the workers come when the master runs; their slots are kept from another gang."""
    gangs.fleet.grid("1x1x4")
    spec = volcano(gangs)
    spec["tasks"][1]["dependsOn"] = {"name": ["master"]}
    gangs.create("VolcanoJob", "train", spec, annotations=require("rack"))
    gangs.planned("VolcanoJob", "train")
    CASES["job"].submit(gangs, "other", require("host"), parallelism=1, completions=1)
    assert sorted(name for name, _ in gangs.all_run(4)) == ["master", "worker", "worker", "worker"]
    gangs.waits("Job", "other")


@VOLCANO
def test_a_deleted_pod_goes_back_to_its_slot(gangs: Gangs) -> None:
    """Volcano makes it again under the same name and index."""
    gangs.fleet.grid("1x1x4")
    CASES["volcano-job"].submit(gangs)
    before = gangs.all_run(4)
    gone = gangs.member(("worker", "1"))
    gangs.remove(gone)
    eventually(
        lambda: gangs.member(("worker", "1"))["metadata"]["uid"] != gone["metadata"]["uid"], message="it is back"
    )
    assert gangs.all_run(4) == before


@VOLCANO
def test_a_job_that_starts_again_is_in_one_rack(gangs: Gangs) -> None:
    """Policy PodEvicted -> RestartJob: all pods are made again."""
    gangs.fleet.grid("1x2x4")
    CASES["volcano-job"].submit(gangs, policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    gangs.all_run(4)
    before = {pod["metadata"]["uid"] for pod in gangs.members()}
    gangs.remove(gangs.member(("worker", "1")))
    eventually(
        lambda: before.isdisjoint(found := {pod["metadata"]["uid"] for pod in gangs.members()}) and len(found) == 4,
        message=gangs.describe,
    )
    assert len(gangs.racks(gangs.all_run(4))) == 1


@WRAPPER
def test_all_components_share_the_domain_of_the_wrapper(gangs: Gangs) -> None:
    """Two Jobs in one rack, one Placement; the Jobs are not held by themselves."""
    gangs.fleet.grid("1x2x4")
    inner = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job(gangs, pods=2)}
        for name in ("left", "right")
    ]
    gangs.create("AppWrapper", "train", app_wrapper(gangs, *inner), annotations=require("rack"))
    hosts = gangs.all_run(4)
    assert len(gangs.racks(hosts)) == 1
    assert {name for name, _ in hosts} == {"0-main", "1-main"}
    assert len(gangs.placements()) == 1
    assert not any(names.HELD_BY in one["metadata"].get("annotations", {}) for one in gangs.items("Job"))


@WRAPPER
@pytest.mark.controllers("jobset")
def test_a_wrapped_jobset_is_part_of_the_wrapper(gangs: Gangs) -> None:
    """Pod -> Job -> JobSet -> AppWrapper: one gang, not three."""
    gangs.fleet.grid("1x2x4")
    spec = CASES["jobset"].spec(gangs)
    inner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "inner"}, "spec": spec}
    gangs.create("AppWrapper", "train", app_wrapper(gangs, inner), annotations=require("rack"))
    assert len(gangs.racks(gangs.all_run(4))) == 1
    assert {placement["spec"]["workload"]["kind"] for placement in gangs.placements()} == {"AppWrapper"}


def test_plain_pods_of_one_name_and_size_are_a_gang(gangs: Gangs) -> None:
    """The fourth of four pods lets all of them run, in one rack."""
    gangs.fleet.grid("1x2x4")
    plain_pods(gangs, count=3)
    always(lambda: not gangs.hosts(), seconds=1)
    late = gangs.template(
        restartPolicy="Never", annotations={**require("rack"), names.GANG_NAME: "train", names.GANG_SIZE: "4"}
    )
    gangs.client.create(gangs.path("Pod"), {"metadata": {"name": "late", **late["metadata"]}, "spec": late["spec"]})
    assert len(gangs.racks(gangs.all_run(4))) == 1
    (placement,) = gangs.placements()
    assert {owner["kind"] for owner in placement["metadata"]["ownerReferences"]} == {"Pod"}


def test_plain_pods_wait_for_room_together(gangs: Gangs) -> None:
    """Room for three of four: none is bound; a fourth host lets all of them run."""
    gangs.fleet.grid("1x1x3")
    plain_pods(gangs)
    always(lambda: not gangs.hosts(), seconds=1)
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    gangs.all_run(4)


def test_the_placement_of_plain_pods_goes_with_them(gangs: Gangs) -> None:
    """When all are deleted, their room is free and nothing is left of the gang."""
    gangs.fleet.grid("1x1x4")
    plain_pods(gangs)
    gangs.all_run(4)
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    for pod in gangs.members():
        gangs.remove(pod)
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)
    eventually(lambda: len(gangs.placements()) == 1, message=gangs.describe)


def test_two_gangs_of_plain_pods_do_not_mix(gangs: Gangs) -> None:
    """Another name is another gang: each in a rack."""
    gangs.fleet.grid("1x2x4")
    plain_pods(gangs, "left")
    plain_pods(gangs, "right")
    gangs.all_run(8)
    for name in ("left", "right"):
        mine = [pod for pod in gangs.members() if pod["metadata"]["name"].startswith(name)]
        assert {pod["metadata"]["annotations"]["topogate.dev/rank"] for pod in mine} == {"0", "1", "2", "3"}
        assert len({gangs.fleet.rack_of(pod["spec"]["nodeName"]) for pod in mine}) == 1
