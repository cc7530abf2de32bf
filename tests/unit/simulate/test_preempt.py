"""`simulate --preempt`: which running gangs end so that one of a higher priority is placed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.api import names
from tests.support.simulation import Json, answer, grid, job, pod, policy_map, priority_class, verdicts

RACK = {"require": "rack"}
GRID = [*grid(1, 2, 2), priority_class("urgent", 1000), priority_class("high", 100)]


def of_class(name: str, workload: Json) -> Json:
    workload["spec"]["template"]["spec"]["priorityClassName"] = name
    return workload


def preempts(found: Json) -> list[tuple[str, int, int]]:
    return [(one["name"], one["priority"], one["pods"]) for one in found["preempts"]]


def urgent(cluster: list[Json], workloads: list[Json], **options: Any) -> Json:
    """The answer for the last of the workloads."""
    found: Json = answer(cluster, workloads, **options)["workloads"][-1]
    return found


def test_a_gang_placed_before_ends_for_one_of_a_higher_priority() -> None:
    """The one with the fewest pods of those that are enough; the other keeps its slots."""
    workloads = [job("pair", 2, RACK), job("one", 1, RACK), of_class("urgent", job("urgent", 2, RACK))]
    found = urgent(GRID, workloads, preempt="managed")
    assert found["verdict"] == "placed"
    assert preempts(found) == [("one", 0, 1)]
    assert {slots["node"] for slots in found["podSets"][0]["assignment"]} == {"b0-r1-h0", "b0-r1-h1"}


@pytest.mark.parametrize("level", ["rack", "auto"])
def test_a_gang_ends_for_one_with_a_pod_on_each_host(level: str) -> None:
    """For such pods `auto` is the rack, not the host: in a rack others may make room."""
    cluster = [*grid(1, 2, 4), priority_class("high", 100), priority_class("urgent", 1000)]
    for host in cluster[:8]:
        host["metadata"]["labels"]["kubernetes.io/hostname"] = host["metadata"]["name"]
    body = of_class("high", job("spread", 4, {"require": level}, gpus=2))
    labels = {"app": "train"}
    rule = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    template = body["spec"]["template"]
    template["metadata"] = {"labels": labels}
    template["spec"]["topologySpreadConstraints"] = [{**rule, "labelSelector": {"matchLabels": labels}}]
    top = of_class("urgent", job("top", 8, {"unconstrained": "true"}, gpus=6))
    low = [job(f"low-{number}", 4, RACK, gpus=2) for number in range(2)]
    found = urgent(cluster, [top, *low, body], preempt="managed")
    assert found["verdict"] == "placed"
    assert len(preempts(found)) == 1


def test_without_the_option_nothing_ends() -> None:
    """The gang waits; the key is there."""
    found = urgent(GRID, [job("all", 4), of_class("urgent", job("urgent", 2, RACK))])
    assert found["preempts"] == []
    found = urgent(GRID, [job("all", 4, {"unconstrained": "true"}), of_class("urgent", job("urgent", 2, RACK))])
    assert (found["verdict"], found["preempts"]) == ("waits", [])


@pytest.mark.parametrize("name", ["urgent", "high"])
def test_gangs_of_the_same_or_a_higher_priority_never_end(name: str) -> None:
    """Whatever else would have to wait."""
    workloads = [of_class("urgent", job("all", 4, {"unconstrained": "true"})), of_class(name, job("late", 2, RACK))]
    assert urgent(GRID, workloads, preempt="all")["verdict"] == "waits"


def test_a_class_that_preempts_never_preempts_nothing() -> None:
    """As in Kubernetes: its priority counts in the queue alone."""
    patient = {**priority_class("patient", 1000), "preemptionPolicy": "Never"}
    workloads = [job("all", 4, {"unconstrained": "true"}), of_class("patient", job("late", 2, RACK))]
    assert urgent([*GRID, patient], workloads, preempt="all")["verdict"] == "waits"


def test_room_of_a_preempted_gang_is_free_for_later_ones() -> None:
    """All of it: a gang ends as a whole, also where a part would be enough."""
    workloads = [
        job("all", 4, {"unconstrained": "true"}),
        of_class("urgent", job("urgent", 2, RACK)),
        job("later", 2, RACK),
    ]
    assert verdicts(GRID, workloads, preempt="managed") == [
        ("all", "placed", None),
        ("urgent", "placed", None),
        ("later", "placed", None),
    ]


def test_each_workload_alone_preempts_on_the_cluster_as_given() -> None:
    """With --independent a victim of one is there again for the next."""
    cluster = [*GRID, *running("runs", ["b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1"])]
    workloads = [of_class("urgent", job(name, 4, {"unconstrained": "true"})) for name in ("first", "second")]
    found = answer(cluster, workloads, preempt="managed", independent=True)["workloads"]
    assert [preempts(one) for one in found] == [[("runs", 0, 4)], [("runs", 0, 4)]]


def running(name: str, hosts: list[str], *, priority: int = 0, since: str = "2026-01-01T00:00:00Z") -> list[Json]:
    """A Placement with its pods, as in a file without workloads."""
    uid, placed = f"uid-{name}", f"job-{name}-00000000"
    slots = [{"domain": ["b0", host[:5], host], "count": 1, "ranks": str(rank)} for rank, host in enumerate(hosts)]
    placement = {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {"name": placed, "namespace": "others", "uid": f"uid-{placed}"},
        "spec": {
            "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid},
            "topology": "default",
            "priority": priority,
            "podSets": [{"name": "main", "count": len(hosts), "minAvailable": len(hosts), "ranked": True}],
            "assignment": {"revision": 1, "podSets": [{"name": "main", "slots": slots}]},
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Placed", "status": "True", "lastTransitionTime": since}],
        },
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    labels = {names.MANAGED: "true", names.GANG: placed, names.POD_SET: "main"}
    pods = [pod(f"{name}-{rank}", host, labels=labels, ownerReferences=[owner]) for rank, host in enumerate(hosts)]
    return [placement, *pods]


def test_gangs_of_the_cluster_are_known_by_their_placements() -> None:
    """Without the workloads in the file; the lower priority of two ends."""
    cluster = [
        *GRID,
        *running("left", ["b0-r0-h0", "b0-r0-h1"], priority=5),
        *running("right", ["b0-r1-h0", "b0-r1-h1"], priority=4),
    ]
    found = urgent(cluster, [of_class("high", job("urgent", 2, RACK))], preempt="managed")
    assert preempts(found) == [("right", 4, 2)]


def test_other_pods_end_only_with_all() -> None:
    """Known by their owner and their own priority; pods of DaemonSets stay."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": True}
    cluster = [
        *GRID,
        pod("web-1", "b0-r0-h0", ownerReferences=[owner]),
        pod("web-2", "b0-r0-h1", ownerReferences=[owner]),
        pod("agent-1", "b0-r1-h0", ownerReferences=[daemon]),
    ]
    late = [of_class("high", job("urgent", 2, RACK))]
    assert urgent(cluster, late, preempt="managed")["verdict"] == "waits"
    found = urgent(cluster, late, preempt="all")
    assert (found["preempts"][0]["kind"], preempts(found)) == ("ReplicaSet", [("web", 0, 2)])


