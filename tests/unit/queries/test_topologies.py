"""Topologies with what is free in every domain: GPUs by state, the largest gang, hosts, and what is not known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.api import names
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.policy.model import default_policy
from tests.support.cluster_records import placement
from tests.support.cluster_records import pod as bound
from tests.support.golden import golden
from tests.support.gpu_hosts import asking, gpu_job, gpu_node, gpus, share, use, with_uses
from tests.support.simulation import grid, node, pod
from tests.support.snapshots import busy_cluster, placed, runs, snapshot, waiting_placement, waits
from webhook.queries.model import GpuCounts, TopologiesAnswer
from webhook.queries.topologies import topologies
from webhook.snapshot.snapshot import AnswerProblem, Unread
from webhook.terminal.tables import as_text
from webhook.terminal.text import TextPart, topologies_text

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "topology-show.schema.json").read_text())


def printed(sections: list[TextPart]) -> str:
    lines: list[str] = []
    for one in sections:
        lines += [*one.before, *(as_text(one.columns, one.rows).splitlines() if one.rows else ()), *one.after]
    return re.sub(r"policy [0-9a-f]{12}", "policy 2f03981f5539", "\n".join(lines))  # any new field changes it


def counts(**parts: int) -> GpuCounts:
    return GpuCounts(**{"total": 0, "used": 0, "reserved": 0, "kept": 0, "out": 0, "free": 0, **parts})


def test_the_tables() -> None:
    """By rack, by one level, by host, with all states, without rights, without GPUs, without levels."""
    busy = snapshot(busy_cluster())
    partly = replace(busy, unread=(Unread("pods", except_in="alice"),))
    no_gpus = snapshot([node("a", {}, gpus=0), node("b", {}, gpus=0)])
    golden(
        "topology-show",
        {
            "by rack": printed(topologies_text(topologies(busy))),
            "by rack, wide": printed(topologies_text(topologies(busy), wide=True)),
            "by block, gangs of 4-GPU pods": printed(topologies_text(topologies(busy, level="block", gpus=4))),
            "by host": printed(topologies_text(topologies(busy, level="host"))),
            "pods of other namespaces cannot be read": printed(topologies_text(topologies(partly))),
            "hosts without GPUs or levels": printed(topologies_text(topologies(no_gpus, level="host"))),
            "no nodes": printed(topologies_text(topologies(snapshot([])))),
        },
    )


def test_every_state_of_a_gpu_is_counted_once() -> None:
    """Used, reserved for a pod to come, kept for a starving gang, out of use: together all that there are."""
    objects = [
        *grid(1, 1, 6),
        *placed("train", {"b0-r0-h0": ("b0/b0-r0", 1), "b0-r0-h1": ("b0/b0-r0", 1)}, bound=1),
        pod("part", "b0-r0-h2", gpus=3),
        waits("starves", 6, {"require": "rack"}),
        waiting_placement("starves", kept=["b0-r0-h3"], reason="RoomKept"),
    ]
    objects[4]["spec"]["unschedulable"] = True
    objects[2]["spec"]["taints"] = [{"key": "other", "effect": "NoSchedule"}]
    (one,) = topologies(snapshot(objects), level="host").topologies
    assert one.gpus == counts(total=48, used=11, reserved=8, kept=8, out=13, free=8)
    assert {host.name: host.gpus for host in one.nodes} == {
        "b0-r0-h0": counts(total=8, used=8),
        "b0-r0-h1": counts(total=8, reserved=8),
        "b0-r0-h2": counts(total=8, used=3, out=5),
        "b0-r0-h3": counts(total=8, kept=8),
        "b0-r0-h4": counts(total=8, out=8),
        "b0-r0-h5": counts(total=8, free=8),
    }
    assert [host.out for host in one.nodes] == [None, None, "taint other", None, "cordoned", None]
    assert one.nodes[3].kept_for == "alice/job/starves"
    assert [domain.level for domain in one.domains] == ["block", "rack"]
    (block,) = topologies(snapshot(objects), level="block").topologies[0].domains
    assert (block.out, block.kept_for) == ({"cordoned": 1, "taint other": 1}, ("alice/job/starves",))
    assert (block.hosts, block.free_hosts, block.largest_gang) == (6, 1, 1)


@pytest.mark.parametrize(("percent", "pods", "used", "reserved"), [(50, 2, 1, 1), (25, 4, 2, 1), (25, 4, 3, 1)])
def test_parts_to_come_share_a_gpu_and_whole_ones_stay_in_use(
    percent: int, pods: int, used: int, reserved: int
) -> None:
    """Reserved are the GPUs that only pods to come use; each part by itself would be a whole one."""
    stores = Stores()
    view = ClusterState(stores, default_policy())
    stores.nodes.replace([gpu_node("host", count=4)])
    stores.devices.replace([gpus("host", count=4)])
    parts = gpu_job("parts", share(percent), count=pods, require=None)
    stores.workloads.replace([replace(parts, annotations={names.UNCONSTRAINED: "true"})])
    stores.placements.replace([placement(parts, {"host": pods})])
    other = gpu_job("other", asking(gpu=1))
    stores.pods.replace([with_uses(bound(other, None, host="host", name=f"p{n}"), use(n)) for n in range(used)])
    view.refresh()
    (one,) = topologies(replace(snapshot([]), view=view)).topologies
    assert one.gpus == counts(total=4, used=used, reserved=reserved, free=4 - used - reserved)


def test_the_hosts_tell_who_is_there() -> None:
    """For a map: each gang with its bound pods and those to come, pods of no gang, the path of domains."""
    (one,) = topologies(snapshot(busy_cluster()), level="host").topologies
    by_name = {host.name: host for host in one.nodes}
    (held,) = by_name["b0-r0-h0"].gangs
    assert (held.namespace, held.workload, held.group, held.pods, held.reserved) == ("alice", "job/train", None, 1, 0)
    (to_come,) = by_name["b0-r0-h2"].gangs
    assert (to_come.pods, to_come.reserved) == (0, 1)
    assert (by_name["b0-r1-h0"].gangs, by_name["b0-r1-h0"].other_pods) == ((), 1)
    assert by_name["b1-r0-h1"].domain == ("b1", "b1-r0")
    assert [(left.node, left.reason) for left in one.left_out] == [("stray", "no label block")]


def test_unhealthy_and_shared_gpus_of_reported_devices() -> None:
    """A sick GPU is out of use, one that is shared counts as used."""
    gpus = [
        {
            "type": "gpu",
            "minor": minor,
            "health": minor != 3,
            "resources": dict.fromkeys(("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"), "100"),
        }
        for minor in range(8)
    ]
    objects = grid(1, 1, 1)
    objects[0]["status"]["allocatable"] |= {
        "koordinator.sh/gpu-core": "800",
        "koordinator.sh/gpu-memory-ratio": "800",
    }
    share = pod("share", "b0-r0-h0")
    share["spec"]["containers"][0]["resources"] = {
        "limits": {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    }
    device = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "b0-r0-h0"},
        "spec": {"devices": gpus},
    }
    (one,) = topologies(snapshot([*objects, share, device]), gpus=1).topologies
    assert one.gpus == counts(total=8, used=1, out=1, free=6)
    assert one.largest_gang == 6


def test_gpus_of_another_vendor_and_of_mixed_clusters() -> None:
    """Each host's own resource counts; the probe asks by the name that most hosts report."""
    objects = grid(1, 1, 3)
    for one in objects[:2]:
        allocatable = one["status"]["allocatable"]
        allocatable["amd.com/gpu"] = allocatable.pop("nvidia.com/gpu")
    (answer,) = topologies(snapshot(objects)).topologies
    assert answer.gpus == counts(total=24, free=24)
    assert answer.largest_gang == 2


