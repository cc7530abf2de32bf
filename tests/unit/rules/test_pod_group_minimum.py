"""The pod-group labels that a coscheduling scheduler sees: it waits for no pod that comes after another one runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest

from engine.api import names
from tests.support.admission import UID, FakeView, Json, apply, raw_pod, review
from tests.support.kinds import example, merged, workload_of
from webhook.handlers.mutate import mutate


def labels_of(name: str, pod_labels: Mapping[str, str], *, patch: Json | None = None) -> Mapping[str, str]:
    """The labels of a pod of the example workload of a kind after its CREATE."""
    raw: Json = merged(copy.deepcopy(example(name)["object"]), patch or {})
    raw["metadata"] = {"name": "w", "namespace": "ml", "uid": UID, "annotations": {names.REQUIRE: "rack"}}
    owner = {"apiVersion": raw["apiVersion"], "kind": raw["kind"], "name": "w", "uid": UID, "controller": True}
    pod = raw_pod(labels={names.MANAGED: "true", **pod_labels})
    pod["metadata"]["ownerReferences"] = [owner]
    view = FakeView(workloads=[workload_of(raw)])
    found: Mapping[str, str] = apply(pod, mutate(review(pod), view, 0.0))["metadata"]["labels"]
    return found


@pytest.mark.parametrize(
    ("name", "pod_labels", "patch", "minimum"),
    [
        ("pytorchjob", {"training.kubeflow.org/replica-type": "worker"}, None, "4"),
        ("statefulset", {"apps.kubernetes.io/pod-index": "0"}, {"spec": {"podManagementPolicy": "Parallel"}}, "3"),
        ("statefulset", {"apps.kubernetes.io/pod-index": "0"}, {"spec": {"podManagementPolicy": None}}, "1"),
        (
            "leaderworkerset",
            {"leaderworkerset.sigs.k8s.io/group-index": "1", "leaderworkerset.sigs.k8s.io/worker-index": "2"},
            None,
            "4",
        ),
        ("deployment", {}, None, "1"),
    ],
)
def test_the_minimum_is_the_gang_or_one_where_pods_come_in_an_order(
    name: str, pod_labels: Mapping[str, str], patch: Json | None, minimum: str
) -> None:
    assert labels_of(name, pod_labels, patch=patch)[names.POD_GROUP_MIN] == minimum


def test_the_groups_of_one_workload_are_pod_groups_of_their_own() -> None:
    found = [
        labels_of("leaderworkerset", {f"leaderworkerset.sigs.k8s.io/{key}-index": text for key in ("group", "worker")})
        for text in ("0", "1")
    ]
    assert len({labels[names.POD_GROUP_NAME] for labels in found}) == 2


def test_the_users_own_pod_group_is_left_alone() -> None:
    found = labels_of("statefulset", {"apps.kubernetes.io/pod-index": "0", names.POD_GROUP_NAME: "mine"})
    assert found[names.POD_GROUP_NAME] == "mine"
    assert names.POD_GROUP_MIN not in found
