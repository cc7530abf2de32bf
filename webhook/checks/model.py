"""The JSON output of the commands that check a cluster: a stable contract with its schemas in schemas/.

Every key is always present; null stands for what is not known. `docs/reference/cli.md` explains the meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pydantic import Field

from engine.api.reasons import Why
from engine.api.schema import AnswerPart
from engine.policy.model import Mode

FindingResult = Literal["ok", "warn", "fail", "skip"]

# Not the files of the base: they would take back what values or an overlay change, such as image, replicas and rights.
REAPPLY: Final = "apply your overlay or file of this version again, or run helm upgrade with your values"


class Finding(AnswerPart):
    """The result of one check."""

    result: FindingResult = Field(description="`ok`, `warn`, `fail`, or `skip` for what was not looked at.")
    check: str = Field(description="What was checked.")
    found: str = Field(description="What was found.")
    remedy: str | None = Field(default=None, description="What to do about it; null where nothing is to be done.")


def ok(check: str, found: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(result="ok", check=check, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return a finding that something should be looked at."""
    return Finding(result="warn", check=check, found=found, remedy=remedy)


def failure(check: str, found: str, remedy: str) -> Finding:
    """Return a finding that something is wrong."""
    return Finding(result="fail", check=check, found=found, remedy=remedy)


def skipped(check: str, found: str) -> Finding:
    """Return a finding that something was not looked at; `found` says why."""
    return Finding(result="skip", check=check, found=found)


class LevelLabels(AnswerPart):
    """How far the nodes have the labels of a level."""

    level: str = Field(description="Alias of the level.")
    keys: tuple[str, ...] = Field(description="Its node label keys; the first that a node has is used.")
    nodes: int = Field(description="Number of nodes with one of them.")


class CheckedLevel(LevelLabels):
    """A level of a topology, and how far its nodes have the labels."""

    domains: int = Field(description="Number of its domains.")


class NodesLeftOut(AnswerPart):
    """Nodes that a topology leaves out for one reason."""

    reason: str = Field(description="Why they are left out.")
    count: int = Field(description="How many there are.")
    gpus: bool = Field(description="Whether one of them has GPUs.")
    nodes: tuple[str, ...] = Field(description="Their names, at most twelve.")


class CheckedTopology(AnswerPart):
    """A topology as the node labels give it."""

    name: str = Field(description="Name of the topology.")
    nodes: int = Field(description="Number of its nodes.")
    selected: int = Field(description="Number of nodes that its nodeSelector selects; without one all nodes.")
    levels: tuple[CheckedLevel, ...] = Field(description="Its levels above the host, coarse to fine.")
    left_out: tuple[NodesLeftOut, ...] = Field(description="The nodes that are not in it, by reason.")


class PresetLabels(AnswerPart):
    """How far the nodes have the labels of a preset."""

    name: str = Field(description="Name of the preset.")
    fits: bool = Field(description="Whether each of its levels has a label on at least one node.")
    levels: tuple[LevelLabels, ...] = Field(description="Its levels above the host, coarse to fine.")


class DoctorAnswer(AnswerPart):
    """The answer of `topogate topology doctor`."""

    good: bool = Field(description="Whether nothing fails and nothing is warned about.")
    findings: tuple[Finding, ...] = Field(description="The checks in their order.")
    topologies: tuple[CheckedTopology, ...] = Field(description="The topologies that were checked.")
    presets: tuple[PresetLabels, ...] = Field(description="Presets of which some label was found, best first.")
    policy: str | None = Field(description="What to write into policy.yaml; null where nothing is to be changed.")
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")


class VerifyAnswer(AnswerPart):
    """The answer of `topogate verify`."""

    taken_at: str = Field(description="When the installation was read.")
    version: str = Field(description="Version of this program.")
    namespace: str = Field(description="Namespace of the service.")
    good: bool = Field(description="Whether no check fails.")
    findings: tuple[Finding, ...] = Field(description="The checks in their order.")


class PolicyFault(AnswerPart):
    """A field of a policy that would be refused."""

    field: str = Field(description="Path in the policy; empty for the document as a whole.")
    message: str = Field(description="What is wrong.")


class NamedPolicy(AnswerPart):
    """A policy, as the service names it."""

    hash: str = Field(description="Its hash.")
    mode: str = Field(description="Its mode, with those of single namespaces.")


class ChangedTopology(AnswerPart):
    """A topology that differs under the new policy, or has no nodes."""

    name: str = Field(description="Name of the topology.")
    nodes_before: int | None = Field(description="Number of its nodes under the policy in force; null: there is none.")
    nodes_after: int | None = Field(description="Number of its nodes under the new policy; null: there is none.")
    levels_before: tuple[str, ...] = Field(description="Its levels under the policy in force.")
    levels_after: tuple[str, ...] = Field(description="Its levels under the new policy.")
    empty: str | None = Field(description="Why it has no nodes under the new policy; null: it has some.")


