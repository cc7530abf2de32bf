"""GPU requests rewritten to the names that nodes report, or annotated."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest
import yaml

from engine.api.device import DeviceRequest
from engine.api.names import GPU_REQUEST, ORIGINAL_REQUESTS
from engine.api.resources import MAX_UNITS
from engine.resources.containers import PodResources, pod_resources
from engine.resources.names import CORE, FPGA, GPU, KOORDINATOR, MEMORY, NVIDIA, RATIO, RDMA, SHARED, Reported
from engine.resources.translation import Mode, Translation, translate
from tests.support.translations import applied, pod_of

GI = 2**30
PLAIN = Reported(frozenset({"cpu", NVIDIA}))
DIMENSIONS = Reported(frozenset({"cpu", CORE, RATIO, MEMORY}))
MIXED = Reported(PLAIN.names | DIMENSIONS.names)
UNKNOWN = Reported()
MODES: tuple[Mode, ...] = ("auto", "rewrite", "annotate", "off")
WHOLE_2 = {CORE: "200", RATIO: "200"}


def run(pod: PodResources, reported: Reported, mode: str = "auto", **more: Any) -> Translation:
    return translate(pod, mode=cast(Mode, mode), reported=reported, path="spec", **more)


def limits(pod: PodResources) -> list[dict[str, object]]:
    """What each container ends up with; pods get requests from limits."""
    assert all(one.requests in ({}, one.limits) for one in pod)
    return [dict(one.limits) for one in pod]


def written(done: Translation, key: str) -> Any:
    text = done.annotations.get(key)
    return None if text is None else json.loads(text)


def spec(requests: str) -> PodResources:
    return pod_resources({"containers": [{"name": "main", "resources": yaml.safe_load(requests)}]})


EXAMPLES = {
    "whole GPUs": ("requests: {nvidia.com/gpu: '2', cpu: '4', memory: 8Gi}", WHOLE_2, 2),
    "half of all of a GPU": ("requests: {koordinator.sh/gpu: '50', cpu: '4'}", {CORE: "50", RATIO: "50"}, 1),
    "compute and percent of memory": (
        "requests: {koordinator.sh/gpu-core: '50', koordinator.sh/gpu-memory-ratio: '60', cpu: '4'}",
        {CORE: "50", RATIO: "60"},
        1,
    ),
    "compute and bytes of memory": (
        "requests: {koordinator.sh/gpu-core: '60', koordinator.sh/gpu-memory: 4Gi, cpu: '4'}",
        {CORE: "60", MEMORY: "4Gi"},
        1,
    ),
    "rdma": ("requests: {koordinator.sh/rdma: '100', cpu: '4'}", {RDMA: "100"}, 0),
    "fpga": ("requests: {koordinator.sh/fpga: '100'}", {FPGA: "100"}, 0),
    "memory alone": ("requests: {koordinator.sh/gpu-memory: 8Gi}", {MEMORY: "8Gi"}, 1),
    "percent of memory alone, as a number": ("requests: {koordinator.sh/gpu-memory-ratio: 30}", {RATIO: 30}, 1),
    "a part of each of two GPUs": (
        "requests: {koordinator.sh/gpu.shared: 2, koordinator.sh/gpu-memory-ratio: 100}",
        {SHARED: 2, RATIO: 100},
        2,
    ),
    "limits alone": ("limits: {nvidia.com/gpu: '2'}", WHOLE_2, 2),
}


@pytest.mark.parametrize(("text", "devices", "gpus"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples_work_as_they_are_written(text: str, devices: dict[str, object], gpus: int) -> None:
    """Limits follow requests, a rewritten name stands on both sides, and the rest is left alone."""
    pod = spec(text)
    done = run(pod, DIMENSIONS)
    after = applied(pod, done).containers[0]
    assert done.errors == ()
    for side, before in ((after.requests, pod.containers[0].requests), (after.limits, pod.containers[0].limits)):
        assert {name: value for name, value in side.items() if name in KOORDINATOR or name == NVIDIA} == devices
        assert {name: value for name, value in side.items() if "/" not in name} == {
            name: value for name, value in before.items() if "/" not in name
        }
    assert done.request is not None
    assert done.request.gpus == gpus


@pytest.mark.parametrize(
    ("mode", "reported", "rewritten"),
    [
        ("auto", DIMENSIONS, True),
        ("auto", PLAIN, False),
        ("auto", MIXED, False),
        ("auto", UNKNOWN, False),
        ("auto", Reported(frozenset({"cpu", CORE})), False),
        ("rewrite", DIMENSIONS, True),
        ("rewrite", PLAIN, True),
        ("rewrite", UNKNOWN, True),
        ("annotate", DIMENSIONS, False),
        ("annotate", PLAIN, False),
    ],
)
def test_whole_gpus(mode: Mode, reported: Reported, rewritten: bool) -> None:
    """Rewritten where the mode says so, in auto where no node reports the name; else annotated."""
    pod = pod_of({NVIDIA: "2"})
    done = run(pod, reported, mode)
    assert limits(applied(pod, done)) == [WHOLE_2 if rewritten else {NVIDIA: "2"}]
    assert written(done, GPU_REQUEST) == (None if rewritten else {"c0": {"requests": WHOLE_2, "limits": WHOLE_2}})
    assert written(done, ORIGINAL_REQUESTS) == (
        {"c0": {"requests": {}, "limits": {NVIDIA: "2"}}} if rewritten else None
    )
    assert done.request == DeviceRequest(gpus=2, core=100, ratio=100, whole=True)


@pytest.mark.parametrize(("reported", "rewritten"), [(DIMENSIONS, True), (MIXED, True), (PLAIN, False)])
def test_percent(reported: Reported, rewritten: bool) -> None:
    """`koordinator.sh/gpu` gives way wherever nodes report the dimensions."""
    pod = pod_of({GPU: "50"})
    half = {CORE: "50", RATIO: "50"}
    assert limits(applied(pod, run(pod, reported))) == [half if rewritten else {GPU: "50"}]


def test_bytes_stand_in_only_for_a_ratio_that_no_node_knows() -> None:
    """Bytes are written where nodes report no ratio and GPUs have one size; otherwise the ratio, or nothing."""
    pod = pod_of({GPU: "33"})
    names = frozenset({CORE, MEMORY})
    same = applied(pod, run(pod, Reported(names, memory=15472384 * 1024)))
    assert limits(same) == [{CORE: "33", MEMORY: "5228428001"}]
    assert run(same, Reported(names)).request == DeviceRequest(gpus=1, core=33, ratio=33, memory=5228428001)
    assert limits(applied(pod, run(pod, Reported(names)))) == [{GPU: "33"}]
    assert limits(applied(pod, run(pod, Reported(names | {RATIO}, memory=80 * GI)))) == [{CORE: "33", RATIO: "33"}]
    again = run(same, Reported(names))
    assert (again.edits, again.annotations) == ((), {})


def test_init_containers_and_sidecars_are_containers_like_any() -> None:
    """All of them are translated; the pod means what Kubernetes' formula says."""
    pod = pod_resources(
        {
            "containers": [{"name": "main", "resources": {"limits": {GPU: "50"}}}, {"name": "log"}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"limits": {GPU: "50"}}},
                {"name": "load", "resources": {"requests": {GPU: "50"}}},
            ],
        }
    )
    done = run(pod, DIMENSIONS)
    half = {CORE: "50", RATIO: "50"}
    assert limits(applied(pod, done)) == [half, {}, half, half]
    assert done.request == DeviceRequest(gpus=1, core=100, ratio=100, whole=True)


