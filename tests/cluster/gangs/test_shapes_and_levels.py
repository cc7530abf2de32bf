"""What one pod needs, and which levels its gang asks for, against what the scheduler then really binds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from local.nodes import BLOCK, RACK, HostShape
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job, occupy
from tests.support.gangs import Namespace, prefer, require


def _asking(requests: Mapping[str, str], limits: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A pod spec with one container of these resources."""
    resources = {"requests": dict(requests), "limits": dict(limits or {})}
    return {"containers": [{"name": "main", "image": "example.com/train:1", "resources": resources}]}


def test_pods_that_share_hosts_are_neighbours_in_rank(gangs: Namespace) -> None:
    """Twelve pods, four a host: ranks 0-3, 4-7 and 8-11 each on a host of their own, in the order of the tree."""
    hosts = gangs.fleet.grid("1x2x4")
    gangs.submit("train", pods=12, gpus=2, annotations=require("rack"))
    bound = gangs.all_bound("train", 12)
    order = [hosts.index(bound[rank]) for rank in range(12)]
    assert order == sorted(order)
    assert sorted(Counter(order).values()) == [4, 4, 4]
    assert len(gangs.racks(bound)) == 1


def test_ranks_follow_the_tree_over_racks_and_blocks(gangs: Namespace) -> None:
    """Seven hosts of eight in two blocks: along the ranks every rack and every block is entered once."""
    hosts = gangs.fleet.grid("2x2x2")
    occupy(gangs, hosts[5])
    gangs.submit("train", pods=7, annotations=prefer("rack"))
    bound = gangs.all_bound("train", 7)
    for level in (0, 1):
        entered = [gangs.fleet.rack_of(bound[rank])[: level + 1] for rank in range(7)]
        changes = sum(one != other for one, other in pairwise(entered))
        assert changes == len(set(entered)) - 1, entered


def test_fractions_of_a_core_are_counted_exactly(gangs: Namespace) -> None:
    """Three pods of 1.3 cores do not fit a host of 3.8: four pods take two hosts, and the scheduler agrees."""
    gangs.fleet.grid("1x1x3", shape=HostShape(cpu="3800m", memory="8Gi", gpus=0))
    gangs.submit("train", pods=4, annotations=require("rack"), pod_spec=_asking({"cpu": "1300m"}))
    assert sorted(Counter(gangs.all_bound("train", 4).values()).values()) == [2, 2]


def test_memory_may_be_what_runs_out(gangs: Namespace) -> None:
    """One pod a host by memory though the cores would take ten: a gang of four waits for a rack of three."""
    gangs.fleet.grid("1x1x3", shape=HostShape(cpu="10", memory="3Gi", gpus=0))
    pod = _asking({"cpu": "1", "memory": "1537Mi"})
    gangs.submit("large", pods=4, annotations=require("rack"), pod_spec=pod)
    gangs.waits("large")
    gangs.submit("train", pods=3, annotations=require("rack"), pod_spec=pod)
    assert len(set(gangs.all_bound("train", 3).values())) == 3


def test_the_number_of_pods_of_a_host_is_a_resource(gangs: Namespace) -> None:
    """A host that takes two pods is full with two, whatever they ask for."""
    gangs.fleet.grid("1x1x2", shape=HostShape(pods="2", gpus=0))
    gangs.submit("train", pods=4, annotations=require("rack"), pod_spec=_asking({"cpu": "10m"}))
    assert sorted(Counter(gangs.all_bound("train", 4).values()).values()) == [2, 2]
    gangs.submit("more", pods=1, annotations=require("rack"), pod_spec=_asking({"cpu": "10m"}))
    gangs.waits("more")


def test_an_extended_resource_bounds_a_gang(gangs: Namespace) -> None:
    """Two network cards a host: four pods with one each take two hosts, though the GPUs would take all on one."""
    gangs.fleet.grid("1x1x3", shape=HostShape(extended={"example.com/nic": "2"}))
    pod = _asking({}, {"nvidia.com/gpu": "1", "example.com/nic": "1"})
    gangs.submit("train", pods=4, annotations=require("rack"), pod_spec=pod)
    assert sorted(Counter(gangs.all_bound("train", 4).values()).values()) == [2, 2]


def test_init_containers_and_sidecars_are_part_of_the_shape(gangs: Namespace) -> None:
    """A sidecar of 2 cores beside 2, or an init container of 3: each makes one pod a host of 5 cores, not two."""
    gangs.fleet.grid("1x1x2", shape=HostShape(cpu="5", gpus=0))
    image = {"image": "example.com/train:1"}
    sidecar = {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}, **image}
    pod = {**_asking({"cpu": "2"}), "initContainers": [sidecar]}
    gangs.submit("train", pods=2, annotations=require("rack"), pod_spec=pod)
    assert len(set(gangs.all_bound("train", 2).values())) == 2


