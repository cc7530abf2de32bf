"""Pools of simulated nodes that do not exist yet, and the kind by which node autoscalers are asked for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from local import nodes
from local.nodes import HostShape
from tests.support.definitions import Definition
from tests.support.fleet import Fleet

Json = dict[str, Any]
ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CHECK: Final = "check-capacity.autoscaling.x-k8s.io"
POOL: Final = "local.topogate.dev/pool"

_NAME: Json = {"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
_IMMUTABLE: Json = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}]}
# What the real one checks of a spec, and how it merges conditions.
_SCHEMA: Json = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["podSets", "provisioningClassName"],
            "properties": {
                "podSets": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 32,
                    **_IMMUTABLE,
                    "items": {
                        "type": "object",
                        "required": ["count", "podTemplateRef"],
                        "properties": {
                            "count": {"type": "integer", "format": "int32", "minimum": 1},
                            "podTemplateRef": {"type": "object", "required": ["name"], "properties": {"name": _NAME}},
                        },
                    },
                },
                "provisioningClassName": {**_NAME, **_IMMUTABLE},
                "parameters": {
                    "type": "object",
                    "maxProperties": 100,
                    "additionalProperties": {"type": "string", "maxLength": 255},
                    **_IMMUTABLE,
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
                        "properties": {
                            "type": {"type": "string", "maxLength": 316},
                            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                            "message": {"type": "string", "maxLength": 32768},
                            "lastTransitionTime": {"type": "string", "format": "date-time"},
                            "observedGeneration": {"type": "integer", "format": "int64"},
                        },
                    },
                },
                "provisioningClassDetails": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
    },
}


def definition(*versions: str) -> Definition:
    """Return the kind as served in these versions; objects are stored in the first one."""
    return Definition(
        "autoscaling.x-k8s.io",
        "ProvisioningRequest",
        "provisioningrequests",
        versions,
        schema=_SCHEMA,
        status=True,
        short=("provreq", "provreqs"),
    )


REQUESTS: Final = definition("v1", "v1beta1")


def requests_path(namespace: str) -> str:
    """Where the requests of a namespace are."""
    return f"/apis/{REQUESTS.group}/v1/namespaces/{namespace}/{REQUESTS.plural}"


@dataclass(frozen=True, slots=True)
class NodePool:
    """Equal nodes of one rack, of which an autoscaler may start up to `maximum`; `name` starts the names of them.

    `joins`: False for nodes that never become ready.
    """

    name: str
    labels: Mapping[str, str]
    maximum: int
    shape: HostShape = field(default_factory=HostShape)
    joins: bool = True

    def node(self, name: str) -> Json:
        """Return the body of one of its nodes."""
        body = nodes.node(name, shape=self.shape, labels={**self.labels, POOL: self.name})
        if not self.joins:
            del body["metadata"]["labels"][nodes.SIMULATED]
            body["status"]["conditions"][0].update(status="False", reason="KubeletNotReady")
        return body


def pool(fleet: Fleet, rack: str, maximum: int, *, block: str = "block-0", joins: bool = True) -> NodePool:
    """Return a pool of hosts of a test's fleet in a rack of its own."""
    places = {nodes.BLOCK: fleet.prefix + block, nodes.RACK: fleet.prefix + rack}
    return NodePool(fleet.prefix + rack, {**fleet.selector, **places}, maximum, joins=joins)
