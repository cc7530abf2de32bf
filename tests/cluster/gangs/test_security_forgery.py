"""Somebody with edit rights in his namespace writes what only we write: it gains him nothing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from engine.api import names
from local.client import Client, ClientError
from local.controlplane import ControlPlane
from tests.support.books import Books
from tests.support.eventually import eventually
from tests.support.gangs import INDEX, Json, Namespace, on_every_replica, require
from tests.support.raw_placements import placements_path, slots
from tests.support.raw_pods import GATE, held, host
from tests.support.users import ordinary_user

FORGED_LABELS = {names.MANAGED: "true", names.POD_SET: "main", names.GANG: "job-other-1"}
FORGED_ANNOTATIONS = {
    names.PLACEMENT: "job-other-1",
    names.REVISION: "1",
    names.DOMAIN_PATH: "b/r/h",
    names.RANK: "0",
    names.HELD_BY: "suspend",
}


@pytest.fixture
def user(control_plane: ControlPlane, namespace: str) -> Client:
    return ordinary_user(control_plane, namespace)


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def pod_body(name: str, selector: Mapping[str, str], *, gpus: int = 8, **metadata: Any) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {
            "nodeSelector": dict(selector),
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "schedulingGates": [{"name": GATE}],
            "containers": [{"name": "main", "image": "example.com/train:1", "resources": resources}],
        },
    }


def events(client: Client, namespace: str, name: str) -> list[str]:
    """The reasons of the Events about an object."""
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    return [event["reason"] for event in client.items(path) if event["regarding"]["name"] == name]


def test_a_forged_placement_is_refused(gangs: Namespace, user: Client) -> None:
    """Edit rights hold no right to write Placements: neither a new one nor a change of one that is there."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    placement = gangs.placement("train")
    assert placement is not None
    path = placements_path(gangs.name)
    forged = {**placement, "metadata": {"name": "forged"}}
    with pytest.raises(ClientError) as error:
        user.create(path, forged)
    assert error.value.status == 403
    with pytest.raises(ClientError) as error:
        user.patch(f"{path}/{placement['metadata']['name']}", {"spec": {"priority": 9}})
    assert error.value.status == 403


def test_rights_do_not_make_a_forged_placement_good(gangs: Namespace, control_plane: ControlPlane) -> None:
    """Whoever has RBAC rights on Placements all the same is refused by the policy, which tells him what to do."""
    rule = {"apiGroups": ["topogate.dev"], "resources": ["placements"], "verbs": ["*"]}
    powerful = ordinary_user(control_plane, gangs.name, rules=[rule])
    path = placements_path(gangs.name)
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}
    body = {
        "apiVersion": "topogate.dev/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": "forged"},
        "spec": {"workload": workload, "topology": "default", "podSets": []},
    }
    with pytest.raises(ClientError) as error:
        powerful.create(path, body)
    assert error.value.status == 403
    assert "placements are written only by topogate" in error.value.message


def test_a_bare_pod_with_our_marks_is_cleaned_and_runs(gangs: Namespace, user: Client) -> None:
    """Gate, labels and annotations of ours come off; the pod is scheduled like any other."""
    gangs.fleet.grid("1x1x1")
    body = pod_body("fake", gangs.fleet.selector, labels=FORGED_LABELS, annotations=FORGED_ANNOTATIONS)
    made = user.create(pods_path(gangs.name), body)
    assert "schedulingGates" not in made["spec"]
    assert not any(key.startswith("topogate.dev/") for key in made["metadata"].get("labels", {}))
    assert not any(key.startswith("topogate.dev/") for key in made["metadata"].get("annotations", {}))
    eventually(lambda: user.get(f"{pods_path(gangs.name)}/fake")["spec"].get("nodeName"), message="the pod is bound")


