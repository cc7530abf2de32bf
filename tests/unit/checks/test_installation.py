"""What is told about an installation: all good, and everything that may be missing, refused or unread."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml

from certs.authority import new_authority, read_authority
from engine.kinds.registry import built_in
from engine.kinds.rules import rules
from engine.policy.model import default_policy, parse_policy
from tests.support.golden import golden
from tests.support.installations import (
    ABSENT,
    BUNDLE,
    DENIED,
    GOOD,
    HELD,
    KEYS,
    NO_RIGHTS,
    NOW,
    OLD,
    OTHER,
    PAGES,
    ROOT,
    UNREAD,
    configuration,
    configurations,
    crd,
    deployment,
    policy_of,
)
from webhook.checks.definition import definition, fields
from webhook.checks.installation import verify
from webhook.checks.model import Finding
from webhook.checks.own_rights import BUDGET_RIGHTS, CA_RIGHTS, OWN_RIGHTS, needed_rights
from webhook.checks.text import finding_texts, verdict_text
from webhook.snapshot.granted_rights import NeededRight, missing_rights, rights_of
from webhook.snapshot.installation import DryRun, GrantedRights, Installation, ReadObject, ReadyPage

SCHEMA = json.loads((ROOT / "schemas" / "verify.schema.json").read_text())
DEFAULTS = "namespaces: {defaults: [{namespaces: [team-*], annotations: {topogate.dev/prefer-topology: auto}}]}"
MOUNTED = deployment(2, arguments=("serve", "--certificates-from=/certificates"))
BROKEN: dict[str, Mapping[str, Any]] = {
    "an old cluster": {"version": "v1.29.4+k3s1"},
    "no definition": {"definition": ABSENT},
    "no replica is ready": {"deployment": deployment(0)},
    "a replica is missing": {"deployment": deployment(1)},
    "no Deployment": {"deployment": ABSENT},
    "nobody leads": {"lease": ABSENT, "lease_renewed": False},
    "the leader is dead": {"lease_renewed": False},
    "no configurations": {"configurations": dict.fromkeys(KEYS, ABSENT)},
    "an entry is gone, another one was changed": {"configurations": configurations(changed="workloads", gone="pods")},
    "nothing is held, and the policy cannot be read": {
        "policy": UNREAD,
        "gang": DryRun(0.01, stored={}),
        "wrong": DryRun(0.01, stored={}),
    },
    "the policy's entries are not written": {"policy": policy_of(DEFAULTS)},
    "no CA bundle yet": {"configurations": configurations(bundle=b"")},
    "another CA": {"configurations": configurations(bundle=OTHER)},
    "a CA bundle without certificates": {"configurations": configurations(bundle=b"none"), "bundle": b"none"},
    "a CA that ends soon": {"configurations": configurations(bundle=OLD), "bundle": OLD},
    "a CA that has ended": {"configurations": configurations(bundle=OLD), "bundle": OLD, "taken": NOW + 90 * 86_400},
    "another CA in one entry": {
        "configurations": configurations() | {KEYS[0]: ReadObject(configuration(*KEYS[0], other=("pods", OTHER)))}
    },
    "two CAs, and the Secret cannot be read": {
        "configurations": configurations() | {KEYS[0]: ReadObject(configuration(*KEYS[0], bundle=OTHER))},
        "secret": UNREAD,
    },
    "no Secret": {"secret": ABSENT},
    "certificates of cert-manager": {
        "secret": ABSENT,
        "deployment": MOUNTED,
        "configurations": configurations(bundle=OTHER),
    },
    "certificates of cert-manager, and no injector": {
        "secret": ABSENT,
        "deployment": MOUNTED,
        "configurations": configurations(bundle=b""),
    },
    "certificates of cert-manager, which have ended": {
        "secret": ABSENT,
        "deployment": MOUNTED,
        "configurations": configurations(bundle=OLD),
        "taken": NOW + 90 * 86_400,
    },
    "no admission policies": {
        "admission_policies": GOOD.admission_policies | {("validatingadmissionpolicies", "topogate-devices"): ABSENT}
    },
    "a refused policy, and the last good one": {"policy": policy_of("mode: enforcing"), "last_good": policy_of("{}")},
    "nodes are requested, and no autoscaler is there": {
        "policy": policy_of("autoscaling: {provisioningRequest: {className: a}}")
    },
    "nodes are requested of an older autoscaler": {
        "policy": policy_of("autoscaling: {provisioningRequest: {className: a}}"),
        "provisioning": ReadObject({"versions": [{"version": "v1beta1"}, {"version": "v9"}]}),
    },
    "nodes are requested, and the groups cannot be read": {
        "policy": policy_of("autoscaling: {provisioningRequest: {className: a}}"),
        "provisioning": UNREAD,
    },
    "a refused policy with many errors": {"policy": policy_of("mode: enforcing\nnodes: {settle: no}\n")},
    "a ConfigMap without policy": {"policy": ReadObject({"data": {}})},
    "rights are missing": {"rights": GrantedRights("roles", 200, ["patch jobs.batch", "get leases topogate"])},
    "nobody answers": {
        "gang": DryRun(
            3.0, refused='Internal error occurred: failed calling webhook "workloads.topogate.dev": x509: ...'
        )
    },
    "nobody is asked": {"gang": DryRun(0.01, stored={}), "wrong": DryRun(0.01, stored={})},
    "only the wrong one is taken": {"wrong": DryRun(0.01, stored=HELD)},
    "the request is not allowed there": {"gang": DryRun(0.01, refused=DENIED)},
    "the Job is refused by a quota": {"gang": DryRun(0.01, refused="exceeded quota: q, requested: count/jobs=1")},
    "the API server does not answer the Job in time": {
        "gang": DryRun(30.0, refused="POST /apis/batch/v1/namespaces/alice/jobs: timed out", late=True)
    },
    "a webhook of others is late": {
        "wrong": DryRun(10.0, refused='failed calling webhook "jobs.example.org": context deadline exceeded', late=True)
    },
    "nothing is held in mode observe": {
        "policy": policy_of("mode: observe"),
        "configurations": configurations(policy="mode: observe"),
        "gang": DryRun(0.01, stored={}),
        "wrong": DryRun(0.01, stored={}),
    },
    "a replica is not ready": {"pages": [PAGES[0], ReadyPage("topogate-1", ready=False)]},
    "a replica refuses the policy": {
        "pages": [ReadyPage("topogate-0", ready=True, text="[+] caches\n[!] policy: 2f stays in force; refused: mode")]
    },
    "a replica cannot be reached": {"pages": [ReadyPage("topogate-0", ready=False, why="dial tcp: i/o timeout")]},
    "no pods": {"pages": []},
    "the proxy is not allowed": {"pages": [ReadyPage("topogate-0", ready=False, forbidden=True)]},
}


def told(found: Installation) -> list[Finding]:
    answer = verify(found, version="0.1.0")
    jsonschema.validate(json.loads(answer.model_dump_json(by_alias=True)), SCHEMA)
    assert answer.good == all(one.result != "fail" for one in answer.findings)
    assert all((one.remedy is None) == (one.result in ("ok", "skip")) for one in answer.findings)
    return list(answer.findings)


def printed(findings: list[Finding]) -> str:
    text = "\n".join(line for one in finding_texts(findings) for line in one.lines)
    return re.sub(r"hash [0-9a-f]{12}", "hash 2f03981f5539", text)  # any new field changes it


def test_no_remedy_takes_back_what_an_overlay_or_values_say() -> None:
    """The files of the base would: they have another image, and rights that cert-manager's certificates do without."""
    remedies = {one.remedy or "" for change in BROKEN.values() for one in told(replace(GOOD, **change))}
    assert any("helm upgrade" in one for one in remedies)
    assert [one for one in remedies if "manifests/base" in one] == []


