"""The chart as Helm renders it: the manifests with the same settings, and clear words for wrong values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.policy.model import parse_policy
from hack.chart import CHART
from tests.support.charts import Helm, HelmRefused, kustomized

# Values of the chart, and the components that do the same.
SAME: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "defaults": ({}, ()),
    "one replica": ({"replicas": 1, "podDisruptionBudget": {"enabled": False}}, ("components/one-replica",)),
    "cert-manager, high availability": (
        {"certificates": {"mode": "cert-manager"}, "replicas": 3, "spread": {"hosts": "required"}},
        ("components/cert-manager", "components/high-availability"),
    ),
    "monitoring": (
        {"monitoring": {name: {"enabled": True} for name in ("podMonitor", "prometheusRule", "dashboard")}},
        ("monitoring",),
    ),
}
DIGEST = "sha256:" + "0123456789abcdef" * 4
POLICY = {
    "topologies": [{"name": "default", "preset": "demo"}],
    "admins": ["system:masters", "o'neill"],
    "gpu": {"deviceAnnotationWriters": ["system:serviceaccount:gpu:writer"]},
}
SET: dict[str, Any] = {
    "image": {"repository": "registry.example.com/topogate", "digest": DIGEST, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "replicas": 3,
    "resources": {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
    "extraArgs": ["--threads=8"],
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"team": "platform", "app.kubernetes.io/name": "not-mine"},
    "priorityClassName": "platform",
    "nodeSelector": {"pool": "infra"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [],
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "policy": POLICY,
    "certificates": {"mode": "cert-manager", "issuerRef": {"name": "corporate", "kind": "ClusterIssuer"}},
    "networkPolicy": {
        "webhookFrom": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
        "opsFrom": [],
        "apiServerPorts": [8443],
        "apiServerTo": [{"ipBlock": {"cidr": "10.96.0.1/32"}}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}],
    },
    "monitoring": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"}},
    "extraKinds": [{"apiGroups": ["example.com"], "resources": ["trainings"], "verbs": ["get", "list", "watch"]}],
    "crd": {"keep": True},
}


@pytest.mark.parametrize("name", SAME)
def test_chart_and_manifests_have_the_same_objects(
    helm: Helm, programs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """Object by object: the defaults are the base, and some values are the base with components."""
    values, components = SAME[name]
    assert helm.template(values) == kustomized(programs["kubectl"], tmp_path, *components)


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> Any:
    """The chart with everything set, in a release of the service's own namespace."""
    return helm.template(SET, "--namespace", "topogate-system")


def test_a_value_is_found_where_it_belongs(rendered: Any) -> None:
    """Each value of the pods, and none of what it replaces."""
    spec = rendered["Deployment", "topogate-system", "topogate"]["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    assert spec["replicas"] == 3
    assert container["image"] == f"registry.example.com/topogate:0.1.0@{DIGEST}"
    assert container["imagePullPolicy"] == "Always"
    assert container["args"] == ["serve", "--certificates-from=/certificates", "--threads=8"]
    assert container["resources"] == SET["resources"]
    assert spec["template"]["metadata"]["annotations"] == {"example.com/a": "b"}
    labels = spec["template"]["metadata"]["labels"]
    assert labels == {**spec["selector"]["matchLabels"], "team": "platform"}
    assert {name: pod[name] for name in ("imagePullSecrets", "priorityClassName", "tolerations", "affinity")} == {
        name: SET[name] for name in ("imagePullSecrets", "priorityClassName", "tolerations", "affinity")
    }
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "infra"}
    assert "topologySpreadConstraints" not in pod
    assert ("ResourceQuota", "topogate-system", "topogate-critical-pods") not in rendered
    assert rendered["PodDisruptionBudget", "topogate-system", "topogate"]["spec"]["maxUnavailable"] == "50%"


