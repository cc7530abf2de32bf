"""`topogate support-bundle`: one archive about an installation, for a ticket, without secrets."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from webhook.terminal.asking import caller_of, reading
from webhook.terminal.options import ClusterOptions, cluster_options, fail, print_line, print_remarks

if TYPE_CHECKING:
    from webhook.bundle.reading import BundleFile
    from webhook.snapshot.snapshot import Snapshot


@click.command("support-bundle", short_help="Write one archive about the installation, without secrets.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.tar.gz",
    help="Default: topogate-support-TIME.tar.gz here. An existing file is not overwritten.",
)
@cluster_options
def support_bundle(*, file: Path | None, cluster: ClusterOptions) -> None:
    """Write one archive about the installation: versions, policy, webhook configurations, gangs, nodes, logs, metrics.

    It holds no Secrets, tokens, environment, commands or foreign annotations; its README.md lists what is left out and
    what could not be read. Nothing is sent anywhere. Exit status 0 if everything could be read, else 1; the archive is
    written in both cases.

    \b
    Example:
      topogate support-bundle
      topogate support-bundle -o /tmp/ticket-4711.tar.gz
    """  # noqa: D301 - click wants the backspace itself
    from webhook.bundle.archive import about, write_archive
    from webhook.bundle.reading import BundleFile, read_bundle
    from webhook.snapshot.connection import ConnectionProblem

    now = time.time()
    stamp = datetime.fromtimestamp(now, UTC)
    folder = f"topogate-support-{stamp:%Y%m%d-%H%M%S}"
    file = file or Path(f"{folder}.tar.gz")
    if file.exists():
        fail(f"{file}: exists already")
    if not file.parent.is_dir():  # told before the cluster is read
        fail(f"{file}: there is no directory {file.parent}")
    caller = caller_of(cluster)
    try:
        snapshot = reading(cluster, caller)
    except ConnectionProblem as problem:
        fail(str(problem))
    click.echo("topogate: reading configurations, logs and metrics", err=True)
    members = [*_answers(snapshot), *read_bundle(caller.api, namespace=cluster.service_namespace)]
    page = about(members, when=f"{stamp:%Y-%m-%d %H:%M:%S} UTC", version=version("topogate"), remarks=snapshot.remarks)
    try:
        size = write_archive(file, [BundleFile("README.md", page), *members], folder=folder, mtime=now)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    print_line(f"{file}: {size / 1024:,.0f} KiB; look through it before you pass it on")
    problems = [f"{one.name}: {one.problem}" for one in members if one.problem and not one.absent]
    print_remarks([*problems, *snapshot.remarks])
    sys.exit(1 if problems or snapshot.unread else 0)


def _answers(snapshot: Snapshot) -> list[BundleFile]:
    """Return gangs, topologies and workloads as the other commands see them."""
    from webhook.bundle.reading import BundleFile, as_json
    from webhook.bundle.workloads import workloads_member
    from webhook.queries.gangs import gangs
    from webhook.queries.topologies import topologies
    from webhook.snapshot.snapshot import AnswerProblem

    found = [BundleFile("gangs/gangs.json", as_json(gangs(snapshot).model_dump(mode="json", by_alias=True)))]
    found.append(workloads_member(snapshot.view))
    try:
        shown = topologies(snapshot).model_dump(mode="json", by_alias=True)
        found.append(BundleFile("gangs/topologies.json", as_json(shown)))
    except AnswerProblem as problem:
        found.append(BundleFile("gangs/topologies.json", problem=str(problem)))
    return found
