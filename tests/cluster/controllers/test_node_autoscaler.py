"""What a node autoscaler answers to ProvisioningRequests: the imitation as the real one (`--cluster-autoscaler`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from local.client import Client
from local.nodes import HOSTNAME, NODES, RACK
from tests.cluster.conftest import StartAutoscaler
from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet
from tests.support.node_pools import ATOMIC, CHECK, POOL, NodePool, pool, requests_path

Json = dict[str, Any]


class Asking:
    """Makes requests in one namespace, and says what became of them."""

    def __init__(self, client: Client, namespace: str, fleet: Fleet) -> None:
        self.client = client
        self.path = requests_path(namespace)
        self.templates = f"/api/v1/namespaces/{namespace}/podtemplates"
        self.fleet = fleet

    def ask(
        self,
        name: str,
        pods: int,
        *,
        of: str = ATOMIC,
        rack: str = "",
        near: bool = False,
        elsewhere: Sequence[str] = (),
        template: bool = True,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Request nodes for pods of 8 GPUs; `near`: all of them in one rack; `elsewhere`: not on these hosts."""
        places = {RACK: self.fleet.prefix + rack} if rack else {}
        limits = {"nvidia.com/gpu": "8"}
        spec: Json = {
            "nodeSelector": {**self.fleet.selector, **places},
            "containers": [{"name": "main", "image": "example.com/none", "resources": {"limits": limits}}],
        }
        if near:
            term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"gang": name}}}
            spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if elsewhere:
            other = {"matchExpressions": [{"key": HOSTNAME, "operator": "NotIn", "values": list(elsewhere)}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [other]}}
            spec["affinity"] = {"nodeAffinity": required}
        if template:
            body = {"metadata": {"labels": {"gang": name}}, "spec": spec}
            self.client.create(self.templates, {"metadata": {"name": name}, "template": body})
        asked = {
            "provisioningClassName": of,
            "podSets": [{"podTemplateRef": {"name": name}, "count": pods}],
            "parameters": dict(parameters or {}),
        }
        head = {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": {"name": name}}
        self.client.create(self.path, {**head, "spec": asked})

    def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        """Condition -> status and reason."""
        found = self.client.get(f"{self.path}/{name}").get("status", {}).get("conditions", [])
        return {one["type"]: (one["status"], one["reason"]) for one in found}

    def becomes(self, name: str, **wanted: tuple[str, str]) -> None:
        """Wait for conditions."""
        eventually(
            lambda: wanted.items() <= self.conditions(name).items(),
            message=lambda: f"{name} becomes {wanted}; it is {self.client.get(f'{self.path}/{name}')}",
        )

    def count(self, of: NodePool) -> int:
        """How many nodes a pool has."""
        return len(self.client.items(NODES, selector=f"{POOL}={of.name}"))

    def withdraw(self, name: str) -> None:
        self.client.delete(f"{self.path}/{name}")


@pytest.fixture
def asking(client: Client, namespace: str, nodes: Fleet) -> Asking:
    return Asking(client, namespace, nodes)


def test_all_pods_of_a_request_get_nodes_of_one_pool_or_none(
    nodes: Fleet, asking: Asking, start_autoscaler: StartAutoscaler
) -> None:
    """Three of four; then two more fit in neither pool beside them, though each has room for one; then two of two."""
    first, second = pool(nodes, "rack-a", 4), pool(nodes, "rack-b", 1)
    start_autoscaler(first, second)
    asking.ask("three", 3)
    asking.becomes("three", Accepted=("True", "Accepted"), Provisioned=("True", "CapacityIsProvisioned"))
    eventually(lambda: asking.count(first) == 3, message="three nodes")
    asking.ask("two", 2)
    asking.becomes("two", Accepted=("True", "Accepted"), Provisioned=("False", "CapacityIsNotFound"))
    asking.withdraw("three")
    asking.becomes("two", Provisioned=("True", "CapacityIsFound"))
    assert (asking.count(first), asking.count(second)) == (3, 0)


def test_free_room_counts_wherever_it_is_unless_the_pods_must_be_together(
    nodes: Fleet, asking: Asking, start_autoscaler: StartAutoscaler
) -> None:
    """Two free hosts in each of two racks are four for the autoscaler; with affinity by rack one rack grows to four."""
    first, second = pool(nodes, "rack-a", 4), pool(nodes, "rack-b", 4)
    start_autoscaler(first, second)
    for rack in ("rack-a", "rack-b"):
        asking.ask(rack, 2, rack=rack)
        asking.becomes(rack, Provisioned=("True", "CapacityIsProvisioned"))
    for rack in ("rack-a", "rack-b"):
        asking.withdraw(rack)
    eventually(lambda: (asking.count(first), asking.count(second)) == (2, 2), message="two nodes in each rack")
    asking.ask("anywhere", 4)
    asking.becomes("anywhere", Provisioned=("True", "CapacityIsFound"))
    asking.withdraw("anywhere")
    asking.ask("together", 4, near=True)
    asking.becomes("together", Provisioned=("True", "CapacityIsProvisioned"))
    eventually(lambda: sorted((asking.count(first), asking.count(second))) == [2, 4], message="one rack of four")


def test_pods_that_may_not_use_the_free_hosts_get_new_ones(
    nodes: Fleet, asking: Asking, start_autoscaler: StartAutoscaler
) -> None:
    """Two racks with two free hosts each stay as they are; four hosts come up in a third one."""
    free = nodes.grid("1x2x2")
    hosts = pool(nodes, "rack-new", 4)
    start_autoscaler(hosts)
    asking.ask("train", 4, elsewhere=free)
    asking.becomes("train", Provisioned=("True", "CapacityIsProvisioned"))
    eventually(lambda: asking.count(hosts) == 4, message="four nodes")


def test_nodes_that_never_become_ready_leave_a_request_provisioned(
    nodes: Fleet, asking: Asking, start_autoscaler: StartAutoscaler
) -> None:
    """Provisioned means ordered."""
    broken = pool(nodes, "rack-a", 4, joins=False)
    start_autoscaler(broken)
    asking.ask("train", 2)
    asking.becomes("train", Provisioned=("True", "CapacityIsProvisioned"))
    eventually(lambda: asking.count(broken) == 2, message="two nodes")
    always(lambda: asking.conditions("train")["Provisioned"][0] == "True", 2.0)


def test_a_check_of_capacity_orders_nothing_and_fails_only_if_told_not_to_retry(
    nodes: Fleet, asking: Asking, start_autoscaler: StartAutoscaler
) -> None:
    """Both wait for what is not there; one has failed, the other is provisioned when there is room."""
    hosts = pool(nodes, "rack-a", 2)
    start_autoscaler(hosts)
    asking.ask("once", 2, of=CHECK, parameters={"noRetry": "true"})
    asking.ask("patient", 2, of=CHECK)
    asking.becomes("once", Failed=("True", "CapacityIsNotFound"))
    asking.becomes("patient", Provisioned=("False", "CapacityIsNotFound"))
    assert "Provisioned" not in asking.conditions("once")
    assert asking.count(hosts) == 0
    nodes.grid("1x1x2")
    asking.becomes("patient", Provisioned=("True", "CapacityIsFound"))


def test_a_request_without_its_template_has_failed_and_an_unknown_class_gets_no_answer(
    nodes: Fleet, asking: Asking, start_autoscaler: StartAutoscaler
) -> None:
    """The one for ever, the other silently; a request of another instance's likewise."""
    start_autoscaler(pool(nodes, "rack-a", 2))
    asking.ask("unknown", 1, of="queued-provisioning.example.com")
    asking.ask("others", 1, of=CHECK, parameters={"processorInstance": "other"})
    asking.ask("early", 1, template=False)
    asking.becomes("early", Failed=("True", "FailedToCreatePods"))
    asking.ask("late", 1)
    asking.becomes("late", Provisioned=("True", "CapacityIsProvisioned"))
    assert asking.conditions("unknown") == asking.conditions("others") == {}


def test_a_booking_ends_by_itself(nodes: Fleet, asking: Asking, start_autoscaler: StartAutoscaler) -> None:
    """Provisioned stays true beside it, and the room is for others."""
    start_autoscaler(pool(nodes, "rack-a", 2), booking=2.0)
    asking.ask("first", 2)
    asking.becomes("first", BookingExpired=("True", "CapacityReservationTimeExpired"))
    assert asking.conditions("first")["Provisioned"] == ("True", "CapacityIsProvisioned")
    asking.ask("second", 2)
    asking.becomes("second", Provisioned=("True", "CapacityIsFound"))
