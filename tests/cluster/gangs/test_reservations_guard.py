"""Bindings of other pods to what is reserved for a gang, guarded by the policy, with the stock scheduler."""

from __future__ import annotations

from local.client import ClientError
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import assigned, delete_job
from tests.support.gangs import Namespace, require

GUARDED = TEST_POLICY + "reservations: {guard: true}\n"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/topogate-policy"


def guards(gangs: Namespace) -> bool:
    entries = gangs.client.get(CONFIGURATION).get("webhooks", [])
    return any(entry["name"] == "bindings.topogate.dev" for entry in entries)


def refused(gangs: Namespace, pod: str, host: str) -> bool:
    """Whether a binding of the pod would be refused at both of its paths; nothing is bound."""
    target = {"apiVersion": "v1", "kind": "Node", "name": host}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    for path in (f"pods/{pod}/binding", "bindings"):
        try:
            gangs.client.create(f"/api/v1/namespaces/{gangs.name}/{path}", body, dry_run=True)
        except ClientError as error:
            if error.status != 403:
                return False
        else:
            return False
    return True


def scheduler_says(gangs: Namespace, pod: str) -> str:
    """What the scheduler reports of a pod that it could not bind."""
    found = gangs.client.items(f"/api/v1/namespaces/{gangs.name}/events")
    return "\n".join(event["message"] for event in found if event["involvedObject"]["name"] == pod)


def test_a_foreign_pod_is_not_bound_to_what_a_gang_is_about_to_use(gangs: Namespace, policy: PolicyInForce) -> None:
    """The gang is placed and not bound yet: no binding of another pod until the gang is gone."""
    policy.set(GUARDED)
    eventually(lambda: guards(gangs), message="bindings are sent to the service")
    (host,) = gangs.fleet.grid("1x1x1")
    gangs.submit("train", pods=1, annotations=require("rack"), pod_spec={"schedulingGates": [{"name": "a.example/b"}]})
    eventually(lambda: assigned(gangs, "train") == {host: 1}, message="the gang has its slot")
    gangs.submit("other", pods=1, pod_spec={"schedulingGates": [{"name": "a.example/b"}]})
    (pod,) = eventually(lambda: gangs.pods("other"), message="the foreign pod exists")
    name = pod["metadata"]["name"]
    # The API server takes in its webhook configurations some time after they are stored, and each replica the gang.
    eventually(lambda: all(refused(gangs, name, host) for _ in range(20)), message="every replica refuses")
    gangs.client.patch(f"/api/v1/namespaces/{gangs.name}/pods/{name}", {"spec": {"schedulingGates": None}})
    said = 'the free "nvidia.com/gpu" of node'
    eventually(
        lambda: said in scheduler_says(gangs, name),
        message=lambda: f"the scheduler quotes the refusal\n{scheduler_says(gangs, name)}",
    )
    assert gangs.bound("other") == {}
    delete_job(gangs, "train")
    gangs.all_bound("other", 1)
    policy.set(TEST_POLICY)
    eventually(lambda: not guards(gangs), message="bindings are not sent any more")
