"""The Lease of the service in a real cluster."""

from __future__ import annotations

from typing import Final

from local.client import Client
from local.service import NAMESPACE
from tests.support.gangs import Json

LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/topogate"


def holder(client: Client) -> str:
    """Whom the Lease names; "" if nobody."""
    lease: Json = client.find(LEASE) or {"spec": {}}
    return str(lease["spec"].get("holderIdentity") or "")
