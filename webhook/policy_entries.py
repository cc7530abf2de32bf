"""What a policy adds to the manifests' webhook entries, and how it gets into the pair of configurations of our own.

The manifests' entries are a static superset of what any policy can ask for; only names that the policy itself brings
(vendors of GPUs, with scope `all`) need entries of their own. The pair `topogate-policy` is the leader's alone: what
stands in it beside these entries goes. How the service is called is read from the manifests' pair, whose CA bundle the
leader keeps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from engine import names
from engine.cluster.api import MERGE_PATCH, Api, ApiError
from engine.policy import Policy

Resource = Literal["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
Entry = dict[str, Any]

RESOURCES: Final[tuple[Resource, ...]] = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
ATTEMPTS: Final = 3
_PATH: Final = "/apis/admissionregistration.k8s.io/v1"
_CONFLICT: Final = 409
_TIMEOUT: Final = 2
# The gang's pods have an entry of their own, and so have Koordinator's names (manifests/base/webhooks.yaml).
_OTHERS: Final = f"""\
!('{names.MANAGED}' in object.metadata.?labels.orValue({{}})) &&
!object.spec.?schedulingGates.orValue([]).exists(g, g.name == '{names.GATE}')"""
_FREE: Final = """\
!has(object.spec.nodeName) && !object.metadata.?ownerReferences.orValue([]).exists(o,
  o.kind == 'DaemonSet' && o.?controller.orValue(false))"""
_NAMES: Final = """\
[object.spec.containers, object.spec.?initContainers.orValue([])].exists(cs,
  cs.exists(c, [c.?resources.?requests.orValue({{}}), c.?resources.?limits.orValue({{}})].exists(r,
    [{listed}].exists(k, k in r))))"""


class PairMalformed(ValueError):
    """A webhook configuration is not what the manifests make."""


def entries(
    resource: Resource, policy: Policy, *, whole: Sequence[str], own_username: str, own_namespace: str
) -> list[Entry]:
    """Return the entries that a policy adds to one configuration, without `clientConfig`.

    `whole` names the resources that are whole GPUs under this policy: with scope `all` every pod that asks for one is
    sent. A policy of mode `off` adds nothing.
    """
    if policy.mode == "off" or policy.gpu.scope != "all" or not whole:
        return []
    listed = ", ".join(f"'{name}'" for name in sorted(set(whole)))
    exempt = {name for name in policy.namespaces.exempt if "*" not in name} | {"kube-system", own_namespace}
    entry: Entry = {
        "name": "gpu-pods.topogate.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore",
        "timeoutSeconds": _TIMEOUT,
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": sorted(exempt)},
            ]
        },
        "objectSelector": {},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "operations": ["CREATE"],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [
            {"name": "not-ours", "expression": f"request.userInfo.username != '{own_username}'"},
            {"name": "not-managed", "expression": _OTHERS},
            {"name": "free-to-place", "expression": _FREE},
            {"name": "names-devices", "expression": _NAMES.format(listed=listed)},
        ],
    }
    if resource == "mutatingwebhookconfigurations":
        entry["reinvocationPolicy"] = "IfNeeded"
    return [entry]


def patch_for(configuration: bytes, wanted: Sequence[Entry], *, client_config: Mapping[str, Any]) -> Entry | None:
    """Return the merge patch that makes `wanted` the entries of a configuration (JSON); None when they are.

    Fields that the API server or a newer version of it adds count as equal. Raises PairMalformed.
    """
    found = _read(configuration)
    full = [{**entry, "clientConfig": dict(client_config)} for entry in wanted]
    there = found.get("webhooks") or []
    if len(there) == len(full) and all(_within(mine, theirs) for mine, theirs in zip(full, there, strict=True)):
        return None
    return {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "webhooks": full or None,  # a merge patch takes lists as a whole
    }


def keep(
    api: Api,
    resource: Resource,
    wanted: Sequence[Entry],
    *,
    fence: Callable[[], None],
) -> bool:
    """Make `wanted` the entries of our own configuration of that sort; True when something had to be written.

    Compared and set: a conflict is read again. Until the manifests' pair has its CA bundle nothing is written. Raises
    PairMalformed; errors of the API (404: not installed) and of the fence pass through.
    """
    client_config = _client_config(api.request("GET", f"{_PATH}/{resource}/{names.MUTATING_CONFIGURATION}"))
    if client_config is None:
        return False
    path = f"{_PATH}/{resource}/{names.POLICY_CONFIGURATION}"
    attempt = 0
    while True:
        attempt += 1
        patch = patch_for(api.request("GET", path), wanted, client_config=client_config)
        if patch is None:
            return False
        fence()
        try:
            api.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status != _CONFLICT or attempt == ATTEMPTS:
                raise
        else:
            return True


def _client_config(configuration: bytes) -> Mapping[str, Any] | None:
    """How the API server calls us for entries of this sort; None while it could not trust us."""
    for entry in _read(configuration).get("webhooks") or []:
        found = entry.get("clientConfig") if isinstance(entry, dict) else None
        if isinstance(found, dict):
            return found if found.get("caBundle") else None
    return None


def _read(configuration: bytes) -> dict[str, Any]:
    try:
        found = json.loads(configuration)
    except (ValueError, RecursionError):
        raise PairMalformed("not JSON") from None
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("resourceVersion"), str):
        raise PairMalformed("no object of the API server")
    if not isinstance(found.get("webhooks") or [], list):
        raise PairMalformed("webhooks is no list")
    assert isinstance(found, dict)
    return found


def _within(mine: Any, theirs: Any) -> bool:
    """True when everything that we say stands there."""
    if isinstance(mine, dict):
        return isinstance(theirs, dict) and all(_within(value, theirs.get(key)) for key, value in mine.items())
    if isinstance(mine, list):
        return (
            isinstance(theirs, list)
            and len(mine) == len(theirs)
            and all(_within(one, other) for one, other in zip(mine, theirs, strict=True))
        )
    return bool(mine == theirs)
