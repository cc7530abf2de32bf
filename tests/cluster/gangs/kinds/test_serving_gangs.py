"""LeaderWorkerSets, StatefulSets and Deployments as gangs: held by the gate, one gang a group, growth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.api import names
from local.nodes import RACK
from tests.support.eventually import always, eventually
from tests.support.gangs import require
from tests.support.kind_cases import CASES, apps, leader_worker_set
from tests.support.kind_gangs import Gangs, seat, told_right
from tests.support.raw_pods import occupy

LWS = "leaderworkerset.sigs.k8s.io"
GROUP = f"{LWS}/group-index"
ORDINALS = {"serviceName": "serve"}


def hosts_of_group(gangs: Gangs, group: str) -> dict[tuple[str, str], str]:
    """Pod set and rank -> host, of one group of a LeaderWorkerSet."""
    members = [pod for pod in gangs.members() if pod["metadata"]["labels"].get(GROUP) == group]
    return {seat(pod): pod["spec"]["nodeName"] for pod in members if pod["spec"].get("nodeName")}


@pytest.mark.controllers("lws")
def test_each_group_is_a_gang_of_its_own(gangs: Gangs) -> None:
    """Two groups of four in racks of four: each has a rack and a Placement."""
    gangs.fleet.grid("1x2x4")
    gangs.create("LeaderWorkerSet", "serve", leader_worker_set(gangs, replicas=2), annotations=require("rack"))
    gangs.all_run(8)
    assert [len(gangs.racks(hosts_of_group(gangs, group))) for group in ("0", "1")] == [1, 1]
    assert {placement["spec"].get("group") for placement in gangs.placements()} == {"0", "1"}
    assert told_right(gangs) == []


@pytest.mark.controllers("lws")
def test_a_group_that_fits_does_not_wait_for_one_that_does_not(gangs: Gangs) -> None:
    """Room for one group: it runs whole, and of the other one no pod is bound until there is room."""
    gangs.fleet.grid("1x1x4")
    gangs.create("LeaderWorkerSet", "serve", leader_worker_set(gangs, replicas=2, size=3), annotations=require("rack"))
    eventually(lambda: len(gangs.members()) == 6, message="all pods exist")
    eventually(lambda: len(gangs.hosts()) == 3, message=gangs.describe)
    always(lambda: len(gangs.hosts()) == 3, seconds=0.5)
    assert sorted(len(hosts_of_group(gangs, group)) for group in ("0", "1")) == [0, 3]
    for number in range(3):
        gangs.fleet.host(f"host-01{number}", block="block-0", rack="rack-07")
    gangs.all_run(6)


@pytest.mark.controllers("lws")
def test_a_rolling_update_with_a_surge_is_finished(gangs: Gangs) -> None:
    """The group that LeaderWorkerSet adds for the update is a gang too; without it none of the others is replaced."""
    gangs.fleet.grid("1x3x2")
    spec = leader_worker_set(gangs, replicas=2, size=2)
    spec["rolloutStrategy"] = {
        "type": "RollingUpdate",
        "rollingUpdateConfiguration": {"maxUnavailable": 0, "maxSurge": 1},
    }
    gangs.create("LeaderWorkerSet", "serve", spec, annotations=require("rack"))
    gangs.all_run(4)
    workers = spec["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    containers = [{**one, "env": [{"name": "RELEASE", "value": "2"}]} for one in workers["containers"]]
    template = {"workerTemplate": {"spec": {"containers": containers}}}
    gangs.merge("LeaderWorkerSet", "serve", {"leaderWorkerTemplate": template})

    def updated() -> bool:
        pods = gangs.members()
        new = [pod for pod in pods if pod["spec"]["containers"][0].get("env")]
        return len(pods) == len(new) == 4 and all(pod["spec"].get("nodeName") for pod in pods)

    eventually(updated, timeout=120, message=gangs.describe)


@pytest.mark.controllers("lws")
def test_a_group_that_is_scaled_away_loses_its_slots_and_gets_new_ones(gangs: Gangs) -> None:
    """At once, not only when its Placement is deleted: others may have them."""
    gangs.fleet.grid("1x1x4")
    gangs.create("LeaderWorkerSet", "serve", leader_worker_set(gangs, replicas=2, size=2), annotations=require("rack"))
    gangs.all_run(4)
    for replicas in (1, 2):
        gangs.client.patch(gangs.path("LeaderWorkerSet", "serve"), {"spec": {"replicas": replicas}})
        eventually(
            lambda wanted=replicas: sum("assignment" in one["spec"] for one in gangs.placements()) == wanted,
            timeout=20,
            message=gangs.describe,
        )
    gangs.all_run(4)


@pytest.mark.controllers("lws")
def test_groups_that_are_spread_have_racks_of_their_own(gangs: Gangs) -> None:
    """Three groups over four racks with room for two each; of two more one gets the last rack, and one waits."""
    gangs.fleet.grid("1x4x4")
    asked = {**require("rack"), names.SPREAD: "rack"}
    gangs.create("LeaderWorkerSet", "serve", leader_worker_set(gangs, replicas=3, size=2), annotations=asked)
    gangs.all_run(6)
    before = {group: hosts_of_group(gangs, group) for group in "012"}
    assert len(set().union(*(gangs.racks(hosts) for hosts in before.values()))) == 3
    assert [len(gangs.racks(hosts)) for hosts in before.values()] == [1, 1, 1]
    gangs.client.patch(gangs.path("LeaderWorkerSet", "serve"), {"spec": {"replicas": 5}})

    def bound() -> int:
        return sum(len(hosts_of_group(gangs, group)) for group in "01234")

    eventually(lambda: bound() == 8, message=gangs.describe)

    def told() -> list[str]:
        statuses = [one.get("status", {}) for one in gangs.placements()]
        return [one["message"] for one in statuses if one.get("reason") == "SpreadDomains"]

    eventually(lambda: [one for one in told() if "4 with such gangs" in one], message=gangs.describe)
    assert len(told()) == 1
    always(lambda: bound() == 8, seconds=1.0)
    assert {group: hosts_of_group(gangs, group) for group in "012"} == before
    for number in range(2):
        gangs.fleet.host(f"host-09{number}", block="block-0", rack="rack-09")
    gangs.all_run(10)


@pytest.mark.controllers("lws")
def test_leader_and_workers_share_a_domain(gangs: Gangs) -> None:
    """A leader template of its own without GPUs; both pod sets in one rack by the annotation on the LeaderWorkerSet."""
    gangs.fleet.grid("1x2x4")
    spec = leader_worker_set(gangs, size=4, leaderTemplate=gangs.template(gpus=0))
    gangs.create("LeaderWorkerSet", "serve", spec, annotations=require("rack"))
    hosts = gangs.all_run(4)
    assert sorted(hosts) == [("leader", "0"), ("worker", "0"), ("worker", "1"), ("worker", "2")]
    assert len(gangs.racks(hosts)) == 1


@pytest.mark.controllers("lws")
def test_a_slice_without_a_size_is_a_whole_group(gangs: Gangs) -> None:
    """Racks of two hosts hold no group of three: both wait until each has a rack of its own."""
    gangs.fleet.grid("1x2x2")
    spec = leader_worker_set(gangs, replicas=2, size=3, leaderTemplate=gangs.template())
    gangs.create("LeaderWorkerSet", "serve", spec, annotations={names.SLICE_TOPOLOGY: "rack"})
    eventually(lambda: len(gangs.members()) == 6, message="all pods exist")
    gangs.waits("LeaderWorkerSet", "serve")
    assert gangs.hosts() == {}
    for number in range(2):
        gangs.fleet.host(f"host-01{number}", block="block-0", rack=f"rack-0{number}")
    gangs.all_run(6)
    assert [len(gangs.racks(hosts_of_group(gangs, group))) for group in ("0", "1")] == [1, 1]


@pytest.mark.controllers("lws")
def test_pod_sets_of_one_colocation_share_a_domain(gangs: Gangs) -> None:
    """The templates ask, each for a rack, with the same colocate: one rack for both."""
    gangs.fleet.grid("1x2x4")
    asked = {**require("rack"), names.COLOCATE: "together"}
    spec = leader_worker_set(gangs, size=3, leaderTemplate=gangs.template(annotations=asked))
    spec["leaderWorkerTemplate"]["workerTemplate"] = gangs.template(annotations=asked)
    gangs.create("LeaderWorkerSet", "serve", spec)
    assert len(gangs.racks(gangs.all_run(3))) == 1


@pytest.mark.controllers("lws")
def test_workers_that_come_after_their_leader_runs_have_their_places(gangs: Gangs) -> None:
    """LeaderReady: the leader is released alone, its workers' slots are kept from another gang."""
    gangs.fleet.grid("1x1x4")
    gangs.create(
        "LeaderWorkerSet",
        "serve",
        {**leader_worker_set(gangs), "startupPolicy": "LeaderReady"},
        annotations=require("rack"),
    )
    gangs.planned("LeaderWorkerSet", "serve")
    CASES["job"].submit(gangs, "other")
    assert {name for name, _ in gangs.all_run(4)} == {"worker"}
    gangs.waits("Job", "other")


