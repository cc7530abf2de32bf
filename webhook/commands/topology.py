"""`topogate topology`: the racks with what is free and what fits now, and what is wrong with levels and labels."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from webhook.commands.findings import print_findings
from webhook.terminal.asking import Printed, answer_and_print, caller_of, reading
from webhook.terminal.inputs import objects_of
from webhook.terminal.options import (
    ClusterOptions,
    cluster_options,
    fail,
    format_option,
    output_options,
    print_model,
    print_remarks,
)

if TYPE_CHECKING:
    from webhook.snapshot.snapshot import Snapshot


@click.group()
def topology() -> None:
    """Look at the topologies of a cluster.

    \b
    Example:
      topogate topology show
      topogate topology doctor
    """  # noqa: D301 - click wants the backspace itself


@topology.command("show", short_help="Show every domain with its GPUs by state, and what fits now.")
@click.option("--topology", "name", metavar="NAME", help="Only this topology. Default: all of the policy.")
@click.option("--level", metavar="LEVEL", help="Only the domains of this level; host: with every host and its gangs.")
@click.option(
    "--gpus",
    type=click.IntRange(0, 4096),
    metavar="N",
    help="GPUs of each pod of the gangs that are tried. Default: 8, or all of the largest host.",
)
@output_options
@cluster_options
def show(
    *,
    name: str | None,
    level: str | None,
    gpus: int | None,
    output: str,
    watch: bool,
    interval: float,
    cluster: ClusterOptions,
) -> None:
    """Show every domain of the topologies: hosts, GPUs by state, and the largest gang that fits now.

    FREE counts hosts on which as many pods fit as on an empty one. The GPUs of a domain are used, reserved for pods to
    come, kept for a gang that waits, out of use (cordoned, not ready, tainted, faulty), or free.

    \b
    Example:
      topogate topology show
      topogate topology show --level rack --gpus 4 -o wide
      topogate topology show --watch
    """  # noqa: D301 - click wants the backspace itself
    from webhook.queries.topologies import topologies
    from webhook.snapshot.snapshot import AnswerProblem
    from webhook.terminal.text import topologies_text

    caller = caller_of(cluster)
    try:
        answer_and_print(
            partial(reading, cluster, caller),
            partial(topologies, name=name, level=level, gpus=gpus),
            partial(topologies_text, wide=output == "wide"),
            Printed(output, watch, interval),
        )
    except AnswerProblem as problem:
        fail(str(problem))


@topology.command("doctor", short_help="Check the levels and node labels, and tell what to correct.")
@click.option("--topology", "name", metavar="NAME", help="Only this topology. Default: all of the policy.")
@click.option(
    "--cluster",
    "files",
    multiple=True,
    metavar="FILE",
    help="Nodes, and the policy's ConfigMap, from files instead of a cluster; - reads standard input.",
)
@format_option
@cluster_options
def doctor(*, name: str | None, files: tuple[str, ...], output: str, cluster: ClusterOptions) -> None:
    """Check the topologies: nodes that are left out and why, labels that contradict each other, levels that decide
    nothing, levels in the policy or in requests of gangs that do not exist, and which preset fits.

    Topogate need not be installed. Without a policy the answer is about the levels that the nodes' labels give. Exit
    status 1 if something is wrong or missing: a line begins with fail or warn.

    \b
    Example:
      topogate topology doctor
      kubectl get nodes -o json | topogate topology doctor --cluster -
    """  # noqa: D301 - click wants the backspace itself
    from webhook.checks.text import doctor_advice, finding_texts, verdict_text
    from webhook.checks.topologies import doctor as answer
    from webhook.snapshot.connection import ConnectionProblem
    from webhook.snapshot.files import FileProblem
    from webhook.snapshot.snapshot import AnswerProblem

    try:
        found = answer(_of_files(files) if files else _of_cluster(cluster), name=name)
    except (AnswerProblem, ConnectionProblem, FileProblem) as problem:
        fail(str(problem))
    if output != "table":
        print_model(found, output)
    else:
        print_findings(finding_texts(found.findings), [verdict_text(found.findings), *doctor_advice(found)])
        print_remarks(found.remarks)
    sys.exit(0 if found.good else 1)


def _of_cluster(cluster: ClusterOptions) -> Snapshot:
    return reading(cluster, caller_of(cluster), topologies_alone=True)


def _of_files(files: Sequence[str]) -> Snapshot:
    from webhook.snapshot.snapshot import snapshot_of_files

    if files.count("-") > 1:
        fail("standard input (-) can be read only once")
    return snapshot_of_files(objects_of(files), taken=time.time())
