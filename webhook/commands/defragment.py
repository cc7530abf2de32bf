"""`topogate defragment`: which few restarts would let a waiting gang fit, or put a split one closer together."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from webhook.terminal.asking import Printed, ReadingProgress, answer_and_print, caller_of, reading
from webhook.terminal.inputs import content_of, objects_of
from webhook.terminal.options import ClusterOptions, cluster_options, fail, output_options, print_remarks

if TYPE_CHECKING:
    from webhook.queries.model import DefragmentAnswer
    from webhook.snapshot.snapshot import Snapshot

_MOST: Final = 16


@click.command(short_help="Show which few restarts would let a waiting gang fit.")
@click.option("--gang", "word", metavar="[KIND/]NAME", help="Only for this gang.")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="For gangs of this namespace. Default: of all; with --gang that of the context.",
)
@click.option(
    "--max-gangs",
    type=click.IntRange(1, _MOST),
    metavar="N",
    help="At most so many restarts for one gang. Default: the policy's defragment.maxGangs.",
)
@click.option(
    "--cluster",
    "files",
    multiple=True,
    metavar="FILE",
    help="The cluster in files, as kubectl get -o json prints it, instead of a live one; - reads stdin.",
)
@click.option("--policy", "policy_file", metavar="FILE", help="With --cluster: policy.yaml, or its ConfigMap.")
@output_options
@cluster_options
def defragment(
    *,
    word: str | None,
    namespace: str | None,
    max_gangs: int | None,
    files: tuple[str, ...],
    policy_file: str | None,
    output: str,
    watch: bool,
    interval: float,
    cluster: ClusterOptions,
) -> None:
    """Show which few running gangs would have to restart elsewhere so that a waiting gang fits, and what that costs.

    For each gang that waits although there is room in total: the fewest running gangs, of these the smallest and
    youngest, that free a place for it and fit elsewhere themselves. For each running gang that is split over more
    domains than it prefers: the restarts that reduce them. Only gangs restart that can be suspended, have no higher
    priority and are not protected by the policy (defragment.protect). Nothing is changed.

    Exit status 1 if a gang waits for room, or is named, and no restarts were found that help it, else 0.

    \b
    Example:
      topogate defragment
      topogate defragment --gang job/train -n alice -o json
      kubectl get nodes,pods,jobs,placements -A -o json | topogate defragment --cluster -
    """  # noqa: D301 - click wants the backspace itself
    from webhook.queries.subject import SubjectProblem
    from webhook.snapshot.files import FileProblem
    from webhook.snapshot.snapshot import AnswerProblem
    from webhook.terminal.defragment_text import defragment_text

    if policy_file is not None and not files:
        fail("--policy is for a cluster in files (--cluster); a live one has its own")
    if files and watch:
        fail("--watch needs a live cluster")
    if (*files, policy_file).count("-") > 1:
        fail("standard input (-) can be read only once")
    caller = caller_of(cluster) if not files else None
    context = caller.namespace if caller is not None else "default"
    wanted = namespace if word is None else namespace or context
    try:
        found = answer_and_print(
            partial(_in_files, files, policy_file) if caller is None else partial(reading, cluster, caller),
            partial(_asked, namespace=wanted, word=word, most_gangs=max_gangs),
            defragment_text,
            Printed(output, watch, interval),
        )
    except AnswerProblem as problem:
        print_remarks(problem.causes)
        fail(str(problem))
    except (SubjectProblem, FileProblem) as problem:
        fail(str(problem))
    sys.exit(1 if found.others else 0)


def _in_files(files: Sequence[str], policy_file: str | None) -> Snapshot:
    from webhook.snapshot.cluster import policy_of
    from webhook.snapshot.files import MAX_BYTES, policy_text
    from webhook.snapshot.snapshot import snapshot_of_files

    policy = None
    if policy_file is not None:
        text = policy_text(content_of(policy_file, limit=MAX_BYTES), name=policy_file)
        policy = policy_of(text, where=policy_file)
    return snapshot_of_files(objects_of(files), taken=time.time(), policy=policy)


def _asked(snapshot: Snapshot, *, namespace: str | None, word: str | None, most_gangs: int | None) -> DefragmentAnswer:
    from webhook.explanations.defragment import defragment as answer
    from webhook.queries.subject import GangFilter

    only = GangFilter.of(snapshot, [word]) if word is not None else None
    with ReadingProgress("searching, {:,} plans so far") as progress:
        return answer(snapshot, namespace=namespace, only=only, most_gangs=most_gangs, progress=progress)