def test_a_job_that_only_looks_like_ours_runs_at_once(gangs: Namespace, user: Client) -> None:
    """A manifest exported from a placed Job, without its request: cleaned, not held, not planned."""
    gangs.fleet.grid("1x1x2")
    selector = gangs.fleet.selector
    template = {
        "metadata": {"labels": FORGED_LABELS, "annotations": FORGED_ANNOTATIONS},
        "spec": pod_body("x", selector)["spec"],
    }
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template}
    metadata = {"name": "copy", "annotations": FORGED_ANNOTATIONS, "labels": FORGED_LABELS}
    made = user.create(gangs.jobs_path, {"metadata": metadata, "spec": spec})
    assert not made["spec"].get("suspend")
    assert names.HELD_BY not in made["metadata"].get("annotations", {})
    assert "schedulingGates" not in made["spec"]["template"]["spec"]
    gangs.all_bound("copy", 2)
    assert gangs.placement("copy") is None


def test_forged_marks_do_not_jump_the_queue(gangs: Namespace, user: Client) -> None:
    """A Job that asks and brings a placement of its own is planned like any other: it waits where there is no room."""
    gangs.fleet.grid("1x1x1")
    template = {
        "metadata": {"labels": FORGED_LABELS, "annotations": FORGED_ANNOTATIONS},
        "spec": {**pod_body("x", gangs.fleet.selector)["spec"], "schedulingGates": []},
    }
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template}
    metadata = {"name": "eager", "annotations": {**require("rack"), **FORGED_ANNOTATIONS}}
    made = user.create(gangs.jobs_path, {"metadata": metadata, "spec": spec})
    assert made["spec"]["suspend"] is True
    assert names.PLACEMENT not in made["spec"]["template"]["metadata"].get("annotations", {})
    gangs.waits("eager")
    assert gangs.pods("eager") == []


def test_a_held_by_of_the_user_s_own_suspension_is_dropped(gangs: Namespace, user: Client) -> None:
    """He suspends and says that it was us: it is his suspension, and nothing is planned until he resumes."""
    gangs.fleet.grid("1x1x2")
    body = copy.deepcopy(pod_body("x", gangs.fleet.selector)["spec"])
    spec = {"suspend": True, "parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    annotations = {**require("rack"), names.HELD_BY: names.HELD_BY_SUSPEND}
    made = user.create(
        gangs.jobs_path,
        {"metadata": {"name": "mine", "annotations": annotations}, "spec": {**spec, "template": {"spec": body}}},
    )
    assert names.HELD_BY not in made["metadata"]["annotations"]
    gangs.submit("other", pods=2, annotations=require("rack"))
    gangs.all_bound("other", 2)  # the leader has seen both, and has given the room to the one that asks for it
    assert gangs.job("mine")["spec"]["suspend"] is True
    assert not (gangs.placement("mine") or {"spec": {}})["spec"].get("assignment")


REFERENCES: dict[str, dict[str, Any]] = {
    "another uid": {"uid": "11111111-2222-3333-4444-555555555555"},
    "another kind": {"kind": "StatefulSet", "apiVersion": "apps/v1"},
    "another name": {"name": "no-such-job"},
    "a kind that nobody knows": {"kind": "Job", "apiVersion": "batch.example.com/v1"},
    "no controller": {"controller": False},
}


@pytest.mark.parametrize("what", REFERENCES)
def test_an_owner_reference_that_does_not_fit_gains_nothing(gangs: Namespace, user: Client, what: str) -> None:
    """A pod that claims a waiting gang's rank by a wrong reference takes no slot, also when the gang is placed."""
    hosts = gangs.fleet.grid("1x1x2")
    blocker = pod_body("blocker", gangs.fleet.selector)
    user.create(pods_path(gangs.name), blocker)
    eventually(lambda: user.get(f"{pods_path(gangs.name)}/blocker")["spec"].get("nodeName"), message="one host is full")
    gangs.pods_seen()
    job = gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train")
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": job["metadata"]["uid"],
        "controller": True,
        **REFERENCES[what],
    }
    body = pod_body(
        "fake",
        gangs.fleet.selector,
        labels={**FORGED_LABELS, INDEX: "0"},
        annotations=FORGED_ANNOTATIONS,
        ownerReferences=[reference],
    )
    made = user.create(pods_path(gangs.name), body)
    assert names.RANK not in made["metadata"].get("annotations", {})
    assert "affinity" not in made["spec"]
    assert names.GANG not in made["metadata"].get("labels", {})
    if not held(made):  # no pod of ours: it competes like any other, and loses to nobody's reservation
        user.delete(f"{pods_path(gangs.name)}/fake", grace=0)
    user.delete(f"{pods_path(gangs.name)}/blocker", grace=0)
    bound = gangs.all_bound("train", 2)
    assert sorted(bound.values()) == hosts
    placement = gangs.placement("train")
    assert placement is not None
    assert slots(placement) == dict.fromkeys(hosts, 1)
    fake = user.find(f"{pods_path(gangs.name)}/fake")
    assert fake is None or host(fake) is None


