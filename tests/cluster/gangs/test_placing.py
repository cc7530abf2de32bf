"""Where gangs go, on a real API server with the stock scheduler and Job controller."""

from __future__ import annotations

import pytest

from engine.api import names
from tests.support.eventually import eventually
from tests.support.gang_steps import status_of
from tests.support.gangs import INDEX, Namespace, prefer, require

pytestmark = pytest.mark.core


def test_a_gang_lands_in_one_rack_with_neighbouring_ranks(gangs: Namespace) -> None:
    """Eight pods, two a host: one rack, ranks in host order."""
    hosts_in_order = gangs.fleet.grid("2x2x4")
    gangs.submit("train", pods=8, gpus=4, annotations=require("rack"))
    hosts = gangs.all_bound("train", 8)
    assert len(gangs.racks(hosts)) == 1
    order = [hosts_in_order.index(hosts[rank]) for rank in range(8)]
    assert order == sorted(order)
    assert len(set(order)) == 4


def test_prefer_falls_back_and_require_never_does(gangs: Namespace) -> None:
    """Six hosts do not fit a rack of four: preferred they spread over two racks, required they wait."""
    gangs.fleet.grid("1x2x4")
    gangs.submit("strict", pods=6, annotations=require("rack"))
    gangs.waits("strict")
    gangs.submit("easy", pods=6, annotations=prefer("rack"))
    assert len(gangs.racks(gangs.all_bound("easy", 6))) == 2
    assert gangs.pods("strict") == []


def test_slices_share_a_rack_each(gangs: Namespace) -> None:
    """Ranks 0-2 and 3-5 get a rack each, although a rack has four hosts free: no slice is cut in two."""
    gangs.fleet.grid("1x3x4")
    keys = {**prefer("rack"), names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "3"}
    gangs.submit("sliced", pods=6, annotations=keys)
    hosts = gangs.all_bound("sliced", 6)
    first, second = (gangs.racks({rank: hosts[rank] for rank in ranks}) for ranks in (range(3), range(3, 6)))
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    told = {int(pod["metadata"]["labels"][INDEX]): pod["metadata"]["annotations"] for pod in gangs.pods("sliced")}
    assert {rank: annotations[names.SLICE_INDEX] for rank, annotations in told.items()} == {
        rank: str(rank // 3) for rank in range(6)
    }


def test_slices_in_two_layers_are_kept_on_both_levels(gangs: Namespace) -> None:
    """Each six ranks in one rack, each three of them on one host.

    A rack has room for twelve such pods, but for three a host only once six: the twelve are in two racks.
    """
    gangs.fleet.grid("1x3x3")
    gangs.submit("layers", pods=12, gpus=2, annotations={names.SLICES: "rack=6,host=3"})
    hosts = gangs.all_bound("layers", 12)
    racks = [gangs.racks({rank: hosts[rank] for rank in range(first, first + 6)}) for first in (0, 6)]
    assert [len(one) for one in racks] == [1, 1]
    assert racks[0] != racks[1]
    assert all(len({hosts[rank] for rank in range(first, first + 3)}) == 1 for first in range(0, 12, 3))
    placement = gangs.placement("layers")
    assert placement is not None
    assert placement["spec"]["podSets"][0]["slices"] == [{"level": "rack", "size": 6}, {"level": "host", "size": 3}]


def test_a_balanced_gang_is_divided_evenly(gangs: Namespace) -> None:
    """Eight pods on racks of six hosts are four and four, not six and two."""
    gangs.fleet.grid("1x3x6")
    gangs.submit("even", pods=8, annotations={**prefer("rack"), names.PROFILE: "balanced"})
    hosts = gangs.all_bound("even", 8)
    racks = [gangs.racks({rank: hosts[rank] for rank in range(first, first + 4)}) for first in (0, 4)]
    assert [len(one) for one in racks] == [1, 1]
    assert racks[0] != racks[1]
    placement = gangs.placement("even")
    assert placement is not None
    assert placement["spec"]["profile"] == "balanced"
    eventually(lambda: status_of(gangs, "even").get("proven"), message=lambda: gangs.describe("even"))