def test_other_vendors_are_counted_and_left_in_place() -> None:
    """Whatever the mode, another vendor's name stays; what it means is annotated."""
    pod = pod_of({"amd.com/gpu": "2"}, {"gpu.intel.com/xe_monitoring": "1"})
    for mode in MODES:
        done = run(pod, DIMENSIONS, mode)
        assert [set(one) for one in map(dict, (one.limits for one in applied(pod, done)))] == [
            {"amd.com/gpu"},
            {"gpu.intel.com/xe_monitoring"},
        ]
        assert done.request == DeviceRequest(gpus=2, core=100, ratio=100, whole=True)
        assert set(written(done, GPU_REQUEST) or {}) == (set() if mode == "off" else {"c0"})
    named = run(pod_of({"example.com/npu": "1"}), DIMENSIONS, vendors=("example.com/npu",))
    assert named.request == DeviceRequest(gpus=1, core=100, ratio=100, whole=True)


def test_off_changes_nothing_and_still_refuses() -> None:
    """Mode off edits nothing, writes nothing, and what is wrong is wrong."""
    pod = spec("requests: {nvidia.com/gpu: '2'}")
    assert run(pod, DIMENSIONS, "off").edits == ()
    assert run(pod, DIMENSIONS, "off").annotations == {}
    assert run(pod_of({GPU: "150"}), DIMENSIONS, "off").errors