def test_a_workload_of_another_namespace_is_no_owner(
    gangs: Namespace, client: Client, control_plane: ControlPlane
) -> None:
    """The namespace is the boundary: a reference to a neighbour's gang, right in all else, joins nothing."""
    gangs.fleet.grid("1x1x2")
    job = gangs.submit("train", pods=2, annotations=require("rack"))
    bound = gangs.all_bound("train", 2)
    other = f"{gangs.name}-b"
    client.create("/api/v1/namespaces", {"metadata": {"name": other}})
    eventually(lambda: client.find(f"/api/v1/namespaces/{other}/serviceaccounts/default"), message=f"{other} is ready")
    stranger = ordinary_user(control_plane, other)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
    body = pod_body(
        "fake", gangs.fleet.selector, labels={INDEX: "0"}, ownerReferences=[{**reference, "controller": True}]
    )
    made = stranger.create(pods_path(other), body)
    assert held(made)
    assert "affinity" not in made["spec"]
    assert names.GANG not in made["metadata"].get("labels", {})
    assert gangs.bound("train") == bound
    client.delete(f"/api/v1/namespaces/{other}")


def test_a_second_claimant_of_a_rank_stays_held(gangs: Namespace, user: Client) -> None:
    """The slot of a rank belongs to its first live pod: another one with the right owner is told so and waits."""
    gangs.fleet.grid("1x1x3")
    job = gangs.submit("train", pods=2, annotations=require("rack"))
    bound = gangs.all_bound("train", 2)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
    owners = [{**reference, "controller": True}]

    def claimed(name: str, *, dry_run: bool = False) -> Json:
        body = pod_body(name, gangs.fleet.selector, labels={INDEX: "0"}, ownerReferences=owners)
        made: Json = user.create(pods_path(gangs.name), body, dry_run=dry_run)
        return made

    def path_of(pod: Json) -> str:
        return f"{pods_path(gangs.name)}/{pod['metadata']['name']}"

    eventually(
        lambda: on_every_replica(lambda: held(claimed("double", dry_run=True))),
        message="every replica has seen the first pod",
    )
    doubles: list[Json] = []  # as they were created

    def told() -> bool:
        """Another pod once the Job controller has let one go, a second after it came: the leader may be too slow."""
        double = user.find(path_of(doubles[-1])) if doubles else None
        if double is None or not double["metadata"].get("ownerReferences"):
            doubles.append(claimed(f"double-{len(doubles)}"))
        return any("HeldWithoutSlot" in events(user, gangs.name, one["metadata"]["name"]) for one in doubles)

    eventually(told, message="it is told why")
    for made in doubles:
        assert held(made)
        assert "affinity" not in made["spec"]
        double = user.find(path_of(made))
        assert double is None or held(double)
    assert gangs.bound("train") == bound
    assert Books(gangs.client, gangs.fleet).overbooked() == {}
