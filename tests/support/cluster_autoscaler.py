"""The real cluster autoscaler with its provider of simulated nodes ("kwok"), if the person who runs the tests has one.

    pytest --cluster-autoscaler PATH tests/cluster/controllers/test_node_autoscaler.py

It runs beside the API server under the supervisor of the control plane, as the admin, with its settings in the test's
namespace, and it sees the whole cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from local import additions
from local.additions import Addition
from local.client import Client
from local.controlplane import OWN_KUBECONFIG, ControlPlane
from local.nodes import HOSTNAME, NODES
from local.ports import free_ports
from local.processes import tail
from tests.support.eventually import eventually
from tests.support.imitations.controller import AGAIN
from tests.support.node_pools import POOL, NodePool
from tests.support.turns import Turns

Json = dict[str, Any]
NAME = "cluster-autoscaler"
COUNTS = "cluster-autoscaler.kwok.nodegroup"


class HostLabels(Turns):
    """What the kubelets of real nodes do: the label with the host's name, which this provider leaves out."""

    pause: ClassVar = 0.1
    passing: ClassVar = AGAIN

    def __init__(self, client: Client) -> None:
        self.client = client
        self.faults: list[str] = []

    def failed(self, fault: str) -> None:
        self.faults.append(fault)

    def turn(self) -> None:
        for node in self.client.items(NODES, selector=f"{POOL},!{HOSTNAME}"):
            name = node["metadata"]["name"]
            self.client.patch(f"{NODES}/{name}", {"metadata": {"labels": {HOSTNAME: name}}})


class RealClusterAutoscaler:
    """The program at `path` on one control plane, with these pools; a context manager that runs it."""

    def __init__(
        self, control_plane: ControlPlane, path: Path, namespace: str, pools: Sequence[NodePool], *, retry: float = 3.0
    ) -> None:
        self.control_plane = control_plane
        self.path = path
        self.namespace = namespace
        self.pools = pools
        self.retry = retry
        self._labels = HostLabels(control_plane.client)

    def __enter__(self) -> Self:
        settings = {
            "apiVersion": "v1alpha1",
            "readNodesFrom": "configmap",
            "nodegroups": {"fromNodeLabelKey": POOL},
            "nodes": {"skipTaint": True},
            "configmap": {"name": "kwok-provider-templates"},
            "kwok": {},
        }
        nodes = {"apiVersion": "v1", "kind": "List", "items": [_template(pool) for pool in self.pools]}
        self._config_map("kwok-provider-config", {"config": json.dumps(settings)})
        self._config_map("kwok-provider-templates", {"templates": json.dumps(nodes)})
        directory = self.control_plane.directory
        kubeconfig = str(directory / OWN_KUBECONFIG)
        port = free_ports(1)[0]
        command = [
            str(self.path),
            "--cloud-provider=kwok",
            f"--kubeconfig={kubeconfig}",
            f"--namespace={self.namespace}",
            f"--address=127.0.0.1:{port}",
            "--leader-elect=false",
            "--enable-provisioning-requests",
            "--scan-interval=1s",
            f"--provisioning-request-initial-backoff-time={self.retry}s",
            f"--provisioning-request-max-backoff-time={self.retry}s",
            "--v=4",
        ]
        environment = {"KUBECONFIG": kubeconfig, "POD_NAMESPACE": self.namespace, "KWOK_PROVIDER_MODE": "local"}
        additions.add(directory, NAME, Addition(command, environment))
        self._labels.__enter__()
        eventually(self._runs, message=self._describe)
        return self

    def __exit__(self, *error: object) -> None:
        self._labels.__exit__(*error)
        additions.remove(self.control_plane.directory, NAME)
        assert not self._labels.faults, self._labels.faults

    def _runs(self) -> bool:
        why = additions.ended(self.control_plane.directory, NAME)
        if why is not None:
            raise RuntimeError(why)
        log = self.control_plane.log(NAME)
        return log.exists() and "Starting main loop" in log.read_text(errors="replace")

    def _describe(self) -> str:
        return f"the cluster autoscaler looks for requests; its log ends:\n{tail(self.control_plane.log(NAME))}"

    def _config_map(self, name: str, data: Mapping[str, str]) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        self.control_plane.client.create(path, {"metadata": {"name": name}, "data": dict(data)})


def _template(pool: NodePool) -> Json:
    """Return a node of a pool, as this provider reads it."""
    body = pool.node(pool.name)
    del body["metadata"]["labels"][HOSTNAME]
    counts = {"min-count": 0, "max-count": pool.maximum, "desired-count": 0}
    body["metadata"]["annotations"] = {f"{COUNTS}/{key}": str(value) for key, value in counts.items()}
    return body
