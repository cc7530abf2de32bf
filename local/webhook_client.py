"""The certificate that the API server presents to webhooks, if that is wanted, and its admission configuration."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path

from local.credentials import make_client_certificate, write_private

NAME = "kube-apiserver"  # the common name of the certificate
PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


@dataclass(frozen=True, slots=True)
class WebhookClient:
    """The files of one instance: `ca.crt`, `ca.key`, `tls.crt`, `tls.key`, and what the API server reads."""

    directory: Path

    @property
    def ca_certificate(self) -> Path:
        """The CA that a webhook server asks for."""
        return self.directory / "ca.crt"

    @property
    def flag(self) -> str:
        """The API server's flag."""
        return f"--admission-control-config-file={self.directory / 'admission.json'}"

    def make(self, *, now: datetime.datetime) -> None:
        """Write all files; one kubeconfig with one user for every webhook."""
        make_client_certificate(self.directory, authority="topogate-local-webhook-clients", name=NAME, now=now)
        user = {"client-certificate": str(self.directory / "tls.crt"), "client-key": str(self.directory / "tls.key")}
        config = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
        write_private(self.directory / "kubeconfig", json.dumps(config).encode())
        plugin = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(self.directory / "kubeconfig"),
        }
        admission = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": name, "configuration": plugin} for name in PLUGINS],
        }
        write_private(self.directory / "admission.json", json.dumps(admission).encode())
