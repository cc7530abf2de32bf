"""The objects of a request: one PodTemplate for each pod set, as the autoscaler must see its pods, and the request.

An autoscaler simulates the scheduler, so a template has what the scheduler looks at, and nothing else: no gate and no
marks of ours, no command, no environment, no secrets. The nodeSelector of the topology is added: nodes outside of it
would be of no use. For pods that need one domain, hosts with free room are excluded: an autoscaler looks at one pod
after the other, and would find room for some of them here and for the others there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from engine.api import names
from engine.api.objects import PROVISIONING_GROUP, PROVISIONING_KIND, PROVISIONING_VERSIONS, RuntimeClass
from engine.api.pod import Toleration
from engine.api.resources import format_units
from engine.autoscaling.demand import NodeDemand
from engine.policy.autoscaling import ProvisioningClass

Body = dict[str, Any]

# Of a pod's spec and of a container, what decides where the pod may run.
_OF_PODS: Final = (
    "affinity",
    "hostNetwork",
    "nodeSelector",
    "os",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
_OF_CONTAINERS: Final = ("name", "image", "resources", "ports", "restartPolicy")
_VOLUMES: Final = ("persistentVolumeClaim", "ephemeral")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_US: Final = "topogate"


def pod_template(
    template: Mapping[str, Any],
    node_selector: Sequence[tuple[str, str]],
    elsewhere: Sequence[str] = (),
    *,
    runtime_class: RuntimeClass | None = None,
    tolerations: Sequence[Toleration] = (),
) -> Body:
    """Return the template for the autoscaler of a pod or a pod template, as JSON objects.

    `elsewhere`: the host names (label `kubernetes.io/hostname`) of nodes that it must not use. `runtime_class`: that of
    a pod template, which admission applies to its pods alone; `tolerations`: others that admission adds to them.
    """
    spec = _mapping(template.get("spec"))
    if runtime_class is not None:
        spec = _with_runtime_class(spec, runtime_class)
    if tolerations:
        spec = {**spec, "tolerations": [*_list(spec.get("tolerations")), *_as_json(tolerations)]}
    shown: Body = {key: spec[key] for key in _OF_PODS if spec.get(key) not in (None, {}, [], "")}
    selector = {**dict(node_selector), **_mapping(spec.get("nodeSelector"))}
    if selector:
        shown["nodeSelector"] = selector
    if elsewhere:
        shown["affinity"] = _elsewhere(_mapping(spec.get("affinity")), elsewhere)
    shown["containers"] = _containers(spec.get("containers"))
    if first := _containers(spec.get("initContainers")):
        shown["initContainers"] = first
    volumes = [
        {"name": one["name"], kind: one[kind]}
        for one in _list(spec.get("volumes"))
        for kind in _VOLUMES
        if one.get(kind) is not None
    ]
    if volumes:
        shown["volumes"] = volumes
    if (policy := spec.get("restartPolicy")) is not None:
        shown["restartPolicy"] = policy
    labels = {
        key: value
        for key, value in _mapping(_mapping(template.get("metadata")).get("labels")).items()
        if not key.startswith(names.PREFIX)
    }
    return {"metadata": {"labels": labels}, "spec": shown} if labels else {"spec": shown}


def _with_runtime_class(spec: Mapping[str, Any], runtime_class: RuntimeClass) -> Mapping[str, Any]:
    """Return a pod's spec as admission makes it; what the template says itself stays."""
    overhead = {name: format_units(name, units) for name, units in runtime_class.overhead.items() if units}
    return {
        **spec,
        "overhead": {**overhead, **_mapping(spec.get("overhead"))},
        "nodeSelector": {**runtime_class.node_selector, **_mapping(spec.get("nodeSelector"))},
        "tolerations": [*_list(spec.get("tolerations")), *_as_json(runtime_class.tolerations)],
    }


def _as_json(tolerations: Sequence[Toleration]) -> list[Body]:
    return [{key: value for key, value in asdict(one).items() if value} for one in tolerations]


def template_name(request: str, index: int) -> str:
    """Return the name of the PodTemplate of a pod set of a request."""
    return f"{request}-{index}"


def pod_template_object(
    request: str, index: int, template: Mapping[str, Any], *, gang: str, namespace: str, owners: Sequence[Body]
) -> Body:
    """Return the PodTemplate object of a pod set; it goes with its owners, those of the request."""
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": _metadata(template_name(request, index), gang, namespace, owners),
        "template": template,
    }


def request_object(
    name: str,
    demand: NodeDemand,
    tried: ProvisioningClass,
    *,
    gang: str,
    namespace: str,
    owners: Sequence[Body],
    version: str,
) -> Body:
    """Return the ProvisioningRequest object; `version` is the one that the cluster serves."""
    assert version in PROVISIONING_VERSIONS
    spec: Body = {
        "provisioningClassName": tried.class_name,
        "podSets": [
            {"podTemplateRef": {"name": template_name(name, one.index)}, "count": one.count} for one in demand.pods
        ],
    }
    if tried.parameters:
        spec["parameters"] = dict(tried.parameters)
    return {
        "apiVersion": f"{PROVISIONING_GROUP}/{version}",
        "kind": PROVISIONING_KIND,
        "metadata": _metadata(name, gang, namespace, owners),
        "spec": spec,
    }


def _metadata(name: str, gang: str, namespace: str, owners: Sequence[Body]) -> Body:
    labels = {names.GANG: gang, MANAGED_BY: _US}
    metadata: Body = {"name": name, "namespace": namespace, "labels": labels}
    return {**metadata, "ownerReferences": list(owners)} if owners else metadata


def _containers(raw: Any) -> list[Body]:
    found = []
    for one in _list(raw):
        kept = {key: one[key] for key in _OF_CONTAINERS if one.get(key) not in (None, {}, [])}
        ports = [port for port in _list(kept.get("ports")) if port.get("hostPort")]
        kept.pop("ports", None)
        found.append({**kept, "ports": ports} if ports else kept)
    return found


def _elsewhere(affinity: Mapping[str, Any], hosts: Sequence[str]) -> Body:
    """Return an affinity that allows none of these hosts besides: each of its terms does not."""
    other = {"key": names.HOSTNAME, "operator": "NotIn", "values": list(hosts)}
    of_nodes = _mapping(affinity.get("nodeAffinity"))
    required = _mapping(of_nodes.get(_REQUIRED))
    terms = [
        {**term, "matchExpressions": [*_list(term.get("matchExpressions")), other]}
        for term in _list(required.get("nodeSelectorTerms"))
        if term  # an empty one allows no node, and would allow some then
    ]
    if not required:
        terms = [{"matchExpressions": [other]}]
    return {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: {"nodeSelectorTerms": terms}}}


def _mapping(raw: Any) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _list(raw: Any) -> list[Mapping[str, Any]]:
    return [one for one in raw if isinstance(one, Mapping)] if isinstance(raw, list) else []
