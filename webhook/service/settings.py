"""The settings of one replica from flags and environment, validated once."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.api import names
from webhook.admission.budget import REVIEW_CPU
from webhook.connections.listener import EVERYWHERE

# Domains with metrics of their own, of all topologies together; four series each.
MOST_DOMAINS: Final = 500

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MOST: Final = 63  # characters of a value in a message
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SettingsError(ValueError):
    """An unusable setting; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything except the policy that differs between installations and replicas."""

    namespace: str
    identity: str
    kubeconfig: str | None = None
    host: str = EVERYWHERE
    port: int = 8443
    ops_host: str = EVERYWHERE
    ops_port: int = 8080
    threads: int = 4
    review_cpu: float = REVIEW_CPU  # seconds of processor time that one review may use
    domain_metrics: int = MOST_DOMAINS  # domains with metrics of their own
    service_account: str = names.SERVICE_ACCOUNT
    addresses: tuple[str, ...] = ()  # IP addresses that the serving certificate names beside the Service
    client_ca: Path | None = None  # file with the CAs of clients; None: whoever reaches the port may call
    client_names: tuple[str, ...] = ()  # names of which a client's certificate must have one; (): any
    certificates_from: Path | None = None  # directory with tls.crt, tls.key and ca.crt; None: a CA of our own

    def __post_init__(self) -> None:
        """Check the addresses. Raises SettingsError."""
        for one in self.addresses:
            try:
                ipaddress.ip_address(one)
            except ValueError:
                raise SettingsError(f"--address: {one[:_MOST]!r} is no IP address") from None

    @property
    def username(self) -> str:
        """Return our user name at the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.service_account}"

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Return the DNS names that the API server uses for the Service."""
        service = f"{names.SERVICE_NAME}.{self.namespace}"
        return (f"{service}.svc", f"{service}.svc.cluster.local", service)


def own_namespace(environment: Mapping[str, str] = os.environ) -> str:
    """Return the namespace that we run in: TOPOGATE_NAMESPACE, the pod's own, else topogate-system.

    Raises SettingsError if it is no valid namespace name.
    """
    name = environment.get("TOPOGATE_NAMESPACE", "")
    if not name and _NAMESPACE_FILE.is_file():
        name = _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    name = name or names.NAMESPACE
    if not _DNS_LABEL.fullmatch(name):
        raise SettingsError(f"TOPOGATE_NAMESPACE: {name[:_MOST]!r} is no namespace name")
    return name


def own_identity(environment: Mapping[str, str] = os.environ) -> str:
    """Return our identity for the Lease: the pod's name, made unique for overlapping containers of one pod."""
    name = environment.get("POD_NAME") or socket.gethostname()
    return f"{name[:63]}_{secrets.token_hex(4)}"
