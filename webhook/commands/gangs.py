"""`topogate gangs`: where every gang is, or why it waits, its place in the queue, and when it can start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from engine.api import names
from webhook.terminal.asking import Printed, answer_and_print, caller_of, reading
from webhook.terminal.options import ClusterOptions, cluster_options, fail, namespace_options, output_options

if TYPE_CHECKING:
    from engine.api.device import LabelSelector
    from webhook.queries.model import GangsAnswer
    from webhook.snapshot.snapshot import Snapshot


SORTS: Final = ("queue", "name", "age", "gpus", "waiting")


@click.command(short_help="Show where gangs are, or why they wait and how long.")
@click.argument("words", metavar="[[KIND/]NAME]...", nargs=-1)
@click.option("-l", "--selector", metavar="SELECTOR", help="Only of workloads with these labels: team=a,stage!=test.")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default=SORTS[0],
    show_default=True,
    help="Order; queue: those that wait in the order of the queue, then the others by name.",
)
@namespace_options
@output_options
@cluster_options
def gangs(
    *,
    words: tuple[str, ...],
    selector: str | None,
    sort: str,
    namespace: str | None,
    all_namespaces: bool,
    output: str,
    watch: bool,
    interval: float,
    cluster: ClusterOptions,
) -> None:
    """Show gangs: those that wait in the order of the queue, with the planner's answer of this moment, then the others.

    START is when a gang fits if what runs takes all of its activeDeadlineSeconds and nothing new goes first; "unknown"
    where too little of what runs has a deadline. WAITING counts, as the turn in the queue does, from the creation of
    the workload or its last requeue. Without rights in other namespaces QUEUE is what the leader last wrote, and START
    is left out. Exit status 1 if a name is given that no gang has, or none with the labels.

    \b
    Example:
      topogate gangs
      topogate gangs -A -o wide --sort gpus
      topogate gangs -n alice -l team=vision -o json
      topogate gangs train job/tune
    """  # noqa: D301 - click wants the backspace itself
    from engine.resources.selectors import SelectorError, parse_selector
    from webhook.queries.subject import SubjectProblem
    from webhook.terminal.text import gangs_text

    try:
        labels = parse_selector(selector) if selector is not None else ()
    except SelectorError as error:
        fail(f"-l: {error}")
    caller = caller_of(cluster)
    wanted = None if all_namespaces else namespace or caller.namespace
    missing: list[str] = []
    try:
        answer_and_print(
            partial(reading, cluster, caller, namespace=wanted, labels=bool(labels)),
            partial(_asked, namespace=wanted, words=words, labels=labels, sort=sort, missing=missing),
            partial(
                gangs_text,
                namespaces=wanted is None,
                wide=output == "wide",
                looked_in=f"namespace {wanted}" if wanted is not None else "any namespace",
                some=bool(words or labels),
            ),
            Printed(output, watch, interval),
        )
    except SubjectProblem as problem:
        fail(str(problem))
    sys.exit(1 if missing else 0)


def _asked(
    snapshot: Snapshot,
    *,
    namespace: str | None,
    words: Sequence[str],
    labels: LabelSelector,
    sort: str,
    missing: list[str],
) -> GangsAnswer:
    """Return the gangs; `missing` is set to what is said of names that no gang has.

    Ends the program where no Placement may be read: running gangs would be missing, or wait.
    """
    from webhook.queries.gangs import gangs_and_missing
    from webhook.queries.subject import GangFilter

    hidden = any(
        one.collection == names.PLACEMENTS and one.except_in is None and not one.why for one in snapshot.unread
    )
    if hidden:
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        fail(f"the gangs of {where} are not known: no right to list {names.PLACEMENTS} there")
    only = GangFilter.of(snapshot, words, labels)
    found, missing[:] = gangs_and_missing(snapshot, namespace=namespace, only=only, sort=sort)
    return found
