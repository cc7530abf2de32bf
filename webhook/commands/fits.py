"""`topogate fits`: whether a gang of some size would start now, what would fit instead, and when it fits later."""

from __future__ import annotations

import sys
from functools import partial

import click

from engine.api.text import quote
from webhook.terminal.asking import Printed, answer_and_print, caller_of, reading
from webhook.terminal.options import ClusterOptions, cluster_options, fail, output_options, print_remarks

_MOST_PODS = 100_000


class PodCount(click.ParamType[int]):
    """A number of pods; other commands take a namespace by the same letter."""

    name = "pods"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        text = str(value)
        try:
            count = int(text)
        except ValueError:
            self.fail(
                f"{quote(text)} is no number: -n is the number of pods here; the namespace is --namespace", param, ctx
            )
        if not 1 <= count <= _MOST_PODS:
            self.fail(f"{count:,} is not in the range 1 to {_MOST_PODS:,}", param, ctx)
        return count


@click.command(short_help="Tell whether a gang of some size would start now, and what would.")
@click.option("-n", "--pods", required=True, type=PodCount(), metavar="N", help="Pods of the gang: 1 to 100,000.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(0, 4096), metavar="N", help="GPUs per pod.")
@click.option("--require", metavar="LEVEL", help="All pods in one domain of this level.")
@click.option("--prefer", metavar="LEVEL", help="As few domains of this level as possible.")
@click.option("--topology", "name", metavar="NAME", help="Default: the policy's first one.")
@click.option("--namespace", metavar="NAME", help="Whose quotas and limits count. Default: that of the context.")
@output_options
@cluster_options
def fits(
    *,
    pods: int,
    gpus: int,
    require: str | None,
    prefer: str | None,
    name: str | None,
    namespace: str | None,
    output: str,
    watch: bool,
    interval: float,
    cluster: ClusterOptions,
) -> None:
    """Tell whether a gang would start now, as the leader would answer a Job of this size. Nothing is created.

    If it does not fit: the domains with most room, the levels at which it would fit, and when it fits later as far as
    what runs declares its end. Exit status 0 if it fits now, else 1.

    \b
    Example:
      topogate fits -n 16 --gpus 8 --require rack
      topogate fits -n 16 --namespace alice --prefer rack -o json
    """  # noqa: D301 - click wants the backspace itself
    from webhook.explanations.fits import fits as answer
    from webhook.snapshot.snapshot import AnswerProblem
    from webhook.terminal.text import fits_text

    caller = caller_of(cluster)
    wanted = namespace or caller.namespace
    ask = partial(answer, pods=pods, gpus=gpus, topology=name, require=require, prefer=prefer, namespace=wanted)
    try:
        found = answer_and_print(partial(reading, cluster, caller), ask, fits_text, Printed(output, watch, interval))
    except AnswerProblem as problem:
        print_remarks(problem.causes)
        fail(str(problem))
    sys.exit(0 if found.fits else 1)
