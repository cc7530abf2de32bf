from __future__ import annotations

import copy
import json
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.api.device import DeviceUse
from engine.api.placement import (
    Assignment,
    GangRequest,
    Placement,
    PodSetPlan,
    PodSetRequest,
    Separation,
    Slot,
    WorkloadRef,
)
from engine.api.rank import format_ranks, join_ranks, parse_ranks
from engine.api.resources import MAX_UNITS
from engine.decoding.devices import node_devices
from engine.decoding.objects import node, quota
from engine.decoding.placements import placement, placement_body
from engine.decoding.pods import pod
from engine.decoding.wire import ProjectionError
from engine.decoding.workloads import job

# Each character is a choice: most places take a name of a few that are drawn once, which is as good and much cheaper.
_NAMES = st.text("abcz0189.-", min_size=1, max_size=12)
_FEW_NAMES = st.lists(_NAMES, min_size=1, max_size=4, unique=True).map(st.sampled_from)
_LEVELS = st.none() | st.sampled_from(("block", "rack", "auto"))


_gpu = st.builds(
    lambda minor, percent, memory: DeviceUse("gpu", minor, core=percent, ratio=percent, memory=memory),
    st.integers(0, 3),
    st.integers(0, 100),
    st.sampled_from((0, 1, 2**30, 80 * 2**30, 858_993_459)),
)
_nic = st.builds(lambda minor, share: DeviceUse("rdma", minor, share=share), st.integers(0, 1), st.integers(1, 100))
_devices = st.lists(_gpu | _nic, max_size=3, unique_by=lambda use: (use.kind, use.minor)).map(tuple)
_RESOURCES = ("cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu", "koordinator.sh/gpu-core", "pods")


@st.composite
def _plans(draw: st.DrawFn, name: str, names: st.SearchStrategy[str]) -> PodSetPlan:
    hosts = draw(st.lists(_NAMES, unique=True, max_size=4))
    some_devices = draw(st.lists(_devices, min_size=1, max_size=3))
    ranked = draw(st.booleans())
    slots = []
    rank = 0
    for host in hosts:
        ranges = []
        for length in draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)):
            rank += draw(st.integers(1, 3))
            ranges.append((rank, rank + length - 1))
            rank += length
        domain = (*draw(st.lists(names, max_size=3)), host)
        count = sum(last - first + 1 for first, last in ranges)
        first = draw(st.none() | st.integers(0, 2))  # each pod has the next of them
        devices = None if first is None else tuple(islice(cycle(some_devices), first, first + count))
        slots.append(Slot(domain=domain, count=count, ranks=tuple(ranges) if ranked else None, devices=devices))
    amounts = st.dictionaries(st.sampled_from(_RESOURCES), st.integers(1, MAX_UNITS), max_size=4)
    requests = draw(st.none() | amounts.map(lambda one: tuple(sorted(one.items()))))
    return PodSetPlan(name=name, slots=tuple(slots), requests=requests)


@st.composite
def _placements(draw: st.DrawFn) -> Placement:
    pod_sets = []
    names = draw(_FEW_NAMES)
    for name in draw(st.lists(_NAMES, min_size=1, max_size=3, unique=True)):
        require, prefer = draw(_LEVELS), draw(_LEVELS)
        pod_sets.append(
            PodSetRequest(
                name=name,
                count=draw(st.integers(0, 1000)),
                min_available=draw(st.integers(0, 1000)),
                require=require,
                prefer=prefer,
                ranked=draw(st.booleans()),
                shape_hash=draw(st.sampled_from(("", "0", "0123456789", "fedcba9876"))),
                unconstrained=require is None and prefer is None,
                slices=tuple(draw(st.lists(st.tuples(names, st.integers(1, 99)), max_size=2))),
                colocate=draw(st.none() | names),
                relaxed=draw(_LEVELS),
            )
        )
    plans = tuple(draw(_plans(pod_set.name, names)) for pod_set in pod_sets)
    return Placement(
        namespace=draw(_NAMES),
        name=draw(_NAMES),
        uid="",
        resource_version="",
        workload=WorkloadRef("batch/v1", draw(names), draw(names), draw(st.text(max_size=4))),
        topology=draw(names),
        priority=draw(st.integers(-(2**31), 2**31 - 1)),
        gang=draw(st.none() | st.builds(GangRequest, _LEVELS, _LEVELS, st.none() | st.integers(0, 1000), _LEVELS)),
        group=draw(st.none() | names),
        profile=draw(st.none() | names),
        separation=draw(st.none() | st.builds(Separation, names, _LEVELS, st.none() | names)),
        pod_sets=tuple(pod_sets),
        assignment=draw(st.none() | st.builds(Assignment, st.integers(1, 2**63 - 1), st.just(plans))),
        deleting=False,
        created=0.0,
    )


@given(_placements())
def test_every_placement_reads_back(record: Placement) -> None:
    """What is written to the API server is what a new leader reads, with the labels of its workload."""
    assert placement(json.dumps(placement_body(record)).encode()) == replace(record, labels=record.workload.labels)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1]))))
def test_ranks_read_back_as_the_same_set(ranges: list[tuple[int, int]]) -> None:
    """Text and ranges hold the same ranks; the joined ranges are the text's."""
    joined = parse_ranks(format_ranks(ranges))
    assert joined == join_ranks(ranges)
    assert {rank for first, last in joined for rank in range(first, last + 1)} == {
        rank for first, last in ranges for rank in range(first, last + 1)
    }


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(("1", "1Gi", "-1")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)

_SLOT: dict[str, Any] = {
    "domain": ["h"],
    "count": 1,
    "devices": [[{"type": "gpu", "minor": 0, "core": 50, "memoryRatio": 50, "memory": "1Gi"}]],
}
_WHOLE: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"a": "b"}, "ownerReferences": [{"uid": "u", "controller": True}]},
    "spec": {
        "parallelism": 2,
        "completions": 3,
        "hard": {"pods": "3"},
        "containers": [{"resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 1}]}],
        "initContainers": [{"restartPolicy": "Always"}],
        "tolerations": [{"key": "a"}],
        "nodeSelector": {"a": "b"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"resources": {}}], "overhead": {}}},
        "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": "n", "uid": "u"},
        "topology": "default",
        "podSets": [{"name": "main", "count": 2}],
        "devices": [
            {
                "type": "gpu",
                "minor": 0,
                "health": True,
                "id": "GPU-0",
                "resources": {"koordinator.sh/gpu-core": 100},
                "topology": {"nodeID": 0, "pcieID": "pci0000:00"},
            }
        ],
        "assignment": {"revision": 1, "podSets": [{"name": "main", "slots": [_SLOT]}]},
    },
    "status": {"allocatable": {"cpu": "1"}, "conditions": [{"type": "Ready"}], "completedIndexes": "1"},
}


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in items for found in _places(inner, (*path, key)))]


@given(st.sampled_from(_places(_WHOLE)[1:]), _JSON)
def test_no_object_raises_anything_but_a_projection_error(place: tuple[str | int, ...], value: Any) -> None:
    """Any value anywhere in an object is read or refused, from bytes and from a parsed object alike."""
    raw = copy.deepcopy(_WHOLE)
    at: Any = raw
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    for read in (pod, job, node, node_devices, quota, placement):
        for source in (raw, json.dumps(raw).encode()):
            with suppress(ProjectionError):
                read(source)
