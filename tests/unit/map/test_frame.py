"""The data of the map: every host and gang, what fits for pods of each size, and explanations within bounds."""

from __future__ import annotations

import pytest

from tests.support.simulation import grid
from tests.support.snapshots import busy_cluster, placed, snapshot, waits
from webhook.map import frame as frames
from webhook.map.frame import map_frame


def test_it_says_what_the_commands_say() -> None:
    found = map_frame(snapshot(busy_cluster()))
    (topology,) = found.topologies
    assert len(topology.nodes) == 16
    assert {size.pod_gpus: size.largest_gang for size in found.sizes} == {1: 48, 2: 24, 4: 12, 8: 6}
    explained = {one.name: one for one in found.explained}
    assert set(explained) == {gang.name for gang in found.gangs}
    assert [one.name for one in explained["wide"].in_the_way] == ["others/job/endless"]
    assert [one.pod for one in explained["train"].pods] == ["train-0", "train-1", None]


def test_gpus_of_a_gang_on_a_host() -> None:
    """Two pods of eight GPUs, one of them to come."""
    (topology,) = map_frame(
        snapshot([*grid(1, 1, 1), *placed("two", {"b0-r0-h0": ("b0/b0-r0", 2)}, bound=1)])
    ).topologies
    (gang,) = topology.nodes[0].gangs
    assert (gang.pods, gang.reserved, gang.gpus) == (1, 1, 16)


def test_explanations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the queue, and the pods of small gangs."""
    monkeypatch.setattr(frames, "MOST_WAITING", 2)
    monkeypatch.setattr(frames, "MOST_PODS", 3)
    cluster = [
        *grid(1, 2, 4),
        *placed("small", {"b0-r0-h0": ("b0/b0-r0", 1)}, bound=1),
        *placed("large", {f"b0-r1-h{at}": ("b0/b0-r1", 1) for at in range(3)}, bound=3),
        *(waits(f"w{number}", 9, {"require": "rack"}, minute=number) for number in range(4)),
    ]
    found = map_frame(snapshot(cluster))
    assert len(found.gangs) == 6
    assert [one.name for one in found.explained] == ["w0", "w1", "small"]


def test_the_forecast_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every gang is planned as things are now; what is left of the work is for what ends later."""
    (before,) = [one for one in map_frame(snapshot(busy_cluster())).gangs if one.name == "wide"]
    monkeypatch.setattr(frames, "MOST_PLANS", 4)
    (after,) = [one for one in map_frame(snapshot(busy_cluster())).gangs if one.name == "wide"]
    assert before.start is not None
    assert after.start is not None
    assert (before.start.by, after.start.by) == ("2026-01-01T01:00:00Z", None)
    assert (before.reason, before.message) == (after.reason, after.message)


def test_hosts_without_gpus() -> None:
    nodes = grid(1, 1, 2)
    for one in nodes:
        del one["status"]["allocatable"]["nvidia.com/gpu"]
    assert [size.pod_gpus for size in map_frame(snapshot(nodes)).sizes] == [0]
