"""The manifests on a real API server: they apply, guard, grant no more than needed, and send what they should.

On a control plane of their own: the session's one belongs to tests that run the service behind the same names.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.api import names
from engine.api.placement import Assignment, Placement, PodSetPlan, PodSetRequest, Slot, WorkloadRef
from engine.autoscaling.attempts import last_request
from engine.autoscaling.text import request_body
from engine.decoding.placements import placement_body
from engine.gang.summary import GangSummary
from engine.lifecycle.actions import RestartProposal, Status
from engine.lifecycle.status import details_body, status_body
from engine.scheduler.outcome import BestDomain, Placed, Proposal, Shortage
from engine.scheduler.queue import QueuePlace
from local.client import Client, ClientError
from local.controlplane import ControlPlane
from tests.support.eventually import eventually
from tests.support.installed import CONFIGURATIONS, HOOKS, OTHERS, install, local_overlay, render
from tests.support.leader import merged
from tests.support.pages import pages
from tests.support.provisioning import DIGEST, START, answered, asked, rules
from tests.support.recorder import Recorder, label_workloads
from webhook.configuration import first_look
from webhook.connections.review_head import review_head

pytestmark = pytest.mark.core

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "team"
SELECTABLE = pytest.mark.since("1.31", "custom resources have selectable fields")
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
TGP = f"/apis/topogate.dev/v1alpha1/namespaces/{NAMESPACE}/placements"
OUR_USER = f"system:serviceaccount:{names.NAMESPACE}:{names.SERVICE_ACCOUNT}"

BOTH = [("/mutate", "CREATE", "Job"), ("/validate", "CREATE", "Job")]
# As a set: the API server tries a PATCH again, webhooks included, when a controller wrote in between.
BOTH_UPDATE = {("/mutate", "UPDATE", "Job"), ("/validate", "UPDATE", "Job")}
OF_OTHERS = (OTHERS, "CREATE", "Job")
GATE = {"name": names.GATE}


@pytest.fixture(scope="module")
def overlay(plane: ControlPlane, recorder: Recorder) -> str:
    return local_overlay(plane, recorder)


@pytest.fixture(scope="module")
def admin(plane: ControlPlane, recorder: Recorder) -> Client:
    """The admin (group system:masters) of a control plane that has the manifests and calls the recorder."""
    asks = {names.REQUIRE: "rack"}
    return install(plane, recorder, namespace=NAMESPACE, probe=lambda client: create(client, job(annotations=asks)))


@pytest.fixture(scope="module")
def service(plane: ControlPlane, admin: Client) -> Client:
    """Our own ServiceAccount."""
    return account(plane, admin, names.NAMESPACE, names.SERVICE_ACCOUNT)


@pytest.fixture(scope="module")
def powerful(plane: ControlPlane, admin: Client) -> Client:
    """Somebody whom RBAC allows everything, without being one of the policy's admins."""
    admin.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "powerful"}})
    admin.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "powerful"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "powerful", "namespace": NAMESPACE}],
        },
    )
    client = account(plane, admin, NAMESPACE, "powerful")

    def able() -> bool:
        try:
            return bool(client.get("/api/v1/nodes"))
        except ClientError:
            return False

    eventually(able, message="the binding is in force")
    return client


def account(plane: ControlPlane, admin: Client, namespace: str, name: str) -> Client:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token = admin.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    return Client(plane.url, token=token, ca_certificate=plane.ca_certificate)


def job(
    name: str = "one",
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    template: dict[str, Any] | None = None,
    gates: tuple[str, ...] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A Job; `template` is the metadata of its pod template, `gates` are the template's."""
    return {
        "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {
            "suspend": True,
            "template": {
                "metadata": template or {},
                "spec": {
                    "restartPolicy": "Never",
                    "schedulingGates": [{"name": gate} for gate in gates],
                    "containers": [{"name": "main", "image": "none"}],
                },
            },
            **spec,
        },
    }


def pod(*, gates: tuple[str, ...] = (), owner: str = "", **metadata: Any) -> dict[str, Any]:
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "1", "controller": True}
        metadata["ownerReferences"] = [reference]
    return {
        "metadata": {"name": "one", **metadata},
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "containers": [{"name": "main", "image": "none"}],
            "automountServiceAccountToken": False,
        },
    }


def create(client: Client, body: dict[str, Any], *, path: str = JOBS) -> None:
    """Create an object as far as admission goes: nothing is stored."""
    client.create(path, body, dry_run=True)


# Applying


@pytest.mark.since("1.31", "an older server drops selectable fields, which kubectl then writes each time")
@pytest.mark.parametrize("side", [[], ["--server-side"]], ids=["client-side", "server-side"])
def test_applying_the_same_manifests_again_changes_nothing(
    plane: ControlPlane, admin: Client, overlay: str, recorder: Recorder, side: list[str]
) -> None:
    """A second apply leaves every object as it is, the leader's CA bundle and its own entries too."""
    entry = {
        "name": "extra.topogate.dev",
        "clientConfig": {"url": f"https://127.0.0.1:{recorder.port}/validate", "caBundle": recorder.ca_bundle},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "rules": [{"apiGroups": ["x"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["y"]}],
    }
    for resource in CONFIGURATIONS:
        path = f"{HOOKS}/{resource}/{names.POLICY_CONFIGURATION}"
        admin.patch(path, {"webhooks": [entry]}, kind="strategic")
    plane.kubectl("apply", *side, "-f", "-", input=overlay)
    eventually(lambda: settled(admin), message="Kubernetes has written the statuses of new objects")
    before = plane.kubectl("get", "-f", "-", "-o", "json", input=overlay).stdout

    again = plane.kubectl("apply", *side, "-f", "-", input=overlay).stdout

    assert plane.kubectl("get", "-f", "-", "-o", "json", input=overlay).stdout == before
    if not side:
        assert [line for line in again.splitlines() if not line.endswith(" unchanged")] == []
    hooks = [
        hook
        for item in json.loads(before)["items"]
        if item["kind"].endswith("WebhookConfiguration")
        for hook in item["webhooks"]
    ]
    assert len(hooks) == 11
    assert all(hook["clientConfig"]["caBundle"] == recorder.ca_bundle for hook in hooks)


def settled(client: Client) -> bool:
    """Whether the definition is established and the expressions of every policy have been checked."""
    definition = client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/placements.topogate.dev")
    true = {one["type"] for one in definition.get("status", {}).get("conditions", ()) if one["status"] == "True"}
    policies = client.items(f"{HOOKS}/validatingadmissionpolicies")
    return "Established" in true and all(
        one.get("status", {}).get("observedGeneration") == one["metadata"]["generation"] for one in policies
    )


def test_the_local_overlay_is_the_base_without_what_needs_containers(plane: ControlPlane) -> None:
    """Everything that is not about pods of ours is the same as in production, but for the webhooks' address."""

    def by_name(folder: str) -> dict[tuple[str, str], Any]:
        return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(render(plane, folder))}

    base, local = by_name("base"), by_name("overlays/local")
    assert {kind for kind, name in base.keys() - local.keys()} == {
        *("Deployment", "ResourceQuota", "Service", "PodDisruptionBudget", "NetworkPolicy"),
    }
    for item in (*base.values(), *local.values()):
        for hook in item.get("webhooks", ()):
            del hook["clientConfig"]
    assert local == {key: base[key] for key in local}


