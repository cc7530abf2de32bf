from __future__ import annotations

import copy
import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from engine.api.device import DeviceUse
from engine.api.placement import Assignment, GangRequest, Placement, PodSetPlan, PodSetRequest, Slot, WorkloadRef
from engine.api.pod import OwnerRef
from engine.decoding.placements import placement, placement_body
from engine.decoding.wire import ProjectionError
from engine.gang.key import placement_name

_BODY: dict[str, Any] = {
    "apiVersion": "topogate.dev/v1alpha1",
    "kind": "Placement",
    "metadata": {
        "name": "job-train-7-3f9c2a1b",
        "namespace": "team",
        "labels": {"topogate.dev/workload-kind": "Job", "topogate.dev/workload-name": "train-7"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train-7",
                "uid": "u-1",
                "controller": False,
                "blockOwnerDeletion": False,
            }
        ],
    },
    "spec": {
        "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": "train-7", "uid": "u-1"},
        "topology": "default",
        "priority": 5,
        "gang": None,
        "podSets": [
            {
                "name": "main",
                "count": 6,
                "minAvailable": 6,
                "require": "rack",
                "prefer": None,
                "slices": [],
                "colocate": None,
                "ranked": True,
                "shapeHash": "0123456789",
            }
        ],
        "assignment": {
            "revision": 3,
            "provisioningRequest": None,
            "podSets": [
                {
                    "name": "main",
                    "slots": [
                        {"domain": ["b-0", "r-7", "h-28"], "count": 4, "ranks": "0-2,5", "devices": None},
                        {"domain": ["b-0", "r-7", "h-29"], "count": 2, "ranks": "3-4", "devices": None},
                    ],
                }
            ],
        },
    },
}

_RECORD = Placement(
    namespace="team",
    name="job-train-7-3f9c2a1b",
    uid="",
    resource_version="",
    workload=WorkloadRef("batch/v1", "Job", "train-7", "u-1"),
    labels={"topogate.dev/workload-kind": "Job", "topogate.dev/workload-name": "train-7"},
    topology="default",
    priority=5,
    pod_sets=(PodSetRequest("main", 6, 6, "rack", None, True, "0123456789"),),
    assignment=Assignment(
        3,
        (
            PodSetPlan(
                "main",
                (Slot(("b-0", "r-7", "h-28"), 4, ((0, 2), (5, 5))), Slot(("b-0", "r-7", "h-29"), 2, ((3, 4),))),
            ),
        ),
    ),
    deleting=False,
    created=0.0,
)


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    """The body with one value changed; `...` removes it."""
    body = copy.deepcopy(_BODY)
    at: Any = body
    for key in path[:-1]:
        at = at[key]
    if to is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return body


def test_the_body_has_the_documented_shape() -> None:
    """Every key of the documented object stands there, null where nothing is said."""
    assert placement_body(_RECORD) == _BODY


def test_the_body_reads_back() -> None:
    """A Placement that was written is the one that is read."""
    assert placement(json.dumps(_BODY).encode()) == _RECORD


def test_what_holds_for_all_pod_sets_stands_beside_them() -> None:
    """The gang's own request, what the pod sets share, the replica, and the level that was given up."""
    several = replace(
        _RECORD,
        pod_sets=(
            PodSetRequest("driver", 1, 1, None, None, True, "0", unconstrained=True, colocate="c"),
            PodSetRequest("main", 6, 4, None, "rack", True, "1", colocate="c", relaxed="rack"),
        ),
        gang=GangRequest(None, "block", 5, "block"),
        group="3",
    )
    body = placement_body(several)
    assert body["spec"]["group"] == "3"
    assert body["spec"]["gang"] == {"require": None, "prefer": "block", "minAvailable": 5, "relaxed": "block"}
    told = [(one["colocate"], one["minAvailable"], one.get("relaxed")) for one in body["spec"]["podSets"]]
    assert told == [("c", 1, None), ("c", 4, "rack")]
    assert placement(json.dumps(body).encode()) == several


