"""`topogate verify`: whether an installation works, from its objects to a Job in a dry run."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import click

from engine.api.duration import DurationError, format_duration, parse_duration
from webhook.commands.findings import print_findings
from webhook.terminal.asking import caller_of
from webhook.terminal.options import ClusterOptions, cluster_options, fail, format_option, print_model, print_remarks

if TYPE_CHECKING:
    from webhook.checks.model import VerifyAnswer
    from webhook.snapshot.connection import Caller

PAUSE: Final = 2.0  # seconds between two rounds with --wait
LONGEST_WAIT: Final = 3600.0


class WaitTime(click.ParamType[float]):
    """A duration such as `2m`, at most an hour."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        try:
            seconds = value if isinstance(value, float) else parse_duration(str(value))
        except DurationError as error:
            self.fail(str(error), param, ctx)
        if not 0 <= seconds <= LONGEST_WAIT:
            self.fail(f"must be from 0s to {format_duration(LONGEST_WAIT)}", param, ctx)
        return seconds


@click.command(short_help="Check an installation end to end, and tell what to correct.")
@click.option("--wait", type=WaitTime(), metavar="DURATION", help="Check again until nothing fails, for so long: 2m.")
@click.option(
    "-n", "--namespace", metavar="NAME", help="Where the dry run is tried. Default: the namespace of the context."
)
@format_option
@cluster_options
def verify(*, wait: float | None, namespace: str | None, output: str, cluster: ClusterOptions) -> None:
    """Check an installation end to end: the API server, the CustomResourceDefinition, the replicas and who leads, the
    webhooks and their CA, the policy in force, the rights of the service, and a dry run that the webhooks answer.

    Nothing is written. Everything is asked with the rights of the caller; what he may not read is skipped. Exit status
    1 if a check fails.

    \b
    Example:
      topogate verify
      topogate verify --wait 2m
      topogate verify -n team-a -o json
    """  # noqa: D301 - click wants the backspace itself
    from webhook.checks.text import finding_texts, verdict_text

    caller = caller_of(cluster)
    found = _checked(caller, cluster, namespace or caller.namespace, wait=wait or 0.0)
    if output != "table":
        print_model(found, output)
    else:
        print_findings(finding_texts(found.findings), [verdict_text(found.findings)])
    sys.exit(0 if found.good else 1)


def _checked(caller: Caller, cluster: ClusterOptions, namespace: str, *, wait: float) -> VerifyAnswer:
    """Return the answer: the first good one, or that at the end of the time."""
    from webhook.checks.installation import verify as answer
    from webhook.checks.own_rights import needed_rights
    from webhook.snapshot.connection import ConnectionProblem
    from webhook.snapshot.live_installation import read_installation

    end, told = time.monotonic() + wait, ""
    while True:
        try:
            read = read_installation(
                caller.api, namespace=cluster.service_namespace, try_in=namespace, needed=needed_rights
            )
        except ConnectionProblem as problem:
            if time.monotonic() + PAUSE > end:
                fail(str(problem))
            waits_for = str(problem)
        else:
            found = answer(read, version=version("topogate"))
            if found.good or time.monotonic() + PAUSE > end:
                return found
            failed = [one for one in found.findings if one.result == "fail"]
            waits_for = f"{failed[0].check}: {failed[0].found}"
            waits_for += f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        if waits_for != told:
            told = waits_for
            print_remarks([f"{max(0, round(end - time.monotonic()))}s left: {told}"])
        time.sleep(PAUSE)