@pytest.mark.parametrize("folder", ["base", "overlays/kind"])
def test_the_manifests_for_a_cluster_with_containers_are_accepted(
    plane: ControlPlane, admin: Client, folder: str
) -> None:
    """Nothing is unknown, out of range, or against the namespace's own security standard."""
    done = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=render(plane, folder))
    assert "Warning" not in done.stderr
    assert "deployment.apps/topogate created (server dry run)" in done.stdout


def test_the_service_s_own_pods_are_admitted(plane: ControlPlane, admin: Client) -> None:
    """The restricted standard, which our namespace enforces, lets in the pods that the Deployment makes."""
    deployment = next(yaml.safe_load_all((MANIFESTS / "base" / "deployment.yaml").read_text()))
    template = deployment["spec"]["template"]
    body = {"metadata": {**template["metadata"], "name": "topogate-0"}, "spec": template["spec"]}
    create(admin, body, path=f"/api/v1/namespaces/{names.NAMESPACE}/pods")
    body["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ClientError, match="violates PodSecurity"):
        create(admin, body, path=f"/api/v1/namespaces/{names.NAMESPACE}/pods")


@pytest.mark.parametrize("sample", sorted(path.name for path in (MANIFESTS / "samples").glob("job-*.yaml")))
def test_the_samples_run_under_the_restricted_standard(plane: ControlPlane, admin: Client, sample: str) -> None:
    """A namespace that enforces it, as ours does, lets in the pods of the sample, and nobody is warned of the Job."""
    job = yaml.safe_load((MANIFESTS / "samples" / sample).read_text())
    pod = {"metadata": {"name": "worker"}, "spec": job["spec"]["template"]["spec"]}
    create(admin, pod, path=f"/api/v1/namespaces/{names.NAMESPACE}/pods")
    pod["spec"]["securityContext"]["runAsUser"] = 0
    with pytest.raises(ClientError, match="violates PodSecurity"):
        create(admin, pod, path=f"/api/v1/namespaces/{names.NAMESPACE}/pods")
    file = str(MANIFESTS / "samples" / sample)
    done = plane.kubectl("apply", "--dry-run=server", "--namespace", names.NAMESPACE, "-f", file)
    assert "created (server dry run)" in done.stdout
    assert "PodSecurity" not in done.stderr


# The Placement's schema


def ownerless(name: str) -> dict[str, Any]:
    """A Placement that stays: the garbage collector takes one away whose owner there is not."""
    body = placement_body(placement(name))
    del body["metadata"]["ownerReferences"]
    return body


def placement(
    name: str = "job-train-7-3f9c2a1b", *, ranked: bool = True, owner: str = "train-7", owner_uid: str = "u-1"
) -> Placement:
    slots = tuple(
        Slot(("block-0", "rack-07", f"host-{28 + i}"), 4, ((4 * i, 4 * i + 3),) if ranked else None) for i in range(2)
    )
    return Placement(
        namespace=NAMESPACE,
        name=name,
        uid="",
        resource_version="",
        workload=WorkloadRef("batch/v1", "Job", owner, owner_uid),
        topology="default",
        priority=-5,
        pod_sets=(PodSetRequest("main", 8, 8, "rack" if ranked else None, None, ranked, "0123456789"),),
        assignment=Assignment(3, (PodSetPlan("main", slots),)),
        deleting=False,
        created=0.0,
    )


SHORT = Shortage(
    16,
    14,
    (BestDomain("block", ("block-0",), 30), BestDomain("rack", ("block-0", "rack-12"), 14)),
    Proposal(level="block", unconstrained=True, toleration="nvidia.com/gpu", pods=14),
    "workers",
)
FULL: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "Placement",
    "metadata": {"name": "job-train-7-3f9c2a1b"},
    "spec": {
        "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": "train-7", "uid": "u-1"},
        "topology": "default",
        "priority": 0,
        "gang": {"require": "block", "prefer": None, "minAvailable": 16},
        "podSets": [
            {
                "name": "main",
                "count": 16,
                "minAvailable": 16,
                "require": "rack",
                "prefer": None,
                "slices": [{"level": "rack", "size": 8}],
                "colocate": None,
                "ranked": True,
                "shapeHash": "0123456789",
            }
        ],
        "assignment": {
            "revision": 3,
            "podSets": [
                {
                    "name": "main",
                    "slots": [
                        {
                            "domain": ["block-0", "rack-07", "host-028"],
                            "count": 4,
                            "ranks": "0-2,9",
                            "devices": [
                                [{"type": "gpu", "minor": 0, "core": 100, "memoryRatio": 100, "memory": "80Gi"}]
                            ],
                        },
                        {"domain": ["block-0", "rack-07", "host-029"], "count": 4, "ranks": None, "devices": None},
                    ],
                }
            ],
        },
    },
}


def changed(path: str, value: object) -> dict[str, Any]:
    """FULL with another value at a dotted path; None as a value takes the field away."""
    body = copy.deepcopy(FULL)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = body
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return body


def strictly(client: Client, body: dict[str, Any]) -> Any:
    return client.request("POST", TGP, body=body, query={"dryRun": "All", "fieldValidation": "Strict"})


def test_a_full_placement_is_kept_as_it_is(admin: Client) -> None:
    """Every field of a Placement is known to the schema, and null stays null."""
    assert strictly(admin, FULL)["spec"] == FULL["spec"]


@pytest.mark.parametrize("ranked", [True, False], ids=["ranked", "unranked"])
def test_what_the_engine_writes_is_kept_as_it_is(admin: Client, ranked: bool) -> None:
    """The schema and the code that writes placements agree."""
    body = placement_body(placement(ranked=ranked))
    assert strictly(admin, body)["spec"] == body["spec"]


FAILED = answered(asked(rules("{className: a}").classes[0]), START, Failed=True)
LAST = last_request([FAILED], DIGEST, rules("{className: a}"), now=START)
NODES = request_body(LAST) if LAST is not None else None


