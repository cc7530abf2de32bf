"""What is wrong with devices is counted, and said once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from engine import metrics
from engine.cache.reports import MAX_NAMED, DeviceFaults
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from tests.support.gpu_hosts import gpu_node, gpus
from tests.support.simulation import objects
from webhook.snapshot.cluster import offline_cluster


def counted() -> float:
    return metrics.device_faults._value.get()


def test_a_fault_is_said_once_and_counted_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """However often the object is told again; a new fault of the same host is said by itself."""
    stores = Stores()
    view = ClusterState(stores, device_faults=DeviceFaults().found)
    stores.nodes.replace([gpu_node("h")])
    for _ in range(3):
        stores.devices.apply("MODIFIED", gpus("h", faults=('devices[4]: type "tpu" is none of gpu, rdma, fpga',)))
        view.refresh()
    assert counted() == 1
    assert [one.getMessage() for one in caplog.records] == [
        'devices of h: devices[4]: type "tpu" is none of gpu, rdma, fpga'
    ]
    stores.devices.apply("MODIFIED", gpus("h", 3))
    view.refresh()
    assert counted() == 1
    assert "its Device object 3" in caplog.records[-1].getMessage() and len(caplog.records) == 2
    stores.devices.apply("MODIFIED", gpus("h"))
    view.refresh()
    assert (counted(), len(caplog.records)) == (0, 2)


def test_a_host_that_is_gone_has_no_faults() -> None:
    """Nor one whose Device object is gone."""
    stores = Stores()
    view = ClusterState(stores, device_faults=DeviceFaults().found)
    node, devices = gpu_node("h"), gpus("h", 3)
    stores.nodes.replace([node])
    stores.devices.replace([devices])
    view.refresh()
    assert counted() == 1
    stores.nodes.apply("DELETED", node)
    view.refresh()
    assert counted() == 0


def test_trouble_everywhere_is_not_said_of_every_host(caplog: pytest.LogCaptureFixture) -> None:
    """A log line for each of thousands of hosts says no more than the metric."""
    caplog.set_level(logging.WARNING)
    faults = DeviceFaults()
    for number in range(10 * MAX_NAMED):
        faults.found(f"h{number}", ("GPUs disagree",))
    assert counted() == 10 * MAX_NAMED
    assert len(caplog.records) == MAX_NAMED
    faults.found("h0", ())


def test_hostile_text_stays_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    """What an object says is quoted, cut and escaped."""
    DeviceFaults().found("h", ("x\ny" + "z" * 10_000,))
    (said,) = [one.getMessage() for one in caplog.records]
    assert "\n" not in said and len(said) < 300


def test_simulate_tells_where_nodes_and_devices_disagree() -> None:
    """One line a host, beside the answer."""
    gpu: dict[str, Any] = {"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": 100}}
    device = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "spec": {"devices": [gpu]}}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "h"},
        "status": {"allocatable": {"nvidia.com/gpu": 4}},
    }
    listed = [node, device | {"metadata": {"name": "h"}}, device | {"metadata": {"name": "elsewhere"}}]
    notes = offline_cluster(objects(listed, name="cluster.json")).notes
    assert notes == (
        "Device h: GPUs disagree (its Device object 1, nvidia.com/gpu 4): 1 counted",
        "Device elsewhere: node not found",
    )
