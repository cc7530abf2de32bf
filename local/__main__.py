"""`python -m local`: a control plane in the background, for whoever works on this project."""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
from urllib3.exceptions import HTTPError

from local import additions, nodes
from local.client import ClientError
from local.controllers.building import ensure_controllers
from local.controllers.catalogue import CONTROLLERS, with_needed
from local.controllers.running import ControllerError, Controllers
from local.controlplane import ControlPlane, ControlPlaneError, KubectlError, failure, is_running
from local.modules import ProgramsError
from local.nodes import Grid
from local.programs import cache_directory, ensure_programs
from local.releases import DEFAULT, RELEASES
from local.service import end_recorded

P = ParamSpec("P")
R = TypeVar("R")


class GridType(click.ParamType[Grid]):
    """BLOCKSxRACKSxHOSTS."""

    name = "BLOCKSxRACKSxHOSTS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Grid:
        """Read "2x4x4"."""
        try:
            return value if isinstance(value, Grid) else Grid.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def faults_told(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the package's own errors into one message on stderr and exit status 1."""

    @functools.wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return command(*arguments, **options)
        except (
            ControlPlaneError,
            ControllerError,
            ProgramsError,
            KubectlError,
            ClientError,
            HTTPError,
            OSError,
        ) as error:
            raise click.ClickException(str(error)) from error

    return run


in_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: cache_directory() / "instance",
    show_default="in your cache directory",
    help="Directory of the cluster, with its kubeconfig and logs. Each directory is a cluster of its own.",
)


