"""`topogate simulate` places StatefulSets where the volumes of their claim templates can be."""

from __future__ import annotations

from typing import Any

from tests.support.simulation import RACK, Json, answer, grid, job, pod

ASKS = {"require": "cloud.provider.com/topology-rack"}
CLUSTER = grid(1, 2, 2)


def stateful_set(name: str, pods: int, *templates: Json, **spec: Any) -> Json:
    body = job(name, pods, ASKS)
    template = body["spec"]["template"]
    template["spec"].pop("restartPolicy")
    template["metadata"] = {"labels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": body["metadata"],
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
            "volumeClaimTemplates": list(templates),
            **spec,
        },
    }


def claim_template(storage_class: str | None = None) -> Json:
    return {"metadata": {"name": "data"}, "spec": {"storageClassName": storage_class} if storage_class else {}}


def storage_class(name: str, rack: str, *, default: bool = False) -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": "csi.example.com",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": RACK, "values": [rack]}]}],
    }


def told(cluster: list[Json], *objects: Json) -> list[Json]:
    found: list[Json] = answer(cluster, list(objects))["workloads"]
    return found


def racks(found: Json) -> set[str]:
    slots = [slot for one in found["podSets"] for slot in one["assignment"]]
    return {slot["domain"][1] for slot in slots}


def test_the_class_of_a_template_says_where() -> None:
    """The first rack without one, the second by its class or by the default one, none beyond it."""
    assert [racks(one) for one in told(CLUSTER, stateful_set("a", 2))] == [{"b0-r0"}]
    for template, default in ((claim_template("fast"), False), (claim_template(), True)):
        cluster = [*CLUSTER, storage_class("fast", "b0-r1", default=default)]
        assert [racks(one) for one in told(cluster, stateful_set("a", 2, template))] == [{"b0-r1"}]
        (waits,) = told([*cluster, pod("x", "b0-r1-h0")], stateful_set("a", 2, template))
        assert "2 out of reach of its volumes" in waits["message"]


def existing(name: str, key: str, value: str) -> list[Json]:
    """A claim with its volume, which hosts with one label reach."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeName": f"v-{name}"},
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"v-{name}"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }
    return [claim, volume]


def test_volumes_of_an_earlier_run_say_where() -> None:
    """All in the second rack: the gang goes there. In two racks: it goes anywhere, and a warning names the claims."""
    both = [*existing("data-a-0", RACK, "b0-r1"), *existing("data-a-1", RACK, "b0-r1")]
    (found,) = told([*CLUSTER, *both], stateful_set("a", 2, claim_template()))
    assert (racks(found), found["warnings"]) == ({"b0-r1"}, [])
    apart = [*existing("data-a-0", RACK, "b0-r1"), *existing("data-a-1", RACK, "b0-r0")]
    (found,) = told([*CLUSTER, *apart], stateful_set("a", 2, claim_template()))
    assert (racks(found), found["warnings"]) == (
        {"b0-r0"},
        ["topogate: not considered: volumes of claims data-a-0 and data-a-1: no host reaches both"],
    )
