"""How long gangs waited, as the metrics tell it: until their placement is written, or until they waited no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine import metrics
from engine.api import names
from engine.cluster.client import ApiUnavailable
from engine.lifecycle.gang_state import size_class
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.leader import POLICY, Leader


class Counted:
    """What the histogram has counted since the test began."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> dict[tuple[str, ...], float]:
        (family,) = metrics.wait_seconds.collect()
        return {
            (one.name.rpartition("_")[2], *(one.labels[key] for key in ("level", "size", "outcome"))): one.value
            for one in family.samples
            if one.name.endswith(("_sum", "_count"))
        }

    def new(self) -> dict[tuple[str, ...], tuple[float, float]]:
        """(level, size, outcome) -> how many, and their seconds together."""
        now = self._now()
        found = {key: value - self._before.get(key, 0.0) for key, value in now.items()}
        return {key[1:]: (value, found["sum", *key[1:]]) for key, value in found.items() if key[0] == "count" and value}


def leader_of_a_full_rack(policy: str = POLICY) -> Leader:
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=policy)
    leader.has(job("other", count=1, held=True))
    leader.settle()
    leader.has(pod(leader.workload("other"), 0, host="b0-r0-h0"))
    leader.settle()
    return leader


def test_a_gang_that_is_placed_counts_with_its_whole_wait() -> None:
    """Its size class and level are those of its request; one that fits at once counts with no wait."""
    counted = Counted()
    leader = leader_of_a_full_rack()
    leader.has(job("train", count=4, held=True))
    leader.settle()
    assert counted.new() == {("rack", "1", "placed"): (1, 0.0)}
    leader.later(90)
    leader.has(*gpu_nodes(1, 1, 8))
    leader.settle()
    assert leader.hands.of("place") == ["other", "train"]
    assert counted.new()["rack", "2-8", "placed"] == (1, 90.0)


def test_a_failed_write_counts_once_when_it_succeeds() -> None:
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    counted = Counted()

    def unavailable(_name: str) -> None:
        raise ApiUnavailable("POST", "/x", "no answer")

    leader.hands.broken["place"] = unavailable
    leader.has(job("train", count=4, held=True))
    leader.settle()
    assert counted.new() == {}
    del leader.hands.broken["place"]
    leader.later(60)
    assert leader.hands.of("place")[-1] == "train"
    assert [key for key, (times, _) in counted.new().items() if times == 1] == [("rack", "2-8", "placed")]


def test_a_gang_that_times_out_or_is_deleted_counts_as_such() -> None:
    counted = Counted()
    leader = leader_of_a_full_rack(POLICY + "queue: {onTimeout: giveUp}\n")
    gang = job("train", count=4, held=True)
    leader.has(replace(gang, annotations={**gang.annotations, names.SCHEDULE_TIMEOUT: "1m"}))
    leader.has(job("gone", count=4, held=True))
    leader.settle()
    leader.later(30)
    leader.stores.workloads.apply("DELETED", leader.workload("gone"))
    leader.settle()
    leader.later(30)
    leader.later(600)
    found = counted.new()
    assert found["rack", "2-8", "withdrawn"] == (1, 30.0)
    assert found["rack", "2-8", "timed_out"] == (1, 60.0)


def test_the_oldest_wait_by_reason() -> None:
    """It grows without any change of the cluster, and is 0 when nothing waits for that reason or another one leads."""
    leader = leader_of_a_full_rack()
    leader.has(job("train", count=4, held=True))
    leader.settle()
    leader.later(20)
    reason = leader.status()[1]
    leader.has(job("late", count=4, held=True))
    leader.later(100)

    def oldest() -> float | None:
        return metrics.registry.get_sample_value("topogate_gang_oldest_wait_seconds", {"reason": reason})

    assert oldest() == 120.0
    leader.leading = False
    leader.turn()
    assert oldest() == 0.0


def test_the_rooms_kept_are_those_of_the_leader() -> None:
    """A replica that led before keeps none: TopogateRoomKept looks at the largest number of all replicas."""
    leader = leader_of_a_full_rack(POLICY + "queue: {patience: 1m}\n")
    leader.has(job("train", count=4, held=True))
    leader.settle()
    leader.later(120)
    assert metrics.registry.get_sample_value("topogate_rooms_kept") == 1
    leader.leading = False
    leader.turn()
    assert metrics.registry.get_sample_value("topogate_rooms_kept") == 0


@pytest.mark.parametrize(
    ("pods", "named"), [(1, "1"), (2, "2-8"), (8, "2-8"), (9, "9-64"), (512, "65-512"), (513, ">512"), (10**6, ">512")]
)
def test_sizes_have_five_classes(pods: int, named: str) -> None:
    assert size_class(pods) == named