def test_gpu_taints_do_not_close_a_host() -> None:
    """Kubernetes adds the toleration of a GPU's own taint to pods that ask for it; of another taint it does not."""
    objects = grid(1, 1, 2)
    objects[0]["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    objects[1]["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    (answer,) = topologies(snapshot(objects)).topologies
    assert answer.gpus == counts(total=16, free=8, out=8)


def test_domains_of_an_exclusive_gang_have_no_room_for_others() -> None:
    objects = [*grid(1, 2, 2), *placed("alone", {"b0-r0-h0": ("b0/b0-r0", 1)}, bound=1)]
    objects[5]["spec"]["separation"] = {"exclusive": "rack"}
    (answer,) = topologies(snapshot(objects), level="rack").topologies
    assert [domain.largest_gang for domain in answer.domains] == [0, 2]


def test_without_the_pods_of_all_namespaces_nothing_free_is_claimed() -> None:
    known = snapshot(busy_cluster())
    for collection in ("pods", names.PLACEMENTS):
        partly = replace(known, unread=(Unread(collection),))
        answer = topologies(partly, level="host")
        (one,) = answer.topologies
        assert one.gpus == GpuCounts(total=128, used=None, reserved=None, kept=None, out=None, free=None)
        assert {one.largest_gang, one.free_hosts, *(level.largest_gang for level in one.levels)} == {None}
        assert {host.slots for host in one.nodes} == {None}
        assert answer.remarks[0].startswith(f"{collection} cannot be read")
    with pytest.raises(AnswerProblem) as caught:
        topologies(replace(known, unread=(Unread("nodes"), Unread("pods"))))
    assert str(caught.value) == "nodes cannot be read: topologies and free capacity are not known"
    harmless = replace(known, unread=(Unread("resourcequotas"),))
    assert topologies(harmless).topologies[0].gpus.free == 48


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "ib"}, 'no topology "ib"; there are: default'),
        ({"level": "rak"}, 'no level "rak"; there are: block, rack, host'),
        ({"level": "a\x1b[2J"}, 'no level "a\\x1b[2J"; there are: block, rack, host'),
    ],
)
def test_an_unknown_topology_or_level_is_refused_with_those_that_exist(options: dict[str, Any], text: str) -> None:
    with pytest.raises(AnswerProblem) as caught:
        topologies(snapshot(grid(1, 1, 1)), **options)
    assert str(caught.value) == text


def test_the_output_fits_its_schema() -> None:
    for found in (snapshot(busy_cluster()), replace(snapshot(busy_cluster()), unread=(Unread("pods"),)), snapshot([])):
        for level in (None, "host"):
            answer = topologies(found, level=level)
            document = json.loads(answer.model_dump_json(by_alias=True))
            jsonschema.validate(document, SCHEMA)
            assert TopologiesAnswer.model_validate(document) == answer


def test_a_hostile_name_stays_in_its_cell() -> None:
    """Names of objects are bounded by the API server, not those of a file or of a label's reader."""
    objects = [*grid(1, 1, 1), *runs("x", ["b0-r0-h0"]), waits("evil\x1b[2J\n", 9, {"require": "rack"})]
    objects.append(waiting_placement("evil\x1b[2J\n", kept=["b0-r0-h0"]))
    shown = printed(topologies_text(topologies(snapshot(objects)), wide=True))
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 3 + 1
