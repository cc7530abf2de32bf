"""The mode of single namespaces on a running service, and what a change of it does to gangs that exist."""

from __future__ import annotations

import json

import pytest

from engine.api import names
from local.client import Client, ClientError
from local.controlplane import ControlPlane
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job, occupy, pod_of_index, replaced, vacate
from tests.support.gangs import Namespace, job_body, require

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topogate-policy"
DEFAULTED = "defaulted-workloads.topogate.dev"


def modes(gangs: Namespace, mode: str, *, more: str = "") -> str:
    return f"{TEST_POLICY}namespaces: {{modes: [{{namespaces: [{gangs.name}], mode: {mode}}}]{more}}}\n"


def said(gangs: Namespace, name: str, reason: str) -> str | None:
    """The note of an Event of that reason on an object."""
    events = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events")
    found = (one["note"] for one in events if one["regarding"]["name"] == name and one.get("reason") == reason)
    return next(found, None)


def test_one_namespace_is_let_go_and_another_one_is_not_touched(
    gangs: Namespace, beside: Namespace, policy: PolicyInForce
) -> None:
    """Its waiting gang starts with an Event that names the entry; back under enforce new Jobs are placed again."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("runs", pods=2, annotations=require("rack"))
    before = gangs.all_bound("runs", 2)
    gangs.submit("waits", pods=2, gpus=1, annotations=require("rack"))
    gangs.waits("waits")
    beside.submit("waits", pods=2, annotations=require("rack"))
    beside.waits("waits")
    policy.set(modes(gangs, "observe"))
    eventually(lambda: gangs.job("waits")["spec"]["suspend"] is False, message="the Job is resumed")
    for name in ("runs", "waits"):
        told = eventually(lambda name=name: said(gangs, name, "PolicyOff"), message=f"{name} says why")
        assert told.startswith("the policy's mode is observe in this namespace (namespaces.modes[0]); ")
        eventually(lambda name=name: gangs.placement(name) is None, message="its Placement is gone")
    assert gangs.bound("runs") == before
    seen = gangs.submit("seen", pods=1, annotations=require("rack"))
    assert names.GATE not in str(seen)
    assert beside.job("waits")["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
    assert said(beside, "waits", "PolicyOff") is None
    for name in ("runs", "waits", "seen"):
        delete_job(gangs, name)
    beside.all_bound("waits", 2)
    policy.set(TEST_POLICY)
    gangs.submit("new", pods=2, annotations=require("rack"))
    gangs.waits("new")
    delete_job(beside, "waits")
    gangs.all_bound("new", 2)


def test_hold_starts_nothing_lets_nothing_go_and_outlives_its_leader(
    gangs: Namespace, beside: Namespace, policy: PolicyInForce, service: Service, control_plane: ControlPlane
) -> None:
    """A lost pod comes back and a free host stays free, though a gang of another namespace shows that it is planned."""
    hosts = gangs.fleet.grid("1x1x3")
    gangs.submit("runs", pods=2, annotations=require("rack"), spec={"backoffLimit": 4})
    running = gangs.all_bound("runs", 2)
    (free,) = set(hosts) - set(running.values())
    other = occupy(gangs, free)
    gangs.submit("first", pods=1, annotations=require("rack"))
    gangs.waits("first", "InsufficientFreeGPUs")
    policy.set(modes(gangs, "hold"))
    gangs.waits("first", "PolicyHold")
    body = job_body("second", pods=1, annotations=require("rack"), pod_spec={"nodeSelector": gangs.fleet.selector})
    made = control_plane.kubectl("create", "--namespace", gangs.name, "-f", "-", input=json.dumps(body))
    assert "Warning: topogate: would wait: the policy's mode is hold in this namespace" in made.stderr
    gangs.waits("second", "PolicyHold")
    leader = eventually(service.leader, message="a replica leads")
    leader.kill()
    vacate(gangs, other)
    lost = pod_of_index(gangs, "runs", 0)["metadata"]
    gangs.client.delete(f"/api/v1/namespaces/{gangs.name}/pods/{lost['name']}")
    eventually(lambda: replaced(gangs, "runs", 0, lost["uid"]), message="the Job makes another pod")
    assert gangs.all_bound("runs", 2) == running
    beside.submit("train", pods=1, annotations=require("rack"))
    assert beside.all_bound("train", 1) == {0: free}
    delete_job(beside, "train")
    beside.submit("again", pods=1, annotations=require("rack"))
    beside.all_bound("again", 1)
    for name in ("first", "second"):
        gangs.waits(name, "PolicyHold")
        assert gangs.job(name)["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
        assert gangs.pods(name) == []
    policy.set(TEST_POLICY)
    gangs.waits("second", "InsufficientFreeGPUs")
    delete_job(beside, "again")
    assert gangs.all_bound("first", 1) == {0: free}
    gangs.waits("second")
    delete_job(gangs, "first")
    assert gangs.all_bound("second", 1) == {0: free}


def test_while_the_service_is_down_nothing_waits_for_it_where_the_mode_is_off(
    gangs: Namespace, beside: Namespace, policy: PolicyInForce, service: Service
) -> None:
    """Jobs that ask for nothing, in two namespaces with a default request: refused in the one, made in the other."""
    gangs.fleet.grid("1x1x1")
    default = f"{{namespaces: ['{gangs.name}*'], annotations: {{{names.PREFER}: auto}}}}"
    policy.set(modes(gangs, "off", more=f", defaults: [{default}]"))
    eventually(lambda: sends(gangs.client, gangs.name), message="the configuration leaves out the namespace")
    service.stop()
    # The API server takes a written configuration a moment later.
    eventually(lambda: DEFAULTED in refusal(beside), message="the API server asks for the other namespace")
    eventually(lambda: not refusal(gangs), message="the API server does not ask for this one")
    gangs.submit("plain", pods=1)
    gangs.all_bound("plain", 1)
    with pytest.raises(ClientError) as refused:
        beside.submit("plain", pods=1)
    assert DEFAULTED in refused.value.message


def refusal(gangs: Namespace) -> str:
    """Why a Job that asks for nothing is refused, tried without making it; "" if it is taken."""
    try:
        gangs.client.create(gangs.jobs_path, job_body("tried", pods=1), dry_run=True)
    except ClientError as error:
        return error.message
    return ""


def sends(client: Client, name: str) -> bool:
    """Return True if the entry for default requests is there, without this namespace."""
    entries = client.get(CONFIGURATION).get("webhooks") or []
    conditions = [
        one["expression"] for entry in entries if entry["name"] == DEFAULTED for one in entry["matchConditions"]
    ]
    return any(f"'^({name})$') ? false" in one for one in conditions)
