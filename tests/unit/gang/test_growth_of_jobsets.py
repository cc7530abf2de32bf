"""JobSets whose Jobs become larger (JobSet's feature gate ElasticJobSet; `replicas` are fixed)."""

from __future__ import annotations

from dataclasses import replace

from bench.jobs import job_spec
from engine.api import names
from engine.api.placement import PodSetRequest
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.gang.repair import growth_request
from tests.support.cluster_records import placement
from tests.support.kinds import workload_of
from tests.support.pod_sets import member


def jobset(pods: int) -> Workload:
    """One Job of so many pods, as the API server has it."""
    raw = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "default", "uid": "uid-train", "resourceVersion": "1"},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job_spec(pods)}}]},
    }
    return workload_of(raw)


def running(workload: Workload, rank: int, host: str) -> Pod:
    pod = member(workload, "workers", rank, host=host)
    labels = {**pod.spec.labels, "jobset.sigs.k8s.io/job-index": "0", names.COMPLETION_INDEX: str(rank)}
    return replace(pod, spec=replace(pod.spec, labels=labels))


def test_a_jobset_whose_job_grows_keeps_what_it_has() -> None:
    """Two more pods: they are planned beside the two that run, which stay."""
    before, after = jobset(2), jobset(4)
    placed = placement(before, {"h0": 1, "h1": 1})
    assert placed.assignment is not None
    (plan,) = placed.assignment.pod_sets
    placed = replace(placed, assignment=replace(placed.assignment, pod_sets=(replace(plan, name="workers"),)))
    pods = [running(before, rank, f"h{rank}") for rank in range(2)]
    (count,) = [pod_set.slots for pod_set in after.pod_sets]
    ask = PodSetRequest(
        name="workers", count=count, min_available=count, require="rack", prefer=None, ranked=True, shape_hash="s"
    )
    more = growth_request(after, placed, pods, asks=(ask,), gang=None)
    assert more is not None
    assert ({rank: one.host for rank, one in more.kept["workers"].items()}, more.more) == ({0: "h0", 1: "h1"}, 2)