def test_a_required_block_is_kept_while_racks_are_preferred(gangs: Namespace) -> None:
    """Three hosts: one block, and in it as few racks as possible, though the other block has more room in all."""
    hosts = gangs.fleet.grid("2x2x2")
    occupy(gangs, hosts[4])
    gangs.submit("train", pods=3, annotations={**require("block"), **prefer("rack")})
    racks = gangs.racks(gangs.all_bound("train", 3))
    assert len(racks) == 2
    assert len({block for block, _ in racks}) == 1


def test_prefer_auto_packs_hosts(gangs: Namespace) -> None:
    """Four pods of two GPUs share one host although every host is free."""
    gangs.fleet.grid("2x2x2")
    gangs.submit("train", pods=4, gpus=2, annotations=prefer("auto"))
    assert len(set(gangs.all_bound("train", 4).values())) == 1


def test_require_auto_takes_the_lowest_level_that_is_big_enough(gangs: Namespace) -> None:
    """Three hosts are more than a rack of two: one block; two are a rack; one pod stays on a host."""
    gangs.fleet.grid("2x2x2")
    gangs.submit("block", pods=3, annotations=require("auto"))
    assert len({block for block, _ in gangs.racks(gangs.all_bound("block", 3))}) == 1
    gangs.submit("rack", pods=2, annotations=require("auto"))
    assert len(gangs.racks(gangs.all_bound("rack", 2))) == 1
    gangs.submit("host", pods=2, gpus=4, annotations=require("auto"))
    assert len(set(gangs.all_bound("host", 2).values())) == 1


def test_require_auto_waits_for_the_tight_domain(gangs: Namespace) -> None:
    """A rack is big enough but not free: the gang waits for it instead of spreading over the block."""
    hosts = gangs.fleet.grid("1x2x2")
    occupy(gangs, hosts[0])
    occupy(gangs, hosts[2])
    gangs.submit("train", pods=2, annotations=require("auto"))
    gangs.waits("train", "Fragmented")
    assert gangs.pods("train") == []


def test_an_unconstrained_gang_takes_room_wherever_it_is_all_or_nothing(gangs: Namespace) -> None:
    """Five pods do not fit four hosts and wait; four go over two blocks."""
    hosts = gangs.fleet.grid("2x1x2")
    ask = {"topogate.dev/unconstrained-topology": "true"}
    gangs.submit("large", pods=5, annotations=ask)
    gangs.waits("large")
    gangs.submit("train", pods=4, annotations=ask)
    assert set(gangs.all_bound("train", 4).values()) == set(hosts)
    assert gangs.pods("large") == []


@pytest.mark.parametrize(
    ("on_job", "on_pods"),
    [
        pytest.param({}, {"kueue.x-k8s.io/podset-required-topology": RACK}, id="kueue"),
        pytest.param({"kai.scheduler/topology-required-placement": RACK}, {}, id="kai"),
        pytest.param({"topogate.dev/require-topology": RACK}, {}, id="label-key"),
    ],
)
def test_the_annotations_of_others_place_like_ours(
    gangs: Namespace, on_job: dict[str, str], on_pods: dict[str, str]
) -> None:
    """The same request in another dialect goes to the hosts where ours went."""
    gangs.fleet.grid("2x2x3")
    gangs.submit("native", pods=3, annotations=require("rack"))
    expected = gangs.all_bound("native", 3)
    delete_job(gangs, "native")
    eventually(lambda: gangs.pods("native") == [], message="the rack is free again")
    gangs.pods_seen()
    gangs.submit("alias", pods=3, annotations=on_job, pod_annotations=on_pods)
    assert gangs.all_bound("alias", 3) == expected
    placement = gangs.placement("alias")
    assert placement is not None
    assert placement["spec"]["podSets"][0]["require"] == "rack"


def test_a_preferred_level_in_the_words_of_kueue_falls_back(gangs: Namespace) -> None:
    """podset-preferred-topology on the template: two racks when one does not fit."""
    gangs.fleet.grid("1x2x2")
    gangs.submit("train", pods=3, pod_annotations={"kueue.x-k8s.io/podset-preferred-topology": RACK})
    assert len(gangs.racks(gangs.all_bound("train", 3))) == 2


def test_placed_pods_carry_where_they_are(gangs: Namespace) -> None:
    """Domain and rank as annotations, the gang as a label, the domain's labels in the node selector."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    bound = gangs.all_bound("train", 2)
    placement = gangs.placement("train")
    assert placement is not None
    for pod in gangs.pods("train"):
        annotations, labels = pod["metadata"]["annotations"], pod["metadata"]["labels"]
        rank = int(annotations["topogate.dev/rank"])
        block, rack = gangs.fleet.rack_of(bound[rank])
        assert annotations["topogate.dev/domain"] == f"{block}/{rack}/{bound[rank]}"
        assert labels["topogate.dev/gang"] == placement["metadata"]["name"]
        assert pod["spec"]["nodeSelector"].items() >= {BLOCK: block, RACK: rack}.items()