@pytest.mark.parametrize(
    ("repository", "tag", "image"), [("12", "30", "12:30"), ("topogate", "v1 #2", "topogate:v1 #2")]
)
def test_a_text_is_rendered_as_it_is_given(helm: Helm, repository: str, tag: str, image: str) -> None:
    """YAML reads `12:30` as a number, and what follows ` #` not at all."""
    values = {"image": {"repository": repository, "tag": tag}, "priorityClassName": "system-a, b"}
    rendered = helm.template(values, "--show-only", "templates/deployment.yaml")
    [container] = rendered["Deployment", "topogate-system", "topogate"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    quota = rendered["ResourceQuota", "topogate-system", "topogate-critical-pods"]["spec"]
    assert quota["scopeSelector"]["matchExpressions"][0]["values"] == ["system-a, b"]


def test_what_is_empty_takes_the_default_away(helm: Helm) -> None:
    """The default affinity and constraints stand for null alone."""
    values = {"affinity": {}, "topologySpreadConstraints": []}
    rendered = helm.template(values, "--show-only", "templates/deployment.yaml")
    pod = rendered["Deployment", "topogate-system", "topogate"]["spec"]["template"]["spec"]
    assert not pod["affinity"]
    assert "topologySpreadConstraints" not in pod


def test_the_policy_is_one_everywhere(rendered: Any) -> None:
    """The ConfigMap has it whole; its admins and writers are those of the admission policies."""
    text = rendered["ConfigMap", "topogate-system", "topogate-policy"]["data"]["policy.yaml"]
    assert parse_policy(text) == parse_policy(yaml.safe_dump(POLICY))
    variables = {
        name: {
            one["name"]: one["expression"]
            for one in rendered["ValidatingAdmissionPolicy", "", name]["spec"]["variables"]
        }
        for name in ("topogate-placements", "topogate-devices")
    }
    assert variables["topogate-placements"]["admins"] == "['system:masters',\n 'o\\'neill']"
    assert variables["topogate-devices"]["admins"] == "['system:masters',\n 'o\\'neill']"
    assert variables["topogate-devices"]["writers"] == (
        "['system:serviceaccount:topogate-system:topogate',\n"
        " 'system:serviceaccount:koordinator-system:koord-scheduler',\n"
        " 'system:serviceaccount:gpu:writer']"
    )


def test_network_monitoring_rights_and_certificates_follow_the_values(rendered: Any) -> None:
    """What is beside the pods."""
    network = rendered["NetworkPolicy", "topogate-system", "topogate"]["spec"]
    assert [rule.get("from") for rule in network["ingress"]] == [[{"ipBlock": {"cidr": "10.0.0.0/28"}}], None]
    assert network["egress"][1:] == [
        {"ports": [{"port": 8443, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}]},
        {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]},
    ]
    monitor = rendered["PodMonitor", "topogate-system", "topogate"]
    assert monitor["metadata"]["labels"] == {"app.kubernetes.io/part-of": "topogate", "release": "prometheus"}
    assert monitor["spec"]["podMetricsEndpoints"][0]["interval"] == "15s"
    assert rendered["ClusterRole", "", "topogate-policy-kinds"]["rules"] == SET["extraKinds"]
    assert rendered["CustomResourceDefinition", "", "placements.topogate.dev"]["metadata"]["annotations"] == {
        "helm.sh/resource-policy": "keep"
    }
    issuer = rendered["Certificate", "topogate-system", "topogate"]["spec"]["issuerRef"]
    assert issuer == {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "corporate"}
    assert [key for key in rendered if key[0] == "Issuer"] == []
    # A release in the service's own namespace found it there.
    assert ("Namespace", "", "topogate-system") not in rendered


def test_the_service_has_no_right_to_secrets_with_cert_manager(rendered: Any) -> None:
    """Nor to change the configurations whose CA bundle is cert-manager's."""
    rules = rendered["Role", "topogate-system", "topogate"]["rules"] + rendered["ClusterRole", "", "topogate"]["rules"]
    assert [rule for rule in rules if "secrets" in rule["resources"]] == []
    written = [
        rule["resourceNames"]
        for rule in rules
        if "mutatingwebhookconfigurations" in rule["resources"] and set(rule["verbs"]) - {"get", "list", "watch"}
    ]
    assert written == [["topogate-policy"]]


@pytest.mark.parametrize("shown", ["topologies: [{name: default, preset: demo}]\n", {"mode": "observe"}])
def test_a_policy_is_text_or_a_map(helm: Helm, shown: Any) -> None:
    """Text is kept as it is, with its comments."""
    found = helm.template({"policy": shown}, "--show-only", "templates/policy.yaml")
    text = found["ConfigMap", "topogate-system", "topogate-policy"]["data"]["policy.yaml"]
    assert text == shown if isinstance(shown, str) else yaml.safe_load(text) == shown


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 3}, "additional properties 'replica' not allowed"),
        ({"replicas": "three"}, "at '/replicas': got string, want integer"),
        ({"image": {"digest": "sha256:12"}}, "at '/image/digest'"),
        (
            {"certificates": {"mode": "vault"}},
            "at '/certificates/mode': value must be one of 'self-signed', 'cert-manager'",
        ),
        ({"policy": {"topologys": []}}, "at '/policy': additional properties 'topologys' not allowed"),
        ({"policy": {"mode": "enforcing"}}, "at '/policy/mode'"),
        ({"policy": "a: ["}, "policy: is not YAML"),
        ({"networkPolicy": {"apiServerPorts": []}}, "at '/networkPolicy/apiServerPorts'"),
        ({"networkPolicy": {"apiServerPorts": None}}, "at '/networkPolicy': missing property 'apiServerPorts'"),
        ({"certificates": {"mode": None}}, "at '/certificates': missing property 'mode'"),
        ({"networkPolicy": None}, "missing property 'networkPolicy'"),
        ({"extraArgs": ["--threads=8", "--port=10250"]}, "at '/extraArgs/1'"),
        ({"replicas": None}, "missing property 'replicas'"),
        ({"extraKinds": [{"apiGroups": ["x"], "resources": ["y"], "verbs": ["*"]}]}, "at '/extraKinds/0/verbs/0'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_its_place(helm: Helm, values: Mapping[str, Any], said: str) -> None:
    """By the schema, before anything is rendered; and a policy's text that is no YAML."""
    with pytest.raises(HelmRefused) as refused:
        helm.template(values, "--show-only", "templates/admission-policy.yaml")
    assert said in str(refused.value)


def test_helm_finds_nothing_to_complain_of(helm: Helm) -> None:
    """`helm lint --strict`."""
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART))


def test_an_old_cluster_is_refused(helm: Helm) -> None:
    """1.29 has no match conditions that are on by default."""
    with pytest.raises(HelmRefused, match=r"requires kubeVersion: >=1.30.0-0"):
        helm.template({}, "--kube-version", "1.29.5")
