"""Requests that users do not write as ours, on a running service: those of their namespace, and pod-group labels."""

from __future__ import annotations

import pytest

from engine.api import names
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.gangs import Json, Namespace, job_body, require

GROUP, GROUP_MIN = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
PLUGINS = "scheduling.x-k8s.io/pod-group"
KOORDINATOR, KOORDINATOR_MIN = "gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"


def asked(stored: Json) -> dict[str, str]:
    """The requests that stand on a Job."""
    found = stored["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if key.endswith("-topology")}


def submit_in(gangs: Namespace, namespace: str, name: str) -> Json:
    """A Job that asks for nothing, in any namespace; not stored."""
    body = job_body(name, pods=2, selector=gangs.fleet.selector)
    stored: Json = gangs.client.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", body, dry_run=True)
    return stored


def test_jobs_of_a_namespace_with_defaults_are_placed_as_if_they_had_asked(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """Who asks himself, or says that he does not, keeps that; other namespaces are left alone."""
    gangs.fleet.grid("1x2x2")
    defaults = f"[{{namespaces: ['{gangs.name[:-2]}*'], annotations: {{{names.REQUIRE}: rack}}}}]"
    policy.set(TEST_POLICY + f"namespaces: {{defaults: {defaults}}}\n")
    eventually(lambda: asked(submit_in(gangs, gangs.name, "probe")), message="the Jobs of the namespace are sent to us")
    stored = gangs.submit("train", pods=2)
    assert asked(stored) == {names.REQUIRE: "rack"}
    assert stored["spec"]["suspend"] is True
    assert len(gangs.racks(gangs.all_bound("train", 2))) == 1
    assert asked(gangs.submit("own", pods=1, annotations={names.PREFER: "block"})) == {names.PREFER: "block"}
    free = gangs.submit("free", pods=1, gpus=0, annotations={names.UNCONSTRAINED: "false"})
    assert not free["spec"].get("suspend")
    other = submit_in(gangs, "default", "other")
    assert (asked(other), other["spec"].get("suspend", False)) == ({}, False)
    policy.set(TEST_POLICY)
    eventually(lambda: not asked(submit_in(gangs, gangs.name, "probe")), message="they are not sent to us any more")


def test_a_pod_group_label_asks_for_all_pods_at_once(gangs: Namespace) -> None:
    """A gang of no level, which waits as a whole; the label stays its user's on every pod."""
    gangs.fleet.grid("1x1x2")
    body = job_body("ring", pods=3, selector=gangs.fleet.selector)
    body["spec"]["template"]["metadata"]["labels"] = {GROUP: "ring"}
    stored = gangs.client.create(gangs.jobs_path, body)
    assert (asked(stored), stored["spec"]["suspend"]) == ({names.UNCONSTRAINED: "true"}, True)
    gangs.waits("ring")
    gangs.fleet.host("late", block="block-0", rack="rack-99")
    gangs.all_bound("ring", 3)
    assert {pod["metadata"]["labels"][GROUP] for pod in gangs.pods("ring")} == {"ring"}


@pytest.mark.parametrize(
    ("style", "labels", "annotations"),
    [
        ("coscheduling", (GROUP, GROUP_MIN), ()),
        ("scheduler-plugins", (PLUGINS,), ()),
        ("koordinator", (), (KOORDINATOR, KOORDINATOR_MIN)),
        ("none", (), ()),
    ],
)
def test_pods_carry_the_pod_group_of_the_policys_style(
    gangs: Namespace, policy: PolicyInForce, style: str, labels: tuple[str, ...], annotations: tuple[str, ...]
) -> None:
    """The gang's name, and how many pods a scheduler may wait for; nothing of any other style."""
    gangs.fleet.grid("1x1x2")
    policy.set(TEST_POLICY + f"podGroup: {{labels: {style}}}\ntimeouts: {{bind: 31s}}\n")  # else it is the same policy
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    gang = (gangs.placement("train") or {})["metadata"]["name"]
    every = {GROUP: gang, GROUP_MIN: "2", PLUGINS: gang, KOORDINATOR: gang, KOORDINATOR_MIN: "2"}
    for pod in gangs.pods("train"):
        metadata = pod["metadata"]
        found = {key: value for key, value in metadata["labels"].items() if key in every}
        told = {key: value for key, value in metadata["annotations"].items() if key in every}
        assert (found, told) == ({key: every[key] for key in labels}, {key: every[key] for key in annotations})


def submit_member(gangs: Namespace, name: str, *, pods: int, least: int, labels: bool = True) -> Json:
    """A Job of the pod group `mesh`."""
    body = job_body(name, pods=pods, selector=gangs.fleet.selector)
    if labels:
        body["spec"]["template"]["metadata"]["labels"] = {GROUP: "mesh", GROUP_MIN: str(least)}
    else:
        body["metadata"]["annotations"] = {names.POD_GROUP: "mesh", names.MIN_AVAILABLE: str(least)}
    stored: Json = gangs.client.create(gangs.jobs_path, body)
    return stored


def test_two_jobs_of_a_pod_group_start_together_or_not_at_all(gangs: Namespace) -> None:
    """The first waits for the other, both for room for both; a third joins them where there is room for it."""
    gangs.fleet.grid("1x1x3")
    assert submit_member(gangs, "first", pods=2, least=4)["spec"]["suspend"] is True
    assert gangs.waits("first", "WaitingForMembers")["status"]["message"] == "2 of 4 pods of pod group mesh exist"
    submit_member(gangs, "second", pods=2, least=4, labels=False)
    for name in ("first", "second"):
        message = gangs.waits(name, "InsufficientFreeGPUs")["status"]["message"]
        assert message.startswith("4 pods of pod group mesh start together; there is room for 3 of them")
    assert gangs.pods("first") == gangs.pods("second") == []
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    gangs.all_bound("first", 2)
    gangs.all_bound("second", 2)
    submit_member(gangs, "third", pods=1, least=4)
    gangs.waits("third", "InsufficientFreeGPUs")
    gangs.fleet.host("host-004", block="block-0", rack="rack-00")
    gangs.all_bound("third", 1)


POD_GROUPS = Definition(
    "scheduling.x-k8s.io",
    "PodGroup",
    "podgroups",
    ("v1alpha1",),
    schema={
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    },
)


def test_a_pod_group_object_says_how_many_start_together(gangs: Namespace) -> None:
    """Its kind is installed after the Jobs that name it; garbage holds them; without it what runs goes on."""
    gangs.fleet.grid("1x1x5")

    def submit_named(name: str) -> None:
        body = job_body(name, pods=2, selector=gangs.fleet.selector)
        body["metadata"]["labels"] = {PLUGINS: "mesh"}
        gangs.client.create(gangs.jobs_path, body)

    submit_named("first")
    told = gangs.waits("first", "WaitingForMembers")["status"]["message"]
    assert told.startswith("PodGroup mesh (scheduling.x-k8s.io) not found: create it with spec.minMember")
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{gangs.name}/podgroups"
    POD_GROUPS.install(gangs.client)
    try:
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "mesh"}}
        gangs.client.create(path, {**group, "spec": {"minMember": "all of them"}})
        eventually(
            lambda: "PodGroup mesh cannot be read: spec.minMember" in gangs.waits("first")["status"]["message"],
            message=lambda: gangs.describe("first"),
        )
        gangs.client.patch(f"{path}/mesh", {"spec": {"minMember": 4}})
        eventually(
            lambda: gangs.waits("first")["status"]["message"] == "2 of 4 pods of pod group mesh exist",
            message=lambda: gangs.describe("first"),
        )
        submit_named("second")
        gangs.all_bound("first", 2)
        gangs.all_bound("second", 2)
    finally:
        POD_GROUPS.remove(gangs.client)
    submit_named("third")
    gangs.waits("third", "WaitingForMembers")
    assert len(gangs.pods("first")) == len(gangs.pods("second")) == 2
