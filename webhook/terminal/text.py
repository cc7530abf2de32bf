"""What the commands print about topologies, gangs and what fits: the headline, the table and the sentences after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.api.duration import epoch
from engine.api.text import plural
from webhook.queries.model import (
    DomainAnswer,
    FitsAnswer,
    GangAnswer,
    GangsAnswer,
    GangStart,
    GpuCounts,
    HostAnswer,
    TopologiesAnswer,
    TopologyAnswer,
)
from webhook.queries.names import workload_label
from webhook.terminal.tables import TableColumn, number, span

_PHASE_STYLES: Final = {"Running": "green", "Waiting": "yellow", "Incomplete": "red", "Finished": "dim"}
_MOST_AFTER: Final = 3
_UNKNOWN_START: Final = (
    "too little of what runs declares its end (activeDeadlineSeconds), or gangs ahead in the queue take the room"
)
_STATES: Final = tuple(TableColumn(name, right=True) for name in ("USED", "RESERVED", "KEPT", "OUT"))


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of what is printed: lines, a table (none without columns), lines after it."""

    before: tuple[str, ...] = ()
    columns: tuple[TableColumn, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    styles: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def topologies_text(answer: TopologiesAnswer, *, wide: bool = False) -> list[TextPart]:
    """Return the topologies with a row for every domain; `wide`: with all states of the GPUs and all left-out nodes."""
    return [_topology(one, answer, wide=wide) for one in answer.topologies]


def _topology(one: TopologyAnswer, answer: TopologiesAnswer, *, wide: bool) -> TextPart:
    levels = [level.level for level in one.levels]
    headline = f"topology {one.name} ({', '.join(levels)}): {plural(one.hosts, 'host')}"
    if one.gpus.total:
        headline += f", {plural(one.gpus.total, 'GPU')}{_states(one.gpus)}"
    headline += f"; mode {answer.mode}, policy {answer.policy}"
    before = [headline]
    if one.waits is not None:
        return TextPart(before=(*before, one.waits))
    rows, columns = (
        (_node_rows(one, wide=wide), _node_columns(one, wide=wide)) if one.nodes else _domain_table(one, wide)
    )
    after = _summary(one)
    if one.left_out:
        shown = one.left_out if wide else one.left_out[:3]
        nodes = ", ".join(f"{left.node} ({left.reason})" for left in shown)
        more = f" and {len(one.left_out) - len(shown):,} more (-o wide)" if len(shown) < len(one.left_out) else ""
        after.append(f"not in this topology: {plural(len(one.left_out), 'node')}: {nodes}{more}")
    return TextPart(tuple(before), tuple(columns), tuple(rows), after=tuple(after))


def _states(gpus: GpuCounts) -> str:
    if gpus.free is None:
        return ""
    parts = [(gpus.used, "used"), (gpus.reserved, "reserved"), (gpus.kept, "kept"), (gpus.out, "out")]
    said = [f"{count:,} {state}" for count, state in parts if count or state == "used"]
    return f": {', '.join(said)}, {gpus.free:,} free"


def _pod(one: TopologyAnswer) -> str:
    return f"{one.pod_gpus}-GPU pods" if one.pod_gpus else "pods without GPUs"


def _domain_table(one: TopologyAnswer, wide: bool) -> tuple[list[tuple[str, ...]], list[TableColumn]]:
    """Return a row for every domain of the lowest level among the answer's, with the names of those above it."""
    if not one.domains:
        return [], []
    lowest = max(len(domain.path) for domain in one.domains)
    shown = [domain for domain in one.domains if len(domain.path) == lowest]
    names = [level.level.upper() for level in one.levels[:lowest]]
    columns = [TableColumn(name) for name in names]
    columns += [TableColumn("HOSTS", right=True), TableColumn("FREE", right=True)]
    if one.gpus.total:
        columns += [TableColumn("GPUS", right=True), TableColumn("GPUS FREE", right=True)]
        columns += _STATES if wide else ()
    columns += [
        TableColumn("LARGEST GANG", right=True),
        TableColumn("OUT OF USE", optional=True),
        TableColumn("KEPT FOR", optional=True),
    ]
    rows: list[tuple[str, ...]] = []
    before: tuple[str, ...] = ()
    for domain in shown:
        row = [*_path_cells(domain.path, before), number(domain.hosts), number(domain.free_hosts)]
        before = domain.path
        if one.gpus.total:
            row += [number(domain.gpus.total), number(domain.gpus.free)]
            row += _gpu_cells(domain.gpus) if wide else []
        row += [number(domain.largest_gang), _out(domain), ", ".join(domain.kept_for)]
        rows.append(tuple(row))
    return rows, columns


def _gpu_cells(gpus: GpuCounts) -> list[str]:
    return [number(part) for part in (gpus.used, gpus.reserved, gpus.kept, gpus.out)]


def _path_cells(path: Sequence[str], before: Sequence[str]) -> list[str]:
    """Return the names of a path, those left out that the row above has already."""
    same = 0
    while same < len(path) - 1 and path[: same + 1] == tuple(before)[: same + 1]:
        same += 1
    return ["" if place < same else value for place, value in enumerate(path)]


def _out(domain: DomainAnswer) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in domain.out.items())


