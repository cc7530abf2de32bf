"""Claims: host ports, and pods that keep each other off a host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api.pod import Pod, Shape
from engine.capacity.capacity import Capacity, SlotCounts
from engine.decoding.pods import pod
from engine.decoding.workloads import job
from engine.resources.shape import covers
from engine.topology.topology import Topology, build_topology
from tests.support.cluster_records import gpu_nodes

HOSTNAME = "kubernetes.io/hostname"
ALIKE = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "train"}}}


def a_pod(*, namespace: str = "team", host: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    meta = {"name": "p", "namespace": namespace, "labels": {"app": "train"} if labels is None else labels}
    return pod({"metadata": meta, "spec": {"nodeName": host, **spec}})


def ports(*numbers: int, protocol: str | None = None) -> dict[str, Any]:
    return {
        "containers": [{"ports": [{"hostPort": n, **({"protocol": protocol} if protocol else {})} for n in numbers]}]
    }


def apart(**term: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**ALIKE, **term}]}}}


def claims(one: Pod) -> list[str]:
    return [name for name, _ in one.spec.shape.requests if " " in name]


@pytest.fixture
def room() -> tuple[Capacity, Topology]:
    """Two hosts with room for many small pods."""
    nodes = gpu_nodes(1, 1, 2)
    capacity = Capacity()
    for node in nodes:
        capacity.set_node(node.name, node)
    return capacity, build_topology("t", [], nodes)


def slots(room: tuple[Capacity, Topology], shape: Shape) -> list[int]:
    """The free slots per host; counted afresh and kept current they are the same."""
    capacity, topology = room
    count: SlotCounts = capacity.count(shape, topology)
    index = capacity.slots(shape, topology, scarce="cpu")
    assert index.slots.tolist() == count.free.tolist()
    return count.free.tolist()


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (ports(80, 443), ["host port 443/TCP", "host port 80/TCP"]),
        (ports(53, protocol="UDP"), ["host port 53/UDP"]),
        ({"containers": [{"ports": [{"containerPort": 80}]}]}, []),
        ({"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]}, ["host port 80/TCP"]),
        ({"initContainers": [{"ports": [{"hostPort": 80}]}]}, []),
        ({"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 80}]}]}, ["host port 80/TCP"]),
        ({"containers": [{"ports": [{"hostPort": 80}]}, {"ports": [{"hostPort": 80}]}]}, ["host port 80/TCP"]),
    ],
)
def test_host_ports_are_claimed(spec: dict[str, Any], found: list[str]) -> None:
    """Ports of the host, of running containers and sidecars, once each."""
    assert claims(a_pod(**spec)) == found


@pytest.mark.parametrize(
    "spec",
    [
        apart(),
        apart(namespaces=["team"]),
        apart(labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["train", "x"]}]}),
        apart(labelSelector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        apart(labelSelector={"matchExpressions": [{"key": "no", "operator": "DoesNotExist"}]}),
        apart(labelSelector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["serve"]}]}),
        apart(labelSelector={}),
    ],
)
def test_pods_that_keep_their_like_off_the_host_claim_it(spec: dict[str, Any]) -> None:
    """Required anti-affinity on the hostname to pods with these labels is modelled, so no warning names it."""
    one = a_pod(**spec)
    assert len(claims(one)) == 1
    assert one.spec.unmodelled == ()


@pytest.mark.parametrize(
    ("spec", "unmodelled"),
    [
        (apart(topologyKey="example.com/rack"), ()),
        (apart(labelSelector={"matchLabels": {"app": "serve"}}), ()),
        (
            apart(labelSelector={"matchExpressions": [{"key": "app", "operator": "Odd"}]}),
            ("pod anti-affinity (invalid selector)",),
        ),
        (apart(labelSelector=None), ()),
        (apart(namespaces=["team", "other"]), ()),
        (apart(namespaceSelector={}), ()),
        (
            apart(matchLabelKeys=["pod-template-hash"]),
            ("pod anti-affinity (matchLabelKeys without such a label)",),
        ),
    ],
)
def test_other_anti_affinity_is_no_claim(spec: dict[str, Any], unmodelled: tuple[str, ...]) -> None:
    """What is about other pods, levels or namespaces is a rule for the plan, or is named in the warning."""
    one = a_pod(**spec)
    assert claims(one) == []
    assert one.spec.unmodelled == unmodelled


def test_a_template_and_its_pods_claim_the_same() -> None:
    """The namespace of a template is its workload's; the spelling of the selector does not matter."""
    template = {"metadata": {"labels": {"app": "train"}}, "spec": apart()}
    workload = job({"metadata": {"name": "j", "namespace": "team"}, "spec": {"template": template}})
    spelled = apart(labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["train"]}]})
    assert workload.template.shape.requests == a_pod(**spelled).spec.shape.requests


def test_one_pod_per_host_and_claim(room: tuple[Capacity, Topology]) -> None:
    """A host has one slot for pods with a claim, none where another pod holds it, and one again when that is gone."""
    capacity, topology = room
    shape = a_pod(**ports(80)).spec.shape
    assert slots(room, shape) == [1, 1]
    first = topology.tree.hosts[0]
    capacity.set_pod(("other", "p"), a_pod(namespace="other", host=first, **ports(80)))
    assert slots(room, shape) == [0, 1]
    assert capacity.count(shape, topology).empty.tolist() == [1, 1]
    assert slots(room, a_pod(**ports(81)).spec.shape) == [1, 1]
    capacity.set_pod(("other", "p"), None)
    assert slots(room, shape) == [1, 1]


def test_a_reservation_holds_the_claim(room: tuple[Capacity, Topology]) -> None:
    """What is reserved for one gang is taken for the next; two holders on a host are one too many."""
    capacity, topology = room
    shape = a_pod(**apart()).spec.shape
    first = topology.tree.hosts[0]
    capacity.reserve("gang", {first: 1}, shape.requests)
    assert slots(room, shape) == [0, 1]
    assert not capacity.overcommitted(first, shape.requests)
    capacity.set_pod(("team", "p"), a_pod(host=first, **apart()))
    assert capacity.overcommitted(first, shape.requests)
    capacity.reserve("gang", {}, ())
    assert not capacity.overcommitted(first, shape.requests)


def test_other_namespaces_do_not_share_the_claim(room: tuple[Capacity, Topology]) -> None:
    """Anti-affinity without namespaces is about one's own."""
    capacity, topology = room
    capacity.set_pod(("other", "p"), a_pod(namespace="other", host=topology.tree.hosts[0], **apart()))
    assert slots(room, a_pod(**apart()).spec.shape) == [1, 1]


def test_a_port_that_came_later_does_not_hold_the_pod() -> None:
    """A sidecar with a host port makes the pod no larger than planned."""
    planned = a_pod().spec.shape
    assert covers(planned, a_pod(**ports(80)).spec.shape)
    assert not covers(planned, replace(planned, requests=(*planned.requests, ("nvidia.com/gpu", 1))))
