"""Answers about any cluster: GPUs add up, the largest gang is the planner's, a forecast changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulation import grid, pod
from tests.support.snapshots import placed, runs, snapshot, waiting_placement, waits
from webhook.explanations.fits import fits
from webhook.queries.gangs import gangs
from webhook.queries.model import GpuCounts
from webhook.queries.topologies import topologies

Json = dict[str, Any]


@st.composite
def clusters(draw: st.DrawFn) -> list[Json]:
    """Up to two blocks of two racks of three hosts, with pods, cordons, taints, gangs, and hosts kept for a gang."""
    nodes = grid(draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    hosts = [one["metadata"]["name"] for one in nodes]
    found: list[Json] = []
    free = []
    for one, host in zip(nodes, hosts, strict=True):
        match draw(st.sampled_from(("free", "free", "part", "full", "cordon", "taint", "away", "gang"))):
            case "part":
                found.append(pod(f"p-{host}", host, gpus=draw(st.integers(1, 7))))
            case "full":
                deadline = draw(st.none() | st.integers(0, 7200))
                found += runs(f"job-{host}", [host], deadline=deadline)
            case "cordon":
                one["spec"]["unschedulable"] = True
            case "taint":
                one["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
            case "away":
                one["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
            case "gang":
                path = "/".join(one["metadata"]["labels"][key] for key in sorted(one["metadata"]["labels"]))
                found += placed(f"g-{host}", {host: (path, 1)}, bound=draw(st.integers(0, 1)))
            case _:
                free.append(host)
    for number in range(draw(st.integers(0, 4))):
        asks = {"require": draw(st.sampled_from(("block", "rack", "host")))}
        found.append(waits(f"w{number}", draw(st.integers(1, 4)), asks, minute=number))
    if free and draw(st.booleans()):
        found += [waits("kept", 12, {"require": "rack"}, minute=9), waiting_placement("kept", kept=free[:1])]
    return [*nodes, *found]


def parts(gpus: GpuCounts) -> list[int]:
    found = [gpus.total, gpus.used, gpus.reserved, gpus.kept, gpus.out, gpus.free]
    assert None not in found
    return [one or 0 for one in found]


@settings(max_examples=60, deadline=None)
@given(clusters(), st.integers(1, 8))
def test_gpus_add_up_on_every_level(cluster: list[Json], gpus: int) -> None:
    """Each GPU has one state; a domain has those of its hosts, and the largest gang the slots of its hosts."""
    (one,) = topologies(snapshot(cluster), level="host", gpus=gpus).topologies
    for level in ("block", "rack"):
        for domain in (domain for domain in one.domains if domain.level == level):
            inside = [host for host in one.nodes if host.domain[: len(domain.path)] == domain.path]
            assert domain.hosts == len(inside)
            assert parts(domain.gpus) == [
                sum(column) for column in zip(*(parts(host.gpus) for host in inside), strict=True)
            ]
            assert domain.largest_gang == sum(host.slots or 0 for host in inside)
    for host in (*one.nodes, one):
        total, *states = parts(host.gpus)
        assert total == sum(states)
        assert min(states) >= 0
    for host in one.nodes:
        assert (host.slots or 0) * gpus <= (host.gpus.free or 0)
        assert host.out is None or not host.gpus.free


@settings(max_examples=40, deadline=None)
@given(clusters(), st.sampled_from(("rack", "block")), st.sampled_from((1, 4, 8)))
def test_the_largest_gang_is_the_planners(cluster: list[Json], level: str, gpus: int) -> None:
    """As many pods as a table tells fit in one domain, and not one more."""
    cluster = [one for one in cluster if "keptHosts" not in one.get("status", {}) and not one["spec"].get("suspend")]
    found = snapshot(cluster)
    (one,) = topologies(found, gpus=gpus).topologies
    largest = next(item.largest_gang for item in one.levels if item.level == level) or 0
    if largest:
        assert fits(found, pods=largest, gpus=gpus, require=level).fits
    assert not fits(found, pods=largest + 1, gpus=gpus, require=level).fits


@settings(max_examples=40, deadline=None)
@given(clusters())
def test_asking_twice_gives_the_same_answer(cluster: list[Json]) -> None:
    """Planning forward in time is taken back wholly; what fits now is placed, what cannot be known is not claimed."""
    found = snapshot(cluster)
    before = topologies(found, level="host")
    first = gangs(found)
    assert topologies(found, level="host") == before
    assert gangs(found) == first
    for one in first.gangs:
        if one.start is not None and one.start.by is not None:
            assert one.start.by >= first.taken_at
            assert one.fits_now is (one.start.by == first.taken_at and not one.start.after)
    assert [one.position for one in first.gangs if one.position] == list(
        range(1, 1 + sum(1 for one in first.gangs if one.position))
    )
