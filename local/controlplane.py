"""One control plane, seen from whoever wants one: start it, talk to it, stop it.

    with ControlPlane.start(folder) as cluster:
        cluster.kubectl("get", "nodes")

The programs belong to a supervisor process (supervisor.py); this is its front. The current kubeconfig is never read
or written.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from local.client import Client
from local.credentials import read_token
from local.processes import tail
from local.programs import ensure_programs
from local.supervisor import PKI, RESTART, Order, order_text
from local.webhook_client import WebhookClient

ROOT = Path(__file__).parent.parent
STOP_SECONDS = 10.0
WEBHOOK_CLIENT = "webhook-client"  # the folder of the certificate for webhooks
OWN_KUBECONFIG = "admin.kubeconfig"  # as it was made: people may change the one that they are given


class ControlPlaneError(Exception):
    """It did not start or is not there; the text quotes the log of the program at fault."""


class KubectlError(Exception):
    """kubectl ended with a status other than 0; the text has the command and what it said."""

    def __init__(self, arguments: Sequence[str], status: int, stdout: str, stderr: str) -> None:
        super().__init__(f"kubectl {' '.join(arguments)} ended with status {status}:\n{stderr or stdout}")
        self.status = status
        self.stdout = stdout
        self.stderr = stderr


@dataclass(slots=True)
class ControlPlane:
    """A running instance: `url`, `token` and `ca_certificate` are the admin's way in; `pids` by program name."""

    directory: Path
    programs: Mapping[str, Path]
    url: str
    pid: int
    pids: Mapping[str, int]
    client: Client
    _supervisor: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        programs: Mapping[str, Path] | None = None,
        api_server_flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        webhook_client: bool = False,
        detached: bool = False,
        progress: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
    ) -> Self:
        """Start an instance in `directory` (made if absent) and return when it takes requests.

        It ends with `stop`, and with this process however that ends; a detached one lives on until `stop`. Its programs
        have `environment` beside PATH and HOME. With `webhook_client` the API server presents a client certificate to
        webhooks.
        Raises ControlPlaneError, and ProgramsError of programs.py.
        """
        files = dict(programs or ensure_programs(progress=progress))
        directory = directory.absolute()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = list(api_server_flags)
        if webhook_client:
            client = WebhookClient(directory / WEBHOOK_CLIENT)
            client.make(now=datetime.datetime.now(datetime.UTC))
            flags.append(client.flag)
        order = Order(
            directory=str(directory),
            programs={name: str(path) for name, path in files.items()},
            api_server_flags=flags,
            environment=dict(environment or {}),
            parent=0 if detached else os.getpid(),
        )
        log = directory / "supervisor.log"
        with log.open("wb") as errors:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "local.supervisor", order_text(order)],
                stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        try:
            record = _first_word(supervisor, log)
        except BaseException:
            _end(supervisor)
            raise
        return cls._attached(directory, record, supervisor)

    @classmethod
    def find(cls, directory: Path) -> Self:
        """Return the instance that runs in `directory`; raises ControlPlaneError when none does."""
        if not is_running(directory):
            raise ControlPlaneError(f"no control plane runs in {directory}")
        try:
            record = json.loads((directory / "state.json").read_bytes())
        except FileNotFoundError:
            raise ControlPlaneError(f"the control plane in {directory} is still starting") from None
        return cls._attached(directory, record, None)

    @classmethod
    def _attached(
        cls,
        directory: Path,
        record: Mapping[str, Any],
        supervisor: subprocess.Popen[bytes] | None,
    ) -> Self:
        return cls(
            directory=directory,
            programs={name: Path(path) for name, path in record["programs"].items()},
            url=record["url"],
            pid=record["pid"],
            pids=record["pids"],
            client=Client(record["url"], token=admin_token(directory), ca_certificate=directory / PKI / "ca.crt"),
            _supervisor=supervisor,
        )

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig for people, who may change it (`kubectl config`): nothing here reads it."""
        return self.directory / "kubeconfig"

    @property
    def ca_certificate(self) -> Path:
        """The CA that signed the API server's certificate."""
        return self.directory / PKI / "ca.crt"

    @property
    def webhook_client(self) -> WebhookClient:
        """The certificate that the API server presents to webhooks, if it was started with one."""
        return WebhookClient(self.directory / WEBHOOK_CLIENT)

    @property
    def token(self) -> str:
        """The admin's bearer token."""
        return admin_token(self.directory)

    def log(self, program: str) -> Path:
        """The log file of one program."""
        return self.directory / "logs" / f"{program}.log"

    def kubectl(
        self, *arguments: str, input: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin; `input` is what `-f -` reads.

        Raises KubectlError when `check` and the status is not 0.
        """
        done = subprocess.run(
            [self.programs["kubectl"], f"--kubeconfig={self.directory / OWN_KUBECONFIG}", *arguments],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.directory)},
        )
        if check and done.returncode != 0:
            raise KubectlError(arguments, done.returncode, done.stdout, done.stderr)
        return done

    def restart_api_server(self) -> None:
        """End the API server, start it again on the same port, and return when it is ready; its clients connect anew.

        Only for an instance that this process has started.
        """
        supervisor = self._supervisor
        if supervisor is None or supervisor.stdin is None or supervisor.stdout is None:
            raise ControlPlaneError("only the process that has started a control plane can restart its API server")
        supervisor.stdin.write(RESTART)
        supervisor.stdin.flush()
        said = supervisor.stdout.readline()
        word = json.loads(said) if said else {"failed": failure(self.directory)}
        if "failed" in word:
            raise ControlPlaneError(word["failed"])
        self.pids = {**self.pids, "kube-apiserver": int(word["restarted"])}

    def check(self) -> None:
        """Raise ControlPlaneError when it has ended, with the reason."""
        if not is_running(self.directory):
            raise ControlPlaneError(failure(self.directory))

    def stop(self) -> None:
        """End all of its programs; twice is fine."""
        self.client.close()
        if self._supervisor is not None:
            _end(self._supervisor)
            return
        if not is_running(self.directory):
            return
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while is_running(self.directory):
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)  # the kernel ends the programs with it
                return
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def is_running(directory: Path) -> bool:
    """Whether a supervisor holds the lock of this folder (a pid alone may long be somebody else's)."""
    try:
        with (directory / "lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def failure(directory: Path) -> str:
    """Return why the instance in this folder ended."""
    try:
        return (directory / "failure.txt").read_text().rstrip()
    except FileNotFoundError:
        return f"no control plane runs in {directory}"


def admin_token(directory: Path) -> str:
    """Return the admin's token, as the API server knows it."""
    return read_token(directory / PKI, "admin")


def _first_word(supervisor: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    assert supervisor.stdout is not None
    said = supervisor.stdout.readline()
    if not said:
        supervisor.wait()
        raise ControlPlaneError(f"the supervisor ended with status {supervisor.returncode}:\n{tail(log)}")
    word = json.loads(said)
    if "failed" in word:
        raise ControlPlaneError(word["failed"])
    ready: dict[str, Any] = word["ready"]
    return ready


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    for pipe in (supervisor.stdin, supervisor.stdout):
        _close(pipe)
    if supervisor.poll() is None:
        supervisor.terminate()
    try:
        supervisor.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        pipe.close()
