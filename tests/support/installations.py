"""Installations in memory as `topogate verify` reads them: a good one, its parts, and one that nobody may read."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from certs.authority import new_authority
from engine.api import names
from engine.kinds.registry import built_in
from engine.policy.model import default_policy, parse_policy
from webhook.checks.own_rights import needed_rights
from webhook.configuration.policy_webhooks import entries
from webhook.configuration.webhooks import MUTATING, VALIDATING, Resource, manifest_entries
from webhook.snapshot.installation import (
    ADMISSION_POLICIES,
    DryRun,
    GrantedRights,
    Installation,
    ReadObject,
    ReadyPage,
    account,
)

ROOT = Path(__file__).parents[2]
NOW = 1_767_227_400.0  # 2026-01-01T00:30:00Z
BUNDLE = new_authority(now=NOW, name="ca").bundle
OTHER = new_authority(now=NOW, name="ca").bundle
OLD = new_authority(now=NOW - 3649 * 86_400, name="ca").bundle
NAMESPACE = names.NAMESPACE
UNREAD, ABSENT = ReadObject(), ReadObject(absent=True)
HELD = {"metadata": {"annotations": {names.HELD_BY: "suspend"}}}
DENIED = 'admission webhook "workloads.topogate.dev" denied the request: ...'
KEYS: tuple[tuple[Resource, str], ...] = tuple(
    (resource, name)
    for name in (names.MUTATING_CONFIGURATION, names.POLICY_CONFIGURATION)
    for resource in (MUTATING, VALIDATING)
)


def crd() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "manifests/base/crd.yaml").read_text(encoding="utf-8"))
    return found | {"status": {"conditions": [{"type": "Established", "status": "True"}]}}


def configuration(
    resource: Resource,
    name: str,
    *,
    policy: str = "{}",
    bundle: bytes = BUNDLE,
    changed: str = "",
    gone: str = "",
    other: tuple[str, bytes] = ("", b""),
) -> dict[str, Any]:
    """A configuration as the leader keeps it, but for an entry with another time-out, one that is gone, another CA."""
    if name == names.MUTATING_CONFIGURATION:
        manifest = manifest_entries(resource, built_in(), username=account(NAMESPACE))
        bodies = [one.body(resource, namespace=NAMESPACE) for one in manifest]
    else:
        parsed = parse_policy(policy)
        bodies = entries(resource, parsed, whole=(), own_username=account(NAMESPACE), own_namespace=NAMESPACE)
    webhooks = []
    for one in bodies:
        short = one["name"].partition(".")[0]
        if short != gone:
            trusted = other[1] if short == other[0] else bundle
            config = {"caBundle": base64.b64encode(trusted).decode(), "service": {"name": "topogate"}}
            webhooks.append({**one, **({"timeoutSeconds": 30} if short == changed else {}), "clientConfig": config})
    return {"metadata": {"name": name}, "webhooks": webhooks}


def configurations(**options: Any) -> dict[tuple[Resource, str], ReadObject]:
    return {key: ReadObject(configuration(*key, **options)) for key in KEYS}


def policy_of(text: str) -> ReadObject:
    return ReadObject({"data": {names.POLICY_KEY: text}})


def deployment(ready: int, *, arguments: Sequence[str] = ("serve",)) -> ReadObject:
    container = {"image": "example.com/topogate:0.1.0", "args": list(arguments)}
    template = {"spec": {"containers": [container]}}
    return ReadObject({"spec": {"replicas": 2, "template": template}, "status": {"readyReplicas": ready}})


PAGES = tuple(
    ReadyPage(f"topogate-{one}", ready=True, text="[+] caches\n[+] certificate\n[+] policy: 2f03981f5539\n")
    for one in range(2)
)
GOOD = Installation(
    namespace=NAMESPACE,
    taken=NOW,
    version="v1.36.3",
    definition=ReadObject(crd()),
    deployment=deployment(2),
    lease=ReadObject({"spec": {"holderIdentity": "topogate-1_2d9a0b26", "leaseTransitions": 3}}),
    secret=ReadObject({}),
    bundle=BUNDLE,
    configurations=configurations(),
    admission_policies={
        (kind, name): ReadObject({})
        for name in ADMISSION_POLICIES
        for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    },
    policy=ABSENT,
    last_good=ABSENT,
    rights=GrantedRights("reviews", len(needed_rights(default_policy()))),
    pages=PAGES,
    pods=ReadObject({"items": []}),
    tried_in="default",
    gang=DryRun(0.018, stored=HELD),
    wrong=DryRun(0.021, refused=DENIED),
)
NO_RIGHTS = replace(
    GOOD,
    version="",
    definition=UNREAD,
    deployment=UNREAD,
    lease=UNREAD,
    secret=UNREAD,
    configurations=dict.fromkeys(KEYS, UNREAD),
    admission_policies=dict.fromkeys(GOOD.admission_policies, UNREAD),
    policy=UNREAD,
    last_good=UNREAD,
    rights=GrantedRights(None),
    pods=ReadObject(why="GET /api/v1/...: no answer within the time limit"),
    gang=DryRun(0.01, forbidden=True),
    wrong=DryRun(0.01, forbidden=True),
)


def installation_of_the_page() -> Installation:
    """The installation that the pages show: its policy is refused."""
    return replace(
        GOOD,
        lease=ReadObject({"spec": {"holderIdentity": "topogate-6c9f7d5b4-x2x7k"}}),
        policy=policy_of("mode: enforcing"),
        last_good=policy_of("mode: enforce"),
        pages=[
            ReadyPage(f"topogate-6c9f7d5b4-{end}", ready=True, text="[+] caches\n[+] certificate\n[+] policy: HASH\n")
            for end in ("x2x7k", "zr4tm")
        ],
        gang=DryRun(0.021, stored=HELD),
    )