def test_status_is_written_apart_and_shown(plane: ControlPlane, admin: Client) -> None:
    """The status that the engine writes is kept, and `kubectl get tgp` shows what matters."""
    admin.create(TGP, ownerless("shown"))
    facts = Placed((), {"block": 1, "rack": 1, "host": 2}, proven=True, message="", require="rack", prefer=None)
    waits = Status(phase="Waiting", reason="Fragmented", message="needs 16 hosts in one rack; best is rack-12 with 14")
    for status, known in ((Status(phase="Placed", reason="", message="placed"), facts), (waits, None)):
        summary = GangSummary(1, 4, 32, "rack", "b0/r0" if known is not None else "")
        restarts = RestartProposal((("uid-1", 4), ("uid-2", 2))) if known is None else None
        of_waiting = (SHORT, QueuePlace(2, 7), NODES) if known is None else ()
        details = details_body(summary, *of_waiting, restarts=restarts)
        body = status_body({}, status, placed=known, now=1_790_000_000.0, details=details, generation=1)
        stored = admin.patch(f"{TGP}/shown/status", {"status": body}, query={"fieldValidation": "Strict"})["status"]
        assert stored == merged({}, body)
    best = '{.status.have} of {.status.needed} in {.status.best[?(@.level=="rack")].domain}'
    said = plane.kubectl("get", "tgp", "shown", "-n", NAMESPACE, "-o", f"jsonpath={best}").stdout
    assert said == "14 of 16 in block-0/rack-12"
    header, row = plane.kubectl("get", "tgp", "shown", "-n", NAMESPACE).stdout.splitlines()
    assert " ".join(header.split()) == "NAME WORKLOAD PHASE PODS GPUS PLACE QUEUE REASON WAITING AGE MESSAGE"
    assert row.split()[:9] == ["shown", "train-7", "Waiting", "1/4", "32", "2", "of", "7", "Fragmented"]
    assert row.endswith("best is rack-12 with 14")
    wide = plane.kubectl("get", "tgp", "shown", "-n", NAMESPACE, "-o", "wide").stdout
    assert wide.splitlines()[0].split()[-5:] == ["PRIORITY", "LEVEL", "TOPOLOGY", "REVISION", "KIND"]
    assert wide.splitlines()[1].split()[-4:] == ["rack", "default", "3", "Job"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("--selector=topogate.dev/workload-name=chosen", True),
        ("--selector=topogate.dev/workload-kind=JobSet", False),
        pytest.param("--field-selector=spec.workload.name=chosen,spec.workload.kind=Job", True, marks=SELECTABLE),
        pytest.param("--field-selector=status.phase=Waiting,spec.workload.name=chosen", True, marks=SELECTABLE),
        pytest.param("--field-selector=status.reason=QuotaExceeded,spec.topology=default", False, marks=SELECTABLE),
    ],
)
def test_placements_are_selected_by_workload_phase_and_reason(
    plane: ControlPlane, admin: Client, selector: str, found: bool
) -> None:
    """By labels, and by the fields that the CRD names."""
    body = placement_body(placement("chosen", owner="chosen"))
    body["metadata"].pop("ownerReferences")  # else it would be collected
    if admin.find(f"{TGP}/chosen") is None:
        admin.create(TGP, body)
        admin.patch(f"{TGP}/chosen/status", {"status": {"phase": "Waiting", "reason": "Fragmented"}})
    listed = plane.kubectl("get", "tgp", "-n", NAMESPACE, "-o", "name", selector).stdout
    assert ("/chosen" in listed) == found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.workload", None),
        ("spec.workload.name", ""),
        ("spec.workload.uid", 7),
        ("spec.topology", None),
        ("spec.topology", ["default"]),
        ("spec.priority", "high"),
        ("spec.priority", 2**31),
        ("spec.podSets", {}),
        ("spec.podSets.0.count", -1),
        ("spec.podSets.0.count", "16"),
        ("spec.podSets.0.count", 1.5),
        ("spec.podSets.0.ranked", "yes"),
        ("spec.podSets.0.unheard", 1),
        ("spec.assignment.revision", 0),
        ("spec.assignment.revision", None),
        ("spec.assignment.podSets.0.slots.0.count", 0),
        ("spec.assignment.podSets.0.slots.0.domain", []),
        ("spec.assignment.podSets.0.slots.0.domain", "host-028"),
        ("spec.assignment.podSets.0.slots.0.domain", ["x" * 254]),
        ("spec.assignment.podSets.0.slots.0.ranks", "0-3,"),
        ("spec.assignment.podSets.0.slots.0.ranks", "all"),
        ("metadata.name", "x" * 64),
    ],
)
def test_a_malformed_placement_is_refused(admin: Client, path: str, value: object) -> None:
    """Wrong types, missing parts, absurd values: 4xx with the field's name."""
    with pytest.raises(ClientError) as refusal:
        strictly(admin, changed(path, value))
    assert refusal.value.status in (400, 422)
    assert [part for part in path.split(".") if not part.isdigit()][-1] in refusal.value.message


# The guard of placements


def test_nobody_but_the_service_writes_placements(powerful: Client, service: Client) -> None:
    """RBAC rights do not help: create, update, status and delete are refused with a word on what to do instead."""
    name = "guarded"
    path = f"{TGP}/{name}"
    body = ownerless(name)
    refused = pytest.raises(ClientError, match="written only by topogate: annotate the workload")
    eventually(lambda: _forbidden(lambda: create(powerful, body, path=TGP)), message="the guard is in force")
    service.create(TGP, body)
    with refused:
        powerful.create(TGP, placement_body(placement("forged")))
    with refused:
        powerful.patch(path, {"spec": {"priority": 1000}})
    with refused:
        powerful.patch(path, {"metadata": {"labels": {"a": "b"}}})
    with refused:
        powerful.patch(f"{path}/status", {"status": {"phase": "Running"}})
    with refused:
        powerful.delete(path)
    with refused:
        powerful.delete(TGP)
    service.patch(path, {"spec": {"priority": 7}})
    service.patch(f"{path}/status", {"status": {"phase": "Placed"}})
    service.delete(path)
    assert service.find(path) is None


def test_the_admin_may_write_placements(admin: Client) -> None:
    """In an emergency a member of system:masters can."""
    admin.create(TGP, ownerless("emergency"))
    admin.patch(f"{TGP}/emergency", {"spec": {"priority": 1}})
    admin.delete(f"{TGP}/emergency")
    assert admin.find(f"{TGP}/emergency") is None


