"""Which objects an uninstall removes, which rights that takes, and when the service counts as ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.api import names
from tests.support.fake_api import Answer, FakeApi
from tests.support.snapshots import snapshot
from tests.unit.maintenance.conftest import held_job
from webhook.maintenance.installation import (
    ROLES,
    WEBHOOKS,
    FoundObject,
    InstalledObject,
    delete_object,
    find_objects,
    service_namespace_object,
)
from webhook.maintenance.release import release_plan
from webhook.maintenance.releaser import Releaser
from webhook.maintenance.removal import RemovalPlan, everything, reading_rights, rights, steps_text, warnings_text
from webhook.maintenance.rights import Right, lacking_text

BASE = Path(__file__).parents[3] / "manifests" / "base"
NAMESPACE = names.NAMESPACE
OURS = {"app.kubernetes.io/part-of": "topogate"}


def in_manifests() -> set[tuple[str, str, str | None, str]]:
    found = set()
    for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]:
        for one in yaml.safe_load_all((BASE / name).read_text()):
            if one:
                metadata = one["metadata"]
                found.add((one["apiVersion"], one["kind"], metadata.get("namespace"), metadata["name"]))
    return found


def test_what_the_manifests_make_is_removed() -> None:
    """All of it; besides only what the service or an admin makes, which has no label."""
    known = {
        (one.api_version, one.kind, NAMESPACE if one.namespaced else None, one.name): one.labelled
        for one in everything(NAMESPACE)
    }
    assert {key for key, labelled in known.items() if labelled} == in_manifests()
    assert {key[3] for key, labelled in known.items() if not labelled} == {
        *(names.CA_SECRET_NAME, names.LEASE_NAME, names.POLICY_NAME, names.LAST_GOOD_POLICY_NAME),
        "topogate-policy-kinds",
    }


def plan(
    *objects: dict[str, Any], others: tuple[str, ...] = (), foreign: str = "", leave_manifests: bool = False
) -> RemovalPlan:
    wanted = everything(NAMESPACE, leave_manifests=leave_manifests)
    found = tuple(FoundObject(one, "uid", one.called == foreign) for one in wanted)
    release = release_plan(snapshot(objects).view)
    return RemovalPlan(
        NAMESPACE, found, release, placements=3, placed=1, others=others, leaves_manifests=leave_manifests
    )


def test_each_step_says_what_goes() -> None:
    running = held_job("running", held=False)
    running["spec"]["suspend"] = False
    lines = steps_text(plan(held_job(), held_job("other", namespace="bob"), running))
    configurations = "2 ValidatingWebhookConfigurations, 2 MutatingWebhookConfigurations"
    assert lines[0] == f"1. webhooks     delete {configurations}: nothing new is held or refused"
    assert lines[2] == (
        "3. release      2 workloads resumed, 0 pods released (alice 1, bob 1); 1 gang with slots runs on as other "
        "workloads do"
    )
    assert lines[5].endswith("2 ConfigMaps, Namespace topogate-system")
    (template,) = warnings_text(plan(held_job(), running))
    assert template.startswith("1 running workload with the gate in a template: job/running (alice). Pods")


def test_what_is_not_certainly_topogates_stays() -> None:
    """An object without the label, and a namespace that others use."""
    found = plan(others=("pods/web-0",), foreign="ClusterRole topogate-view")
    assert warnings_text(found) == [
        "stays: ClusterRole topogate-view: it lacks the label of the manifests",
        "stays: Namespace topogate-system: others use it: pods/web-0",
    ]
    wanted = {(right.verb, right.resource, right.name) for right in rights(found)}
    assert ("delete", "clusterroles", "topogate") in wanted
    assert not {("delete", "clusterroles", "topogate-view"), ("delete", "namespaces", NAMESPACE)} & wanted


def test_the_manifests_can_be_left_to_another_tool() -> None:
    """Only what would hold again goes, and what the service itself has made; no other right is asked for."""
    found = plan(held_job(), leave_manifests=True)
    lines = steps_text(found)
    assert [line.split()[1] for line in lines] == ["webhooks", "service", "release", "namespace"]
    assert lines[3].endswith(
        "delete Secret topogate-ca, Lease topogate, ConfigMap topogate-policy-last-good; "
        "all else stays for the tool that applied it"
    )
    deleted = {(one.resource, one.name) for one in rights(found) if one.verb == "delete"}
    kept = {names.MUTATING_CONFIGURATION, names.POLICY_CONFIGURATION}
    assert deleted == {
        *((f"{kind}webhookconfigurations", name) for kind in ("mutating", "validating") for name in kept),
        ("deployments", "topogate"),
        ("secrets", names.CA_SECRET_NAME),
        ("leases", names.LEASE_NAME),
        ("configmaps", names.LAST_GOOD_POLICY_NAME),
    }
    assert {one.verb for one in reading_rights(NAMESPACE, leave_manifests=True)} == {"get"}


def test_rights_are_those_of_what_exists() -> None:
    """For pods always: one may be held at any moment."""
    empty = RemovalPlan(NAMESPACE, (), release_plan(snapshot([held_job()]).view), 0, 0, ())
    assert {right.text for right in rights(empty)} == {"patch pods", "patch jobs.batch"}
    assert not empty.empty
    assert RemovalPlan(NAMESPACE, (), release_plan(snapshot([]).view), 0, 0, ()).empty


@pytest.mark.parametrize("labels", [None, {}, {"app.kubernetes.io/part-of": "other"}])
def test_an_object_without_the_label_is_foreign(
    server: FakeApi,
    releaser: Releaser,
    labels: dict[str, str] | None,
) -> None:
    role = InstalledObject("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", "topogate")
    server.put(role.path(NAMESPACE), metadata={"name": "topogate", "labels": labels})
    (found,) = find_objects(releaser.api, [role], namespace=NAMESPACE)
    assert found.foreign
    server.put(role.path(NAMESPACE), metadata={"labels": {"app.kubernetes.io/part-of": "topogate"}})
    (found,) = find_objects(releaser.api, [role], namespace=NAMESPACE)
    assert not found.foreign
    assert delete_object(releaser.api, found, namespace=NAMESPACE) == ""
    assert find_objects(releaser.api, [role], namespace=NAMESPACE) == ()
    assert delete_object(releaser.api, found, namespace=NAMESPACE) == ""  # done twice


CONFLICT = Answer(409, {"kind": "Status", "code": 409, "reason": "Conflict", "message": "the UID does not match"})


def made(server: FakeApi, uid: str, **labels: str) -> InstalledObject:
    """A role as somebody applies it, with a uid of its own."""
    role = InstalledObject("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", "topogate")
    server.remove(role.path(NAMESPACE)) if server.get(role.path(NAMESPACE)) else None
    server.put(role.path(NAMESPACE), metadata={"name": "topogate", "uid": uid, "labels": labels})
    return role


def test_an_object_that_was_made_again_is_deleted_too(server: FakeApi, releaser: Releaser) -> None:
    """What applies manifests has made it anew between the reading and the deletion: 409 says so, and it is not gone."""
    role = made(server, "first", **OURS)
    (found,) = find_objects(releaser.api, [role], namespace=NAMESPACE)
    made(server, "second", **OURS)
    assert delete_object(releaser.api, found, namespace=NAMESPACE) == ""
    assert server.get(role.path(NAMESPACE)) is None


def test_one_of_somebody_else_in_its_place_stays(server: FakeApi, releaser: Releaser) -> None:
    role = made(server, "first", **OURS)
    (found,) = find_objects(releaser.api, [role], namespace=NAMESPACE)
    made(server, "second", team="theirs")
    assert "without the label" in delete_object(releaser.api, found, namespace=NAMESPACE)
    assert server.get(role.path(NAMESPACE)) is not None


def test_what_comes_back_every_time_is_told(server: FakeApi, releaser: Releaser) -> None:
    """After three tries, with the words of the API server."""
    role = made(server, "first", **OURS)
    (found,) = find_objects(releaser.api, [role], namespace=NAMESPACE)
    server.fault(CONFLICT, when=lambda one: one.method == "DELETE", times=100)
    said = delete_object(releaser.api, found, namespace=NAMESPACE)
    assert said == "it is still there after 3 tries: the UID does not match"
    assert server.count("DELETE") == 3


def test_a_namespace_that_ends_already_is_gone(server: FakeApi, releaser: Releaser) -> None:
    """The API server answers 409 to a second deletion of it."""
    namespace = service_namespace_object(NAMESPACE)
    server.put(namespace.path(NAMESPACE), metadata={"uid": "n", "labels": OURS})
    (found,) = find_objects(releaser.api, [namespace], namespace=NAMESPACE)
    server.put(namespace.path(NAMESPACE), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    server.fault(CONFLICT, when=lambda one: one.method == "DELETE")
    assert delete_object(releaser.api, found, namespace=NAMESPACE) == ""


def test_missing_rights_are_told_by_kind() -> None:
    """One line for all objects of a resource."""
    wanted = [
        Right("get", "rbac.authorization.k8s.io", "roles", "a", NAMESPACE),
        Right("get", "rbac.authorization.k8s.io", "roles", "b", NAMESPACE),
        Right("patch", "", "pods"),
    ]
    assert lacking_text(wanted) == [
        "no right to get roles.rbac.authorization.k8s.io a, b in namespace topogate-system",
        "no right to patch pods",
    ]


def configuration(namespace: str, **metadata: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/part-of": "topogate"}
    client = {"service": {"name": "topogate", "namespace": namespace, "path": "/mutate"}, "caBundle": "QUJD"}
    return {"metadata": {"name": "topogate", "labels": labels} | metadata, "webhooks": [{"clientConfig": client}]}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (configuration(NAMESPACE), ()),
        (configuration("ml-infra"), ('is for a service in namespace "ml-infra": use --service-namespace',)),
        (
            configuration(NAMESPACE, labels={}),
            ("lacks the label app.kubernetes.io/part-of=topogate: add it if it is Topogate's, else delete it",),
        ),
        ({"metadata": {"labels": {"app.kubernetes.io/part-of": "topogate"}}, "webhooks": None}, ()),
    ],
)
def test_nothing_is_begun_that_cannot_be_ended(
    server: FakeApi, releaser: Releaser, made: dict[str, Any], said: tuple[str, ...]
) -> None:
    """A service in another namespace would run on; webhooks that stay would refuse pods while no replica answers."""
    (wanted, *_) = WEBHOOKS
    server.put(wanted.path(NAMESPACE), **made)
    found = find_objects(releaser.api, [wanted], namespace=NAMESPACE)
    plan = RemovalPlan(NAMESPACE, found, release_plan(snapshot([]).view), 0, 0, ())
    assert plan.obstacles == tuple(f"{wanted.called} {one}" for one in said)


def test_a_role_binding_tells_where_the_service_is(server: FakeApi, releaser: Releaser) -> None:
    """Also after the webhook configurations are gone; that of the service's own namespace is no obstacle."""
    (binding, *_) = ROLES
    labels = {"app.kubernetes.io/part-of": "topogate"}
    subjects = [{"kind": "ServiceAccount", "name": "topogate", "namespace": "ml-infra"}, {"kind": "User", "name": "a"}]
    server.put(binding.path(NAMESPACE), metadata={"labels": labels}, subjects=subjects)
    found = find_objects(releaser.api, [binding], namespace=NAMESPACE)
    held = release_plan(snapshot([]).view)
    assert RemovalPlan("ml-infra", found, held, 0, 0, ()).obstacles == ()
    (said,) = RemovalPlan(NAMESPACE, found, held, 0, 0, ()).obstacles
    assert said.startswith("ClusterRoleBinding topogate is for a service in namespace")
