"""Gangs of several priorities on a simulated leader, with what their controllers, the scheduler and the kubelets do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from engine.api import names
from engine.api.placement import PreemptionIntent, preemption_intent
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Workload
from engine.gang.gang import pinned_host
from tests.support.cluster_records import gpu_nodes, job, pod, shape, spec
from tests.support.leader import POLICY, Leader

MOVES = "defragment: {mode: act, after: 10s}\n"
PREEMPTS = "preemption: {mode: lower-priority, after: 10s}\n"
GPU = "nvidia.com/gpu"
EPOCH = 1_800_000_000.0


class PreemptingCluster:
    """A leader over racks of two hosts with 8 GPUs, and gangs of whole hosts; everything is imitated step by step."""

    def __init__(self, *, policy: str = PREEMPTS, racks: int = 2) -> None:
        self.leader = Leader(nodes=gpu_nodes(1, racks, 2), policy=POLICY + policy)
        self.names: list[str] = []
        self.serial = 0
        self.lingering = False  # pods that are to end do not
        self.refuses: dict[str, str] = {}  # gangs whose pods the scheduler refuses -> its words

    # -- users -------------------------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        count: int,
        *,
        priority: int = 0,
        require: str | None = "rack",
        suspendable: bool = True,
        gpus: int = 8,
        namespace: str = "default",
        priority_class: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """A gang of pods with 8 GPUs each; without a level it is packed anywhere."""
        of_class = {"priority_class": priority_class} if priority_class else {"priority": priority}
        template = spec(shape=shape(gpu=gpus), gates=(names.GATE,), labels={names.MANAGED: "true"}, **of_class)
        gang = job(
            name, count=count, require=require, held=suspendable, template=template, suspendable=suspendable,
            namespace=namespace, created=EPOCH + self.leader.now,
        )  # fmt: skip
        own = {} if require else {names.UNCONSTRAINED: "true"}
        self.leader.has(replace(gang, annotations={**gang.annotations, **own, **(annotations or {})}))
        self.names.append(name)
        self.leader.settle(30)

    def delete(self, name: str) -> None:
        """The user deletes a gang: its pods terminate."""
        self.leader.stores.workloads.apply("DELETED", self.workload(name))
        self.names.remove(name)
        self._terminate(name)

    def finish(self, name: str) -> None:
        """All pods of a gang have succeeded."""
        for one in self.pods(name):
            self.leader.stores.pods.apply("DELETED", one)
        gang = self.workload(name)
        self.leader.has(replace(gang, finished=True, resource_version=self.leader.hands.version()))

    def outsider(self, name: str, host: str, *, priority: int = 0) -> Pod:
        """A running pod that Topogate does not manage."""
        owner = OwnerRef("apps/v1", "ReplicaSet", f"{name}-rs", f"uid-{name}-rs", True)
        fields = spec(shape=shape(gpu=8), node_name=host, priority=priority)
        one = replace(pod(job(name), 0, name=name), spec=fields, owner=owner, phase="Running")
        self.leader.has(one)
        return one

    # -- everybody else ----------------------------------------------------------------------------------------------

    def go_on(self, seconds: float = 0.0, *, steps: int = 4) -> None:
        """Let time pass, then leader, controllers, scheduler and kubelets act until little is left to do."""
        self.leader.now += seconds
        for _ in range(steps):
            self.leader.settle(30)
            self.controllers()
            self.leader.settle(30)
            self.scheduler()
            self.kubelets()
        self.leader.settle(30)

    def wait(self, seconds: float, *, every: float = 5.0) -> None:
        """Let a longer time pass, in which everybody acts from time to time."""
        while seconds > 0:
            self.go_on(min(every, seconds), steps=2)
            seconds -= every

    def controllers(self) -> None:
        """Create the missing pods of what runs, gated as by the webhook, and end those of what is suspended."""
        for name in self.names:
            gang = self.workload(name)
            if gang.suspended or gang.finished:
                self._terminate(name)
                continue
            there = {int(one.spec.labels[names.COMPLETION_INDEX]) for one in self.pods(name) if not one.deleting}
            for rank in sorted(set(range(gang.slots)) - there):
                self.serial += 1
                fresh = pod(gang, rank, gated=True, name=f"{name}-{rank}-{self.serial}")
                own = replace(fresh.spec, priority=gang.template.priority)
                self.leader.has(replace(fresh, spec=own, created=EPOCH + self.leader.now))

    def scheduler(self) -> None:
        """Bind what is released, where there is room; refuse what it is to refuse."""
        for one in list(self.leader.stores.pods.values()):
            host = pinned_host(one.spec.shape)
            if one.spec.gates or one.spec.node_name or one.deleting or host is None:
                continue
            if one.owner is not None and (words := self.refuses.get(one.owner.name)) is not None:
                if not one.unschedulable:
                    self._change(one, unschedulable=words)
                continue
            used = sum(dict(other.spec.shape.requests).get(GPU, 0) for other in self.on(host))
            if used + dict(one.spec.shape.requests).get(GPU, 0) <= 8:
                bound = replace(one.spec, node_name=host)
                self._change(one, spec=bound, phase="Running", bound=EPOCH + self.leader.now)

    def kubelets(self) -> None:
        """End the pods that are to end."""
        for one in list(self.leader.stores.pods.values()):
            if one.deleting and not (self.lingering and one.spec.node_name):
                self.leader.stores.pods.apply("DELETED", one)

    def another_leader(self) -> None:
        """The leader ends: what it has not written is lost, and the next one knows the objects alone."""
        self.leader.pool.waiting.clear()
        self.leader.leading = False
        self.leader.controller._reset()  # another process
        self.leader.turn()
        self.leader.leading = True

    def _terminate(self, name: str) -> None:
        for one in self.pods(name):
            if not one.deleting:
                self._change(one, deleting=True)

    def _change(self, one: Pod, **fields: object) -> None:
        self.leader.has(replace(one, resource_version=self.leader.hands.version(), **fields))  # type: ignore[arg-type]

    # -- what is seen ------------------------------------------------------------------------------------------------

    def workload(self, name: str) -> Workload:
        found = next((one for one in self.leader.stores.workloads.values() if one.name == name), None)
        assert found is not None, name
        return found

    def pods(self, name: str) -> list[Pod]:
        """The pods of a gang that exist, also those that terminate."""
        pods = self.leader.stores.pods.values()
        return [one for one in pods if one.owner is not None and one.owner.name == name and not one.finished]

    def on(self, host: str) -> list[Pod]:
        """The pods on a host."""
        return [one for one in self.leader.stores.pods.values() if one.spec.node_name == host and not one.finished]

    def hosts(self, name: str) -> list[str]:
        """Where the pods of a gang run that are not to end."""
        return sorted(one.spec.node_name for one in self.pods(name) if one.spec.node_name and not one.deleting)

    def runs(self, *gangs: str) -> bool:
        """Whether all pods of these gangs run."""
        return all(len(self.hosts(name)) == self.workload(name).slots for name in gangs)

    def reason(self, name: str) -> str:
        return self.leader.status(name)[1]

    def message(self, name: str) -> str:
        found = self.leader.placed(name)
        return str(found.status.get("message")) if found is not None else ""

    def intent(self, name: str) -> PreemptionIntent:
        found = self.leader.placed(name)
        return preemption_intent(found.status if found is not None else {})

    def called(self, *what: str) -> list[str]:
        """What the leader has asked for, of these sorts, in order."""
        return [f"{call} {name}" for call, name in self.leader.hands.calls if call in what]

    def ended(self) -> Collection[str]:
        """Whom the leader has ended: gangs that it suspended, and pods that it evicted."""
        return self.called("suspend", "evict")
