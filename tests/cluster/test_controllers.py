"""What the real controllers of other kinds make: the labels, owners and orders that ranks and gangs rest on."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from local import kubelets
from local.client import Client, ClientError
from local.controllers.running import ControllerError, Controllers
from local.controlplane import ControlPlane
from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet

Json = dict[str, Any]
GATE = {"name": "topogate.dev/placement"}
JOBSET = "jobset.sigs.k8s.io"
LWS = "leaderworkerset.sigs.k8s.io"
INDEX = "batch.kubernetes.io/job-completion-index"


class Workloads:
    """The workloads of one test's namespace, on its own nodes."""

    def __init__(self, client: Client, namespace: str, fleet: Fleet) -> None:
        self.client = client
        self.namespace = namespace
        self.fleet = fleet

    def path(self, resource: str, name: str = "") -> str:
        """`resource` is group/version/plural; the core group is "v1/pods"."""
        prefix, _, plural = resource.rpartition("/")
        root = "/api" if prefix == "v1" else "/apis"
        return f"{root}/{prefix}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def create(self, resource: str, name: str, spec: Json) -> Json:
        group, version, _ = resource.split("/")
        kind = {"jobsets": "JobSet", "leaderworkersets": "LeaderWorkerSet"}[resource.rpartition("/")[2]]
        body = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}
        created: Json = self.client.create(self.path(resource), body)
        return created

    def get(self, resource: str, name: str) -> Json:
        found: Json = self.client.get(self.path(resource, name))
        return found

    def pods(self) -> dict[str, Json]:
        """Pods by name, without those that are going."""
        listed = self.client.items(self.path("v1/pods"))
        return {pod["metadata"]["name"]: pod for pod in listed if "deletionTimestamp" not in pod["metadata"]}

    def wait(self, count: int, *, phase: str = "") -> list[Json]:
        """Wait for exactly `count` pods, all of them in this phase."""

        def there() -> list[Json]:
            found = list(self.pods().values())
            assert len(found) == count, sorted(self.pods())
            assert all(phase in ("", pod["status"]["phase"]) for pod in found), [p["status"] for p in found]
            return found

        return eventually(there, message=f"{count} pods {phase}")

    def owner(self, one: Json) -> Json:
        """The controller of an object, read."""
        reference = next(ref for ref in one["metadata"]["ownerReferences"] if ref.get("controller"))
        plural = {"Job": "jobs", "StatefulSet": "statefulsets", "Pod": "pods", "JobSet": "jobsets",
                  "LeaderWorkerSet": "leaderworkersets"}[reference["kind"]]  # fmt: skip
        owner = self.get(f"{reference['apiVersion']}/{plural}", reference["name"])
        assert owner["metadata"]["uid"] == reference["uid"]
        return {"kind": reference["kind"], **owner}


def template(fleet: Fleet, *, gated: bool = False, **spec: Any) -> Json:
    """A pod template that needs nothing, on one test's nodes."""
    gates = {"schedulingGates": [GATE]} if gated else {}
    container = {"name": "main", "image": "example.com/train:1"}
    return {"spec": {"nodeSelector": fleet.selector, "containers": [container], **gates, **spec}}


def replicated(fleet: Fleet, name: str, *, jobs: int, pods: int, gated: bool = False, **job: Any) -> Json:
    """One replicated job of a JobSet."""
    spec = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "template": template(fleet, gated=gated, restartPolicy="Never"),
        **job,
    }
    return {"name": name, "replicas": jobs, "template": {"spec": spec}}


@pytest.fixture
def workloads(client: Client, namespace: str, nodes: Fleet) -> Workloads:
    return Workloads(client, namespace, nodes)


JOBSETS = "jobset.x-k8s.io/v1alpha2/jobsets"
LWSES = "leaderworkerset.x-k8s.io/v1/leaderworkersets"


