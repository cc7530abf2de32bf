"""The JSON output of `topogate simulate -o json`: a stable contract with its schema in schemas/simulate.schema.json.

Every key is always present. `webhook.simulate.run` fills the models; `docs/reference/cli.md` explains their meaning.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.api.schema import AnswerPart

Verdict = Literal["placed", "waits", "never", "rejected", "ignored"]


class FieldFault(AnswerPart):
    """One error of a rejected workload."""

    field: str = Field(description="JSON path of the field, as in status.details.causes of the denial.")
    reason: str = Field(description="Reason code (docs/reference/messages.md).")
    message: str = Field(description="What is wrong, as kubectl prints it.")


class DeviceFunction(AnswerPart):
    """A virtual function of an RDMA device."""

    minor: int = Field(description="Its number on the device.")
    bus_id: str = Field(alias="busID", description="Its PCI address.")


class Devices(AnswerPart):
    """The devices of one pod."""

    type: str = Field(description="Device type, such as `gpu` or `rdma`.")
    minor: int = Field(description="Minor number of the device on its host.")
    core: int | None = Field(description="Allocated compute in percent; null if none or unknown.")
    memory_ratio: int | None = Field(description="Allocated memory in percent; null if none or unknown.")
    memory: str | None = Field(description="Allocated memory as a quantity; null if none or unknown.")
    share: int | None = Field(description="Allocated part of an RDMA device or FPGA in percent; null for a GPU.")
    id: str | None = Field(description="UUID or PCI address of the device; null if its Device object has none.")
    bus_id: str | None = Field(alias="busID", description="PCI address of the device; null if unknown.")
    module_id: int | None = Field(alias="moduleID", description="Physical number of the device; null if unknown.")
    socket_id: int | None = Field(alias="socketID", description="CPU socket of the device; null if unknown.")
    vfs: tuple[DeviceFunction, ...] = Field(description="The pod's virtual functions of the device.")


class HostSlots(AnswerPart):
    """The pods of a pod set on one host."""

    domain: tuple[str, ...] = Field(description="Label values of the levels coarse to fine, the node's name last.")
    node: str = Field(description="Name of the node.")
    count: int = Field(ge=1, description="Number of pods on it.")
    ranks: str | None = Field(description='Inclusive ranges such as "0-3,8"; null when the pods have no ranks.')
    slices: tuple[str, ...] | None = Field(
        description="The slice of each pod, as its annotation `topogate.dev/slice-index`; null without slices or ranks."
    )
    devices: tuple[tuple[Devices, ...], ...] | None = Field(description="The devices of each pod; null if unknown.")


class Slice(AnswerPart):
    """The pods of one slice."""

    level: str = Field(description="Alias of the level of which the slice is in one domain.")
    index: int = Field(ge=0, description="Number of the slice among those of this level.")
    domain: tuple[str, ...] = Field(description="Label values of its domain, coarse to fine.")
    ranks: str = Field(description="Its ranks, as inclusive ranges.")


class PodSet(AnswerPart):
    """The pods of one template."""

    name: str = Field(description="Name of the pod set; `main` if the kind has one.")
    count: int = Field(ge=0, description="Number of pods.")
    require: str | None = Field(description="Alias of the required level.")
    prefer: str | None = Field(description="Alias of the preferred level.")
    assignment: tuple[HostSlots, ...] = Field(description="In order of rank; empty unless placed.")
    slices: tuple[Slice, ...] = Field(
        description="Layer by layer, coarse to fine, in order of rank; empty unless placed in slices, with ranks."
    )
    domains_used: dict[str, int] = Field(description="Number of domains by level alias; empty unless placed.")
    proven: bool | None = Field(
        description="True when no plan uses fewer domains (balanced: or has more even shares); null unless placed."
    )


class Preempted(AnswerPart):
    """A running gang, or the pods of one owner, that ends so that a gang of a higher priority starts."""

    kind: str = Field(description="Kind of the workload, or of the pods' owner.")
    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    priority: int = Field(description="Its priority.")
    pods: int = Field(ge=0, description="Number of its pods with a host, those to come included.")


class Gang(AnswerPart):
    """One gang: a workload, or one replica group of it."""

    kind: str = Field(description="Kind of the workload.")
    namespace: str = Field(description="Namespace of the workload.")
    name: str = Field(description="Name of the workload.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    topology: str | None = Field(description="The topology used for planning; null if none.")
    verdict: Verdict = Field(description="The result; see below.")
    reason: str | None = Field(description="Reason code; null when placed.")
    message: str = Field(description="The result as a sentence.")
    require: str | None = Field(description="The gang's own required level; null with one pod set.")
    prefer: str | None = Field(description="The gang's own preferred level; null with one pod set.")
    errors: tuple[FieldFault, ...]
    warnings: tuple[str, ...] = Field(description="Warnings, as kubectl prints them.")
    pod_sets: tuple[PodSet, ...] = Field(description="Empty when rejected.")
    preempts: tuple[Preempted, ...] = Field(
        description="The running gangs that end so that it is placed, where the policy preempts or with `--preempt`; "
        "empty otherwise."
    )
    plan_microseconds: int = Field(ge=0, description="Planning time; 0 when nothing was planned.")


class ClusterFacts(AnswerPart):
    """The cluster that was simulated."""

    nodes: int = Field(ge=0, description="Number of nodes.")
    nodes_in_topology: int = Field(ge=0, description="Number of nodes in a topology.")
    levels: tuple[str, ...] = Field(description="Level aliases of the first topology, coarse to fine.")


class Simulation(AnswerPart):
    """The whole answer."""

    workloads: tuple[Gang, ...]
    cluster: ClusterFacts

    @property
    def good(self) -> bool:
        """Return True if every gang is placed or not managed."""
        return all(gang.verdict in ("placed", "ignored") for gang in self.workloads)
