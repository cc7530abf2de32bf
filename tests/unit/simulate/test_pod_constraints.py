"""`topogate simulate` counts the pods of the cluster's file for (anti-)affinity and spread, and its own plans."""

from __future__ import annotations

from typing import Any

from engine.api import names
from tests.support.simulation import BLOCK, RACK, Json, answer, grid, job, pod

HOST = "kubernetes.io/hostname"
LABELS = {"app": "train"}
ASKS = {"unconstrained": "true"}


def gang(name: str, pods: int, spec: Json, asks: dict[str, str] = ASKS) -> Json:
    body = job(name, pods, asks, gpus=1)
    template = body["spec"]["template"]
    template["metadata"] = {"labels": LABELS}
    template["spec"] |= spec
    return body


def running(name: str, host: str, labels: dict[str, str], **spec: Any) -> Json:
    containers = [{"name": "main", "image": "x"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"nodeName": host, "containers": containers, **spec},
        "status": {"phase": "Running"},
    }


def term(key: str, labels: dict[str, str]) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def required(kind: str, *terms: Json) -> Json:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def spread_over(key: str) -> Json:
    rule = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": LABELS},
    }
    return {"topologySpreadConstraints": [rule]}


def named_hosts(blocks: int, racks: int, hosts: int) -> list[Json]:
    """Nodes with the label of their name, as every kubelet sets it."""
    nodes = grid(blocks, racks, hosts)
    for node in nodes:
        node["metadata"]["labels"][HOST] = node["metadata"]["name"]
    return nodes


def racks(found: Json) -> set[str]:
    slots = [slot for one in found["placement"]["podSets"] for slot in one["slots"]]
    return {slot["domain"][1] for slot in slots}


def told(cluster: list[Json], *objects: Json) -> list[Json]:
    found: list[Json] = answer(cluster, list(objects))["workloads"]
    return found


def test_pods_of_the_cluster_count() -> None:
    """As anchors, as those that keep others away, and for the skew."""
    cluster = [*grid(2, 2, 2), running("db", "b1-r1-h0", {"app": "db"})]
    (near,) = told(cluster, gang("near", 2, required("podAffinity", term(RACK, {"app": "db"}))))
    assert near["verdict"] == "placed"
    assert "b1-r1" in str(near)
    away = running("away", "b0-r0-h0", {}, **required("podAntiAffinity", term(BLOCK, LABELS)))
    (kept_off,) = told([*cluster, away], gang("train", 2, {}))
    assert "b0-" not in str(kept_off["message"])
    both = running("also", "b1-r0-h0", {}, **required("podAntiAffinity", term(BLOCK, LABELS)))
    (waits,) = told([*cluster, away, both], gang("train", 2, {}))
    assert (waits["verdict"], waits["reason"]) == ("waits", "PodConstraints")
    assert waits["message"] == (
        f"needs room for 2 pods among 8 hosts; 8 hosts excluded by podAntiAffinity of other pods on {BLOCK}"
    )


def test_workloads_before_it_count_with_their_slots() -> None:
    """Three of four racks are taken by the first Job; of the second only one pod would find a rack."""
    apart = required("podAntiAffinity", term(RACK, LABELS))
    first, second, third = told(grid(2, 2, 2), gang("a", 3, apart), gang("b", 2, apart), gang("c", 1, apart))
    assert [one["verdict"] for one in (first, second, third)] == ["placed", "waits", "placed"]
    assert second["reason"] == "PodConstraints"


def test_what_is_not_considered_is_still_named() -> None:
    """In the warnings of the answer."""
    selector = {"matchLabels": {"team": "x"}}
    odd = required("podAntiAffinity", {**term(RACK, LABELS), "namespaceSelector": selector})
    (found,) = told(grid(1, 1, 2), gang("odd", 1, odd))
    assert "not considered: pod anti-affinity (namespaceSelector) of the pods" in str(found["warnings"])


def test_where_room_is_short_the_numbers_are_of_the_room_and_not_of_what_the_rules_leave() -> None:
    """With one pod for each rack they leave no room at all for three in one."""
    cluster = [*grid(1, 2, 3), pod("p", "b0-r0-h0"), pod("q", "b0-r1-h0")]
    for rule in (spread_over(RACK), required("podAntiAffinity", term(RACK, LABELS))):
        body = job("train", 3, {"require": "rack"})
        body["spec"]["template"]["metadata"] = {"labels": LABELS}
        body["spec"]["template"]["spec"] |= rule
        (found,) = told(cluster, body)
        assert found["reason"] == "Fragmented"
        assert found["message"] == "needs 3 hosts in one rack; best is b0-r0 with 2 (2 racks looked at)"


def test_no_toleration_is_offered_where_the_pods_keep_each_other_away() -> None:
    """With it they would have the room, and no place in it."""
    hosts = [*grid(1, 1, 3), pod("p", "b0-r0-h1")]
    hosts[2]["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    body = job("train", 4, {"require": "rack"}, gpus=4)
    (plain,) = told(hosts, body)
    assert plain["message"].endswith("with a toleration for team it would fit now")
    body["spec"]["template"]["metadata"] = {"labels": LABELS}
    body["spec"]["template"]["spec"] |= required("podAntiAffinity", term(RACK, LABELS))
    (found,) = told(hosts, body)
    assert "toleration" not in found["message"]


def test_auto_means_a_level_in_which_the_pods_may_stand_beside_each_other() -> None:
    """One host has room for all of them, but not for one on each host; where no level will do, the room decides."""
    cluster, asks = named_hosts(2, 2, 4), {"require": "auto"}
    (host,) = told(cluster, gang("train", 4, {}, asks))
    assert host["message"] == "placed 4 pods in b0 / b0-r0 (1 host)"
    (rack,) = told(cluster, gang("train", 4, spread_over(HOST), asks))
    assert rack["message"] == "placed 4 pods in b0 / b0-r0 (4 hosts)"
    (block,) = told(cluster, gang("train", 2, required("podAntiAffinity", term(RACK, LABELS)), asks))
    assert block["message"] == "placed 2 pods in b0 over 2 racks (2 hosts)"
    (never,) = told(cluster, gang("train", 3, required("podAntiAffinity", term(RACK, LABELS)), asks))
    assert (never["verdict"], never["reason"]) == ("waits", "PodConstraints")


def test_a_gang_that_waits_is_shown_with_the_level_that_auto_means_for_pods_that_keep_apart() -> None:
    """One host has room for all four, but may take one of them: two hosts of each rack are in use."""
    cluster = named_hosts(2, 2, 4)
    full = [*cluster, *(pod(f"p{n}", node["metadata"]["name"]) for n, node in enumerate(cluster) if n % 4 > 1)]
    asks = {"require": "auto", "prefer": "rack"}
    (found,) = told(full, gang("train", 4, spread_over(HOST), asks))
    assert (found["verdict"], found["reason"]) == ("waits", "PodConstraints")
    assert (found["podSets"][0]["require"], found["podSets"][0]["prefer"]) == ("rack", None)


def test_where_the_rules_among_its_pods_are_in_the_way_a_gang_needs_room_for_whole_slices() -> None:
    """Three are enough for it, and two share a rack: it starts with four, but not with one pod for each block."""
    slices = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}
    asks = {"require": "block", names.MIN_AVAILABLE: "3", **slices}
    (found,) = told(grid(1, 2, 4), gang("train", 8, required("podAntiAffinity", term(BLOCK, LABELS)), asks))
    assert found["reason"] == "PodConstraints"
    assert found["message"].startswith("needs room for 4 pods among 8 hosts; ")
