"""What was asked of the API server, from its audit log: the only count that can tell our requests from all others.

The metric apiserver_request_total has no user in it; the audit log has, and each request's start and end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from local.service import NAMESPACE

OURS = f"system:serviceaccount:{NAMESPACE}:topogate"

# Metadata of what is counted (our writes) and of what a slow run is explained with (pods and Jobs, by anybody). Leases
# are renewed by the clock and cost the same without any gang.
POLICY = f"""
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{{group: coordination.k8s.io, resources: [leases]}}]
- level: Metadata
  users: ["{OURS}"]
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  verbs: [create, patch, update]
  resources:
  - {{group: "", resources: [pods, pods/binding]}}
  - {{group: batch, resources: [jobs, jobs/status]}}
- level: None
"""


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request; times are seconds since the epoch."""

    user: str
    verb: str
    resource: str  # with its subresource: "jobs/status"
    namespace: str
    name: str
    status: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Entry(msgspec.Struct, rename="camel"):
    stage: str
    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: _User = _User()
    object_ref: _Object = _Object()
    response_status: _Status = _Status()


_decode = msgspec.json.Decoder(_Entry).decode


def flags(directory: Path) -> list[str]:
    """Flags of an API server that writes `log_file(directory)`; writes the policy that they name."""
    policy = directory / "audit-policy.yaml"
    policy.write_text(POLICY, encoding="ascii")
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log_file(directory)}", "--audit-log-maxsize=2000"]


def log_file(directory: Path) -> Path:
    """Where the API server writes."""
    return directory / "audit.log"


def read(path: Path, *, namespaces: Sequence[str]) -> dict[str, list[Request]]:
    """The finished requests about objects of these namespaces, in the order of their end."""
    wanted: dict[str, list[Request]] = {name: [] for name in namespaces}
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            entry = _decode(line)
            about = entry.object_ref
            if entry.stage != "ResponseComplete" or about.namespace not in wanted:
                continue
            wanted[about.namespace].append(
                Request(
                    user=entry.user.username,
                    verb=entry.verb,
                    resource=f"{about.resource}/{about.subresource}" if about.subresource else about.resource,
                    namespace=about.namespace,
                    name=about.name,
                    status=entry.response_status.code,
                    begin=entry.request_received_timestamp.timestamp(),
                    end=entry.stage_timestamp.timestamp(),
                )
            )
    return wanted


def our_writes(requests: Sequence[Request]) -> Counter[str]:
    """How often we wrote what ("patch jobs"); refused attempts count, as the server had the work."""
    return Counter(f"{one.verb} {one.resource}" for one in requests if one.user == OURS)


def patched_pods(requests: Sequence[Request]) -> int:
    """How many pods we sent a PATCH."""
    return len({one.name for one in requests if one.user == OURS and one.verb == "patch" and one.resource == "pods"})