@pytest.mark.controllers("lws")
def test_a_group_that_starts_again_is_in_one_rack(gangs: Gangs) -> None:
    """A worker is deleted, LWS makes the whole group again; the other group stays where it is."""
    gangs.fleet.grid("1x2x4")
    gangs.create("LeaderWorkerSet", "serve", leader_worker_set(gangs, replicas=2), annotations=require("rack"))
    gangs.all_run(8)
    stays, again = hosts_of_group(gangs, "1"), {pod["metadata"]["uid"] for pod in gangs.members()}
    lost = next(
        pod
        for pod in gangs.members()
        if pod["metadata"]["labels"][GROUP] == "0" and pod["metadata"]["labels"][f"{LWS}/worker-index"] == "2"
    )
    # LWS starts a group again for a pod that it sees being deleted: one that is gone at once may be replaced alone.
    with gangs.going(lost):
        eventually(
            lambda: "deletionTimestamp" in gangs.client.get(gangs.path("Pod", "serve-0"))["metadata"],
            message=lambda: f"the leader of the group goes\n{gangs.describe()}",
        )
    eventually(
        lambda: len({pod["metadata"]["uid"] for pod in gangs.members()} - again) == 4,
        message=lambda: f"the group is made again\n{gangs.describe()}",
    )
    gangs.all_run(8)
    assert hosts_of_group(gangs, "1") == stays
    assert len(gangs.racks(hosts_of_group(gangs, "0"))) == 1


