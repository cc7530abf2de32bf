"""An installation at one moment as its caller may see it: the objects of the service, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from certs.ca_bundle import Configurations
from engine.api import names
from engine.api.text import sanitize
from engine.cluster.client import object_path
from engine.policy.in_force import PolicyInForce, policy_in_force

# Label selectors of the service's pods and of all others; the runbooks have the first one too.
SERVICE_PODS: Final = f"app.kubernetes.io/name={names.SERVICE_NAME}"
OTHER_PODS: Final = f"app.kubernetes.io/name!={names.SERVICE_NAME}"
ADMISSION_POLICIES: Final = ("topogate-placements", "topogate-devices", "topogate-unplaceable")
DEFINITION: Final = f"{names.PLACEMENTS}.{names.API_GROUP}"

CERTIFICATES_OPTION: Final = "--certificates-from"

_OPS_PORT: Final = 8080
_MAX_REASON: Final = 300  # characters


@dataclass(frozen=True, slots=True)
class ReadObject:
    """An object, or why there is none: it does not exist (`absent`), or could not be read.

    `why`: "" for a right that is missing.
    """

    body: Mapping[str, Any] | None = field(default=None, repr=False)
    absent: bool = False
    why: str = ""

    @property
    def unread(self) -> str:
        """Return why it was not read, in words; "" if it was, or is known not to exist."""
        if self.body is not None or self.absent:
            return ""
        return f"cannot be read ({sanitize(self.why, _MAX_REASON)})" if self.why else "cannot be read: no right"


@dataclass(frozen=True, slots=True)
class ReadyPage:
    """What `/readyz` of a replica said: `text` is its page; "" with `why` if it could not be read.

    `forbidden`: the caller may not use the proxy.
    """

    pod: str
    ready: bool
    text: str = ""
    why: str = ""
    forbidden: bool = False


@dataclass(frozen=True, slots=True)
class DryRun:
    """The answer to a Job in a dry run: `stored` is what the API server would store, `refused` why it would not.

    `forbidden`: the caller may not create Jobs there. `seconds`: how long the answer took. `late`: there was no answer
    in time, and `refused` is what ended the wait.
    """

    seconds: float
    stored: Mapping[str, Any] | None = field(default=None, repr=False)
    refused: str = ""
    forbidden: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class GrantedRights:
    """Which rights of the service's account were looked at, and which of them are missing, in words.

    `by`: each was asked of the API server (`reviews`), or compared with the roles (`roles`); None: neither is allowed.
    """

    by: Literal["reviews", "roles"] | None
    looked_at: int = 0
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Installation:
    """The objects of an installation in `namespace`, at `taken` (seconds since the epoch).

    `provisioning`: the group of ProvisioningRequests, as the API server lists its versions.
    `bundle`: the certificates in the Secret of the CA, without its key. `configurations`, `admission_policies` (with
    their bindings) and `pages` by name. `gang` is a Job with a request, `wrong` one with a request that is refused by a
    service with mode enforce; they were tried in the namespace `tried_in`.
    """

    namespace: str
    taken: float
    version: str
    definition: ReadObject
    deployment: ReadObject
    lease: ReadObject
    secret: ReadObject
    bundle: bytes
    configurations: Mapping[tuple[Configurations, str], ReadObject]
    admission_policies: Mapping[tuple[str, str], ReadObject]
    policy: ReadObject
    last_good: ReadObject
    rights: GrantedRights
    pages: Sequence[ReadyPage]
    pods: ReadObject
    tried_in: str
    gang: DryRun
    wrong: DryRun
    lease_renewed: bool = True
    provisioning: ReadObject = field(default_factory=lambda: ReadObject(absent=True))

    @property
    def has_own_ca(self) -> bool:
        """Return False if the Deployment says that certificates come from a directory."""
        return not certificates_are_mounted(self.deployment)

    @property
    def policy_in_force(self) -> PolicyInForce:
        """The policy that the service follows, as far as the caller may read it."""
        return installed_policy(self.policy, self.last_good)


def certificates_are_mounted(deployment: ReadObject) -> bool:
    """Return True if the service's container has the option `--certificates-from`."""
    match deployment.body:
        case {"spec": {"template": {"spec": {"containers": list(containers)}}}}:
            arguments = [one.get("args") for one in containers if isinstance(one, Mapping)]
            found = [str(one) for listed in arguments if isinstance(listed, list) for one in listed]
            return any(one.partition("=")[0] == CERTIFICATES_OPTION for one in found)
    return False


def installed_policy(policy: ReadObject, last_good: ReadObject) -> PolicyInForce:
    """Return the policy that the service follows, by both ConfigMaps; the default if they cannot be read."""
    data = None if policy.body is None else _data(policy)
    text = _data(last_good).get(names.POLICY_KEY)
    return policy_in_force(data, text if isinstance(text, str) else "")


def _data(found: ReadObject) -> Mapping[str, object]:
    data = (found.body or {}).get("data")
    return data if isinstance(data, Mapping) else {}


def service_container(pod: Mapping[str, Any]) -> str | None:
    """Return the container of a pod in which the service runs, beside sidecars of others; None if it has none."""
    spec = pod.get("spec")
    listed = spec.get("containers") if isinstance(spec, Mapping) else None
    found = [str(one.get("name")) for one in listed or () if isinstance(one, Mapping)]
    return names.SERVICE_NAME if names.SERVICE_NAME in found else next(iter(found), None)


def ops_page(namespace: str, pod: str, page: str) -> str:
    """Return the path of a page of a replica (`readyz`, `metrics`) through the API server's proxy."""
    return f"{object_path('v1', 'pods', namespace=namespace, name=pod)}:{_OPS_PORT}/proxy/{page}"


def account(namespace: str) -> str:
    """Return the user name of the service in its namespace."""
    return f"system:serviceaccount:{namespace}:{names.SERVICE_ACCOUNT}"
