"""Gangs that wait for nodes which do not exist yet, on a running service, with the API of the cluster autoscaler.

Where it does not matter how an autoscaler decides, a test answers itself.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from local.client import Client, ClientError
from local.nodes import BLOCK, RACK
from local.service import Service
from tests.cluster.conftest import Kubectl
from tests.cluster.gangs.conftest import PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job
from tests.support.gangs import Namespace, job_body, require
from tests.support.imitations.cluster_autoscaler import ClusterAutoscaler
from tests.support.node_pools import ATOMIC, REQUESTS, definition, pool
from tests.support.pages import pages

Json = dict[str, Any]
GROUP = "autoscaling.x-k8s.io"
CONSUME = f"{GROUP}/consume-provisioning-request"
CLASS = f"{GROUP}/provisioning-class-name"
FALLBACKS = 'parameters: {ValidUntilSeconds: "900"}, fallbacks: [{className: example.com.second}]'


@pytest.fixture
def removed(client: Client) -> Iterator[None]:
    """The kind is not there when the test begins, nor afterwards."""
    REQUESTS.remove(client)
    yield
    REQUESTS.remove(client)


class Autoscaled:
    """Gangs of one namespace in a topology that has no node yet, and the requests for them."""

    def __init__(self, gangs: Namespace, policy: PolicyInForce, version: str = "v1") -> None:
        self.gangs = gangs
        self.client = gangs.client
        self.policy = policy
        self.path = f"/apis/{GROUP}/{version}/namespaces/{gangs.name}/provisioningrequests"
        self.templates_path = f"/api/v1/namespaces/{gangs.name}/podtemplates"

    def switch_on(self, more: str = "", *, rest: str = "", after: str = "1s") -> None:
        """The policy requests nodes for the gangs of this test's topology."""
        (key, value), *_ = self.gangs.fleet.selector.items()
        request = f"{{className: {ATOMIC}, after: {after}{', ' + more if more else ''}}}"
        self.policy.set(
            f"topologies: [{{name: default, preset: demo, nodeSelector: {{{key}: {value}}}}}]\n"
            f"nodes: {{settle: 0s}}\nautoscaling: {{provisioningRequest: {request}}}\n{rest}"
        )

    def submit(self, name: str = "train", pods: int = 4, **options: Any) -> None:
        self.gangs.submit(name, pods=pods, selector={}, annotations=require("rack"), **options)

    def requests(self) -> list[Json]:
        """The requests of this namespace, as they were made."""
        return sorted(self.client.items(self.path), key=lambda one: str(one["metadata"]["name"]))

    def request(self, number: int = 1) -> Json:
        """Wait for the request of the attempt with this number, alone."""
        found = eventually(
            lambda: [one for one in self.requests() if one["metadata"]["name"].endswith(f"-{number}")],
            message=lambda: f"request {number} is made: {self.gangs.placement('train')}",
        )
        assert found is not None
        return found[0]

    def templates(self) -> dict[str, Json]:
        return {one["metadata"]["name"]: one["template"] for one in self.client.items(self.templates_path)}

    def answer(self, request: Json, **conditions: bool) -> None:
        """Set conditions as an autoscaler does."""
        path = f"{self.path}/{request['metadata']['name']}"
        known = self.client.get(path).get("status", {}).get("conditions", [])
        fresh = [
            {
                "type": kind,
                "status": str(status),
                "reason": f"{kind}Now",
                "message": f"{kind} said the autoscaler",
                "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            for kind, status in conditions.items()
        ]
        kept = [one for one in known if one["type"] not in conditions]
        self.client.patch(f"{path}/status", {"status": {"conditions": [*kept, *fresh]}})

    def status(self, job: str = "train") -> Json:
        placement = self.gangs.placement(job)
        found: Json = (placement or {}).get("status") or {}
        return found

    def says(self, words: str, job: str = "train") -> None:
        """Wait until the gang's message has these words."""
        eventually(
            lambda: words in str(self.status(job).get("message")),
            message=lambda: f"{job} says {words!r}: {self.status(job)}",
        )

    def events(self, *reasons: str) -> list[str]:
        """The notes of the Events with these reasons on Jobs."""
        found = self.client.items(f"/apis/events.k8s.io/v1/namespaces/{self.gangs.name}/events")
        return [str(one["note"]) for one in found if one["reason"] in reasons and one["regarding"]["kind"] == "Job"]

    def nothing_left(self) -> None:
        """Wait until there is neither a request nor a template."""
        eventually(
            lambda: not self.requests() and not self.templates(),
            message=lambda: f"requests and templates are withdrawn: {self.requests()} {list(self.templates())}",
        )


@pytest.fixture
def autoscaled(gangs: Namespace, policy: PolicyInForce, removed: None) -> Autoscaled:
    definition("v1", "v1beta1").install(gangs.client)
    return Autoscaled(gangs, policy)


def test_a_pool_grows_from_zero_for_a_gang(autoscaled: Autoscaled) -> None:
    """A topology without a single node: the request shows the pods, nodes come, all pods run in one rack and name the
    request, and nothing of it is left.
    """
    autoscaled.switch_on()
    gangs = autoscaled.gangs
    autoscaled.submit(pod_spec={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    request = autoscaled.request()
    assert request["spec"]["provisioningClassName"] == ATOMIC
    assert [one["count"] for one in request["spec"]["podSets"]] == [4]
    (owner,) = request["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", gangs.job("train")["metadata"]["uid"])
    template = autoscaled.templates()[request["spec"]["podSets"][0]["podTemplateRef"]["name"]]["spec"]
    assert template["nodeSelector"] == gangs.fleet.selector
    assert template["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert template["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert not template.get("schedulingGates")
    autoscaled.says("asked the autoscaler for 4 pods")
    with ClusterAutoscaler(gangs.client, gangs.name, [pool(gangs.fleet, "rack-a", 4)]) as autoscaler:
        bound = gangs.all_bound("train", 4)
        gangs.fleet.names += sorted(set(bound.values()))
    assert not autoscaler.faults
    assert len(gangs.racks(bound)) == 1
    for pod in gangs.pods("train"):
        annotations = pod["metadata"]["annotations"]
        assert (annotations[CONSUME], annotations[CLASS]) == (request["metadata"]["name"], ATOMIC)
    autoscaled.nothing_left()
    for reason in ("ProvisioningRequestCreated", "ProvisioningRequestProvisioned"):
        eventually(lambda reason=reason: len(autoscaled.events(reason)) == 1, message=f"an Event {reason}")


def test_free_hosts_in_two_racks_do_not_keep_a_pool_from_growing(autoscaled: Autoscaled) -> None:
    """Each pod alone would find room today, and the gang needs one rack: four new nodes come up in a third one."""
    gangs = autoscaled.gangs
    free = gangs.fleet.grid("1x2x2")
    autoscaled.switch_on()
    hosts = pool(gangs.fleet, "rack-new", 4)
    with ClusterAutoscaler(gangs.client, gangs.name, [hosts]):
        autoscaled.submit()
        bound = gangs.all_bound("train", 4)
        gangs.fleet.names += sorted(set(bound.values()))
    assert not set(bound.values()) & set(free)


def test_gangs_that_wait_for_something_else_start_no_nodes(autoscaled: Autoscaled) -> None:
    """For quota, for another gang in strict order, or for the labels of nodes that are there; a gang that comes later
    and waits for room asks.
    """
    gangs = autoscaled.gangs
    bare = {key: value for key, value in gangs.fleet.selector.items()}
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"requests.nvidia.com/gpu": "32"}}}
    gangs.client.create(f"/api/v1/namespaces/{gangs.name}/resourcequotas", quota)
    autoscaled.switch_on()  # the leader knows the quota by now
    autoscaled.submit("quota", pods=5)
    gangs.waits("quota", "QuotaExceeded")
    autoscaled.submit("room", pods=3)
    gangs.waits("room", "InsufficientFreeHosts")
    request = autoscaled.request()
    assert [one["count"] for one in request["spec"]["podSets"]] == [3]
    assert len(autoscaled.requests()) == 1
    delete_job(gangs, "room")
    autoscaled.nothing_left()
    names = gangs.fleet.grid("1x1x2")
    for name in names:
        gangs.fleet.patch(name, {"metadata": {"labels": {BLOCK: None, RACK: None, **bare}}})
    autoscaled.submit("labels", pods=2)
    gangs.waits("labels", "LabelsMissing")
    autoscaled.switch_on(rest="queue: {order: strict}\n")
    assert autoscaled.requests() == []


def test_after_a_failure_the_next_class_is_asked(autoscaled: Autoscaled, kubectl: Kubectl) -> None:
    """The gang says what the autoscaler said; the failed request goes with its template. The commands of the admin's
    page autoscaling.md show both.
    """
    autoscaled.switch_on(FALLBACKS)
    autoscaled.submit()
    first = autoscaled.request()
    autoscaled.answer(first, Accepted=True, Failed=True)
    second = autoscaled.request(2)
    assert second["spec"]["provisioningClassName"] == "example.com.second"
    eventually(lambda: len(autoscaled.requests()) == 1, message="the failed request is withdrawn")
    eventually(lambda: len(autoscaled.templates()) == 1, message="and its template")
    (note,) = eventually(lambda: autoscaled.events("ProvisioningRequestFailed"), message="an Event tells the failure")
    assert "Failed said the autoscaler" in note
    assert "the next request (example.com.second) follows" in note
    autoscaled.answer(second, Failed=True)
    autoscaled.says("could not provide nodes for 4 pods (class example.com.second)")
    found = autoscaled.status()["provisioning"]
    assert (found["state"], found["attempt"]) == ("Failed", 2)
    assert found["retryAt"] > found["since"]
    (block,) = [one for one in pages()["docs/tasks/admin/autoscaling.md"].blocks if one.language == "sh"]
    requests, states = [kubectl(*shlex.split(line)[1:]).stdout for line in block.text.splitlines()]
    assert second["metadata"]["name"] in requests
    placement = autoscaled.gangs.placement("train")
    assert placement is not None
    assert [autoscaled.gangs.name, placement["metadata"]["name"], "Failed"] in map(str.split, states.splitlines())


@pytest.mark.parametrize("end", ["BookingExpired", "CapacityRevoked"])
def test_nodes_that_the_autoscaler_takes_back_are_told(autoscaled: Autoscaled, end: str) -> None:
    """The gang goes on waiting, and the next request follows after a pause."""
    autoscaled.switch_on()
    autoscaled.submit()
    request = autoscaled.request()
    autoscaled.answer(request, Accepted=True, Provisioned=True)
    autoscaled.says("has provisioned nodes for 4 pods")
    autoscaled.answer(request, **{end: True})
    eventually(lambda: autoscaled.events(end), message=f"an Event {end}")
    eventually(
        lambda: autoscaled.status().get("provisioning", {}).get("state") == end,
        message=lambda: f"the state is told: {autoscaled.status()}",
    )
    autoscaled.says("the next request follows at")


def test_a_pool_that_grew_in_two_racks_is_told(autoscaled: Autoscaled) -> None:
    """Two nodes in each of two racks: the gang needs one rack, and says what came up."""
    autoscaled.switch_on()
    autoscaled.submit()
    request = autoscaled.request()
    autoscaled.answer(request, Accepted=True, Provisioned=True)
    autoscaled.gangs.fleet.grid("1x2x2")
    autoscaled.says("4 new nodes came up in ")
    autoscaled.says("and it needs one rack")


def test_a_request_goes_with_its_gang(autoscaled: Autoscaled) -> None:
    """Deleted, or suspended by its user: no nodes are started for it any more."""
    autoscaled.switch_on()
    autoscaled.submit()
    autoscaled.request()
    delete_job(autoscaled.gangs, "train")
    autoscaled.nothing_left()
    autoscaled.submit("later")
    eventually(autoscaled.requests, message="a request is made")
    job = f"{autoscaled.gangs.jobs_path}/later"
    autoscaled.client.patch(job, {"metadata": {"annotations": {"topogate.dev/held-by": None}}})
    autoscaled.gangs.waits("later", "Suspended")
    autoscaled.nothing_left()


def test_a_leader_killed_between_templates_and_request_is_followed(autoscaled: Autoscaled, service: Service) -> None:
    """The next one makes the request, once, with the templates that are there."""
    client = autoscaled.client
    binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    name = f"{autoscaled.gangs.name}-requests"
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["provisioningrequests"],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": autoscaled.gangs.name}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"namespaceSelector": selector, "resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "held up by a test"}],
    }
    client.create(policies, {"metadata": {"name": name}, "spec": spec})
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    client.create(binding, bound)
    autoscaled.switch_on()
    try:
        eventually(lambda: refuses(autoscaled), message="requests are refused")
        autoscaled.submit()
        eventually(autoscaled.templates, message="the templates are there")
        eventually(lambda: autoscaled.events("ProvisioningRequestRefused"), message="the refusal is told")
        leader = eventually(service.leader, message="a replica leads")
        assert leader is not None
        leader.kill()
    finally:
        client.delete(f"{binding}/{name}")
        client.delete(f"{policies}/{name}")
    request = autoscaled.request()
    template = request["spec"]["podSets"][0]["podTemplateRef"]["name"]
    assert list(autoscaled.templates()) == [template]
    assert len(autoscaled.requests()) == 1


