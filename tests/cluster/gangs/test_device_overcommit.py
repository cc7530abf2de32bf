"""Overcommitted GPUs on a real control plane: the real scheduler binds what the policy allows and the node reports."""

from __future__ import annotations

import json
from collections import Counter

from engine.api import names
from engine.resources.names import CORE, MEMORY, RATIO
from local.client import Client
from local.nodes import NODES, HostShape
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.cluster.gangs.test_devices import gpu, share
from tests.support.device_objects import DeviceObjects
from tests.support.gangs import Namespace, require

POLICY = TEST_POLICY + "gpu: {overcommit: {core: 2, memory: 2}}\n"


def used(gangs: Namespace, job: str) -> Counter[int]:
    """Pods by the minor of their GPU."""
    texts = [pod["metadata"]["annotations"][names.DEVICE_ALLOCATED] for pod in gangs.pods(job)]
    return Counter(device["minor"] for text in texts for device in json.loads(text)["gpu"])


def test_parts_are_bound_up_to_the_multiple_that_the_node_reports(
    gangs: Namespace, client: Client, policy: PolicyInForce, service: Service
) -> None:
    """First only as many as the node reports; its amounts are raised, and the waiting ones are bound too."""
    objects = DeviceObjects(client, service)
    policy.set(POLICY)
    shape = HostShape(gpus=0, extended={CORE: "200", RATIO: "200", MEMORY: "160Gi"})
    (host,) = gangs.fleet.grid("1x1x1", shape=shape)
    objects.report(host, [gpu(0), gpu(1)])
    try:
        objects.known(1)
        gangs.submit("first", pods=4, annotations=require("host"), pod_spec=share(50))
        gangs.all_bound("first", 4)
        gangs.submit("second", pods=4, annotations=require("host"), pod_spec=share(50))
        gangs.waits("second")
        raised = {CORE: "400", RATIO: "400"}
        client.patch(f"{NODES}/{host}/status", {"status": {"capacity": raised, "allocatable": raised}})
        gangs.all_bound("second", 4)
        assert used(gangs, "first") + used(gangs, "second") == {0: 4, 1: 4}
        gangs.submit("third", pods=1, annotations=require("host"), pod_spec=share(10))
        gangs.waits("third")
    finally:
        objects.clear()
