"""The checks of an installation, end to end: server, objects, replicas, policy, rights, and a Job in a dry run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.api import names
from engine.api.duration import timestamp
from engine.api.objects import PROVISIONING_GROUP, PROVISIONING_VERSIONS
from engine.api.text import join_comma, plural, sanitize
from engine.cluster.server_version import release_of, too_old
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from webhook.checks.definition import definition
from webhook.checks.entries import admission_policies, authority, webhooks
from webhook.checks.model import REAPPLY, Finding, VerifyAnswer, counted, failure, ok, skipped, warning
from webhook.checks.replicas import caches, leader, replicas
from webhook.snapshot.installation import Installation

_DENIED: Final = re.compile(r"admission webhook \"[a-z-]+\.topogate\.dev\" denied the request")
_LATE_REMEDY: Final = (
    "users' Jobs wait as long: look for a slow webhook (kubectl get mutatingwebhookconfigurations,"
    "validatingwebhookconfigurations) and at the load of the API server"
)
_FAILED: Final = re.compile(r"failed calling webhook \"[a-z-]+\.topogate\.dev\"")


def verify(found: Installation, *, version: str) -> VerifyAnswer:
    """Return all checks; `version` is that of this program."""
    policy = found.policy_in_force.policy
    findings = (
        _server(found),
        definition(found.definition),
        replicas(found),
        leader(found),
        *webhooks(found, policy),
        *authority(found),
        admission_policies(found),
        _policy(found),
        *_provisioning(found, policy),
        _rights(found),
        *_dry_runs(found, policy),
        *caches(found),
    )
    return VerifyAnswer(
        taken_at=timestamp(found.taken),
        version=version,
        namespace=found.namespace,
        good=counted(findings, "fail") == 0,
        findings=findings,
    )


def _server(found: Installation) -> Finding:
    check = "API server"
    if release_of(found.version) is None:
        return skipped(check, "its version cannot be read")
    if told := too_old(found.version):
        return failure(check, told, "upgrade the cluster")
    return ok(check, sanitize(found.version))


def _policy(found: Installation) -> Finding:
    check, name, given = "policy", f"ConfigMap {sanitize(found.namespace)}/{names.POLICY_NAME}", found.policy_in_force
    if found.policy.unread:
        return skipped(check, f"{name} {found.policy.unread}")
    which = f"hash {given.policy.hash}, mode {given.policy.mode}"
    if not given.refused:
        valid = f"{name} is valid" if given.origin == "config map" else f"the default, as there is no {name}"
        return ok(check, f"{valid} ({which})")
    first, others = given.refused[0], len(given.refused) - 1
    more = f" and {plural(others, 'more error')}" if others else ""
    refused = f"{first.field}: {first.message}{more}"
    kept = f"the last good one (hash {given.policy.hash})" if given.origin == "last good" else "the default"
    if given.origin == "default" and found.last_good.unread:
        kept = f"the last good one, if there is one: ConfigMap {names.LAST_GOOD_POLICY_NAME} {found.last_good.unread}"
    told = f"{name} is refused ({sanitize(refused, 300)}); in force: {kept}"
    return failure(check, told, "correct it; topogate policy check tells every error")


def _provisioning(found: Installation, policy: Policy) -> list[Finding]:
    """Return whether nodes can be requested, if the policy wants that."""
    check, group = "autoscaling", found.provisioning
    if not policy.autoscaling.on:
        return []
    if group.unread:
        return [skipped(check, f"the API group {PROVISIONING_GROUP} {group.unread}")]
    listed = (group.body or {}).get("versions")
    served = [one.get("version") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    version = next((one for one in PROVISIONING_VERSIONS if one in served), None)
    if version is None:
        told = f"the policy requests nodes, but the cluster serves no ProvisioningRequests ({PROVISIONING_GROUP})"
        return [warning(check, told, "install the definition of the cluster autoscaler, and switch it on there")]
    return [ok(check, f"ProvisioningRequests are served ({PROVISIONING_GROUP}/{version})")]


def _rights(found: Installation) -> Finding:
    check, rights = "rights", found.rights
    if rights.by is None:
        told = "not looked at: no right to ask about another account, or to read the roles"
        return skipped(check, told)
    how = "asked of the API server" if rights.by == "reviews" else "by the roles"
    if rights.missing:
        told = f"{len(rights.missing):,} of {plural(rights.looked_at, 'right')} missing: {join_comma(rights.missing)}"
        return failure(
            check,
            told,
            f"{REAPPLY}; for kinds of the policy what topogate policy check prints",
        )
    return ok(check, f"all {rights.looked_at:,} that the service needs, {how}")


def _dry_runs(found: Installation, policy: Policy) -> list[Finding]:
    """Return whether a gang is held, and a wrong request refused; a check is skipped where that decides nothing."""
    check, where = "dry run", f"a Job in namespace {sanitize(found.tried_in)}"
    gang, wrong = found.gang, found.wrong
    if gang.forbidden:
        return [skipped(check, f"{where}: no right to create Jobs there")]
    # The first one may have waited for conditions that the API server compiles anew after a change.
    milliseconds = f"{min(gang.seconds, wrong.seconds) * 1000:,.0f} ms"
    for one in (gang, wrong):
        if _FAILED.search(one.refused):
            remedy = (
                "see `replicas` and `CA`; the API server must reach port 8443 of the pods (NetworkPolicy, firewall)"
            )
            return [failure(check, sanitize(one.refused, 300), remedy)]
        if one.late:
            told = f"{where} had no answer in {one.seconds:,.0f} s: {sanitize(one.refused, 300)}"
            return [failure(check, told, _LATE_REMEDY)]
    if gang.refused and not _DENIED.search(gang.refused):
        told = f"{where} was refused by another part: {sanitize(gang.refused, 300)}"
        return [skipped(check, told)]
    mode = mode_of(found.tried_in, policy)
    if not mode.manages:
        told = f"{mode.text}: nothing is held in namespace {sanitize(found.tried_in)}, try another one with -n"
        return [skipped(check, told)]
    answered = bool(gang.refused) or _held(gang.stored)
    if not answered or not _DENIED.search(wrong.refused):
        missed = "holds a gang" if not answered else "refuses a wrong request"
        told = f"no webhook {missed}: {where} was taken as it was"
        if found.policy.unread:
            return [warning(check, told, "if the mode of the policy is not enforce, this is right: ask an admin")]
        remedy = "see `webhooks`; a namespace that the policy exempts is never looked at: try another one with -n"
        return [failure(check, told, remedy)]
    by = "its request is not allowed there" if gang.refused else "it would be held"
    told = f"{where} was answered in {milliseconds}: {by}; a wrong request is refused"
    return [ok(check, told)]


def _held(job: Mapping[str, Any] | None) -> bool:
    """Return True if a Job has our marks."""
    match job:
        case {"metadata": {"annotations": {names.HELD_BY: _}}}:
            return True
        case {"spec": {"template": {"metadata": {"labels": {names.MANAGED: _}}}}}:
            return True
    return False