@pytest.mark.controllers("lws")
def test_a_group_that_starts_again_is_not_let_go_into_room_that_others_took(gangs: Gangs) -> None:
    """A worker of it would wait there for ever, as replacing it costs the group: its rank gets another host at once."""
    gangs.fleet.grid("1x2x5")
    gangs.create("LeaderWorkerSet", "serve", leader_worker_set(gangs), annotations=require("rack"))
    taken = gangs.all_run(4)["worker", "2"]
    occupy(gangs.client, gangs.namespace, taken, gpus=1)
    lost = gangs.member(("worker", "2"))
    gangs.remove(lost)
    # LWS makes the whole group again, or that pod alone where it came back before LWS looked.
    eventually(
        lambda: gangs.member(("worker", "2"))["metadata"]["uid"] != lost["metadata"]["uid"], message=gangs.describe
    )
    eventually(lambda: taken not in gangs.all_run(4).values(), message=gangs.describe)
    assert len(gangs.racks(gangs.all_run(4))) == 1
    assert "SchedulerRefused" not in {event["reason"] for event in gangs.events("serve")}


@pytest.mark.controllers("lws")
def test_a_worker_that_restarts_alone_keeps_its_slot(gangs: Gangs) -> None:
    """restartPolicy None: the deleted worker comes back to its host, though another gang waits for just one."""
    gangs.fleet.grid("1x1x4")
    spec = leader_worker_set(gangs, restartPolicy="None")
    gangs.create("LeaderWorkerSet", "serve", spec, annotations=require("rack"))
    before = gangs.all_run(4)
    gone = gangs.member(("worker", "2"))
    gangs.remove(gone)
    eventually(
        lambda: gangs.member(("worker", "2"))["metadata"]["uid"] != gone["metadata"]["uid"], message="it is back"
    )
    assert gangs.all_run(4) == before


@pytest.mark.controllers("lws")
def test_more_groups_are_placed_and_fewer_give_their_room_back(gangs: Gangs) -> None:
    """Scaled from one group to two: the first stays; scaled back: the second's room is free."""
    gangs.fleet.grid("1x2x4")
    gangs.create("LeaderWorkerSet", "serve", leader_worker_set(gangs), annotations=require("rack"))
    first = gangs.all_run(4)
    gangs.merge("LeaderWorkerSet", "serve", {"replicas": 2})
    gangs.all_run(8)
    assert hosts_of_group(gangs, "0") == first
    assert len(gangs.racks(hosts_of_group(gangs, "1"))) == 1
    CASES["job"].submit(gangs, "other")
    gangs.waits("Job", "other")
    gangs.merge("LeaderWorkerSet", "serve", {"replicas": 1})
    eventually(lambda: gangs.phase("Job", "other") == "Running", message=gangs.describe)
    assert hosts_of_group(gangs, "0") == first


