"""The metrics of the cluster: the numbers of `topogate topology show`, on the leader alone, bounded in number."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.metrics import MetricWrapperBase

from engine import metrics
from tests.support.simulation import grid, node, pod
from tests.support.snapshots import TAKEN, busy_cluster, placed, snapshot, waiting_placement, waits
from webhook.queries.topologies import topologies
from webhook.service import capacity_report
from webhook.service.capacity_report import EVERY, CapacityReport
from webhook.snapshot.snapshot import Snapshot

OURS = {next(iter(gauge.describe())).name: gauge for gauge in capacity_report._GAUGES}


class Replica:
    """A report on a snapshot, at a time that the test sets."""

    def __init__(self, found: Snapshot, **options: Any) -> None:
        self.now, self.leading = 0.0, True
        self.report = CapacityReport(
            found.view, leads=lambda: self.leading, clock=lambda: self.now, wall=lambda: TAKEN, **options
        )
        self.report.refresh()


def value(name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"topogate_{name}", labels)


def series(name: str) -> int:
    gauge: MetricWrapperBase = OURS[f"topogate_{name}"]
    return sum(len(family.samples) for family in gauge.collect())


@pytest.mark.parametrize("objects", [busy_cluster(), grid(2, 2, 4), [node("a", {}, gpus=0)]])
def test_the_numbers_are_those_of_topology_show(objects: list[dict[str, Any]]) -> None:
    found = snapshot(objects)
    Replica(found)
    for answer in topologies(found).topologies:
        of = {"topology": answer.name}
        gpus = answer.gpus
        assert gpus.used is not None and gpus.reserved is not None
        states = {"used": gpus.used + gpus.reserved, "kept": gpus.kept, "out": gpus.out, "free": gpus.free}
        assert {state: value("topology_gpus", state=state, **of) for state in states} == states
        for level in answer.levels:
            assert value("domains", level=level.level, **of) == level.domains
            assert value("largest_gang_pods", level=level.level, **of) == level.largest_gang
            assert value("fragmentation_ratio", level=level.level, **of) == (level.fragmentation or 0.0)
        for domain in answer.domains:
            where = {"level": domain.level, "domain": "/".join(domain.path), **of}
            assert value("domain_gpus", state="free", **where) == domain.gpus.free
            assert value("domain_gpus", state="out", **where) == domain.gpus.out
        assert series("domain_gpus") == 4 * len(answer.domains)


def test_a_level_without_room_for_its_series_has_none_by_domain() -> None:
    """Two blocks with four racks: the blocks alone with a limit of five, and nothing with a limit of one."""
    found = snapshot(grid(2, 2, 4))
    for limit, domains in ((6, 6), (5, 2), (2, 2), (1, 0), (0, 0)):
        Replica(found, most_domains=limit)
        assert series("domain_gpus") == 4 * domains
        assert value("domains", topology="default", level="rack") == 4


def test_excess_domains_are_those_beyond_the_fewest_with_as_many_hosts() -> None:
    """Eight hosts in two of four-host racks are no excess; two hosts in two racks of two blocks are one of each."""
    apart = placed("apart", {"b0-r1-h0": ("b0/b0-r1", 1), "b1-r1-h0": ("b1/b1-r1", 1)}, bound=2)
    full = {f"b0-r{rack}-h{host}": (f"b0/b0-r{rack}", 1) for rack in (2, 3) for host in range(4)}
    ended = placed("old", {"b0-r0-h0": ("b0/b0-r0", 1), "b1-r0-h0": ("b1/b1-r0", 1)}, bound=0, phase="Finished")
    Replica(snapshot([*grid(2, 4, 4), *apart, *placed("full", full, bound=8), *ended]))
    assert value("excess_domains", topology="default", level="rack") == 1
    assert value("excess_domains", topology="default", level="block") == 1


def test_gangs_by_phase_and_the_longest_in_a_phase() -> None:
    def since(minute: int) -> dict[str, Any]:
        stamp = f"2026-01-01T00:{minute:02}:00Z"
        return {"conditions": [{"type": "Placed", "status": "True", "lastTransitionTime": stamp}]}

    def gang(name: str, host: int, **status: Any) -> list[dict[str, Any]]:
        return placed(name, {f"b0-r0-h{host}": ("b0/b0-r0", 1)}, bound=0, **status)

    objects = [
        *gang("a", 0, phase="Starting", **since(10)),
        *gang("b", 1, phase="Starting", **since(20)),
        *gang("c", 2, phase="Running", **since(1)),
        *gang("d", 3, phase="Nonsense"),
    ]
    Replica(snapshot([*grid(1, 1, 4), *objects]))
    assert value("gangs", phase="Starting") == 2
    assert value("gangs", phase="Running") == 1
    assert value("gangs", phase="Waiting") == 0
    assert value("gang_oldest_phase_seconds", phase="Starting") == 20 * 60
    assert value("gang_oldest_phase_seconds", phase="Incomplete") == 0
    assert value("gang_oldest_phase_seconds", phase="Running") is None  # for ever is fine


def test_gangs_without_pods_are_counted_by_their_placements() -> None:
    """Also one that cannot be suspended, and is in no queue; a replica that led before has none."""
    objects = [
        *grid(1, 1, 2),
        waiting_placement("job", reason="HoldExpired"),
        waiting_placement("set", reason="HoldExpired"),
        waiting_placement("late", reason="InsufficientFreeGPUs"),
    ]
    replica = Replica(snapshot(objects))
    assert value("gangs_without_pods") == 2
    replica.leading = False
    replica.report.refresh()
    assert value("gangs_without_pods") == 0


def test_only_the_leader_has_them_and_makes_them_at_most_every_ten_seconds() -> None:
    found = snapshot(grid(1, 1, 4))
    replica = Replica(found)
    assert value("largest_gang_pods", topology="default", level="rack") == 4
    metrics.largest_gang.labels("default", "rack").set(-1)
    replica.now = EVERY - 0.1
    replica.report.refresh()
    assert value("largest_gang_pods", topology="default", level="rack") == -1  # not made again
    replica.now = EVERY
    replica.report.refresh()
    assert value("largest_gang_pods", topology="default", level="rack") == 4
    replica.leading = False
    replica.report.refresh()
    assert {name: series(name.removeprefix("topogate_")) for name in OURS} == dict.fromkeys(OURS, 0)
    replica.leading = True
    replica.report.refresh()
    assert value("largest_gang_pods", topology="default", level="rack") == 4


def test_a_kept_host_is_not_free() -> None:
    objects = [*grid(1, 2, 2), pod("p", "b0-r0-h0"), waits("big", 3, {"require": "rack"})]
    objects.append(waiting_placement("big", kept=["b0-r1-h0"], reason="RoomKept"))
    Replica(snapshot(objects))
    assert value("domain_gpus", topology="default", level="rack", domain="b0/b0-r1", state="kept") == 8
    assert value("largest_gang_pods", topology="default", level="rack") == 1


def test_the_lock_is_held_for_milliseconds_at_ten_thousand_hosts() -> None:
    """The bound is far above the 4 ms of one core of 2025, and far below what one Python loop over hosts costs."""
    found = snapshot(grid(16, 16, 40))
    replica = Replica(found)
    lock = found.view.lock
    held: list[float] = []

    class Timed:
        def __enter__(self) -> None:
            lock.acquire()
            self.began = capacity_report.time.thread_time()

        def __exit__(self, *_: object) -> None:
            held.append(capacity_report.time.thread_time() - self.began)
            lock.release()

    found.view.lock = Timed()  # type: ignore[assignment]
    for _ in range(3):
        replica.now += EVERY
        replica.report.refresh()
    assert min(max(held[at : at + 2]) for at in range(0, len(held), 2)) < 0.1