def test_what_is_refused_is_not_renamed() -> None:
    """With errors both sides are completed, so that our sentence is read and not the API server's; nothing else."""
    pod = spec("requests: {koordinator.sh/gpu-core: '50'}")
    done = run(pod, DIMENSIONS)
    assert [(edit.path, edit.value) for edit in done.edits] == [(("containers", 0, "resources", "limits", CORE), "50")]
    assert done.annotations == {}
    assert done.request is None
    assert len(done.errors) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reported", [PLAIN, DIMENSIONS, MIXED, UNKNOWN])
@pytest.mark.parametrize("asked", [{NVIDIA: "2"}, {GPU: "50"}, {CORE: "50", RATIO: "60"}, {"amd.com/gpu": 1}], ids=str)
def test_a_second_pass_changes_nothing(mode: Mode, reported: Reported, asked: dict[str, object]) -> None:
    """Neither on the same template, nor on a pod made of it, nor in another mode that is as good."""
    pod = pod_of(asked)
    after = applied(pod, run(pod, reported, mode))
    again = run(after, reported, mode)
    assert (again.edits, again.annotations) == ((), {})


def test_a_pod_of_an_annotated_template_stays_as_it_was_planned() -> None:
    """Nodes that begin to report the dimensions do not rename the devices of a gang that is planned already."""
    pod = pod_of({GPU: "50"})
    template = applied(pod, run(pod, Reported(frozenset({"cpu", GPU}))))
    both = Reported(frozenset({"cpu", GPU, CORE, RATIO}))
    assert limits(applied(template, run(template, both))) == [{GPU: "50"}]
    assert limits(applied(template, run(template, DIMENSIONS))) == [{CORE: "50", RATIO: "50"}]


def test_a_forged_or_outdated_original_is_taken_off() -> None:
    """What the user wrote is believed only while it means what the container asks for."""
    pod = pod_of({NVIDIA: "2"})
    after = applied(pod, run(pod, DIMENSIONS))
    text = after.annotations[ORIGINAL_REQUESTS]
    for wrong in (
        text.replace('"2"', '"3"'),
        text.replace("c0", "c9"),
        text.replace('"2"', '"x\x00"'),
        "{}",
        "",
        "[1]",
        '{"c0":{"requests":[],"limits":7}}',
        '{"c0":{"requests":{"nvidia.com/gpu":2},"limits":{"koordinator.sh/gpu":200}}}',
        json.dumps({"c0": {"requests": WHOLE_2, "limits": WHOLE_2}}),
        "[" * 100_000,
        "\ud800",
    ):
        forged = PodResources(after.containers, after.init_containers, {ORIGINAL_REQUESTS: wrong, GPU_REQUEST: wrong})
        for mode in MODES:
            done = run(forged, DIMENSIONS, mode)
            assert done.edits == ()
            assert done.annotations == {ORIGINAL_REQUESTS: None, GPU_REQUEST: None}


