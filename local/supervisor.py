"""The process that owns one control plane: starts its programs, watches them, and ends them with itself.

`python -m local.supervisor ORDER` where ORDER is JSON (see `Order`). It says one line of JSON on stdout, `{"ready": …}`
or `{"failed": "…"}`, and then lives until its stdin is closed (attached), until its parent is gone (attached), until
SIGTERM or SIGINT, or until one of its programs dies. A process of its own, because then it is all the same how the
one that wants a control plane ends, and which of its threads asked for it. On a line `restart` on its stdin it ends the
API server and starts it again, and says one more line, `{"restarted": PID}`, when that is ready.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

import click
import urllib3

from local import commands
from local.additions import Additions
from local.client import Client, ClientError
from local.commands import Layout
from local.credentials import Credentials, kubeconfig, make_credentials, write_private
from local.ports import free_ports
from local.processes import Child, spawn, tail

START_SECONDS = 120.0  # 3 s on an idle machine; a CI machine may be anything but idle
POLL_SECONDS = 0.03
WATCH_SECONDS = 0.2
LOCK_TRIES = 10
ATTEMPTS = 5
PKI = "pki"  # the folder of an instance's credentials
PORT_TAKEN = "address already in use"
RESTART = b"restart\n"
ASIDE_SECONDS = 10.0  # that the API server has to end by itself when it is restarted; it takes one or two


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: the folder of the instance, program files by name, extra API server flags, and for whom.

    `environment` is that of the programs beside PATH and HOME. `parent` is the pid of the process that this instance
    belongs to; 0: nobody's (it lives until it is told to end).
    """

    directory: str
    programs: Mapping[str, str]
    api_server_flags: list[str]
    environment: Mapping[str, str]
    parent: int


class StartError(Exception):
    """A program did not start, or died; the text quotes its log."""


class Ended(Exception):
    """Somebody wants us to end."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("order", metavar="ORDER")
def main(order: str) -> None:
    """Run one control plane until its end; `python -m local up` starts this, with its ORDER as JSON."""
    try:
        found = Order(**json.loads(order))
    except (ValueError, TypeError) as error:
        raise click.BadParameter(f"not an order ({error}); use python -m local up", param_hint="ORDER") from None
    sys.exit(supervise(found))


def supervise(order: Order) -> int:
    """Run one control plane until its end; return the exit status."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    directory = Path(order.directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        if not _take(lock):
            _say(failed=f"a control plane already runs in {directory}")
            return 1
        return _supervised(order, directory)


def _take(lock: IO[str]) -> bool:
    # More than one try: somebody who only looks whether we run holds the lock for a moment.
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(POLL_SECONDS)
    return False


def _supervised(order: Order, directory: Path) -> int:
    children: dict[str, Child] = {}
    state = directory / "state.json"
    additions = Additions(directory)
    try:
        state.unlink(missing_ok=True)
        layout = start(order, directory, children)
        record = {
            "pid": os.getpid(),
            "url": layout.url,
            "pids": {name: child.process.pid for name, child in children.items()},
            "programs": order.programs,
        }
        write_private(state, json.dumps(record).encode())
        _say(ready=record)
        _watch(order, layout, children, additions)
    except StartError as error:
        write_private(directory / "failure.txt", f"{error}\n".encode())
        _say(failed=str(error))
        return 1
    except Ended:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        additions.kill()
        for child in reversed(children.values()):
            child.kill()
        state.unlink(missing_ok=True)
        shutil.rmtree(directory / "etcd", ignore_errors=True)
    return 0


def start(order: Order, directory: Path, children: dict[str, Child]) -> Layout:
    """Start all programs, put each into `children` as soon as it runs, and return when pods can be created.

    Raises StartError; what is in `children` then is the caller's to end.
    """
    (directory / "failure.txt").unlink(missing_ok=True)
    shutil.rmtree(directory / "logs", ignore_errors=True)
    credentials = make_credentials(directory / PKI, now=datetime.datetime.now(datetime.UTC))
    deadline = time.monotonic() + START_SECONDS
    for attempt in range(1, ATTEMPTS + 1):
        layout = _layout(order, directory, credentials)
        try:
            _start_storage(order, layout, children, deadline)
            break
        except StartError as error:
            if PORT_TAKEN not in str(error) or attempt == ATTEMPTS:
                raise
            for child in children.values():
                child.kill()
            children.clear()
    for name, token in credentials.tokens.items():
        content = kubeconfig(layout.url, ca_certificate=credentials.ca_certificate, user=name, token=token)
        write_private(layout.kubeconfig(name), content)
        if name == "admin":
            write_private(directory / "kubeconfig", content)
    _spawn(order, "kube-controller-manager", commands.controller_manager(layout), layout, children)
    _spawn(order, "kube-scheduler", commands.scheduler(layout), layout, children)
    _spawn(order, "kwok", commands.kwok(layout), layout, children)
    _await_controllers(order, layout, children, deadline)
    return layout


