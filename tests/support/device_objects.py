"""Device objects beside the running service: what hosts report of their devices, and that every replica has seen it."""

from __future__ import annotations

from collections.abc import Sequence

from local.client import Client
from local.service import Service
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.gangs import Json

# As Koordinator has it: cluster-scoped, without a status subresource.
KOORDINATOR = Definition("scheduling.koordinator.sh", "Device", "devices", ("v1alpha1",), scope="Cluster")
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
UNREADABLE: Json = {"type": "gpu"}
FAULTS = "topogate_hosts_with_device_faults"


class DeviceObjects:
    """The Device objects of one test. The metric counts those of the whole cluster, so it begins and ends without any.

    A replica has seen an object when it counts its fault: every object has a device that nobody can read.
    """

    def __init__(self, client: Client, service: Service) -> None:
        self._client, self._service = client, service
        KOORDINATOR.install(client)
        self.clear()

    def report(self, host: str, devices: Sequence[Json]) -> None:
        """Let a host report devices; `known` waits for the replicas."""
        body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": {"name": host}}
        self._client.create(DEVICES, {**body, "spec": {"devices": [*devices, UNREADABLE]}})

    def change(self, host: str, devices: Sequence[Json]) -> None:
        """Replace what a host reports; returns when every replica has seen it, as it counts an object made after it."""
        self._client.patch(f"{DEVICES}/{host}", {"spec": {"devices": [*devices, UNREADABLE]}})
        reported, probe = len(self._client.items(DEVICES)), f"{host}-seen"
        self.report(probe, [])
        self.known(reported + 1)
        self._client.delete(f"{DEVICES}/{probe}")
        self.known(reported)

    def known(self, hosts: int) -> None:
        """Wait until every replica finds faults in the devices of so many hosts."""

        def counted() -> bool:
            pages = [replica.page("/metrics")[1] for replica in self._service.running()]
            return all(f"\n{FAULTS} {hosts}.0\n" in page for page in pages)

        eventually(counted, message=f"every replica finds faults in the devices of {hosts} hosts")

    def clear(self) -> None:
        """Delete all objects, and wait until every replica has forgotten them."""
        self._client.delete(DEVICES)
        self.known(0)