class ChangedNamespace(AnswerPart):
    """A namespace with gangs for which the mode or the rule differ."""

    namespace: str = Field(description="Name of the namespace.")
    mode_before: Mode = Field(description="Its mode under the policy in force.")
    mode_after: Mode = Field(description="Its mode under the new policy.")
    allowed_before: bool = Field(description="Whether requests are allowed there by the policy in force.")
    allowed_after: bool = Field(description="Whether requests are allowed there by the new policy.")
    waiting: int = Field(description="Number of its gangs that wait.")
    placed: int = Field(description="Number of its gangs with slots.")
    over: tuple[str, ...] = Field(description="Limits of the new policy that it exceeds already.")


GangFate = Literal["released", "unmanaged", "blocked", "exceeds", "on-hold", "unblocked"]


class ChangedGang(AnswerPart):
    """A gang for which the new policy changes something."""

    namespace: str = Field(description="Namespace of the workload.")
    kind: str = Field(description="Kind of the workload.")
    name: str = Field(description="Name of the workload.")
    group: str | None = Field(description="Replica group of the workload; null where it is one gang.")
    placed: bool = Field(description="Whether it has slots now.")
    change: GangFate = Field(
        description="`released`: it waits, and would be let go. `unmanaged`: it keeps its pods and loses its slots. "
        "`blocked`: it waits, and would stay held with an error. `exceeds`: it keeps its slots, but its request would "
        "be refused today. `on-hold`: it waits, and would not be planned. `unblocked`: it would be planned again."
    )
    reason: Why = Field(description="Reason code; empty where none is left.")
    message: str = Field(description="The reason in words.")


class ChangedSetting(AnswerPart):
    """A setting of the queue that differs."""

    field: str = Field(description="Path in the policy.")
    before: str = Field(description="Its value in the policy in force.")
    after: str = Field(description="Its value in the new policy.")
    effect: str = Field(description="What it does to the gangs that wait now, in numbers.")


class ChangedTurn(AnswerPart):
    """A gang that waits, with another place in the queue or another claim on kept room."""

    namespace: str = Field(description="Namespace of the workload.")
    kind: str = Field(description="Kind of the workload.")
    name: str = Field(description="Name of the workload.")
    group: str | None = Field(description="Replica group of the workload; null where it is one gang.")
    topology: str = Field(description="Name of the topology whose queue it is in.")
    position_before: int = Field(description="Its place in the queue under the policy in force, from 1.")
    position_after: int = Field(description="Its place under the new policy.")
    room_kept_before: bool = Field(description="Whether hosts are kept free for it under the policy in force.")
    room_kept_after: bool = Field(description="Whether hosts would be kept free for it under the new policy.")


class QueueChange(AnswerPart):
    """What the new policy changes for the order of the gangs that wait now."""

    settings: tuple[ChangedSetting, ...] = Field(description="The settings of `queue` and `preemption` that differ.")
    gangs: tuple[ChangedTurn, ...] = Field(description="The gangs that are affected, in the new order.")


class PolicyChange(AnswerPart):
    """What a policy would change for what exists."""

    in_force: NamedPolicy = Field(description="The policy that is in force.")
    topologies: tuple[ChangedTopology, ...] = Field(description="The topologies that differ or have no nodes.")
    namespaces: tuple[ChangedNamespace, ...] = Field(description="The namespaces with gangs that are affected.")
    gangs: tuple[ChangedGang, ...] = Field(description="The gangs that are affected.")
    queue: QueueChange
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")


class TopologyNodes(AnswerPart):
    """A topology under the checked policy."""

    name: str = Field(description="Name of the topology.")
    levels: tuple[str, ...] = Field(description="Its levels, coarse to fine.")
    nodes: int = Field(description="Number of its nodes.")
    found: str = Field(description="Its nodes and those that it leaves out, in words.")
    empty: str | None = Field(description="Why it has no nodes; null: it has some.")


class PolicyCheckAnswer(AnswerPart):
    """The answer of `topogate policy check`."""

    good: bool = Field(
        description="Whether it would be accepted, each of its topologies has nodes, and its kinds fit the objects."
    )
    hash: str | None = Field(description="Hash of the checked policy; null if it cannot be read.")
    mode: str | None = Field(description="Its mode, with those of single namespaces; null if it cannot be read.")
    errors: tuple[PolicyFault, ...] = Field(description="Why it would be refused.")
    warnings: tuple[str, ...] = Field(description="Entries without an effect.")
    topologies: tuple[TopologyNodes, ...] = Field(description="Its topologies over the nodes; empty without nodes.")
    trials: tuple[str, ...] = Field(description="How the entries of its kinds read the objects of --object.")
    rights: str | None = Field(description="Manifests with the rights that its kinds need; null: none.")
    change: PolicyChange | None = Field(description="What it would change; null without a policy to compare it with.")
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")


def counted(findings: Iterable[Finding], *results: FindingResult) -> int:
    """Return the number of findings with one of these results."""
    return sum(1 for one in findings if one.result in results)
