"""`topogate simulate` on pods of several GPUs: hosts where they share a PCIe scope, a NUMA node or NVLink."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from engine.resources.names import CORE, GPU, MEMORY, NVIDIA, RATIO
from tests.support.simulation import Json, answer, grid, job, pod

HOST, RACK = {"require": "host"}, {"require": "rack"}


def device_object(host: str, gpus: list[tuple[int | None, str]]) -> Json:
    """A Device object of GPUs, each with its NUMA node and PCIe scope."""
    one = {"type": "gpu", "health": True, "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"}}
    devices = [
        {**one, "minor": minor, "id": f"GPU-{minor}"}
        | ({} if numa is None else {"topology": {"nodeID": numa, "pcieID": pcie, "socketID": numa}})
        for minor, (numa, pcie) in enumerate(gpus)
    ]
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    return {**kind, "metadata": {"name": host}, "spec": {"devices": devices}}


EIGHT = [(minor // 4, f"p{minor // 2}") for minor in range(8)]


def cluster(*told: list[tuple[int | None, str]], racks: int = 1) -> list[Json]:
    """Hosts of 8 GPUs; the first ones have a Device object."""
    nodes = grid(1, racks, 2)
    hosts = [one["metadata"]["name"] for one in nodes]
    return [*nodes, *(device_object(host, gpus) for host, gpus in zip(hosts, told, strict=False) if gpus)]


def gpu_job(name: str, pods: int, gpus: int, asks: Json, scope: str | None = None) -> Json:
    body = job(name, pods, asks)
    amounts = {NVIDIA: str(gpus)}
    body["spec"]["template"]["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": amounts}}]
    if scope is not None:
        body["metadata"].setdefault("annotations", {})[names.DEVICE_SCOPE] = scope
    return body


def used(host: str, *minors: int) -> Json:
    """A pod of somebody else with these GPUs."""
    body = pod(f"used-{host}", host)
    body["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": {NVIDIA: str(len(minors))}}}]
    devices = {"gpu": [{"minor": minor, "resources": {CORE: "100", RATIO: "100"}} for minor in minors]}
    body["metadata"]["annotations"] = {names.DEVICE_ALLOCATED: json.dumps(devices)}
    return body


def gang(objects: list[Json], body: Json, **options: Any) -> Json:
    (found,) = answer(objects, [body], **options)["workloads"]
    return dict(found)


def hosts_and_minors(found: Json) -> list[tuple[str, list[list[int]]]]:
    assert found["verdict"] == "placed", found
    return [
        (slots["domain"][-1], [[use["minor"] for use in pod_uses] for pod_uses in slots["devices"] or []])
        for slots in found["podSets"][0]["assignment"]
    ]


def names_of(objects: list[Json]) -> list[str]:
    return [one["metadata"]["name"] for one in objects if one["kind"] == "Node"]


def test_of_two_equal_hosts_the_one_where_the_gpus_share_a_scope_is_taken() -> None:
    """The first host is fuller, which is why it would be taken; its free GPUs are on two PCIe scopes."""
    objects = cluster(EIGHT, EIGHT)
    first, second = names_of(objects)
    body = gpu_job("near", 1, 2, HOST)
    assert hosts_and_minors(gang([*objects, used(first, 0, 1, 2, 4, 5, 6)], body)) == [(second, [[0, 1]])]
    assert hosts_and_minors(gang([*objects, used(first, 0, 1, 2, 3, 4, 5)], body)) == [(first, [[6, 7]])]
    no_pair = [used(first, 0, 1, 2, 4, 5, 6), used(second, 0, 2, 4, 6)]
    assert hosts_and_minors(gang([*objects, *no_pair], body)) == [(second, [[1, 3]])]  # of one NUMA node


@pytest.mark.parametrize("limits", [{NVIDIA: "2"}, {GPU: "200"}], ids=str)
@pytest.mark.parametrize("scope", [None, "pcie"])
def test_whole_gpus_are_near_each_other_also_where_nodes_count_memory_in_bytes_alone(
    limits: Json, scope: str | None
) -> None:
    """Their names become bytes, which alone are parts of GPUs: they stay whole. The fuller host has no pair."""
    objects = cluster(EIGHT, EIGHT)
    for one in objects:
        if one["kind"] == "Node":
            one["status"]["allocatable"] = {"cpu": "96", "pods": "110", CORE: "800", MEMORY: "640Gi"}
    first, second = names_of(objects)
    far = used(first, 0, 1, 2, 4, 5, 6)
    far["spec"]["containers"][0]["resources"] = {"limits": {CORE: "600", MEMORY: "480Gi"}}
    body = gpu_job("near", 1, 2, HOST, scope)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    assert hosts_and_minors(gang([*objects, far], body)) == [(second, [[0, 1]])]


def test_near_devices_cost_no_domain() -> None:
    """Two pods fit on one host of the rack only far apart from their GPUs: still one host."""
    objects = cluster(EIGHT, EIGHT)
    first, second = names_of(objects)
    crowded = [used(first, 1, 3, 5, 7), used(second, 1, 2, 3, 4, 5, 6)]
    assert hosts_and_minors(gang([*objects, *crowded], gpu_job("far", 2, 2, HOST))) == [(first, [[0, 2], [4, 6]])]


def test_a_required_scope_counts_only_hosts_and_slots_that_keep_to_it() -> None:
    """Of 8 free GPUs per host 3 pods of 3 share nothing on PCIe scopes of 2; on NUMA nodes of 4 it is one each."""
    objects = cluster(EIGHT, EIGHT)
    first, _ = names_of(objects)
    found = gang(objects, gpu_job("numa", 2, 3, HOST, "numa"))
    assert hosts_and_minors(found) == [(first, [[0, 1, 2], [4, 5, 6]])]
    waits = gang([*objects, used(first, 0, 4)], gpu_job("pairs", 7, 2, RACK, "pcie"))
    assert (waits["verdict"], waits["reason"]) == ("waits", "InsufficientFreeGPUs")
    assert waits["message"].startswith("needs room for 7 pods x 2 GPUs in one PCIe scope in one rack; best is")
    assert gang([*objects, used(first, 0, 4)], gpu_job("pairs", 6, 2, RACK, "pcie"))["verdict"] == "placed"


def test_what_no_host_can_give_is_never() -> None:
    """The scope is too small everywhere, or no Device object reports any."""
    found = gang(cluster(EIGHT, EIGHT), gpu_job("four", 1, 4, HOST, "pcie"))
    assert (found["verdict"], found["reason"]) == ("never", "HostTooSmall")
    assert found["message"] == (
        "one pod asks for 4 GPUs in one PCIe scope (topogate.dev/device-scope), and no host has more than 2 in one; "
        "use 2 per pod and more pods, or remove the annotation"
    )
    nothing: list[tuple[int | None, str]] = [(None, "")] * 8
    for objects in (cluster(), cluster(nothing, nothing), cluster(EIGHT, EIGHT)):
        scope = "nvlink" if objects == cluster(EIGHT, EIGHT) else "numa"
        found = gang(objects, gpu_job("four", 1, 4, HOST, scope))
        assert (found["verdict"], found["reason"]) == ("never", "HostTooSmall")
        assert found["message"].endswith("no host's Device object reports such scopes; remove the annotation")


def test_only_hosts_with_a_device_object_are_taken() -> None:
    """A host that counts its GPUs only cannot say what they share."""
    objects = cluster([], EIGHT)
    _, second = names_of(objects)
    assert hosts_and_minors(gang(objects, gpu_job("near", 1, 4, HOST, "numa"))) == [(second, [[0, 1, 2, 3]])]


def test_linked_gpus_are_those_of_a_partition() -> None:
    """A pair of the table: also where other free GPUs share a PCIe scope."""
    objects = cluster(EIGHT, EIGHT)
    first, _ = names_of(objects)
    table = {"2": [{"minors": [0, 2]}, {"minors": [5, 7]}]}
    device = next(one for one in objects if one["kind"] == "Device" and one["metadata"]["name"] == first)
    device["metadata"]["annotations"] = {"scheduling.koordinator.sh/gpu-partitions": json.dumps(table)}
    found = gang(objects, gpu_job("linked", 2, 2, HOST, "nvlink"))
    assert hosts_and_minors(found) == [(first, [[0, 2], [5, 7]])]
    assert gang(objects, gpu_job("linked", 3, 2, HOST, "nvlink"))["verdict"] == "never"


def share_job(name: str, pods: int, strategy: str | None = None) -> Json:
    body = gpu_job(name, pods, 1, HOST)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {CORE: "25", RATIO: "25"}}
    if strategy is not None:
        body["metadata"]["annotations"][names.GPU_STRATEGY] = strategy
    return body


def dimensions(objects: list[Json]) -> list[Json]:
    for one in objects:
        if one["kind"] == "Node":
            one["status"]["allocatable"] |= {CORE: "800", RATIO: "800", MEMORY: "640Gi"}
    return objects


@pytest.mark.parametrize(
    ("own", "policy", "minors"),
    [
        (None, "binpack", [[0], [0], [0], [0]]),
        (None, "spread", [[0], [4], [2], [6]]),
        ("spread", "binpack", [[0], [4], [2], [6]]),
        ("binpack", "spread", [[0], [0], [0], [0]]),
    ],
)
def test_shares_are_packed_or_spread_over_the_gpus_of_a_host(
    own: str | None, policy: str, minors: list[list[int]]
) -> None:
    """By the policy, and by the workload before it; spread also over NUMA nodes and PCIe scopes."""
    in_force = parse_policy(f"gpu: {{strategy: {policy}}}")
    found = gang(dimensions(cluster(EIGHT, EIGHT)), share_job("share", 4, own), policy=in_force)
    ((_, chosen),) = hosts_and_minors(found)
    assert chosen == minors


def test_whole_gpus_are_spread_over_scopes() -> None:
    """Two pods of one GPU: packed into one PCIe scope, or each on a NUMA node of its own; pairs stay pairs."""
    objects = cluster(EIGHT, EIGHT)
    spread = parse_policy("gpu: {strategy: spread}")
    ((_, packed),) = hosts_and_minors(gang(objects, gpu_job("one", 2, 1, HOST)))
    ((_, apart),) = hosts_and_minors(gang(objects, gpu_job("one", 2, 1, HOST), policy=spread))
    assert (packed, apart) == ([[0], [1]], [[0], [4]])
    ((_, pairs),) = hosts_and_minors(gang(objects, gpu_job("pair", 2, 2, HOST), policy=spread))
    assert pairs == [[0, 1], [4, 5]]


@pytest.mark.parametrize(
    ("gpus", "strategy", "told"),
    [
        (1, "pack", 'Unsupported value: "pack": allowed: binpack, spread; did you mean "binpack"?'),
        (0, "spread", 'Invalid value: "spread": is for pods with GPUs, and the pods request no GPU; remove it'),
    ],
)
def test_a_strategy_that_means_nothing_is_refused(gpus: int, strategy: str, told: str) -> None:
    body = gpu_job("wrong", 1, gpus, HOST)
    body["metadata"]["annotations"][names.GPU_STRATEGY] = strategy
    if not gpus:
        body["spec"]["template"]["spec"]["containers"][0].pop("resources")
    (error,) = gang(cluster(EIGHT, EIGHT), body)["errors"]
    assert error["field"] == f"metadata.annotations[{names.GPU_STRATEGY}]"
    assert error["message"] == told


@pytest.mark.parametrize(
    ("gpus", "scope", "told"),
    [
        (4, "board", 'Unsupported value: "board": allowed: numa, nvlink, pcie, socket'),
        (0, "numa", 'Invalid value: "numa": is for pods with whole GPUs, and the pods request no GPU; remove it'),
    ],
)
def test_a_scope_that_means_nothing_is_refused(gpus: int, scope: str, told: str) -> None:
    """With its path, and the allowed values."""
    body = gpu_job("wrong", 1, gpus, HOST, scope)
    if not gpus:
        body["spec"]["template"]["spec"]["containers"][0].pop("resources")
    found = gang(cluster(EIGHT, EIGHT), body)
    assert found["verdict"] == "rejected"
    (error,) = found["errors"]
    assert error["field"] == f"metadata.annotations[{names.DEVICE_SCOPE}]"
    assert error["message"] == told


def two_sets(scope: str, *, master: int, worker: int, workers: int) -> Json:
    """A master and workers with so many GPUs each, all of them on one host."""

    def replicas(number: int, gpus: int) -> Json:
        container = {"name": "pytorch", "image": "x", "resources": {"limits": {NVIDIA: str(gpus)}}}
        return {"replicas": number, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "two",
            "namespace": "ml",
            "annotations": {names.REQUIRE: "host", names.DEVICE_SCOPE: scope},
        },
        "spec": {"pytorchReplicaSpecs": {"Master": replicas(1, master), "Worker": replicas(workers, worker)}},
    }


@pytest.mark.parametrize(
    ("scope", "master", "worker", "workers", "minors"),
    [
        ("numa", 1, 4, 1, [[[4]], [[0, 1, 2, 3]]]),
        ("numa", 3, 3, 1, [[[0, 1, 2]], [[4, 5, 6]]]),
        ("pcie", 1, 2, 3, [[[6]], [[0, 1], [2, 3], [4, 5]]]),
        ("numa", 3, 3, 2, None),
    ],
)
def test_pod_sets_share_the_scopes_of_a_host(
    scope: str, master: int, worker: int, workers: int, minors: list[list[list[int]]] | None
) -> None:
    """The one with most GPUs per pod chooses first, whatever its place; three pods of three have no third NUMA node."""
    body = two_sets(scope, master=master, worker=worker, workers=workers)
    found = gang(cluster(EIGHT, EIGHT), body)
    if minors is None:
        assert found["verdict"] == "never"
        return
    chosen = [
        [[use["minor"] for use in pod_uses] for slots in one["assignment"] for pod_uses in slots["devices"]]
        for one in found["podSets"]
    ]
    assert chosen == minors


def labelled(objects: list[Json], *models: str) -> list[Json]:
    """The Device objects with a model each: of their first four GPUs."""
    told = [one for one in objects if one["kind"] == "Device"]
    for one, model in zip(told, models, strict=True):
        for device in one["spec"]["devices"][:4]:
            device["labels"] = {"model": model, "pool": "a"}
    return objects


def test_pods_get_only_gpus_with_the_labels_that_they_want() -> None:
    """Whole ones and shares, with a scope and without; hosts without labels are not taken."""
    objects = dimensions(labelled(cluster(EIGHT, EIGHT), "A", "B"))
    _, second = names_of(objects)
    body = gpu_job("b", 2, 2, HOST)
    body["metadata"]["annotations"][names.DEVICE_SELECTOR] = "pool=a, model=B"
    assert hosts_and_minors(gang(objects, body)) == [(second, [[0, 1], [2, 3]])]
    body["metadata"]["annotations"][names.DEVICE_SCOPE] = "pcie"
    assert hosts_and_minors(gang(objects, body)) == [(second, [[0, 1], [2, 3]])]
    waits = gang([*objects, used(second, 1)], body)
    assert (waits["verdict"], waits["reason"]) == ("waits", "InsufficientFreeGPUs")
    assert "2 GPUs with model=B and pool=a in one PCIe scope" in waits["message"]
    share = share_job("s", 3)
    share["metadata"]["annotations"][names.DEVICE_SELECTOR] = "model=B"
    assert hosts_and_minors(gang(objects, share)) == [(second, [[0], [0], [0]])]
    assert gang(grid(1, 1, 2), gpu_job("b", 2, 2, HOST))["verdict"] == "placed"


@pytest.mark.parametrize(("selector", "gpus"), [("model=C", 1), ("model=A", 5)])
def test_labels_that_no_host_reports_are_never(selector: str, gpus: int) -> None:
    """At all, or on so many GPUs of one host."""
    body = gpu_job("c", 1, gpus, HOST)
    body["metadata"]["annotations"][names.DEVICE_SELECTOR] = selector
    found = gang(labelled(cluster(EIGHT, EIGHT), "A", "B"), body)
    assert (found["verdict"], found["reason"]) == ("never", "HostTooSmall")
    assert found["message"].endswith("reports so many with these labels; change or remove the annotation")
    assert f"with {selector} ({names.DEVICE_SELECTOR})" in found["message"]
    assert gang(cluster(), body)["verdict"] == "never"


@pytest.mark.parametrize(
    ("gpus", "selector", "told"),
    [
        (1, "A100", "must be labels of devices, key=value, separated by commas, such as model=A100"),
        (1, "model=A,model=B", "names a label twice; keep one of them"),
        (0, "model=A", "is for pods with GPUs, and the pods request no GPU; remove it"),
    ],
)
def test_labels_that_mean_nothing_are_refused(gpus: int, selector: str, told: str) -> None:
    body = gpu_job("wrong", 1, gpus, HOST)
    body["metadata"]["annotations"][names.DEVICE_SELECTOR] = selector
    if not gpus:
        body["spec"]["template"]["spec"]["containers"][0].pop("resources")
    (error,) = gang(cluster(EIGHT, EIGHT), body)["errors"]
    assert error["field"] == f"metadata.annotations[{names.DEVICE_SELECTOR}]"
    assert error["message"] == f'Invalid value: "{selector}": {told}'


def test_a_nearer_plan_that_fails_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight GPUs are in no scope of any host: two more plans are tried, and nobody asks why they fail."""

    def explained(*_: object, **__: object) -> None:
        raise AssertionError("the numbers of a plan that was only tried")

    monkeypatch.setattr("engine.scheduler.plan.shortfall_of", explained)
    objects = cluster(EIGHT, EIGHT)
    assert hosts_and_minors(gang(objects, gpu_job("all", 1, 8, HOST))) == [(names_of(objects)[0], [list(range(8))])]
