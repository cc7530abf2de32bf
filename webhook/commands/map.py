"""`topogate map`: the racks, the gangs and what is in their way as a web page, live or in one file."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from webhook.terminal.asking import NOT_INSTALLED, caller_of, reading
from webhook.terminal.options import ClusterOptions, cluster_options, fail, interval_option, print_remarks

if TYPE_CHECKING:
    from webhook.map.history import History
    from webhook.map.model import MapFrame
    from webhook.snapshot.connection import Caller

_PRIVATE: Final = 0o600  # it names everything that its caller may see


@click.command("map", short_help="Show racks, gangs and what is free as a web page, live or in one file.")
@click.option(
    "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write one HTML file and end, instead of serving."
)
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port on 127.0.0.1 of the live page. Default: a free one.",
)
@interval_option("Pause between two readings of the cluster.")
@cluster_options
def map_command(*, output: str | None, port: int, interval: float, cluster: ClusterOptions) -> None:
    """Show the racks with their hosts and GPUs, who holds them, who waits and what is in the way, as a web page.

    Live: the page is served on 127.0.0.1 under the printed address, which contains a random part; nobody without it can
    see the page. It is read with your rights, again after each pause, until Ctrl-C. The last minutes can be looked at
    again. With --output: one file that needs no server and loads nothing. It contains all names that you may read.

    \b
    Example:
      topogate map
      topogate map --output map.html
    """  # noqa: D301 - click wants the backspace itself
    from engine.api.text import plural
    from webhook.map.history import History

    caller = caller_of(cluster)
    frame = _first(cluster, caller)
    if output is not None:
        _write(Path(output), frame)
        hosts = sum(len(one.nodes) for one in frame.topologies)
        click.echo(f"{output}: {plural(hosts, 'host')}, {plural(len(frame.gangs), 'gang')}, read at {frame.taken_at}")
        return
    history = History()
    history.add(frame)
    _serve(history, cluster, caller, port=port, interval=interval)


def _first(cluster: ClusterOptions, caller: Caller) -> MapFrame:
    """Return the first frame; ends the program with one line where there is none."""
    from webhook.snapshot.connection import ConnectionProblem
    from webhook.snapshot.snapshot import AnswerProblem

    try:
        frame = _frame(cluster, caller)
    except (ConnectionProblem, AnswerProblem) as problem:
        fail(str(problem))
    print_remarks(frame.remarks)
    return frame


def _frame(cluster: ClusterOptions, caller: Caller) -> MapFrame:
    """Return the frame of now. Raises ConnectionProblem, and AnswerProblem where nodes or Placements are missing."""
    from webhook.map.frame import map_frame
    from webhook.snapshot.snapshot import AnswerProblem

    with _uncollected():
        snapshot = reading(cluster, caller)
        if not snapshot.installed:
            raise AnswerProblem(NOT_INSTALLED)
        return map_frame(snapshot)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect the garbage of before, then none: a snapshot is hundreds of thousands of objects that live until the end.

    The collector would look at all of them again and again, a quarter of the time on 10,000 hosts.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _write(path: Path, frame: MapFrame) -> None:
    """Write the page; a file that is there is replaced as a whole or stays as it is, a pipe or device is written to."""
    from webhook.map.page import static_page

    page = static_page(frame)
    try:
        if path.exists() and not path.is_file():
            path.write_text(page, encoding="utf-8")
            return
        kept = path.stat().st_mode & 0o777 if path.is_file() else _PRIVATE
        descriptor, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(page)
            Path(name).chmod(kept)
            Path(name).replace(path.resolve())
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        fail(f"{path}: {error.strerror}")


def _serve(history: History, cluster: ClusterOptions, caller: Caller, *, port: int, interval: float) -> None:
    """Serve the page and read the cluster again and again, until Ctrl-C."""
    from webhook.map.server import ADDRESS, MapServer
    from webhook.snapshot.connection import ConnectionProblem
    from webhook.snapshot.snapshot import AnswerProblem

    try:
        server = MapServer(history, port=port)
    except OSError as error:
        fail(f"port {port} on {ADDRESS}: {error.strerror}")
    server.start()
    pause = threading.Event()
    try:
        click.echo(server.address)
        click.echo("topogate: open this address in a browser of this machine; Ctrl-C ends it", err=True)
        while True:
            pause.wait(interval)
            try:
                history.add(_frame(cluster, caller))
            except (ConnectionProblem, AnswerProblem) as problem:
                if history.problem != str(problem):
                    print_remarks([f"{problem}; trying again"])
                history.problem = str(problem)
    except KeyboardInterrupt:
        click.echo("topogate: ended", err=True)
    finally:
        server.close()