def test_a_container_that_is_added_later_follows_the_others() -> None:
    """Called again for a pod that got one more container: it is rewritten as they were."""
    pod = pod_of({NVIDIA: "2"})
    first = applied(pod, run(pod, DIMENSIONS))
    grown = PodResources(first.containers, pod_of({}, init=({NVIDIA: "1"},)).init_containers, first.annotations)
    for mode, reported in (("auto", DIMENSIONS), ("auto", MIXED), ("annotate", DIMENSIONS), ("rewrite", PLAIN)):
        done = run(grown, reported, mode)
        assert done.errors == ()
        assert limits(applied(grown, done)) == [WHOLE_2, {CORE: "100", RATIO: "100"}]
        assert written(done, ORIGINAL_REQUESTS) == {
            "c0": {"requests": {}, "limits": {NVIDIA: "2"}},
            "i0": {"requests": {}, "limits": {NVIDIA: "1"}},
        }
    other = PodResources(first.containers, pod_of({}, init=({GPU: "50"},)).init_containers, first.annotations)
    assert [one.field for one in run(other, DIMENSIONS).errors] == [
        "spec.containers[0].resources.limits[nvidia.com/gpu]"
    ]


def test_the_first_word_of_a_user_is_the_one_that_is_kept() -> None:
    """Where a name gives way twice, the annotation still has what was there at first."""
    first = {"c0": {"requests": {}, "limits": {NVIDIA: "2"}}}
    pod = pod_of({GPU: "200"}, **{ORIGINAL_REQUESTS: json.dumps(first)})
    done = run(pod, DIMENSIONS)
    assert limits(applied(pod, done)) == [WHOLE_2]
    assert done.annotations == {}


def test_more_memory_than_any_host_has_can_be_read_again() -> None:
    """4,096 GPUs are admitted, and fit nowhere; their bytes are more than the largest amount that we read."""
    bytes_only = Reported(frozenset({CORE, MEMORY}), memory=80 * GI)
    pod = pod_of({NVIDIA: "4096"})
    done = run(pod, bytes_only)
    after = applied(pod, done)
    assert limits(after) == [{CORE: "409600", MEMORY: str(MAX_UNITS)}]
    assert done.request is not None and done.request.gpus == 4096
    again = run(after, bytes_only)
    assert (again.edits, again.annotations) == ((), {})


def test_containers_of_one_name_are_told_apart() -> None:
    """Custom resources may have them: the request of one never stands for that of another, right or wrong."""
    for first in ({GPU: "200"}, {GPU: "50", MEMORY: "1Gi"}, {RATIO: "half"}, {CORE: "0.5"}):
        pod = pod_of(first, {GPU: "100"})
        pod = pod.map(lambda one: replace(one, name="same"))
        done = run(pod, DIMENSIONS)
        after = applied(pod, done)
        noted = json.dumps({"same": {"requests": {}, "limits": {GPU: "100"}}})
        for text in (noted, after.annotations.get(ORIGINAL_REQUESTS, "")):
            again = run(replace(after, annotations={ORIGINAL_REQUESTS: text} if text else {}), DIMENSIONS)
            assert again.edits == ()
            assert [one.field for one in again.errors] == [one.field for one in done.errors]


@pytest.mark.parametrize("added", [{GPU: "200"}, {NVIDIA: "2"}], ids=str)
def test_an_original_hides_no_contradiction(added: dict[str, object]) -> None:
    """An annotation that would be true of a part of what the container asks for does not stand for the whole."""
    first = {"c0": {"requests": {}, "limits": {NVIDIA: "2"}}}
    pod = pod_of({**WHOLE_2, **added}, **{ORIGINAL_REQUESTS: json.dumps(first)})
    for mode in MODES:
        assert run(pod, DIMENSIONS, mode).errors