def test_placements_go_with_their_owner_and_their_namespace(admin: Client, service: Client) -> None:
    """The garbage collector and the namespace controller are not held up."""
    admin.create("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    leaving = "/apis/topogate.dev/v1alpha1/namespaces/leaving/placements"
    body = ownerless("left")
    del body["metadata"]["namespace"]
    service.create(leaving, body)
    owner = admin.create(JOBS, job("owner"))
    service.create(TGP, placement_body(placement("owned", owner="owner", owner_uid=owner["metadata"]["uid"])))

    admin.delete(f"{JOBS}/owner")
    admin.delete("/api/v1/namespaces/leaving")

    # The collector learns of a new custom resource within 30 s of its making.
    eventually(lambda: admin.find(f"{TGP}/owned") is None, message="the owned Placement is gone")
    eventually(lambda: admin.find("/api/v1/namespaces/leaving") is None, message="the namespace is gone")


def _forbidden(act: Callable[[], object]) -> bool:
    try:
        act()
    except ClientError as error:
        return error.status == 403
    return False


# Rights


MAY = [
    ("get list watch", "", "nodes pods resourcequotas persistentvolumes persistentvolumeclaims", "", "", ""),
    ("get list watch", "batch", "jobs cronjobs", "", "", ""),
    ("get list watch", "apps", "deployments replicasets statefulsets", "", "", ""),
    ("get list watch patch", "jobset.x-k8s.io", "jobsets", "", "", NAMESPACE),
    ("get list watch", "leaderworkerset.x-k8s.io", "leaderworkersets", "", "", NAMESPACE),
    ("get list watch", "scheduling.k8s.io", "priorityclasses", "", "", ""),
    ("get list watch", "apps", "daemonsets", "", "", ""),
    ("get list watch", "storage.k8s.io", "storageclasses", "", "", ""),
    ("get list watch", "node.k8s.io", "runtimeclasses", "", "", ""),
    ("get list watch", "scheduling.koordinator.sh", "devices", "", "", ""),
    ("get list watch", "kueue.x-k8s.io", "topologies", "", "", ""),
    ("get list watch", "kai.scheduler", "topologies", "", "", ""),
    ("get list watch", "topology.volcano.sh", "hypernodes", "", "", ""),
    ("get list watch", "scheduling.x-k8s.io", "podgroups", "", "", ""),
    ("get list watch create delete", "autoscaling.x-k8s.io", "provisioningrequests", "", "", NAMESPACE),
    ("create delete", "", "podtemplates", "", "", NAMESPACE),
    ("patch delete", "", "pods", "", "", NAMESPACE),
    ("create", "", "pods", "eviction", "", NAMESPACE),
    ("patch", "batch", "jobs", "", "", NAMESPACE),
    ("get list watch create patch delete", "topogate.dev", "placements", "", "", NAMESPACE),
    ("patch", "topogate.dev", "placements", "status", "", NAMESPACE),
    ("create", "events.k8s.io", "events", "", "", NAMESPACE),
    *(
        ("get list watch patch", "admissionregistration.k8s.io", resource, "", name, "")
        for resource in CONFIGURATIONS
        for name in ("topogate", "topogate-policy")
    ),
    ("get create update patch", "coordination.k8s.io", "leases", "", "topogate", names.NAMESPACE),
    ("get list watch", "", "configmaps", "", "topogate-policy", names.NAMESPACE),
    ("get list watch create patch", "", "configmaps", "", "topogate-policy-last-good", names.NAMESPACE),
    ("get list watch patch", "", "secrets", "", "topogate-ca", names.NAMESPACE),
    ("create", "", "secrets", "", "", names.NAMESPACE),
]
MUST_NOT = [
    ("update deletecollection", "topogate.dev", "placements", "", "", NAMESPACE),
    ("get update", "topogate.dev", "placements", "status", "", NAMESPACE),
    ("get list update patch delete", "events.k8s.io", "events", "", "", NAMESPACE),
    ("update delete", "", "configmaps", "", "topogate-policy-last-good", names.NAMESPACE),
    ("create update deletecollection", "", "pods", "", "", NAMESPACE),
    ("update patch deletecollection", "autoscaling.x-k8s.io", "provisioningrequests", "", "", NAMESPACE),
    ("update patch", "autoscaling.x-k8s.io", "provisioningrequests", "status", "", NAMESPACE),
    ("get list watch update patch", "", "podtemplates", "", "", NAMESPACE),
    ("create", "", "pods", "exec", "", NAMESPACE),
    ("create", "", "pods", "binding", "", NAMESPACE),
    ("update patch", "", "pods", "status", "", NAMESPACE),
    ("create update delete", "batch", "jobs", "", "", NAMESPACE),
    ("create update patch delete", "apps", "deployments replicasets statefulsets", "", "", NAMESPACE),
    ("create update delete", "jobset.x-k8s.io", "jobsets", "", "", NAMESPACE),
    ("create update patch delete", "leaderworkerset.x-k8s.io", "leaderworkersets", "", "", NAMESPACE),
    ("update patch", "jobset.x-k8s.io", "jobsets", "status", "", NAMESPACE),
    ("update patch", "batch", "jobs", "finalizers", "", NAMESPACE),
    ("create update patch delete", "", "nodes", "", "", ""),
    ("get list watch create", "", "secrets", "", "", NAMESPACE),
    ("get list watch", "", "secrets", "", "", names.NAMESPACE),
    ("delete update", "", "secrets", "", "topogate-ca", names.NAMESPACE),
    ("get list watch create", "", "configmaps", "", "", NAMESPACE),
    ("get list", "", "configmaps", "", "", names.NAMESPACE),
    ("create update patch delete", "", "configmaps", "", "topogate-policy", names.NAMESPACE),
    ("get create", "coordination.k8s.io", "leases", "", "", "kube-system"),
    ("update delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "topogate", ""),
    ("get patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "another", ""),
    ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "", ""),
    ("get patch", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", "topogate-placements", ""),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", "", "placements.topogate.dev", ""),
    ("bind escalate patch", "rbac.authorization.k8s.io", "clusterroles", "", "topogate", ""),
    ("impersonate", "", "users", "", "", ""),
    ("create", "", "serviceaccounts", "token", "", names.NAMESPACE),
]


def allowed(admin: Client, user: str, verb: str, row: tuple[str, str, str, str, str, str], resource: str) -> bool:
    _, group, _, subresource, name, namespace = row
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
        "namespace": namespace,
    }
    groups = ["system:serviceaccounts", "system:authenticated"]
    review = admin.create(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}},
    )
    return bool(review["status"]["allowed"])


@pytest.mark.parametrize(
    ("row", "expected"), [*((row, True) for row in MAY), *((row, False) for row in MUST_NOT)], ids=str
)
def test_the_service_has_the_rights_it_needs_and_no_others(
    admin: Client, row: tuple[str, str, str, str, str, str], expected: bool
) -> None:
    """What the ServiceAccount may and may not, verb by verb."""
    for verb in row[0].split():
        for resource in row[2].split():
            assert allowed(admin, OUR_USER, verb, row, resource) is expected, (verb, resource)


def test_lists_by_name_and_the_makings_of_our_objects_work_with_named_rights(service: Client) -> None:
    """A list with a field selector, Lease and last good policy by apply, the CA by POST: as the service does it."""
    system = f"/api/v1/namespaces/{names.NAMESPACE}"
    for path, name in (
        (f"{system}/configmaps", names.POLICY_NAME),
        (f"{system}/secrets", names.CA_SECRET_NAME),
        *((f"{HOOKS}/{resource}", names.MUTATING_CONFIGURATION) for resource in CONFIGURATIONS),
    ):
        service.get(path, query={"fieldSelector": f"metadata.name={name}"})
        assert _forbidden(partial(service.get, path))
    applied = {"fieldManager": names.FIELD_MANAGER}
    for path, api_version, kind, name in (
        (
            f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases",
            "coordination.k8s.io/v1",
            "Lease",
            "topogate",
        ),
        (f"{system}/configmaps", "v1", "ConfigMap", names.LAST_GOOD_POLICY_NAME),
    ):
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
        service.patch(f"{path}/{name}", body, kind="apply", query=applied)
    service.create(f"{system}/secrets", {"metadata": {"name": names.CA_SECRET_NAME}})


