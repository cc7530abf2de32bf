"""`topogate gangs`: where every gang is, or why it waits, its place in the queue, and when it can start."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from engine.api import names
from webhook.terminal.asking import Printed, answer_and_print, caller_of, reading
from webhook.terminal.options import ClusterOptions, cluster_options, fail, namespace_options, output_options

if TYPE_CHECKING:
    from webhook.queries.model import GangsAnswer
    from webhook.snapshot.snapshot import Snapshot


@click.command(short_help="Show where gangs are, or why they wait and how long.")
@namespace_options
@output_options
@cluster_options
def gangs(
    *,
    namespace: str | None,
    all_namespaces: bool,
    output: str,
    watch: bool,
    interval: float,
    cluster: ClusterOptions,
) -> None:
    """Show gangs: those that wait in the order of the queue, with the planner's answer of this moment, then the others.

    START is when a gang fits if what runs takes all of its activeDeadlineSeconds and nothing new goes first; "unknown"
    where too little of what runs has a deadline. Without rights in other namespaces
    QUEUE is what the leader last wrote, and START is left out.

    \b
    Example:
      topogate gangs
      topogate gangs -A -o wide
      topogate gangs -n alice -o json
    """  # noqa: D301 - click wants the backspace itself
    from webhook.terminal.text import gangs_text

    caller = caller_of(cluster)
    wanted = None if all_namespaces else namespace or caller.namespace
    answer_and_print(
        partial(reading, cluster, caller, namespace=wanted),
        partial(_asked, namespace=wanted),
        partial(gangs_text, namespaces=wanted is None, wide=output == "wide"),
        Printed(output, watch, interval),
    )


def _asked(snapshot: Snapshot, *, namespace: str | None) -> GangsAnswer:
    """Return the gangs; ends the program where no Placement may be read: running gangs would be missing, or wait."""
    from webhook.queries.gangs import gangs as answer

    hidden = any(
        one.collection == names.PLACEMENTS and one.except_in is None and not one.why for one in snapshot.unread
    )
    if hidden:
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        fail(f"the gangs of {where} are not known: no right to list {names.PLACEMENTS} there")
    return answer(snapshot, namespace=namespace)