def _node_columns(one: TopologyAnswer, *, wide: bool) -> list[TableColumn]:
    columns = [TableColumn(level.level.upper()) for level in one.levels]
    if one.gpus.total:
        columns += [TableColumn("GPUS", right=True), TableColumn("GPUS FREE", right=True)]
        columns += _STATES if wide else ()
    return [
        *columns,
        TableColumn("PODS FIT", right=True),
        TableColumn("OUT OF USE", optional=True),
        TableColumn("GANGS", folds=True, optional=True),
    ]


def _node_rows(one: TopologyAnswer, *, wide: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    before: tuple[str, ...] = ()
    for host in one.nodes:
        path = (*host.domain, host.name)
        row = _path_cells(path, before)
        before = path
        if one.gpus.total:
            row += [number(host.gpus.total), number(host.gpus.free)]
            row += _gpu_cells(host.gpus) if wide else []
        kept = f"kept for {host.kept_for}" if host.kept_for else ""
        row += [number(host.slots), host.out or kept, _gangs_on(host)]
        rows.append(tuple(row))
    return rows


def _gangs_on(host: HostAnswer) -> str:
    found = []
    for gang in host.gangs:
        pods = [f"{gang.pods}" if gang.pods else "", f"{gang.reserved} to come" if gang.reserved else ""]
        group = f"[{gang.group}]" if gang.group is not None else ""
        found.append(f"{gang.namespace}/{gang.workload}{group} ({', '.join(filter(None, pods))})")
    if host.other_pods:
        found.append(plural(host.other_pods, "other pod"))
    return ", ".join(found)


def _summary(one: TopologyAnswer) -> list[str]:
    """Return what fits and how fragmented the free capacity is, level by level."""
    if one.largest_gang is None:
        return ["free capacity is not known"]
    within = [f"{level.largest_gang:,} in one {level.level}" for level in reversed(one.levels) if level.largest_gang]
    if not one.largest_gang:
        return [f"largest gang of {_pod(one)} that fits now: none"]
    found = [f"largest gang of {_pod(one)} that fits now: {', '.join(within)}, {one.largest_gang:,} anywhere"]
    scattered = [
        f"{round(level.fragmentation * 100)}% of the free room is outside the best {level.level}"
        for level in one.levels[:-1]
        if level.fragmentation
    ]
    return [*found, f"fragmentation: {', '.join(scattered)}"] if scattered else found


def gangs_text(
    answer: GangsAnswer, *, namespaces: bool, wide: bool = False, looked_in: str = "", some: bool = False
) -> list[TextPart]:
    """Return the gangs with a row each; `namespaces`: with theirs.

    `looked_in`: where they were looked for. `some`: not all of them were asked for.
    """
    if not answer.gangs:
        none = "no such gangs found" if some else "no gangs found"
        elsewhere = "; topogate gangs -A looks in all" if not namespaces else ""
        return [TextPart(after=(f"{none} in {looked_in}{elsewhere}" if looked_in else none,))]
    columns = [TableColumn("NAMESPACE")] if namespaces else []
    columns += [
        TableColumn("GANG"),
        TableColumn("PHASE"),
        TableColumn("PODS", right=True),
        TableColumn("GPUS", right=True),
    ]
    columns += [
        TableColumn("PLACE"),
        TableColumn("QUEUE", right=True),
        TableColumn("LEVEL"),
        TableColumn("WAITING", right=True),
    ]
    columns += [TableColumn("START"), TableColumn("REASON")]
    if wide:
        columns += [
            TableColumn("PRIORITY", right=True),
            TableColumn("TOPOLOGY"),
            TableColumn("PLACEMENT"),
            TableColumn("AGE", right=True),
        ]
        columns += [TableColumn("MESSAGE", folds=True)]
    now = epoch_of(answer.taken_at)
    rows = []
    for gang in answer.gangs:
        row = [gang.namespace] if namespaces else []
        row += [
            workload_label(gang.kind, gang.name) + (f"[{gang.group}]" if gang.group is not None else ""),
            gang.phase,
            f"{gang.pods.bound}/{gang.pods.wanted}" if gang.phase != "Finished" else "-",
            number(gang.gpus),
            gang.place,
            _position(gang),
            _level(gang),
            span(gang.waiting_seconds) if gang.waiting_seconds is not None else "",
            _start(gang, now),
            gang.reason,
        ]
        if wide:
            row += [
                str(gang.priority),
                gang.topology or "",
                gang.placement or "",
                span(now - epoch_of(gang.created_at)),
            ]
            row += [gang.message]
        rows.append(tuple(row))
    styles = tuple(_PHASE_STYLES.get(gang.phase, "") for gang in answer.gangs)
    return [TextPart(columns=tuple(columns), rows=tuple(rows), styles=styles)]


def _position(gang: GangAnswer) -> str:
    if gang.position is None:
        return ""
    return f"{gang.position} of {gang.queued}" if gang.queued is not None else str(gang.position)


def _level(gang: GangAnswer) -> str:
    parts = [gang.level or "", f"prefer {gang.prefer}" if gang.prefer else ""]
    return ", ".join(filter(None, parts)) or "any"


def _start(gang: GangAnswer, now: float) -> str:
    if gang.start is None:
        return ""
    return "now" if gang.fits_now else start_text(gang.start, now)


def start_text(start: GangStart, now: float) -> str:
    """Return when a gang can start: `within 25m`, or `unknown`."""
    return "unknown" if start.by is None else f"within {span(epoch_of(start.by) - now)}"


def fits_text(answer: FitsAnswer) -> list[TextPart]:
    """Return whether the gang fits now, else the best domains, other levels and when it fits later."""
    asked = (
        f"{plural(answer.pods, 'pod')} x {plural(answer.gpus, 'GPU')}" if answer.gpus else plural(answer.pods, "pod")
    )
    levels = (f"require {answer.require}" if answer.require else "", f"prefer {answer.prefer}" if answer.prefer else "")
    how = ", ".join(filter(None, levels)) or "any level"
    verdict = "fits now" if answer.fits else "does not fit now"
    lines = [f"{asked}, {how}, topology {answer.topology}: {verdict}", answer.message]
    after: list[str] = []
    if not answer.fits:
        lines[1] = f"{answer.reason}: {answer.message}"
        instead = [one.level or "no level" for one in answer.levels if one.fits]
        if instead and instead[0] != (answer.require or ""):
            after.append(f"it would fit with: {', '.join(_as_request(level) for level in instead)}")
    largest = [
        f"{one.largest_gang:,} {'anywhere' if one.level is None else f'in one {one.level}'}" for one in answer.levels
    ]
    after.append(f"largest gang that fits now: {', '.join(largest)}")
    if answer.start is not None:
        after.append(_later(answer.start, epoch_of(answer.taken_at)))
    elif answer.until is not None:
        after.append(f"later: when {answer.until}")
    shown = answer.assignment if answer.fits else answer.best
    rows = tuple(("/".join(one.path) or "-", number(one.pods)) for one in shown)
    heading = "PODS" if answer.fits else "PODS FIT"
    columns = (TableColumn("DOMAIN"), TableColumn(heading, right=True)) if rows else ()
    return [TextPart(tuple(lines), columns, rows, after=tuple(after))]


def _as_request(level: str) -> str:
    return level if level == "no level" else f"require {level}"


def _later(start: GangStart, now: float) -> str:
    if start.by is None:
        return f"later: unknown: {_UNKNOWN_START}"
    ends = list(start.after)
    shown = ", ".join(ends[:_MOST_AFTER]) + (
        f" and {len(ends) - _MOST_AFTER:,} more" if len(ends) > _MOST_AFTER else ""
    )
    when = f"within {span(epoch_of(start.by) - now)}"
    return f"later: {when}, when {shown} {'has' if len(ends) == 1 else 'have'} ended" if ends else f"later: {when}"


def epoch_of(text: str) -> float:
    """Return a time of an answer as seconds since the epoch."""
    return epoch(datetime.fromisoformat(text))