def test_a_stateful_set_that_starts_one_by_one_does_not_lock_itself(gangs: Gangs) -> None:
    """OrderedReady: pods are released as they come; the slots of those to come are kept from another gang."""
    gangs.fleet.grid("1x2x4")
    gangs.create("StatefulSet", "serve", apps(gangs, **ORDINALS), annotations=require("rack"))
    gangs.planned("StatefulSet", "serve")
    CASES["job"].submit(gangs, "other", require("block"), parallelism=5, completions=5)
    eventually(lambda: len(running(gangs)) == 4, message=gangs.describe)
    assert len(gangs.racks(running(gangs))) == 1
    gangs.waits("Job", "other")


def running(gangs: Gangs) -> dict[tuple[str, str], str]:
    """The hosts of the running pods of the StatefulSet `serve`."""
    members = [pod for pod in gangs.members() if pod["metadata"]["name"].startswith("serve-")]
    return {seat(pod): pod["spec"]["nodeName"] for pod in members if pod["status"].get("phase") == "Running"}


def test_ranks_of_a_stateful_set_begin_at_its_first_ordinal(gangs: Gangs) -> None:
    """ordinals.start 5: the pod serve-5 is rank 0."""
    order = gangs.fleet.grid("1x1x4")
    spec = apps(gangs, **ORDINALS, podManagementPolicy="Parallel", ordinals={"start": 5})
    gangs.create("StatefulSet", "serve", spec, annotations=require("rack"))
    hosts = gangs.all_run(4)
    assert [hosts["main", str(rank)] for rank in range(4)] == order
    assert gangs.member(("main", "0"))["metadata"]["name"] == "serve-5"


@pytest.fixture
def cleared(gangs: Gangs) -> Iterator[list[str]]:
    """Paths of objects without a namespace, deleted at the end."""
    paths: list[str] = []
    yield paths
    for path in paths:
        gangs.client.delete(path)


