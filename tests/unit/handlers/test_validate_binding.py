"""`/validate` on the binding of a pod, where the policy guards what is reserved for gangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.decoding import pods
from engine.policy.model import Policy, parse_policy
from tests.support.admission import FakeView, Json, raw_pod, review
from webhook.admission.review import BadReview, Response
from webhook.handlers.validate import validate

GUARDED = "reservations: {guard: true}\n"
BINDING: Json = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "web", "namespace": "ml"},
    "target": {"apiVersion": "v1", "kind": "Node", "name": "h0"},
}


@dataclass
class Known(FakeView):
    """A view with one pod."""

    pod: Pod | None = None

    def await_pod(self, namespace: str, name: str, deadline: float) -> Pod | None:
        return self.pod if (namespace, name) == ("ml", "web") else None


def bound(raw: Json | None, policy: Policy, *, taken: str = "h0", binding: Any = BINDING) -> Response:
    """The answer to the binding of a pod to h0, where all that is free of a host is reserved."""
    view = Known(policy=policy, taken=frozenset({taken}), pod=None if raw is None else pods.pod(raw))
    asked = review(binding, name="web", operation="CREATE", subResource="binding")
    return validate(asked, view, 0.0)


def web(**spec: Any) -> Json:
    pod = raw_pod(gates=())
    pod["metadata"] |= {"name": "web", "namespace": "ml"}
    pod["metadata"].pop("ownerReferences", None)
    pod["spec"] |= spec
    return pod


def test_a_pod_of_no_gang_gets_no_reserved_capacity() -> None:
    """The message names the resource, the node and the policy field; a code for machines goes with it."""
    answer = bound(web(), parse_policy(GUARDED))
    assert not answer.allowed
    assert answer.message == (
        'the free "nvidia.com/gpu" of node "h0" is reserved for a gang that is about to start '
        "(policy: reservations.guard); the scheduler tries the pod again"
    )
    assert [cause.reason for cause in answer.causes] == ["ReservedByOthers"]


def test_a_pod_gets_what_is_not_reserved() -> None:
    assert bound(web(), parse_policy(GUARDED), taken="h1").allowed


ONLY_OBSERVED = "namespaces: {modes: [{namespaces: ['m*'], mode: observe}]}\n"


@pytest.mark.parametrize(
    "text", ["{}", GUARDED + "mode: observe\n", GUARDED + "mode: 'off'\n", GUARDED + ONLY_OBSERVED]
)
def test_nobody_is_refused_unless_the_policy_says_so(text: str) -> None:
    """Bindings that are still sent after a change of the policy pass."""
    assert bound(web(), parse_policy(text)).allowed


def test_our_label_alone_opens_nothing() -> None:
    """Its user may write it on a pod at any time."""
    raw = web()
    raw["metadata"]["labels"] = {names.MANAGED: "true"}
    assert not bound(raw, parse_policy(GUARDED)).allowed


def test_a_pod_of_a_system_priority_is_never_refused() -> None:
    assert bound(web(priority=2_000_000_000), parse_policy(GUARDED)).allowed


def test_pods_of_exempt_namespaces_are_never_refused() -> None:
    """Also where a pattern exempts them, which no webhook configuration can say."""
    assert bound(web(), parse_policy(GUARDED + "namespaces: {exempt: ['m*']}\n")).allowed


def test_a_pod_that_does_not_become_known_in_time_passes() -> None:
    assert bound(None, parse_policy(GUARDED)).allowed


@pytest.mark.parametrize("target", [None, {}, {"name": None}, {"name": "h9"}])
def test_a_binding_without_a_known_node_passes(target: object) -> None:
    """The API server refuses it by itself."""
    assert bound(web(), parse_policy(GUARDED), binding={**BINDING, "target": target}).allowed


@pytest.mark.parametrize("target", ["h0", [], {"name": 7}])
def test_a_binding_that_no_api_server_sends_is_a_bad_review(target: object) -> None:
    with pytest.raises(BadReview):
        bound(web(), parse_policy(GUARDED), binding={**BINDING, "target": target})