def test_what_is_told() -> None:
    """A good installation line by line; of a broken one the lines that differ."""
    good = told(GOOD)
    texts = {"all good": f"{printed(good)}\n{verdict_text(good)}"}
    texts["no right to anything"] = f"{printed(told(NO_RIGHTS))}\n{verdict_text(told(NO_RIGHTS))}"
    for case, changes in BROKEN.items():
        texts[case] = printed([one for one in told(replace(GOOD, **changes)) if one not in good])
    golden("verify", texts)


@pytest.mark.parametrize("case", [case for case in BROKEN if "not allowed" not in case and case != "no pods"])
def test_whatever_is_broken_is_told(case: str) -> None:
    assert [one for one in told(replace(GOOD, **BROKEN[case])) if one not in told(GOOD)]


def ca_of(secret: bytes, published: bytes) -> Finding:
    found = replace(GOOD, bundle=secret, configurations=configurations(bundle=published))
    (finding,) = [one for one in told(found) if one.check == "CA"]
    return finding


MINE = new_authority(now=NOW, name="corporate")
ENDED = new_authority(now=NOW - 3651 * 86_400, name="retired").bundle
SPELLINGS = {
    "no newline at the end": MINE.bundle.rstrip(b"\n"),
    "a comment": b"# corporate\n" + MINE.bundle,
    "CRLF": MINE.bundle.replace(b"\n", b"\r\n"),
    "twice": MINE.bundle + MINE.bundle,
    "another one before it that has ended": ENDED + MINE.bundle,
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_the_ca_of_the_secret_may_be_written_in_any_way(text: bytes) -> None:
    """The service publishes its certificates, those that have not ended, in a spelling of its own."""
    published = read_authority(text, MINE.key, now=NOW).bundle
    assert published != text
    assert ca_of(text, published) == ca_of(MINE.bundle, MINE.bundle)
    assert ca_of(text, published).result == "ok"


def test_entries_may_have_the_same_certificates_in_different_spellings() -> None:
    """Another program wrote one of them anew."""
    written = configurations(bundle=MINE.bundle)
    key = next(iter(written))
    body = written[key].body
    assert body is not None
    first, *others = body["webhooks"]
    twice = base64.b64encode(MINE.bundle + MINE.bundle).decode()
    changed = {**first, "clientConfig": {**first["clientConfig"], "caBundle": twice}}
    mixed = {**written, key: ReadObject({**body, "webhooks": [changed, *others]})}
    findings = [one for one in told(replace(GOOD, bundle=MINE.bundle, configurations=mixed)) if one.check == "CA"]
    assert [one.result for one in findings] == ["ok"]


@pytest.mark.parametrize(
    ("secret", "published"),
    [
        pytest.param(MINE.bundle + BUNDLE, MINE.bundle, id="one is not published"),
        pytest.param(MINE.bundle, MINE.bundle + BUNDLE, id="one more is published"),
        pytest.param(b"none", MINE.bundle, id="no certificates in the Secret"),
        pytest.param(MINE.bundle, b"none", id="none published"),
        pytest.param(MINE.bundle, b"\n" * 70_000 + MINE.bundle, id="longer than the service takes"),
    ],
)
def test_other_certificates_than_those_of_the_secret_fail(secret: bytes, published: bytes) -> None:
    finding = ca_of(secret, published)
    assert (finding.result, "another CA than that of Secret" in finding.found) == ("fail", True)


def test_entries_that_the_policy_adds_are_expected() -> None:
    written = replace(GOOD, policy=policy_of(DEFAULTS), configurations=configurations(policy=DEFAULTS))
    assert all(one.result == "ok" for one in told(written))


@pytest.mark.parametrize("path", fields())
def test_a_field_that_the_definition_lacks_is_named(path: str) -> None:
    """Each field that is written is in the manifest; without it, it is told."""
    body = copy.deepcopy(crd())
    *above, last = path.replace("[]", ".[]").split(".")
    at: Any = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in (*above, last) if last != "[]" else above:
        at = at["items"] if part == "[]" else at["properties"][part]
    assert at, path
    parent: Any = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in above:
        parent = parent["items"] if part == "[]" else parent["properties"][part]
    if last == "[]":
        del parent["items"]
    else:
        del parent["properties"][last]
    found = definition(ReadObject(body))
    assert (found.result, path in found.found or "more" in found.found) == ("fail", True)


def test_a_definition_that_is_not_served() -> None:
    gone = crd()
    gone["spec"]["versions"][0]["served"] = False
    assert "does not serve v1alpha1" in definition(ReadObject(gone)).found
    new = crd() | {"status": {"conditions": [{"type": "Established", "status": "False", "message": "not yet\x1b"}]}}
    assert definition(ReadObject(new)).found.endswith(r"is not established: not yet\x1b")


def test_the_rights_are_those_of_the_manifests() -> None:
    """No more and no less than rbac.yaml and rbac-workloads.yaml grant the service."""
    documents = list(yaml.safe_load_all((ROOT / "manifests/base/rbac.yaml").read_text(encoding="utf-8")))
    granted = {
        right
        for one in documents
        if one["kind"] in ("ClusterRole", "Role") and one["metadata"]["name"] == "topogate"
        for rule in one["rules"]
        for right in rights_of(rule, namespaced=one["kind"] == "Role")
    }
    assert granted == OWN_RIGHTS | BUDGET_RIGHTS | CA_RIGHTS
    assert len(granted) == len(OWN_RIGHTS) + len(BUDGET_RIGHTS) + len(CA_RIGHTS)
    of_kinds = {right for rule in rules(built_in()).cluster_role for right in rights_of(rule)}
    assert set(needed_rights(default_policy())) == OWN_RIGHTS | CA_RIGHTS | of_kinds
    assert set(needed_rights(default_policy(), own_ca=False)) == OWN_RIGHTS | of_kinds


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("{}", False),
        ("preemption: {mode: lower-priority}", True),
        ("defragment: {mode: act, protect: {runningFor: 1h}}", True),
    ],
)
def test_the_right_to_budgets_is_needed_while_the_policy_makes_room(text: str, needed: bool) -> None:
    """Without that an admin may remove its rule (docs/reference/rights.md), and nothing is missing then."""
    found = set(needed_rights(parse_policy(text)))
    assert found & BUDGET_RIGHTS == (BUDGET_RIGHTS if needed else set())


def test_missing_rights_are_found_in_roles() -> None:
    """Wildcards grant, names limit, and a Role counts in its own namespace alone."""
    needed = [
        NeededRight("", "pods", "get"),
        NeededRight("batch", "jobs", "patch"),
        NeededRight("", "secrets", "get", "topogate-ca", namespaced=True),
        NeededRight("", "secrets", "create", namespaced=True),
    ]
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    assert missing_rights(needed, [everything], []) == []
    assert missing_rights(needed, [], [everything]) == needed[:2]
    one = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["topogate-ca"], "verbs": ["get", "create"]}
    assert missing_rights(needed, [], [one]) == [needed[0], needed[1], needed[3]]
    assert [str(one) for one in needed[1:3]] == ["patch jobs.batch", "get secrets topogate-ca"]