def labels(pod: Json, *names: str) -> tuple[str, ...]:
    return tuple(pod["metadata"]["labels"].get(name, "absent") for name in names)


@pytest.mark.usefixtures("jobset")
class TestJobSet:
    """The JobSet controller."""

    def test_pods_say_which_job_and_index_they_are(self, workloads: Workloads, nodes: Fleet) -> None:
        """Labels name the replicated job, the job in it and in all, the index in the job, and the attempt."""
        jobs = [replicated(nodes, "head", jobs=1, pods=1), replicated(nodes, "workers", jobs=2, pods=2)]
        uid = workloads.create(JOBSETS, "train", {"replicatedJobs": jobs})["metadata"]["uid"]
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

    def test_pods_are_owned_through_a_job(self, workloads: Workloads, nodes: Fleet) -> None:
        """Pod -> Job -> JobSet; the Job of index i is called <jobset>-<replicated job>-<i>."""
        workloads.create(JOBSETS, "train", {"replicatedJobs": [replicated(nodes, "workers", jobs=2, pods=1)]})
        for pod in workloads.wait(2):
            job = workloads.owner(pod)
            index = pod["metadata"]["labels"][f"{JOBSET}/job-index"]
            assert (job["kind"], job["metadata"]["name"]) == ("Job", f"train-workers-{index}")
            jobset = workloads.owner(job)
            assert (jobset["kind"], jobset["metadata"]["name"]) == ("JobSet", "train")

    def test_a_gate_in_the_templates_reaches_every_pod(self, workloads: Workloads, nodes: Fleet) -> None:
        """Every pod is there, held by our gate, on hosts that could take it."""
        nodes.grid("1x1x2")
        jobs = [replicated(nodes, name, jobs=2, pods=2, gated=True) for name in ("a", "b")]
        workloads.create(JOBSETS, "train", {"replicatedJobs": jobs})
        for pod in workloads.wait(8):
            assert (pod["spec"]["schedulingGates"], pod["spec"].get("nodeName")) == ([GATE], None)

    def test_a_suspended_one_makes_suspended_jobs_and_no_pods(self, workloads: Workloads, nodes: Fleet) -> None:
        """All Jobs exist before the first pod; resume starts them."""
        nodes.grid("1x1x1")
        jobs = [replicated(nodes, "workers", jobs=2, pods=2)]
        workloads.create(JOBSETS, "train", {"suspend": True, "replicatedJobs": jobs})

        def suspended() -> bool:
            made = workloads.client.items(workloads.path("batch/v1/jobs"))
            return [job["spec"]["suspend"] for job in made] == [True, True]

        eventually(suspended, message="both Jobs exist, suspended")
        always(lambda: not workloads.pods(), seconds=0.5)
        workloads.client.patch(workloads.path(JOBSETS, "train"), {"spec": {"suspend": False}})
        workloads.wait(4, phase="Running")

    def test_one_patch_changes_the_templates_and_resumes(self, workloads: Workloads, nodes: Fleet) -> None:
        """Gate, labels, annotations, nodeSelector and tolerations of a suspended JobSet reach its pods."""
        self.suspend(workloads, replicated(nodes, "workers", jobs=2, pods=1))
        changes: list[tuple[str, object]] = [
            ("metadata", {"labels": {"added": "label"}, "annotations": {"added": "annotation"}}),
            ("spec/schedulingGates", [GATE]),
            ("spec/nodeSelector", {"added": "selector"}),
            ("spec/tolerations", [{"key": "added", "operator": "Exists"}]),
        ]
        self.change(workloads, *changes, resume=True)
        for made in workloads.wait(2):
            metadata, spec = made["metadata"], made["spec"]
            assert (metadata["labels"]["added"], metadata["annotations"]["added"]) == ("label", "annotation")
            assert (spec["schedulingGates"], spec["nodeSelector"]["added"]) == ([GATE], "selector")
            assert "added" in {toleration["key"] for toleration in spec["tolerations"]}

    def test_resuming_adds_to_the_jobs_and_takes_nothing_away(self, workloads: Workloads, nodes: Fleet) -> None:
        """A gate or a selector that leaves the templates of a suspended JobSet stays in the Jobs that it has made."""
        self.suspend(workloads, replicated(nodes, "workers", jobs=1, pods=1, gated=True))
        self.change(workloads, ("spec/schedulingGates", []), ("spec/nodeSelector", {}), resume=True)
        spec = workloads.wait(1)[0]["spec"]
        assert (spec["schedulingGates"], spec["nodeSelector"]) == ([GATE], nodes.selector)

    def test_affinity_stays_as_it_was_created(self, workloads: Workloads, nodes: Fleet) -> None:
        """Its own webhook lets nobody change the affinity of a template, suspended or not (a Job's may be changed)."""
        self.suspend(workloads, replicated(nodes, "workers", jobs=1, pods=1))
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["nowhere"]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        with pytest.raises(ClientError, match="field is immutable"):
            self.change(workloads, ("spec/affinity", affinity))

    @staticmethod
    def suspend(workloads: Workloads, *jobs: Json) -> None:
        """Create a suspended JobSet and wait until its Jobs are there."""
        workloads.create(JOBSETS, "train", {"suspend": True, "replicatedJobs": list(jobs)})
        count = sum(job["replicas"] for job in jobs)
        eventually(lambda: len(workloads.client.items(workloads.path("batch/v1/jobs"))) == count, message="its Jobs")

    @staticmethod
    def change(workloads: Workloads, *changes: tuple[str, object], resume: bool = False) -> None:
        """Set paths of the first replicated job's pod template, and resume in the same PATCH."""
        pod = "/spec/replicatedJobs/0/template/spec/template"
        patch = [{"op": "add", "path": f"{pod}/{path}", "value": value} for path, value in changes]
        resumed = [{"op": "add", "path": "/spec/suspend", "value": False}] if resume else []
        workloads.client.patch(workloads.path(JOBSETS, "train"), [*patch, *resumed], kind="json")

    def test_a_running_one_keeps_its_templates(self, workloads: Workloads, nodes: Fleet) -> None:
        """Its own webhook refuses a changed template of a JobSet that is not suspended, in words for the user."""
        workloads.create(JOBSETS, "train", {"replicatedJobs": [replicated(nodes, "workers", jobs=1, pods=1)]})
        with pytest.raises(ClientError, match="field is immutable"):
            self.change(workloads, ("spec/nodeSelector", {"added": "selector"}))

    def test_a_restart_replaces_every_pod_under_a_new_attempt(self, workloads: Workloads, nodes: Fleet) -> None:
        """A failed Job restarts the whole JobSet: other pods, the same indexes, restart-attempt 1."""
        nodes.grid("1x1x1")
        jobs = [replicated(nodes, name, jobs=1, pods=2) for name in ("a", "b")]
        workloads.create(JOBSETS, "train", {"failurePolicy": {"maxRestarts": 1}, "replicatedJobs": jobs})
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

    def test_in_order_the_next_jobs_wait_until_the_first_are_ready(self, workloads: Workloads, nodes: Fleet) -> None:
        """A held first replicated job keeps the second from existing: who waits for all pods waits for ever."""
        nodes.grid("1x1x1")
        jobs = [replicated(nodes, "first", jobs=1, pods=1, gated=True), replicated(nodes, "second", jobs=1, pods=2)]
        order = {"startupPolicyOrder": "InOrder"}
        workloads.create(JOBSETS, "train", {"startupPolicy": order, "replicatedJobs": jobs})
        held = workloads.wait(1)[0]["metadata"]["name"]
        always(lambda: list(workloads.pods()) == [held], seconds=0.5)
        workloads.client.patch(workloads.path("v1/pods", held), {"spec": {"schedulingGates": None}})
        workloads.wait(3, phase="Running")


