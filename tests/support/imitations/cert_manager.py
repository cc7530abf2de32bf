"""Imitates cert-manager and the kubelet: signs into the directory that is mounted, and writes what is to be trusted."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import yaml

from local.client import Client
from local.service import NAMESPACE, Service
from tests.support.certificates import DAY, TestAuthority, mount
from tests.support.charts import kustomized, objects
from webhook.service.own_objects import CONFIGURATIONS

HOOKS = "/apis/admissionregistration.k8s.io/v1"
NAMES = (f"topogate.{NAMESPACE}.svc", "127.0.0.1")


def apply_component(service: Service) -> None:
    """Apply the manifests with the component `cert-manager`, as far as they are for a service without containers."""
    plane, folder = service.control_plane, service.directory / "component"
    folder.mkdir(exist_ok=True)
    component = kustomized(plane.programs["kubectl"], folder, "components/cert-manager")
    wanted = objects(service.manifests())
    for key, one in wanted.items():
        if key[0] in ("Role", "ClusterRole"):
            wanted[key] = component[key]
        elif key[0].endswith("WebhookConfiguration"):
            one["metadata"] = component[key]["metadata"]
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=yaml.safe_dump_all(wanted.values()))


def bundles(client: Client, *names: str) -> set[bytes]:
    """What the webhooks of the four configurations trust, or of those with these names."""
    found = set()
    for resource, name in CONFIGURATIONS:
        if name in (names or (name,)):
            webhooks = client.get(f"{HOOKS}/{resource}/{name}").get("webhooks") or []
            found |= {base64.b64decode(one["clientConfig"].get("caBundle") or "") for one in webhooks}
    return found


class CertManager:
    """A CA of its own; the certificates that it makes for the service go into `directory`."""

    def __init__(self, client: Client, directory: Path) -> None:
        self.client = client
        self.directory = directory
        self.authority = TestAuthority.make(now=time.time(), name="topogate", days=3650)
        self._start = time.time()
        self._days = 1.0

    def files(self, *hosts: str) -> dict[str, bytes]:
        """Return a certificate that lives a little longer than the last one, so that they can be told apart."""
        self._days += 0.1
        return self.authority.leaf(*(hosts or NAMES), begin=time.time() - 60, end=self.end)

    @property
    def end(self) -> int:
        """When the last certificate ends."""
        return int(self._start + self._days * DAY)

    def issue(self) -> None:
        """Let the kubelet mount a new certificate."""
        mount(self.directory, self.files())

    def inject(self, *authorities: TestAuthority) -> None:
        """Write the bundle into every webhook of the four configurations, as the CA injector does."""
        bundle = base64.b64encode(b"".join(one.pem for one in authorities)).decode()
        for resource, name in CONFIGURATIONS:
            path = f"{HOOKS}/{resource}/{name}"
            webhooks = (self.client.find(path) or {}).get("webhooks") or []
            change = [{"name": one["name"], "clientConfig": {"caBundle": bundle}} for one in webhooks]
            self.client.patch(path, {"webhooks": change}, kind="strategic")