def test_viewers_see_placements_and_write_none(admin: Client) -> None:
    """The role aggregates into `view`; `edit` and `admin` of a namespace get no right to write."""
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"
    for role in ("view", "edit", "admin"):
        admin.create(
            bindings,
            {
                "metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"a-{role}"}],
            },
        )
        read = ("", "topogate.dev", "", "", "", NAMESPACE)
        for verb in ("get", "list", "watch"):
            eventually(lambda: allowed(admin, f"a-{role}", verb, read, "placements"))  # noqa: B023 - called at once
        for verb in ("create", "update", "patch", "delete"):
            assert not allowed(admin, f"a-{role}", verb, read, "placements")
            assert not allowed(
                admin, f"a-{role}", verb, ("", "topogate.dev", "", "status", "", NAMESPACE), "placements"
            )
    assert not allowed(admin, "a-view", "get", ("", "topogate.dev", "", "", "", "elsewhere"), "placements")


# What is sent: workloads


def test_every_request_of_every_dialect_is_sent(admin: Client, recorder: Recorder) -> None:
    """Each known key, on the workload or on its template."""
    aliases = {key for dialect in names.ALIASES.values() for key in dialect}
    for key in sorted(names.REQUEST_KEYS | aliases):
        value = {key: "rack"}
        assert recorder.during(lambda: create(admin, job(annotations=value))) == BOTH, key  # noqa: B023
        assert recorder.during(lambda: create(admin, job(template={"annotations": value}))) == BOTH, key  # noqa: B023


