"""Webhook entries that a policy adds, and the code that writes them to the `topogate-policy` configurations.

The manifests' entries are a static superset of what any policy can ask for; only additions of the policy itself (kinds,
defaults of namespaces, vendors of GPUs with scope `all`) need entries of their own. The pair `topogate-policy` belongs
to the leader: other entries in it are removed. The client configuration is read from the manifests' pair.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from certs.client import patch_current
from engine.api import names
from engine.cluster.client import MERGE_PATCH, KubeClient
from engine.gang.annotations import NATIVE_DIALECT
from engine.kinds.registry import Registry, built_in
from engine.policy.model import Policy
from engine.policy.namespaces import ModeInForce, modes_of
from webhook.configuration import match_conditions, pod_conditions
from webhook.configuration import webhooks as entries_of
from webhook.configuration.exemption_conditions import DEFAULT_SCHEDULERS
from webhook.configuration.webhooks import MUTATING, VALIDATING, Resource

Entry = dict[str, Any]

RESOURCES: Final[tuple[Resource, ...]] = (MUTATING, VALIDATING)
_PATH: Final = "/apis/admissionregistration.k8s.io/v1"


class PairMalformed(ValueError):
    """A webhook configuration does not have the form of the manifests."""


def entries(
    resource: Resource, policy: Policy, *, whole: Sequence[str], own_username: str, own_namespace: str
) -> list[Entry]:
    """Return the entries that a policy adds to one configuration, without `clientConfig`.

    `whole` names the resources that are whole GPUs under this policy: with scope `all` every pod that asks for one is
    sent. Kinds of the policy have entries like those of the manifests, so that a fault in them touches no other kind.
    Nothing is sent from namespaces of mode `off`, so that nothing waits for the service there, except pods that state
    their devices: these nobody may choose, in no mode.
    """
    modes = modes_of(policy)
    forged = [_forged(policy, username=own_username).body(resource, namespace=own_namespace)]
    forged = forged if resource == VALIDATING and _unmanaged(policy) else []
    if all(one.is_off for one in modes):
        return forged
    manages = any(one.manages for one in modes)
    added: list[entries_of.WebhookEntry] = []
    extra = extra_kinds(policy)
    if extra.entries:
        added.append(
            entries_of.workloads(extra, resource=resource, username=own_username, schedulers=policy.schedulers)
        )
        if resource == MUTATING:
            added.append(entries_of.other_workloads(extra, username=own_username, schedulers=policy.schedulers))
            added += entries_of.children(policy.registry, username=own_username, parents=extra.entries)
    if not set(DEFAULT_SCHEDULERS).issuperset(policy.schedulers):
        added.append(
            entries_of.workloads_of_schedulers(built_in(), policy.schedulers, resource=resource, username=own_username)
        )
        if resource == MUTATING:
            added.append(entries_of.pods_of_schedulers(policy.schedulers, username=own_username))
    defaults = [pattern for one in policy.namespaces.defaults for pattern in one.namespaces]
    if defaults and NATIVE_DIALECT in policy.annotations.dialects and resource == MUTATING and manages:
        written = entries_of.defaulted_workloads(
            policy.registry, username=own_username, namespaces=defaults, schedulers=policy.schedulers
        )
        rules = [(one.namespaces, one.allow) for one in policy.namespaces.rules]
        written = _within(written, rules, others=True, name="allowed-namespace")
        added.append(_where(written, policy, lambda mode: mode.manages, name="managed-namespace"))
    if policy.gpu.scope == "all" and whole and resource == MUTATING:
        added.append(_gpu_pods(whole, username=own_username))
    if policy.reservations.guard and resource == VALIDATING and manages:
        bindings = entries_of.bindings(username=own_username)
        added.append(_where(bindings, policy, lambda mode: mode.manages, name="managed-namespace"))
    exempt = tuple(sorted({entries_of.EXEMPT, *(name for name in policy.namespaces.exempt if "*" not in name)}))
    patterns = [name for name in policy.namespaces.exempt if "*" in name]  # a selector knows whole names alone
    looked_at = (_where(one, policy, lambda mode: not mode.is_off, name="mode-not-off") for one in added)
    managed = (
        _within(one, [(patterns, False)] if patterns else [], others=True, name="not-exempt") for one in looked_at
    )
    return [*(replace(one, exempt=exempt).body(resource, namespace=own_namespace) for one in managed), *forged]


def _unmanaged(policy: Policy) -> bool:
    """Return True if gangs of some namespace are not managed, besides those whose pods are never sent."""
    return any(one != entries_of.EXEMPT for one in policy.namespaces.exempt) or not all(
        one.manages for one in modes_of(policy)
    )


def _forged(policy: Policy, *, username: str) -> entries_of.WebhookEntry:
    others, *named = (not one.manages for one in modes_of(policy))
    patterns = [one.namespaces for one in policy.namespaces.modes]
    expression = match_conditions.first_match(
        [(policy.namespaces.exempt, True), *zip(patterns, named, strict=True)], others=others
    )
    entry = entries_of.marked_pods_with_devices(username=username)
    return replace(entry, conditions=(*entry.conditions, entries_of.MatchCondition("not-managed", expression)))


def _where(
    entry: entries_of.WebhookEntry, policy: Policy, holds: Callable[[ModeInForce], bool], *, name: str
) -> entries_of.WebhookEntry:
    """Return an entry for the namespaces with such a mode alone; unchanged if all have one."""
    others, *named = map(holds, modes_of(policy))
    patterns = [one.namespaces for one in policy.namespaces.modes]
    return _within(entry, [*zip(patterns, named, strict=True)], others=others, name=name)


def _within(
    entry: entries_of.WebhookEntry, namespaces: Sequence[tuple[Iterable[str], bool]], *, others: bool, name: str
) -> entries_of.WebhookEntry:
    """Return an entry for the namespaces whose first match says so, or `others`; unchanged if all do."""
    if others and all(holds for _, holds in namespaces):
        return entry
    expression = match_conditions.first_match(namespaces, others=others)
    return replace(entry, conditions=(*entry.conditions, entries_of.MatchCondition(name, expression)))


def extra_kinds(policy: Policy) -> Registry:
    """Return a registry of only the kinds that the policy adds."""
    return Registry(policy.registry.own)


def _gpu_pods(whole: Sequence[str], *, username: str) -> entries_of.WebhookEntry:
    # Pods of a gang and Koordinator's resources have entries of their own (manifests/base/webhooks.yaml).
    return entries_of.gpu_pods(
        entries_of.MatchCondition("names-devices", pod_conditions.requests_devices(whole)),
        username=username,
    )


def patch_for(
    configuration: bytes, wanted: Sequence[Entry], *, client_config: Mapping[str, Any], bundle: str | None = None
) -> Entry | None:
    """Return the merge patch that sets the entries of a configuration (JSON) to `wanted`; None if they are equal.

    Fields that the API server or a newer version of it adds count as equal. If `client_config` has no caBundle, another
    program keeps those: an entry keeps its own, a new one begins with `bundle`. Raises PairMalformed.
    """
    found = _read(configuration)
    full = [{**entry, "clientConfig": dict(client_config)} for entry in wanted]
    there = found.get("webhooks") or []
    if len(there) == len(full) and all(within(mine, theirs) for mine, theirs in zip(full, there, strict=True)):
        return None
    if "caBundle" not in client_config:
        live = {one.get("name"): one.get("clientConfig") for one in there if isinstance(one, dict)}
        for entry in full:
            of_entry = live.get(entry["name"])
            own = of_entry.get("caBundle") if isinstance(of_entry, dict) else None
            entry["clientConfig"]["caBundle"] = own or bundle
    return {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "webhooks": full or None,  # a merge patch takes lists as a whole
    }


def keep(
    api: KubeClient,
    resource: Resource,
    wanted: Sequence[Entry],
    *,
    manifests: bytes,
    known: bytes,
    bundle: bytes | None,
    fence: Callable[[], None],
) -> bool:
    """Set the entries of our own configuration to `wanted`; return True if it was written.

    `manifests` and `known` are the manifests' configuration and our own one (JSON) as a watch has shown them, `bundle`
    is the CA bundle, None if another program writes it into both. The write is compare-and-set: after a conflict the
    configuration is read again. Raises PairMalformed; errors of the API (404: not installed) and of the fence pass
    through.
    """
    client_config = _client_config(manifests)
    if client_config is None:
        return False
    others = {key: value for key, value in client_config.items() if key != "caBundle"}
    ours = {} if bundle is None else {"caBundle": base64.b64encode(bundle).decode("ascii")}
    injected = client_config.get("caBundle")
    path = f"{_PATH}/{resource}/{names.POLICY_CONFIGURATION}"
    return patch_current(
        api,
        path,
        lambda configuration: patch_for(configuration, wanted, client_config={**others, **ours}, bundle=injected),
        known=known,
        content_type=MERGE_PATCH,
        fence=fence,
    )


def _client_config(configuration: bytes) -> Mapping[str, Any] | None:
    """Return the client configuration of the manifests' entries; None if they have none."""
    for entry in _read(configuration).get("webhooks") or []:
        found = entry.get("clientConfig") if isinstance(entry, dict) else None
        if isinstance(found, dict) and found:
            return found
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


def within(mine: Any, theirs: Any) -> bool:
    """Return True if every value of `mine` is in `theirs`."""
    if isinstance(mine, dict):
        return isinstance(theirs, dict) and all(within(value, theirs.get(key)) for key, value in mine.items())
    if isinstance(mine, list):
        return (
            isinstance(theirs, list)
            and len(mine) == len(theirs)
            and all(within(one, other) for one, other in zip(mine, theirs, strict=True))
        )
    return bool(mine == theirs)
