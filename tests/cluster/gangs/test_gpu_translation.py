"""GPU requests on nodes that call GPUs by different names: who is translated, and where the scheduler binds him."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from subprocess import CompletedProcess
from typing import Any

import pytest

from engine.api import names
from engine.resources.names import CORE, GPU, MEMORY, NVIDIA, RATIO
from local.client import Client, ClientError
from local.controlplane import ControlPlane
from local.nodes import HostShape
from local.service import Service
from tests.cluster.gangs.conftest import POLICY_CONFIGURATIONS, TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.raw_pods import GATE
from tests.support.users import ordinary_user

pytestmark = pytest.mark.core

Kubectl = Callable[..., CompletedProcess[str]]
WHOLE = {CORE: "100", RATIO: "100"}
HALF = {CORE: "50", RATIO: "50"}


def dimensions(gpus: int) -> HostShape:
    """A host that reports its GPUs as Koordinator does, and not as NVIDIA's device plugin."""
    percent = str(100 * gpus)
    return HostShape(gpus=0, extended={CORE: percent, RATIO: percent, MEMORY: f"{80 * gpus}Gi"})


def asking(resources: Mapping[str, Mapping[str, Any]], *, kind: str = "containers") -> Json:
    """A pod spec with a container of these resources."""
    container = {"name": "gpu", "image": "example.com/train:1", "resources": resources}
    spec: Json = {"containers": [{"name": "main", "image": "example.com/train:1"}]}
    return {**spec, kind: [container]}


def resources(document: Json) -> list[Json]:
    """What the containers of a pod, or of a Job's template, ask for."""
    spec = document["spec"].get("template", document)["spec"]
    return [one["resources"] for one in [*spec["containers"], *spec.get("initContainers", [])] if one.get("resources")]


def bare_pod(gangs: Namespace, name: str, spec: Json, **metadata: Any) -> Json:
    """Somebody's own pod, created; as it is stored."""
    path = f"/api/v1/namespaces/{gangs.name}/pods"
    spec = {"nodeSelector": gangs.fleet.selector, "terminationGracePeriodSeconds": 1, **spec}
    stored: Json = gangs.client.create(path, {"metadata": {"name": name, **metadata}, "spec": spec})
    return stored


def known(gangs: Namespace, *wanted: str, gone: tuple[str, ...] = ()) -> None:
    """Wait until the service knows which names nodes report: a dry run is translated as they say."""

    def look() -> bool:
        body = job_body("probe", pods=1, annotations=require("host"), pod_spec=asking({"limits": {GPU: "10"}}))
        stored = gangs.client.create(gangs.jobs_path, body, dry_run=True)
        dims = CORE in resources(stored)[0]["limits"]
        body = job_body("probe", pods=1, gpus=1, annotations=require("host"))
        whole = NVIDIA in resources(gangs.client.create(gangs.jobs_path, body, dry_run=True))[0]["limits"]
        seen = {name for name, there in ((CORE, dims), (NVIDIA, whole)) if there}
        return seen == {*wanted} - {*gone}

    # Asked several times: two replicas answer in turns.
    eventually(lambda: all(look() for _ in range(4)), message=f"nodes report {wanted}")


def test_nodes_that_report_whole_gpus_only(gangs: Namespace) -> None:
    """Nothing is renamed there: whole GPUs run, a part of one can run nowhere, and nobody is pinned to a host."""
    gangs.fleet.grid("1x1x2")
    known(gangs, NVIDIA)
    stored = gangs.submit("whole", pods=2, gpus=8, annotations=require("rack"))
    assert resources(stored)[0]["limits"][NVIDIA] == "8"
    gangs.all_bound("whole", 2)
    gangs.submit("part", pods=2, annotations=require("rack"), pod_spec=asking({"requests": {GPU: "50"}}))
    gangs.waits("part")
    assert gangs.pods("part") == []


