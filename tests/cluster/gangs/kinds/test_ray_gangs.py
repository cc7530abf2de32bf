"""Ray's kinds as gangs: a head with groups, replicas of several hosts, growth, the submitter beside them."""

from __future__ import annotations

import pytest

from engine.api import names
from tests.support.eventually import eventually
from tests.support.gangs import require
from tests.support.kind_cases import CASES, ray, ray_job
from tests.support.kind_gangs import Gangs

pytestmark = pytest.mark.controllers("kuberay")


def test_head_and_groups_with_different_needs_share_a_block(gangs: Gangs) -> None:
    """A head without GPUs and two groups: all in one block, each group in a rack by its own template."""
    gangs.fleet.grid("2x2x2")
    spec = ray(gangs, workers=2)
    spec["headGroupSpec"]["template"] = gangs.template(gpus=0)
    template = gangs.template(annotations=require("rack"))
    spec["workerGroupSpecs"] = [
        {**spec["workerGroupSpecs"][0], "groupName": name, "template": template} for name in ("left", "right")
    ]
    gangs.create("RayCluster", "train", spec, annotations=require("block"))
    hosts = gangs.all_run(5)
    assert len({block for block, _ in gangs.racks(hosts)}) == 1
    for group in ("left", "right"):
        assert len(gangs.racks({key: host for key, host in hosts.items() if key[0] == group})) == 1


def test_replicas_of_several_hosts_are_ranked_and_can_be_slices(gangs: Gangs) -> None:
    """numOfHosts 2: replica r, host h is rank 2r+h; two ranks a slice are the replicas, each in one rack."""
    gangs.fleet.grid("1x3x2")
    spec = ray(gangs, workers=2, numOfHosts=2)
    spec["headGroupSpec"]["template"] = gangs.template(gpus=0)
    asked = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}
    spec["workerGroupSpecs"][0]["template"] = gangs.template(annotations=asked)
    gangs.create("RayCluster", "train", spec)
    eventually(
        lambda: [pod["status"].get("phase") for pod in gangs.pods().values()] == ["Running"] * 5, message=gangs.describe
    )
    hosts = {int(rank): host for (name, rank), host in gangs.hosts().items() if name == "gpu"}
    assert sorted(hosts) == [0, 1, 2, 3]
    for replica in (0, 2):
        assert gangs.fleet.rack_of(hosts[replica]) == gangs.fleet.rack_of(hosts[replica + 1])


def test_a_group_grows_beside_the_cluster_and_shrinks(gangs: Gangs) -> None:
    """More replicas come to the same rack, the others stay; fewer give the room back."""
    gangs.fleet.grid("1x2x4")
    gangs.create("RayCluster", "train", ray(gangs, workers=1), annotations=require("rack"))
    before = gangs.all_run(2)
    gangs.set("RayCluster", "train", {"/spec/workerGroupSpecs/0/replicas": 3})
    hosts = gangs.all_run(4)
    assert set(before.values()) <= set(hosts.values())
    assert len(gangs.racks(hosts)) == 1
    gangs.set("RayCluster", "train", {"/spec/workerGroupSpecs/0/replicas": 1})
    eventually(lambda: len(gangs.members()) == 2, message=gangs.describe)
    CASES["job"].submit(gangs, "other", require("block"), parallelism=6, completions=6)
    gangs.all_run(8)


def test_a_submitter_runs_beside_the_gang(gangs: Gangs) -> None:
    """The RayJob's submitter comes when the cluster runs: it is no member, has no gate and is not waited for."""
    gangs.fleet.grid("1x1x4")
    gangs.create("RayJob", "train", ray_job(gangs), annotations=require("rack"))
    gangs.all_run(4)

    def submitters() -> list[str]:
        pods = gangs.pods().values()
        return [pod["metadata"]["name"] for pod in pods if "ray.io/node-type" not in pod["metadata"]["labels"]]

    (name,) = eventually(submitters, message=gangs.describe)
    assert "schedulingGates" not in gangs.get("Pod", name)["spec"]


def test_a_cluster_of_a_ray_job_is_no_gang_of_its_own(gangs: Gangs) -> None:
    """One Placement, of the RayJob."""
    gangs.fleet.grid("1x1x4")
    CASES["rayjob"].submit(gangs)
    gangs.all_run(4)
    assert {placement["spec"]["workload"]["kind"] for placement in gangs.placements()} == {"RayJob"}


def test_a_ray_job_that_cannot_be_suspended_is_held_by_the_gate(gangs: Gangs) -> None:
    """Without shutdownAfterJobFinishes KubeRay refuses suspension: its pods exist and wait."""
    gangs.fleet.grid("1x1x3")
    gangs.create("RayJob", "train", ray_job(gangs, shutdownAfterJobFinishes=False), annotations=require("rack"))
    eventually(lambda: len(gangs.members()) == 4, message=gangs.describe)
    gangs.waits("RayJob", "train")
    assert gangs.hosts() == {}
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    gangs.all_run(4)


def test_a_worker_that_is_lost_comes_back_to_the_room_of_the_gang(gangs: Gangs) -> None:
    """Its pods carry no rank: the new one takes the slot that is free."""
    gangs.fleet.grid("1x1x4")
    CASES["raycluster"].submit(gangs)
    before = sorted(gangs.all_run(4).values())
    gone = next(pod for pod in gangs.members() if pod["metadata"]["labels"]["ray.io/node-type"] == "worker")
    gangs.remove(gone)
    eventually(
        lambda: gone["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in gangs.members()}, message="it goes"
    )
    assert sorted(gangs.all_run(4).values()) == before


def test_two_clusters_of_a_service_are_two_gangs(gangs: Gangs) -> None:
    """As in an upgrade, which here nothing could serve: the second is made as KubeRay makes it.

    Each goes into one rack; the one that goes gives its room back, and no more than that.
    """
    gangs.fleet.grid("1x2x4")
    CASES["rayservice"].submit(gangs)
    first = gangs.all_run(4)
    (old,) = gangs.items("RayCluster")
    kept = {key: old["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": old["spec"]}
    gangs.client.create(gangs.path("RayCluster"), {**body, "metadata": {**kept, "name": "train-next"}})

    def run() -> bool:
        members = gangs.members()
        return len(members) == 8 and all(pod["status"].get("phase") == "Running" for pod in members)

    eventually(run, message=gangs.describe)
    hosts = {pod["spec"]["nodeName"] for pod in gangs.members()}
    assert {gangs.fleet.rack_of(host) for host in hosts - set(first.values())} & gangs.racks(first) == set()
    clusters = {one["spec"]["workload"]["kind"]: one["spec"]["workload"]["name"] for one in gangs.placements()}
    assert set(clusters) == {"RayCluster"}
    assert len(gangs.placements()) == 2
    gangs.client.delete(gangs.path("RayCluster", "train-next"))
    eventually(lambda: len(gangs.placements()) == 1, message="its Placement goes with it")
    (left,) = gangs.placements()
    assert left["spec"]["workload"]["name"] == old["metadata"]["name"]
    assert set(gangs.all_run(4).values()) == set(first.values())
