"""`topogate history`: what the service has decided, from its logs: placed, waited, repaired, given up, and why."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click

from webhook.terminal.asking import ReadingProgress, caller_of
from webhook.terminal.inputs import open_input
from webhook.terminal.options import (
    FORMATS,
    ClusterOptions,
    cluster_options,
    fail,
    namespace_options,
    print_model,
    print_remarks,
    print_sections,
)

if TYPE_CHECKING:
    from webhook.history.model import HistoryAnswer
    from webhook.history.parts import LogPart

_SINCE: Final = "12h"


@click.command(short_help="Show what the service has decided, and why, from its logs.")
@click.argument("name", metavar="[KIND/NAME]", required=False)
@click.option("--since", metavar="DURATION", help=f"How far back, such as 90m. Default: {_SINCE}, of files everything.")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Saved logs of the service instead of a cluster's; - reads stdin.",
)
@namespace_options
@click.option("-o", "--output", default="table", show_default=True, type=click.Choice(FORMATS))
@cluster_options
def history(
    *,
    name: str | None,
    since: str | None,
    files: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    output: str,
    cluster: ClusterOptions,
) -> None:
    """Show what the service has decided about gangs, and what happened to its policy and its leader.

    The records are lines of the logs of the service's pods, those of the previous container too. They reach as far back
    as these logs: the answer says since when it is complete. For longer, keep the logs and read them with -f, all
    namespaces unless -n names one. Reading them needs the rights to list pods and to get pods/log in the service's
    namespace.

    Exit status 1 if KIND/NAME has no records, else 0.

    \b
    Example:
      topogate history -A --since 12h
      topogate history job/train -n alice -o wide
      kubectl logs -n topogate-system POD --previous | topogate history -f -
    """  # noqa: D301 - click wants the backspace itself
    from engine.api.duration import DurationError, parse_duration
    from webhook.history.answer import HistoryFilter, answer_of
    from webhook.history.logs import LogsProblem, service_logs
    from webhook.queries.subject import SubjectProblem, named

    if all_namespaces and namespace is not None:
        namespace = None
    try:
        gang = named(name) if name is not None else None
        back = parse_duration(since or _SINCE) if since is not None or not files else None
    except (SubjectProblem, DurationError) as problem:
        fail(f"--since {problem}" if isinstance(problem, DurationError) else str(problem))
    now = time.time()
    begin = max(0.0, now - back) if back is not None else None
    if files:
        wanted = HistoryFilter(begin, namespace, gang)
        answer = answer_of(_of_files(files, begin), wanted, now=now, one_log=True)
    else:
        assert begin is not None
        caller = caller_of(cluster)
        wanted = HistoryFilter(begin, None if all_namespaces else namespace or caller.namespace, gang)
        try:
            with ReadingProgress("reading logs, {:,} lines so far") as progress:
                found = service_logs(
                    caller.api, namespace=cluster.service_namespace, since=begin, now=now, progress=progress.add
                )
        except LogsProblem as problem:
            fail(str(problem))
        answer = answer_of(found.parts, wanted, now=now, one_log=False, problems=found.problems)
    _print(answer, output, namespaces=wanted.namespace is None)
    sys.exit(1 if gang is not None and not answer.records else 0)


def _of_files(files: tuple[str, ...], since: float | None) -> list[LogPart]:
    from webhook.history.parts import lines_of, read_part

    if files.count("-") > 1:
        fail("standard input (-) can be read only once")
    found = []
    for file in files:
        with open_input(file) as stream:
            # Its name may be no UTF-8, as JSON must be.
            name = "stdin" if file == "-" else file.encode("utf-8", "backslashreplace").decode()
            found.append(read_part(name, lines_of(stream), since=since))
    return found


def _print(answer: HistoryAnswer, output: str, *, namespaces: bool) -> None:
    from webhook.terminal.history_text import history_text

    if output in ("json", "yaml"):
        print_model(answer, output)
        return
    print_sections(history_text(answer, namespaces=namespaces, wide=output == "wide"))
    print_remarks(answer.remarks)
