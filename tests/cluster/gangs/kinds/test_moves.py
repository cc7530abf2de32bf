"""Moves on request: pods leave a host, whole gangs get a better place, and what a drain does beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from engine.api import names
from local.client import ClientError
from local.controlplane import ControlPlane
from local.service import Service
from tests.support.eventually import always, eventually
from tests.support.gangs import prefer, require
from tests.support.kind_cases import apps
from tests.support.kind_gangs import Gangs
from tests.support.obstacles import Obstacle

Json = dict[str, Any]
PARALLEL = {"serviceName": "serve", "podManagementPolicy": "Parallel"}


def annotate(gangs: Gangs, kind: str, name: str, **asked: str | None) -> None:
    """The user annotates his workload; None removes."""
    annotations = {f"topogate.dev/{key}": value for key, value in asked.items()}
    gangs.client.patch(gangs.path(kind, name), {"metadata": {"annotations": annotations}})


def events(gangs: Gangs, reason: str) -> list[str]:
    """The notes of the Events with a reason."""
    listed = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.namespace}/events")
    return [str(one.get("note", "")) for one in listed if one.get("reason") == reason]


def uids(gangs: Gangs) -> dict[str, str]:
    """Pod -> uid of the members."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in gangs.members()}


def status(gangs: Gangs, kind: str, name: str) -> Json:
    found: Json = (gangs.placement(kind, name) or {}).get("status") or {}
    return found


