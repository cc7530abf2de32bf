"""What `topogate defragment` prints: for each gang the restarts that would help it, and the price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.api.text import plural
from webhook.queries.model import DefragmentAnswer, DomainPods, MovedGang, MovesAnswer, UnmovedGang
from webhook.queries.names import workload_label
from webhook.terminal.tables import TableColumn, number, span
from webhook.terminal.text import TextPart

_COLUMNS: Final = (
    TableColumn("RESTART"),
    TableColumn("PODS", right=True),
    TableColumn("PRIORITY", right=True),
    TableColumn("RUNNING", right=True),
    TableColumn("FROM"),
    TableColumn("TO"),
)
_NOTHING: Final = "no gang waits for room that restarts of others could make, and none is split without need"
_ALONE: Final = "each proposal is about the cluster as it is now; read again after one is carried out"


def defragment_text(answer: DefragmentAnswer) -> list[TextPart]:
    """Return a part for each proposal, and one for the gangs without."""
    parts = [_proposal(one) for one in answer.proposals]
    if len(parts) > 1:
        parts.append(TextPart(after=(_ALONE,)))
    if answer.others:
        parts.append(TextPart(before=tuple(_other(one) for one in answer.others)))
    return parts or [TextPart(before=(_NOTHING,))]


def _proposal(one: MovesAnswer) -> TextPart:
    gangs = plural(len(one.restarts), "restart")
    price = f"{gangs} ({plural(one.restarted_pods, 'pod')}, {span(one.lost_seconds)} of pod time lost)"
    what = f"{_name(one)} ({plural(one.pods, 'pod')})"
    where = _places(one.assignment)
    verdict = f"fits {where}" if one.purpose == "fits" else f"gets closer together in {where}"
    lines = (f"with {price} {what} {verdict}:",)
    after = () if one.proven else ("fewer restarts may be enough: the search could not rule that out",)
    return TextPart(lines, _COLUMNS, tuple(_row(moved) for moved in one.restarts), after=after)


def _row(moved: MovedGang) -> tuple[str, ...]:
    return (
        f"{moved.namespace}/{workload_label(moved.kind, moved.name)}",
        number(moved.pods),
        str(moved.priority),
        span(moved.running_seconds),
        _places(moved.before),
        _places(moved.after),
    )


def _other(one: UnmovedGang) -> str:
    return f"{_name(one)}: {one.message}"


def _name(one: MovesAnswer | UnmovedGang) -> str:
    text = f"{one.namespace}/{workload_label(one.kind, one.name)}"
    return text if one.group is None else f"{text}[{one.group}]"


def _places(domains: Sequence[DomainPods]) -> str:
    """Return the domains of a gang; with its pods in each if they are several."""
    if len(domains) == 1:
        return "/".join(domains[0].path)
    return ", ".join(f"{'/'.join(one.path)} ({one.pods:,})" for one in domains)