def group(fleet: Fleet, *, size: int, gated: bool = False, **options: Any) -> Json:
    """The spec.leaderWorkerTemplate of a LeaderWorkerSet."""
    return {"size": size, "workerTemplate": template(fleet, gated=gated), **options}


@pytest.mark.usefixtures("lws")
class TestLeaderWorkerSet:
    """The LeaderWorkerSet controller."""

    def test_pods_say_which_group_and_worker_they_are(self, workloads: Workloads, nodes: Fleet) -> None:
        """Leaders are worker 0; the group's size is an annotation of all, the leader's name one of the workers."""
        nodes.grid("1x1x1")
        workloads.create(LWSES, "serve", {"replicas": 2, "leaderWorkerTemplate": group(nodes, size=3)})
        pods = {pod["metadata"]["name"]: pod for pod in workloads.wait(6, phase="Running")}
        names = [f"{LWS}/{name}" for name in ("name", "group-index", "worker-index")]
        assert {name: labels(pod, *names) for name, pod in pods.items()} == {
            "serve-0": ("serve", "0", "0"),
            "serve-0-1": ("serve", "0", "1"),
            "serve-0-2": ("serve", "0", "2"),
            "serve-1": ("serve", "1", "0"),
            "serve-1-1": ("serve", "1", "1"),
            "serve-1-2": ("serve", "1", "2"),
        }
        annotations = {name: pod["metadata"]["annotations"] for name, pod in pods.items()}
        assert {one[f"{LWS}/size"] for one in annotations.values()} == {"3"}
        leaders = {name: one.get(f"{LWS}/leader-name") for name, one in annotations.items()}
        assert leaders == {name: name.rpartition("-")[0] if name.count("-") == 2 else None for name in pods}
        keys = {labels(pod, f"{LWS}/group-key") for pod in pods.values()}
        assert len(keys) == 2

    def test_leaders_and_workers_have_stateful_sets_of_their_own(self, workloads: Workloads, nodes: Fleet) -> None:
        """Leader -> StatefulSet <name> -> LWS; worker -> StatefulSet <name>-<group> -> leader pod; pod-index lies."""
        workloads.create(LWSES, "serve", {"replicas": 2, "leaderWorkerTemplate": group(nodes, size=2)})
        workloads.wait(4)
        pods = workloads.pods()
        leaders = workloads.owner(pods["serve-1"])
        assert (leaders["kind"], leaders["metadata"]["name"]) == ("StatefulSet", "serve")
        assert workloads.owner(leaders)["kind"] == "LeaderWorkerSet"
        workers = workloads.owner(pods["serve-1-1"])
        assert (workers["kind"], workers["metadata"]["name"]) == ("StatefulSet", "serve-1")
        assert workloads.owner(workers)["metadata"]["uid"] == pods["serve-1"]["metadata"]["uid"]
        # The index within a StatefulSet is the group for a leader and the worker for a worker.
        index = "apps.kubernetes.io/pod-index"
        assert [labels(pods[name], index) for name in ("serve-0", "serve-1", "serve-1-1")] == [("0",), ("1",), ("1",)]

    def test_a_gate_in_the_template_reaches_every_pod(self, workloads: Workloads, nodes: Fleet) -> None:
        """Workers of a held leader exist (startupPolicy LeaderCreated, the default), so a whole group can be held."""
        nodes.grid("1x1x1")
        workloads.create(LWSES, "serve", {"replicas": 2, "leaderWorkerTemplate": group(nodes, size=2, gated=True)})
        for pod in workloads.wait(4):
            assert (pod["spec"]["schedulingGates"], pod["spec"].get("nodeName")) == ([GATE], None)

    def test_with_leader_ready_a_held_leader_has_no_workers(self, workloads: Workloads, nodes: Fleet) -> None:
        """startupPolicy LeaderReady makes the workers after the leader runs: ordered creation."""
        nodes.grid("1x1x1")
        spec = {
            "replicas": 1,
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": group(nodes, size=2, leaderTemplate=template(nodes, gated=True)),
        }
        workloads.create(LWSES, "serve", spec)
        workloads.wait(1)
        always(lambda: list(workloads.pods()) == ["serve-0"], seconds=0.5)
        workloads.client.patch(workloads.path("v1/pods", "serve-0"), {"spec": {"schedulingGates": None}})
        workloads.wait(2, phase="Running")

    def test_a_lost_worker_takes_its_group_along(self, workloads: Workloads, nodes: Fleet) -> None:
        """By default the whole group is made anew, under the same names; the other groups stay."""
        nodes.grid("1x1x1")
        workloads.create(LWSES, "serve", {"replicas": 2, "leaderWorkerTemplate": group(nodes, size=2)})
        workloads.wait(4, phase="Running")
        before = uids(workloads.pods())
        workloads.client.delete(workloads.path("v1/pods", "serve-0-1"))

        def again() -> Mapping[str, str]:
            after = uids(workloads.pods())
            assert after.keys() == before.keys()
            assert all(after[name] != before[name] for name in ("serve-0", "serve-0-1"))
            return after

        after = eventually(again, timeout=60, message="group 0 is made anew")
        assert all(after[name] == before[name] for name in ("serve-1", "serve-1-1"))

    def test_scaling_adds_and_takes_the_last_groups(self, workloads: Workloads, nodes: Fleet) -> None:
        """Groups come and go whole, at the end."""
        nodes.grid("1x1x1")
        workloads.create(LWSES, "serve", {"replicas": 1, "leaderWorkerTemplate": group(nodes, size=2)})
        before = uids({pod["metadata"]["name"]: pod for pod in workloads.wait(2, phase="Running")})
        workloads.client.patch(workloads.path(LWSES, "serve"), {"spec": {"replicas": 3}})
        workloads.wait(6, phase="Running")
        workloads.client.patch(workloads.path(LWSES, "serve"), {"spec": {"replicas": 1}})
        workloads.wait(2)
        assert uids(workloads.pods()) == before