def _layout(order: Order, directory: Path, credentials: Credentials) -> Layout:
    etcd_port, etcd_peer_port, api_port = free_ports(3)
    return Layout(
        directory=directory,
        programs={name: Path(path) for name, path in order.programs.items()},
        credentials=credentials,
        etcd_port=etcd_port,
        etcd_peer_port=etcd_peer_port,
        api_port=api_port,
    )


def _start_storage(order: Order, layout: Layout, children: dict[str, Child], deadline: float) -> None:
    """Start etcd and the API server (it waits for etcd by itself) until the latter is ready."""
    shutil.rmtree(layout.directory / "etcd", ignore_errors=True)
    _spawn(order, "etcd", commands.etcd(layout), layout, children)
    _spawn(order, "kube-apiserver", commands.api_server(layout, order.api_server_flags), layout, children)
    client = _admin(layout)
    try:
        _poll(order, children, deadline, "kube-apiserver", lambda: _ready(client))
    finally:
        client.close()


def _ready(client: Client) -> bool:
    # A short time: a stranger may listen on the port, while our API server says in its log that it cannot.
    return bool(client.request("GET", "/readyz", timeout=1.0) == "ok")


def _await_controllers(order: Order, layout: Layout, children: dict[str, Child], deadline: float) -> None:
    """Wait for the default service account, without which no pod is admitted: the controller manager makes it."""
    client = _admin(layout)
    path = "/api/v1/namespaces/default/serviceaccounts/default"
    try:
        _poll(order, children, deadline, "kube-controller-manager", lambda: client.find(path) is not None)
    finally:
        client.close()


def _poll(order: Order, children: Mapping[str, Child], deadline: float, waits_for: str, condition: Any) -> None:
    while True:
        _check(order, children)
        try:
            if condition():
                return
        except (ClientError, urllib3.exceptions.HTTPError):
            pass
        if time.monotonic() > deadline:
            log = children[waits_for].log
            raise StartError(f"{waits_for} is not ready after {START_SECONDS:.0f} s; its log {log} ends:\n{tail(log)}")
        time.sleep(POLL_SECONDS)


def _watch(order: Order, layout: Layout, children: dict[str, Child], additions: Additions) -> None:
    while True:
        _check(order, children)
        additions.tend()
        if order.parent:
            readable, _, _ = select.select([sys.stdin], [], [], WATCH_SECONDS)
            said = os.read(sys.stdin.fileno(), 4096) if readable else None
            if said == b"":
                raise Ended
            if said == RESTART:
                _restart_api_server(order, layout, children)
        else:
            time.sleep(WATCH_SECONDS)


def _restart_api_server(order: Order, layout: Layout, children: dict[str, Child]) -> None:
    """End the API server as an upgrade of it would, and start it again; the others go on and connect anew."""
    name = "kube-apiserver"
    old = children[name].process
    old.terminate()
    try:
        old.wait(ASIDE_SECONDS)
    except subprocess.TimeoutExpired:
        children[name].kill()
    _spawn(order, name, commands.api_server(layout, order.api_server_flags), layout, children)
    client = _admin(layout)
    try:
        _poll(order, children, time.monotonic() + START_SECONDS, name, lambda: _ready(client))
    finally:
        client.close()
    _say(restarted=children[name].process.pid)


def _check(order: Order, children: Mapping[str, Child]) -> None:
    # The pipe alone is not enough: a process that our parent forked may hold its other end open.
    if order.parent and os.getppid() != order.parent:
        raise Ended
    for child in children.values():
        if not child.running:
            status = child.process.returncode
            raise StartError(f"{child.name} ended with status {status}; its log {child.log} ends:\n{tail(child.log)}")


def _spawn(order: Order, name: str, command: list[str], layout: Layout, children: dict[str, Child]) -> None:
    # Nothing of the user's environment: no proxy, no KUBECONFIG, no GODEBUG changes what runs here.
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(layout.directory), **order.environment}
    children[name] = spawn(name, command, log=layout.directory / "logs" / f"{name}.log", environment=environment)


def _admin(layout: Layout) -> Client:
    credentials = layout.credentials
    return Client(
        layout.url, token=credentials.tokens["admin"], ca_certificate=credentials.ca_certificate, connections=1
    )


def _say(**line: Any) -> None:
    # Whoever started us may be gone: that is for the watching loop to notice, not for a print.
    try:
        print(json.dumps(line), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise Ended


def order_text(order: Order) -> str:
    """Return the command-line argument for an order."""
    return json.dumps(asdict(order))


if __name__ == "__main__":
    main(prog_name="python -m local.supervisor")
