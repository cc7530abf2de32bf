"""`topogate simulate` on pods that want RDMA devices with labels, with virtual functions, or beside their GPUs."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from engine.api import names
from engine.resources.names import CORE, MEMORY, NVIDIA, RATIO, RDMA
from tests.support.simulation import Json, answer, grid, job, pod, simulated
from tests.unit.simulate.test_simulate_devices import SCHEMA
from webhook.simulate.output import shown

HOST = {"require": "host"}
ANY = {"rdma": {"vfSelector": {}}}
FAST = {"rdma": {"vfSelector": {"matchLabels": {"type": "fast"}}}}
FORM = "must be * or a label selector, such as type=general or type in (fast,general)"
GPU_AMOUNTS = {CORE: "100", RATIO: "100", MEMORY: "80Gi"}


def card(minor: int, *groups: tuple[Json, list[Json]], labels: Json | None = None) -> Json:
    """An RDMA device in the PCIe scope of two GPUs, with groups of virtual functions."""
    topology = {"socketID": minor // 2, "nodeID": minor // 2, "pcieID": f"p{minor}", "busID": f"0000:{minor}f:00.0"}
    return {
        "type": "rdma",
        "minor": minor,
        "id": f"0000:{minor}f:00.0",
        "health": True,
        "labels": labels or {},
        "resources": {RDMA: "100"},
        "topology": topology,
        "vfGroups": [{"labels": of, "vfs": functions} for of, functions in groups],
    }


def functions(minor: int, first: int, number: int) -> list[Json]:
    return [{"minor": at, "busID": f"0000:{minor}f:0{at // 8}.{at % 8}"} for at in range(first, first + number)]


def four_cards(number: int = 2) -> list[Json]:
    """Each with functions of two types; the general ones have the lower addresses."""
    return [
        card(at, ({"type": "general"}, functions(at, 2, number)), ({"type": "fast"}, functions(at, 2 + number, number)))
        for at in range(4)
    ]


def cluster(cards: list[Json] | None = None, hosts: int = 1) -> list[Json]:
    """Hosts with eight GPUs and four RDMA devices, two GPUs and one of these in each PCIe scope."""
    nodes = grid(1, 1, hosts)
    told = []
    for node in nodes:
        node["status"]["allocatable"] |= {RDMA: "400", NVIDIA: "8"}
        gpus = [
            {
                "type": "gpu",
                "minor": minor,
                "id": f"GPU-{minor}",
                "moduleID": 8 - minor,
                "health": True,
                "resources": GPU_AMOUNTS,
                "topology": {
                    "socketID": minor // 4,
                    "nodeID": minor // 4,
                    "pcieID": f"p{minor // 2}",
                    "busID": f"0000:a{minor}:00.0",
                },
            }
            for minor in range(8)
        ]
        kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
        devices = [*gpus, *(four_cards() if cards is None else cards)]
        told.append({**kind, "metadata": {"name": node["metadata"]["name"]}, "spec": {"devices": devices}})
    return [*nodes, *told]


def asking(pods: int, resources: Json, *, hint: Any = None, joint: Any = None, own: Json | None = None) -> Json:
    """A Job whose template has Koordinator's annotations, and which has our own."""
    body = job("train", pods, HOST)
    template = body["spec"]["template"]
    template["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": resources}}]
    annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
    for key, value in ((names.DEVICE_ALLOCATE_HINT, hint), (names.DEVICE_JOINT_ALLOCATE, joint)):
        if value is not None:
            annotations[key] = value if isinstance(value, str) else json.dumps(value)
    body["metadata"].setdefault("annotations", {}).update(own or {})
    return body


def gang(objects: list[Json], body: Json, **options: Any) -> Json:
    whole = answer(objects, [body], **options)
    jsonschema.validate(whole, SCHEMA)
    (found,) = whole["workloads"]
    return dict(found)


def got(found: Json, kind: str = "rdma") -> list[list[tuple[int, list[str]]]]:
    """Of each pod the devices of a kind, each with its minor and its functions' addresses."""
    assert found["verdict"] == "placed", found
    return [
        [(use["minor"], [one["busID"] for one in use["vfs"]]) for use in uses if use["type"] == kind]
        for slots in found["podSets"][0]["assignment"]
        for uses in slots["devices"]
    ]


