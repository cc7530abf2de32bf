"""The JSON output of the commands that check a cluster: a stable contract with its schemas in schemas/.

Every key is always present; null stands for what is not known. `docs/reference/cli.md` explains the meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

FindingResult = Literal["ok", "warn", "fail", "skip"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Finding(_Part):
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


class LevelLabels(_Part):
    """How far the nodes have the labels of a level."""

    level: str = Field(description="Alias of the level.")
    keys: tuple[str, ...] = Field(description="Its node label keys; the first that a node has is used.")
    nodes: int = Field(description="Number of nodes with one of them.")


class CheckedLevel(LevelLabels):
    """A level of a topology, and how far its nodes have the labels."""

    domains: int = Field(description="Number of its domains.")


class NodesLeftOut(_Part):
    """Nodes that a topology leaves out for one reason."""

    reason: str = Field(description="Why they are left out.")
    count: int = Field(description="How many there are.")
    gpus: bool = Field(description="Whether one of them has GPUs.")
    nodes: tuple[str, ...] = Field(description="Their names, at most twelve.")


class CheckedTopology(_Part):
    """A topology as the node labels give it."""

    name: str = Field(description="Name of the topology.")
    nodes: int = Field(description="Number of its nodes.")
    selected: int = Field(description="Number of nodes that its nodeSelector selects; without one all nodes.")
    levels: tuple[CheckedLevel, ...] = Field(description="Its levels above the host, coarse to fine.")
    left_out: tuple[NodesLeftOut, ...] = Field(description="The nodes that are not in it, by reason.")


class PresetLabels(_Part):
    """How far the nodes have the labels of a preset."""

    name: str = Field(description="Name of the preset.")
    fits: bool = Field(description="Whether each of its levels has a label on at least one node.")
    levels: tuple[LevelLabels, ...] = Field(description="Its levels above the host, coarse to fine.")


class DoctorAnswer(_Part):
    """The answer of `topogate topology doctor`."""

    good: bool = Field(description="Whether nothing fails and nothing is warned about.")
    findings: tuple[Finding, ...] = Field(description="The checks in their order.")
    topologies: tuple[CheckedTopology, ...] = Field(description="The topologies that were checked.")
    presets: tuple[PresetLabels, ...] = Field(description="Presets of which some label was found, best first.")
    policy: str | None = Field(description="What to write into policy.yaml; null where nothing is to be changed.")
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")


class VerifyAnswer(_Part):
    """The answer of `topogate verify`."""

    taken_at: str = Field(description="When the installation was read.")
    version: str = Field(description="Version of this program.")
    namespace: str = Field(description="Namespace of the service.")
    good: bool = Field(description="Whether no check fails.")
    findings: tuple[Finding, ...] = Field(description="The checks in their order.")


def counted(findings: Iterable[Finding], *results: FindingResult) -> int:
    """Return the number of findings with one of these results."""
    return sum(1 for one in findings if one.result in results)
