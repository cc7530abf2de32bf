"""The chart in the hands of the real Helm: installed, upgraded and uninstalled beside a running service.

The API server of the tests reaches no Service: a post-renderer writes the address of a process into the webhook
configurations, and nothing else. No kubelet runs the pods; what the Job of the uninstall does is done here, with its
own arguments and its own service account.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api import names
from hack.chart import CHART
from local.controlplane import ControlPlane
from local.credentials import kubeconfig
from local.ports import free_ports
from local.service import CONFIGURATIONS, NAMESPACE, Service
from tests.support.charts import Helm, HelmRefused
from tests.support.cli import topogate
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import Namespace, require

POST_RENDERER = """\
import sys, yaml
documents = [one for one in yaml.load_all(sys.stdin, yaml.CSafeLoader) if one]
for one in documents:
    for hook in one.get("webhooks", ()):
        service = hook["clientConfig"].pop("service")
        hook["clientConfig"]["url"] = "https://127.0.0.1:" + sys.argv[1] + service["path"]
yaml.dump_all(documents, sys.stdout, yaml.CSafeDumper)
"""
POLICY = {"topologies": [{"name": "default", "preset": "demo"}], "nodes": {"settle": "0s"}}
IN = ("--namespace", NAMESPACE)
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LAST_GOOD = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{names.LAST_GOOD_POLICY_NAME}"
# Of everything that the chart and the service make, in the cluster and in the namespace of the service.
KINDS = "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,crds,clusterroles,"
KINDS += "clusterrolebindings,validatingadmissionpolicybindings"
OWN_KINDS = (
    "deployments,jobs,pods,services,secrets,configmaps,leases,serviceaccounts,roles,rolebindings,resourcequotas,"
)
OWN_KINDS += "networkpolicies,poddisruptionbudgets"


@pytest.fixture(scope="module")
def service(plane: ControlPlane) -> Iterator[Service]:
    """Replicas for the objects that Helm installs; nothing runs yet."""
    running = Service(plane, free_ports(1)[0], plane.directory / "service")
    running.directory.mkdir(mode=0o700)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def local_helm(helm: Helm, plane: ControlPlane, service: Service, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm as admin of the control plane, with the post-renderer `local`."""
    found = Helm(helm.program, tmp_path_factory.mktemp("local-helm"), plane.kubeconfig)
    plugin = found.folder / "plugins" / "local"
    plugin.mkdir(parents=True)
    (plugin / "local.py").write_text(POST_RENDERER)
    command = {"command": sys.executable, "args": [str(plugin / "local.py"), str(service.port)]}
    about = {
        "name": "local",
        "version": "1.0.0",
        "apiVersion": "v1",
        "type": "postrenderer/v1",
        "runtime": "subprocess",
        "runtimeConfig": {"platformCommand": [command]},
    }
    (plugin / "plugin.yaml").write_text(json.dumps(about))
    return found


@pytest.fixture(scope="module")
def installed(local_helm: Helm, plane: ControlPlane, service: Service) -> Helm:
    """The chart, with a policy, and a replica that leads."""
    local_helm.run(
        "install", "topogate", str(CHART), *IN, "--create-namespace", "--post-renderer", "local",
        values={"policy": POLICY},
    )  # fmt: skip
    service.start(1)
    eventually(service.leader, message="the replica leads")
    return local_helm


@pytest.fixture(scope="module")
def team(plane: ControlPlane) -> Namespace:
    """A namespace with a Job that waits: there are no nodes."""
    plane.client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    return Namespace(plane.client, "team", Fleet(plane.client, ""))


def bundles(plane: ControlPlane) -> set[str]:
    return {hook["clientConfig"]["caBundle"] for path in CONFIGURATIONS for hook in plane.client.get(path)["webhooks"]}


def test_what_helm_installs_works(installed: Helm, plane: ControlPlane, team: Namespace) -> None:
    """The service has the rights and the policy of the chart: a Job is held, and is told why it waits."""
    team.submit("waits", pods=2, annotations=require("rack"))
    team.waits("waits")
    assert team.job("waits")["spec"]["suspend"] is True
    kept = eventually(lambda: plane.client.find(LAST_GOOD), message="the leader keeps the policy in force")
    assert "preset: demo" in kept["data"][names.POLICY_KEY]
    # The release is in the namespace of the service: it was there before, and is not the chart's.
    assert "meta.helm.sh/release-name" not in plane.client.get(f"/api/v1/namespaces/{NAMESPACE}")["metadata"].get(
        "annotations", {}
    )


