"""`topogate simulate` on what kubectl prints gives what the cluster then really does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from local.controlplane import ControlPlane
from local.service import ROOT
from tests.cluster.conftest import Kubectl
from tests.cluster.gangs.conftest import POLICY
from tests.support.eventually import eventually
from tests.support.gang_steps import occupy
from tests.support.gangs import Json, Namespace, job_body, prefer, require


def _jobs(gangs: Namespace) -> list[Json]:
    """A stream of gangs of every kind of request; two of them do not fit."""
    sliced = {**require("block"), "topogate.dev/slices": "rack=2,host=1"}
    asks: list[tuple[str, dict[str, Any]]] = [
        ("rack", {"pods": 6, "gpus": 4, "annotations": require("rack")}),
        ("spread", {"pods": 5, "annotations": prefer("rack")}),
        ("both", {"pods": 3, "gpus": 2, "annotations": {**require("block"), **prefer("rack")}}),
        ("auto", {"pods": 4, "gpus": 2, "annotations": require("auto")}),
        ("unranked", {"pods": 3, "gpus": 2, "indexed": False, "annotations": prefer("auto")}),
        ("never", {"pods": 40, "annotations": require("rack")}),
        ("anywhere", {"pods": 2, "gpus": 4, "annotations": {"topogate.dev/unconstrained-topology": "true"}}),
        ("waits", {"pods": 4, "annotations": require("rack")}),
        ("slices", {"pods": 2, "gpus": 2, "annotations": sliced}),
        ("small", {"pods": 1, "gpus": 1, "pod_annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}),
    ]
    return [job_body(name, selector=gangs.fleet.selector, **options) for name, options in asks]


def _simulated(tmp_path: Path, cluster: str, policy: str, jobs: list[Json], namespace: str) -> list[Json]:
    """The answers of `topogate simulate`, one per Job."""
    for name, text in (
        ("cluster.json", cluster),
        ("policy.yaml", policy),
        ("jobs.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs})),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "webhook.cli", "simulate", "--cluster", str(tmp_path / "cluster.json")]
    command += ["--policy", str(tmp_path / "policy.yaml"), "-f", str(tmp_path / "jobs.json")]
    command += ["--namespace", namespace, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    assert done.returncode == 1, done.stderr  # two of them are not placed
    workloads: list[Json] = json.loads(done.stdout)["workloads"]
    return workloads


def _answered(gangs: Namespace, job: Json) -> tuple[str, object]:
    """Create a Job and wait for the cluster's answer: "placed" and the slots, or "waits" and the reason."""
    name, pods = job["metadata"]["name"], job["spec"]["parallelism"]
    gangs.client.create(gangs.jobs_path, job)

    def look() -> tuple[str, object] | None:
        placement = gangs.placement(name) or {"spec": {}}
        assignment = placement["spec"].get("assignment")
        if assignment and len(gangs.bound(name)) == pods:
            return "placed", [
                {key: slot.get(key) for key in ("domain", "count", "ranks")}
                for pod_set in assignment["podSets"]
                for slot in pod_set["slots"]
            ]
        status = placement.get("status") or {}
        return ("waits", (status["reason"], status["message"])) if status.get("phase") == "Waiting" else None

    found = eventually(look, message=lambda: f"{name} is placed or waits\n{gangs.describe(name)}")
    assert found is not None
    return found


def _slice_indexes(pods: list[Json]) -> list[str]:
    """What the pods of a Job say about their slices, by rank."""
    told = [pod["metadata"]["annotations"] for pod in pods]
    return [one["topogate.dev/slice-index"] for one in sorted(told, key=lambda one: int(one["topogate.dev/rank"]))]