def test_a_gang_that_only_its_own_users_can_help_preempts_nothing() -> None:
    """One that is larger than the topology, or beyond its quota, would not start even then."""
    huge = of_class("urgent", job("urgent", 3, RACK))
    found = urgent(GRID, [job("all", 4, {"unconstrained": "true"}), huge], preempt="all")
    assert (found["verdict"], found["preempts"]) == ("never", [])


WHOLE = {"unconstrained": "true"}


def policy(**preemption: object) -> Json:
    """A policy ConfigMap with this section."""
    return policy_map(json.dumps({"preemption": preemption}))


def test_where_the_policy_preempts_a_simulation_does_without_an_option() -> None:
    """As the service would."""
    cluster = [*GRID, policy(mode="lower-priority"), *running("left", ["b0-r0-h0", "b0-r1-h0"])]
    found = urgent(cluster, [of_class("high", job("urgent", 2, RACK))])
    assert (found["verdict"], preempts(found)) == ("placed", [("left", 0, 2)])


@pytest.mark.parametrize("mode", ["never", "lower-priority"])
@pytest.mark.parametrize(("scope", "verdict"), [("policy", "placed"), ("managed", "waits"), ("all", "placed")])
def test_the_option_takes_the_victims_of_the_policy_unless_it_names_others(mode: str, scope: str, verdict: str) -> None:
    """`--preempt` alone asks what would happen under the policy's rules, whether they are in force or not."""
    cluster = [*GRID, policy(mode=mode, victims="all"), pod("web", "b0-r0-h0"), pod("other", "b0-r1-h0")]
    assert urgent(cluster, [of_class("high", job("urgent", 2, RACK))], preempt=scope)["verdict"] == verdict


