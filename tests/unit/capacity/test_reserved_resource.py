"""Which pods would take capacity that is reserved for gangs."""

from __future__ import annotations

from dataclasses import replace

from engine.api.pod import Pod
from engine.capacity.capacity import Capacity
from tests.support.cluster_records import job, node, pod, shape

GPU = "nvidia.com/gpu"


def ledger(reserved: int, *, gpus: int = 1) -> Capacity:
    """One host of 8 GPUs; a gang is about to start so many pods there."""
    found = Capacity()
    found.set_node("h0", node("h0"))
    found.reserve("gang", {"h0": reserved} if reserved else {}, shape(gpu=gpus).requests)
    return found


def wants(gpus: int) -> Pod:
    one = pod(job(count=1), None)
    return replace(one, spec=replace(one.spec, shape=shape(gpu=gpus)))


def test_what_is_left_beside_the_reserved_is_free_for_all() -> None:
    assert ledger(6).reserved_resource(wants(2), "h0") is None


def test_what_is_reserved_is_named() -> None:
    assert ledger(6).reserved_resource(wants(3), "h0") == GPU


def test_a_host_that_is_full_without_reservations_is_the_schedulers_business() -> None:
    """Also when the reservation is of something else."""
    assert ledger(0).reserved_resource(wants(9), "h0") is None
    assert ledger(1, gpus=0).reserved_resource(wants(9), "h0") is None


def test_a_nominated_pod_counts_once() -> None:
    """It is counted on its host before it is bound."""
    found, one = ledger(6), replace(wants(2), nominated_node="h0")
    found.set_pod(one.key, one)
    assert found.reserved_resource(one, "h0") is None
    found.reserve("gang", {"h0": 7}, shape(gpu=1).requests)
    assert found.reserved_resource(one, "h0") == GPU


def test_a_host_that_nobody_knows_reserves_nothing() -> None:
    assert ledger(8).reserved_resource(wants(1), "h9") is None
