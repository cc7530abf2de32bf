"""The policy on a running service: bad ones never take effect, good ones take effect without a restart."""

from __future__ import annotations

import json

import pytest

from local.client import Client, ClientError
from local.controlplane import ControlPlane
from local.nodes import BLOCK, RACK
from local.service import NAMESPACE, Replica, Service
from tests.cluster.gangs.conftest import POLICY, TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import held_pods, occupy, resume, vacate
from tests.support.gangs import Namespace, require
from tests.support.raw_pods import held

pytestmark = pytest.mark.core

LAST_GOOD = f"/api/v1/namespaces/{NAMESPACE}/configmaps/topogate-policy-last-good"
RENAMED = f"""
topologies:
- name: default
  levels: [{{name: zone, keys: [{BLOCK}]}}, {{name: row, keys: [{RACK}]}}]
nodes: {{settle: 0s}}
"""
BAD = """
mode: enfroce
topologies:
- {name: default, preset: dmeo}
- name: default
  levels: [{name: rack, keys: ["no label key!"]}]
timeouts: {bind: 30}
queue: {order: fastest, pateince: 10m}
"""
BAD_PATHS = {
    "mode",
    "topologies[0].preset",
    "topologies[1].name",
    "topologies[1].levels[0].keys[0]",
    "timeouts.bind",
    "queue.order",
    "queue.pateince",
}


def _config_map(text: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "topogate-policy", "namespace": NAMESPACE},
            "data": {"policy.yaml": text},
        }
    )


def _refused(gangs: Namespace, level: str) -> str:
    """The API server's message when a Job requires a level that is unknown."""
    with pytest.raises(ClientError) as refusal:
        gangs.submit(f"asks-{level}", pods=1, annotations=require(level))
    assert refusal.value.status == 422
    return str(refusal.value)


def test_a_bad_policy_is_refused_with_every_path(control_plane: ControlPlane, gangs: Namespace) -> None:
    """`kubectl apply` fails with one line per fault, and the policy that stood stays."""
    before = gangs.client.get(POLICY)["data"]
    answer = control_plane.kubectl("apply", "-f", "-", input=_config_map(BAD), check=False)
    assert answer.returncode == 1
    for path in BAD_PATHS:
        assert f"{path}:" in answer.stderr, f"{path} is missing in\n{answer.stderr}"
    assert 'did you mean "demo"' in answer.stderr
    assert gangs.client.get(POLICY)["data"] == before


def test_levels_get_new_names_without_a_restart(gangs: Namespace, service: Service, policy: PolicyInForce) -> None:
    """The same processes take `row` and refuse `rack`, with what is allowed now."""
    gangs.fleet.grid("1x2x2")
    processes = {replica.child.process.pid for replica in service.running()}
    policy.set(RENAMED)
    assert "zone, row, host" in _refused(gangs, "rack")
    gangs.submit("train", pods=2, annotations=require("row"))
    assert len(gangs.racks(gangs.all_bound("train", 2))) == 1
    assert {replica.child.process.pid for replica in service.running()} == processes


