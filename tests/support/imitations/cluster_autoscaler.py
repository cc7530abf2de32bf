"""The cluster autoscaler, imitated: it answers ProvisioningRequests as version 1.36 was seen to do.

docs/contributor/kubernetes-facts.md says how. Of a pod it looks at the GPUs, the nodeSelector, required node affinity
(`In`, `NotIn`) and a required affinity to pods of the same request; of a node at the labels, the GPUs and whether it is
cordoned. It never removes a node.
"""

from __future__ import annotations

import calendar
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from local.client import Client, ClientError
from local.nodes import NODES
from tests.support.imitations.controller import AGAIN
from tests.support.node_pools import ATOMIC, CHECK, POOL, NodePool, requests_path
from tests.support.turns import Turns

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
FOUND = "Capacity is found in the cluster"
LATER = "Capacity is not found, CA will try to find it later."


@dataclass(slots=True)
class Room:
    """What is free on a node, or would be on a new one."""

    labels: dict[str, str]
    free: int


@dataclass(slots=True)
class Simulation:
    """Nodes that fill up with pods; `together` has the domain of each affinity's topology key, once there is one."""

    rooms: list[Room]
    together: dict[str, str] = field(default_factory=dict)

    def place(self, pod: Json) -> bool:
        """Put a pod on the first node that takes it; False if none does."""
        spec = pod.get("spec", {})
        keys = [
            term["topologyKey"]
            for term in spec.get("affinity", {})
            .get("podAffinity", {})
            .get("requiredDuringSchedulingIgnoredDuringExecution", [])
        ]
        for room in self.rooms:
            chosen = chosen_by(spec, room.labels)
            near = all(key in room.labels and self.together.get(key) in (None, room.labels[key]) for key in keys)
            if chosen and near and room.free >= gpus_of(pod):
                room.free -= gpus_of(pod)
                self.together.update({key: room.labels[key] for key in keys})
                return True
        return False