@pytest.mark.parametrize("gang", [[], "x", {"minAvailable": -1}, {"minAvailable": 10**12}, {"require": 7}])
def test_a_gang_request_that_is_none_is_refused(gang: Any) -> None:
    """Nothing is guessed."""
    with pytest.raises(ProjectionError, match=r"\$\.spec\.gang"):
        placement(changed("spec", "gang", to=gang))


def test_a_waiting_placement_has_no_assignment() -> None:
    """The key is absent while waiting, and null reads the same."""
    waiting = changed("spec", "assignment", to=...)
    assert placement(waiting).assignment is None
    assert placement(changed("spec", "assignment", to=None)) == placement(waiting)
    assert placement_body(placement(waiting)) == waiting


def test_what_the_api_server_adds_is_read() -> None:
    """uid, versions, times and status come from the server."""
    body = copy.deepcopy(_BODY)
    body["metadata"] |= {
        "uid": "p",
        "resourceVersion": "8",
        "generation": 2,
        "deletionTimestamp": "2026-11-21T12:00:00Z",
    }
    body["metadata"]["creationTimestamp"] = "1970-01-01T00:01:00Z"
    body["status"] = {"phase": "Placed", "conditions": [{"type": "Placed"}]}
    record = placement(body)
    assert (record.uid, record.resource_version, record.generation) == ("p", "8", 2)
    assert (record.deleting, record.created) == (True, 60.0)
    assert record.status == body["status"]
    assert placement({**_BODY, "status": None}).status == {}


def test_labels_of_others_are_not_kept() -> None:
    """Only those of the workload are read; without one of them the object is not labelled."""
    body = copy.deepcopy(_BODY)
    body["metadata"]["labels"] |= {"a": "b"}
    assert placement(body) == placement(_BODY)
    assert placement(body).labelled
    body["metadata"]["labels"]["topogate.dev/workload-name"] = "other"
    assert not placement(body).labelled
    del body["metadata"]["labels"]
    assert placement(body).labels == {}


def test_unranked_slots() -> None:
    """`ranks: null` is a slot without ranks."""
    body = changed("spec", "assignment", "podSets", 0, "slots", 0, "ranks", to=None)
    record = placement(body)
    assert record.assignment is not None
    assert record.assignment.pod_sets[0].slots[0].ranks is None


def test_a_pod_set_without_a_level_is_unconstrained() -> None:
    """Only an unconstrained request is ever placed without a level."""
    assert placement(changed("spec", "podSets", 0, "require", to=None)).pod_sets[0].unconstrained
    assert not placement(_BODY).pod_sets[0].unconstrained


def test_a_gang_of_plain_pods_is_owned_by_its_members() -> None:
    """Without a workload uid the owners are those that were handed in, and never block a deletion."""
    body = changed("spec", "workload", to={"apiVersion": "v1", "kind": "Pod", "name": "g", "uid": ""})
    record = placement(body)
    assert "ownerReferences" not in placement_body(record)["metadata"]
    owners = [OwnerRef("v1", "Pod", name, f"uid-{name}", controller=True) for name in ("a", "b")]
    references = placement_body(record, owners=owners)["metadata"]["ownerReferences"]
    assert [(one["name"], one["uid"]) for one in references] == [("a", "uid-a"), ("b", "uid-b")]
    assert not any(one["controller"] or one["blockOwnerDeletion"] for one in references)
    body["metadata"]["ownerReferences"] = references
    assert placement(body).owners == {"uid-a", "uid-b"}
    assert placement(changed("metadata", "ownerReferences", to=references)).owners == frozenset()  # a workload's


_SLOTS = ("spec", "assignment", "podSets", 0, "slots")
_DEVICES = (*_SLOTS, 1, "devices")
_REQUESTS = ("spec", "assignment", "podSets", 0, "requests")
_ASKS = "$.spec.assignment.podSets[0].requests"
_AT = "$.spec.assignment.podSets[0].slots[1].devices[1][0]"