of_version = click.option(
    "--kubernetes",
    type=click.Choice(list(RELEASES)),
    default=DEFAULT,
    show_default=True,
    help="Version of Kubernetes; each is built once.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run a real Kubernetes control plane here, with simulated GPU nodes and without containers.

    It never reads or changes your current kubeconfig.

    \b
    Example:
      python -m local up --nodes 2x4x4
      eval "$(python -m local kubeconfig)"
      python -m local kubectl get nodes
      python -m local down
    """  # noqa: D301 - click wants the backspace itself


@main.command()
@in_directory
@click.option("--nodes", "grid", type=GridType(), default="2x4x4", show_default=True, help="Simulated GPU nodes.")
@click.option("--no-nodes", is_flag=True, help="Start without nodes.")
@of_version
@faults_told
def up(directory: Path, grid: Grid, no_nodes: bool, kubernetes: str) -> None:
    """Start a control plane in the background; it runs until `down`.

    The first time, its programs are built from their Go modules: about five minutes, later none.

    \b
    Example:
      python -m local up --nodes 8x16x4 --dir /tmp/big
      python -m local up --kubernetes 1.30 --dir /tmp/old
    """  # noqa: D301 - click wants the backspace itself
    directory = directory.absolute()
    if is_running(directory):
        click.echo(f"already running in {directory}", err=True)
        click.echo(_export(directory))
        return
    started = time.monotonic()
    found = ensure_programs(progress=_progress, kubernetes=kubernetes)
    running = ControlPlane.start(directory, programs=found, detached=True, progress=_progress)
    try:
        if not no_nodes:
            nodes.add(running.client, nodes.grid_nodes(grid))
    except BaseException:
        running.stop()
        raise
    count = 0 if no_nodes else grid.size
    _progress(
        f"ready in {time.monotonic() - started:.1f} s: {running.url}, {count} nodes; logs in {directory / 'logs'}"
    )
    running.client.close()
    click.echo(_export(directory))


@main.command()
@in_directory
@faults_told
def down(directory: Path) -> None:
    """End the control plane and forget its data; the logs stay. Exit status 1 when none runs.

    \b
    Example:
      python -m local down --dir /tmp/big
    """  # noqa: D301 - click wants the backspace itself
    running = ControlPlane.find(directory.absolute())
    end_recorded(running.directory)
    running.stop()
    _progress(f"stopped the control plane in {running.directory}")


@main.command()
@in_directory
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@faults_told
def status(directory: Path, output: str) -> None:
    """Tell whether a control plane runs: exit status 0 if so, 1 if not.

    \b
    Example:
      python -m local status -o json
    """  # noqa: D301 - click wants the backspace itself
    directory = directory.absolute()
    if not is_running(directory):
        if output == "json":
            click.echo(json.dumps({"running": False, "directory": str(directory), "reason": failure(directory)}))
        else:
            click.echo(failure(directory))
        sys.exit(1)
    running = ControlPlane.find(directory)
    names = {body["metadata"]["name"] for body in running.client.items(nodes.NODES)}
    ready = len(names) - len(nodes.unready(running.client, names))
    if output == "json":
        click.echo(
            json.dumps(
                {
                    "running": True,
                    "directory": str(directory),
                    "url": running.url,
                    "kubeconfig": str(running.kubeconfig),
                    "pids": dict(running.pids),
                    "nodes": len(names),
                    "nodesReady": ready,
                }
            )
        )
        return
    click.echo(f"running in {directory}: {running.url}, {ready} of {len(names)} nodes ready")
    for name, pid in running.pids.items():
        click.echo(f"  {name:24} pid {pid:<8} {running.log(name)}")
    click.echo(_export(directory))


@main.command()
@in_directory
@faults_told
def kubeconfig(directory: Path) -> None:
    """Print the line that points your shell at the control plane.

    \b
    Example:
      eval "$(python -m local kubeconfig)"
    """  # noqa: D301 - click wants the backspace itself
    click.echo(_export(ControlPlane.find(directory.absolute()).directory))


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@in_directory
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@faults_told
def kubectl(directory: Path, arguments: tuple[str, ...]) -> None:
    """Run the kubectl that was built with the control plane, as its admin.

    \b
    Example:
      python -m local kubectl get nodes -L cloud.provider.com/topology-rack
    """  # noqa: D301 - click wants the backspace itself
    running = ControlPlane.find(directory.absolute())
    program = str(running.programs["kubectl"])
    os.execve(program, [program, *arguments], {**os.environ, "KUBECONFIG": str(running.kubeconfig)})  # noqa: S606


@main.command()
@of_version
@faults_told
def programs(kubernetes: str) -> None:
    """Build the programs of the control plane, if they are missing, and print their paths.

    \b
    Example:
      python -m local programs
      python -m local programs --kubernetes 1.30
    """  # noqa: D301 - click wants the backspace itself
    for name, path in ensure_programs(progress=_progress, kubernetes=kubernetes).items():
        click.echo(f"{name:24} {path}")


@main.command()
@in_directory
@click.option("--build-only", is_flag=True, help="Only build the controllers; no control plane is needed.")
@click.argument("names", nargs=-1, type=click.Choice(list(CONTROLLERS)))
@faults_told
def controllers(directory: Path, names: tuple[str, ...], build_only: bool) -> None:
    """Run the real controllers of other workload kinds on the control plane; all of them if none is named.

    The first time, each is built from its Go module: two to four minutes, later none. They end with the control plane.

    \b
    Example:
      python -m local controllers jobset lws
    """  # noqa: D301 - click wants the backspace itself
    wanted = with_needed(names or CONTROLLERS)
    running = None if build_only else ControlPlane.find(directory.absolute())
    kubectl = ensure_programs(progress=_progress, only=["kubectl"])["kubectl"]
    built = ensure_controllers(wanted, kubectl=kubectl, progress=_progress)
    for name in wanted:
        if running is None:
            click.echo(f"{name:24} {built[name].program}")
        elif Controllers(running, built).runs(name):
            _progress(f"{name} already runs")
        else:
            started = time.monotonic()
            additions.remove(running.directory, name)
            Controllers(running, built).start(name)
            _progress(f"{name} is ready in {time.monotonic() - started:.1f} s; log in {running.log(name)}")


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _export(directory: Path) -> str:
    return f"export KUBECONFIG={shlex.quote(str(directory / 'kubeconfig'))}"


if __name__ == "__main__":
    main(prog_name="python -m local")
