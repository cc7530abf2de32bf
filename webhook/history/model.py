"""The JSON output of `topogate history`: a stable contract with its schema in schemas/."""

from __future__ import annotations

from pydantic import Field

from engine.api.schema import AnswerPart


class PastDecision(AnswerPart):
    """One record."""

    at: str = Field(description="When (RFC 3339, UTC, milliseconds).")
    event: str = Field(description="What happened: a record of `docs/reference/messages.md`.")
    namespace: str | None = Field(description="Namespace of the gang; null for records about the service.")
    workload: str | None = Field(description="The gang's workload, as `job/train`.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    placement: str | None = Field(description="Name of its Placement.")
    reason: str | None = Field(description="Reason code; null if nothing is wrong.")
    message: str = Field(description="What was told, in words.")
    pods: int | None = Field(description="Pods that it is about.")
    hosts: int | None = Field(description="Hosts: of a placed gang its own, of a repaired one those that were left.")
    domain: str | None = Field(description="Where the gang is since then, in short.")
    revision: int | None = Field(description="Revision of the assignment.")
    waited_seconds: float | None = Field(description="How long a placed gang was queued.")
    requeues: int | None = Field(description="How often it has been requeued since it waits.")
    policy: str | None = Field(description="Hash of the policy in force.")
    replica: str | None = Field(description="The replica that leads, or led.")
    omitted: int | None = Field(
        description="Records of the gang that were left out before this one: there were too many."
    )


class GangStillWaiting(AnswerPart):
    """A gang whose last record says that it waits."""

    namespace: str = Field(description="Namespace of the gang.")
    workload: str = Field(description="The gang's workload, as `job/train`.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    reason: str | None = Field(description="Reason code of the last record.")
    at: str = Field(description="When that was.")


class HistorySummary(AnswerPart):
    """The records in numbers."""

    placed: int = Field(description="Placements of gangs; one that was placed twice counts twice.")
    median_wait_seconds: float | None = Field(description="Of the placed gangs; null if none was placed.")
    longest_wait_seconds: float | None = Field(description="Of the placed gangs; null if none was placed.")
    unplaced: int = Field(description="Gangs that lost their slots again before they had ended.")
    preempted: int = Field(description="Those of them that ended for a gang of higher priority.")
    requeued: int = Field(description="Requeues.")
    given_up: int = Field(description="Gangs that were given up.")
    repaired: int = Field(description="Repairs of running gangs.")
    finished: int = Field(description="Workloads that have ended.")
    deleted: int = Field(description="Workloads that were deleted before they had ended.")
    policy_changes: int = Field(description="Policies that were taken.")
    policies_refused: int = Field(description="Policies that were refused.")
    leader_changes: int = Field(description="How often a replica began to lead.")
    waiting: tuple[GangStillWaiting, ...] = Field(description="Gangs that wait at the end of the records.")


class LogSource(AnswerPart):
    """One log that was read."""

    name: str = Field(description="Pod, or file.")
    begins: str | None = Field(description="Since when it is complete; null if no line has a time.")
    lines: int = Field(description="Lines that were read.")
    records: int = Field(description="Records among them, not older than `since`.")
    unreadable: int = Field(description="Lines that should be records, and cannot be read.")


class HistoryAnswer(AnswerPart):
    """The answer of `topogate history`."""

    taken_at: str = Field(description="When the logs were read (RFC 3339).")
    since: str | None = Field(description="Since when records are shown; null: all.")
    complete_since: str | None = Field(description="Since when there are all records; null: since `since`.")
    summary: HistorySummary = Field(description="The records in numbers.")
    records: tuple[PastDecision, ...] = Field(description="The records, oldest first.")
    sources: tuple[LogSource, ...] = Field(description="The logs.")
    remarks: tuple[str, ...] = Field(description="What is not known, in words.")
