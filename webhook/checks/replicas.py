"""The checks of the replicas: how many are ready, who leads, and what each of them says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.api import names
from engine.api.text import join_comma, sanitize
from webhook.checks.model import Finding, failure, ok, skipped, warning
from webhook.snapshot.installation import Installation, ReadyPage

_LOGS: Final = "look at: kubectl --namespace {namespace} logs deployment/topogate"
_LEADS_IN: Final = "a replica that is ready leads within 10 s"


def replicas(found: Installation) -> Finding:
    """Return how many replicas are ready."""
    check, one = "replicas", found.deployment
    if one.unread:
        return skipped(check, f"Deployment {found.namespace}/{names.SERVICE_NAME} {one.unread}")
    if one.body is None:
        return failure(
            check,
            f"Deployment {sanitize(found.namespace)}/{names.SERVICE_NAME} does not exist",
            "apply the manifests; where the service has another namespace, name it with --service-namespace",
        )
    wanted, ready = _number(one.body, "spec", "replicas", default=1), _number(one.body, "status", "readyReplicas")
    image = _image(one.body)
    text = f"{ready:,} of {wanted:,} ready{f', image {sanitize(image, 200)}' if image else ''}"
    if ready and ready >= wanted:
        return ok(check, text)
    look = (
        f"look at: kubectl --namespace {sanitize(found.namespace)} describe deployment/{names.SERVICE_NAME}, and logs"
    )
    return warning(check, text, look) if ready else failure(check, text, look)


def leader(found: Installation) -> Finding:
    """Return which replica holds the Lease."""
    check, one = "leader", found.lease
    if one.unread:
        return skipped(check, f"Lease {found.namespace}/{names.LEASE_NAME} {one.unread}")
    spec = (one.body or {}).get("spec")
    holder = spec.get("holderIdentity") if isinstance(spec, Mapping) else None
    if isinstance(spec, Mapping) and holder and found.lease_renewed:
        terms = spec.get("leaseTransitions")
        term = f" (change {terms:,} of the leader)" if isinstance(terms, int) and terms > 0 else ""
        return ok(check, f"{sanitize(str(holder))} leads{term}")
    last = f": {sanitize(str(holder))} does not renew its Lease any more" if holder else ""
    return failure(
        check,
        f"none leads{last}; no gang is planned",
        f"{_LEADS_IN}; {_LOGS.format(namespace=sanitize(found.namespace))}",
    )


def caches(found: Installation) -> list[Finding]:
    """Return what the readiness page of each replica says about caches, certificate and policy."""
    check = "caches"
    if found.pods.unread:
        return [skipped(check, f"pods of {found.namespace} {found.pods.unread}")]
    if not found.pages:
        return [skipped(check, "no replica runs in a pod that could be asked")]
    if all(page.forbidden for page in found.pages):
        text = "not looked at: no right to get pods/proxy; `replicas` tells who is ready"
        return [skipped(check, text)]
    return [_page(page, found.namespace) for page in found.pages]


def _page(page: ReadyPage, namespace: str) -> Finding:
    check = f"caches of {sanitize(page.pod)}"
    if page.forbidden or page.why:
        why = sanitize(page.why, 200) or "no right"
        found = f"/readyz cannot be read through the API server ({why})"
        return skipped(check, found)
    if not page.ready:
        found = "not ready: caches, certificate or policy are missing"
        return failure(check, found, f"kubectl --namespace {namespace} logs {page.pod}")
    lines = [line for line in page.text.splitlines() if line.startswith("[")]
    odd = [line for line in lines if not line.startswith("[+]")]
    if odd:
        told = sanitize("; ".join(odd), 300)
        return warning(check, told, "correct what the line names")
    return ok(check, sanitize(join_comma(tuple(line[4:] for line in lines)), 300))


def _number(body: Mapping[str, Any], section: str, key: str, *, default: int = 0) -> int:
    part = body.get(section)
    value = part.get(key, default) if isinstance(part, Mapping) else default
    return value if isinstance(value, int) else default


def _image(body: Mapping[str, Any]) -> str:
    match body:
        case {"spec": {"template": {"spec": {"containers": [{"image": str(image)}, *_]}}}}:
            return image
    return ""
