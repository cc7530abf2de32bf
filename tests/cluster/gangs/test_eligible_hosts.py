"""Which hosts a gang may use: health, taints, selectors and affinity, as the scheduler sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from local.nodes import RACK
from tests.support.eventually import eventually
from tests.support.gang_steps import assigned, occupy, vacate
from tests.support.gangs import Json, Namespace, job_body, prefer, require

POOL = "example.com/pool"
ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "example.com/reserved", "value": "team-a", "effect": "NoSchedule"}


def _node_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def test_a_cordoned_host_is_not_used_until_it_is_uncordoned(gangs: Namespace) -> None:
    """Of two racks each has one host too few; the gang says so and starts when the host is back."""
    hosts = gangs.fleet.grid("1x1x3")
    gangs.fleet.cordon(hosts[1])
    gangs.submit("train", pods=3, annotations=require("rack"))
    message = gangs.waits("train", "NodesUnhealthy")["status"]["message"]
    assert "1 cordoned" in message
    gangs.fleet.uncordon(hosts[1])
    assert set(gangs.all_bound("train", 3).values()) == set(hosts)


def test_a_host_that_is_not_ready_is_not_used_until_it_is_ready(gangs: Namespace) -> None:
    """A dead host is no slot; when it is back the waiting gang starts."""
    hosts = gangs.fleet.grid("1x1x2")
    gangs.fleet.fail(hosts[0])
    gangs.submit("train", pods=2, annotations=require("rack"))
    message = gangs.waits("train", "NodesUnhealthy")["status"]["message"]
    assert "1 not ready" in message
    gangs.fleet.recover(hosts[0])
    assert set(gangs.all_bound("train", 2).values()) == set(hosts)


def test_a_gang_goes_round_hosts_that_take_no_pods(gangs: Namespace) -> None:
    """One host of the first rack is cordoned, one of the second is dead: the third rack it is."""
    hosts = gangs.fleet.grid("1x3x2")
    gangs.fleet.cordon(hosts[0])
    gangs.fleet.fail(hosts[3])
    gangs.submit("train", pods=2, annotations=require("rack"))
    assert set(gangs.all_bound("train", 2).values()) == set(hosts[4:])


def test_a_tainted_host_takes_only_gangs_that_tolerate_it(gangs: Namespace) -> None:
    """Both hosts of a rack are tainted: without a toleration the gang waits for ever, with one it runs there."""
    hosts = gangs.fleet.grid("1x1x2")
    for host in hosts:
        gangs.fleet.patch(host, {"spec": {"taints": [TAINT]}})
    gangs.submit("plain", pods=2, annotations=require("rack"))
    message = gangs.waits("plain", "NodesExcluded")["status"]["message"]
    assert "2 with taint example.com/reserved" in message
    gangs.submit(
        "tolerant",
        pods=2,
        annotations=require("rack"),
        pod_spec={"tolerations": [{"key": TAINT["key"], "operator": "Exists", "effect": "NoSchedule"}]},
    )
    assert set(gangs.all_bound("tolerant", 2).values()) == set(hosts)
    assert gangs.pods("plain") == []


def test_a_taint_that_goes_lets_the_waiting_gang_start(gangs: Namespace) -> None:
    """The admin takes the taint off; nobody touches the Job."""
    hosts = gangs.fleet.grid("1x1x2")
    gangs.fleet.patch(hosts[0], {"spec": {"taints": [TAINT]}})
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train", "NodesExcluded")
    gangs.fleet.patch(hosts[0], {"spec": {"taints": []}})
    gangs.all_bound("train", 2)


def test_a_node_selector_narrows_the_hosts(gangs: Namespace) -> None:
    """One host of each rack is in another pool: the gang takes three in two racks, and none outside its pool."""
    hosts = gangs.fleet.grid("1x2x3")
    fast = [hosts[0], hosts[1], hosts[4]]
    for host in fast:
        gangs.fleet.patch(host, {"metadata": {"labels": {POOL: "fast"}}})
    selector = {**gangs.fleet.selector, POOL: "fast"}
    gangs.submit("strict", pods=3, annotations=require("rack"), selector=selector)
    gangs.waits("strict")
    gangs.submit("easy", pods=3, annotations=prefer("rack"), selector=selector)
    assert set(gangs.all_bound("easy", 3).values()) == set(fast)


@pytest.fixture
def cleared(gangs: Namespace) -> Iterator[list[str]]:
    """Paths of objects without a namespace, deleted at the end."""
    paths: list[str] = []
    yield paths
    for path in paths:
        gangs.client.delete(path)


def _mounting(gangs: Namespace, claim: str) -> Json:
    """A pod spec with a claim."""
    spec: Json = job_body("x", pods=1, selector=gangs.fleet.selector)["spec"]["template"]["spec"]
    return {**spec, "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def _bound_claim(gangs: Namespace, cleared: list[str], volume: Json) -> None:
    """A claim with the name `data` that is bound to a volume; `volume`: labels and affinity of that."""
    name = f"data-{gangs.name}"
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    body = {
        "metadata": {"name": name, **volume.get("metadata", {})},
        "spec": {
            **spec,
            "capacity": {"storage": "1Gi"},
            "nfs": {"server": "nfs.example.com", "path": "/"},
            "claimRef": {"namespace": gangs.name, "name": "data"},
            **volume.get("spec", {}),
        },
    }
    gangs.client.create("/api/v1/persistentvolumes", body)
    cleared.append(f"/api/v1/persistentvolumes/{name}")
    claim = {**spec, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    claims = f"/api/v1/namespaces/{gangs.name}/persistentvolumeclaims"
    gangs.client.create(claims, {"metadata": {"name": "data"}, "spec": claim})


@pytest.mark.parametrize("by", ["affinity", "label"])
def test_a_gang_goes_where_its_volume_is(gangs: Namespace, cleared: list[str], by: str) -> None:
    """The volume is in reach of one rack; the gang waits while that is full, though the other is free."""
    racks = [f"{gangs.fleet.prefix}rack-{number:02}" for number in (0, 1)]
    if by == "label":
        volume: Json = {"metadata": {"labels": {ZONE: racks[1]}}}
    else:
        terms = [{"matchExpressions": [{"key": RACK, "operator": "In", "values": [racks[1]]}]}]
        volume = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    _bound_claim(gangs, cleared, volume)
    hosts = gangs.fleet.grid("1x2x2")  # after what the service has to know of the claim
    for number, host in enumerate(hosts):
        gangs.fleet.patch(host, {"metadata": {"labels": {ZONE: racks[number // 2]}}})
    other = occupy(gangs, hosts[3])
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=_mounting(gangs, "data"))
    assert "2 out of reach of its volumes" in gangs.waits("train")["status"]["message"]
    vacate(gangs, other)
    assert set(gangs.all_bound("train", 2).values()) == set(hosts[2:])


def test_a_gang_goes_where_its_storage_class_makes_volumes(gangs: Namespace, cleared: list[str]) -> None:
    """The claim waits for its first consumer: the class says in which rack volumes can be."""
    rack = f"{gangs.fleet.prefix}rack-01"
    name = f"fast-{gangs.name}"
    body = {
        "metadata": {"name": name},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": RACK, "values": [rack]}]}],
    }
    gangs.client.create("/apis/storage.k8s.io/v1/storageclasses", body)
    cleared.append(f"/apis/storage.k8s.io/v1/storageclasses/{name}")
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": name, "resources": {"requests": {"storage": "1Gi"}}}
    claims = f"/api/v1/namespaces/{gangs.name}/persistentvolumeclaims"
    gangs.client.create(claims, {"metadata": {"name": "data"}, "spec": claim})
    hosts = gangs.fleet.grid("1x2x2")  # after what the service has to know of the claim
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=_mounting(gangs, "data"))
    eventually(lambda: set(assigned(gangs, "train")) == set(hosts[2:]), message="the gang has the hosts of that rack")


def test_required_node_affinity_is_honoured_term_by_term(gangs: Namespace) -> None:
    """Hosts of either of two terms, none with the label that the first one excludes; each pod pinned in both terms."""
    hosts = gangs.fleet.grid("1x1x4")
    for host, pool in zip(hosts, ("a", "b", "b", "c"), strict=True):
        gangs.fleet.patch(host, {"metadata": {"labels": {POOL: pool}}})
    gangs.fleet.patch(hosts[1], {"metadata": {"labels": {"example.com/old": "true"}}})
    old = {"key": "example.com/old", "operator": "DoesNotExist"}
    affinity = _node_affinity(
        {"matchExpressions": [{"key": POOL, "operator": "In", "values": ["b"]}, old]},
        {"matchExpressions": [{"key": POOL, "operator": "In", "values": ["c"]}]},
    )
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=affinity)
    assert gangs.all_bound("train", 2) == {0: hosts[2], 1: hosts[3]}


def test_a_gang_that_its_own_affinity_makes_too_large_starts_when_labels_change(gangs: Namespace) -> None:
    """A Gt expression leaves one host of two, which no repair of nodes changes; a new label does."""
    hosts = gangs.fleet.grid("1x1x2")
    for host, generation in zip(hosts, ("3", "5"), strict=True):
        gangs.fleet.patch(host, {"metadata": {"labels": {"example.com/generation": generation}}})
    newer = _node_affinity({"matchExpressions": [{"key": "example.com/generation", "operator": "Gt", "values": ["4"]}]})
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=newer)
    gangs.waits("train", "GangTooLarge")
    gangs.fleet.patch(hosts[0], {"metadata": {"labels": {"example.com/generation": "6"}}})
    gangs.all_bound("train", 2)