SENT = {
    "misspelt key": job(annotations={"topogate.dev/require-topolgy": "rack"}),
    "misspelt key on the template": job(template={"annotations": {"topogate.dev/requiretopology": "rack"}}),
    "pod group on the template": job(template={"labels": {names.POD_GROUP_NAME: "g"}}),
    "our gate, whoever wrote it": job(gates=(names.GATE,)),
    "our label, whoever wrote it": job(template={"labels": {names.MANAGED: "true"}}),
    "our annotation, whoever wrote it": job(annotations={names.HELD_BY: "suspend"}),
}
TOLD = {
    "a request of ours on a workload of Kueue": job(
        annotations={names.REQUIRE: "rack"}, labels={names.KUEUE_QUEUE: "q"}
    ),
    "a key under another prefix": job(annotations={"topogate.io/require-topology": "rack"}),
    "a key without a prefix, on the template": job(template={"annotations": {"require-topology": "rack"}}),
    "a key that is not read": job(annotations={"kai.scheduler/segment-size": "2"}),
}
NOT_SENT = {
    "plain": job(),
    "foreign keys": job(annotations={"example.com/topogate.dev": "x"}, labels={"app": "topogate.dev"}),
    "an unknown key of another dialect": job(annotations={"kueue.x-k8s.io/priority-class": "x"}),
    "Kueue's own, by label": job(
        template={"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}, labels={names.KUEUE_QUEUE: "q"}
    ),
    "Kueue's own, by gate": job(
        template={"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
        gates=("kueue.x-k8s.io/topology",),
    ),
}


@pytest.mark.parametrize("title", SENT)
def test_workloads_that_concern_us_are_sent(admin: Client, recorder: Recorder, title: str) -> None:
    """Requests, typos in them, and whatever looks like ours."""
    assert recorder.during(lambda: create(admin, SENT[title])) == BOTH


@pytest.mark.parametrize("title", TOLD)
def test_who_means_to_ask_and_gets_nothing_is_told(admin: Client, recorder: Recorder, title: str) -> None:
    """What we leave alone, and keys that look like ours, go to the entry that stops nobody; the answer is a warning."""
    assert recorder.during(lambda: create(admin, TOLD[title])) == [OF_OTHERS]


@pytest.mark.parametrize("title", NOT_SENT)
def test_other_workloads_are_not_sent(admin: Client, recorder: Recorder, title: str) -> None:
    """Everything else costs its user nothing."""
    assert recorder.during(lambda: create(admin, NOT_SENT[title])) == []


@pytest.mark.parametrize("namespace", ["kube-system", names.NAMESPACE])
def test_system_namespaces_are_left_alone(admin: Client, recorder: Recorder, namespace: str) -> None:
    """Neither workloads nor pods of kube-system or of our own namespace are sent."""
    asking = {names.REQUIRE: "rack"}
    jobs, pods = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"
    assert recorder.during(lambda: create(admin, job(annotations=asking), path=jobs)) == []
    restricted = pod(annotations=asking)
    restricted["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    restricted["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert recorder.during(lambda: create(admin, restricted, path=pods)) == []


def test_thousands_of_foreign_annotations_cost_nobody_his_job(admin: Client, recorder: Recorder) -> None:
    """The conditions stay within the API server's budget for CEL: over it, the Job would be refused."""
    many = {f"k{number:04}": "" for number in range(8000)}
    assert recorder.during(lambda: create(admin, job(annotations=many, template={"annotations": many}))) == []


def test_as_many_long_keys_as_the_first_look_tests_cost_nobody_his_job(
    admin: Client, recorder: Recorder, stored: Callable[..., str]
) -> None:
    """In all eight places of an update, each key as long as can be: the dearest first look stays within the budget."""
    keys = {f"{'k' * 61}.{'k' * 63}.{'k' * 63}.{'k' * 63}/{number:063}": "" for number in range(first_look.MOST_KEYS)}
    assert {len(key) for key in keys} == {253 + 1 + 63}

    def change() -> None:
        path = stored("long", annotations=keys, labels=keys, template={"annotations": keys, "labels": keys})
        admin.patch(path, {"spec": {"parallelism": 2}})

    assert recorder.during(change) == []


@pytest.fixture
def stored(admin: Client) -> Iterator[Callable[..., str]]:
    """Stores a Job and returns its path."""
    paths: list[str] = []

    def store(name: str, **options: Any) -> str:
        admin.create(JOBS, job(name, **options))
        paths.append(f"{JOBS}/{name}")
        return paths[-1]

    yield store
    for path in paths:
        if admin.find(path):
            admin.patch(path, {"metadata": {"finalizers": None}})
        admin.delete(path)


UPDATES = {
    "the spec": ({"spec": {"parallelism": 3}}, True),
    "our annotation": ({"metadata": {"annotations": {names.PREFER: "rack"}}}, True),
    "our annotation taken back": ({"metadata": {"annotations": {names.REQUIRE: None}}}, True),
    "an alias": ({"metadata": {"annotations": {"kai.scheduler/topology": "x"}}}, True),
    "our label": ({"metadata": {"labels": {names.MANAGED: "true"}}}, True),
    "a foreign annotation": ({"metadata": {"annotations": {"example.com/x": "y"}}}, False),
    "a foreign label": ({"metadata": {"labels": {"app": "y"}}}, False),
    "finalizers": ({"metadata": {"finalizers": ["example.com/x"]}}, False),
    "nothing": ({"metadata": {"annotations": {names.REQUIRE: "rack"}}}, False),
}


@pytest.mark.parametrize("title", UPDATES)
def test_updates_are_sent_when_spec_or_our_keys_change(
    admin: Client, recorder: Recorder, stored: Callable[..., str], title: str
) -> None:
    """An update of an asking Job is sent for what concerns us, for nothing else."""
    path = stored("updated", annotations={names.REQUIRE: "rack"})
    patch, sent = UPDATES[title]
    assert set(recorder.during(lambda: admin.patch(path, patch))) == (BOTH_UPDATE if sent else set())


def test_a_request_that_comes_later_is_sent(admin: Client, recorder: Recorder, stored: Callable[..., str]) -> None:
    """A plain Job's updates are not sent until it asks."""
    path = stored("later")
    assert recorder.during(lambda: admin.patch(path, {"spec": {"parallelism": 2}})) == []
    asks = {"metadata": {"annotations": {names.REQUIRE: "rack"}}}
    assert set(recorder.during(lambda: admin.patch(path, asks))) == BOTH_UPDATE


def test_status_and_deletion_are_not_sent(admin: Client, recorder: Recorder, stored: Callable[..., str]) -> None:
    """The Job controller's status writes, the delete and the removal of the last finalizer pass without us."""
    path = stored("ending", annotations={names.REQUIRE: "rack"})
    admin.patch(path, {"metadata": {"finalizers": ["example.com/x"]}})

    def end() -> None:
        admin.patch(f"{path}/status", {"status": {"startTime": None, "failed": 0}})
        admin.delete(path)
        admin.patch(path, {"metadata": {"finalizers": None, "annotations": {names.REQUIRE: None}}})

    assert recorder.during(end) == []
    eventually(lambda: admin.find(path) is None, message="the Job is gone")


def test_our_own_requests_are_not_sent(
    service: Client, admin: Client, recorder: Recorder, stored: Callable[..., str]
) -> None:
    """The leader's resume does not come back to us; the same from somebody else does."""
    path = stored("resumed", annotations={names.REQUIRE: "rack"})
    assert recorder.during(lambda: service.patch(path, {"spec": {"suspend": False}})) == []
    assert set(recorder.during(lambda: admin.patch(path, {"spec": {"suspend": True}}))) == BOTH_UPDATE


# What is sent: pods


M, V, TOLD_POD = ("/mutate", "CREATE", "Pod"), ("/validate", "CREATE", "Pod"), (OTHERS, "CREATE", "Pod")
ASKING = {names.REQUIRE: "rack"}
PODS_SENT: dict[str, tuple[dict[str, Any], list[tuple[str, str, str]]]] = {
    "plain": (pod(), []),
    "foreign gate and labels": (pod(gates=("example.com/gate",), labels={"app": "x"}), []),
    "managed": (pod(labels={names.MANAGED: "true"}), [M]),
    "held": (pod(gates=(names.GATE,)), [TOLD_POD]),
    "managed, held, with its template's request": (
        pod(labels={names.MANAGED: "true"}, annotations=ASKING, gates=(names.GATE,), owner="StatefulSet"),
        [M],
    ),
    "managed, held, with a request of its own": (
        pod(labels={names.MANAGED: "true"}, annotations=ASKING, gates=(names.GATE,)),
        [M, V],
    ),
    "managed, held, of an owner that nobody knows": (
        pod(labels={names.MANAGED: "true"}, annotations=ASKING, gates=(names.GATE,), owner="Workflow"),
        [M, V],
    ),
    "with an old mark": (pod(annotations={names.RANK: "3"}), [TOLD_POD]),
    "asking": (pod(annotations=ASKING), [M]),
    "asking, misspelt": (pod(annotations={"topogate.dev/gangname": "x"}), [M]),
    "asking in another dialect": (pod(annotations={"kai.scheduler/topology": "x"}), [M]),
    "a label of a pod group": (pod(labels={names.POD_GROUP_NAME: "x"}), []),
    "asking by a label": (pod(labels={names.REQUIRE: "rack"}), [M]),
    "a key under another prefix": (pod(annotations={"topogate.io/gang-name": "g"}), [TOLD_POD]),
    "the same, of a controller": (pod(annotations={"topogate.io/gang-name": "g"}, owner="Workflow"), []),
    "a request of ours on a pod of Kueue": (pod(annotations=ASKING, labels={names.KUEUE_QUEUE: "q"}), [TOLD_POD]),
    "asking, of a DaemonSet": (pod(annotations=ASKING, owner="DaemonSet"), []),
    "asking, of another controller": (pod(annotations=ASKING, owner="ReplicaSet"), [M]),
    "Kueue's own, by gate": (
        pod(annotations={"kueue.x-k8s.io/podset-required-topology": "x"}, gates=("kueue.x-k8s.io/topology",)),
        [],
    ),
    "Kueue's own, by label": (
        pod(annotations={"kueue.x-k8s.io/podset-required-topology": "x"}, labels={names.KUEUE_QUEUE: "q"}),
        [],
    ),
}


@pytest.mark.parametrize("title", PODS_SENT)
def test_pods_are_sent_to_the_entry_that_is_for_them(admin: Client, recorder: Recorder, title: str) -> None:
    """Managed pods and those that ask on their own are mutated; plain managed ones are validated too."""
    body, calls = PODS_SENT[title]
    assert recorder.during(lambda: create(admin, body, path=PODS)) == calls


def test_a_pod_with_a_node_is_left_alone(admin: Client, recorder: Recorder) -> None:
    """Whoever names the node himself is only told; what a controller makes so is not even sent."""
    for owner, calls in (("", [TOLD_POD]), ("StatefulSet", []), ("Workflow", [])):
        body = pod(annotations=ASKING, owner=owner)
        body["spec"]["nodeName"] = "somewhere"
        assert recorder.during(lambda: create(admin, body, path=PODS)) == calls, owner  # noqa: B023


def test_a_placed_pod_is_reviewed_once(admin: Client, recorder: Recorder) -> None:
    """Taking the gate off does not make the pod one that asks without a gate."""
    recorder.answer = lambda path, request: [{"op": "remove", "path": "/spec/schedulingGates"}]
    body = pod(labels={names.MANAGED: "true"}, annotations=ASKING, gates=(names.GATE,), owner="StatefulSet")
    try:
        assert recorder.during(lambda: create(admin, body, path=PODS)) == [M]
    finally:
        recorder.answer = label_workloads


def test_reviews_come_in_the_form_that_is_answered_directly(admin: Client, recorder: Recorder) -> None:
    """Both paths, with the time limit of the entry: no review of this API server needs the general parser."""
    before = len(recorder.heads)
    create(admin, job(annotations={names.REQUIRE: "rack"}))
    found = {(head.path, head.timeout) for one in recorder.heads[before:] if (head := review_head(one)) is not None}
    assert found == {("mutate", "3s"), ("validate", "3s")}
    assert None not in (review_head(one) for one in recorder.heads if not one.startswith(f"POST {OTHERS}".encode()))


def test_updates_and_deletions_of_pods_are_not_sent(admin: Client, recorder: Recorder) -> None:
    """Only the creation of a pod is reviewed."""
    path = f"{PODS}/one"
    body = pod(gates=(names.GATE,), labels={names.MANAGED: "true"}, annotations=ASKING)
    body["spec"]["serviceAccountName"] = "default"
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    eventually(lambda: admin.find(accounts), message="the default service account")
    admin.create(PODS, body)
    gate_off = {"spec": {"schedulingGates": [{"$patch": "delete", **GATE}]}}

    def change() -> None:
        admin.patch(path, {"metadata": {"annotations": {names.RANK: "1"}}})
        admin.patch(path, gate_off, kind="strategic")
        admin.delete(path, grace=0)

    assert recorder.during(change) == []


# What is sent: requests for devices


DEVICES: dict[str, tuple[dict[str, Any], bool]] = {
    "requests": ({"requests": {"koordinator.sh/gpu": "50"}, "limits": {"koordinator.sh/gpu": "50"}}, True),
    "limits alone": ({"limits": {"koordinator.sh/rdma": "100"}}, True),
    "requests alone": ({"requests": {"koordinator.sh/gpu-memory-ratio": "50"}}, True),
    "a name that means nothing": ({"limits": {"koordinator.sh/gpus": "1"}}, True),
    "whole GPUs": ({"limits": {"nvidia.com/gpu": "1"}}, False),
    "no devices": ({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, False),
    "nothing": ({}, False),
}


def asking_for(body: dict[str, Any], resources: dict[str, Any], *, kind: str = "containers") -> dict[str, Any]:
    """The pod or Job with a container of its own that asks for the resources."""
    body = copy.deepcopy(body)
    spec = body["spec"]["template"]["spec"] if "template" in body["spec"] else body["spec"]
    spec.setdefault(kind, []).append({"name": "asking", "image": "none", "resources": resources})
    return body


def completing(path: str, request: Any) -> list[Any]:
    """Answers as the service does: what only stands in requests is added to limits."""
    spec, root = request["object"]["spec"], "/spec"
    if "template" in spec:
        spec, root = spec["template"]["spec"], "/spec/template/spec"
    patch = []
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(kind) or []):
            resources = container.get("resources") or {}
            if resources.get("requests") and "limits" not in resources:
                at = f"{root}/{kind}/{number}/resources/limits"
                patch.append({"op": "add", "path": at, "value": resources["requests"]})
    return patch if path == OTHERS else []


@pytest.fixture
def completed(recorder: Recorder) -> Iterator[None]:
    recorder.answer = completing
    yield
    recorder.answer = label_workloads


@pytest.mark.usefixtures("completed")
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("title", DEVICES)
def test_who_names_koordinator_s_resources_is_sent(admin: Client, recorder: Recorder, title: str, kind: str) -> None:
    """Jobs and pods that ask for no topology, by requests or limits of any container."""
    resources, sent = DEVICES[title]
    assert recorder.during(lambda: create(admin, asking_for(job(), resources, kind=kind))) == (
        [OF_OTHERS] if sent else []
    )
    calls = recorder.during(lambda: create(admin, asking_for(pod(), resources, kind=kind), path=PODS))
    assert calls == ([TOLD_POD] if sent else [])


HALF = {"limits": {"koordinator.sh/gpu": "50"}}


@pytest.mark.parametrize("title", [title for title, (resources, _) in DEVICES.items() if "limits" not in resources])
def test_requests_alone_are_refused_by_the_server_itself(admin: Client, recorder: Recorder, title: str) -> None:
    """What the service must complete before anybody looks: extended resources need limits; others do not."""
    resources, sent = DEVICES[title]
    for body, path in ((job(), JOBS), (pod(), PODS)):
        act = partial(create, admin, asking_for(body, resources), path=path)
        if sent:
            with pytest.raises(ClientError, match="Limit must be set for non overcommitable resources"):
                act()
        else:
            act()


def test_a_job_that_asks_for_both_is_sent_once(admin: Client, recorder: Recorder) -> None:
    """The mark that the entry for topology puts on keeps the other one out."""
    label = {"op": "add", "path": "/spec/template/metadata/labels", "value": {names.MANAGED: "true"}}
    recorder.answer = lambda path, request: [label, *label_workloads(path, request)] if path == "/mutate" else []
    try:
        assert recorder.during(lambda: create(admin, asking_for(job(annotations=ASKING), HALF))) == BOTH
    finally:
        recorder.answer = label_workloads


def test_what_we_translated_is_not_sent_as_a_request(admin: Client, recorder: Recorder) -> None:
    """Our notes alone make no workload and no pod ours."""
    notes = {names.ORIGINAL_REQUESTS: "{}", names.GPU_REQUEST: "{}"}
    assert recorder.during(lambda: create(admin, job(template={"annotations": notes}))) == []
    assert recorder.during(lambda: create(admin, pod(annotations=notes), path=PODS)) == []


def test_pods_of_others_keep_their_names(admin: Client, recorder: Recorder) -> None:
    """Pods of DaemonSets and pods that have their node are not sent; managed ones to their own entry alone."""
    assert recorder.during(lambda: create(admin, asking_for(pod(owner="DaemonSet"), HALF), path=PODS)) == []
    bound = asking_for(pod(), HALF)
    bound["spec"]["nodeName"] = "somewhere"
    assert recorder.during(lambda: create(admin, bound, path=PODS)) == []
    held = pod(labels={names.MANAGED: "true"}, gates=(names.GATE,))
    assert recorder.during(lambda: create(admin, asking_for(held, HALF), path=PODS)) == [M]


def test_whoever_writes_down_devices_is_looked_at(admin: Client, recorder: Recorder) -> None:
    """A pod that is created with the device annotation is sent, also one that has its node."""
    body = pod(annotations={names.DEVICE_ALLOCATED: "{}"})
    assert recorder.during(lambda: create(admin, body, path=PODS)) == [TOLD_POD]
    body["spec"]["nodeName"] = "somewhere"
    assert recorder.during(lambda: create(admin, body, path=PODS)) == [TOLD_POD]


def test_our_label_hides_nobody_s_devices(admin: Client, recorder: Recorder) -> None:
    """`/mutate` takes it off a pod that has its node, and the pod is sent like any other."""
    body = pod(annotations={names.DEVICE_ALLOCATED: "{}"}, labels={names.MANAGED: "true"})
    body["spec"]["nodeName"] = "somewhere"
    unmarked = [{"op": "remove", "path": "/metadata/labels"}]
    recorder.answer = lambda path, request: unmarked if path == "/mutate" else []
    try:
        assert recorder.during(lambda: create(admin, body, path=PODS)) == [M, TOLD_POD]
    finally:
        recorder.answer = label_workloads


def test_updates_of_a_translated_job_are_sent_when_its_template_changes(
    admin: Client, recorder: Recorder, stored: Callable[..., str]
) -> None:
    """So that a file which is applied again gets what it got before; a change of scale is nobody's business."""
    path = f"{JOBS}/translated"
    admin.create(JOBS, asking_for(job("translated"), HALF))
    try:
        assert recorder.during(lambda: admin.patch(path, {"spec": {"parallelism": 2}})) == []
        note = {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}
        assert set(recorder.during(lambda: admin.patch(path, note))) == {(OTHERS, "UPDATE", "Job")}
    finally:
        admin.delete(path)


def test_device_annotations_change_by_their_writers_alone(admin: Client, service: Client, powerful: Client) -> None:
    """RBAC rights do not help, by no subresource; our service, Koordinator's scheduler and the admins may."""
    path = f"{PODS}/with-devices"
    body = pod(gates=("example.com/wait",))
    body["metadata"]["name"] = "with-devices"
    body["spec"]["serviceAccountName"] = "default"
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    eventually(lambda: admin.find(accounts), message="the default service account")
    admin.create(PODS, body)

    def said(text: str | None) -> dict[str, Any]:
        return {"metadata": {"annotations": {names.DEVICE_ALLOCATED: text}}}

    try:
        eventually(lambda: _forbidden(lambda: powerful.patch(path, said("{}"))), message="the guard is in force")
        refused = pytest.raises(ClientError, match="records the devices of a pod")
        with refused:
            powerful.patch(f"{path}/status", said("{}"))
        powerful.patch(path, {"metadata": {"annotations": {"example.com/x": "y"}}})
        service.patch(path, said('{"gpu":[]}'))
        for text in ("{}", None):
            with refused:
                powerful.patch(path, said(text))
        admin.patch(path, said(None))
    finally:
        admin.delete(path, grace=0)


# Requests where nothing can be placed


UNPLACEABLE = {
    "DaemonSet": ("apps/v1", "its pods have their nodes"),
    "ReplicaSet": ("apps/v1", "use a StatefulSet or a Deployment"),
    "ReplicationController": ("v1", "use a StatefulSet or a Deployment"),
    "Namespace": ("v1", "annotate workloads"),
}


def unplaceable(kind: str, *, template: bool = False, **metadata: Any) -> dict[str, Any]:
    """An object of the kind with this metadata, or with it on its template."""
    body: dict[str, Any] = {"apiVersion": UNPLACEABLE[kind][0], "kind": kind, "metadata": {"name": "one"}}
    labels = {"app": "x"}
    if kind != "Namespace":
        pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        body["spec"] = {"selector": labels if kind == "ReplicationController" else {"matchLabels": labels}}
        body["spec"]["template"] = pods
    (body["spec"]["template"] if template else body)["metadata"] |= metadata
    return body


def test_a_request_on_what_cannot_be_placed_is_answered_with_a_warning(plane: ControlPlane, admin: Client) -> None:
    """By the API server alone; the object is created all the same. What a controller made is nobody's mistake."""
    controller = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u", "controller": True}

    def told(body: dict[str, Any]) -> str:
        command = ("create", "--dry-run=server", "-n", NAMESPACE, "-f", "-")
        done = plane.kubectl(*command, input=json.dumps(body))
        assert "created" in done.stdout
        return done.stderr

    eventually(lambda: "its pods have their nodes" in told(unplaceable("DaemonSet", annotations=ASKING)))
    for kind, (_, words) in UNPLACEABLE.items():
        assert words in told(unplaceable(kind, annotations=ASKING)), kind
        if kind != "Namespace":
            assert words in told(unplaceable(kind, template=True, annotations=ASKING)), kind
        assert told(unplaceable(kind, annotations={"example.com/topogate.dev": "x"})) == "", kind
        assert told(unplaceable(kind, annotations={names.ORIGINAL_REQUESTS: "{}"})) == "", kind
    assert told(unplaceable("ReplicaSet", annotations=ASKING, ownerReferences=[controller])) == ""
    eventually(lambda: settled(admin), message="its expressions are checked")
    status = admin.get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/topogate-unplaceable")
    assert not status.get("status", {}).get("typeChecking", {}).get("expressionWarnings")


def test_the_policy_of_the_page_refuses_requests_on_its_kind(plane: ControlPlane, admin: Client) -> None:
    """The one under "Exclude a kind" in docs/tasks/admin/policy.md: by our label, but for parts of other gangs."""
    page = pages()["docs/tasks/admin/policy.md"]
    (text,) = [block.text for block in page.blocks if "ValidatingAdmissionPolicyBinding" in block.text]
    labels = {"app": "x"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"serviceName": "x", "selector": {"matchLabels": labels}, "template": pods}
    leader = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": True}

    def refused(**metadata: Any) -> bool:
        body = {"metadata": {"name": "one", **metadata}, "spec": spec}
        try:
            admin.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets", body, dry_run=True)
        except ClientError as error:
            assert "StatefulSets may not request a placement here" in error.message
            return True
        return False

    asking = {names.REQUESTS_PLACEMENT: "true"}
    plane.kubectl("apply", "-f", "-", input=text)
    try:
        eventually(lambda: refused(labels=asking), message="the policy is in force")
        assert not refused()
        assert not refused(labels=labels)
        assert not refused(labels=asking, ownerReferences=[leader])
        assert refused(labels=asking, ownerReferences=[{**leader, "controller": False}])
    finally:
        plane.kubectl("delete", "-f", "-", input=text)


# What is sent: the policy


def test_only_the_policy_itself_is_sent(admin: Client, recorder: Recorder) -> None:
    """The ConfigMap of that name in our namespace, at CREATE and UPDATE."""
    ours = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps"
    policy = {"metadata": {"name": names.POLICY_NAME}, "data": {names.POLICY_KEY: "kind: Policy"}}
    theirs = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    assert recorder.during(lambda: create(admin, policy, path=theirs)) == []
    assert recorder.during(lambda: create(admin, {"metadata": {"name": "another"}}, path=ours)) == []
    assert recorder.during(lambda: create(admin, {"metadata": {"generateName": "topogate-policy"}}, path=ours)) == []
    assert recorder.during(lambda: admin.create(ours, policy)) == [("/validate", "CREATE", "ConfigMap")]
    path = f"{ours}/{names.POLICY_NAME}"
    update = {"data": {names.POLICY_KEY: ""}}
    assert recorder.during(lambda: admin.patch(path, update)) == [("/validate", "UPDATE", "ConfigMap")]
    assert recorder.during(lambda: admin.delete(path)) == []


# While nobody answers


@pytest.fixture
def outage(recorder: Recorder) -> Iterator[None]:
    recorder.down = True
    yield
    recorder.down = False


@pytest.mark.usefixtures("outage")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (JOBS, job()),
        (PODS, pod()),
        (PODS, pod(labels={names.MANAGED: "true"}, gates=(names.GATE,), annotations=ASKING)),
        (PODS, pod(labels={names.POD_GROUP_NAME: "g"})),
        (JOBS, job(annotations=ASKING, labels={names.KUEUE_QUEUE: "q"})),
        (JOBS, job(annotations={"topogate.io/require-topology": "rack"})),
        (f"/api/v1/namespaces/{names.NAMESPACE}/configmaps", {"metadata": {"name": names.POLICY_NAME}}),
    ],
    ids=["plain Job", "plain pod", "held pod", "pod of a pod group", "Job of Kueue's", "foreign key", "policy"],
)
def test_an_outage_stops_nothing_that_can_wait(admin: Client, path: str, body: dict[str, Any]) -> None:
    """What we do not manage passes, and so do pods that their gate holds, and the policy."""
    create(admin, body, path=path)


@pytest.mark.usefixtures("outage")
@pytest.mark.parametrize(
    ("path", "body"),
    [(JOBS, job(annotations=ASKING)), (PODS, pod(annotations=ASKING))],
    ids=["asking Job", "asking pod"],
)
def test_an_outage_refuses_what_would_start_unplaced(admin: Client, path: str, body: dict[str, Any]) -> None:
    """A request that nobody can read now must not start anywhere."""
    with pytest.raises(ClientError, match="failed calling webhook"):
        create(admin, body, path=path)