class ClusterAutoscaler(Turns):
    """Handles one request of a namespace in each turn; a context manager that runs it. `faults` is what stopped it.

    `retry`: seconds until it looks again for nodes that it did not find (the real one: a minute, and longer each time).
    `booking`: seconds for which a provisioned request is booked. `orders`: False if the cloud takes each order and
    starts nothing.
    """

    pause: ClassVar = 0.1
    passing: ClassVar = AGAIN

    def __init__(
        self,
        client: Client,
        namespace: str,
        pools: Sequence[NodePool],
        *,
        retry: float = 3.0,
        booking: float = 600.0,
        orders: bool = True,
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.pools = pools
        self.retry = retry
        self.booking = booking
        self.orders = orders
        self.faults: list[str] = []

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        assert not self.faults, self.faults

    def failed(self, fault: str) -> None:
        self.faults.append(fault)

    def turn(self) -> None:
        requests = [one for one in self.client.items(requests_path(self.namespace)) if known_class(one)]
        for one in requests:
            if booked(one) and age(one, "Provisioned") > self.booking:
                expired = "Capacity reservation time is expired"
                self._write(one, "BookingExpired", "True", "CapacityReservationTimeExpired", expired)
        request = next((one for one in requests if self._due(one)), None)
        if request is not None:
            self._answer(request, [one for one in requests if booked(one)])

    def _due(self, request: Json) -> bool:
        if status(request, "Failed") == "True" or status(request, "Provisioned") == "True":
            return False
        return status(request, "Provisioned") is None or age(request, "Provisioned") > self.retry

    def _answer(self, request: Json, others: Sequence[Json]) -> None:
        pods = self._pods_of(request)
        if pods is None:
            names = [one["podTemplateRef"]["name"] for one in request["spec"]["podSets"]]
            why = f"missing pod templates, {len(names)} pod templates were referenced: {','.join(names)}"
            self._write(request, "Failed", "True", "FailedToCreatePods", why)
            return
        request = self._write(
            request, "Accepted", "True", "Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler"
        )
        simulation = Simulation(self._rooms())
        for other in others:
            booking = Simulation(simulation.rooms)
            for pod in self._pods_of(other) or ():
                booking.place(pod)
        left = [pod for pod in pods if not simulation.place(pod)]
        gives_up = request["spec"].get("parameters", {}).get("noRetry") == "true"
        if not left:
            self._write(request, "Provisioned", "True", "CapacityIsFound", FOUND)
        elif request["spec"]["provisioningClassName"] == CHECK and gives_up:
            self._write(request, "Failed", "True", "CapacityIsNotFound", "CA could not find requested capacity")
        elif request["spec"]["provisioningClassName"] == ATOMIC and (order := self._order(left, simulation.together)):
            # Said before the nodes come up, as by the real one: a gang that has them waits for no answer any more.
            self._write(request, "Provisioned", "True", "CapacityIsProvisioned", FOUND)
            for node in order if self.orders else ():
                self.client.create(NODES, node)
        else:
            self._write(request, "Provisioned", "False", "CapacityIsNotFound", LATER)

    def _order(self, pods: Sequence[Json], together: dict[str, str]) -> list[Json]:
        """Return the nodes of one pool that these pods need; none if no pool has as many."""
        there = [one["metadata"]["labels"].get(POOL) for one in self.client.items(NODES)]
        for pool in self.pools:
            labels = pool.node(pool.name)["metadata"]["labels"]
            for count in range(1, pool.maximum - there.count(pool.name) + 1):
                grown = Simulation([Room(labels, pool.shape.gpus) for _ in range(count)], dict(together))
                if all([grown.place(pod) for pod in pods]):
                    return [pool.node(f"{pool.name}-{secrets.token_hex(3)}") for _ in range(count)]
        return []

    def _rooms(self) -> list[Room]:
        used: dict[str, int] = {}
        for pod in self.client.items("/api/v1/pods"):
            if (host := pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                used[host] = used.get(host, 0) + gpus_of(pod)
        return [
            Room(labels, int(node["status"]["allocatable"].get(GPU, 0)) - used.get(node["metadata"]["name"], 0))
            for node in self.client.items(NODES)
            if not node["spec"].get("unschedulable") and ready(node) and (labels := node["metadata"]["labels"])
        ]

    def _pods_of(self, request: Json) -> list[Json] | None:
        """Return the pods of a request; None if one of its templates is not there."""
        found: list[Json] = []
        for pod_set in request["spec"]["podSets"]:
            name = pod_set["podTemplateRef"]["name"]
            stored = self.client.find(f"/api/v1/namespaces/{self.namespace}/podtemplates/{name}")
            if stored is None:
                return None
            found += [stored["template"]] * pod_set["count"]
        return found

    def _write(self, request: Json, kind: str, value: str, reason: str, message: str) -> Json:
        """Write a condition, with a new time each time, as the real one does."""
        kept = [one for one in conditions(request) if one["type"] != kind]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        new = {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now}
        path = f"{requests_path(self.namespace)}/{request['metadata']['name']}/status"
        try:
            written: Json = self.client.patch(path, {"status": {"conditions": [*kept, new]}})
        except ClientError as error:
            if error.status not in AGAIN:
                raise
            return request
        return written


def chosen_by(spec: Json, labels: dict[str, str]) -> bool:
    """Whether the nodeSelector and the required node affinity of a pod allow a node with these labels."""
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    return terms is None or any(all(allows(one, labels) for one in term["matchExpressions"]) for term in terms)


def allows(expression: Json, labels: dict[str, str]) -> bool:
    """Whether an expression of node affinity allows a node with these labels."""
    among = labels.get(expression["key"]) in expression["values"]
    return among == (expression["operator"] == "In")


def conditions(request: Json) -> list[Json]:
    """The conditions of a request."""
    found: list[Json] = request.get("status", {}).get("conditions", [])
    return found


def status(request: Json, kind: str) -> str | None:
    """The status of a condition; None where it is not there."""
    return next((one["status"] for one in conditions(request) if one["type"] == kind), None)


def age(request: Json, kind: str) -> float:
    """The seconds since a condition was written; 0 where it is not there."""
    written = next((one["lastTransitionTime"] for one in conditions(request) if one["type"] == kind), None)
    return time.time() - _seconds(written) if written else 0.0


def booked(request: Json) -> bool:
    """Whether the request's pods use room."""
    ended = any(status(request, kind) == "True" for kind in ("Failed", "BookingExpired"))
    return status(request, "Provisioned") == "True" and not ended


def known_class(request: Json) -> bool:
    """Whether the autoscaler answers the request at all."""
    spec = request["spec"]
    return spec["provisioningClassName"] in (ATOMIC, CHECK) and "processorInstance" not in spec.get("parameters", {})


def ready(node: Json) -> bool:
    """Whether a node is Ready; one that has just been ordered counts as well."""
    found: Iterable[Json] = node["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)


def gpus_of(pod: Json) -> int:
    """The GPUs of all containers of a pod."""
    return sum(int(one.get("resources", {}).get("limits", {}).get(GPU, 0)) for one in pod["spec"]["containers"])


def _seconds(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
