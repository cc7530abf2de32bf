"""What becomes of hosts, and of the pods on them."""

from __future__ import annotations

from typing import Final

from engine.api import names
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import NODES, PODS
from tests.support.lagging_cluster.objects import bound, maker_of, ready, runs
from tests.support.lagging_cluster.workloads import kind_of, kind_of_pod, path_of, place_of, suspended
from tests.support.lagging_cluster.world import World
from tests.support.raw_pods import ended

BLOCK: Final = "cloud.provider.com/topology-block"
RACK: Final = "cloud.provider.com/topology-rack"
RACKS, HOSTS = 2, 3  # at most, of a rack
_READY_SINCE: Final = "2020-01-01T00:00:00Z"


class Hosts:
    """The hosts of one cluster: one or two racks of two or three."""

    def __init__(self, world: World) -> None:
        self._world = world
        for rack in range(world.rng.randint(1, RACKS)):
            for number in range(world.rng.randint(2, HOSTS)):
                self._put(rack, number)

    def add(self) -> None:
        rack, number = self._world.rng.randrange(RACKS), self._world.rng.randrange(HOSTS)
        if self._world.api.get(f"{NODES}/r{rack}-h{number}") is None:
            self._put(rack, number)

    def remove(self) -> None:
        if len(self._world.api.objects(NODES)) > 1:
            name = self._some()["metadata"]["name"]
            self._world.note("remove host", name)
            self._world.api.remove(f"{NODES}/{name}")

    def cordon(self) -> None:
        """Cordon or uncordon a host."""
        node = self._some()
        cordoned = not node["spec"].get("unschedulable", False)
        self._world.note("cordon" if cordoned else "uncordon", node["metadata"]["name"])
        self._world.api.put(f"{NODES}/{node['metadata']['name']}", spec={"unschedulable": cordoned})

    def die(self) -> None:
        """A host is no more Ready, or Ready again."""
        node = self._some()
        well = not ready(node)
        self._world.note("ready" if well else "not ready", node["metadata"]["name"])
        taints = [] if well else [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        condition = {"type": "Ready", "status": str(well), "lastTransitionTime": self._world.stamp()}
        path = f"{NODES}/{node['metadata']['name']}"
        self._world.api.put(path, spec={"taints": taints}, status={"conditions": [condition]})

    def fail_pod(self) -> None:
        """A pod fails; a completed one of a Job may, too, which changes nothing: its index counts as completed."""
        pods = [one for one in self._world.api.objects(PODS) if bound(one) and not (ended(one) and _is_read(one))]
        if pods:
            self._end(self._world.rng.choice(pods), "Failed")

    def complete_pod(self) -> None:
        """A pod ends well, and the status of its Job counts it; that of a PyTorchJob does so later."""
        workloads = {one["metadata"]["uid"]: one for one in self._world.makers()}
        pods = [one for one in self._world.api.objects(PODS) if runs(one) and maker_of(one) in workloads]
        if not pods:
            return
        pod = self._world.rng.choice(pods)
        workload = workloads[maker_of(pod)]
        kind = kind_of(workload)
        if suspended(workload) or not kind.ends:
            return
        self._end(pod, "Succeeded")
        if kind.counts_at_once:
            self._world.api.put(path_of(workload), status=kind.with_completed(workload, place_of(pod)))

    def _end(self, pod: Json, phase: str) -> None:
        self._world.note(phase, pod["metadata"]["name"])
        self._world.api.put(f"{PODS}/{pod['metadata']['name']}", status={"phase": phase})

    def _put(self, rack: int, number: int) -> None:
        name = f"r{rack}-h{number}"
        self._world.note("host", name)
        self._world.api.put(
            f"{NODES}/{name}",
            spec={},
            metadata={"labels": {names.HOSTNAME: name, BLOCK: "b0", RACK: f"r{rack}"}},
            status={
                "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _READY_SINCE}],
            },
        )

    def _some(self) -> Json:
        return self._world.rng.choice(self._world.api.objects(NODES))


def _is_read(pod: Json) -> bool:
    """True for a pod by which its controller tells later whether it has completed."""
    kind = kind_of_pod(pod)
    return kind.ends and not kind.counts_at_once
