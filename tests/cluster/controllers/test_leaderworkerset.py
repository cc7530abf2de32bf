"""What the real LeaderWorkerSet controller makes: labels, owners, order and groups that gangs rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet
from tests.support.workloads import Json, Workloads, held, labels, uids

pytestmark = pytest.mark.usefixtures("lws")
LWS = "leaderworkerset.sigs.k8s.io"


def group(workloads: Workloads, *, size: int, gated: bool = False, **options: Any) -> Json:
    """The spec.leaderWorkerTemplate of a LeaderWorkerSet."""
    return {"size": size, "workerTemplate": workloads.template(gated=gated), **options}


def test_pods_say_which_group_and_worker_they_are(workloads: Workloads, nodes: Fleet) -> None:
    """Leaders are worker 0; the group's size is an annotation of all, the leader's name one of the workers."""
    nodes.grid("1x1x1")
    workloads.create("LeaderWorkerSet", "serve", {"replicas": 2, "leaderWorkerTemplate": group(workloads, size=3)})
    pods = {pod["metadata"]["name"]: pod for pod in workloads.wait(6, phase="Running")}
    names = [f"{LWS}/{name}" for name in ("name", "group-index", "worker-index")]
    assert {name: labels(pod, *names) for name, pod in pods.items()} == {
        "serve-0": ("serve", "0", "0"),
        "serve-0-1": ("serve", "0", "1"),
        "serve-0-2": ("serve", "0", "2"),
        "serve-1": ("serve", "1", "0"),
        "serve-1-1": ("serve", "1", "1"),
        "serve-1-2": ("serve", "1", "2"),
    }
    annotations = {name: pod["metadata"]["annotations"] for name, pod in pods.items()}
    assert {one[f"{LWS}/size"] for one in annotations.values()} == {"3"}
    leaders = {name: one.get(f"{LWS}/leader-name") for name, one in annotations.items()}
    assert leaders == {name: name.rpartition("-")[0] if name.count("-") == 2 else None for name in pods}
    keys = {labels(pod, f"{LWS}/group-key") for pod in pods.values()}
    assert len(keys) == 2


def test_leaders_and_workers_have_stateful_sets_of_their_own(workloads: Workloads) -> None:
    """Leader -> StatefulSet <name> -> LWS; worker -> StatefulSet <name>-<group> -> leader pod; pod-index lies."""
    workloads.create("LeaderWorkerSet", "serve", {"replicas": 2, "leaderWorkerTemplate": group(workloads, size=2)})
    workloads.wait(4)
    pods = workloads.pods()
    above = [("StatefulSet", "serve"), ("LeaderWorkerSet", "serve")]
    assert workloads.owners(pods["serve-1"]) == above
    assert workloads.owners(pods["serve-1-1"]) == [("StatefulSet", "serve-1"), ("Pod", "serve-1"), *above]
    # The index within a StatefulSet is the group for a leader and the worker for a worker.
    index = "apps.kubernetes.io/pod-index"
    assert [labels(pods[name], index) for name in ("serve-0", "serve-1", "serve-1-1")] == [("0",), ("1",), ("1",)]


def test_a_gate_in_the_template_reaches_every_pod(workloads: Workloads, nodes: Fleet) -> None:
    """Workers of a held leader exist (startupPolicy LeaderCreated, the default), so a whole group can be held."""
    nodes.grid("1x1x1")
    workloads.create(
        "LeaderWorkerSet", "serve", {"replicas": 2, "leaderWorkerTemplate": group(workloads, size=2, gated=True)}
    )
    assert held(workloads.wait(4))


def test_with_leader_ready_a_held_leader_has_no_workers(workloads: Workloads, nodes: Fleet) -> None:
    """startupPolicy LeaderReady makes the workers after the leader runs: ordered creation."""
    nodes.grid("1x1x1")
    spec = {
        "replicas": 1,
        "startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": group(workloads, size=2, leaderTemplate=workloads.template(gated=True)),
    }
    workloads.create("LeaderWorkerSet", "serve", spec)
    workloads.wait(1)
    always(lambda: list(workloads.pods()) == ["serve-0"], seconds=0.5)
    workloads.release("serve-0")
    workloads.wait(2, phase="Running")


def test_a_lost_worker_takes_its_group_along(workloads: Workloads, nodes: Fleet) -> None:
    """By default the whole group is made anew, under the same names; the other groups stay."""
    nodes.grid("1x1x1")
    workloads.create("LeaderWorkerSet", "serve", {"replicas": 2, "leaderWorkerTemplate": group(workloads, size=2)})
    workloads.wait(4, phase="Running")
    before = uids(workloads.pods())
    workloads.client.delete(workloads.path("Pod", "serve-0-1"))

    def again() -> Mapping[str, str]:
        after = uids(workloads.pods())
        assert after.keys() == before.keys()
        assert all(after[name] != before[name] for name in ("serve-0", "serve-0-1"))
        return after

    after = eventually(again, message="group 0 is made anew")
    assert all(after[name] == before[name] for name in ("serve-1", "serve-1-1"))


def test_scaling_adds_and_takes_the_last_groups(workloads: Workloads, nodes: Fleet) -> None:
    """Groups come and go whole, at the end."""
    nodes.grid("1x1x1")
    workloads.create("LeaderWorkerSet", "serve", {"replicas": 1, "leaderWorkerTemplate": group(workloads, size=2)})
    before = uids({pod["metadata"]["name"]: pod for pod in workloads.wait(2, phase="Running")})
    workloads.merge("LeaderWorkerSet", "serve", {"replicas": 3})
    workloads.wait(6, phase="Running")
    workloads.merge("LeaderWorkerSet", "serve", {"replicas": 1})
    workloads.wait(2)
    assert uids(workloads.pods()) == before
