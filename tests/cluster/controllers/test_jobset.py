"""What the real JobSet controller makes: labels, owners, order, suspension and restarts that gangs rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from local import kubelets
from local.client import ClientError
from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet
from tests.support.workloads import GATE, Json, Workloads, held, labels

pytestmark = pytest.mark.usefixtures("jobset")
JOBSET = "jobset.sigs.k8s.io"
INDEX = "batch.kubernetes.io/job-completion-index"


def replicated(workloads: Workloads, name: str, *, jobs: int, pods: int, gated: bool = False, **job: Any) -> Json:
    """One replicated job of a JobSet."""
    spec = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "template": workloads.template(gated=gated, restartPolicy="Never"),
        **job,
    }
    return {"name": name, "replicas": jobs, "template": {"spec": spec}}


def suspend(workloads: Workloads, *jobs: Json) -> None:
    """Create a suspended JobSet and wait until its Jobs are there."""
    workloads.create("JobSet", "train", {"suspend": True, "replicatedJobs": list(jobs)})
    count = sum(job["replicas"] for job in jobs)
    eventually(lambda: len(workloads.items("Job")) == count, message="its Jobs")


def change(workloads: Workloads, changes: Mapping[str, object], *, resume: bool = False) -> None:
    """Set paths of the first replicated job's pod template, and resume in the same PATCH."""
    pod = "/spec/replicatedJobs/0/template/spec/template"
    resumed = {"/spec/suspend": False} if resume else {}
    workloads.set("JobSet", "train", {f"{pod}/{path}": value for path, value in changes.items()} | resumed)


def test_pods_say_which_job_and_index_they_are(workloads: Workloads) -> None:
    """Labels name the replicated job, the job in it and in all, the index in the job, and the attempt."""
    jobs = [replicated(workloads, "head", jobs=1, pods=1), replicated(workloads, "workers", jobs=2, pods=2)]
    uid = workloads.create("JobSet", "train", {"replicatedJobs": jobs})["metadata"]["uid"]
    pods = workloads.wait(5)
    names = [f"{JOBSET}/{name}" for name in ("replicatedjob-name", "job-index", "job-global-index")]
    assert sorted(labels(pod, *names, INDEX) for pod in pods) == [
        ("head", "0", "0", "0"),
        ("workers", "0", "1", "0"),
        ("workers", "0", "1", "1"),
        ("workers", "1", "2", "0"),
        ("workers", "1", "2", "1"),
    ]
    names = [f"{JOBSET}/{name}" for name in ("jobset-name", "jobset-uid", "restart-attempt", "global-replicas")]
    assert {labels(pod, *names) for pod in pods} == {("train", uid, "0", "3")}


def test_pods_are_owned_through_a_job(workloads: Workloads) -> None:
    """Pod -> Job -> JobSet; the Job of index i is called <jobset>-<replicated job>-<i>."""
    workloads.create("JobSet", "train", {"replicatedJobs": [replicated(workloads, "workers", jobs=2, pods=1)]})
    for pod in workloads.wait(2):
        index = pod["metadata"]["labels"][f"{JOBSET}/job-index"]
        assert workloads.owners(pod) == [("Job", f"train-workers-{index}"), ("JobSet", "train")]


def test_a_gate_in_the_templates_reaches_every_pod(workloads: Workloads, nodes: Fleet) -> None:
    """Every pod is there, held by our gate, on hosts that could take it."""
    nodes.grid("1x1x2")
    jobs = [replicated(workloads, name, jobs=2, pods=2, gated=True) for name in ("a", "b")]
    workloads.create("JobSet", "train", {"replicatedJobs": jobs})
    assert held(workloads.wait(8))


def test_a_suspended_one_makes_suspended_jobs_and_no_pods(workloads: Workloads, nodes: Fleet) -> None:
    """All Jobs exist before the first pod; resume starts them."""
    nodes.grid("1x1x1")
    jobs = [replicated(workloads, "workers", jobs=2, pods=2)]
    workloads.create("JobSet", "train", {"suspend": True, "replicatedJobs": jobs})

    eventually(
        lambda: [job["spec"]["suspend"] for job in workloads.items("Job")] == [True, True],
        message="both Jobs exist, suspended",
    )
    always(lambda: not workloads.pods(), seconds=0.5)
    workloads.merge("JobSet", "train", {"suspend": False})
    workloads.wait(4, phase="Running")