def test_nodes_that_report_dimensions_only(gangs: Namespace) -> None:
    """Whole GPUs and parts of them, requests alone, in any container: written in dimensions, placed and bound."""
    gangs.fleet.grid("1x1x2", shape=dimensions(2))
    known(gangs, CORE)
    stored = gangs.submit("whole", pods=1, gpus=2, annotations=require("rack"))
    assert resources(stored)[0]["limits"] == (two := {CORE: "200", RATIO: "200"})
    assert {name: resources(stored)[0]["requests"][name] for name in two} == two
    whole = gangs.all_bound("whole", 1)
    stored = gangs.submit("parts", pods=4, annotations=require("rack"), pod_spec=asking({"requests": {GPU: "50"}}))
    assert resources(stored) == [{"requests": HALF, "limits": HALF}]
    parts = gangs.all_bound("parts", 4)
    assert set(whole.values()).isdisjoint(parts.values())
    assert list(Counter(parts.values()).values()) == [4]
    for pod in gangs.pods("parts"):
        assert resources(pod) == [{"requests": HALF, "limits": HALF}]


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize(
    "written",
    [
        {GPU: "50"},
        {CORE: "50", RATIO: "60"},
        {CORE: "60", MEMORY: "4Gi"},
        {MEMORY: "8Gi"},
        {RATIO: 30},
        {GPU: "200"},
    ],
    ids=lambda written: "+".join(name.rpartition("/")[2] for name in written),
)
def test_requests_alone_run_as_they_are_written(gangs: Namespace, written: Json, kind: str) -> None:
    """The server refuses extended resources without limits; we complete them before it looks, in Jobs and in pods."""
    gangs.fleet.grid("1x1x1", shape=dimensions(6))
    known(gangs, CORE)
    gangs.submit("gang", pods=1, annotations=require("host"), pod_spec=asking({"requests": written}, kind=kind))
    gangs.submit("plain", pods=1, pod_spec=asking({"requests": written}, kind=kind))
    bare_pod(gangs, "bare", asking({"requests": written}, kind=kind))
    gangs.all_bound("gang", 1)
    gangs.all_bound("plain", 1)
    path = f"/api/v1/namespaces/{gangs.name}/pods/bare"
    eventually(lambda: gangs.client.get(path)["spec"].get("nodeName"), message="the pod is bound")
    assert gangs.placement("plain") is None


def test_mixed_nodes_each_get_what_they_can_run(gangs: Namespace) -> None:
    """Whole GPUs go to nodes that report them, parts to those that report dimensions; more of either waits."""
    plain = gangs.fleet.grid("1x1x2", shape=HostShape(gpus=2))
    told = [gangs.fleet.host(f"host-1{n}", block="block-0", rack="rack-00", shape=dimensions(2)) for n in range(2)]
    known(gangs, NVIDIA, CORE)
    gangs.submit("whole", pods=2, gpus=2, annotations=require("rack"))
    gangs.submit("parts", pods=2, annotations=require("rack"), pod_spec=asking({"limits": {GPU: "200"}}))
    assert set(gangs.all_bound("whole", 2).values()) == set(plain)
    assert set(gangs.all_bound("parts", 2).values()) == set(told)
    gangs.submit("more", pods=1, gpus=1, annotations=require("rack"))
    gangs.submit("more-parts", pods=1, annotations=require("rack"), pod_spec=asking({"limits": {GPU: "10"}}))
    for name in ("more", "more-parts"):
        gangs.waits(name)
        assert gangs.pods(name) == []