def evict(gangs: Gangs, pod: str) -> None:
    """What `kubectl drain` asks for."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    gangs.client.create(f"{gangs.path('Pod', pod)}/eviction", body)


def job(gangs: Gangs, *, pods: int = 4, **spec: Any) -> Json:
    """A Job whose pods may not fail."""
    template = gangs.template(restartPolicy="Never")
    return {
        **{"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0},
        **{"template": template, **spec},
    }


def split(gangs: Gangs) -> Mapping[Any, str]:
    """A Job of four pods in two racks of four hosts, because half of each was cordoned; hosts by rank."""
    hosts = gangs.fleet.grid("1x2x4")
    racks: dict[tuple[str, str], list[str]] = {}
    for host in hosts:
        racks.setdefault(gangs.fleet.rack_of(host), []).append(host)
    out = [host for members in racks.values() for host in members[:2]]
    for host in out:
        gangs.fleet.cordon(host)
    gangs.create("Job", "train", job(gangs), annotations=prefer("rack"))
    before = gangs.all_run(4)
    assert len(gangs.racks(before)) == 2
    for host in out:
        gangs.fleet.uncordon(host)
    return before


def test_a_split_job_restarts_in_one_rack_and_no_retry_is_used(gangs: Gangs) -> None:
    """Suspended, planned again, resumed; told in the status and in an Event; asked a second time it stays."""
    split(gangs)
    annotate(gangs, "Job", "train", replan="true")
    eventually(
        lambda: status(gangs, "Job", "train").get("replan", {}).get("outcome") == "Moved", message=gangs.describe
    )
    after = gangs.all_run(4)
    assert len(gangs.racks(after)) == 1
    assert gangs.get("Job", "train").get("status", {}).get("failed", 0) == 0
    (told,) = eventually(lambda: set(events(gangs, "Moved")), message="an Event tells of the move")
    assert told.endswith("(topogate.dev/replan): 1 rack instead of 2")
    placed = (gangs.placement("Job", "train") or {})["spec"]["assignment"]
    annotate(gangs, "Job", "train", replan="again")
    answer = eventually(
        lambda: (found := status(gangs, "Job", "train")["replan"])["value"] == "again" and found,
        message=gangs.describe,
    )
    assert answer["outcome"] == "Kept"
    assert "no place is better now" in answer["message"]
    always(lambda: gangs.hosts() == after, seconds=1.0)
    assert (gangs.placement("Job", "train") or {})["spec"]["assignment"] == placed


def test_a_leader_that_is_killed_before_the_gang_is_resumed_is_followed(gangs: Gangs, service: Service) -> None:
    """kill -9 when the new slots are written and the Job is still suspended: the next leader resumes it, once."""
    split(gangs)
    with Obstacle(gangs.client, gangs.namespace, "resume"):
        annotate(gangs, "Job", "train", replan="true")
        eventually(
            lambda: status(gangs, "Job", "train").get("replan", {}).get("outcome") == "Moved", message=gangs.describe
        )
        assert gangs.suspended("Job", "train")
        placed = (gangs.placement("Job", "train") or {})["spec"]["assignment"]
        eventually(service.leader, message="a replica leads").kill()
    assert len(gangs.racks(gangs.all_run(4))) == 1
    assert (gangs.placement("Job", "train") or {})["spec"]["assignment"] == placed
    assert gangs.get("Job", "train").get("status", {}).get("failed", 0) == 0


def test_a_job_whose_rack_is_full_leaves_it_with_its_lost_rank(gangs: Gangs) -> None:
    """Required: a rack. Its host is cordoned and its pod lost: with `replan` all of it goes to the other rack."""
    gangs.fleet.grid("1x2x4")
    gangs.create("Job", "train", job(gangs, backoffLimit=6), annotations=require("rack"))
    before = gangs.all_run(4)
    lost = next(pod for pod in gangs.members() if pod["spec"]["nodeName"] == sorted(before.values())[0])
    gangs.fleet.cordon(lost["spec"]["nodeName"])
    evict(gangs, lost["metadata"]["name"])
    eventually(lambda: gangs.phase("Job", "train") == "Incomplete", message=gangs.describe)
    annotate(gangs, "Job", "train", replan="true")

    def moved() -> bool:
        hosts = gangs.hosts()
        return len(hosts) == 4 and not set(hosts.values()) & set(before.values())

    eventually(moved, message=gangs.describe)
    assert len(gangs.racks(gangs.all_run(4))) == 1


def test_a_pod_of_a_stateful_set_leaves_a_host(gangs: Gangs) -> None:
    """It gets another host of the rack; the others stay, and the host is not used again until it may be."""
    gangs.fleet.grid("1x2x4")
    gangs.create("StatefulSet", "serve", apps(gangs, pods=3, **PARALLEL), annotations=require("rack"))
    before, known = gangs.all_run(3), uids(gangs)
    (seat, host), *_ = sorted(before.items())
    annotate(gangs, "StatefulSet", "serve", replace=host)
    eventually(lambda: len(gangs.hosts()) == 3 and host not in gangs.hosts().values(), message=gangs.describe)
    after = gangs.all_run(3)
    assert {one: where for one, where in after.items() if one != seat} == {
        one: where for one, where in before.items() if one != seat
    }
    assert len(gangs.racks(after)) == 1
    assert sum(known[pod] != uid for pod, uid in uids(gangs).items()) == 1
    (told,) = eventually(lambda: set(events(gangs, "Moved")), message="an Event tells of the move")
    assert told.startswith(f"rank 0 leaves {host} (topogate.dev/replace): new slot on {after[seat]}")
    eventually(lambda: gangs.phase("StatefulSet", "serve") == "Running", message=gangs.describe)


def test_without_a_free_host_nobody_is_evicted_until_there_is_one(gangs: Gangs) -> None:
    """A Deployment on all hosts of its rack: the message says what lacks; then a host joins, and the pod moves."""
    hosts = gangs.fleet.grid("1x1x2")
    gangs.create("Deployment", "serve", apps(gangs, pods=2), annotations=require("rack"))
    gangs.all_run(2)
    known = uids(gangs)
    annotate(gangs, "Deployment", "serve", replace=hosts[0])
    told = eventually(
        lambda: (
            f"leaves {hosts[0]} (topogate.dev/replace): needs room for 1 more pod"
            in (text := str(status(gangs, "Deployment", "serve").get("message")))
            and text
        ),
        message=gangs.describe,
    )
    assert told
    always(lambda: uids(gangs) == known, seconds=1.0)
    assert gangs.phase("Deployment", "serve") == "Running"
    gangs.fleet.host("host-spare", block="block-0", rack="rack-00")
    eventually(lambda: len(gangs.hosts()) == 2 and hosts[0] not in gangs.hosts().values(), message=gangs.describe)
    assert hosts[1] in gangs.all_run(2).values()


def test_a_disruption_budget_is_honoured(gangs: Gangs) -> None:
    """The pod has its new slot and stays, until the budget allows its eviction."""
    gangs.fleet.grid("1x1x3")
    gangs.create("StatefulSet", "serve", apps(gangs, pods=2, **PARALLEL), annotations=require("rack"))
    before, known = gangs.all_run(2), uids(gangs)
    budgets = f"/apis/policy/v1/namespaces/{gangs.namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "train"}}
    gangs.client.create(budgets, {"metadata": {"name": "all"}, "spec": {"minAvailable": 2, "selector": selector}})
    eventually(
        lambda: gangs.client.get(f"{budgets}/all").get("status", {}).get("expectedPods") == 2,
        message="the budget counts the pods",
    )
    host = sorted(before.values())[0]
    annotate(gangs, "StatefulSet", "serve", replace=host)
    eventually(lambda: events(gangs, "EvictionRefused"), message=gangs.describe)
    assert uids(gangs) == known
    gangs.client.delete(f"{budgets}/all")
    eventually(lambda: len(gangs.hosts()) == 2 and host not in gangs.hosts().values(), 90.0, message=gangs.describe)
    gangs.all_run(2)


def test_a_drained_rank_gets_a_slot_in_the_rack(gangs: Gangs) -> None:
    """Cordon and eviction, as `kubectl drain`: its replacement runs beside the others, and an Event names the hosts."""
    gangs.fleet.grid("1x2x4")
    gangs.create("StatefulSet", "serve", apps(gangs, pods=3, **PARALLEL), annotations=require("rack"))
    before = gangs.all_run(3)
    (seat, host), *_ = sorted(before.items())
    gangs.fleet.cordon(host)
    evict(gangs, next(pod["metadata"]["name"] for pod in gangs.members() if pod["spec"]["nodeName"] == host))
    eventually(lambda: len(gangs.hosts()) == 3 and host not in gangs.hosts().values(), message=gangs.describe)
    after = gangs.all_run(3)
    assert len(gangs.racks(after)) == 1
    (told,) = eventually(lambda: set(events(gangs, "Repaired")), message="an Event tells of the repair")
    assert host in told
    assert after[seat] in told


@pytest.mark.parametrize(
    ("kind", "asked", "told"),
    [
        ("Job", {names.REPLACE: "host-1"}, "a deleted pod counts as a failure of the Job; use topogate.dev/replan"),
        ("Deployment", {names.REPLAN: "true"}, "a Deployment cannot be suspended and placed again as a whole"),
        ("Deployment", {names.REPLACE: "no host"}, "must be names of nodes, separated by commas"),
    ],
)
def test_a_move_that_cannot_be_is_refused_at_once(gangs: Gangs, kind: str, asked: dict[str, str], told: str) -> None:
    """`kubectl annotate` of a running workload: the error has the path and what to do; what runs goes on."""
    gangs.fleet.grid("1x1x2")
    spec = job(gangs, pods=2) if kind == "Job" else apps(gangs, pods=2)
    gangs.create(kind, "train", spec, annotations=require("rack"))
    before = gangs.all_run(2)
    with pytest.raises(ClientError) as refused:
        gangs.client.patch(gangs.path(kind, "train"), {"metadata": {"annotations": asked}})
    assert refused.value.status == 422
    (cause,) = refused.value.details["causes"]
    assert cause["field"] == f"metadata.annotations[{next(iter(asked))}]"
    assert told in cause["message"]
    assert gangs.hosts() == before


IGNORED = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


def test_a_pod_of_a_job_that_ignores_disruptions_leaves_a_host_without_a_failure(gangs: Gangs) -> None:
    """One failure would end the Job: its pod moves, and the Job counts none."""
    gangs.fleet.grid("1x2x4")
    gangs.create("Job", "train", job(gangs, pods=3, podFailurePolicy=IGNORED), annotations=require("rack"))
    before = gangs.all_run(3)
    host = sorted(before.values())[1]
    annotate(gangs, "Job", "train", replace=host)
    eventually(lambda: len(gangs.hosts()) == 3 and host not in gangs.hosts().values(), 90.0, message=gangs.describe)
    assert len(gangs.racks(gangs.all_run(3))) == 1
    assert gangs.get("Job", "train").get("status", {}).get("failed", 0) == 0


def test_kubectl_drain_moves_a_deployment_and_leaves_the_rest(gangs: Gangs, control_plane: ControlPlane) -> None:
    """The admin drains a host: its pod is evicted, and its replacement runs beside the others in the rack."""
    gangs.fleet.grid("1x2x4")
    gangs.create("Deployment", "serve", apps(gangs, pods=3), annotations=require("rack"))
    before = gangs.all_run(3)
    host = sorted(before.values())[0]
    control_plane.kubectl("drain", host, "--ignore-daemonsets", "--timeout=60s")
    eventually(lambda: len(gangs.hosts()) == 3 and host not in gangs.hosts().values(), message=gangs.describe)
    after = gangs.all_run(3)
    assert len(gangs.racks(after)) == 1
    assert set(before.values()) - {host} <= set(after.values())
