"""Our service on a local control plane: the manifests applied, replicas as processes, under their own ServiceAccount.

Two replicas share one port (SO_REUSEPORT), so the webhook's URL needs no proxy: the kernel spreads the connections, and
a killed replica's share goes to the other. Each runs with a token from TokenRequest and only the rights of the
manifests' RBAC: a missing rule shows here.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
import yaml

from local.controlplane import ControlPlane
from local.ports import free_ports, held_port
from local.processes import Child, spawn, tail

ROOT = Path(__file__).resolve().parent.parent
NAMESPACE = "topogate-system"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/topogate"
TOKEN_SECONDS = 24 * 3600
READY_SECONDS = 180.0  # 3 s on an idle machine; a CI machine may be anything but idle
STOP_SECONDS = 60.0  # after these a replica is killed
PAGE_SECONDS = 20.0  # a page takes milliseconds, and who asks for one does not ask how busy the machine is
PIDS = "pids"
CONFIGURATIONS = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topogate",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/topogate",
)


class ServiceError(Exception):
    """The service did not start; the message quotes its log."""


@dataclass(slots=True)
class Replica:
    """One process of the service."""

    number: int
    ops_port: int
    child: Child

    def ready(self) -> bool:
        """True when /readyz says so."""
        return self.page("/readyz")[0] == 200  # noqa: PLR2004 - HTTP

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of a path of the plain port; status 0 when nobody answers."""
        try:
            answer = urllib3.request(
                "GET", f"http://127.0.0.1:{self.ops_port}{path}", timeout=PAGE_SECONDS, retries=False
            )
        except urllib3.exceptions.HTTPError:
            return 0, ""
        return answer.status, answer.data.decode(errors="replace")

    def leads(self) -> bool:
        """True when this replica holds the Lease."""
        return "\ntopogate_leader 1.0" in self.page("/metrics")[1]

    def kill(self) -> None:
        """End all of its processes as a crash would: kill -9."""
        _signal_group(self.child, signal.SIGKILL)
        self.child.process.wait()

    def terminate(self, timeout: float = STOP_SECONDS) -> int:
        """End it as Kubernetes would (SIGTERM) and return its exit status."""
        self.child.process.send_signal(signal.SIGTERM)
        return self.child.process.wait(timeout)

    def log(self) -> str:
        """What it said."""
        return self.child.log.read_text(encoding="utf-8", errors="replace")


