"""One controller on one control plane: its manifests applied, its process under the supervisor, a probe answered.

    controllers = Controllers(control_plane, ensure_controllers(["jobset"], ...))
    controllers.start("jobset")

It speaks to the API server as its own ServiceAccount with its own roles, as it would in a cluster. It ends with the
control plane.
"""

from __future__ import annotations

import datetime
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from local import additions
from local.additions import Addition
from local.client import ClientError
from local.controllers.building import Built
from local.controllers.manifests import Fitted, fit
from local.controlplane import ControlPlane
from local.credentials import kubeconfig, make_webhook_certificates, write_private
from local.ports import free_ports
from local.processes import tail

CERTIFICATES = ("ca.crt", "ca.key", "tls.crt", "tls.key")
TOKEN_SECONDS = 24 * 3600
START_SECONDS = 180.0
POLL_SECONDS = 0.05
ATTEMPTS = 5
PORT_TAKEN = "address already in use"
# What others wrote is not checked by kubectl: for that it would have the API server write down all its schemas, which
# on a busy machine takes longer than it waits.
APPLY = ("apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-")


class ControllerError(Exception):
    """A controller did not start, or died; the text quotes its log."""


@dataclass(slots=True)
class Controllers:
    """The controllers of one control plane; `running` are those that were started, by name."""

    control_plane: ControlPlane
    built: Mapping[str, Built]
    running: dict[str, Fitted] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        """Start controllers and wait until each has answered its probe; those that run already are only looked at.

        Raises ControllerError.
        """
        for name in names:
            if name not in self.running:
                self.start(*(first for first in self.built[name].controller.after if not self.runs(first)))
                self.running[name] = self._start(self.built[name])
        self.check()

    def check(self) -> None:
        """Raise ControllerError when one of them has died, with the end of its log."""
        for name in self.running:
            why = additions.ended(self.control_plane.directory, name)
            if why is not None:
                raise ControllerError(why)

    def stop(self, name: str) -> None:
        """End a controller and take its webhooks away, which nobody would answer; its custom resources stay."""
        fitted = self.running.pop(name)
        additions.remove(self.control_plane.directory, name)
        for configuration in fitted.webhooks:
            self.control_plane.client.delete(configuration)

    def runs(self, name: str) -> bool:
        """Whether a controller's process is there, whoever started it."""
        directory = self.control_plane.directory
        return additions.pid(directory, name) is not None and additions.ended(directory, name) is None

    def pid(self, name: str) -> int | None:
        """The process of a controller."""
        return additions.pid(self.control_plane.directory, name)

    def log(self, name: str) -> str:
        """What a controller said."""
        return self.control_plane.log(name).read_text(encoding="utf-8", errors="replace")

    def _start(self, built: Built) -> Fitted:
        name = built.controller.name
        directory = self.control_plane.directory
        for attempt in range(1, ATTEMPTS + 1):
            webhook_port, health_port = free_ports(2)
            fitted = self._install(built, webhook_port)
            additions.add(directory, name, self._addition(built, fitted, webhook_port, health_port))
            try:
                self._await_probe(built)
                return fitted
            except ControllerError as error:
                self._end(name, fitted)
                if PORT_TAKEN not in str(error) or attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _end(self, name: str, fitted: Fitted) -> None:
        additions.remove(self.control_plane.directory, name)
        for path in fitted.webhooks:
            self.control_plane.client.delete(path)

    def _install(self, built: Built, webhook_port: int) -> Fitted:
        """Apply what the controller needs, with webhooks at this port."""
        controller = built.controller
        folder = self._certificates(controller.name)
        now = datetime.datetime.now(datetime.UTC)
        make_webhook_certificates(folder, authority=controller.authority, service=controller.service, now=now)
        certificates = {name: (folder / name).read_bytes() for name in CERTIFICATES}
        url = f"https://127.0.0.1:{webhook_port}"
        fitted = fit(json.loads(built.manifests.read_bytes()), controller, url=url, certificates=certificates)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": fitted.objects})
        self.control_plane.kubectl(*APPLY, input=text)
        client = self.control_plane.client
        deadline = time.monotonic() + START_SECONDS
        while not all(_established(client.get(definition)) for definition in fitted.definitions):
            if time.monotonic() > deadline:
                raise ControllerError(f"the custom resources of {controller.name} are not established")
            time.sleep(POLL_SECONDS)
        return fitted

    def _addition(self, built: Built, fitted: Fitted, webhook_port: int, health_port: int) -> Addition:
        controller = built.controller
        folder = self._folder(controller.name)
        values: dict[str, object] = {
            "webhook_port": webhook_port,
            "health_port": health_port,
            "certificates": self._certificates(controller.name),
            "configuration": folder / "configuration.json",
        }
        write_private(folder / "configuration.json", json.dumps(_filled(controller.configuration, values)).encode())
        write_private(folder / "kubeconfig", self._kubeconfig(fitted))
        return Addition(
            command=[str(built.program), *(str(_filled(argument, values)) for argument in controller.arguments)],
            environment={"HOME": str(folder), "TMPDIR": str(folder), "KUBECONFIG": str(folder / "kubeconfig")},
        )

    def _kubeconfig(self, fitted: Fitted) -> bytes:
        namespace, account = fitted.account
        answer = self.control_plane.client.create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": TOKEN_SECONDS},
            },
        )
        return kubeconfig(
            self.control_plane.url,
            ca_certificate=self.control_plane.ca_certificate,
            user=account,
            token=answer["status"]["token"],
        )

    def _folder(self, name: str) -> Path:
        folder = self.control_plane.directory / "controllers" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _certificates(self, name: str) -> Path:
        # Where controller-runtime looks by itself, below TMPDIR.
        return self._folder(name) / "k8s-webhook-server" / "serving-certs"

    def _await_probe(self, built: Built) -> None:
        """Create the probe, until that is possible, and wait for its answer."""
        controller = built.controller
        probe, client = controller.probe, self.control_plane.client
        name = f"probe-{secrets.token_hex(3)}"
        own = f"{probe.path}/{name}"
        deadline = time.monotonic() + START_SECONDS
        body = _named(_filled(probe.body, {"name": name}), name)
        needs = {path: _named(_filled(needed, {"name": name}), name) for path, needed in probe.needs.items()}
        last = "nothing yet"
        while True:
            why = additions.ended(self.control_plane.directory, controller.name)
            if why is not None:
                raise ControllerError(why)
            try:
                for path, needed in needs.items():
                    client.find(f"{path}/{name}") or client.create(path, needed)
                found = client.find(own) or client.create(probe.path, body)
                answer = None if probe.answer is None else Template(probe.answer).substitute(name=name)
                if client.find(answer) if answer else found.get("status"):
                    client.delete(own)
                    if answer:
                        client.delete(answer)  # the garbage collector learns of new kinds every 30 s
                    for path in needs:
                        client.delete(f"{path}/{name}")
                    return
            except ClientError as error:
                last = str(error)  # its webhooks do not listen yet
            if time.monotonic() > deadline:
                log = self.control_plane.log(controller.name)
                raise ControllerError(
                    f"{controller.name} did not answer its probe {own} in {START_SECONDS:.0f} s (API server: {last}); "
                    f"its log {log} ends:\n{tail(log)}"
                )
            time.sleep(POLL_SECONDS)


def _named(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**body, "metadata": {**body.get("metadata", {}), "name": name}}


def _established(definition: Mapping[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _filled(value: Any, values: Mapping[str, object]) -> Any:
    """Return JSON with its $variables filled in; a string that is a variable alone becomes that value, if a number."""
    match value:
        case Mapping():
            return {name: _filled(one, values) for name, one in value.items()}
        case str() if isinstance(values.get(value.removeprefix("$")), int) and value.startswith("$"):
            return values[value.removeprefix("$")]
        case str():
            return Template(value).substitute(values)
        case _:
            return value
