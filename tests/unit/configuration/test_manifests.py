"""The manifests as files: names, guarantees and limits that no API server checks for us."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.api import names
from engine.gang.warnings import (
    GANG_PREFIX,
    GROUP_ANNOTATIONS,
    GROUP_LABELS,
    LIKE_A_LEVEL,
    LIKE_AN_ALIAS,
    LIKE_OUR_PREFIX,
    READ_ELSEWHERE,
    WITHOUT_PREFIX,
)
from engine.kinds.conditions import ObjectCondition
from engine.kinds.registry import Registry, built_in
from engine.kinds.rules import rules
from engine.policy.model import parse_policy
from engine.topology.levels import presets
from tests.support.simulation import node, verdicts
from webhook.configuration.first_look import PATTERN
from webhook.snapshot.installation import OTHER_PODS, SERVICE_PODS

ROOT = Path(__file__).parents[3]
BASE = ROOT / "manifests" / "base"
OVERLAYS = ROOT / "manifests" / "overlays"
SAMPLES = ROOT / "manifests" / "samples"

OUR_USER = f"system:serviceaccount:{names.NAMESPACE}:{names.SERVICE_ACCOUNT}"
ALIAS_KEYS = sorted(key for dialect in names.ALIASES.values() for key in dialect)
ALL_KEYS = {
    *ALIAS_KEYS,
    *(key for keys in names.UNREAD.values() for key in keys),
    *(*names.REQUEST_KEYS, *names.OWNED_ANNOTATIONS, *names.OWNED_LABELS, *names.EXCLUSIVE_TOPOLOGY),
    *(*GROUP_ANNOTATIONS, *GROUP_LABELS, *WITHOUT_PREFIX, *READ_ELSEWHERE),
}
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
# The table of the entries: what each is called for, what its absence means, how long a user may have to wait.
ENTRIES = {
    (MUTATING, "workloads.topogate.dev"): ("workloads", ["CREATE", "UPDATE"], "Fail", 3),
    (MUTATING, "other-workloads.topogate.dev"): ("every kind", ["CREATE", "UPDATE"], "Ignore", 3),
    (MUTATING, "child-workloads.topogate.dev"): ("jobsets", ["CREATE", "UPDATE"], "Ignore", 3),
    (MUTATING, "asking-pods.topogate.dev"): ("pods", ["CREATE"], "Fail", 2),
    (MUTATING, "pods.topogate.dev"): ("pods", ["CREATE"], "Ignore", 2),
    (MUTATING, "other-pods.topogate.dev"): ("pods", ["CREATE"], "Ignore", 2),
    (VALIDATING, "workloads.topogate.dev"): ("workloads", ["CREATE", "UPDATE"], "Fail", 3),
    (VALIDATING, "plain-pods.topogate.dev"): ("pods", ["CREATE"], "Ignore", 2),
    (VALIDATING, "policy.topogate.dev"): ("configmaps", ["CREATE", "UPDATE"], "Ignore", 3),
}
PLACED = Registry(tuple(one for one in built_in().entries if one.handling != "hint"))
KINDS = {
    title: [dict(rule) for rule in rules(registry).webhook]
    for title, registry in (("workloads", PLACED), ("every kind", built_in()))
}


@cache
def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.load_all(path.read_text(), yaml.CSafeLoader))


def base() -> Iterator[dict[str, Any]]:
    for name in documents(BASE / "kustomization.yaml")[0]["resources"]:
        yield from documents(BASE / name)


def one(kind: str, name: str = "topogate") -> dict[str, Any]:
    [found] = [item for item in base() if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def entry(kind: str, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [hook for hook in one(kind)["webhooks"] if hook["name"] == name]
    assert len(found) == 1
    return found[0]


def condition(kind: str, name: str, title: str) -> str:
    [found] = [item["expression"] for item in entry(kind, name)["matchConditions"] if item["name"] == title]
    assert isinstance(found, str)
    return found


def test_kustomization_names_every_file() -> None:
    """A manifest that stands in the base is applied."""
    listed = documents(BASE / "kustomization.yaml")[0]["resources"]
    assert sorted(listed) == sorted(path.name for path in BASE.glob("*.yaml") if path.name != "kustomization.yaml")


def test_the_entries_are_exactly_those_of_the_contract() -> None:
    """Resource, operations, failure policy and time-out of every webhook entry are as documented."""
    found = {}
    for kind in (MUTATING, VALIDATING):
        for hook in one(kind, names.MUTATING_CONFIGURATION)["webhooks"]:
            of_kinds = next((name for name, rules in KINDS.items() if hook["rules"] == rules), None)
            resource = of_kinds or ",".join(hook["rules"][0]["resources"])
            assert of_kinds or len(hook["rules"]) == 1
            [operations] = {tuple(rule["operations"]) for rule in hook["rules"]}
            found[kind, hook["name"]] = (resource, [*operations], hook["failurePolicy"], hook["timeoutSeconds"])
    assert found == ENTRIES


@pytest.mark.parametrize(("kind", "name"), sorted(ENTRIES))
def test_every_entry_is_free_of_side_effects_and_skips_us(kind: str, name: str) -> None:
    """Each entry answers dry runs, is called again when a later webhook changes the object, and never for us."""
    hook = entry(kind, name)
    assert hook["sideEffects"] == "None"
    assert hook["matchPolicy"] == "Equivalent"
    assert hook.get("reinvocationPolicy") == ("IfNeeded" if kind == MUTATING else None)
    ours = f"request.userInfo.username != '{OUR_USER}'"
    parts = [part.strip("() \n") for one in hook["matchConditions"] for part in one["expression"].split(" &&\n")]
    assert ours in parts
    assert len(hook["matchConditions"]) <= 64


@pytest.mark.parametrize(("kind", "name"), sorted(ENTRIES))
def test_every_entry_but_the_policy_s_leaves_the_system_namespaces_alone(kind: str, name: str) -> None:
    """kube-system and our own namespace are exempt by a label that the API server itself keeps."""
    [selector] = entry(kind, name)["namespaceSelector"]["matchExpressions"]
    assert selector["key"] == "kubernetes.io/metadata.name"
    if name == "policy.topogate.dev":
        assert (selector["operator"], selector["values"]) == ("In", [names.NAMESPACE])
    else:
        assert (selector["operator"], selector["values"]) == ("NotIn", ["kube-system", names.NAMESPACE])


NATIVE = (names.REQUEST_KEYS | names.OWNED_ANNOTATIONS | names.OWNED_LABELS) - {names.REQUESTS_PLACEMENT}


def test_earlier_releases_let_the_label_of_workloads_pass() -> None:
    """They refuse labels under the prefix that they do not know, and may validate what this one has labelled."""
    assert not names.REQUESTS_PLACEMENT.startswith(names.PREFIX)


@pytest.mark.parametrize("key", sorted(NATIVE))
def test_native_keys_are_under_the_prefix_that_the_conditions_look_for(key: str) -> None:
    """A key of ours, known or misspelt, is found by its prefix alone."""
    assert key.startswith(names.PREFIX)
    for kind, name in ENTRIES:
        if name in ("workloads.topogate.dev", "asking-pods.topogate.dev"):
            assert f".startsWith('{names.PREFIX}')" in condition(kind, name, "asks")


@pytest.mark.parametrize(
    "key", [*ALIAS_KEYS, names.POD_GROUP_NAME, names.KOORDINATOR_GANG_NAME, names.SCHEDULER_PLUGINS_POD_GROUP]
)
def test_every_alias_is_looked_for(key: str) -> None:
    """A request in any dialect is sent, whatever the policy says of it."""
    for kind, name in ENTRIES:
        if name in ("workloads.topogate.dev", "asking-pods.topogate.dev"):
            assert f"'{key}'" in condition(kind, name, "asks")


def said(condition: ObjectCondition) -> set[object]:
    """The values and keys that a condition of the registry names."""
    inner = (*(condition.every or ()), *(condition.some or ()), condition.negated, condition.where)
    own = {condition.label, condition.annotation, condition.equals, *(condition.among or ())}
    own |= {*(condition.path.steps if condition.path is not None else ())}
    return own.union(*(said(one) for one in inner if one is not None))


def test_the_conditions_name_nothing_unknown() -> None:
    """A misspelt name in a condition would silently never match."""
    known = {
        *ALIAS_KEYS,
        *(key for keys in names.UNREAD.values() for key in keys),
        *(names.PREFIX, names.KUEUE_PREFIX, names.KAI_PREFIX, names.POD_GROUP_PREFIX),
        names.SCHEDULER_PLUGINS_POD_GROUP,
        *(names.POD_GROUP_MIN, names.KOORDINATOR_GANG_NAME, names.KOORDINATOR_GANG_MIN, "^[1-9][0-9]{0,8}$"),
        *(names.POD_GROUP_NAME, names.KUEUE_QUEUE, names.KUEUE_WORKLOAD, names.GATE, names.POLICY_NAME, OUR_USER),
        *(names.DEVICE_ALLOCATED, "koordinator.sh/", "UPDATE", "CREATE", "DaemonSet"),
        *(*names.OWNED_ANNOTATIONS, *names.OWNED_LABELS, *names.EXCLUSIVE_TOPOLOGY),
        *("topogate", "t", "top", "Top", GANG_PREFIX, *GROUP_ANNOTATIONS, *WITHOUT_PREFIX),  # what looks like ours
        *("", "/", names.DEFAULT_SCHEDULER, names.UNCONSTRAINED, "false", PATTERN),
    }
    for one in built_in().entries:
        known |= {one.match.group, f"{one.match.group}/", one.match.kind, one.match.resource, *one.match.versions}
        known |= {part for ref in one.owners for part in (f"{ref.group}/", ref.kind)}
        known |= {value for aside in one.stand_aside for value in said(aside.when) if isinstance(value, str)}
    for kind, name in ENTRIES:
        for item in entry(kind, name)["matchConditions"]:
            assert set(re.findall(r"'([^']*)'", item["expression"])) <= known, (kind, name, item["name"])


def test_a_workload_that_is_mutated_is_validated() -> None:
    """Both configurations send the same workloads with a request; those with devices go with those to be warned."""
    name = "workloads.topogate.dev"
    assert entry(MUTATING, name)["matchConditions"] == entry(VALIDATING, name)["matchConditions"]
    assert entry(MUTATING, name)["rules"] == entry(VALIDATING, name)["rules"]
    words = condition(MUTATING, "other-workloads.topogate.dev", "means-to-ask-or-names-devices").split()
    assert len([one for one in words if "startsWith('koordinator.sh/')" in one]) == 5  # four in the first look


@pytest.mark.parametrize("resource", ["pods", "jobs", "deployments"])
def test_an_object_of_others_meets_two_mutating_entries_and_no_validating_one(resource: str) -> None:
    """One that fails and one that lets pass: each costs the API server a conversion of every object in the cluster."""
    for kind, expected in ((MUTATING, ["Fail", "Ignore"]), (VALIDATING, [])):
        met = [
            hook["failurePolicy"]
            for hook in one(kind)["webhooks"]
            if any(resource in rule["resources"] for rule in hook["rules"])
            and all(
                selected["operator"] == "DoesNotExist"
                for selected in hook.get("objectSelector", {}).get("matchExpressions", ())
            )
        ]
        assert sorted(met) == expected, kind


def is_looked_at(key: str) -> bool:
    """Whether the first look is true for an object with this annotation or label, as in CEL."""
    return re.search(PATTERN, key) is not None


@pytest.mark.parametrize("key", sorted(ALL_KEYS))
def test_the_first_look_sees_every_key_that_a_condition_looks_for(key: str) -> None:
    """What it does not see is never sent."""
    assert is_looked_at(key)


def test_the_first_look_sees_whatever_the_expressions_compare_a_key_with() -> None:
    """Each exact key and beginning in the conditions as they are generated."""
    listed, found = r"\[('[^']*'(?:, '[^']*')*)\]", set[str]()
    for kind, name in ENTRIES:
        for expression in (item["expression"] for item in entry(kind, name)["matchConditions"]):
            for one in re.findall(rf"\bk in {listed}|{listed}\.exists\((?:k, k in|prefix,) ", expression):
                found |= {*re.findall(r"'([^']*)'", "".join(one))}
            found |= {*re.findall(r"'([^']*)' in (?:[alm]|object\.metadata)\b", expression)}
            found |= {*re.findall(r"\bk\.startsWith\('([^']*)'\)", expression)}
    assert {*ALIAS_KEYS, names.MANAGED, names.PREFIX, names.POD_GROUP_NAME, GANG_PREFIX, *WITHOUT_PREFIX} <= found
    # Looked for without a first look; names of resources; the first letter of what a pattern is compared with then.
    without = {names.DEVICE_ALLOCATED, "koordinator.sh/", "t"}
    assert {key for key in found - without if not is_looked_at(key)} == set()


@given(
    st.one_of(
        *(st.from_regex(pattern) for pattern in (LIKE_A_LEVEL, LIKE_AN_ALIAS, LIKE_OUR_PREFIX)),
        *(st.text().map(prefix.__add__) for prefix in (names.PREFIX, GANG_PREFIX, names.POD_GROUP_PREFIX)),
        st.text().map("topogate{}".format),
    )
)
def test_the_first_look_sees_whatever_resembles_a_key(key: str) -> None:
    """Also a misspelt key, of which only a part is known."""
    assert is_looked_at(key)


@pytest.mark.parametrize(
    "key",
    [
        *("app", "tier", "team", "pod-template-hash", "job-name", "batch.kubernetes.io/job-name"),
        *("app.kubernetes.io/name", "deployment.kubernetes.io/revision", "helm.sh/chart", "controller-uid"),
        *("kubectl.kubernetes.io/last-applied-configuration", "sidecar.istio.io/inject", "prometheus.io/scrape"),
        *("kubectl.kubernetes.io/restartedAt", "statefulset.kubernetes.io/pod-name", "k8s-app", "name", "version"),
        *("release", "chart", "heritage", "component", "environment", "stage", "track", "service", "region", "zone"),
        *(
            "meta.helm.sh/release-name",
            "checksum/config",
            "argocd.argoproj.io/instance",
            "kustomize.toolkit.fluxcd.io/name",
        ),
        *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index", "olm.owner", "operator"),
    ],
)
def test_the_first_look_passes_over_the_keys_of_everybody(key: str) -> None:
    """Else it would spare nobody anything."""
    assert not is_looked_at(key)


def test_gangs_are_told_apart_by_their_labels_before_any_condition() -> None:
    """A selector is far cheaper than a condition, and the API server evaluates an entry's conditions all."""
    selected = {
        (kind, name): entry(kind, name)["objectSelector"]["matchExpressions"]
        for kind, name in ENTRIES
        if "objectSelector" in entry(kind, name)
    }
    marked, unmarked = ([{"key": names.MANAGED, "operator": one}] for one in ("Exists", "DoesNotExist"))
    assert selected == {
        (MUTATING, "pods.topogate.dev"): marked,
        (MUTATING, "other-pods.topogate.dev"): unmarked,
        (VALIDATING, "workloads.topogate.dev"): [{"key": names.REQUESTS_PLACEMENT, "operator": "Exists"}],
        (VALIDATING, "plain-pods.topogate.dev"): marked,
    }


