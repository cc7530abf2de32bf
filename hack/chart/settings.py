"""The settings of the chart: name, default, what may be written, what it does; its values, schema and page in one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from engine.kinds.schema import Verb

Schema = Mapping[str, Any]
TEXT: Final[Schema] = {"type": "string"}
SWITCH: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
TEXT_MAP: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
# Not where the service listens: Service, probes and NetworkPolicy name the ports, and reach them from elsewhere.
ARGUMENTS: Final[Schema] = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "not": {"pattern": "^--(ops-)?(host|port)(=|$)"}},
}
PORTS: Final[Schema] = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1, "maximum": 65535}}


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of the chart; `path` is dotted, `schema` a JSON Schema without the description.

    `example` is written as a comment below the value.
    """

    path: str
    default: Any
    schema: Schema
    text: str
    example: str = ""


def one_of(*words: str) -> Schema:
    """Return the schema of a value that is one of these words."""
    return {"enum": [*words]}


def or_null(schema: Schema) -> Schema:
    """Return a schema that lets null through too: what is null is as in manifests/base."""
    return {**schema, "type": [schema["type"], "null"]}


SETTINGS: Final = (
    Setting(
        "image.repository", "topogate", {"type": "string", "minLength": 1}, "Where your nodes pull the image from."
    ),
    Setting("image.tag", "", TEXT, "Tag of the image; empty: the appVersion of the chart."),
    Setting(
        "image.digest",
        "",
        {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        "Digest of the image. With it the tag is only for people: what runs is what has this digest.",
        example='"sha256:0123..."',
    ),
    Setting(
        "image.pullPolicy", "IfNotPresent", one_of("IfNotPresent", "Always", "Never"), "When nodes pull the image."
    ),
    Setting(
        "imagePullSecrets", [], OBJECTS, "Secrets in topogate-system for the registry.", example="[{name: registry}]"
    ),
    Setting(
        "replicas", 2, {"type": "integer", "minimum": 0, "maximum": 9}, "Replicas of the service; one of them leads."
    ),
    Setting(
        "resources",
        {"requests": {"cpu": "250m", "memory": "768Mi"}, "limits": {"memory": "768Mi"}},
        OBJECT,
        "Resources of a replica. The default is enough for 10,000 nodes and 100,000 pods. A CPU limit would be a "
        "time-out at the user's.",
    ),
    Setting(
        "extraArgs",
        [],
        ARGUMENTS,
        "More options of `topogate serve`, but not its ports and their addresses, which Service and probes name.",
        example="[--threads=8]",
    ),
    Setting("podAnnotations", {}, TEXT_MAP, "Annotations of the pods of the service."),
    Setting("podLabels", {}, TEXT_MAP, "More labels of the pods of the service."),
    Setting(
        "priorityClassName",
        "system-cluster-critical",
        TEXT,
        "Priority class of the pods. For a class `system-*` a ResourceQuota that names it is created: some clusters "
        "demand one.",
    ),
    Setting("nodeSelector", {"kubernetes.io/os": "linux"}, TEXT_MAP, "Labels of the nodes that replicas may run on."),
    Setting("tolerations", [], OBJECTS, "Taints of nodes that replicas tolerate."),
    Setting(
        "spread.hosts",
        "preferred",
        one_of("preferred", "required"),
        "Whether replicas should, or must, run on different hosts.",
    ),
    Setting("affinity", None, or_null(OBJECT), "Affinity of the pods, instead of what spread.hosts makes; {}: none."),
    Setting(
        "topologySpreadConstraints",
        None,
        or_null(OBJECTS),
        "Constraints instead of the default, which spreads replicas over zones where it can; []: none.",
    ),
    Setting("podDisruptionBudget.enabled", True, SWITCH, "Whether drains take one replica after another."),
    Setting(
        "podDisruptionBudget.maxUnavailable",
        1,
        {"type": ["integer", "string"], "minimum": 0, "pattern": "^([0-9]{1,2}|100)%$"},
        "How many replicas may be missing.",
    ),
    Setting(
        "policy",
        None,
        {"type": ["object", "string", "null"], "if": {"type": "object"}, "then": {"$ref": "#/$defs/Policy"}},
        "The policy: a map (checked against the policy's schema) or the text of policy.yaml. null: the chart writes "
        "none, and keeps its hands off one that you write yourself. What it says of `admins` and "
        "`gpu.deviceAnnotationWriters` goes into the admission policies too.",
        example="{topologies: [{name: default, preset: gke}]}",
    ),
    Setting(
        "certificates.mode",
        "self-signed",
        one_of("self-signed", "cert-manager"),
        "Who makes the certificates: the service itself, or cert-manager. With cert-manager the service may not read "
        "or write any Secret through the API. A change of a running release takes the steps of "
        "docs/tasks/admin/certificates.md.",
    ),
    Setting(
        "certificates.issuerRef",
        None,
        or_null(
            {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "kind": {"type": "string", "minLength": 1},  # other groups have issuers of other kinds
                    "group": {"type": "string", "minLength": 1},
                },
            }
        ),
        "The issuer of cert-manager that signs; it must write ca.crt into its Secrets. null: a CA of its own, in "
        "topogate-system.",
        example="{name: corporate, kind: ClusterIssuer}",
    ),
    Setting(
        "networkPolicy.enabled", True, SWITCH, "Whether a NetworkPolicy limits who reaches the service, and whom it."
    ),
    Setting(
        "networkPolicy.webhookFrom",
        [],
        OBJECTS,
        "Who may call the webhooks. Empty: everybody, because the API server's addresses differ from platform to "
        "platform.",
        example="[{ipBlock: {cidr: 10.0.0.0/28}}]",
    ),
    Setting(
        "networkPolicy.opsFrom",
        [{"namespaceSelector": {}}],
        OBJECTS,
        "Who may read metrics and status pages. Empty: everybody.",
    ),
    Setting("networkPolicy.apiServerPorts", [443, 6443], PORTS, "Ports of the API server that replicas may reach."),
    Setting(
        "networkPolicy.apiServerTo",
        [],
        OBJECTS,
        "Where the API server is: the address of the Service `kubernetes` and those behind it. Empty: these ports are "
        "open to every address.",
        example="[{ipBlock: {cidr: 10.96.0.1/32}}, {ipBlock: {cidr: 10.0.0.0/28}}]",
    ),
    Setting("networkPolicy.extraEgress", [], OBJECTS, "More rules for what replicas may reach."),
    Setting("monitoring.podMonitor.enabled", False, SWITCH, "Whether a PodMonitor of the Prometheus Operator is made."),
    Setting("monitoring.podMonitor.labels", {}, TEXT_MAP, "Labels by which your Prometheus selects PodMonitors."),
    Setting(
        "monitoring.podMonitor.interval",
        "30s",
        {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
        "How often a replica is scraped.",
    ),
    Setting("monitoring.prometheusRule.enabled", False, SWITCH, "Whether the alerts are made."),
    Setting("monitoring.prometheusRule.labels", {}, TEXT_MAP, "Labels by which your Prometheus selects rules."),
    Setting(
        "monitoring.prometheusRule.runbooks",
        "https://topogate.dev/",
        {"type": "string", "pattern": "^https?://[^\\s]+/$"},
        "What `runbook_url` of each alert begins with: where your people read these pages.",
    ),
    Setting("monitoring.dashboard.enabled", False, SWITCH, "Whether a ConfigMap with the Grafana dashboard is made."),
    Setting(
        "monitoring.dashboard.labels",
        {"grafana_dashboard": "1"},
        TEXT_MAP,
        "Labels by which Grafana's sidecar finds dashboards.",
    ),
    Setting(
        "extraKinds",
        [],
        {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["apiGroups", "resources", "verbs"],
                "properties": {
                    "apiGroups": {
                        "type": "array",
                        "minItems": 1,
                        "items": {"type": "string", "pattern": "^[a-z0-9.-]*$"},
                    },
                    "resources": {
                        "type": "array",
                        "minItems": 1,
                        "items": {"type": "string", "pattern": "^[a-z0-9/-]+$"},
                    },
                    "verbs": {"type": "array", "minItems": 1, "items": {"enum": [*get_args(Verb)]}},
                },
            },
        },
        "Rights on kinds that your policy adds, as `topogate policy check` prints them.",
        example="[{apiGroups: [example.com], resources: [trainings], verbs: [get, list, watch, patch]}]",
    ),
    Setting(
        "namespace.create",
        "auto",
        {"enum": ["auto", True, False]},
        "Whether the chart has the namespace topogate-system among its objects. auto: unless the release is in it. "
        "An upgrade that would take it out, and so delete it, is refused.",
    ),
    Setting(
        "crd.create",
        True,
        SWITCH,
        "Whether the definition of Placements is among the objects, so that upgrades change it. An upgrade that would "
        "take it out, and so delete it with all Placements, is refused.",
    ),
    Setting(
        "crd.keep",
        False,
        SWITCH,
        "Whether `helm uninstall` leaves the definition, with all Placements.",
    ),
    Setting(
        "uninstall.release",
        True,
        SWITCH,
        "Whether `helm uninstall` first runs a Job that releases everything that is held (`topogate uninstall "
        "--leave-manifests`). Without it, run that command yourself before.",
    ),
    Setting(
        "uninstall.deadlineSeconds",
        240,
        {"type": "integer", "minimum": 30, "maximum": 3600},
        "How long this Job may take; set `--timeout` of `helm uninstall` to more.",
    ),
)

# What values of one section say of each other, as JSON Schema: a value without an effect is a mistake.
TOGETHER: Final[Mapping[str, Schema]] = {
    "certificates": {
        "if": {"properties": {"issuerRef": {"type": "object"}}, "required": ["issuerRef"]},
        "then": {"properties": {"mode": {"const": "cert-manager"}}},
    }
}
