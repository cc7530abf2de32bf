"""`/mutate` on pods whose slot has devices."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.device import DeviceUse, NodeDevices
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, Json, apply, gang_view, live, rack_job, raw_pod, review
from tests.support.gpu_hosts import gpus
from webhook.handlers.mutate import mutate

JOB = live(rack_job())
HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
EIGHT = tuple(DeviceUse("gpu", minor, core=100, ratio=100, memory=80 * 2**30) for minor in range(8))


def device_view(**devices: NodeDevices) -> FakeView:
    """A gang of which rank 0 is to get all eight GPUs of its host; the others' hosts do not tell theirs."""
    view = gang_view(JOB, HOSTS, devices={HOSTS[0]: gpus(HOSTS[0], 8), **devices})
    placement = view.placements[0]
    assert placement.assignment is not None
    first, *rest = placement.assignment.pod_sets[0].slots
    plan = replace(placement.assignment.pod_sets[0], slots=(replace(first, devices=(EIGHT,)), *rest))
    view.placements = [replace(placement, assignment=replace(placement.assignment, pod_sets=(plan,)))]
    return view


def created(pod: Json, view: FakeView) -> Json:
    return apply(pod, mutate(review(pod, name=""), view, 0.0))


def annotation(pod: Json) -> str | None:
    found: str | None = pod["metadata"].get("annotations", {}).get(names.DEVICE_ALLOCATED)
    return found


def held(pod: Json) -> bool:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or []] == [names.GATE]


def test_a_pod_is_told_the_devices_of_its_rank() -> None:
    """In Koordinator's words, with the ids that the host tells now."""
    pod = created(raw_pod(owner=JOB, index=0), device_view())
    assert not held(pod)
    told = json.loads(annotation(pod) or "{}")
    assert [one["minor"] for one in told["gpu"]] == list(range(8))
    assert told["gpu"][0] == {
        "minor": 0,
        "resources": {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "80Gi",
            "koordinator.sh/gpu-memory-ratio": "100",
        },
        "id": f"GPU-{HOSTS[0]}-0",
    }


@pytest.mark.parametrize(("env", "told"), [("none", "GPU-{}-{}"), ("uuid", "GPU-{}-{}"), ("minor", "{1}")])
def test_its_gpus_are_named_for_its_containers(env: str, told: str) -> None:
    """By UUID, unless the policy wants minors; also where the policy adds no variable: the user may refer to it."""
    view = device_view()
    view.policy = parse_policy(f"gpu: {{env: {env}}}")
    pod = created(raw_pod(owner=JOB, index=0), view)
    assert pod["metadata"]["annotations"][names.VISIBLE_DEVICES] == ",".join(
        told.format(HOSTS[0], minor) for minor in range(8)
    )


def test_a_rank_without_known_devices_is_pinned_without_the_annotation() -> None:
    """Its host does not tell them: nobody may guess."""
    pod = created(raw_pod(owner=JOB, index=1), device_view())
    assert not held(pod)
    assert annotation(pod) is None


def test_a_device_that_turned_sick_is_not_handed_out() -> None:
    """The pod is held; the leader chooses another device, on this host or elsewhere."""
    for devices in (gpus(HOSTS[0], 8, sick=(3,)), gpus(HOSTS[0], 7)):
        pod = created(raw_pod(owner=JOB, index=0), device_view(**{HOSTS[0]: devices}))
        assert held(pod)
        assert annotation(pod) is None


def test_what_a_member_says_of_its_devices_is_replaced() -> None:
    """Only the plan says which devices a pod of a gang gets, whether it goes or is held."""
    forged = '{"gpu":[{"minor":7}]}'
    for rank, goes in ((0, True), (1, True), (9, False)):
        pod = created(raw_pod(owner=JOB, index=rank, annotations={names.DEVICE_ALLOCATED: forged}), device_view())
        assert held(pod) is not goes
        assert annotation(pod) != forged


def test_a_pod_that_was_told_its_devices_again_gives_no_patch() -> None:
    """Called again in the same request, nothing changes."""
    view = device_view()
    pod = created(raw_pod(owner=JOB, index=0), view)
    assert mutate(review(pod, name=""), view, 0.0).patch == ()