def test_unmanaged_pods_are_untouched_until_the_policy_says_so(
    gangs: Namespace, policy: PolicyInForce, client: Client
) -> None:
    """`nvidia.com/gpu` of others is not even sent; for `scope: all` the leader adds an entry, and takes it away."""
    gangs.fleet.grid("1x1x1", shape=dimensions(4))
    known(gangs, CORE)
    one = asking({"limits": {NVIDIA: "1"}})
    assert resources(bare_pod(gangs, "before", one)) == [{"limits": {NVIDIA: "1"}, "requests": {NVIDIA: "1"}}]
    assert all("webhooks" not in client.get(path) for path in POLICY_CONFIGURATIONS)
    policy.set(TEST_POLICY + "gpu: {scope: all}\n")
    eventually(
        lambda: any(client.get(path).get("webhooks") for path in POLICY_CONFIGURATIONS),
        message="the leader adds the entry",
    )
    tried = iter(range(1000))

    def translated() -> bool:
        return CORE in resources(bare_pod(gangs, f"with-{next(tried)}", one))[0]["limits"]

    eventually(translated, message="the entry is in force")
    policy.set(TEST_POLICY)
    eventually(
        lambda: all("webhooks" not in client.get(path) for path in POLICY_CONFIGURATIONS),
        message="the leader takes it away",
    )


def test_a_wrong_request_is_refused_with_every_path(gangs: Namespace, kubectl: Kubectl) -> None:
    """In Jobs and pods that ask for no topology too; kubectl prints a line per error."""
    gangs.fleet.grid("1x1x1", shape=dimensions(1))
    body = job_body("wrong", pods=1, pod_spec=asking({"limits": {GPU: "150"}}))
    body["spec"]["template"]["spec"]["containers"].append(
        {"name": "two", "image": "x", "resources": {"requests": {CORE: "50"}}}
    )
    answer = kubectl("create", "-f", "-", input=json.dumps(body), check=False)
    assert answer.returncode == 1
    at = "spec.template.spec.containers"
    assert f"* {at}[0].resources.limits[{GPU}]: Invalid value: " in answer.stderr
    assert f"* {at}[1].resources.requests[{CORE}]: Forbidden: " in answer.stderr
    with pytest.raises(ClientError) as refusal:
        bare_pod(gangs, "wrong", asking({"limits": {GPU: "50", NVIDIA: "1"}}))
    assert refusal.value.status == 422
    assert f"spec.containers[0].resources.limits[{NVIDIA}]" in refusal.value.message


@pytest.mark.parametrize("merge", ["client", "server"])
@pytest.mark.parametrize("asks", [require("rack"), {}], ids=["asks for topology", "asks for none"])
def test_the_same_file_applied_again_changes_nothing(
    gangs: Namespace, kubectl: Kubectl, merge: str, asks: dict[str, str]
) -> None:
    """A live Job whose template names something else than the file: accepted, and everything is as it was.

    With server-side apply to the resourceVersion; kubectl's own merge sends the names of the file each time, says
    "configured", and the server notes when it was asked (managedFields).
    """
    gangs.fleet.grid("1x1x1", shape=dimensions(1))
    known(gangs, CORE)
    body = job_body(
        "train", pods=1, annotations=asks, selector=gangs.fleet.selector, pod_spec=asking({"requests": {GPU: "50"}})
    )
    del body["spec"]["template"]["metadata"]
    if not asks:
        del body["metadata"]["annotations"]
    options = ["--server-side"] if merge == "server" else []
    kubectl("apply", *options, "-f", "-", input=json.dumps(body))
    gangs.all_bound("train", 1)

    def quiet() -> Json | None:
        job = gangs.job("train")
        over = gangs.phase("train") in ("Running", "") and job.get("status", {}).get("ready", 0) == 1
        return job if over else None

    before = eventually(quiet, message="the Job is quiet")
    assert before is not None
    kubectl("apply", *options, "-f", "-", input=json.dumps(body))
    after = gangs.job("train")
    if merge == "client":
        for job in (before, after):
            del job["metadata"]["resourceVersion"], job["metadata"]["managedFields"]
    assert after == before


