"""What another system manages is left alone, and owned Jobs are held as their owner allows."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from engine.api import names
from local.client import Client
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, job_body, require
from tests.support.raw_pods import held

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
KUEUE = {"kueue.x-k8s.io/queue-name": "team"}


def untouched(stored: dict[str, Any], sent: dict[str, Any]) -> bool:
    """True when nothing of ours came in: no suspension, no gate, no label, and the annotations as they were sent."""
    template = stored["spec"]["template"]
    ours = [key for key in template["metadata"].get("labels", {}) if key.startswith("topogate.dev/")]
    return (
        not stored["spec"].get("suspend")
        and template["spec"].get("schedulingGates") == sent["spec"]["template"]["spec"].get("schedulingGates")
        and not ours
        and stored["metadata"].get("annotations", {}) == sent["metadata"].get("annotations", {})
    )


def kueue_job(**more: Any) -> dict[str, Any]:
    body = job_body("theirs", pods=1, gpus=1, annotations=require("rack"), **more)
    body["metadata"]["labels"] = KUEUE
    return body


ASIDE = {
    "a queue of Kueue": kueue_job(),
    "a gate of Kueue": job_body(
        "theirs",
        pods=1,
        gpus=1,
        annotations=require("rack"),
        pod_spec={"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]},
    ),
    "another scheduler": job_body(
        "theirs", pods=1, gpus=1, annotations=require("rack"), pod_spec={"schedulerName": "example-scheduler"}
    ),
    "an exclusive topology of JobSet": job_body(
        "theirs", pods=1, gpus=1, annotations={**require("rack"), "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    ),
    "a node by name": job_body(
        "theirs", pods=1, gpus=1, annotations=require("rack"), pod_spec={"nodeName": "some-node"}
    ),
}


@pytest.mark.parametrize("what", ASIDE)
def test_what_another_system_manages_is_left_alone(gangs: Namespace, client: Client, what: str) -> None:
    """A Job that asks, but that is somebody else's: admitted as it was sent, never planned, its pods not held."""
    gangs.fleet.grid("1x1x1")
    stored = client.create(gangs.jobs_path, ASIDE[what])
    assert untouched(stored, ASIDE[what])
    pods = eventually(lambda: gangs.pods("theirs"), message="its pod is made")
    assert not held(pods[0])
    gangs.submit("ours", pods=1, gpus=1, annotations=require("rack"))
    gangs.all_bound("ours", 1)  # by now the leader has looked at both
    assert gangs.placement("theirs") is None


def test_pods_of_a_daemon_set_are_left_alone(gangs: Namespace, client: Client) -> None:
    """A DaemonSet whose template asks gets its pod on its node, without a word from us."""
    names_ = gangs.fleet.grid("1x1x1")
    pod = job_body("x", pods=1, gpus=1, selector=gangs.fleet.selector)["spec"]["template"]["spec"]
    pod.pop("restartPolicy")
    labels = {"app": "agent"}
    template = {"metadata": {"labels": labels, "annotations": require("rack")}, "spec": pod}
    client.create(
        f"/apis/apps/v1/namespaces/{gangs.name}/daemonsets",
        {"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": labels}, "template": template}},
    )
    path = f"/api/v1/namespaces/{gangs.name}/pods"
    try:
        found = eventually(
            lambda: [pod for pod in client.items(path, selector="app=agent") if pod["spec"].get("nodeName")],
            message="the DaemonSet's pod is bound",
        )
        assert found[0]["spec"]["nodeName"] == names_[0]
        assert not any(key.startswith("topogate.dev/") for key in found[0]["metadata"]["labels"])
    finally:
        client.delete(f"/apis/apps/v1/namespaces/{gangs.name}/daemonsets/agent")


@pytest.mark.parametrize("where", ["kube-system", names.NAMESPACE])
def test_system_namespaces_are_left_alone(gangs: Namespace, client: Client, where: str) -> None:
    """A Job there that asks, even for nonsense, is stored as it is."""
    assert gangs.name
    body = job_body("odd", pods=1, annotations=require("no-such-level"))
    stored = client.create(f"/apis/batch/v1/namespaces/{where}/jobs", body, dry_run=True)
    assert untouched(stored, body)


def test_the_job_of_a_cron_job_is_suspended_and_planned(gangs: Namespace, kubectl: Kubectl, client: Client) -> None:
    """Its owner starts it and lets it be: it is held like a user's own."""
    gangs.fleet.grid("1x1x2")
    template = job_body("x", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    body = {
        "metadata": {"name": "nightly"},
        "spec": {
            "schedule": "0 3 1 1 *",
            "suspend": True,
            "jobTemplate": {"metadata": {"annotations": require("rack")}, "spec": template["spec"]},
        },
    }
    client.create(f"/apis/batch/v1/namespaces/{gangs.name}/cronjobs", body)
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    kubectl("create", "job", "tonight", "--from=cronjob/nightly")
    gangs.waits("tonight")
    job = gangs.job("tonight")
    assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    assert job["spec"]["suspend"] is True
    client.delete(f"{gangs.jobs_path}/first")
    gangs.all_bound("tonight", 2)


def test_the_job_of_another_controller_is_held_by_its_gate_alone(gangs: Namespace, client: Client) -> None:
    """Suspension belongs to its owner: the pods are made, held, and released together."""
    gangs.fleet.grid("1x2x2")
    owner = client.create(f"/api/v1/namespaces/{gangs.name}/configmaps", {"metadata": {"name": "owner"}})
    gangs.submit("first", pods=4, annotations=require("block"))
    gangs.all_bound("first", 4)
    body = job_body("part", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    stored = client.create(gangs.jobs_path, body)
    assert not stored["spec"].get("suspend")
    assert names.HELD_BY not in stored["metadata"]["annotations"]
    gangs.waits("part")
    eventually(lambda: len([pod for pod in gangs.pods("part") if held(pod)]) == 2, message="both pods are held")
    client.delete(f"{gangs.jobs_path}/first")
    assert len(gangs.racks(gangs.all_bound("part", 2))) == 1
    assert not gangs.job("part")["spec"].get("suspend")
