"""`topogate topology show`: the racks with what is free, used, reserved, kept and out of use, and what fits now."""

from __future__ import annotations

from functools import partial

import click

from webhook.commands.asking import Printed, answer_and_print, caller_of, reading
from webhook.commands.options import ClusterOptions, cluster_options, fail, output_options


@click.group()
def topology() -> None:
    """Look at the topologies of a cluster.

    \b
    Example:
      topogate topology show
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
    from webhook.queries.probe import ProbeProblem
    from webhook.queries.text import topologies_text
    from webhook.queries.topologies import topologies

    caller = caller_of(cluster)
    try:
        answer_and_print(
            partial(reading, cluster, caller),
            partial(topologies, name=name, level=level, gpus=gpus),
            partial(topologies_text, wide=output == "wide"),
            Printed(output, watch, interval),
        )
    except ProbeProblem as problem:
        fail(str(problem))