@pytest.mark.since("1.36", "container resources of a suspended Job may change")
def test_a_share_that_is_changed_while_its_gang_waits_is_planned_anew(gangs: Namespace, kubectl: Kubectl) -> None:
    """A part too large for the free GPU is made smaller in the file: what we had made of it goes, and it starts."""
    gangs.fleet.grid("1x1x1", shape=dimensions(1))
    known(gangs, CORE)
    gangs.submit("first", pods=1, annotations=require("host"), pod_spec=asking({"limits": {GPU: "60"}}))
    gangs.all_bound("first", 1)
    body = job_body("train", pods=1, annotations=require("host"), selector=gangs.fleet.selector)
    body["spec"]["template"]["spec"].update(asking({"limits": {GPU: "60"}}))
    kubectl("apply", "-f", "-", input=json.dumps(body))
    gangs.waits("train")
    body["spec"]["template"]["spec"].update(asking({"limits": {GPU: "40"}}))
    kubectl("apply", "-f", "-", input=json.dumps(body))
    gangs.all_bound("train", 1)
    assert resources(gangs.job("train")) == [{"limits": (forty := {CORE: "40", RATIO: "40"}), "requests": forty}]


def test_while_the_service_is_down_nobody_is_stopped_for_his_gpus(gangs: Namespace, service: Service) -> None:
    """What we only translated is created, scaled and deleted without us."""
    gangs.fleet.grid("1x1x1", shape=dimensions(4))
    known(gangs, CORE)
    gangs.submit("before", pods=1, pod_spec=asking({"limits": {GPU: "50"}}))
    gangs.all_bound("before", 1)
    service.kill_all()
    gangs.client.patch(f"{gangs.jobs_path}/before", {"metadata": {"labels": {"a": "b"}}, "spec": {"parallelism": 0}})
    stored = gangs.submit("during", pods=1, pod_spec=asking({"limits": {GPU: "50"}}))
    assert resources(stored) == [{"limits": {GPU: "50"}}]
    assert GATE not in json.dumps(bare_pod(gangs, "bare", asking({"limits": WHOLE})))
    gangs.client.delete(f"{gangs.jobs_path}/before")


def test_users_choose_no_devices(gangs: Namespace, control_plane: ControlPlane) -> None:
    """Neither at the creation of a pod nor later, and not in a template."""
    user = ordinary_user(control_plane, gangs.name)
    path = f"/api/v1/namespaces/{gangs.name}/pods"
    chosen = {names.DEVICE_ALLOCATED: '{"gpu":[{"minor":0,"resources":{}}]}'}
    body: Json = {"metadata": {"name": "own"}, "spec": asking({})}
    with pytest.raises(ClientError, match="device-allocated") as refusal:
        user.create(path, {**body, "metadata": {"name": "own", "annotations": chosen}})
    assert refusal.value.status == 422
    with pytest.raises(ClientError, match="device-allocated"):
        user.create(gangs.jobs_path, job_body("own", pods=1, annotations=require("host"), pod_annotations=chosen))
    user.create(path, body)
    with pytest.raises(ClientError, match="records the devices of a pod") as refusal:
        user.patch(f"{path}/own", {"metadata": {"annotations": chosen}})
    assert refusal.value.status == 403


def unmanaged(gangs: Namespace, how: str) -> str:
    """A policy under which no gang of the namespace is managed."""
    if how == "exempt":
        return f"{TEST_POLICY}namespaces: {{exempt: [{gangs.name}]}}\n"
    return f"{TEST_POLICY}namespaces: {{modes: [{{namespaces: [{gangs.name}], mode: {how}}}]}}\n"


