"""Merges the records of all logs into one answer: the same for any order of logs and lines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Final

from engine.api.duration import timestamp
from engine.api.reasons import known_code, reason_of
from engine.api.text import did_you_mean, plural, plural_noun, quote
from engine.history.record import GangName, HistoryRecord
from webhook.history.model import GangStillWaiting, HistoryAnswer, HistorySummary, LogSource, PastDecision
from webhook.history.parts import LogPart

# A gang waits after one of these, and does not after any other record but those that change nothing about that.
_WAITS: Final = frozenset({"Waiting", "Unplaced", "Requeued", "LevelRelaxed", "Preempts", "PreemptionEnded"})
_ASIDE: Final = frozenset(
    {
        *("GateRemoved", "ResumeRefused", "SuspendRefused", "DevicesChanged", "Evicted"),
        *("NodesRequested", "NodesAccepted", "NodesProvisioned", "NodesNotProvisioned", "NodesLost", "NodesNotNeeded"),
    }
)
_NO_RECORDS: Final = "no records in it: not the log of `topogate serve`, or one with --log-format text"


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """What is asked for: a time, a namespace (None: all), and one gang (None: all), with the service's own records."""

    since: float | None = None
    namespace: str | None = None
    gang: tuple[str, str] | None = None  # kind and name


def answer_of(
    parts: Sequence[LogPart], wanted: HistoryFilter, *, now: float, one_log: bool, problems: Iterable[str] = ()
) -> HistoryAnswer:
    """Return the answer; `one_log`: the parts are pieces of one log, as files are, not those of several replicas."""
    everything = {record for part in parts for record in part.records}
    records = sorted(filter(lambda one: _wanted(one, wanted), everything), key=lambda one: (one.at, repr(one)))
    begins = [part.begins for part in parts if part.begins is not None]
    complete = (min(begins) if one_log else max(begins)) if begins else None
    late = complete is not None and (wanted.since is None or complete > wanted.since)
    return HistoryAnswer(
        taken_at=timestamp(now),
        since=timestamp(wanted.since) if wanted.since is not None else None,
        complete_since=timestamp(complete) if complete is not None and late else None,
        summary=_summary(records),
        records=tuple(_decision(one) for one in records),
        sources=tuple(sorted((_source(part) for part in parts), key=lambda one: (one.name, one.begins or ""))),
        remarks=(*sorted(_remarks(parts)), *problems, *_missing(records, everything, wanted)),
    )


def _wanted(record: HistoryRecord, wanted: HistoryFilter) -> bool:
    if wanted.since is not None and record.at < wanted.since:
        return False
    if record.gang is None:
        return wanted.gang is None
    if wanted.namespace is not None and record.gang.namespace != wanted.namespace:
        return False
    return wanted.gang is None or _is_called(record.gang, *wanted.gang)


def _is_called(gang: GangName, kind: str, name: str) -> bool:
    """Return True if `KIND/NAME` means this gang; the kind as kubectl takes it: `job`, `jobs`, `jobs.batch`."""
    asked, (own, _, own_name) = kind.lower().partition(".")[0], gang.workload.partition("/")
    if asked in ("placement", "placements", "tgp"):
        return gang.placement == name
    return name == own_name and asked in (own.lower(), plural_noun(own.lower()))


def _missing(
    records: Sequence[HistoryRecord], everything: Iterable[HistoryRecord], wanted: HistoryFilter
) -> Iterator[str]:
    """Yield that a gang that was asked for has no records, with the name that was meant perhaps."""
    if wanted.gang is None or records:
        return
    kind, name = wanted.gang
    gangs = [one.gang for one in everything if one.gang is not None]
    near = [one.workload.partition("/")[2] for one in gangs if wanted.namespace in (None, one.namespace)]
    where = f" in namespace {wanted.namespace}" if wanted.namespace is not None else ""
    yield f"no records of {quote(f'{kind}/{name}')}{where}{did_you_mean(name, near)}"


def _remarks(parts: Sequence[LogPart]) -> Iterator[str]:
    for part in parts:
        if part.start_dropped:
            yield f"{part.name}: only its last {len(part.records):,} records are shown; a shorter --since has them all"
        if part.unreadable:
            yield f"{part.name}: {plural(part.unreadable, 'record')} could not be read"
        if part.end_unread:
            yield f"{part.name}: its log is so large that its end was not read; a shorter --since has it"
        if part.lines and not part.structured:
            yield f"{part.name}: {_NO_RECORDS}"


def _summary(records: Sequence[HistoryRecord]) -> HistorySummary:
    counts = Counter(one.event for one in records)
    waits = [one.waited for one in records if one.event == "Placed" and one.waited is not None]
    # A new leader says once more what is still refused.
    refused = {(one.policy, one.message) for one in records if one.event == "PolicyRefused"}
    return HistorySummary(
        placed=counts["Placed"],
        median_wait_seconds=round(median(waits), 3) if waits else None,
        longest_wait_seconds=max(waits, default=None),
        unplaced=counts["Unplaced"],
        preempted=sum(one.event == "Unplaced" and _is_preempted(one) for one in records),
        requeued=counts["Requeued"],
        given_up=counts["GivenUp"],
        repaired=counts["Repaired"],
        finished=counts["Finished"],
        deleted=counts["Deleted"],
        policy_changes=counts["PolicyTaken"],
        policies_refused=len(refused),
        leader_changes=counts["LeadershipGained"],
        waiting=tuple(_waiting(records)),
    )


def _is_preempted(record: HistoryRecord) -> bool:
    reason = reason_of(known_code(record.reason))
    return reason is not None and reason.by_preemption


def _waiting(records: Sequence[HistoryRecord]) -> Iterator[GangStillWaiting]:
    last: dict[GangName, HistoryRecord] = {}
    for one in records:
        if one.gang is not None and one.event not in _ASIDE:
            last[one.gang] = one
    for gang, one in last.items():
        reason = reason_of(known_code(one.reason))
        if one.event in _WAITS and not (reason is not None and reason.by_user):
            yield GangStillWaiting(
                namespace=gang.namespace,
                workload=_label(gang),
                group=gang.group or None,
                reason=one.reason or None,
                at=_time_text(one.at),
            )


def _decision(one: HistoryRecord) -> PastDecision:
    gang = one.gang
    return PastDecision(
        at=_time_text(one.at),
        event=one.event,
        namespace=gang.namespace if gang is not None else None,
        workload=_label(gang) if gang is not None else None,
        group=(gang.group or None) if gang is not None else None,
        placement=(gang.placement or None) if gang is not None else None,
        reason=one.reason or None,
        message=one.message,
        pods=one.pods,
        hosts=one.hosts,
        domain=one.domain or None,
        revision=one.revision,
        waited_seconds=one.waited,
        requeues=one.requeues,
        policy=one.policy or None,
        replica=one.replica or None,
        omitted=one.omitted,
    )


def _source(part: LogPart) -> LogSource:
    return LogSource(
        name=part.name,
        begins=timestamp(part.begins) if part.begins is not None else None,
        lines=part.lines,
        records=len(part.records),
        unreadable=part.unreadable,
    )


def _label(gang: GangName) -> str:
    """Return the workload as kubectl prints it: `job/train`."""
    kind, _, name = gang.workload.partition("/")
    return f"{kind.lower()}/{name}"


def _time_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
