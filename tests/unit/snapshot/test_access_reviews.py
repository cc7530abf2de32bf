"""Access reviews: of the caller and of the service's account, in one shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cluster.client import ApiUnavailable, KubeClient, connect
from tests.support.fake_api import Answer, FakeApi
from webhook.maintenance.rights import Right, missing_rights
from webhook.snapshot.granted_rights import NeededRight, granted_rights

REVIEWS = "/apis/authorization.k8s.io/v1"


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with FakeApi() as running:
        yield running


@pytest.fixture
def api(server: FakeApi, tmp_path: Path) -> KubeClient:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return connect(kubeconfig=str(path), user_agent="test")


def answers(server: FakeApi, *, allowed: bool) -> None:
    answer = Answer(201, {"status": {"allowed": allowed}})
    server.fault(answer, when=lambda request: request.path.startswith(REVIEWS), times=100)


def test_a_subresource_is_asked_for_as_such(server: FakeApi, api: KubeClient) -> None:
    """`pods/eviction` is no resource: a review of it would always say no."""
    answers(server, allowed=False)
    right = Right("create", "", "pods/eviction", namespace="alice")
    assert missing_rights(api, [right]) == (right,)
    (request,) = server.requests
    assert request.path == f"{REVIEWS}/selfsubjectaccessreviews"
    assert request.json()["spec"] == {
        "resourceAttributes": {
            "verb": "create",
            "resource": "pods",
            "subresource": "eviction",
            "namespace": "alice",
        }
    }


def test_the_service_is_asked_about_with_the_groups_of_its_account(server: FakeApi, api: KubeClient) -> None:
    answers(server, allowed=True)
    needed = [NeededRight("", "pods/eviction", "create"), NeededRight("", "secrets", "create", namespaced=True)]
    assert granted_rights(api, "topogate-system", needed).missing == []
    asked = [request.json()["spec"] for request in server.requests]
    assert {one["user"] for one in asked} == {"system:serviceaccount:topogate-system:topogate"}
    assert asked[0]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:topogate-system",
        "system:authenticated",
    ]
    places = {(one["resourceAttributes"]["resource"], one["resourceAttributes"].get("namespace")) for one in asked}
    assert places == {("pods", None), ("secrets", "topogate-system")}


def test_an_answer_that_is_no_review_is_a_fault(server: FakeApi, api: KubeClient) -> None:
    server.fault(Answer(201, b"[]"))
    with pytest.raises(ApiUnavailable, match="not a review of rights"):
        missing_rights(api, [Right("get", "", "pods")])