def test_one_patch_changes_the_templates_and_resumes(workloads: Workloads) -> None:
    """Gate, labels, annotations, nodeSelector and tolerations of a suspended JobSet reach its pods."""
    suspend(workloads, replicated(workloads, "workers", jobs=2, pods=1))
    changes = {
        "metadata": {"labels": {"added": "label"}, "annotations": {"added": "annotation"}},
        "spec/schedulingGates": [GATE],
        "spec/nodeSelector": {"added": "selector"},
        "spec/tolerations": [{"key": "added", "operator": "Exists"}],
    }
    change(workloads, changes, resume=True)
    for made in workloads.wait(2):
        metadata, spec = made["metadata"], made["spec"]
        assert (metadata["labels"]["added"], metadata["annotations"]["added"]) == ("label", "annotation")
        assert (spec["schedulingGates"], spec["nodeSelector"]["added"]) == ([GATE], "selector")
        assert "added" in {toleration["key"] for toleration in spec["tolerations"]}


def test_resuming_adds_to_the_jobs_and_takes_nothing_away(workloads: Workloads, nodes: Fleet) -> None:
    """A gate or a selector that leaves the templates of a suspended JobSet stays in the Jobs that it has made."""
    suspend(workloads, replicated(workloads, "workers", jobs=1, pods=1, gated=True))
    change(workloads, {"spec/schedulingGates": [], "spec/nodeSelector": {}}, resume=True)
    spec = workloads.wait(1)[0]["spec"]
    assert (spec["schedulingGates"], spec["nodeSelector"]) == ([GATE], nodes.selector)


def test_affinity_stays_as_it_was_created(workloads: Workloads) -> None:
    """Its own webhook lets nobody change the affinity of a template, suspended or not (a Job's may be changed)."""
    suspend(workloads, replicated(workloads, "workers", jobs=1, pods=1))
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["nowhere"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    with pytest.raises(ClientError, match="field is immutable"):
        change(workloads, {"spec/affinity": affinity})


def test_a_running_one_keeps_its_templates(workloads: Workloads) -> None:
    """Its own webhook refuses a changed template of a JobSet that is not suspended, in words for the user."""
    workloads.create("JobSet", "train", {"replicatedJobs": [replicated(workloads, "workers", jobs=1, pods=1)]})
    with pytest.raises(ClientError, match="field is immutable"):
        change(workloads, {"spec/nodeSelector": {"added": "selector"}})


def test_a_restart_replaces_every_pod_under_a_new_attempt(workloads: Workloads, nodes: Fleet) -> None:
    """A failed Job restarts the whole JobSet: other pods, the same indexes, restart-attempt 1."""
    nodes.grid("1x1x1")
    jobs = [replicated(workloads, name, jobs=1, pods=2) for name in ("a", "b")]
    workloads.create("JobSet", "train", {"failurePolicy": {"maxRestarts": 1}, "replicatedJobs": jobs})
    first = workloads.wait(4, phase="Running")
    kubelets.fail_pod(workloads.client, workloads.namespace, first[0]["metadata"]["name"])

    def restarted() -> list[Json]:
        found = list(workloads.pods().values())
        assert {labels(pod, f"{JOBSET}/restart-attempt") for pod in found} == {("1",)}
        assert len(found) == 4
        return found

    names = (f"{JOBSET}/replicatedjob-name", INDEX)
    second = eventually(restarted, message="four pods of the second attempt")
    assert sorted(labels(pod, *names) for pod in second) == sorted(labels(pod, *names) for pod in first)
    assert not {pod["metadata"]["uid"] for pod in first} & {pod["metadata"]["uid"] for pod in second}


def test_in_order_the_next_jobs_wait_until_the_first_are_ready(workloads: Workloads, nodes: Fleet) -> None:
    """A held first replicated job keeps the second from existing: who waits for all pods waits for ever."""
    nodes.grid("1x1x1")
    jobs = [replicated(workloads, "first", jobs=1, pods=1, gated=True), replicated(workloads, "second", jobs=1, pods=2)]
    order = {"startupPolicyOrder": "InOrder"}
    workloads.create("JobSet", "train", {"startupPolicy": order, "replicatedJobs": jobs})
    first = workloads.wait(1)[0]["metadata"]["name"]
    always(lambda: list(workloads.pods()) == [first], seconds=0.5)
    workloads.release(first)
    workloads.wait(3, phase="Running")
