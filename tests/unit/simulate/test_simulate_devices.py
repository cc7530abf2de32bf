"""`topogate simulate` on requests for GPUs: translated, checked, and placed on devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.api import names
from engine.policy.model import parse_policy
from engine.resources.names import CORE, GPU, MEMORY, NVIDIA, RATIO
from tests.support.simulation import Json, answer, grid, job, pod, simulated
from webhook.simulate.output import as_yaml, shown

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "simulate.schema.json").read_text(encoding="utf-8"))
HALF = {CORE: "50", RATIO: "50"}
RACK = {"require": "rack"}


def told(gpus: int = 2, hosts: int = 2) -> list[Json]:
    """Hosts of one rack that report dimensions, and a Device object for each."""
    nodes = grid(1, 1, hosts)
    devices = []
    for node in nodes:
        allocatable = node["status"]["allocatable"]
        del allocatable[NVIDIA]
        allocatable |= {CORE: str(100 * gpus), RATIO: str(100 * gpus), MEMORY: f"{80 * gpus}Gi"}
        one = {"type": "gpu", "health": True, "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"}}
        devices.append(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": {"name": node["metadata"]["name"]},
                "spec": {"devices": [{**one, "minor": minor, "id": f"GPU-{minor}"} for minor in range(gpus)]},
            }
        )
    return [*nodes, *devices]


def asking(workload: Json, *resources: Json) -> Json:
    spec = workload["spec"].get("template", workload)["spec"]
    spec.pop("nodeName", None)
    spec["containers"] = [{"name": f"c{n}", "image": "x", "resources": one} for n, one in enumerate(resources)]
    return workload


def gang(cluster: list[Json], workload: Json, **options: Any) -> Json:
    whole = answer(cluster, [workload], **options)
    jsonschema.validate(whole, SCHEMA)
    (found,) = whole["workloads"]
    return dict(found)


def test_a_part_of_a_gpu_is_placed_on_a_device() -> None:
    """Four halves: on as few GPUs as there can be, each pod told which; the same keys whatever the device."""
    found = gang(told(), asking(job("train", 4, RACK), {"requests": {GPU: "50"}}))
    assert found["verdict"] == "placed"
    assignment = found["podSets"][0]["assignment"]
    assert [slots["count"] for slots in assignment] == [4]
    uses = [use for pod in assignment[0]["devices"] for use in pod]
    assert sorted(use["minor"] for use in uses) == [0, 0, 1, 1]
    nowhere = {"busID": None, "moduleID": None, "socketID": None, "vfs": []}
    for use in uses:
        amounts = {"core": 50, "memoryRatio": 50, "memory": "40Gi", "share": None, "id": f"GPU-{use['minor']}"}
        assert use == {"type": "gpu", "minor": use["minor"], **amounts, **nowhere}


def test_devices_are_null_where_nobody_tells_them() -> None:
    """A host that reports a number of GPUs has no devices to choose."""
    found = gang(grid(1, 1, 2), job("train", 2, RACK))
    assert [slots["devices"] for slots in found["podSets"][0]["assignment"]] == [None, None]


@pytest.mark.parametrize("asks", [RACK, {}], ids=["asks for topology", "asks for none"])
def test_what_would_be_stored_is_shown_translated(asks: Json) -> None:
    """`--show objects` has the dimensions and the note, `--show patches` what we did for it."""
    found = simulated(told(), [asking(job("train", 2, asks), {"requests": {GPU: "50"}})])
    (stored,) = shown(found, "objects")
    template = stored["spec"]["template"]
    assert template["spec"]["containers"][0]["resources"] == {"requests": HALF, "limits": HALF}
    assert json.loads(template["metadata"]["annotations"][names.ORIGINAL_REQUESTS]) == {
        "c0": {"requests": {GPU: "50"}, "limits": {}}
    }
    (patch,) = shown(found, "patches")
    at = "/spec/template/spec/containers/0/resources"
    assert {"op": "replace", "path": f"{at}/requests", "value": HALF} in patch["patch"]
    assert "koordinator.sh/gpu-core: '50'" in as_yaml(stored)


def test_the_variable_of_the_policy_is_shown() -> None:
    """`gpu.env`: the stored template has it, by reference to the pod's annotation."""
    policy = parse_policy("gpu: {env: uuid}")
    found = simulated(told(), [asking(job("train", 2, RACK), {"requests": {GPU: "50"}})], policy=policy)
    (stored,) = shown(found, "objects")
    (variable,) = stored["spec"]["template"]["spec"]["containers"][0]["env"]
    assert variable["name"] == names.VISIBLE_DEVICES_VARIABLE
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{names.VISIBLE_DEVICES}']"