@pytest.mark.parametrize("name", ["workloads.topogate.dev", "other-workloads.topogate.dev"])
def test_kubernetes_own_workloads_are_looked_at_in_one_place(name: str) -> None:
    """Most workloads are Deployments and Jobs that ask for nothing: they are spared the paths of the other kinds."""
    [dear] = [item["expression"] for item in entry(MUTATING, name)["matchConditions"] if "s.?" in item["expression"]]
    short, longer = re.findall(r"\? *\n(.*?) :\n(.*?replicatedJobs)", dear, re.DOTALL)[0]
    assert "['apps', 'batch'] ?" in dear
    assert re.findall(r"s\.\?(\w+)", short) == ["template"]
    assert "leaderWorkerTemplate" in longer


def test_a_pod_that_gets_its_place_is_reviewed_once() -> None:
    """The entry for pods without a gate is asked before the one that takes the gate off."""
    order = [hook["name"] for hook in one(MUTATING)["webhooks"]]
    assert order.index("asking-pods.topogate.dev") < order.index("pods.topogate.dev")
    assert order.index("pods.topogate.dev") < order.index("other-pods.topogate.dev")
    assert order.index("workloads.topogate.dev") < order.index("other-workloads.topogate.dev")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (MUTATING, "workloads.topogate.dev"),
        (VALIDATING, "workloads.topogate.dev"),
        (MUTATING, "asking-pods.topogate.dev"),
    ],
)
def test_what_translation_wrote_asks_for_nothing(kind: str, name: str) -> None:
    """An object that we only translated is not sent to an entry that fails while the service is down."""
    asks = condition(kind, name, "asks")
    (left_out,) = set(re.findall(rf"startsWith\('{names.PREFIX}'\) && !\(k in \[([^]]*)\]\) &&", asks))
    assert {names.ORIGINAL_REQUESTS, names.GPU_REQUEST} <= set(re.findall(r"'([^']*)'", left_out))


