"""ProvisioningRequests as records, in the states that an autoscaler gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.api.objects import ProvisioningRequest, RequestCondition
from engine.policy.autoscaling import ProvisioningClass, ProvisioningRequests
from engine.policy.model import parse_policy

DIGEST = "0a1b2c3d"
GANG = "job-train-3f9c2a1b"
START = 1_800_000_000.0


def rules(text: str) -> ProvisioningRequests:
    """The section `provisioningRequest` of a policy."""
    found = parse_policy(f"autoscaling: {{provisioningRequest: {text}}}").autoscaling.provisioning_request
    assert found is not None
    return found


def asked(
    tried: ProvisioningClass, attempt: int = 1, *, digest: str = DIGEST, created: float = START, pods: int = 8
) -> ProvisioningRequest:
    """A request that Topogate has made for the gang."""
    name = f"{GANG}-{digest}-{attempt}"
    return ProvisioningRequest(
        namespace="default",
        name=name,
        uid=f"uid-{name}",
        gang=GANG,
        class_name=tried.class_name,
        parameters=dict(tried.parameters),
        pod_sets=((f"{name}-0", pods),),
        created=created,
        api_version="autoscaling.x-k8s.io/v1",
    )


def answered(request: ProvisioningRequest, at: float, **conditions: bool) -> ProvisioningRequest:
    """The request with these conditions, set at one moment; a message each."""
    fresh: Mapping[str, RequestCondition] = {
        kind: RequestCondition(status, at, kind, f"{kind} it is") for kind, status in conditions.items()
    }
    return replace(request, conditions={**request.conditions, **fresh})