def holder(uses: Json, resources: Json) -> Json:
    """A pod of somebody else with these devices."""
    (host,) = [one["metadata"]["name"] for one in grid(1, 1, 1)]
    body = pod("other", host)
    body["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"limits": resources}}]
    body["metadata"]["annotations"] = {names.DEVICE_ALLOCATED: json.dumps(uses)}
    return body


def test_each_pod_gets_a_function_of_its_own() -> None:
    """The first free one by address; the RDMA device that is in use already goes first."""
    found = gang(cluster(), asking(3, {RDMA: "1"}, hint=ANY))
    assert got(found) == [[(0, ["0000:0f:00.2"])], [(0, ["0000:0f:00.3"])], [(0, ["0000:0f:00.4"])]]


def test_a_selector_chooses_among_the_groups() -> None:
    """Expressions as Kubernetes has them, and our own annotation with the same meaning."""
    fast = [[(0, ["0000:0f:00.4"])], [(0, ["0000:0f:00.5"])], [(1, ["0000:1f:00.4"])]]
    expressions = {"matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["general"]}]}
    for body in (
        asking(3, {RDMA: "1"}, hint=FAST),
        asking(3, {RDMA: "1"}, hint={"rdma": {"vfSelector": expressions}}),
        asking(3, {RDMA: "1"}, own={names.VF_SELECTOR: "type=fast"}),
        asking(3, {RDMA: "1"}, own={names.VF_SELECTOR: "type in (fast, other)"}),
    ):
        assert got(gang(cluster(), body)) == fast


def test_without_a_selector_there_are_no_functions() -> None:
    """As Koordinator has it: a plain share of the device."""
    assert got(gang(cluster(), asking(1, {RDMA: "1"}))) == [[(0, [])]]


def test_functions_come_from_the_pcie_scope_of_the_gpu() -> None:
    """Preferred without a word; the GPUs 0 and 1 are with RDMA device 0, and so on."""
    found = gang(cluster(), asking(4, {NVIDIA: "2", RDMA: "1"}, hint=FAST))
    assert [[minor for minor, _ in pod_cards] for pod_cards in got(found)] == [[0], [1], [2], [3]]
    assert [[minor for minor, _ in pod_gpus] for pod_gpus in got(found, "gpu")] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("required", [True, False])
def test_joint_allocation_gives_a_function_in_each_pcie_scope(required: bool) -> None:
    """Four GPUs are on two PCIe scopes: two functions, though the pod asks for one RDMA device."""
    joint = {"deviceTypes": ["gpu", "rdma"], **({"requiredScope": "SamePCIe"} if required else {})}
    found = gang(cluster(), asking(2, {NVIDIA: "4", RDMA: "1"}, hint=FAST, joint=joint))
    assert got(found) == [
        [(0, ["0000:0f:00.4"]), (1, ["0000:1f:00.4"])],
        [(2, ["0000:2f:00.4"]), (3, ["0000:3f:00.4"])],
    ]


def test_a_required_scope_keeps_to_gpus_with_functions() -> None:
    """Only the scope of GPUs 4 and 5 has free functions of the type."""
    cards = [card(at, ({"type": "fast"}, functions(at, 2, 3 if at == 2 else 0))) for at in range(4)]
    joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    body = asking(2, {NVIDIA: "1", RDMA: "1"}, hint=FAST, joint=joint)
    assert [[minor for minor, _ in one] for one in got(gang(cluster(cards), body), "gpu")] == [[4], [5]]
    own = asking(2, {NVIDIA: "1", RDMA: "1"}, own={names.VF_SELECTOR: "type=fast", names.RDMA_SCOPE: "pcie"})
    assert [[minor for minor, _ in one] for one in got(gang(cluster(cards), own), "gpu")] == [[4], [5]]
    third = asking(3, {NVIDIA: "1", RDMA: "1"}, hint=FAST, joint=joint)
    found = gang(cluster(cards), third)
    assert found["verdict"] == "never"
    assert "but the whole topology holds 2" in found["message"]
    cards = [card(at, ({"type": "fast"}, functions(at, 2, 1 if at == 2 else 0))) for at in range(4)]
    for one in cards:
        one["topology"]["pcieID"] = "elsewhere"
    found = gang(cluster(cards), body)
    assert found["message"] == (
        "one pod asks for 1 GPU and 1% of an RDMA device with a virtual function (type=fast) in the PCIe scope of its "
        "GPUs (topogate.dev/vf-selector and topogate.dev/rdma-scope), and no host has these devices together; ask for "
        "less per pod, or change the annotation"
    )


def test_functions_in_use_are_never_given_again() -> None:
    """By the annotation of a running pod, also of one with more RDMA devices than its request counts; then it waits."""
    cards = [card(0, ({"type": "fast"}, functions(0, 0, 2)))]
    taken = {"rdma": [{"minor": 0, "resources": {RDMA: "1"}, "extension": {"vfs": [{"busID": "0000:0f:00.0"}]}}]}
    objects = [*cluster(cards), holder(taken, {RDMA: "1"})]
    assert got(gang(objects, asking(1, {RDMA: "1"}, hint=FAST))) == [[(0, ["0000:0f:00.1"])]]
    found = gang(objects, asking(2, {RDMA: "1"}, hint=FAST))
    assert (found["verdict"], found["reason"]) == ("waits", "InsufficientFreeHosts")
    assert found["message"].startswith(
        "needs room for 2 pods x 1% of an RDMA device with a virtual function (type=fast)"
    )
    both = {"rdma": [{"minor": 7, "extension": {"vfs": [{"minor": at, "busID": f"0000:0f:00.{at}"}]}} for at in (0,)]}
    both["rdma"].append({"minor": 0, "extension": {"vfs": [{"minor": 1, "busID": "0000:0f:00.1"}]}})
    objects = [*cluster(cards), holder(both, {RDMA: "1"})]
    found = gang(objects, asking(1, {RDMA: "1"}, hint=FAST))
    assert found["verdict"] == "waits"
    assert "1 node = 1 with too few free virtual functions" in found["message"], found["message"]


def test_gangs_that_have_not_started_keep_their_functions() -> None:
    """Two gangs submitted one after the other."""
    cards = [card(0, ({}, functions(0, 0, 3)))]
    first, second = asking(2, {RDMA: "1"}, hint=ANY), asking(1, {RDMA: "1"}, hint=ANY)
    second["metadata"]["name"] = "second"
    whole = answer(cluster(cards), [first, second], queue=True)
    assert sorted(bus for one in whole["workloads"] for uses in got(one) for _, buses in uses for bus in buses) == [
        "0000:0f:00.0",
        "0000:0f:00.1",
        "0000:0f:00.2",
    ]


def test_functions_in_the_checkpoint_of_a_running_pod_are_not_given() -> None:
    """A device plugin for virtual functions names them by address, under a name of its own; dead pods do not count."""
    cards = [card(0, ({}, functions(0, 2, 2)))]
    objects = cluster(cards)
    entries = [
        {"podUID": "uid-other", "resourceName": "vendor.com/vf", "deviceIDs": ["0000:0f:00.2"]},
        {"podUID": "uid-gone", "resourceName": "vendor.com/vf", "deviceIDs": {"0": ["0000:0f:00.3"]}},
    ]
    objects[-1]["metadata"]["annotations"] = {names.DEVICE_CHECKPOINTS[0]: json.dumps(entries)}
    other = holder({}, {"vendor.com/vf": "1"})
    other["metadata"] |= {"uid": "uid-other", "annotations": {}}
    assert got(gang([*objects, other], asking(1, {RDMA: "1"}, hint=ANY))) == [[(0, ["0000:0f:00.3"])]]
    assert gang([*objects, other], asking(2, {RDMA: "1"}, hint=ANY))["verdict"] == "waits"


def test_what_no_host_has_is_never() -> None:
    """Functions of a type that no Device object reports; a host without Device object has none."""
    for objects in (cluster(), [one for one in cluster() if one["kind"] == "Node"]):
        found = gang(objects, asking(1, {RDMA: "1"}, hint={"rdma": {"vfSelector": {"matchLabels": {"type": "slow"}}}}))
        assert (found["verdict"], found["reason"]) == ("never", "HostTooSmall")
        assert found["message"] == (
            "one pod asks for 1% of an RDMA device with a virtual function (type=slow) (topogate.dev/vf-selector), and "
            "no host's Device object reports such devices; change or remove the annotation"
        )


def test_rdma_devices_are_chosen_by_label() -> None:
    """By Koordinator's selector and by our own annotation."""
    cards = [card(at, labels={"net": "blue" if at % 2 else "red"}) for at in range(4)]
    blue = {"rdma": {"selector": {"matchLabels": {"net": "blue"}}}}
    assert got(gang(cluster(cards), asking(1, {RDMA: "200"}, hint=blue))) == [[(1, []), (3, [])]]
    own = asking(1, {RDMA: "100"}, own={names.RDMA_SELECTOR: "net!=red"})
    assert got(gang(cluster(cards), own)) == [[(1, [])]]
    assert gang(cluster(cards), asking(1, {RDMA: "300"}, hint=blue))["verdict"] == "never"


def test_devices_are_shown_with_their_place() -> None:
    """Address, physical number and socket of each, as its host reports them; a GPU can be chosen by that number."""
    own = {names.VF_SELECTOR: "*", names.DEVICE_SELECTOR: f"{names.MODULE_ID}=3"}
    found = gang(cluster(), asking(1, {NVIDIA: "1", RDMA: "1"}, own=own))
    ((gpu, nic),) = found["podSets"][0]["assignment"][0]["devices"]
    amounts = {"core": 100, "memoryRatio": 100, "memory": "80Gi", "share": None}
    place = {"id": "GPU-5", "busID": "0000:a5:00.0", "moduleID": 3, "socketID": 1}
    assert gpu == {"type": "gpu", "minor": 5, **amounts, **place, "vfs": []}
    assert (nic["minor"], nic["share"], nic["socketID"], nic["moduleID"]) == (2, 1, 1, None)
    assert nic["vfs"] == [{"minor": 2, "busID": "0000:2f:00.2"}]


def test_gpus_of_one_socket_are_preferred_and_can_be_required() -> None:
    """Six GPUs are on two NUMA nodes of one socket where that has eight; three sockets of four hold no six."""
    objects = cluster([])
    told = objects[-1]["spec"]["devices"]
    for one in told:
        one["topology"] |= {"socketID": 0 if one["minor"] not in (0, 7) else 1, "nodeID": 1 + one["minor"] // 4}
    for own in ({}, {names.DEVICE_SCOPE: "socket"}):
        found = gang(objects, asking(1, {NVIDIA: "6"}, own=own))
        assert [minor for ((minor, _), *_) in [[one] for one in got(found, "gpu")[0]]] == [1, 2, 3, 4, 5, 6]
    found = gang(objects, asking(1, {NVIDIA: "7"}, own={names.DEVICE_SCOPE: "socket"}))
    assert (found["verdict"], found["reason"]) == ("never", "HostTooSmall")
    assert "7 GPUs on one CPU socket" in found["message"]


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("{", "must be JSON"),
        ("[]", "must be a JSON object"),
        ('"x"', "must be a JSON object"),
        ({"nic": {}}, '"nic" is no device type; allowed: gpu, rdma, fpga'),
        ({"rdma": []}, "rdma: must be an object"),
        (
            {"rdma": {"vfselector": {}}},
            'rdma: "vfselector" is unknown; allowed: allocateStrategy, exclusivePolicy, requiredTopologyScope, '
            "selector, vfSelector",
        ),
        ({"rdma": {"vfSelector": "type=a"}}, "rdma.vfSelector: must be an object"),
        (
            {"rdma": {"vfSelector": {"matchLabel": {}}}},
            'rdma.vfSelector: "matchLabel" is unknown; allowed: matchExpressions, matchLabels',
        ),
        ({"rdma": {"vfSelector": {"matchLabels": {"a": 1}}}}, "rdma.vfSelector.matchLabels[a]: must be text"),
        ({"rdma": {"vfSelector": {"matchLabels": {"a b": "c"}}}}, 'rdma.vfSelector: "a b" must be a label key'),
        (
            {"rdma": {"vfSelector": {"matchExpressions": [{"key": "a", "operator": "Within"}]}}},
            'rdma.vfSelector.matchExpressions[0].operator: "Within" is unknown; allowed: DoesNotExist, Exists, In, '
            "NotIn",
        ),
        (
            {"rdma": {"vfSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
            "rdma.vfSelector.matchExpressions[0].values: needs at least one value with the operator In",
        ),
        (
            {"rdma": {"vfSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}},
            "rdma.vfSelector.matchExpressions[0].values: must be empty with the operator Exists",
        ),
        ("[" * 10_000, "must be JSON"),
        ('{"rdma": {}, "x": "' + "y" * 20_000 + '"}', "must be at most 16,384 characters long"),
    ],
)
def test_a_wrong_hint_is_refused(hint: Any, told: str) -> None:
    """At the annotation, with the path within it and the allowed values."""
    found = gang(cluster(), asking(1, {RDMA: "1"}, hint=hint))
    assert found["verdict"] == "rejected", found
    (error,) = found["errors"]
    assert error["field"] == f"spec.template.metadata.annotations[{names.DEVICE_ALLOCATE_HINT}]"
    assert error["message"].endswith(told), error["message"]


@pytest.mark.parametrize(
    ("joint", "told"),
    [
        ({"deviceTypes": "gpu"}, "deviceTypes: must be a list"),
        ({"deviceTypes": ["gpu", "nic"]}, 'deviceTypes[1]: "nic" is no device type; allowed: gpu, rdma, fpga'),
        (
            {"deviceTypes": ["gpu", "rdma"], "requiredScope": "PCIe"},
            'requiredScope: "PCIe" is unknown; allowed: SamePCIe',
        ),
        ({"scope": "SamePCIe"}, '"scope" is unknown; allowed: deviceTypes, requiredScope'),
    ],
)
def test_a_wrong_joint_allocation_is_refused(joint: Any, told: str) -> None:
    (error,) = gang(cluster(), asking(1, {NVIDIA: "1", RDMA: "1"}, joint=joint))["errors"]
    assert error["field"] == f"spec.template.metadata.annotations[{names.DEVICE_JOINT_ALLOCATE}]"
    assert error["message"].endswith(told), error["message"]


@pytest.mark.parametrize(
    ("resources", "own", "told"),
    [
        (
            {RDMA: "1"},
            {names.VF_SELECTOR: "type=="},
            None,
        ),
        (
            {RDMA: "1"},
            {names.VF_SELECTOR: "type in fast"},
            FORM,
        ),
        (
            {RDMA: "1"},
            {names.VF_SELECTOR: ""},
            FORM,
        ),
        (
            {RDMA: "1"},
            {names.RDMA_SELECTOR: "a=b c"},
            FORM,
        ),
        ({RDMA: "1"}, {names.VF_SELECTOR: "x" * 3000}, "must be at most 2,048 characters long"),
        (
            {NVIDIA: "1"},
            {names.VF_SELECTOR: "*"},
            "is for pods with RDMA devices, and the pods request no koordinator.sh/rdma; remove it",
        ),
        ({RDMA: "1"}, {names.RDMA_SCOPE: "pcie"}, "is for pods with GPUs, and the pods request no GPU; remove it"),
        ({NVIDIA: "1", RDMA: "1"}, {names.RDMA_SCOPE: "numa"}, "allowed: pcie, pcie-preferred"),
    ],
)
def test_a_wrong_annotation_of_ours_is_refused(resources: Json, own: Json, told: str | None) -> None:
    found = gang(cluster(), asking(1, resources, own=own))
    if told is None:
        assert found["verdict"] == "never"  # an empty value is a value
        return
    (error,) = found["errors"]
    assert error["field"] == f"metadata.annotations[{next(iter(own))}]"
    assert error["message"].endswith(told), error["message"]


def test_a_hint_that_contradicts_our_annotation_is_refused() -> None:
    """Equal ones are fine, however they are written."""
    same = asking(1, {RDMA: "1"}, hint=FAST, own={names.VF_SELECTOR: "type in (fast)"})
    assert gang(cluster(), same)["verdict"] == "placed"
    (error,) = gang(cluster(), asking(1, {RDMA: "1"}, hint=FAST, own={names.VF_SELECTOR: "*"}))["errors"]
    assert error["field"] == f"spec.template.metadata.annotations[{names.DEVICE_ALLOCATE_HINT}]"
    assert f"contradicts metadata.annotations[{names.VF_SELECTOR}]" in error["message"]


def test_parts_of_a_hint_that_mean_nothing_here_are_named() -> None:
    """And nothing is refused that Koordinator would ignore: a hint for devices that the pod does not request."""
    hint = {"gpu": {"requiredTopologyScope": "PCIe", "selector": None}, "rdma": {"allocateStrategy": "ApplyForAll"}}
    joint = {"deviceTypes": ["gpu", "rdma", "fpga"]}
    found = gang(cluster(), asking(1, {NVIDIA: "1"}, hint={**hint, "fpga": {}}, joint=joint))
    assert found["verdict"] == "placed"
    told = [text for text in found["warnings"] if "koordinator" in text]
    assert told == [
        f"topogate: {names.DEVICE_ALLOCATE_HINT}: gpu.requiredTopologyScope is ignored: use device-scope",
        f"topogate: {names.DEVICE_ALLOCATE_HINT}: rdma.allocateStrategy is ignored",
        f"topogate: {names.DEVICE_JOINT_ALLOCATE}: fpga in deviceTypes is ignored",
    ]
    assert all(len(text) <= 120 for text in told)


def test_without_a_request_a_hint_asks_for_nothing() -> None:
    """The Job is left alone, whatever the hint says, and its user is told."""
    body = asking(1, {RDMA: "1"}, hint="{")
    del body["metadata"]["annotations"]
    found = gang(cluster(), body)
    assert (found["verdict"], found["errors"]) == ("ignored", [])
    assert found["warnings"] == [f"topogate: {names.DEVICE_ALLOCATE_HINT} is ignored without a request for a topology"]


def test_stored_objects_keep_the_hint() -> None:
    """It is Koordinator's own annotation, which its agent may read too."""
    (stored,) = shown(simulated(cluster(), [asking(1, {RDMA: "1"}, hint=FAST)]), "objects")
    assert json.loads(stored["spec"]["template"]["metadata"]["annotations"][names.DEVICE_ALLOCATE_HINT]) == FAST
