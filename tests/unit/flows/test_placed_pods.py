"""A placed pod carries the same whether it is placed at its creation or released by the leader afterwards."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.client import KubeClient
from engine.cluster.events import Recorder
from engine.controller import executor
from engine.decoding import pods
from engine.gang.gang import Gang
from engine.gang.slots import SlotAssignment
from engine.policy.model import default_policy
from tests.support.admission import NODES, FakeView, Json, apply, gang_view, live, rack_job, raw_pod, review
from webhook.handlers.mutate import mutate

HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
JOB = live(rack_job())
ANY = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}


def with_terms(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


PODS: dict[str, Json] = {
    "plain": raw_pod(JOB, index=2),
    "of terms": raw_pod(JOB, index=1, affinity=with_terms(ANY, {})),
    "of a selector": raw_pod(JOB, nodeSelector={"cloud.provider.com/topology-block": "b0"}),
    "forged": raw_pod(
        JOB,
        annotations={
            names.RANK: "9",
            names.DOMAIN_PATH: "b7/b7-r7/h",
            names.HELD_BY: "suspend",
            names.DEVICE_ALLOCATED: "{}",
            names.REVISION: "1",
            "mine": "kept",
        },
    ),
}


def view_of(raw: Json, hosts: Sequence[str] = ()) -> FakeView:
    """The gang of the pod, with a node selector in its template if the pod has it."""
    selector = raw["spec"].get("nodeSelector")
    return gang_view(live(rack_job(pod_spec={"nodeSelector": selector} if selector else {})), hosts)


def placed_at_creation(raw: Json) -> Json:
    return apply(raw, mutate(review(raw, name=""), view_of(raw, HOSTS), 0.0))


def held(raw: Json) -> Json:
    """The gang waits: the webhook holds the pod."""
    return apply(raw, mutate(review(raw, name=""), view_of(raw), 0.0))


def released(raw: Json, monkeypatch: pytest.MonkeyPatch) -> Json:
    """What becomes of a stored, held pod when the leader gives it the slot of its rank."""
    view = view_of(raw, HOSTS)
    (workload,), (placement,) = view.workloads, view.placements
    stored = copy.deepcopy(raw)
    stored["metadata"] |= {"name": "p", "uid": "uid-p"}
    pod = pods.pod(stored)
    rank = int(pod.spec.labels[names.COMPLETION_INDEX])
    assert placement.assignment is not None
    slot = placement.assignment.pod_sets[0].slots[rank]
    sent: list[Mapping[str, Any]] = []

    def release(_api: KubeClient, one: Pod, body: Mapping[str, Any], **_: object) -> Pod:
        sent.append(body)
        return one

    monkeypatch.setattr(executor.writes, "release_pod", release)
    stores = Stores()
    stores.nodes.replace(NODES)
    known = ClusterState(stores, default_policy())
    known.refresh()
    leader = executor.ActionExecutor(
        known, cast(KubeClient, None), cast(Recorder, None), fence=lambda: None, wall=lambda: 0.0
    )
    monkeypatch.setattr(leader._writer, "took_pod", lambda *_: None)
    gang = Gang(workload, known.request_of(workload), placement, (pod,), {})
    leader.release(gang, (SlotAssignment(pod, slot, rank),))
    leader.close()
    (patch,) = sent
    return cast(Json, merged(stored, patch))


def merged(target: Any, patch: Any) -> Any:
    """A strategic merge as the API server makes it of pods: null removes, gates go by name, terms are replaced."""
    if not isinstance(patch, Mapping) or not isinstance(target, Mapping):
        return patch
    result = dict(target)
    for key, value in patch.items():
        if key == "schedulingGates":
            gone = {gate["name"] for gate in value if gate.get("$patch") == "delete"}
            result[key] = [gate for gate in target.get(key) or () if gate["name"] not in gone]
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = merged(target.get(key), value)
    return result


def told(pod: Json) -> Json:
    """What decides about a pod and what it carries; nothing and an empty list are the same."""
    metadata, spec = pod["metadata"], pod["spec"]
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "affinity": spec.get("affinity"),
        "nodeSelector": spec.get("nodeSelector"),
        "gates": spec.get("schedulingGates") or [],
    }


@pytest.mark.parametrize("name", PODS)
def test_both_ways_give_the_same_pod(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was held at its creation is, once it is released, as one that was placed at once."""
    at_once = placed_at_creation(PODS[name])
    later = released(held(PODS[name]), monkeypatch)
    assert told(later) == told(at_once)
    assert later["metadata"]["annotations"][names.REVISION] == "1"
    assert told(later)["gates"] == []


@pytest.mark.parametrize("name", PODS)
def test_a_pod_that_the_webhook_has_missed_is_the_same_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made from the template while no replica answered; the labels of other schedulers' pod groups are its
    creation's alone.
    """
    at_once, later = told(placed_at_creation(PODS[name])), told(released(PODS[name], monkeypatch))
    for label in (names.POD_GROUP_NAME, names.POD_GROUP_MIN):
        at_once["labels"].pop(label)
    assert later == at_once


@pytest.mark.parametrize("name", PODS)
def test_a_placed_pod_that_is_held_again_carries_nothing_of_its_place(name: str) -> None:
    """The webhook is called again for it, and its slot is gone: but for the gang's plan it says what a pod says that
    was held at once.
    """
    again, at_once = held(placed_at_creation(PODS[name]))["metadata"], held(PODS[name])["metadata"]
    assert again["labels"] == at_once["labels"]
    plan = {names.PLACEMENT: again["annotations"][names.PLACEMENT], names.REVISION: "1"}
    assert again["annotations"] == plan | (at_once.get("annotations") or {})


def test_everything_that_a_placed_pod_carries_comes_off_a_pod_that_is_not_ours() -> None:
    """One that copies it from a placed pod: no key of ours is left out of the list of what is removed."""
    placed = placed_at_creation(PODS["plain"])["metadata"]
    copied = raw_pod(labels=placed["labels"], annotations=placed["annotations"])
    ours = {key for kind in ("labels", "annotations") for key in placed[kind] if key.startswith("topogate.dev/")}
    assert len(ours) >= 7
    left = placed_at_creation(copied)["metadata"]
    assert ours.isdisjoint((left.get("labels") or {}) | (left.get("annotations") or {}))
