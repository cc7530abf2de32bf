"""The checks of the webhook configurations: their entries, and the CA that the API server trusts through them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from certs.ca_bundle import ConfigurationMalformed, bundle_end, bundles, same_certificates
from engine.api import names
from engine.api.text import join_comma, plural, sanitize
from engine.kinds.registry import built_in
from engine.policy.model import Policy
from webhook.checks.model import REAPPLY, Finding, failure, ok, skipped, warning
from webhook.configuration.policy_webhooks import entries as policy_entries
from webhook.configuration.policy_webhooks import within
from webhook.configuration.webhooks import MUTATING, VALIDATING, Resource, manifest_entries
from webhook.snapshot.installation import ADMISSION_POLICIES, Installation, account

_KINDS: Final[Mapping[Resource, str]] = {
    MUTATING: "MutatingWebhookConfiguration",
    VALIDATING: "ValidatingWebhookConfiguration",
}
_MOST_NAMES: Final = 3
_MONTH: Final = 30 * 86_400.0
_OTHERS: Final = "look at the program that writes it: cert-manager's CA injector, or yours"
_LEADER: Final = "the leader writes it within seconds; if it stays, look at the leader's log"


def webhooks(found: Installation, policy: Policy) -> list[Finding]:
    """Return whether the configurations exist with all entries of this version."""
    check = "webhooks"
    if unread := _unread(found):
        return [skipped(check, unread)]
    absent = [_called(*key) for key, one in found.configurations.items() if one.body is None]
    findings = [failure(check, f"not found: {join_comma(absent)}", REAPPLY)] if absent else []
    for key in found.configurations:
        findings += _compared(found, *key, policy)
    if findings:
        return findings
    count = sum(len(_webhooks(one.body)) for one in found.configurations.values())
    return [ok(check, f"{plural(count, 'entry')} as in this version")]


def _compared(found: Installation, resource: Resource, name: str, policy: Policy) -> Iterator[Finding]:
    """Yield how the entries of a configuration differ from those of this version."""
    body = found.configurations[resource, name].body
    if body is None:
        return
    live = {entry.get("name"): entry for entry in _webhooks(body)}
    wanted = {entry["name"]: entry for entry in _wanted(found, resource, name, policy)}
    called, remedy = _called(resource, name), REAPPLY if name == names.MUTATING_CONFIGURATION else _LEADER
    if missing := [one for one in wanted if one not in live]:
        yield failure("webhooks", f"{called} lacks {join_comma(missing)}", remedy)
    if changed := [one for one in wanted if one in live and not within(wanted[one], live[one])]:
        yield warning("webhooks", f"{called} differs from this version in {join_comma(changed)}", remedy)


def authority(found: Installation) -> list[Finding]:
    """Return whether every entry trusts the CA of the service, and until when its certificates are valid."""
    check = "CA"
    if unread := _unread(found):
        return [skipped(check, unread)]
    live = {key: one.body for key, one in found.configurations.items() if one.body is not None}
    try:
        trusted = {
            f"{_KINDS[resource]} {configuration}/{name}": bundle
            for (resource, configuration), body in live.items()
            for name, bundle in bundles(body).items()
        }
    except ConfigurationMalformed:
        return [failure(check, "an entry has no clientConfig", REAPPLY)]
    if not trusted:
        return [skipped(check, "there is no webhook entry to look at")]
    if without := [name for name, bundle in trusted.items() if not bundle]:
        told = f"no caBundle, so that the API server cannot call the service: {_of(without, trusted)}"
        return [failure(check, told, _LEADER if found.has_own_ca else _OTHERS)]
    of_secret, told = _as_in_secret(found, trusted)
    if of_secret is not None and of_secret.result == "fail":
        return [of_secret]
    return [*([of_secret] if of_secret is not None else ()), _valid(found, trusted, told)]


def _as_in_secret(found: Installation, trusted: Mapping[str, bytes]) -> tuple[Finding | None, str]:
    """Return a finding where the bundles are not those of the Secret, or were not compared; else words for the rest."""
    if not found.has_own_ca:
        return None, ", written by another program"
    secret = f"Secret {sanitize(found.namespace)}/{names.CA_SECRET_NAME}"
    if found.secret.absent:
        told = f"{secret} does not exist, so the service has no certificate"
        return failure("CA", told, "a replica that starts makes a new one"), ""
    if found.secret.unread:
        return skipped("CA", f"{secret} {found.secret.unread}; `dry run` shows whether it fits"), ""
    if other := [name for name, bundle in trusted.items() if not _same(found, bundle)]:
        told = f"another CA than that of {secret}, so that the API server refuses the service: {_of(other, trusted)}"
        return failure("CA", told, _LEADER), ""
    return None, f", as in {secret}"


def _same(found: Installation, bundle: bytes) -> bool:
    """Return True if a bundle is what the service publishes of the Secret: its certificates, written in its own way."""
    return bundle == found.bundle or same_certificates(bundle, found.bundle, now=found.taken)


def _valid(found: Installation, trusted: Mapping[str, bytes], as_in: str) -> Finding:
    """Return until when the certificates of the bundles are valid."""
    every, remedy = list[bytes](), _LEADER if found.has_own_ca else _OTHERS
    for bundle in set(trusted.values()):
        if not any(same_certificates(bundle, one, now=found.taken) for one in every):
            every.append(bundle)
    if len(every) > 1:
        return failure("CA", f"{plural(len(every), 'different CA bundle')} in the entries", remedy)
    try:
        ends = bundle_end(every.pop())
    except ValueError:
        return failure("CA", "the caBundle holds no certificates: the API server cannot call the service", remedy)
    until = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%d")
    told = f"the same in {plural(len(trusted), 'entry')}{as_in}, valid until {until}"
    if ends <= found.taken:
        return failure(
            "CA", f"ended on {until}", "restart the replicas: one makes a new CA" if found.has_own_ca else remedy
        )
    if found.has_own_ca and ends <= found.taken + _MONTH:
        return warning("CA", told, "the leader renews it after two thirds of its life; look at the leader's log")
    return ok("CA", told)


def _unread(found: Installation) -> str:
    """Return why the configurations were not read; "" if they were."""
    why = next((one.unread for one in found.configurations.values() if one.unread), "")
    return f"webhook configurations {why}" if why else ""


def _called(resource: Resource, name: str) -> str:
    return f"{_KINDS[resource]} {name}"


def _of(some: Sequence[str], every: Collection[str]) -> str:
    """Return some of the entries in words."""
    if len(some) == len(every):
        return f"all {plural(len(every), 'entry')}"
    more = f" and {len(some) - _MOST_NAMES:,} more" if len(some) > _MOST_NAMES else ""
    return f"{len(some):,} of {plural(len(every), 'entry')} ({join_comma(some[:_MOST_NAMES])}{more})"


def admission_policies(found: Installation) -> Finding:
    """Return whether the ValidatingAdmissionPolicies and their bindings exist."""
    check = "admission policies"
    unread = [one for one in found.admission_policies.values() if one.unread]
    if unread:
        return skipped(check, f"ValidatingAdmissionPolicies {unread[0].unread}")
    missing = [f"{name} ({kind})" for (kind, name), one in found.admission_policies.items() if one.body is None]
    if missing:
        return failure(check, f"missing: {join_comma(missing)}", REAPPLY)
    return ok(check, join_comma(ADMISSION_POLICIES))


def _wanted(found: Installation, resource: Resource, name: str, policy: Policy) -> list[dict[str, Any]]:
    username = account(found.namespace)
    if name == names.MUTATING_CONFIGURATION:
        manifest = manifest_entries(resource, built_in(), username=username)
        return [one.body(resource, namespace=found.namespace) for one in manifest]
    # Entries for GPUs of a vendor need the resources of the nodes: the leader alone knows them.
    return policy_entries(resource, policy, whole=(), own_username=username, own_namespace=found.namespace)


def _webhooks(body: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    webhooks = (body or {}).get("webhooks")
    return [one for one in webhooks if isinstance(one, Mapping)] if isinstance(webhooks, list) else []