def test_an_original_beyond_all_bounds_is_taken_off() -> None:
    """More text than an object's annotations may have is not read."""
    pod = pod_of({NVIDIA: "2"})
    after = applied(pod, run(pod, DIMENSIONS))
    text = after.annotations[ORIGINAL_REQUESTS] + " " * 2**18
    forged = PodResources(after.containers, after.init_containers, {ORIGINAL_REQUESTS: text})
    assert run(forged, DIMENSIONS).annotations == {ORIGINAL_REQUESTS: None}


def test_a_count_of_none_stays_as_it_is() -> None:
    """A zero, or a null, of whole GPUs beside containers that have some is neither renamed nor completed to a null."""
    pod = pod_resources(
        {
            "containers": [
                {"name": "main", "resources": {"limits": {NVIDIA: "2"}}},
                {"name": "log", "resources": {"requests": {NVIDIA: 0}, "limits": {NVIDIA: 0}}},
                {"name": "null", "resources": {"requests": {NVIDIA: None}}},
            ]
        }
    )
    done = run(pod, DIMENSIONS)
    assert {edit.path[1] for edit in done.edits} == {0}
    assert done.request == DeviceRequest(gpus=2, core=100, ratio=100, whole=True)


def test_scope() -> None:
    """Managed pods and users of Koordinator's names; plain GPUs of others only with scope all."""
    plain, percent, wrong = pod_of({NVIDIA: "2"}), pod_of({GPU: "50"}), pod_of({NVIDIA: "0.5"})
    assert run(plain, DIMENSIONS, managed=False) == Translation()
    assert run(wrong, DIMENSIONS, managed=False) == Translation()
    assert run(plain, DIMENSIONS, managed=False, scope="all").edits
    assert run(wrong, DIMENSIONS, managed=False, scope="all").errors
    assert run(percent, DIMENSIONS, managed=False).edits


def test_warns_of_names_that_no_node_reports() -> None:
    """The warning names them, fits into a warning header, and is silent while nothing is known of the nodes."""
    pod = pod_of({NVIDIA: "2"})
    assert run(pod, PLAIN, "rewrite").warnings == (
        "no node reports koordinator.sh/gpu-core and koordinator.sh/gpu-memory-ratio; the pods cannot be placed",
    )
    assert run(pod, PLAIN).warnings == ()
    assert run(pod, UNKNOWN).warnings == ()
    everything = run(pod_of({CORE: "50", RATIO: "50", SHARED: "1", RDMA: "1", FPGA: "1"}), PLAIN).warnings
    assert everything == (
        "no node reports koordinator.sh/fpga, koordinator.sh/gpu-core and 3 more; the pods cannot be placed",
    )
    assert all(len(text) <= 120 - len("topogate: ") for text in everything)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "spec",
        {},
        {"containers": None},
        {"containers": "x"},
        {"containers": {"a": 1}},
        {"containers": [None, 7, "x", [], {}]},
        {"containers": [{"name": 5, "resources": []}]},
        {"containers": [{"resources": {"requests": [1], "limits": "x"}}]},
        {"containers": [{"resources": {"limits": {"": 1, "x\x00": None}}}]},
        {"initContainers": [{"restartPolicy": 7, "resources": {"limits": None}}]},
    ],
    ids=str,
)
def test_odd_objects_ask_for_nothing(raw: object) -> None:
    """What is absent, null or of another type is left to the API server; nothing is raised."""
    done = run(pod_resources(raw, raw), DIMENSIONS, "rewrite")
    assert done == Translation()


def test_values_of_another_type_are_refused_with_words() -> None:
    """A list, an object, a boolean as an amount is an error of the user's, at its place."""
    for value in ([], {}, True, "", "x" * 10_000, float("nan"), 10**400):
        done = run(pod_resources({"containers": [{"name": "m", "resources": {"requests": {GPU: value}}}]}), DIMENSIONS)
        assert [one.field for one in done.errors] == ["spec.containers[0].resources.requests[koordinator.sh/gpu]"]
