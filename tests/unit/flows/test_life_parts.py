"""A workload of several parts, one of which completes before the others: an initializer, a driver, a data generator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.placement import Assignment
from engine.api.pod import OwnerRef, Pod
from engine.gang.gang import pinned_host
from engine.gang.slots import slot_by_rank
from tests.support.cluster_records import gpu_nodes
from tests.support.families import link
from tests.support.kinds import workload_of
from tests.support.leader import POLICY, Leader
from tests.support.pod_sets import REPLICATED_JOB, member

JOB_INDEX = "jobset.sigs.k8s.io/job-index"
Json = dict[str, Any]


def _job(pods: int, completions: int | None = None) -> Json:
    container = {"name": "main", "image": "example.com/train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {
        "metadata": {"labels": {names.MANAGED: "true"}},
        "spec": {"schedulingGates": [{"name": names.GATE}], "containers": [container]},
    }
    return {"spec": {"parallelism": pods, "completions": completions or pods, "template": template}}


def job_set(
    version: int, *, suspend: bool = False, jobs: int = 1, completions: int | None = None, **succeeded: int
) -> Json:
    """A JobSet of a Job `prep` with one pod and of Jobs `workers` with two each; `succeeded`: Jobs by its status."""
    held = {names.HELD_BY: names.HELD_BY_SUSPEND} if suspend else {}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "set",
            "namespace": "default",
            "uid": "uid-set",
            "resourceVersion": str(version),
            "generation": 1 if suspend else 2,
            "annotations": {names.REQUIRE: "rack", **held},
        },
        "spec": {
            "suspend": suspend,
            "replicatedJobs": [
                {"name": "prep", "replicas": 1, "template": _job(1)},
                {"name": "workers", "replicas": jobs, "template": _job(2, completions)},
            ],
        },
        "status": {
            "replicatedJobsStatus": [
                {"name": name, "succeeded": succeeded.get(name, 0), "active": 0} for name in ("workers", "prep")
            ]
        },
    }


class Scene:
    """A JobSet that was planned and resumed, of which no pod exists yet."""

    def __init__(self, *, policy: str = "", workers: int = 1, completions: int = 2) -> None:
        self.workers, self.completions = workers, completions
        self.leader = Leader(nodes=gpu_nodes(1, 2, 8), policy=POLICY + policy)
        self.leader.has(workload_of(job_set(1, suspend=True, jobs=workers, completions=completions)))
        self.leader.settle()
        self.gang = self.leader.stores.workloads.get(("jobset.x-k8s.io", "JobSet", "default", "set"))
        assert self.gang is not None
        assert not self.gang.suspended

    def start(self, pod_set: str) -> list[Pod]:
        """All pods of a part are bound to their slots."""
        made = []
        for slot in self.assignment().plan_of(pod_set).slots:
            for first, last in slot.ranks or ():
                for rank in range(first, last + 1):
                    job, index = divmod(rank, 2) if pod_set == "workers" else (rank, 0)
                    made.append(self.made(pod_set, job, index, slot.host))
        self.leader.has(*made)
        self.leader.later(10.0)
        return made

    def made(self, pod_set: str, job: int, index: int, host: str = "") -> Pod:
        """A pod of one of the Jobs, which is there too; held without a host."""
        one = replace(member(self.gang, pod_set, None, host=host, gated=not host), name=f"set-{pod_set}-{job}-{index}")
        parent = link("batch/v1", "Job", f"set-{pod_set}-{job}", self.gang)
        if self.leader.stores.workloads.get(parent.key) is None:
            self.leader.has(parent)
        labels = {**one.spec.labels, JOB_INDEX: str(job), names.COMPLETION_INDEX: str(index)}
        owner = OwnerRef("batch/v1", "Job", parent.name, parent.uid, controller=True)
        return replace(one, spec=replace(one.spec, labels=labels), owner=owner)

    def tells(self, pod_set: str, job: int, completed: str) -> None:
        """A Job says which of its indexes have completed."""
        raw = _job(2, self.completions)
        raw["spec"]["template"]["metadata"]["labels"] |= {REPLICATED_JOB: pod_set, JOB_INDEX: str(job)}
        first, _, last = completed.partition("-")
        above = self.gang
        owner = {"apiVersion": above.api_version, "kind": above.kind, "name": above.name, "uid": above.uid}
        name = f"set-{pod_set}-{job}"
        parent = link("batch/v1", "Job", name)
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": parent.uid,
            "resourceVersion": self.leader.hands.version(),
        }
        raw |= {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata | {"ownerReferences": [owner | {"controller": True}]},
        }
        raw["spec"]["completionMode"] = "Indexed"
        raw["status"] = {"completedIndexes": completed, "succeeded": int(last or first) - int(first) + 1}
        self.leader.has(workload_of(raw))

    def complete(self, *pods: Pod, **succeeded: int) -> None:
        """Pods have succeeded: a watch shows them as deleted, and the status counts their Jobs."""
        for pod in pods:
            self.leader.stores.pods.apply("DELETED", pod)
        version = int(self.leader.hands.version())
        self.leader.has(workload_of(job_set(version, jobs=self.workers, completions=self.completions, **succeeded)))
        self.leader.later(60.0)

    def assignment(self) -> Assignment:
        placed = self.leader.placed("set")
        assert placed is not None
        assert placed.assignment is not None
        return placed.assignment

    def reserved(self) -> dict[str, int]:
        return dict(self.leader.view.capacity.reserved_by("uid-set"))


def test_the_slots_of_a_part_that_has_completed_are_free() -> None:
    """And the gang runs on, without anything missing."""
    scene = Scene()
    prep = scene.start("prep")
    scene.start("workers")
    assert scene.leader.status("set") == ("Running", "")
    scene.complete(*prep, prep=1)
    assert scene.reserved() == {}
    for _ in range(3):
        scene.leader.later(60.0)
    assert scene.leader.status("set") == ("Running", "")


def test_a_gang_with_a_completed_part_is_not_restarted() -> None:
    """Though the policy restarts those that are incomplete for long."""
    scene = Scene(policy="incomplete: restart\n")
    prep = scene.start("prep")
    scene.start("workers")
    scene.complete(*prep, prep=1)
    for _ in range(14):
        scene.leader.later(60.0)
    assert scene.leader.hands.of("suspend") == []


def test_parts_that_run_one_after_the_other_are_a_gang_that_runs() -> None:
    """As a TrainJob with initializers: the first part has completed before the second one starts."""
    scene = Scene()
    prep = scene.start("prep")
    scene.complete(*prep, prep=1)
    assert scene.reserved() == {"workers": 2}
    assert scene.leader.status("set")[0] == "Placed"
    scene.start("workers")
    assert scene.leader.status("set") == ("Running", "")


def test_of_several_jobs_as_many_slots_are_free_as_pods_have_succeeded() -> None:
    """The status does not tell which of the Jobs it was."""
    scene = Scene(workers=3)
    prep, workers = scene.start("prep"), scene.start("workers")
    scene.complete(*prep, *workers[2:4], prep=1, workers=1)
    assert scene.reserved() == {}
    assert scene.leader.status("set") == ("Running", "")


def test_a_completed_pod_is_not_repaired_when_its_node_is_removed() -> None:
    """The idle node of a completed part goes, as an autoscaler does it: no other host is taken instead."""
    scene = Scene(workers=3)
    prep, workers = scene.start("prep"), scene.start("workers")
    scene.complete(*prep, *workers[2:4], prep=1, workers=1)
    before = scene.assignment()
    for pod in (*prep, *workers[2:4]):
        assert pod.spec.node_name is not None
        scene.leader.stores.nodes.apply("DELETED", scene.leader.stores.nodes.get(pod.spec.node_name))
    for _ in range(4):
        scene.leader.later(60.0)
    assert scene.assignment() == before
    assert scene.leader.status("set") == ("Running", "")


def test_the_repair_of_a_part_asks_no_room_for_a_completed_one_without_a_node() -> None:
    """One host of the rack is free, for the one pod that is lost."""
    scene = Scene(workers=3)
    prep, workers = scene.start("prep"), scene.start("workers")
    scene.complete(*prep, prep=1)
    for pod in (*prep, workers[4]):
        scene.leader.stores.nodes.apply("DELETED", scene.leader.stores.nodes.get(pod.spec.node_name))
    scene.leader.stores.pods.apply("DELETED", workers[4])
    for _ in range(4):
        scene.leader.later(60.0)
    after = {name: slot_by_rank(scene.assignment().plan_of(name)) for name in ("prep", "workers")}
    assert after["prep"] == {}
    used = {one.spec.node_name for one in (*prep, *workers)}
    assert {rank for rank, slot in after["workers"].items() if slot.host not in used} == {4}
    assert scene.reserved() == {"workers": 1}


def test_later_indexes_of_a_part_get_the_slots_of_completed_ones() -> None:
    """Its Jobs have more completions than parallelism: no index is held for ever because it is none of the first."""
    scene = Scene(workers=2, completions=4)
    workers = scene.start("workers")
    scene.leader.stores.pods.apply("DELETED", workers[1])
    scene.leader.has(scene.made("workers", 0, 2))
    scene.leader.later(10.0)
    assert scene.leader.hands.of("release") == ["set-workers-0-2"]
    later = next(one for one in scene.leader.stores.pods.values() if one.name == "set-workers-0-2")
    assert pinned_host(later.spec.shape) == workers[1].spec.node_name


def test_of_jobs_with_later_indexes_the_slots_of_a_completed_one_are_free() -> None:
    """The other one needs no more than those that it has."""
    scene = Scene(workers=2, completions=4, policy="incomplete: restart\n")
    prep, workers = scene.start("prep"), scene.start("workers")
    scene.complete(*prep, *workers[:2], prep=1, workers=1)
    assert scene.reserved() == {}
    for _ in range(14):
        scene.leader.later(60.0)
    assert scene.leader.status("set") == ("Running", "")
    assert scene.leader.hands.of("suspend") == []


@pytest.mark.parametrize(("completions", "completed"), [(2, "1"), (4, "1-3")])
def test_a_pod_that_completes_long_before_its_job_is_not_missing(completions: int, completed: str) -> None:
    """It keeps its slot, for a restart of the JobSet; the gang is not incomplete, and not restarted for that."""
    scene = Scene(workers=2, completions=completions, policy="incomplete: restart\n")
    scene.start("prep")
    workers = scene.start("workers")
    before = scene.assignment()
    scene.leader.stores.pods.apply("DELETED", workers[1])
    scene.leader.settle()
    scene.leader.later(60.0)
    assert scene.leader.status("set") == ("Incomplete", "WaitingForMembers")
    scene.tells("workers", 0, completed)
    scene.leader.settle()
    assert scene.leader.status("set") == ("Running", "")
    for _ in range(14):
        scene.leader.later(60.0)
    assert scene.leader.status("set") == ("Running", "")
    assert scene.leader.hands.of("suspend") == []
    assert (scene.assignment(), scene.reserved()) == (before, {"workers": 1})


def test_the_slot_of_a_pod_that_has_completed_before_its_job_is_not_lost_with_its_node() -> None:
    """No other host is taken for it, and without a free one the gang is not incomplete, and not restarted for that."""
    scene = Scene(workers=2, policy="incomplete: restart\n")
    scene.start("prep")
    workers = scene.start("workers")
    before = scene.assignment()
    scene.tells("workers", 0, "1")
    scene.leader.stores.pods.apply("DELETED", workers[1])
    node = scene.leader.stores.nodes.get(workers[1].spec.node_name)
    scene.leader.stores.nodes.apply(
        "MODIFIED", replace(node, unschedulable=True, resource_version=scene.leader.hands.version())
    )
    scene.leader.settle()
    for _ in range(14):
        scene.leader.later(60.0)
    assert scene.leader.status("set") == ("Running", "")
    assert scene.leader.hands.of("suspend") == scene.leader.hands.of("repair") == []
    assert scene.assignment() == before


def test_a_pod_that_is_lost_is_missing_beside_one_that_has_completed() -> None:
    scene = Scene(workers=2)
    prep, workers = scene.start("prep"), scene.start("workers")
    scene.tells("workers", 0, "1")
    scene.complete(*prep, workers[1], workers[2], prep=1)
    scene.leader.later(60.0)
    placed = scene.leader.placed("set")
    assert placed is not None
    assert placed.status["phase"] == "Incomplete"
    assert placed.status["message"] == "waits for 1 pod of the gang to be created and bound again"


def test_a_part_that_runs_again_has_its_slots_again() -> None:
    """JobSet made all of its Jobs anew after a failure: none has succeeded any more."""
    scene = Scene()
    prep, workers = scene.start("prep"), scene.start("workers")
    scene.complete(*prep, prep=1)
    scene.complete(*workers)
    assert scene.reserved() == {"prep": 1, "workers": 2}


class Minimum(Scene):
    """A JobSet of one Job with three pods, of which any number may start; two hosts are free."""

    def __init__(self) -> None:
        self.workers, self.completions = 1, 3
        self.leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=POLICY)
        raw = job_set(1, suspend=True)
        raw["metadata"]["annotations"][names.MIN_AVAILABLE] = "1"
        raw["spec"]["replicatedJobs"] = [{"name": "workers", "replicas": 1, "template": _job(3)}]
        self.leader.has(workload_of(raw))
        self.leader.settle()
        found = self.leader.stores.workloads.get(("jobset.x-k8s.io", "JobSet", "default", "set"))
        assert found is not None
        self.gang = found


def test_the_slots_of_completed_pods_are_given_to_those_that_had_no_room() -> None:
    """Two of three have completed, and their JobSet does not say so before the third has."""
    scene = Minimum()
    pods = scene.start("workers")
    scene.leader.has(scene.made("workers", 0, 2))
    scene.leader.later(10.0)
    assert len(pods) == 2
    assert scene.leader.hands.of("release") == []
    for pod in pods:
        scene.leader.stores.pods.apply("DELETED", pod)
    scene.tells("workers", 0, "0-1")
    scene.leader.later(10.0)
    assert scene.leader.hands.of("release") == ["set-workers-0-2"]
    slots = slot_by_rank(scene.assignment().plan_of("workers"))
    assert list(slots) == [2]
    assert scene.reserved() == {"workers": 1}
    scene.leader.later(10.0)
    assert scene.leader.status("set") == ("Incomplete", "WaitingForMembers")
    bound = scene.made("workers", 0, 2, slots[2].host)
    scene.leader.has(replace(bound, resource_version=scene.leader.hands.version()))
    scene.leader.later(60.0)
    scene.leader.later(10.0)
    assert scene.leader.status("set") == ("Running", "")


def test_a_completed_pod_makes_room_beside_one_that_runs() -> None:
    """Its slot goes to the third, and the one that runs keeps its own; JobSet may then make all of them anew."""
    scene = Minimum()
    pods = scene.start("workers")
    third = scene.made("workers", 0, 2)
    scene.leader.has(third)
    scene.leader.stores.pods.apply("DELETED", pods[0])
    scene.tells("workers", 0, "0")
    scene.leader.later(60.0)
    assert scene.leader.hands.of("release") == ["set-workers-0-2"]
    slots = slot_by_rank(scene.assignment().plan_of("workers"))
    assert {rank: slot.host for rank, slot in slots.items()} == {1: pods[1].spec.node_name, 2: pods[0].spec.node_name}