def test_an_upgrade_changes_what_the_values_say_and_nothing_else(
    installed: Helm, plane: ControlPlane, service: Service, team: Namespace
) -> None:
    """The CA bundle of the leader stays, the policy in force changes, and who waits goes on waiting."""
    before = bundles(plane)
    changed = {**POLICY, "queue": {"patience": "3m"}}
    installed.run(
        "upgrade", "topogate", str(CHART), *IN, "--post-renderer", "local",
        values={"policy": changed, "replicas": 3, "spread": {"hosts": "required"}},
    )  # fmt: skip
    deployment = plane.client.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/topogate")
    assert deployment["spec"]["replicas"] == 3
    affinity = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert [*affinity] == ["requiredDuringSchedulingIgnoredDuringExecution"]
    eventually(
        lambda: "patience: 3m" in plane.client.get(LAST_GOOD)["data"][names.POLICY_KEY],
        message="the leader has taken the new policy",
    )
    assert bundles(plane) == before
    team.submit("later", pods=2, annotations=require("rack"))
    team.waits("later")
    assert [team.job(name)["spec"]["suspend"] for name in ("waits", "later")] == [True, True]
    with pytest.raises(HelmRefused, match="mode"):  # our webhook refuses what the schema of the chart cannot see
        installed.run(
            "upgrade", "topogate", str(CHART), *IN, "--post-renderer", "local",
            values={"policy": "mode: enforcing\n"},
        )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("crd", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/placements.topogate.dev"),
        ("namespace", f"/api/v1/namespaces/{NAMESPACE}"),
    ],
)
def test_an_upgrade_that_would_delete_everything_is_refused(
    installed: Helm, plane: ControlPlane, value: str, path: str
) -> None:
    """Helm deletes what a release has no more; a definition goes with all its objects, a namespace too.

    Unless it is told to leave the object: then whoever wants it elsewhere may take it out.
    """

    def upgrade() -> str:
        return installed.run(
            "upgrade", "topogate", str(CHART), *IN, "--post-renderer", "local", "--dry-run=server",
            values={"policy": POLICY, value: {"create": False}},
        )  # fmt: skip

    def annotate(**annotations: str | None) -> None:
        plane.client.patch(path, {"metadata": {"annotations": annotations}}, kind="merge")

    owned = {"meta.helm.sh/release-name": "topogate", "meta.helm.sh/release-namespace": NAMESPACE}
    before = plane.client.get(path)["metadata"].get("annotations", {})
    annotate(**owned)  # the namespace is not the chart's here
    try:
        with pytest.raises(HelmRefused, match=rf"{value}\.create: .* would delete .*helm\.sh/resource-policy=keep"):
            upgrade()
        annotate(**{"helm.sh/resource-policy": "keep"})
        upgrade()
    finally:
        annotate(**{"helm.sh/resource-policy": None}, **{key: before.get(key) for key in owned})


def as_kubelet(
    plane: ControlPlane, service: Service, folder: Path, done: list[subprocess.CompletedProcess[str]]
) -> None:
    """Do what the pod of the uninstall's Job does, with its arguments and its account, and say that it has ended."""
    selector = "app.kubernetes.io/name=topogate-uninstall"
    pods = eventually(lambda: plane.client.items(PODS, selector=selector), message="the Job has made its pod")
    spec = pods[0]["spec"]
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{spec['serviceAccountName']}/token"
    token = plane.client.create(account, {"spec": {"expirationSeconds": 600}})["status"]["token"]
    mine = folder / "uninstall.kubeconfig"
    mine.write_bytes(kubeconfig(plane.url, ca_certificate=plane.ca_certificate, user="uninstall", token=token))
    ending = threading.Thread(target=ends_with_its_deployment, args=(plane, service))
    ending.start()
    done.append(topogate(mine, *spec["containers"][0]["args"]))
    ending.join()
    phase = {"status": {"phase": "Failed" if done[0].returncode else "Succeeded"}}
    plane.client.patch(f"{PODS}/{pods[0]['metadata']['name']}/status", phase, kind="merge")


def ends_with_its_deployment(plane: ControlPlane, service: Service) -> None:
    """End the replicas when their Deployment has gone, as the kubelets would."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/topogate"
    eventually(lambda: plane.client.find(path) is None, message="the Deployment is deleted")
    service.stop()


def test_an_uninstall_releases_everything_and_leaves_nothing(
    installed: Helm, plane: ControlPlane, service: Service, team: Namespace, tmp_path: Path
) -> None:
    """The Job of the hook has all the rights that it needs, nothing stays held, and its rights go with it."""
    done: list[subprocess.CompletedProcess[str]] = []
    kubelet = threading.Thread(target=as_kubelet, args=(plane, service, tmp_path, done))
    kubelet.start()
    installed.run("uninstall", "topogate", *IN, "--timeout", "240s")
    kubelet.join()
    assert (done[0].returncode, done[0].stderr.count("no right")) == (0, 0), done[0].stdout + done[0].stderr
    jobs = [team.job(name) for name in ("waits", "later")]
    assert [job["spec"]["suspend"] for job in jobs] == [False, False]
    assert [names.HELD_BY in job["metadata"].get("annotations", {}) for job in jobs] == [False, False]
    # The definition goes last: when the API server has deleted its objects, and Helm does not wait for that.
    eventually(lambda: everywhere(plane) == [], message=lambda: f"nothing is left of {everywhere(plane)}")
    eventually(lambda: own(plane) == [], message=lambda: f"nothing is left of {own(plane)}")


def everywhere(plane: ControlPlane) -> list[str]:
    return [one for one in plane.kubectl("get", KINDS, "-o", "name").stdout.split() if "topogate" in one]


def own(plane: ControlPlane) -> list[str]:
    found = plane.kubectl("get", OWN_KINDS, *IN, "-o", "name").stdout.split()
    return sorted(set(found) - {"serviceaccount/default", "configmap/kube-root-ca.crt"})
