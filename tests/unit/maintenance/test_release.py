"""What a release finds, what it sends, and what it says of answers that it does not expect."""

from __future__ import annotations

from typing import Any

from engine.api import names
from engine.policy.model import parse_policy
from tests.support.fake_api import Answer, FakeApi, Hang
from tests.support.snapshots import snapshot
from tests.unit.maintenance.conftest import gated_pod, held_job
from webhook.maintenance.release import ReleasePlan, ReleaseScope, release_plan
from webhook.maintenance.releaser import TRIES, Outcome, Releaser
from webhook.operations.held import verdict

JOB = "/apis/batch/v1/namespaces/alice/jobs/held"
POD = "/api/v1/namespaces/alice/pods/held"


def planned(*objects: dict[str, Any], scope: ReleaseScope | None = None) -> ReleasePlan:
    return release_plan(snapshot(objects).view, scope)


def test_held_is_what_topogate_holds() -> None:
    """Not what its user has suspended, nor what has ended or is being deleted."""
    ended = held_job("ended") | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    leaving = held_job("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    running = held_job("running", held=False)
    running["spec"]["suspend"] = False
    plan = planned(
        *(held_job(), held_job("own", held=False), held_job("other", namespace="bob"), ended, leaving, running),
        *(gated_pod("a", owner="running"), gated_pod("lone")),
    )
    assert [(one.namespace, one.name) for one in plan.workloads] == [("alice", "held"), ("bob", "other")]
    assert [one.name for one in plan.pods] == ["a", "lone"]
    assert [one.name for one in plan.templates] == ["own", "running"]
    assert [one.name for one in plan.changeable] == ["own"]
    assert (plan.held, plan.namespaces) == (4, {"alice": 3, "bob": 1})


def test_a_release_may_be_limited() -> None:
    """To a namespace, or to one workload with its pods."""
    objects = (held_job(), held_job("other", namespace="bob"), gated_pod("a", owner="held"), gated_pod("lone"))
    assert [one.name for one in planned(*objects, scope=ReleaseScope("bob")).workloads] == ["other"]
    one = planned(*objects, scope=ReleaseScope("alice", frozenset({"held"})))
    assert ([job.name for job in one.workloads], [pod.name for pod in one.pods]) == (["held"], ["a"])


def test_templates_are_told_once_for_a_workload_and_its_children() -> None:
    """The Jobs of a JobSet have the gate from its templates."""
    template = held_job()["spec"] | {"suspend": False}
    above = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "alice", "uid": "set"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": template}}]},
    }
    child = held_job("set-w-0", held=False)
    child["spec"]["suspend"] = False
    child["metadata"]["ownerReferences"] = [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "set", "controller": True}
    ]
    assert [(one.kind, one.name) for one in planned(above, child).templates] == [("JobSet", "set")]


def released(releaser: Releaser, server: FakeApi) -> list[Outcome]:
    """Release what the server has; what was known of it is the first version."""
    found: list[Outcome] = []
    for path, body in ((JOB, held_job()), (POD, gated_pod("held"))):
        server.put(path, **body)
    stored = [server.get(path) or {} for path in (JOB, POD)]
    kinds = ({"apiVersion": "batch/v1", "kind": "Job"}, {"apiVersion": "v1", "kind": "Pod"})
    plan = planned(*({**kind, **body} for kind, body in zip(kinds, stored, strict=True)))
    releaser.release(plan, report=found.append)
    return found


def test_nothing_is_held_after_a_release(releaser: Releaser, server: FakeApi) -> None:
    """The Job is resumed without the gate in its template, and our mark is gone."""
    outcomes = released(releaser, server)
    assert [one.text for one in outcomes] == [
        "job/held in namespace alice: resumed",
        "pod/held in namespace alice: released",
    ]
    found = server.get(JOB) or {}
    assert found["spec"]["suspend"] is False
    assert "schedulingGates" not in found["spec"]["template"]["spec"]
    assert names.HELD_BY not in found["metadata"]["annotations"]


def test_a_fault_is_tried_again(releaser: Releaser, server: FakeApi, pauses: list[float]) -> None:
    """An answer that is lost, and one that is an error of the server; the work is done once."""
    server.fault(Hang(), when=lambda request: request.method == "PATCH")
    server.fault(Answer(500, {"message": "etcd"}), when=lambda request: request.method == "PATCH")
    assert all(one.done for one in released(releaser, server))
    assert pauses
    assert (server.get(JOB) or {})["spec"]["suspend"] is False


def test_a_refusal_stops_nothing_else(releaser: Releaser, server: FakeApi, pauses: list[float]) -> None:
    """What the caller may not do is one line, with control characters escaped; the rest is done."""
    refusal = {"kind": "Status", "reason": "Forbidden", "message": "jobs is \x1b[31mforbidden"}
    server.fault(Answer(403, refusal), when=lambda one: one.method == "PATCH" and "/jobs/" in one.path, times=2)
    job_outcome, pod_outcome = released(releaser, server)
    assert (job_outcome.done, pod_outcome.done, pauses) == (False, True, [])
    assert job_outcome.text == "job/held in namespace alice: not done: jobs is \\x1b[31mforbidden"


def test_trying_ends(releaser: Releaser, server: FakeApi, pauses: list[float]) -> None:
    """A server that always fails, or an object that changes at every moment."""
    server.fault(Answer(503, {}), when=lambda request: request.method == "PATCH", times=100)
    assert not any(one.done for one in released(releaser, server))
    assert len(pauses) == 2 * (TRIES - 1)


def test_the_verdict_says_what_is_held_again() -> None:
    plan = planned(held_job("own", held=False))
    lines = verdict(plan, policy=parse_policy("{}"), webhooks=True)
    assert lines[0] == "nothing is held any more"
    assert lines[1].startswith("1 workload with the gate in a template: job/own (alice). Pods that they create later")
    assert "mode: off" in lines[2]
    assert verdict(planned(), policy=parse_policy("mode: off"), webhooks=True) == ["nothing is held any more"]
    assert verdict(planned(held_job()), policy=parse_policy("{}"), webhooks=False) == ["1 object still held"]