def uids(pods: Mapping[str, Json]) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


@pytest.mark.usefixtures("jobset")
def test_a_controller_speaks_as_its_own_account(control_plane: ControlPlane) -> None:
    """Reviews see the user that they would see in a cluster, with the rights of the controller's own roles."""
    kubeconfig = control_plane.directory / "controllers" / "jobset" / "kubeconfig"
    said = control_plane.kubectl(
        f"--kubeconfig={kubeconfig}", "auth", "whoami", "-o=jsonpath={.status.userInfo.username}"
    )
    assert said.stdout == "system:serviceaccount:jobset-system:jobset-controller-manager"
    asked = control_plane.kubectl(f"--kubeconfig={kubeconfig}", "auth", "can-i", "delete", "nodes", check=False)
    assert asked.stdout.strip() == "no"


def test_a_controller_that_dies_is_quoted_and_leaves_the_rest(
    controllers: Controllers, lws: None, control_plane: ControlPlane, client: Client
) -> None:
    """Whoever asks next is told with the end of its log; nothing else ends, and it can be started again."""
    pid = controllers.pid("lws")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def told() -> str:
        try:
            controllers.check()
        except ControllerError as error:
            return str(error)
        return ""

    why = eventually(told, message="the supervisor has seen it")
    assert re.search(r"lws ended with status -9; its log .*/lws.log ends:\n(?s:.*)LeaderWorkerSet", why), why
    control_plane.check()
    controllers.stop("lws")
    configuration = "mutatingwebhookconfigurations/lws-mutating-webhook-configuration"
    assert client.find(f"/apis/admissionregistration.k8s.io/v1/{configuration}") is None
    controllers.start("lws")
    assert controllers.pid("lws") not in (None, pid)
