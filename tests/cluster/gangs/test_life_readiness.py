"""Gangs whose pods are bound but do not become ready: given back, started on other hosts, and held in the end."""

from __future__ import annotations

from local.client import Client
from local.kubelets import READY_AFTER, WAITING, WAITING_ON, crash_pod
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import PATIENCE, eventually
from tests.support.gang_steps import assigned, delete_job, failures, pod_of_index, resume, status_of
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.lease import LEASE

PULL = {WAITING: "ImagePullBackOff"}


def limited(start: str, *, attempts: int = 3, rest: str = "") -> str:
    return f"{TEST_POLICY}timeouts: {{start: {start}, recover: 3s}}\nqueue: {{maxStartAttempts: {attempts}}}\n{rest}"


def is_told(gangs: Namespace, job: str, phase: str, reason: str | None, timeout: float = PATIENCE) -> Json:
    """Wait until the status of a gang has this phase and reason."""

    def look() -> Json | None:
        status = dict(status_of(gangs, job))
        return status if status.get("phase") == phase and (status.get("reason") or None) == reason else None

    found = eventually(look, timeout, lambda: f"{job} is {phase} ({reason})\n{gangs.describe(job)}")
    assert found is not None
    return found


def events(gangs: Namespace, reason: str) -> list[str]:
    listed = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events")
    return [item["note"] for item in listed if item["reason"] == reason and item["regarding"]["kind"] != "Placement"]


def told_first(gangs: Namespace, reason: str) -> str:
    """Wait for the Events of a reason; the first note. On a busy machine a start may fail a second time."""
    return min(eventually(lambda: events(gangs, reason), message=f"an Event says {reason}"))


def test_a_gang_is_starting_until_its_kubelets_have_started_it(gangs: Namespace, policy: PolicyInForce) -> None:
    """A slow pull: bound at once, ready fifteen seconds later; it is told after five."""
    policy.set(TEST_POLICY)
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"), pod_annotations={READY_AFTER: "15s"})
    gangs.all_bound("train", 2)
    is_told(gangs, "train", "Starting", None)
    status = is_told(gangs, "train", "Running", None)
    assert status["readyAt"]
    assert {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "True"


def test_a_gang_whose_pod_cannot_start_on_a_host_is_started_on_others(gangs: Namespace, policy: PolicyInForce) -> None:
    """The image cannot be pulled on one host: after the time the Job is suspended, and runs without that host. It has
    backoffLimit 0, and loses nothing."""
    policy.set(limited("4s"))
    hosts = gangs.fleet.grid("1x1x3")
    bad = hosts[0]
    gangs.submit("train", pods=2, annotations=require("rack"), pod_annotations={**PULL, WAITING_ON: bad})
    note = told_first(gangs, "StartTimeout")
    assert f"on {bad}: container main: ImagePullBackOff: ImagePullBackOff: example.com/train:1" in note
    assert note.endswith(f"start 1 of 3 has failed: it is planned again in 1s without {bad}")
    status = is_told(gangs, "train", "Running", None)
    assert set(gangs.bound("train").values()) == set(hosts[1:])
    assert failures(gangs, "train") == 0
    assert status.get("failedStarts") is None


def test_the_pods_of_a_jobset_are_started_on_other_hosts_too(
    gangs: Namespace, policy: PolicyInForce, jobset: None
) -> None:
    """Suspended as a whole; no restart of its own is used."""
    policy.set(limited("4s"))
    bad, *others = gangs.fleet.grid("1x1x3")
    template = job_body("", pods=1, selector=gangs.fleet.selector, pod_annotations={**PULL, WAITING_ON: bad})["spec"]
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": template}}]}
    collection = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{gangs.name}/jobsets"
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    gangs.client.create(collection, {**body, "metadata": {"name": "set", "annotations": require("rack")}})
    note = told_first(gangs, "StartTimeout")
    assert bad in note
    assert "start 1 of 3 has failed" in note
    is_told(gangs, "set", "Running", None)
    assert set(assigned(gangs, "set")) == set(others)
    assert gangs.client.get(f"{collection}/set")["status"].get("restarts", 0) == 0


def test_a_gang_that_cannot_be_suspended_keeps_its_hosts_and_says_what_is_wrong(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """A StatefulSet: its pods would come again with the same image. When it is there, they run."""
    policy.set(limited("4s"))
    gangs.fleet.grid("1x1x2")
    job = job_body("web", pods=2, annotations=require("rack"), selector=gangs.fleet.selector, pod_annotations=PULL)
    template = job["spec"]["template"]
    template["metadata"]["labels"] = {"app": "web"}
    template["spec"]["restartPolicy"] = "Always"
    spec = {
        "replicas": 2,
        "serviceName": "web",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "web"}},
        "template": template,
    }
    collection = f"/apis/apps/v1/namespaces/{gangs.name}/statefulsets"
    gangs.client.create(
        collection, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": job["metadata"], "spec": spec}
    )
    status = is_told(gangs, "web", "Starting", "PodsNotReady")
    assert status["message"].startswith("2 of 2 pods not ready: web-0 on ")
    assert len(assigned(gangs, "web")) == 2
    for name in ("web-0", "web-1"):
        path = f"/api/v1/namespaces/{gangs.name}/pods/{name}"
        gangs.client.patch(path, {"metadata": {"annotations": {WAITING: None}}})
    is_told(gangs, "web", "Running", None)