def test_a_waiting_gang_says_that_its_level_is_gone_and_starts_when_it_is_back(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """Its level loses its name in the policy: it stays held, with the reason; named again, it runs."""
    hosts = gangs.fleet.grid("1x1x2")
    other = occupy(gangs, hosts[0])
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train", "InsufficientFreeGPUs")
    policy.set(RENAMED)
    gangs.waits("train", "UnknownLevel")
    vacate(gangs, other)
    policy.set(TEST_POLICY)
    gangs.all_bound("train", 2)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_change_of_mode_releases_everything_that_is_held(gangs: Namespace, policy: PolicyInForce, mode: str) -> None:
    """A Job held by suspension is resumed, pods held by the gate are let go, the running gang is left alone."""
    gangs.fleet.grid("1x2x2")
    gangs.submit("runs", pods=2, annotations=require("rack"))
    before = gangs.all_bound("runs", 2)
    gangs.submit("gated", pods=3, gpus=4, annotations=require("host"))
    gangs.waits("gated")
    resume(gangs, "gated")
    held_pods(gangs, "gated", 3)
    gangs.submit("large", pods=9, gpus=1, annotations=require("host"))
    gangs.waits("large")
    policy.set(TEST_POLICY + f"mode: {mode}\n")
    gangs.all_bound("gated", 3)
    eventually(lambda: gangs.job("large")["spec"]["suspend"] is False, message="the Job is resumed")
    eventually(
        lambda: len(gangs.pods("large")) == 9 and not any(map(held, gangs.pods("large"))),
        message=lambda: f"its pods are not held\n{gangs.describe('large')}",
    )
    eventually(lambda: gangs.placement("large") is None, message="nothing is left of its Placement")
    assert gangs.bound("runs") == before
    for name in ("runs", "gated", "large"):
        eventually(lambda name=name: _told(gangs.client, gangs.name, name, "PolicyOff"), message=f"{name} says why")
    eventually(lambda: _told(gangs.client, NAMESPACE, "topogate-policy", "PolicyTaken"), message="the policy says so")


def test_under_observe_new_jobs_are_left_as_they_are(gangs: Namespace, policy: PolicyInForce) -> None:
    """No suspension, no gate, no label; and a wrong request is let through."""
    policy.set(TEST_POLICY + "mode: observe\n")
    gangs.fleet.grid("1x1x2")
    stored = gangs.submit("train", pods=2, annotations=require("rakc"))
    assert not stored["spec"].get("suspend")
    assert "schedulingGates" not in stored["spec"]["template"]["spec"]
    assert "topogate.dev" not in json.dumps(stored["spec"]["template"]["metadata"])
    gangs.all_bound("train", 2)
    assert gangs.placement("train") is None


def test_back_under_enforce_what_runs_is_left_alone_and_new_jobs_are_placed(
    gangs: Namespace, policy: PolicyInForce
) -> None:
    """Pods that started under observe stay as they are, and count."""
    policy.set(TEST_POLICY + "mode: observe\n")
    hosts = gangs.fleet.grid("1x1x3")
    gangs.submit("old", pods=2, annotations=require("rack"))
    old = gangs.all_bound("old", 2)
    policy.set(TEST_POLICY)
    gangs.submit("new", pods=1, annotations=require("rack"))
    assert gangs.all_bound("new", 1)[0] in set(hosts) - set(old.values())
    assert gangs.bound("old") == old
    assert gangs.placement("old") is None


def test_the_last_good_policy_outlives_a_bad_one_that_slipped_in_while_nobody_looked(
    gangs: Namespace, client: Client, service: Service, policy: PolicyInForce
) -> None:
    """Written while the service is down, the bad one is not taken at the start: the good one of before is in force."""
    gangs.fleet.grid("1x1x2")
    policy.set(RENAMED)
    eventually(lambda: _kept(client) == RENAMED, message="the leader has kept the good policy")
    service.stop()
    client.patch(POLICY, {"data": {"policy.yaml": BAD}})
    service.start(2)
    eventually(service.leader, message="a replica leads")
    assert "zone, row, host" in _refused(gangs, "rack")
    gangs.submit("train", pods=2, annotations=require("row"))
    gangs.all_bound("train", 2)
    for replica in service.running():
        metrics, ready = (_page(replica, path) for path in ("/metrics", "/readyz"))
        assert "topogate_policy_refused 1.0" in metrics
        assert "stays in force; refused: mode: " in ready.partition("[!] policy: ")[2]
    assert _kept(client) == RENAMED
    eventually(lambda: _told(client, NAMESPACE, "topogate-policy", "PolicyInvalid"), message="the policy says so")


def _page(replica: Replica, path: str) -> str:
    """The text of a page; a busy replica may leave a question without an answer."""
    return eventually(lambda: replica.page(path)[1], message=f"an answer to {path}")


def _told(client: Client, namespace: str, name: str, reason: str) -> bool:
    """True when an Event of that reason stands on an object."""
    events = client.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return any(one["regarding"]["name"] == name and one.get("reason") == reason for one in events)


def test_a_deleted_policy_is_given_up(client: Client, policy: PolicyInForce) -> None:
    """The leader empties what it has kept, so that no replica takes it when a bad policy follows."""
    policy.set(RENAMED)
    eventually(lambda: _kept(client) == RENAMED, message="the leader has kept the good policy")
    client.delete(POLICY)
    eventually(lambda: _kept(client) == "", message="the leader has given the deleted policy up")


def _kept(client: Client) -> str | None:
    found = client.find(LAST_GOOD)
    return None if found is None else found["data"].get("policy.yaml")
