"""Where gangs are measured on real programs: a control plane with hosts, and replicas of the service."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from bench import audit
from bench.bound import WatchEnded
from bench.gang import POLICY
from bench.waiting import until
from local import nodes
from local.controllers.running import ControllerError
from local.controlplane import ControlPlane, ControlPlaneError
from local.modules import ProgramsError
from local.nodes import Grid
from local.service import NAMESPACE, Service, ServiceError

FAULTS = (ControlPlaneError, ProgramsError, ControllerError, ServiceError, TimeoutError, WatchEnded)
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


class Stage:
    """A control plane that writes an audit log; the service once it was asked for."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self._service: Service | None = None

    def install(self) -> Service:
        """Install the service and its policy; no replica runs yet."""
        service = self._service = Service.install(self.cluster)
        policy = {"metadata": {"name": "topogate-policy"}, "data": {"policy.yaml": POLICY}}
        self.cluster.client.create(CONFIG_MAPS, policy)
        return service

    def serve(self, replicas: int) -> Service:
        """Install the service and its policy, and start so many replicas; returns when one leads."""
        service = self.install()
        service.start(replicas)
        until(lambda: service.leader() is not None, "a replica leads")
        return service

    def stop(self) -> None:
        """End the replicas, then the control plane."""
        if self._service is not None:
            self._service.stop()
        self.cluster.stop()

    def logs(self) -> list[str]:
        """The end of each replica's log."""
        return [replica.log()[-4000:] for replica in self._service.replicas.values()] if self._service else []


def add_options(parser: argparse.ArgumentParser, *, grid: Grid) -> None:
    """Options of `stage`, and how many replicas are to serve."""
    parser.add_argument("--grid", type=Grid.parse, default=grid, help=f"BLOCKSxRACKSxHOSTS ({grid})")
    parser.add_argument("--replicas", type=int, default=2, help="replicas of the service (2)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and the audit log")


def some_of(known: Iterable[str], what: str) -> Callable[[str], list[str]]:
    """Reads an option's names with commas between them; each has to be known."""
    names = tuple(known)

    def read(text: str) -> list[str]:
        found = text.split(",")
        if unknown := set(found) - set(names):
            raise argparse.ArgumentTypeError(
                f"no such {what}: {', '.join(sorted(unknown))}; there are {', '.join(names)}"
            )
        return found

    return read


@contextmanager
def stage(options: argparse.Namespace, console: Console, *, hosts: bool = True) -> Iterator[Stage]:
    """A stage of its own, for as long as the block runs; without `hosts` it has none at first.

    What does not come up, or ends meanwhile, is told with the replicas' logs, and SystemExit says 1; an interrupt 130.
    """
    directory = Path(tempfile.mkdtemp(prefix="topogate-bench-"))
    built: Stage | None = None
    try:
        built = Stage(ControlPlane.start(directory, api_server_flags=audit.flags(directory)))
        if hosts:
            nodes.add(built.cluster.client, nodes.grid_nodes(options.grid))
        yield built
    except FAULTS as error:
        console.print(f"[bold red]failed:[/] {error}")
        for log in built.logs() if built is not None else ():
            console.print(log, markup=False)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        if built is not None:
            built.stop()
        if options.keep:
            console.print(f"logs: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