@pytest.mark.parametrize(
    ("protect", "victim"),
    [
        ({}, "long"),
        ({"runningFor": "30m"}, "recent"),
        ({"runningFor": "10m"}, None),
        ({"namespaces": ["oth*"]}, None),
        ({"namespaces": ["default"]}, "long"),
    ],
)
@pytest.mark.parametrize("scope", ["policy", "managed", "all"])
def test_what_the_policy_protects_is_spared(protect: Json, victim: str | None, scope: str) -> None:
    """By running time at the moment of the question, and by namespace; in a what-if too."""
    cluster = [
        *GRID,
        policy(protect=protect),
        *running("recent", ["b0-r0-h0", "b0-r0-h1"], since="2026-01-01T09:40:00Z"),
        *running("long", ["b0-r1-h0", "b0-r1-h1"], priority=-1, since="2026-01-01T09:15:00Z"),
    ]
    now = datetime(2026, 1, 1, 10, tzinfo=UTC).timestamp()
    found = urgent(cluster, [of_class("high", job("urgent", 2, RACK))], preempt=scope, now=now)
    assert [one["name"] for one in found["preempts"]] == ([] if victim is None else [victim])


def test_a_gang_that_was_placed_before_it_in_the_same_files_is_young() -> None:
    """It has run for no time at all, so that `runningFor` does not protect it, and is the first to end."""
    cluster = [
        *GRID,
        policy(protect={"runningFor": "10m"}),
        *running("old", ["b0-r0-h0", "b0-r0-h1"], since="2026-01-01T09:00:00Z"),
    ]
    now = datetime(2026, 1, 1, 10, tzinfo=UTC).timestamp()
    workloads = [job("new", 2, RACK), of_class("high", job("urgent", 2, RACK))]
    assert preempts(urgent(cluster, workloads, preempt="policy", now=now)) == [("new", 0, 2)]


def test_a_gang_that_opts_out_is_spared_where_the_policy_lets_it() -> None:
    """Its workload is in the files, with `topogate.dev/preemptible: "false"`."""
    workloads = [
        job("critical", 2, {**RACK, names.PREEMPTIBLE: "false"}),
        job("batch-1", 1, WHOLE),
        job("batch-2", 1, WHOLE),
        of_class("high", job("urgent", 2, RACK)),
    ]
    found = urgent([*GRID, policy()], workloads, preempt="policy")
    assert preempts(found) == [("critical", 0, 2)]
    found = urgent([*GRID, policy(protect={"annotated": True})], workloads, preempt="policy")
    assert preempts(found) == [("batch-1", 0, 1), ("batch-2", 0, 1)]