def test_no_manifest_has_a_ca_bundle() -> None:
    """Applying a CA bundle would wipe the one that the leader keeps."""
    for path in (ROOT / "manifests").rglob("*.yaml"):
        assert not re.search(r"caBundle[\"']?\s*:", path.read_text()), path


def test_the_leader_s_own_pair_is_shipped_empty() -> None:
    """What the policy adds belongs to the leader alone; even an empty list would be a field of the manifest."""
    for kind in (MUTATING, VALIDATING):
        assert "webhooks" not in one(kind, names.POLICY_CONFIGURATION)


def test_the_local_overlay_redirects_every_entry() -> None:
    """No entry of the local overlay is left pointing at a Service that is not there."""
    for file, kind, path in (("mutating", MUTATING, "mutate"), ("validating", VALIDATING, "validate")):
        [patch] = documents(OVERLAYS / "local" / f"{file}.yaml")
        assert [hook["name"] for hook in patch["webhooks"]] == [hook["name"] for hook in one(kind)["webhooks"]]
        for hook in patch["webhooks"]:
            assert hook["clientConfig"] == {"service": None, "url": f"https://127.0.0.1:PORT/{path}"}


def test_the_service_is_called_where_it_listens() -> None:
    """clientConfig, Service, container ports and probes fit each other."""
    service = one("Service", names.SERVICE_NAME)
    [container] = one("Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"https": 8443, "ops": 8080}
    assert {port["port"]: port["targetPort"] for port in service["spec"]["ports"]} == {443: "https", 8080: "ops"}
    for kind, name in ENTRIES:
        reference = entry(kind, name)["clientConfig"]["service"]
        path = "/mutate" if kind == MUTATING else "/validate"
        assert reference == {"name": names.SERVICE_NAME, "namespace": names.NAMESPACE, "path": path, "port": 443}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "ops"


def test_selectors_find_the_replicas() -> None:
    """Service, budget, network policy and spreading select the labels that the pods carry."""
    template = one("Deployment")["spec"]["template"]
    labels = template["metadata"]["labels"]
    selectors = [
        one("Deployment")["spec"]["selector"]["matchLabels"],
        one("Service")["spec"]["selector"],
        one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(item["labelSelector"]["matchLabels"] for item in template["spec"]["topologySpreadConstraints"]),
        *(
            item["podAffinityTerm"]["labelSelector"]["matchLabels"]
            for item in template["spec"]["affinity"]["podAntiAffinity"][
                "preferredDuringSchedulingIgnoredDuringExecution"
            ]
        ),
    ]
    assert all(selector == labels for selector in selectors)
    key, _, name = SERVICE_PODS.partition("=")  # of the commands
    assert labels[key] == name
    assert f"{key}!={name}" == OTHER_PODS


def test_upgrades_never_lack_a_replica() -> None:
    """There are always as many replicas as wanted, and an ending one serves until nobody calls it any more."""
    spec = one("Deployment")["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] < pod["terminationGracePeriodSeconds"]
    assert one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_pod_meets_the_restricted_standard() -> None:
    """The namespace enforces the restricted standard, and the service's pod has what it asks for and more."""
    assert one("Namespace", names.NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = one("Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert [volume["emptyDir"]["medium"] for volume in pod["volumes"]] == ["Memory"]


def test_the_image_has_the_version_of_the_project() -> None:
    """A release that forgets the manifests is noticed."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    [container] = one("Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"topogate:{version}"
    assert f"image=topogate:{version}\n" in (ROOT / "hack" / "kind-up.sh").read_text()


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_kind_gets_the_image_under_the_name_that_its_nodes_read(tmp_path: Path, engine: str) -> None:
    """The nodes read a short name as one of docker.io; podman would tag and save it as one of localhost."""
    for name in (engine, "kind", "kubectl"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KIND_EXPERIMENTAL_PROVIDER": engine}
    subprocess.run([ROOT / "hack" / "kind-up.sh"], env=environment, capture_output=True, check=True)
    calls = (tmp_path / "calls").read_text()
    [container] = one("Deployment")["spec"]["template"]["spec"]["containers"]
    image = f"docker.io/library/{container['image']}"
    assert f"{engine} build --tag {image} " in calls
    assert re.search(rf"^{engine} save --output \S+ {re.escape(image)}$", calls, re.MULTILINE)


def test_cluster_wide_rights_hold_no_secret_and_no_wildcard() -> None:
    """Nothing cluster-wide reads Secrets, deletes workloads, or widens itself."""
    for rule in (*one("ClusterRole")["rules"], *one("ClusterRole", "topogate-workloads")["rules"]):
        resources, verbs = set(rule["resources"]), set(rule["verbs"])
        assert not resources & {"secrets", "configmaps", "pods/exec", "*"}
        assert not verbs & {"*", "escalate", "bind", "impersonate", "deletecollection"}
        assert "*" not in rule["apiGroups"]
        if "pods" in resources:
            assert verbs <= {"get", "list", "watch", "patch", "delete"}
        elif resources <= {"provisioningrequests", "podtemplates"}:
            assert verbs <= {"get", "list", "watch", "create", "delete"}
        elif rule["apiGroups"] not in ([names.API_GROUP], ["events.k8s.io"]) and "pods/eviction" not in resources:
            assert verbs <= {"get", "list", "watch", "patch"}


def test_workloads_are_what_the_registry_says() -> None:
    """The role for workloads grants what the kinds need and nothing else, to our account alone."""
    assert one("ClusterRole", "topogate-workloads")["rules"] == [dict(rule) for rule in rules(built_in()).cluster_role]
    binding = one("ClusterRoleBinding", "topogate-workloads")
    assert binding["roleRef"]["name"] == "topogate-workloads"
    assert binding["subjects"] == one("ClusterRoleBinding")["subjects"]


def test_rights_by_name_name_our_objects() -> None:
    """resourceNames are the names that the code uses."""
    by_name = {
        (resource, name)
        for role in (one("ClusterRole"), one("Role"))
        for rule in role["rules"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    configurations = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    assert by_name == {
        *((resource, names.MUTATING_CONFIGURATION) for resource in configurations),
        *((resource, names.POLICY_CONFIGURATION) for resource in configurations),
        ("leases", names.LEASE_NAME),
        ("configmaps", names.POLICY_NAME),
        ("configmaps", names.LAST_GOOD_POLICY_NAME),
        ("secrets", names.CA_SECRET_NAME),
    }


def test_the_guard_of_placements_fails_closed_and_knows_us() -> None:
    """Placements cannot be forged while the service is down, and the service is not locked out."""
    guard = one("ValidatingAdmissionPolicy", "topogate-placements")["spec"]
    assert guard["failurePolicy"] == "Fail"
    variables = {item["name"]: item["expression"] for item in guard["variables"]}
    assert variables["service"] == f"request.userInfo.username == '{OUR_USER}'"
    for admin in parse_policy("apiVersion: topogate.dev/v1alpha1\nkind: Policy\n").admins:
        assert f"'{admin}'" in variables["admins"]
    assert one("ValidatingAdmissionPolicyBinding", "topogate-placements")["spec"]["validationActions"] == ["Deny"]


def test_the_guard_of_devices_knows_us_and_the_admins() -> None:
    """It fails closed, looks at nothing but a changed device annotation, and lets the default admins pass."""
    guard = one("ValidatingAdmissionPolicy", "topogate-devices")["spec"]
    assert guard["failurePolicy"] == "Fail"
    [condition] = guard["matchConditions"]
    assert condition["expression"].count(f"'{names.DEVICE_ALLOCATED}'") == 2
    variables = {item["name"]: item["expression"] for item in guard["variables"]}
    assert f"'{OUR_USER}'" in variables["writers"]
    for admin in parse_policy("{}").admins:
        assert f"'{admin}'" in variables["admins"]
    assert one("ValidatingAdmissionPolicyBinding", "topogate-devices")["spec"]["validationActions"] == ["Deny"]


def test_the_warning_about_kinds_that_cannot_be_placed_stops_nobody() -> None:
    """It knows what is no request, and speaks of no kind that is placed."""
    guard = one("ValidatingAdmissionPolicy", "topogate-unplaceable")["spec"]
    assert guard["failurePolicy"] == "Ignore"
    assert one("ValidatingAdmissionPolicyBinding", "topogate-unplaceable")["spec"]["validationActions"] == ["Warn"]
    asks = guard["matchConditions"][0]["expression"]
    assert set(re.findall(rf"'({names.PREFIX}[a-z-]+)'", asks)) == names.OWNED_ANNOTATIONS
    placed = {(one.match.group, one.match.resource) for one in built_in().entries}
    for rule in guard["matchConstraints"]["resourceRules"]:
        assert placed.isdisjoint((group, resource) for group in rule["apiGroups"] for resource in rule["resources"])


def test_the_resource_has_the_names_that_the_code_uses() -> None:
    """Group, kind, plural and short name of the Placement."""
    spec = one("CustomResourceDefinition", f"{names.PLACEMENTS}.{names.API_GROUP}")["spec"]
    [version] = spec["versions"]
    assert f"{spec['group']}/{version['name']}" == names.API_VERSION
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (names.PLACEMENT_KIND, names.PLACEMENTS)
    assert spec["names"]["shortNames"] == ["tgp"]
    assert version["subresources"] == {"status": {}}


def schemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from schemas(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from schemas(schema[key], f"{path}[]")


def test_everything_in_a_placement_is_bounded_and_lists_are_atomic() -> None:
    """No string or list of a Placement is without a limit; a list is replaced as a whole or not at all."""
    [version] = one("CustomResourceDefinition", "placements.topogate.dev")["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        for path, schema in schemas(root[part], part):
            if schema.get("type") == "string" and not {"enum", "format"} & schema.keys():
                assert "maxLength" in schema, path
            if schema.get("type") == "array":
                assert schema["x-kubernetes-list-type"] == "atomic", path
                assert "maxItems" in schema, path


def test_the_sample_policy_is_a_policy() -> None:
    """The sample is accepted as it stands."""
    [config_map] = documents(SAMPLES / "policy.yaml")
    assert config_map["metadata"] == {"name": names.POLICY_NAME, "namespace": names.NAMESPACE}
    assert parse_policy(config_map["data"][names.POLICY_KEY]).mode == "enforce"


@pytest.mark.parametrize(("file", "key"), [("job-require-rack", names.REQUIRE), ("job-prefer-rack", names.PREFER)])
def test_the_sample_jobs_ask_with_one_annotation(file: str, key: str) -> None:
    """A sample shows that one annotation is all that it takes."""
    [job] = documents(SAMPLES / f"{file}.yaml")
    assert job["metadata"]["annotations"] == {key: "rack"}
    assert "schedulingGates" not in job["spec"]["template"]["spec"]
    assert "suspend" not in job["spec"]


def test_the_kind_cluster_has_the_labels_of_a_preset() -> None:
    """A kind cluster needs no policy: its node labels are those of a preset."""
    [cluster] = documents(OVERLAYS / "kind" / "kind.yaml")
    wanted = {key for level in presets()["demo"][:-1] for key in level.keys}
    workers = [node for node in cluster["nodes"] if node["role"] == "worker"]
    assert len(workers) >= 4
    assert all(wanted == set(node["labels"]) for node in workers)


@pytest.mark.parametrize("file", ["job-require-rack", "job-prefer-rack"])
def test_the_samples_start_on_the_kind_cluster(file: str) -> None:
    """What hack/kind-up.sh ends with runs there, on the machine of whoever tries it: each node reports all of it."""
    [cluster] = documents(OVERLAYS / "kind" / "kind.yaml")
    workers = [one for one in cluster["nodes"] if one["role"] == "worker"]
    nodes = [node(f"topogate-worker{number}", one["labels"]) for number, one in enumerate(workers)]
    for one in nodes:
        one["status"]["allocatable"] |= {"cpu": "4", "memory": "8Gi"}
    [(_, verdict, reason)] = verdicts(nodes, documents(SAMPLES / f"{file}.yaml"))
    assert verdict == "placed", reason


def test_a_frozen_replica_is_restarted_within_25_seconds() -> None:
    """Calls on its open connections run into their time limit until it is gone; it hears no SIGTERM either."""
    probe = one("Deployment")["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
    least = 2  # the kubelet's own, after a preStop hook that took all the grace there was
    noticed = probe["failureThreshold"] * probe["periodSeconds"] + probe["timeoutSeconds"]
    assert noticed + probe["terminationGracePeriodSeconds"] + least <= 25