def test_a_stateful_set_goes_where_its_claim_templates_get_volumes(gangs: Gangs, cleared: list[str]) -> None:
    """The class allows the second rack, where its volumes are: the scheduler binds claims and pods there."""
    rack = f"{gangs.fleet.prefix}rack-01"
    name = f"fast-{gangs.namespace}"
    storage_class = {
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": RACK, "values": [rack]}]}],
    }
    gangs.client.create("/apis/storage.k8s.io/v1/storageclasses", storage_class)
    cleared.append(f"/apis/storage.k8s.io/v1/storageclasses/{name}")
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    terms = [{"matchExpressions": [{"key": RACK, "operator": "In", "values": [rack]}]}]
    for number in range(2):
        volume = {
            **spec,
            "capacity": {"storage": "1Gi"},
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "persistentVolumeReclaimPolicy": "Retain",
        }
        path = "/api/v1/persistentvolumes"
        gangs.client.create(path, {"metadata": {"name": f"{name}-{number}"}, "spec": volume})
        cleared.append(f"{path}/{name}-{number}")
    template = {"metadata": {"name": "data"}, "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}}}
    hosts = gangs.fleet.grid("1x2x2")  # after what the service has to know of the claim
    of_set = apps(gangs, pods=2, **ORDINALS, volumeClaimTemplates=[template])
    gangs.create("StatefulSet", "serve", of_set, annotations=require("rack"))
    gangs.planned("StatefulSet", "serve")
    eventually(lambda: set(running(gangs).values()) == set(hosts[2:]), message=gangs.describe)
    placement = gangs.placement("StatefulSet", "serve")
    assert placement is not None
    assert placement["spec"]["assignment"]["revision"] == 1  # not by trying the other rack first
    assert told_right(gangs) == []


def test_a_stateful_set_goes_where_volumes_of_its_pods_are_already(gangs: Gangs, cleared: list[str]) -> None:
    """Both claims are left from an earlier run, with volumes in the second rack."""
    rack = f"{gangs.fleet.prefix}rack-01"
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    terms = [{"matchExpressions": [{"key": RACK, "operator": "In", "values": [rack]}]}]
    template = {"metadata": {"name": "data"}, "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}}}
    for claim in ("data-serve-0", "data-serve-1"):
        name = f"{claim}-{gangs.namespace}"
        volume = {
            **spec,
            "capacity": {"storage": "1Gi"},
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": gangs.namespace, "name": claim},
        }
        gangs.client.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": volume})
        cleared.append(f"/api/v1/persistentvolumes/{name}")
        requests = {"requests": {"storage": "1Gi"}}
        body = {"metadata": {"name": claim}, "spec": {**spec, "resources": requests, "volumeName": name}}
        gangs.client.create(f"/api/v1/namespaces/{gangs.namespace}/persistentvolumeclaims", body)
    hosts = gangs.fleet.grid("1x2x2")  # after what the service has to know of the claim
    of_set = apps(gangs, pods=2, **ORDINALS, volumeClaimTemplates=[template])
    gangs.create("StatefulSet", "serve", of_set, annotations=require("rack"))
    gangs.planned("StatefulSet", "serve")
    eventually(lambda: set(running(gangs).values()) == set(hosts[2:]), message=gangs.describe)
    placement = gangs.placement("StatefulSet", "serve")
    assert placement is not None
    assert placement["spec"]["assignment"]["revision"] == 1  # not by trying the other rack first


def test_a_deleted_pod_of_a_stateful_set_goes_back_to_its_slot(gangs: Gangs) -> None:
    """Though another gang waits for one host."""
    gangs.fleet.grid("1x1x4")
    CASES["statefulset"].submit(gangs)
    before = gangs.all_run(4)
    gone = gangs.member(("main", "1"))
    gangs.remove(gone)
    eventually(lambda: gangs.member(("main", "1"))["metadata"]["uid"] != gone["metadata"]["uid"], message="it is back")
    assert gangs.all_run(4) == before


def test_a_rolling_update_goes_through_the_slots(gangs: Gangs) -> None:
    """Every pod is made again from the new template, and all stand where they stood."""
    gangs.fleet.grid("1x1x4")
    CASES["statefulset"].submit(gangs)
    before = gangs.all_run(4)
    gangs.set("StatefulSet", "train", {"/spec/template/metadata/labels/version": "2"})
    eventually(
        lambda: [pod["metadata"]["labels"].get("version") for pod in gangs.members()] == ["2"] * 4,
        message=lambda: f"all pods are new\n{gangs.describe()}",
    )
    assert gangs.all_run(4) == before


def test_a_stateful_set_grows_beside_itself_and_shrinks(gangs: Gangs) -> None:
    """From two to four: the new pods are in the same rack; back to two: the room is free for another gang."""
    gangs.fleet.grid("1x2x4")
    spec = apps(gangs, pods=2, **ORDINALS, podManagementPolicy="Parallel")
    gangs.create("StatefulSet", "serve", spec, annotations=require("rack"))
    before = gangs.all_run(2)
    gangs.merge("StatefulSet", "serve", {"replicas": 4})
    hosts = gangs.all_run(4)
    assert before.items() <= hosts.items()
    assert len(gangs.racks(hosts)) == 1
    gangs.merge("StatefulSet", "serve", {"replicas": 2})
    eventually(lambda: len(gangs.members()) == 2, message=gangs.describe)
    CASES["job"].submit(gangs, "other", require("block"), parallelism=6, completions=6)
    gangs.all_run(8)


def test_a_growth_that_does_not_fit_starts_nothing(gangs: Gangs) -> None:
    """Two more pods beside two, and room for one in the rack: the two run on, of the new ones none is bound."""
    gangs.fleet.grid("1x2x3")
    spec = apps(gangs, pods=2, **ORDINALS, podManagementPolicy="Parallel")
    gangs.create("StatefulSet", "serve", spec, annotations=require("rack"))
    before = gangs.all_run(2)
    gangs.merge("StatefulSet", "serve", {"replicas": 4})
    eventually(lambda: len(gangs.members()) == 4, message="the new pods exist")
    always(lambda: gangs.hosts() == before, seconds=1.5)


def test_pods_of_a_deployment_are_placed_one_by_one_near_each_other(gangs: Gangs) -> None:
    """Locality without a gang: three pods prefer a rack; a fourth that has no room leaves them running."""
    gangs.fleet.grid("1x1x3")
    gangs.create("Deployment", "serve", apps(gangs), annotations={"topogate.dev/prefer-topology": "rack"})
    eventually(lambda: len(gangs.members()) == 4, message="all pods exist")
    eventually(lambda: len(gangs.hosts()) == 3, message=gangs.describe)
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    gangs.all_run(4)
