"""`topogate uninstall` beside and after the real service, interrupted at every step, by people with and without rights.

On a control plane of its own: the others keep their service.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import names
from local.controlplane import ControlPlane
from local.service import NAMESPACE, Service
from tests.support.callers import caller, rule
from tests.support.cli import topogate, topogate_running
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import Namespace, job_body, require
from tests.support.installed import HOOKS
from tests.support.raw_pods import GATE
from tests.support.steady_load import SteadyLoad
from webhook.maintenance.installation import WEBHOOKS
from webhook.maintenance.removal import everything

pytestmark = pytest.mark.core

# The program is killed when it prints the first line with one of these: in every step.
INTERRUPTIONS = (
    ": resumed",
    ": released",
    "ValidatingAdmissionPolicyBinding",
    "CustomResourceDefinition placements.topogate.dev: deleted",
    "ClusterRole topogate: deleted",
    "ConfigMap topogate-policy-last-good: deleted",
)
# What the run says that finds all done, or does the last of it.
OVER = ("Topogate is removed", "Topogate is not installed")
# What is needed to find and to release what is held, or to read its kinds: it goes when nothing is held any more.
TO_RELEASE = ("CustomResourceDefinition ", "ClusterRole ", "ConfigMap ", "ServiceAccount ", "Namespace ")


@pytest.fixture(scope="module")
def service(plane: ControlPlane) -> Iterator[Service]:
    """One replica that leads."""
    Definition("kubeflow.org", "PyTorchJob", "pytorchjobs").install(plane.client)
    running = Service.install(plane)
    running.start(1)
    eventually(running.leader, message="the replica leads")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def gangs(plane: ControlPlane, service: Service) -> Namespace:
    """A gang that runs, and all ways to be held by the service: suspended Jobs and others, gated pods."""
    client, name = plane.client, "work"
    client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    maps = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    client.create(maps, policy())
    kept = f"{maps}/{names.LAST_GOOD_POLICY_NAME}"
    eventually(lambda: names.POLICY_KEY in (client.find(kept) or {}).get("data", {}), message="the leader has kept it")
    fleet = Fleet(client, name)
    found = Namespace(client, name, fleet)
    fleet.grid("1x1x2")
    found.submit("runs", pods=2, annotations=require("rack"))
    found.all_bound("runs", 2)
    found.submit("waits", pods=3, annotations=require("rack"))
    found.waits("waits")
    client.create(
        f"/apis/batch/v1/namespaces/{name}/jobs",
        job_body("own", pods=1, annotations=require("rack"), spec={"suspend": True}),
    )
    template = job_body("x", pods=1, pod_annotations=require("rack"))["spec"]["template"]
    torch = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "torch", "annotations": require("rack")},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": template}}},
    }
    client.create(f"/apis/kubeflow.org/v1/namespaces/{name}/pytorchjobs", torch)
    labels = {"app": "serve"}
    template["spec"]["restartPolicy"] = "Always"
    template["metadata"]["labels"] = labels
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    client.create(f"/apis/apps/v1/namespaces/{name}/deployments", {"metadata": {"name": "serve"}, "spec": spec})
    eventually(lambda: len(held_pods(found)) == 3, message="the pods of the Deployment are held")
    return found


def policy() -> dict[str, Any]:
    text = "topologies: [{name: default, preset: demo}]\nnodes: {settle: 0s}\n"
    return {"metadata": {"name": names.POLICY_NAME}, "data": {names.POLICY_KEY: text}}


def held_pods(gangs: Namespace) -> list[str]:
    pods = gangs.client.items(f"/api/v1/namespaces/{gangs.name}/pods")
    return [pod["metadata"]["name"] for pod in pods if {"name": GATE} in pod["spec"].get("schedulingGates", [])]


def held(gangs: Namespace) -> list[str]:
    """The pods with our gate and the Jobs that we have suspended."""
    jobs = gangs.client.items(gangs.jobs_path)
    ours = [job for job in jobs if job["metadata"].get("annotations", {}).get(names.HELD_BY)]
    return held_pods(gangs) + [job["metadata"]["name"] for job in ours if job["spec"].get("suspend")]


def running_pods(gangs: Namespace) -> set[str]:
    pods = gangs.client.items(f"/api/v1/namespaces/{gangs.name}/pods")
    return {pod["metadata"]["uid"] for pod in pods if pod["metadata"]["labels"].get("job-name") == "runs"}


def left(plane: ControlPlane) -> list[str]:
    """What is left of the installation; a namespace that is being deleted is not."""
    found = [(one.called, plane.client.find(one.path(NAMESPACE))) for one in everything(NAMESPACE)]
    return [called for called, body in found if body and "deletionTimestamp" not in body["metadata"]]


def test_nothing_is_changed_without_all_rights(plane: ControlPlane, gangs: Namespace, tmp_path: Path) -> None:
    """The plan is shown, with each right that is missing."""
    before = left(plane)
    every = [rule("*", group=group) for group in ("", "apps", "batch", names.API_GROUP, "kubeflow.org")]
    others = ("admissionregistration.k8s.io", "rbac.authorization.k8s.io", "apiextensions.k8s.io", "policy")
    every += [rule("*", group=group) for group in (*others, "networking.k8s.io", "coordination.k8s.io")]
    reader = caller(plane, tmp_path, namespace=gangs.name, name="reader", everywhere=every)
    done = topogate(reader, "uninstall", "--yes")
    assert done.returncode == 1
    assert "1. webhooks     delete 2 ValidatingWebhookConfigurations" in done.stdout
    for right in (
        "no right to patch pods\n",
        "no right to patch pytorchjobs.kubeflow.org\n",
        "no right to delete namespaces topogate-system\n",
        "nothing was changed\n",
    ):
        assert right in done.stderr
    tenant = caller(plane, tmp_path, namespace=gangs.name, name="tenant", in_namespace=[rule("pods")])
    blind = topogate(tenant, "uninstall", "--dry-run")
    assert blind.returncode == 1
    unseen = "no right to get mutatingwebhookconfigurations.admissionregistration.k8s.io topogate, topogate-policy\n"
    assert unseen in blind.stderr
    assert "no right to list jobs.batch in namespace topogate-system\n" in blind.stderr
    assert ("cannot get" in blind.stderr, "Traceback" in blind.stderr) == (False, False)
    assert left(plane) == before


def test_nothing_is_changed_with_another_namespace_than_the_services(plane: ControlPlane, gangs: Namespace) -> None:
    """Its replicas would not be found there: they would run on and hold again what is released."""
    before = left(plane)
    done = topogate(plane.kubeconfig, "uninstall", "--yes", "--service-namespace", "default")
    assert done.returncode == 1
    assert f'is for a service in namespace "{NAMESPACE}": use --service-namespace\n' in done.stderr
    assert done.stderr.endswith("nothing was changed\n")
    assert left(plane) == before
    assert len(held_pods(gangs)) == 3


def test_a_dry_run_shows_the_plan(plane: ControlPlane, gangs: Namespace) -> None:
    """Counts by namespace, and what keeps the gate."""
    before = left(plane)
    shown = topogate(plane.kubeconfig, "uninstall", "--dry-run")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "3. release      2 workloads resumed, 3 pods released (work 5); 1 gang with slots runs on" in shown.stdout
    assert "2 running workloads with the gate in a template: deployment/serve (work), job/runs (work)" in shown.stdout
    assert "stays:" not in shown.stdout
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    plane.client.create(claims, {"metadata": {"name": "data"}, "spec": claim})
    kept = topogate(plane.kubeconfig, "uninstall", "--dry-run")
    plane.client.patch(f"{claims}/data", {"metadata": {"finalizers": None}})
    plane.client.delete(f"{claims}/data")
    assert "stays: Namespace topogate-system: others use it: persistentvolumeclaims/data\n" in kept.stdout
    assert left(plane) == before


def test_everything_is_removed_whatever_interrupts_it(plane: ControlPlane, gangs: Namespace, service: Service) -> None:
    """While the leader lives nothing is released; killed after every step, it goes on; what runs goes on too.

    Users go on as well, and none of their calls fails because of it.
    """
    load = SteadyLoad(plane.client, gangs, rate=10.0)
    load.gangs_wanted = False  # they would be among those that are counted here
    with load:
        load.goes_well()
        remove_everything(plane, gangs, service)
        load.goes_well()
    assert load.failed() == []
    client, admin = plane.client, plane.kubeconfig
    again = topogate(admin, "uninstall", "--yes")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines()[0] == "Topogate is not installed, and nothing is held"
    assert not client.find(f"{HOOKS}/mutatingwebhookconfigurations/topogate")


def remove_everything(plane: ControlPlane, gangs: Namespace, service: Service) -> None:
    """Run the program again and again, and interrupt it once in every step."""
    client, admin = plane.client, plane.kubeconfig
    runs = running_pods(gangs)
    with topogate_running(admin, "uninstall", "--yes"):
        gone = [one.path(NAMESPACE) for one in WEBHOOKS]
        eventually(lambda: not any(client.find(path) for path in gone), timeout=120, message="the webhooks are deleted")
    assert len(held_pods(gangs)) == 3
    service.stop()
    said: list[str] = []
    pending = set(INTERRUPTIONS)
    while not any(line in text for text in said for line in OVER):
        with topogate_running(admin, "uninstall", "--yes") as run:
            assert run.stdout is not None
            for text in run.stdout:
                said.append(text)
                if any(line in text for line in pending):
                    run.kill()
                if ": deleted" in text and any(word in text for word in TO_RELEASE):
                    assert held(gangs) == [], f"still held when it was said: {text}"
            # What it did in its last moment may not have been printed.
            pending -= {line for line in pending if any(line in text for text in said)}
        assert running_pods(gangs) == runs
        assert len(said) < 500, "".join(said)  # it ends
    assert len(pending) < len(INTERRUPTIONS), "".join(said)
    kept = "deployment/serve (work), job/runs (work). Pods that they create later are held"
    if any(OVER[0] in text for text in said):  # else it was killed between its last step and these words
        assert any(kept in text for text in said)
    assert left(plane) == []
    assert held_pods(gangs) == []
    jobs = f"/apis/batch/v1/namespaces/{gangs.name}/jobs"
    suspended = {name: client.get(f"{jobs}/{name}")["spec"]["suspend"] for name in ("waits", "own", "runs")}
    assert suspended == {"waits": False, "own": True, "runs": False}
    assert "schedulingGates" not in client.get(f"{jobs}/own")["spec"]["template"]["spec"]
    torch = client.get(f"/apis/kubeflow.org/v1/namespaces/{gangs.name}/pytorchjobs/torch")
    assert torch["spec"]["runPolicy"]["suspend"] is False
    assert running_pods(gangs) == runs
