"""What `topogate history` prints: the records in numbers, since when there are all, and a row for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.api.text import plural
from webhook.history.model import HistoryAnswer, HistorySummary, PastDecision
from webhook.terminal.tables import TableColumn, number, span
from webhook.terminal.text import TextPart

_MOST_WAITING: Final = 10
_STYLES: Final = {
    **dict.fromkeys(("GivenUp", "ResumeRefused", "SuspendRefused", "PolicyRefused"), "red"),
    **dict.fromkeys(
        (
            *("Waiting", "NotStarted", "Incomplete", "Evicted", "Unplaced", "Requeued", "GateRemoved"),
            *("Preempts", "PreemptionEnded"),
        ),
        "yellow",
    ),
    **dict.fromkeys(("Finished", "Deleted", "LeadershipGained", "LeadershipLost", "PolicyTaken"), "dim"),
}
_ABOUT: Final = {"Policy": "(policy)", "Leadership": "(leader)"}


def history_text(answer: HistoryAnswer, *, namespaces: bool, wide: bool = False) -> list[TextPart]:
    """Return the text; `namespaces`: with their column, `wide`: with all numbers."""
    parts = [TextPart(before=tuple(_lines(answer)))]
    if answer.records:
        columns = (
            TableColumn("TIME"),
            *((TableColumn("NAMESPACE", optional=True),) if namespaces else ()),
            TableColumn("GANG"),
            TableColumn("WHAT"),
            *((TableColumn("PODS", right=True, optional=True),) if wide else ()),
            *((TableColumn("WAITED", right=True, optional=True),) if wide else ()),
            *((TableColumn("PLACE", optional=True),) if wide else ()),
            *((TableColumn("REVISION", right=True, optional=True),) if wide else ()),
            TableColumn("WHY", folds=True),
            *((TableColumn("PLACEMENT", optional=True),) if wide else ()),
        )
        rows = tuple(tuple(_row(one, namespaces=namespaces, wide=wide)) for one in answer.records)
        styles = tuple(_STYLES.get(one.event, "") for one in answer.records)
        parts.append(TextPart(columns=columns, rows=rows, styles=styles))
    return parts


def _lines(answer: HistoryAnswer) -> Iterator[str]:
    since = f"since {answer.since}" if answer.since is not None else "in these logs"
    yield f"{since}: {_gangs(answer.summary)}"
    waiting = answer.summary.waiting
    if waiting:
        shown = [f"{one.namespace}/{one.workload}{_group(one.group)}" for one in waiting[:_MOST_WAITING]]
        more = f" and {len(waiting) - len(shown):,} more" if len(waiting) > len(shown) else ""
        yield f"{plural(len(waiting), 'gang')} waiting at the end: {', '.join(shown)}{more}"
    if told := ", ".join(_service(answer.summary)):
        yield told
    if answer.complete_since is not None:
        first = next((one.name for one in answer.sources if one.begins == answer.complete_since), None)
        where = f": the log of {first} begins then" if first is not None else ""
        yield f"records begin at {answer.complete_since}{where}"


def _gangs(found: HistorySummary) -> str:
    text = f"{plural(found.placed, 'gang')} placed"
    if found.median_wait_seconds is not None and found.longest_wait_seconds is not None:
        text += f" (waited {span(found.median_wait_seconds)} at the median, {span(found.longest_wait_seconds)} at most)"
    counts = (
        (found.unplaced, f"unplaced ({found.preempted:,} preempted)" if found.preempted else "unplaced"),
        (found.requeued, "requeued"),
        (found.given_up, "given up"),
        (found.repaired, "repaired"),
        (found.finished, "finished"),
        (found.deleted, "deleted"),
    )
    return ", ".join([text, *(f"{count:,} {what}" for count, what in counts if count)])


def _service(found: HistorySummary) -> Iterator[str]:
    if found.policy_changes or found.policies_refused:
        refused = f" and refused {_times(found.policies_refused)}" if found.policies_refused else ""
        yield f"the policy was changed {_times(found.policy_changes)}{refused}"
    if found.leader_changes:
        yield f"the leader changed {_times(found.leader_changes)}"


def _times(count: int) -> str:
    return plural(count, "time")


def _row(one: PastDecision, *, namespaces: bool, wide: bool) -> Iterator[str]:
    yield one.at.partition(".")[0] + "Z"
    if namespaces:
        yield one.namespace or ""
    yield _about(one)
    yield one.event
    if wide:
        yield number(one.pods) if one.pods is not None else ""
        yield span(one.waited_seconds) if one.waited_seconds is not None else ""
        yield one.domain or ""
        yield str(one.revision) if one.revision is not None else ""
    yield _why(one, wide=wide)
    if wide:
        yield one.placement or ""


def _about(one: PastDecision) -> str:
    if one.workload is not None:
        return f"{one.workload}{_group(one.group)}"
    return next((text for start, text in _ABOUT.items() if one.event.startswith(start)), "")


def _why(one: PastDecision, *, wide: bool) -> str:
    text = f"{one.reason}: {one.message}" if one.reason else one.message
    if one.event == "Placed" and one.waited_seconds is not None and not wide:
        text += f", waited {span(one.waited_seconds)}"
    return f"{text} ({plural(one.omitted, 'record')} before it left out)" if one.omitted else text


def _group(group: str | None) -> str:
    return f"[{group}]" if group is not None else ""