def test_the_limits_of_the_policy_are_shown() -> None:
    """`gpu.hami.limits`: the stored template has the variables of the library."""
    policy = parse_policy("gpu: {hami: {limits: true}}")
    found = simulated(told(), [asking(job("train", 2, RACK), {"requests": {GPU: "50"}})], policy=policy)
    (stored,) = shown(found, "objects")
    variables = stored["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in variables} == {
        names.GPU_MEMORY_LIMIT_VARIABLE: f"metadata.annotations['{names.GPU_MEMORY_LIMIT}']",
        names.GPU_CORE_LIMIT_VARIABLE: f"metadata.annotations['{names.GPU_CORE_LIMIT}']",
    }


def test_a_pod_of_nobody_is_shown_translated() -> None:
    """It is none of ours to place, and its GPUs are."""
    body = asking(pod("own", ""), {"limits": {GPU: "50"}})
    (one,) = simulated(told(), [body])
    assert (one.gang.verdict, one.gang.reason) == ("ignored", "NoTopologyRequested")
    assert one.stored is not None
    assert one.stored["spec"]["containers"][0]["resources"] == {"limits": HALF, "requests": HALF}


@pytest.mark.parametrize("asks", [RACK, {}], ids=["asks for topology", "asks for none"])
def test_a_wrong_request_is_rejected_with_every_path(asks: Json) -> None:
    """Also without a topology: not ignored."""
    found = gang(told(), asking(job("train", 2, asks), {"limits": {GPU: "150"}}, {"requests": {CORE: "50"}}))
    assert (found["verdict"], found["reason"]) == ("rejected", "GPURequestInvalid")
    assert [(error["field"], error["reason"]) for error in found["errors"]] == [
        (f"spec.template.spec.containers[0].resources.limits[{GPU}]", "GPURequestInvalid"),
        (f"spec.template.spec.containers[1].resources.requests[{CORE}]", "GPURequestInvalid"),
    ]


def test_an_amount_that_cannot_be_read_hides_no_other_error() -> None:
    """A fraction, which no server would even store, beside what only we would refuse: both, in our words."""
    found = gang(told(), asking(job("train", 2), {"limits": {GPU: "0.5"}}, {"limits": {GPU: "150"}}))
    assert (found["verdict"], found["reason"]) == ("rejected", "GPURequestInvalid")
    assert ["whole number of percent" in error["message"] for error in found["errors"]] == [True, False]
    found = gang(told(), asking(job("train", 2), {"limits": {"cpu": "x"}}))
    assert [error["reason"] for error in found["errors"]] == ["InvalidValue"]


def test_a_wrong_request_of_a_pod_is_rejected() -> None:
    """A plain pod, at its own path."""
    found = gang(told(), asking(pod("own", ""), {"limits": {GPU: "50", NVIDIA: "1"}}))
    assert (found["verdict"], found["reason"]) == ("rejected", "GPURequestInvalid")
    assert found["errors"][0]["field"].startswith("spec.containers[0].resources")


def test_the_policy_s_mode_is_followed() -> None:
    """`annotate` leaves the names: on nodes that report none of them the gang fits never."""
    policy = parse_policy("gpu: {translation: annotate}")
    workload = asking(job("train", 2, RACK), {"limits": {GPU: "50"}})
    assert gang(told(), workload, policy=policy)["verdict"] == "never"
    assert gang(told(), workload)["verdict"] == "placed"