def _gpu(**fields: Any) -> dict[str, Any]:
    return {"type": "gpu", "minor": 0, **fields}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "$: Object missing required field `metadata`"),
        (changed("spec", to=...), "$: Object missing required field `spec`"),
        (changed("spec", to=None), "$.spec: Expected `object`, got `null`"),
        (changed("metadata", "name", to=...), "$.metadata.name: is required"),
        (changed("spec", "workload", to=...), "$.spec: Object missing required field `workload`"),
        (changed("spec", "workload", "uid", to=1), "$.spec.workload.uid: Expected `str`"),
        (changed("spec", "topology", to={}), "$.spec.topology: Expected `str`"),
        (changed("spec", "podSets", to="main"), "$.spec.podSets: Expected `array`"),
        (changed("spec", "podSets", 0, "count", to=-1), "$.spec.podSets[0].count: Expected `int` >= 0"),
        (changed("spec", "priority", to=2**40), "$.spec.priority: Expected `int` <= 2147483647"),
        (changed("spec", "assignment", to=[]), "$.spec.assignment: Expected `object | null`"),
        (changed("spec", "assignment", "revision", to=0), "$.spec.assignment.revision: Expected `int` >= 1"),
        (changed("spec", "assignment", "podSets", 0, "name", to="x"), "$.spec.assignment.podSets[0].name: 'x' is not"),
        (
            changed("spec", "assignment", "podSets", to=[_BODY["spec"]["assignment"]["podSets"][0]] * 2),
            "$.spec.assignment.podSets[1].name: 'main' is not one of spec.podSets, or is a duplicate",
        ),
        (changed(*_SLOTS, to=None), "$.spec.assignment.podSets[0].slots: Expected `array`"),
        (changed(*_SLOTS, 0, "domain", to=[]), "$.spec.assignment.podSets[0].slots[0].domain: Expected `array`"),
        (changed(*_SLOTS, 0, "domain", to=["b", ""]), "$.spec.assignment.podSets[0].slots[0].domain[1]: "),
        (changed(*_SLOTS, 0, "count", to=0), "$.spec.assignment.podSets[0].slots[0].count: Expected `int` >= 1"),
        (changed(*_SLOTS, 0, "count", to=3), "$.spec.assignment.podSets[0].slots[0].ranks: 4 ranks for 3 pods"),
        (changed(*_SLOTS, 0, "ranks", to="0-2,x"), "$.spec.assignment.podSets[0].slots[0].ranks: 'x' is not a rank"),
        (changed(*_SLOTS, 1, "ranks", to="2-3"), "$.spec.assignment.podSets[0].slots: rank 2 is a duplicate"),
        (changed(*_SLOTS, 1, "domain", to=["b", "h-28"]), "$.spec.assignment.podSets[0].slots[1].domain: host 'h-28'"),
        (changed(*_DEVICES, to="0"), "$.spec.assignment.podSets[0].slots[1].devices: Expected `array | null`"),
        (changed(*_DEVICES, to=[[]]), "$.spec.assignment.podSets[0].slots[1].devices: of 1 pods, but there are 2"),
        (changed(*_DEVICES, to=[[], [{"type": "gpu"}]]), "$.spec.assignment.podSets[0].slots[1].devices[1][0]: Object"),
        (changed(*_DEVICES, to=[[], [_gpu(type="T/pu")]]), f"{_AT}.type: 'T/pu' is none of fpga, gpu, rdma"),
        (changed(*_DEVICES, to=[[], [_gpu(minor=-1)]]), f"{_AT}.minor: Expected `int` >= 0"),
        (changed(*_DEVICES, to=[[], [_gpu(core=101)]]), f"{_AT}.core: 101 is more than 100"),
        (changed(*_DEVICES, to=[[], [_gpu(memory="much")]]), f"{_AT}.memory: 'much' is not a quantity"),
        (changed(*_DEVICES, to=[[], [_gpu(memory="-1Gi")]]), f"{_AT}.memory: must be from 0"),
        (changed(*_DEVICES, to=[[], [_gpu(), _gpu()]]), f"{_AT[:-3]}[1]: gpu 0 is a duplicate"),
        (changed(*_REQUESTS, to=[]), f"{_ASKS}: Expected `object | null`"),
        (changed(*_REQUESTS, to={"cpu": "much"}), f"{_ASKS}[cpu]: 'much' is not a quantity"),
        (changed(*_REQUESTS, to={"pods": "-1"}), f"{_ASKS}[pods]: must not be negative"),
        (changed("status", to="Placed"), "$.status: Expected `object | null`"),
    ],
)
def test_a_forged_or_half_written_placement_is_refused(body: dict[str, Any], message: str) -> None:
    """Whatever is missing, of the wrong type or at odds with itself raises ProjectionError with its path."""
    with pytest.raises(ProjectionError) as caught:
        placement(json.dumps(body).encode())
    assert str(caught.value).startswith(message)