def test_after_its_last_start_a_gang_is_held_until_its_user_resumes_it(
    gangs: Namespace, policy: PolicyInForce, client: Client, service: Service
) -> None:
    """An image that exists nowhere: two starts, then the room is free for others. A crash of the leader neither
    forgets a failed start nor counts it twice."""
    policy.set(limited("4s", attempts=2))
    gangs.fleet.grid("1x1x4")
    gangs.submit("train", pods=2, annotations=require("rack"), pod_annotations=PULL)
    is_told(gangs, "train", "Waiting", "StartTimeout")
    leader = eventually(service.leader, message="a replica leads")
    was = str(client.get(LEASE)["spec"].get("holderIdentity") or "")
    leader.kill()
    eventually(
        lambda: client.get(LEASE)["spec"].get("holderIdentity") not in (was, "", None), message="another replica leads"
    )
    status = is_told(gangs, "train", "Waiting", "StartLimitExceeded")
    assert status["failedStarts"]["count"] == 2
    assert "start 2 of 2 has failed" in status["message"]
    assert gangs.job("train")["spec"]["suspend"] is True
    assert failures(gangs, "train") == 0
    gangs.submit("other", pods=4, annotations=require("rack"))
    gangs.all_bound("other", 4)
    delete_job(gangs, "other")
    resume(gangs, "train")
    eventually(lambda: len(assigned(gangs, "train")) == 2, message=lambda: f"it starts\n{gangs.describe('train')}")
    service.start(2)


def test_a_running_gang_with_a_pod_that_does_not_recover_is_restarted_where_the_policy_says_so(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """Bound is not enough: one container crashes, and the whole gang starts again, without that host."""
    policy.set(limited("10m", rest="incomplete: restart\n"))
    gangs.fleet.grid("1x1x3")
    gangs.submit("train", pods=2, annotations=require("rack"))
    before = gangs.all_bound("train", 2)
    is_told(gangs, "train", "Running", None)
    crash_pod(gangs.client, gangs.name, pod_of_index(gangs, "train", 1)["metadata"]["name"], exit_code=139)

    def elsewhere() -> bool:
        bound = gangs.bound("train").values()
        return len(bound) == 2 and before[1] not in {*assigned(gangs, "train"), *bound}

    eventually(elsewhere, message=lambda: f"it runs elsewhere\n{gangs.describe('train')}")
    assert failures(gangs, "train") == 0
    note = told_first(gangs, "PodsNotReady")
    assert "CrashLoopBackOff (exit code 139, Error, 1 restart)" in note