def as_of_a_gang(gangs: Namespace, how: str) -> list[Json]:
    """Metadata and more of a spec with which a pod looks like one of a gang, and like none."""
    job = gangs.submit(f"parent-{how}", pods=1, spec={"suspend": True})
    reference = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    owner = {**reference, "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
    marked = {"labels": {names.MANAGED: "true"}, "ownerReferences": [owner]}
    gated = {"schedulingGates": [{"name": GATE}]}
    return [{"metadata": {}}, {"metadata": marked}, {"metadata": marked, "spec": gated}, {"spec": gated}]


@pytest.mark.parametrize("how", ["observe", "off", "exempt"])
def test_users_choose_no_devices_where_nothing_is_managed(
    gangs: Namespace, control_plane: ControlPlane, policy: PolicyInForce, how: str
) -> None:
    """No mode opens this door, and no mark of a gang; a pod without the annotation is made as it is."""
    user = ordinary_user(control_plane, gangs.name)
    path = f"/api/v1/namespaces/{gangs.name}/pods"
    chosen = {names.DEVICE_ALLOCATED: '{"gpu":[{"minor":0,"resources":{}}]}'}
    policy.set(unmanaged(gangs, how))

    def refused(body: Json) -> bool:
        try:
            user.create(path, body, dry_run=True)
        except ClientError as error:
            assert (error.status, "device-allocated" in error.message) == (422, True), error.message
            return True
        return False

    for number, one in enumerate(as_of_a_gang(gangs, how)):
        metadata, spec = one.get("metadata", {}), asking({"limits": {NVIDIA: "1"}}) | one.get("spec", {})
        plain = {"metadata": {"name": f"own-{number}", **metadata}, "spec": spec}
        forged = {"metadata": {**plain["metadata"], "annotations": chosen}, "spec": spec}
        # The leader writes the entries of a policy a moment later, and the API server takes them a moment after that.
        eventually(lambda forged=forged: refused(forged), message=f"form {number} is refused")
        user.create(path, plain, dry_run=True)


def test_while_the_service_is_down_only_writers_change_devices(
    gangs: Namespace, service: Service, control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    """A pod's user neither names, changes nor removes them, not as its status either; all else he may change."""
    status = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch", "update"]}
    user = ordinary_user(control_plane, gangs.name, rules=[status])
    given, other = (json.dumps({"gpu": [{"minor": minor, "resources": {}}]}) for minor in (0, 1))
    bare_pod(gangs, "given", asking({}), annotations={names.DEVICE_ALLOCATED: given})
    bare_pod(gangs, "bare", asking({}))
    service.kill_all()
    pods = f"/api/v1/namespaces/{gangs.name}/pods"
    for pod, value in (("bare", other), ("given", other), ("given", None)):
        for part in ("", "/status"):
            with pytest.raises(ClientError, match="records the devices of a pod") as refusal:
                user.patch(f"{pods}/{pod}{part}", {"metadata": {"annotations": {names.DEVICE_ALLOCATED: value}}})
            assert refusal.value.status == 403
    same = {names.DEVICE_ALLOCATED: given, "note": "mine"}
    user.patch(f"{pods}/given", {"metadata": {"annotations": same, "labels": {"team": "a"}}})
    user.patch(f"{pods}/given/status", {"status": {"message": "seen"}})
    stored = gangs.client.get(f"{pods}/given")
    assert stored["metadata"]["annotations"].items() >= same.items()
    assert (stored["metadata"]["labels"]["team"], stored["status"]["message"]) == ("a", "seen")

    scheduler = {"kind": "ServiceAccount", "name": "koord-scheduler", "namespace": "koordinator-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{gangs.name}/rolebindings"
    gangs.client.create(bindings, {"metadata": {"name": "scheduler"}, "roleRef": role, "subjects": [scheduler]})
    account = f"--as=system:serviceaccount:{scheduler['namespace']}:{scheduler['name']}"
    written = ("annotate", "--overwrite", account, "pod/bare", f"{names.DEVICE_ALLOCATED}={other}")
    # The authorizer may not know the new binding at once.
    eventually(lambda: kubectl(*written, check=False).returncode == 0, message="Koordinator's scheduler gives devices")
    assert gangs.client.get(f"{pods}/bare")["metadata"]["annotations"][names.DEVICE_ALLOCATED] == other