@dataclass(slots=True)
class Service:
    """The installed service; `replicas` are those that run or ran, by number, `options` further ones of `serve`.

    `root` is the checkout whose manifests and code are meant, `api_server` the URL that replicas use (of a proxy; else
    the control plane's own), `environment` what they have beside PATH and such. A change counts for replicas that are
    started later.
    """

    control_plane: ControlPlane
    port: int
    directory: Path
    replicas: dict[int, Replica] = field(default_factory=dict)
    log_format: str = "text"
    options: tuple[str, ...] = ()
    root: Path = ROOT
    api_server: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def install(cls, control_plane: ControlPlane, *, root: Path = ROOT) -> Service:
        """Apply the local overlay of the manifests; nothing runs yet. May be repeated."""
        service = cls(control_plane, held_port(), control_plane.directory / "service", root=root)
        service.directory.mkdir(mode=0o700, exist_ok=True)
        service.apply()
        return service

    def apply(self) -> None:
        """Apply the manifests as they are under `root`; running replicas go on."""
        plane = self.control_plane
        plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=self.manifests())
        plane.kubectl("wait", "--for=condition=Established", "crd/placements.topogate.dev", "--timeout=30s")

    def manifests(self) -> str:
        """The local overlay with this instance's port."""
        rendered = self.control_plane.kubectl("kustomize", str(self.root / "manifests" / "overlays" / "local")).stdout
        return rendered.replace("127.0.0.1:PORT", f"127.0.0.1:{self.port}")

    def start(self, count: int = 2, *, wait: bool = True, outlive: bool = False) -> list[Replica]:
        """Start replicas 0..count-1 (those that do not run) and wait until they serve and their CA is known.

        With `outlive` they go on when this process ends.
        """
        for number in range(count):
            if number not in self.replicas or not self.replicas[number].child.running:
                self._spawn(number, outlive=outlive)
        running = [self.replicas[number] for number in range(count)]
        if wait:
            self.await_ready(running)
        return running

    def await_ready(self, replicas: list[Replica] | None = None) -> None:
        """Wait until replicas are ready and the CA bundle stands in the webhook configurations; raises ServiceError."""
        wanted = self.running() if replicas is None else replicas
        self._await(lambda: all(replica.ready() for replica in wanted), "a replica is not ready", wanted)
        self._await(self.injected, "the webhook configurations have no CA bundle", wanted)

    def injected(self) -> bool:
        """True when every webhook of both configurations has a CA bundle."""
        for path in CONFIGURATIONS:
            webhooks: list[dict[str, Any]] = self.control_plane.client.get(path)["webhooks"]
            if not all(webhook["clientConfig"].get("caBundle") for webhook in webhooks):
                return False
        return True

    def running(self) -> list[Replica]:
        """The replicas whose process lives."""
        return [replica for replica in self.replicas.values() if replica.child.running]

    def leader(self) -> Replica | None:
        """The replica that leads, if one says so."""
        return next((replica for replica in self.running() if replica.leads()), None)

    def kill_all(self) -> None:
        """End every replica as a crash would."""
        for replica in self.running():
            replica.kill()

    def stop(self) -> None:
        """End every replica gracefully; those that do not end in time are killed."""
        for replica in self.running():
            replica.child.process.send_signal(signal.SIGTERM)
        for replica in self.running():
            try:
                replica.child.process.wait(STOP_SECONDS)
            except Exception:
                replica.kill()

    def _spawn(self, number: int, *, outlive: bool) -> None:
        kubeconfig = self._kubeconfig(number)
        ops_port = free_ports(1)[0]
        command = [
            sys.executable,
            *("-m", "webhook.cli", "serve"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--ops-host", "127.0.0.1", "--ops-port", str(ops_port)),
            *("--address", "127.0.0.1", "--kubeconfig", str(kubeconfig), "--log-format", self.log_format),
            *self.options,
        ]
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.directory),
            "PYTHONPATH": str(self.root),
            "MALLOC_ARENA_MAX": "2",  # as in the image
            "PYTHONFAULTHANDLER": "1",  # a crash in native code leaves its stack in the log
            "POD_NAME": f"topogate-{number}",
            "TOPOGATE_NAMESPACE": NAMESPACE,
            **self.environment,
        }
        log = self.directory / f"replica-{number}.log"
        child = spawn(f"topogate-{number}", command, log=log, environment=environment, outlive=outlive)
        self.replicas[number] = Replica(number, ops_port, child)
        if outlive:
            with (self.directory / PIDS).open("a", encoding="ascii") as pids:
                pids.write(f"{child.process.pid}\n")

    def _kubeconfig(self, number: int) -> Path:
        """A kubeconfig with a token of the service's own account."""
        client = self.control_plane.client
        token = client.create(
            f"{ACCOUNT}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": TOKEN_SECONDS},
            },
        )["status"]["token"]
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "local",
                    "cluster": {
                        "server": self.api_server or self.control_plane.url,
                        "certificate-authority": str(self.control_plane.ca_certificate),
                    },
                }
            ],
            "users": [{"name": "topogate", "user": {"token": token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "topogate"}}],
            "current-context": "local",
        }
        path = self.directory / f"replica-{number}.kubeconfig"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            yaml.safe_dump(content, file)
        return path

    def _await(self, condition: Callable[[], bool], problem: str, replicas: list[Replica]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            dead = [replica for replica in replicas if not replica.child.running]
            if dead or time.monotonic() > deadline:
                quoted = "\n".join(f"{one.child.name}:\n{tail(one.child.log)}" for one in dead or replicas)
                pages = "\n".join(one.page("/readyz")[1] for one in replicas)
                raise ServiceError(f"{problem}\n{pages}\n{quoted}")
            time.sleep(0.05)


def end_recorded(directory: Path) -> None:
    """End replicas that outlived the process that started them, in the folder of a control plane."""
    record = directory / "service" / PIDS
    if not record.is_file():
        return
    for line in record.read_text(encoding="ascii").split():
        command = Path(f"/proc/{line}/cmdline")
        # The number may be somebody else's by now.
        if command.is_file() and b"webhook.cli" in command.read_bytes():
            os.kill(int(line), signal.SIGTERM)
    record.unlink()


def _signal_group(child: Child, number: int) -> None:
    """Signal the process and its worker: they are a session of their own."""
    try:
        os.killpg(child.process.pid, number)
    except ProcessLookupError:
        return
