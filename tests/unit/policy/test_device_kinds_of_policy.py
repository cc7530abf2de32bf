"""`devices.kinds` of the policy: what it means, and every way to get it wrong."""

from __future__ import annotations

import pytest

from engine.policy.model import PolicyError, default_policy, parse_policy
from engine.resources.kinds import NO_KINDS, DeviceKind

NPU = "{type: npu, resources: {whole: e.x/npu, core: e.x/core, memoryRatio: e.x/ratio, memory: e.x/memory}}"


def test_kinds_have_their_names() -> None:
    kinds = parse_policy(f"devices: {{kinds: [{NPU}, {{type: asic-2, resources: {{whole: e.x/asic}}}}]}}").device_kinds
    full = DeviceKind("npu", whole="e.x/npu", core="e.x/core", ratio="e.x/ratio", memory="e.x/memory")
    assert kinds.kinds == (full, DeviceKind("asic-2", whole="e.x/asic"))
    assert kinds.names == {"e.x/npu", "e.x/core", "e.x/ratio", "e.x/memory", "e.x/asic"}


@pytest.mark.parametrize("text", ["{}", "devices:", "devices: {}", "devices: {kinds: []}", "devices: {kinds: null}"])
def test_there_are_none_by_default(text: str) -> None:
    assert parse_policy(text) == default_policy()
    assert parse_policy(text).device_kinds is NO_KINDS


def test_names_of_whole_gpus_that_are_not_built_in_are_kept_beside_them() -> None:
    assert parse_policy("gpu: {vendors: [amd.com/gpu, gpu.intel.com/xe]}").device_kinds is NO_KINDS
    kinds = parse_policy(f"gpu: {{vendors: [amd.com/gpu, e.x/gpu]}}\ndevices: {{kinds: [{NPU}]}}").device_kinds
    assert (kinds.vendors, [kind.type for kind in kinds.kinds]) == ({"e.x/gpu"}, ["npu"])


@pytest.mark.parametrize(
    ("kinds", "field", "told"),
    [
        ("[{type: gpu, resources: {whole: e.x/y}}]", "[0].type", "not gpu, rdma or fpga"),
        ("[{type: rdma, resources: {whole: e.x/y}}]", "[0].type", "not gpu, rdma or fpga"),
        ("[{type: NPU, resources: {whole: e.x/y}}]", "[0].type", "lower-case letters"),
        ("[{type: '', resources: {whole: e.x/y}}]", "[0].type", "lower-case letters"),
        ("[{type: a/b, resources: {whole: e.x/y}}]", "[0].type", "lower-case letters"),
        ("[{type: '-npu', resources: {whole: e.x/y}}]", "[0].type", "lower-case letters"),
        (f"[{{type: {'n' * 64}, resources: {{whole: e.x/y}}}}]", "[0].type", "lower-case letters"),
        ("[{type: 'npu\\n', resources: {whole: e.x/y}}]", "[0].type", "lower-case letters"),
        ("[{type: 7, resources: {whole: e.x/y}}]", "[0].type", "text"),
        ("[{resources: {whole: e.x/y}}]", "[0].type", "required"),
        ("[{type: npu}]", "[0].resources", "required"),
        ("[{type: npu, resources: {}}]", "[0].resources", "one of whole, core, memoryRatio and memory"),
        ("[{type: npu, resources: {whole: null}}]", "[0].resources", "one of whole, core, memoryRatio and memory"),
        ("[{type: npu, resources: {part: e.x/y}}]", "[0].resources.part", ""),
        ("[{type: npu, resources: {whole: nvidia.com/gpu}}]", "[0].resources.whole", "already"),
        ("[{type: npu, resources: {whole: gpu.intel.com/xe}}]", "[0].resources.whole", "already"),
        ("[{type: npu, resources: {core: koordinator.sh/gpu-core}}]", "[0].resources.core", "already"),
        ("[{type: npu, resources: {core: koordinator.sh/rdma}}]", "[0].resources.core", "already"),
        ("[{type: npu, resources: {whole: e.x/vendor}}]", "[0].resources.whole", "gpu.vendors"),
        ("[{type: npu, resources: {whole: cpu}}]", "[0].resources.whole", "not an extended resource"),
        ("[{type: npu, resources: {whole: node.kubernetes.io/x}}]", "[0].resources.whole", "not an extended resource"),
        ("[{type: npu, resources: {whole: 'e.x/a b'}}]", "[0].resources.whole", "label key"),
        ("[{type: npu, resources: {whole: 'e.x/'}}]", "[0].resources.whole", "label key"),
        ("[{type: npu, resources: {whole: 3}}]", "[0].resources.whole", "text"),
        ("[{type: npu, resources: {whole: e.x/y, core: e.x/y}}]", "[0].resources.core", "duplicate"),
        ("[{type: a, resources: {whole: e.x/y}}, {type: b, resources: {core: e.x/y}}]", "[1].resources.core", "dupl"),
        ("[{type: a, resources: {whole: e.x/y}}, {type: a, resources: {core: e.x/z}}]", "[1].type", "duplicate"),
        ("npu", "", "list"),
    ],
    ids=str,
)
def test_a_wrong_kind_is_refused_with_its_path(kinds: str, field: str, told: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"gpu: {{vendors: [e.x/vendor]}}\ndevices: {{kinds: {kinds}}}")
    (error,) = caught.value.errors
    assert error.field == f"devices.kinds{field}"
    assert told in error.message


def test_every_error_is_reported_at_once() -> None:
    kinds = "[{type: gpu, resources: {whole: cpu}}, {type: npu, resources: {}}]"
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"devices: {{kinds: {kinds}}}")
    assert [error.field for error in caught.value.errors] == [
        "devices.kinds[0].resources.whole",
        "devices.kinds[0].type",
        "devices.kinds[1].resources",
    ]


def test_there_are_at_most_sixteen() -> None:
    many = ",".join(f"{{type: k{n}, resources: {{whole: e.x/k{n}}}}}" for n in range(17))
    with pytest.raises(PolicyError, match="16"):
        parse_policy(f"devices: {{kinds: [{many}]}}")
