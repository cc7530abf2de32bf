"""`topogate explain`: why a gang, a pod or a workload is where it is, or is not, and what would change that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from webhook.terminal.asking import Printed, answer_and_print, caller_of, reading
from webhook.terminal.options import ClusterOptions, cluster_options, fail, namespace_option, output_options

if TYPE_CHECKING:
    from webhook.queries.model import ExplainAnswer, PastEvent
    from webhook.queries.subject import Subject
    from webhook.snapshot.connection import Caller
    from webhook.snapshot.snapshot import Snapshot

GOOD: Final = ("placed", "fits", "ignored", "finished")
Submit = Callable[["Snapshot", Sequence[str], str], list["Subject"]]
"""Adds the objects of files to a snapshot as if they were submitted, and returns what to explain."""


def explain_command(submit: Submit) -> click.Command:
    """Return the command; `submit` runs the admission of `simulate`, which is not known here."""

    @click.command(short_help="Explain where a gang or pod is, why it waits, and what would change that.")
    @click.argument("name", metavar="[KIND/NAME]", required=False)
    @click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        metavar="FILE",
        help="Workloads that are not submitted; - reads stdin.",
    )
    @namespace_option
    @output_options
    @cluster_options
    def explain(
        *,
        name: str | None,
        files: tuple[str, ...],
        namespace: str | None,
        output: str,
        watch: bool,
        interval: float,
        cluster: ClusterOptions,
    ) -> None:
        """Explain a workload of any kind that is placed, a pod, a Placement, or a file that is not submitted.

        A gang that waits: what each level needs and has, what is in the way, who goes first, and changes with which it
        would start, each of them planned. A gang with slots: its pods with ranks, hosts, devices, and why one is late.
        Anything else: why Topogate leaves it alone, or holds it. Nothing is written, also with -f.

        Exit status 0 if it has slots, fits now, has ended or is left alone, else 1.

        \b
        Example:
          topogate explain job/train
          topogate explain pod/train-3 -n alice
          topogate explain -f train.yaml -o json
        """  # noqa: D301 - click wants the backspace itself
        from webhook.queries.subject import SubjectProblem
        from webhook.snapshot.files import FileProblem
        from webhook.terminal.explain_text import explain_text

        if (name is None) == (not files):
            fail("name one object as KIND/NAME, or files with -f")
        if files.count("-") > 1 or (watch and "-" in files):
            fail("standard input (-) can be read only once")
        caller = caller_of(cluster)
        wanted = namespace or caller.namespace
        ask = partial(_asked, caller=caller, submit=submit, name=name, files=files, namespace=wanted)
        try:
            found = answer_and_print(
                partial(reading, cluster, caller, namespace=wanted),
                ask,
                partial(explain_text, wide=output == "wide"),
                Printed(output, watch, interval),
            )
        except (SubjectProblem, FileProblem) as problem:
            fail(str(problem))
        sys.exit(0 if all(one.verdict in GOOD for one in found.gangs) else 1)

    return explain


def _asked(
    snapshot: Snapshot, *, caller: Caller, submit: Submit, name: str | None, files: Sequence[str], namespace: str
) -> ExplainAnswer:
    from webhook.explanations.explain import explain as answer
    from webhook.queries.subject import subject_of

    if name is None:
        return answer(snapshot, submit(snapshot, files, namespace))
    return answer(snapshot, [subject_of(snapshot, name, namespace=namespace)], events=partial(past_events, caller))


def past_events(
    caller: Caller, namespace: str, objects: Sequence[tuple[str, str]]
) -> tuple[list[PastEvent], str | None]:
    """Return the Events about objects (name and uid), and why they could not be read, if so."""
    from webhook.queries.model import PastEvent
    from webhook.snapshot.past_events import events_about

    found, problem = events_about(caller.api, namespace, objects)
    return [PastEvent(at=one.at, reason=one.reason, message=one.note, count=one.count) for one in found], problem
