"""The JSON output of `topogate simulate -o json`: a stable contract with its schema in schemas/simulate.schema.json.

Every key is always present. `webhook.simulate.run` fills the models; `docs/reference/cli.md` explains their meaning.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Verdict = Literal["placed", "waits", "never", "rejected", "ignored"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class FieldFault(_Part):
    """One thing that is wrong with a rejected workload."""

    field: str = Field(description="JSON path, as in status.details.causes of the denial.")
    reason: str = Field(description="Reason code (docs/reference/messages.md).")
    message: str = Field(description="What is wrong, as kubectl prints it.")


class Devices(_Part):
    """The devices of one pod."""

    type: str
    minor: int
    core: int | None
    memory_ratio: int | None
    memory: str | None


class HostSlots(_Part):
    """The pods of a pod set on one host."""

    domain: tuple[str, ...] = Field(description="Label values of the levels coarse to fine, the node's name last.")
    node: str
    count: int = Field(ge=1)
    ranks: str | None = Field(description='Inclusive ranges such as "0-3,8"; null when the pods have no ranks.')
    devices: tuple[tuple[Devices, ...], ...] | None = Field(description="Per pod; null when they are not known.")


class PodSet(_Part):
    """The pods of one template."""

    name: str
    count: int = Field(ge=0)
    require: str | None = Field(description="Alias of the required level.")
    prefer: str | None = Field(description="Alias of the preferred level.")
    assignment: tuple[HostSlots, ...] = Field(description="In order of rank; empty unless placed.")
    domains_used: dict[str, int] = Field(description="Number of domains by level alias; empty unless placed.")
    proven: bool | None = Field(description="True when no plan uses fewer domains; null unless placed.")


class Gang(_Part):
    """One gang: a workload, or one replica group of it."""

    kind: str
    namespace: str
    name: str
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    topology: str | None = Field(description="The topology that it was planned on.")
    verdict: Verdict
    reason: str | None = Field(description="Reason code; null when placed.")
    message: str
    require: str | None = Field(description="The gang's own required level; null with one pod set.")
    prefer: str | None = Field(description="The gang's own preferred level; null with one pod set.")
    errors: tuple[FieldFault, ...]
    warnings: tuple[str, ...]
    pod_sets: tuple[PodSet, ...] = Field(description="Empty when rejected.")
    plan_microseconds: int = Field(ge=0, description="Time of planning; 0 when nothing was planned.")


class ClusterFacts(_Part):
    """The cluster that was simulated."""

    nodes: int = Field(ge=0)
    nodes_in_topology: int = Field(ge=0)
    levels: tuple[str, ...] = Field(description="Level aliases of the first topology, coarse to fine.")


class Simulation(_Part):
    """The whole answer."""

    workloads: tuple[Gang, ...]
    cluster: ClusterFacts

    @property
    def good(self) -> bool:
        """Return True if every gang is placed or not managed."""
        return all(gang.verdict in ("placed", "ignored") for gang in self.workloads)