def test_simulate_answers_like_the_cluster(control_plane: ControlPlane, gangs: Namespace, tmp_path: Path) -> None:
    """Ten gangs in a row, on a fleet with pods, a cordoned and a tainted host: the same hosts, ranks and reasons."""
    hosts = gangs.fleet.grid("2x2x4")
    occupy(gangs, hosts[2])
    occupy(gangs, hosts[9], gpus=4)
    gangs.fleet.cordon(hosts[12])
    gangs.fleet.patch(hosts[6], {"spec": {"taints": [{"key": "example.com/broken", "effect": "NoSchedule"}]}})
    cluster = control_plane.kubectl("get", "nodes,pods", "-A", "-o", "json").stdout
    policy = gangs.client.get(POLICY)["data"]["policy.yaml"]
    jobs = _jobs(gangs)
    simulated: list[tuple[str, object]] = []
    slices: dict[str, list[str]] = {}
    for answer in _simulated(tmp_path, cluster, policy, jobs, gangs.name):
        if answer["verdict"] == "placed":
            slots = [
                {key: slot[key] for key in ("domain", "count", "ranks")}
                for pod_set in answer["podSets"]
                for slot in pod_set["assignment"]
            ]
            slices[answer["name"]] = [
                index
                for pod_set in answer["podSets"]
                for slot in pod_set["assignment"]
                for index in slot["slices"] or ()
            ]
            simulated.append(("placed", slots))
        else:
            simulated.append(("waits", (answer["reason"], answer["message"])))
    real = [_answered(gangs, job) for job in jobs]
    assert [verdict for verdict, _ in real].count("waits") == 2
    for job, expected, found in zip(jobs, simulated, real, strict=True):
        assert found == expected, job["metadata"]["name"]
    assert slices.pop("slices") == ["0/0", "0/1"] == _slice_indexes(gangs.pods("slices"))
    assert not any(slices.values())


def forecast(kubectl: Kubectl, body: str, words: str) -> str:
    """What a dry run says, once these words are in it.

    A busy replica gives no forecast, and one that has not seen the newest pods or quotas another one.
    """

    def look() -> str:
        said = kubectl("create", "--dry-run=server", "-f", "-", input=body).stderr
        return said if words in said else ""

    return eventually(look, message=f"a dry run says {words!r}")


def test_a_dry_run_tells_what_the_leader_will_say(gangs: Namespace, kubectl: Kubectl) -> None:
    """There is room, but the quota does not take the gang, or its pods' PriorityClass does not exist."""
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    path = f"/api/v1/namespaces/{gangs.name}/resourcequotas"
    gangs.client.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    eventually(lambda: gangs.client.get(f"{path}/few").get("status", {}).get("used"), message="the quota is counted")
    gangs.fleet.grid("1x1x2")  # the leader knows the quota by now
    told = {}
    for name, reason in (("quota", "QuotaExceeded"), ("class", "PriorityClassMissing")):
        body = job_body(name, pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
        if name == "class":
            body["spec"]["template"]["spec"]["priorityClassName"] = "hihg"
        said = forecast(kubectl, json.dumps(body), "topogate: would wait: ")
        gangs.client.create(gangs.jobs_path, body)
        told[name] = gangs.waits(name, reason)["status"]["message"]
        assert f"topogate: would wait: {told[name]}" in said
    assert told["quota"].startswith("quota few allows 1 of pods in all")
    assert told["class"].startswith('PriorityClass "hihg" not found: no pod can be created')


def test_a_dry_run_only_tells(gangs: Namespace, kubectl: Kubectl) -> None:
    """`kubectl create --dry-run=server`: a warning with the rack, which the Job then gets; nothing is written."""
    hosts = gangs.fleet.grid("1x2x2")
    occupy(gangs, hosts[0])
    body = json.dumps(job_body("train", pods=2, annotations=require("rack"), selector=gangs.fleet.selector))
    forecast(kubectl, body, f"would place 2 pods in {gangs.fleet.prefix}block-0 / {gangs.fleet.prefix}rack-01")
    assert gangs.client.find(f"{gangs.jobs_path}/train") is None
    assert gangs.placement("train") is None
    gangs.client.create(gangs.jobs_path, json.loads(body))
    assert set(gangs.all_bound("train", 2).values()) == set(hosts[2:])
