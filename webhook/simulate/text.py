"""The answers of `topogate simulate` as text: plain columns in a pipe, a coloured table on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from engine.api.text import plural, sanitize
from engine.topology.topology import Topology
from webhook.simulate.model import Gang, HostSlots, PodSet, Simulation
from webhook.terminal.tables import TableColumn, least_width

if TYPE_CHECKING:
    from rich.table import Table


HEADINGS: Final = ("WORKLOAD", "VERDICT", "PODS", "MESSAGE")
COLOURS: Final = {"placed": "green", "waits": "yellow", "never": "red", "rejected": "red", "ignored": "dim"}
_MAX_HOSTS: Final = 4  # `-o json` has them all
_MAX_SLICES: Final = 4


@dataclass(frozen=True, slots=True)
class Row:
    """One workload; `details` are further lines under its message."""

    workload: str
    verdict: str
    pods: str
    message: str
    details: tuple[str, ...]


def rows(simulation: Simulation) -> list[Row]:
    """Return the lines of the table."""
    return [
        Row(
            workload=f"{sanitize(gang.kind)} {sanitize(gang.namespace)}/{sanitize(gang.name)}",
            verdict=gang.verdict,
            pods=str(sum(pod_set.count for pod_set in gang.pod_sets)) if gang.pod_sets else "-",
            message=_message(gang),
            details=tuple(_details(gang)),
        )
        for gang in simulation.workloads
    ]


def summary(simulation: Simulation, topologies: Iterable[Topology] = ()) -> str:
    """Return the summary line.

    Example: `3 workloads: 2 placed, 1 waits; 32 nodes, 32 in the topology (block, rack, host)`. Several topologies are
    named one by one.
    """
    verdicts = Counter(gang.verdict for gang in simulation.workloads)
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.items())
    cluster, several = simulation.cluster, list(topologies)
    covered = f"{cluster.nodes_in_topology:,} in the topology ({_levels(cluster.levels)})"
    if len(several) > 1:
        covered = ", ".join(
            f"{len(one.tree.hosts):,} in topology {sanitize(one.name)} ({_levels(level.name for level in one.levels)})"
            for one in several
        )
    return f"{plural(len(simulation.workloads), 'workload')}: {counts}; {plural(cluster.nodes, 'node')}, {covered}"


def _levels(aliases: Iterable[str]) -> str:
    return ", ".join(map(sanitize, aliases))


def as_text(simulation: Simulation, topologies: Iterable[Topology] = ()) -> str:
    """Return the table in plain columns, without a final newline."""
    table = rows(simulation)
    cells = [HEADINGS, *((row.workload, row.verdict, row.pods, row.message) for row in table)]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = [_line(cells[0], widths)]
    for row, cell in zip(table, cells[1:], strict=True):
        lines.append(_line(cell, widths))
        lines += [" " * (sum(widths) + 6) + detail for detail in row.details]
    return "\n".join((*lines, summary(simulation, topologies)))


def as_table(simulation: Simulation) -> Table:
    """Return the table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS[:-1]:
        table.add_column(heading, justify="right" if heading == "PODS" else "left", no_wrap=True)
    table.add_column(HEADINGS[-1], overflow="fold")  # a path is longer than a narrow terminal, and must not be cut
    for row in rows(simulation):
        message = Text("\n".join((row.message, *row.details)))
        table.add_row(Text(row.workload), Text(row.verdict, style=COLOURS[row.verdict]), Text(row.pods), message)
    return table


def least_width_of(simulation: Simulation) -> int:
    """Return the width at which the table for a terminal cuts nothing, however long a name is."""
    cells = [(row.workload, row.verdict, row.pods, max(row.message, *row.details, key=len)) for row in rows(simulation)]
    return least_width([TableColumn(heading, folds=heading == HEADINGS[-1]) for heading in HEADINGS], cells)


def _line(cells: Iterable[str], widths: list[int]) -> str:
    workload, verdict, pods, message = cells
    return f"{workload:<{widths[0]}}  {verdict:<{widths[1]}}  {pods:>{widths[2]}}  {message}".rstrip()


def _message(gang: Gang) -> str:
    shown = "".join(char if char.isprintable() else " " for char in gang.message)
    return f"{gang.reason}: {shown}" if gang.reason and gang.verdict in ("waits", "never") else shown


def _details(gang: Gang) -> Iterable[str]:
    for error in gang.errors:
        where = "".join(char if char.isprintable() else " " for char in error.field)
        yield f"* {where}: {error.message}" if where else f"* {error.message}"
    for one in gang.preempts:
        group = "" if one.group is None else f" group {sanitize(one.group)}"
        who = f"{sanitize(one.kind)} {sanitize(one.namespace)}/{sanitize(one.name)}{group}"
        yield f"preempts {who}: {plural(one.pods, 'pod')}, priority {one.priority}"
    for pod_set in gang.pod_sets:
        shown = [f"{sanitize(slots.node)}: {_pod_text(slots)}" for slots in pod_set.assignment[:_MAX_HOSTS]]
        more = len(pod_set.assignment) - _MAX_HOSTS
        whose = f"{sanitize(pod_set.name)}: " if len(gang.pod_sets) > 1 else ""
        if shown:
            yield whose + "; ".join(shown) + (f"; {plural(more, 'host')} more (-o json has all)" if more > 0 else "")
        yield from (f"{whose}{line}" for line in _slices(pod_set))
    for warning in gang.warnings:
        yield f"warning: {warning}"


def _slices(pod_set: PodSet) -> Iterable[str]:
    """Yield a line for each layer of slices."""
    for level in dict.fromkeys(one.level for one in pod_set.slices):
        layer = [one for one in pod_set.slices if one.level == level]
        shown = [f"{one.index} ({_ranks(one.ranks)}) in {' / '.join(map(sanitize, one.domain))}" for one in layer]
        more = len(layer) - _MAX_SLICES
        rest = f"; {more:,} more (-o json has all)" if more > 0 else ""
        yield f"slices by {sanitize(level)}: {'; '.join(shown[:_MAX_SLICES])}{rest}"


def _ranks(ranks: str) -> str:
    return f"rank{'' if ranks.isdecimal() else 's'} {ranks}"


def _pod_text(slots: HostSlots) -> str:
    if slots.ranks is None:
        return plural(slots.count, "pod")
    return _ranks(slots.ranks)