def test_what_the_slots_were_planned_for_is_written_down() -> None:
    """As quantities; a Placement of an earlier version does not tell it."""
    read = placement(json.dumps(changed(*_REQUESTS, to={"memory": "1.5Gi", "cpu": 0.5, "nvidia.com/gpu": 8})).encode())
    assert read.assignment is not None and _RECORD.assignment is not None
    assert read.assignment.pod_sets[0].requests == (("cpu", 500), ("memory", 1536), ("nvidia.com/gpu", 8))
    written = placement_body(read)["spec"]["assignment"]["podSets"][0]["requests"]
    assert written == {"cpu": "500m", "memory": "1536Mi", "nvidia.com/gpu": "8"}
    assert _RECORD.assignment.pod_sets[0].requests is None


def test_the_devices_of_each_pod_are_written_down() -> None:
    """In the order of the ranks; what is 0 is left out, and so is the id, which the node tells."""
    half = DeviceUse("gpu", 3, core=50, ratio=50, memory=40 * 2**30)
    nic = DeviceUse("rdma", 0, share=100)
    listed = [
        [{"type": "gpu", "minor": 3, "core": 50, "memoryRatio": 50, "memory": "40Gi"}],
        [{"type": "rdma", "minor": 0, "share": 100}],
    ]
    read = placement(json.dumps(changed(*_DEVICES, to=listed)).encode())
    assert read.assignment is not None
    slots = read.assignment.pod_sets[0].slots
    assert [slot.devices for slot in slots] == [None, ((half,), (nic,))]
    assert placement_body(read)["spec"]["assignment"]["podSets"][0]["slots"][1]["devices"] == listed


def test_the_name_says_kind_workload_and_uid() -> None:
    """`<kind>-<name>-<8 digits of SHA-256 of the uid>[-<group>]`."""
    digest = hashlib.sha256(b"u-1").hexdigest()[:8]
    assert placement_name("Job", "train-7", "u-1") == f"job-train-7-{digest}"
    assert placement_name("LeaderWorkerSet", "serve", "u-1", "2") == f"leaderworkerset-serve-{digest}-2"


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("a" * 63, "a" * 50),
        ("a" * 49 + "-" + "b" * 20, "a" * 49),
        ("a" * 48 + ".-" + "b" * 20, "a" * 48),
        ("train.v2", "train.v2"),
        ("", ""),
        ("---", ""),
    ],
)
def test_a_long_name_is_cut_and_trimmed(name: str, cut: str) -> None:
    """The name stays within 63 characters and the workload's part never ends in a dash or a dot."""
    found = placement_name("Job", name, "u")
    assert found.rpartition("-")[0] == f"job-{cut}".rstrip("-")
    assert len(found) <= 63


def test_names_differ_by_uid() -> None:
    """A Job that is made again under its old name gets another Placement."""
    assert placement_name("Job", "train", "u-1") != placement_name("Job", "train", "u-2")


@pytest.mark.parametrize("name", ["Ünïcode", "a/b", "a b\n", "..a..", "\ud800", "x" * 5000])
@pytest.mark.parametrize("kind", ["Job", "", "K" * 200, "Weird Kind!"])
def test_any_input_makes_a_valid_name(kind: str, name: str) -> None:
    """Names and kinds out of files cannot make an invalid object name or label value."""
    for group in ("", "7", "g" * 300):
        found = placement_name(kind, name, name, group)
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", found)
        assert len(found) <= 63