def refuses(autoscaled: Autoscaled) -> bool:
    """Whether the API server refuses a request now."""
    spec = {"provisioningClassName": "probe", "podSets": [{"podTemplateRef": {"name": "probe"}, "count": 1}]}
    body = {"apiVersion": f"{GROUP}/v1", "kind": "ProvisioningRequest", "metadata": {"name": "probe"}, "spec": spec}
    try:
        autoscaled.client.create(autoscaled.path, body, dry_run=True)
    except ClientError as error:
        return "held up by a test" in str(error)
    return False


def test_without_the_api_gangs_wait_and_say_so_and_an_older_version_will_do(
    gangs: Namespace, policy: PolicyInForce, removed: None
) -> None:
    """The definition comes later, and in v1beta1 alone: nodes are requested then."""
    autoscaled = Autoscaled(gangs, policy, "v1beta1")
    autoscaled.switch_on()
    autoscaled.submit()
    gangs.waits("train", "InsufficientFreeHosts")
    autoscaled.says("the cluster serves no ProvisioningRequests")
    definition("v1beta1").install(gangs.client)
    request = eventually(autoscaled.requests, message="a request is made in the version that is served")
    assert request is not None
    assert request[0]["apiVersion"] == f"{GROUP}/v1beta1"


def test_plain_pods_behind_their_gates_get_nodes_too(autoscaled: Autoscaled) -> None:
    """No workload, no suspension: the template is that of a pod, and the pods stay gated until nodes are there."""
    autoscaled.switch_on()
    gangs, pods = autoscaled.gangs, f"/api/v1/namespaces/{autoscaled.gangs.name}/pods"
    asks = {"topogate.dev/gang-name": "g", "topogate.dev/gang-size": "2", **require("rack")}
    container = {"name": "main", "image": "example.com/x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    for number in range(2):
        body = {"metadata": {"name": f"g-{number}", "annotations": asks}, "spec": {"containers": [container]}}
        gangs.client.create(pods, body)
    request = autoscaled.request()
    assert [one["count"] for one in request["spec"]["podSets"]] == [2]
    assert {one["kind"] for one in request["metadata"]["ownerReferences"]} == {"Pod"}
    (template,) = autoscaled.templates().values()
    assert not template["spec"].get("schedulingGates") and not template["spec"].get("volumes")
    autoscaled.answer(request, Accepted=True, Provisioned=True)
    gangs.fleet.grid("1x1x2")
    eventually(
        lambda: all(one["spec"].get("nodeName") for one in gangs.client.items(pods)), message="both pods are bound"
    )
    assert {one["metadata"]["annotations"][CONSUME] for one in gangs.client.items(pods)} == {
        request["metadata"]["name"]
    }
    autoscaled.nothing_left()


def test_a_gang_that_never_fits_today_is_not_refused(autoscaled: Autoscaled) -> None:
    """With `neverFits: deny` a gang too large for its topology is denied; where nodes are requested it waits."""
    gangs = autoscaled.gangs
    gangs.fleet.grid("1x1x2")
    autoscaled.switch_on(rest="neverFits: deny\n")
    body = job_body("large", pods=9, annotations=require("rack"))
    gangs.client.create(gangs.jobs_path, body)
    gangs.waits("large", "InsufficientFreeHosts")
    autoscaled.says("it waits for new nodes", "large")
