"""Alerts, dashboard and runbooks on the running service: what they read is there, and a healthy service is silent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from local.client import Client
from local.controlplane import ControlPlane
from local.service import Service
from tests.cluster.gangs.conftest import POLICY, TEST_POLICY, PolicyInForce
from tests.support.alerts import alerts
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, job_body, require
from tests.support.pages import ROOT, Page, pages
from tests.support.promql import STEP, Series, evaluate, names
from tests.support.runbooks import FOLDER, command_lines, runbooks

# What other tests may have left in the cluster: nodes without labels, faulty devices, gangs that wait.
OF_THE_CLUSTER = {
    "TopogateNodesLeftOut",
    "TopogateRoomKept",
    "TopogateDevicesNotCounted",
    "TopogateObjectsUnreadable",
    "TopogateGangStuck",
    "TopogateGangWithoutPods",
}
BY_RUNNING = re.compile(r"kubectl (?!.*(?:port-forward|POD|CRD))|topogate |time kubectl |curl ")


def scrape(service: Service) -> list[tuple[str, dict[str, str], float]]:
    """Every sample of every replica, with its pod as Prometheus adds it."""
    return [
        (sample.name, {**sample.labels, "pod": f"replica-{replica.number}"}, sample.value)
        for replica in service.running()
        for family in text_string_to_metric_families(replica.page("/metrics")[1])
        for sample in family.samples
    ]


def series(scrapes: Sequence[list[tuple[str, dict[str, str], float]]]) -> list[Series]:
    """The scrapes as series that end now, a minute apart."""
    end, found = time.time(), dict[frozenset[tuple[str, str]], list[tuple[float, float]]]()
    for number, samples in enumerate(scrapes):
        for name, labels, value in samples:
            when = end - STEP * (len(scrapes) - 1 - number)
            found.setdefault(frozenset({("__name__", name), *labels.items()}), []).append((when, value))
    return [Series(labels, tuple(values)) for labels, values in found.items()]


def true_now(found: list[Series]) -> set[str]:
    """The alerts whose expressions hold at this moment."""
    return {name for name, alert in alerts().items() if evaluate(alert.expression, found, time.time())}


TOLD = {
    ("topogate_gang_oldest_wait_seconds", ""),
    ("topogate_gang_wait_seconds_count", "placed"),
    ("topogate_gangs", "Waiting"),
    ("topogate_topology_gpus", "used"),
    ("topogate_domain_gpus", "used"),
    ("topogate_build_info", ""),
}


def told(service: Service) -> set[tuple[str, str]]:
    """The metrics above 0, with their phase, outcome or state."""
    keys = ("phase", "outcome", "state")
    return {
        (name, next((labels[key] for key in keys if key in labels), ""))
        for name, labels, value in scrape(service)
        if value > 0
    }


@pytest.fixture
def busy(gangs: Namespace) -> Namespace:
    """A gang that runs, and one that waits."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    return gangs


def test_what_alerts_and_dashboard_read_is_exported(busy: Namespace, service: Service) -> None:
    """Every metric that they name is on a page of a real replica, also one without a sample yet."""
    dashboard = json.loads((ROOT / "manifests/monitoring/topogate-dashboard.json").read_text())
    read = {name for alert in alerts().values() for name in names(alert.expression)}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            read |= names(target["expr"])
    leader = eventually(service.leader, message="a replica leads")
    page = eventually(lambda: leader.page("/metrics")[1], message="the leader answers")
    exported = set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))
    missing = {name for name in read if name not in exported}
    assert {name for name in missing if re.sub(r"_(bucket|count|sum)$", "", name) not in exported} == set()


def test_a_request_that_is_left_alone_is_counted_by_its_reason(busy: Namespace, service: Service) -> None:
    """Once, on the replica that answered; the question before it does not count."""

    def counted() -> float:
        found = (one for one in scrape(service) if one[0] == "topogate_aside_total")
        return sum(value for _, labels, value in found if labels["reason"] == "OtherScheduler")

    before = counted()
    other = {"schedulerName": "example.com/of-my-own"}
    body = job_body("aside", pods=1, annotations=require("rack"), pod_spec=other)
    busy.client.create(busy.jobs_path, body, dry_run=True)
    busy.client.create(busy.jobs_path, body)
    eventually(lambda: counted() == before + 1, message="the Job is counted")


def test_a_healthy_service_is_silent_and_a_refused_policy_is_not(
    busy: Namespace, service: Service, client: Client, policy: PolicyInForce
) -> None:
    """Real scrapes of both replicas; the waiting gang, free room and the wait that ended are told."""
    eventually(
        lambda: true_now(series([scrape(service), scrape(service)])) <= OF_THE_CLUSTER,
        message="no alert on a healthy service",
    )
    eventually(lambda: told(service) >= TOLD, message="queue, wait and free room are told")
    policy.set(f"{TEST_POLICY}queue: {{patience: 20m}}\n")  # the good one that stays in force
    service.stop()
    client.patch(POLICY, {"data": {"policy.yaml": "mode: nonsense\n"}})
    service.start(2)
    eventually(service.leader, message="a replica leads")
    eventually(
        lambda: "TopogatePolicyRefused" in true_now(series([scrape(service)])),
        message="the alert of a refused policy",
    )
    assert {"TopogateDown"} <= true_now([])


def test_every_command_of_the_runbooks_runs(
    busy: Namespace, service: Service, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """With names of the test in place of KIND/NAME; commands that need the service in a pod find none, and say so."""
    leader = eventually(service.leader, message="a replica leads")
    (tmp_path / "policy.yaml").write_text("mode: enforce\n")
    path = f"{_programs(control_plane, tmp_path)}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig), "PATH": path}
    placement = busy.placement("train")
    assert placement is not None
    values = {
        "KIND/NAME": "job/train",
        "KIND NAME": "job train",
        "NAMESPACE": busy.name,
        "PLACEMENT": placement["metadata"]["name"],
        "localhost:8080": f"127.0.0.1:{leader.ops_port}",
    }

    def run(line: str) -> tuple[str, str] | None:
        filled = line.replace("--request-timeout=90s", "--request-timeout=1s")
        for word, value in values.items():
            filled = filled.replace(word, value)
        done = subprocess.run(
            ["bash", "-c", filled],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
            check=False,
        )
        return None if not done.returncode or _expected(line, done) else (line, done.stdout + done.stderr)

    every = sorted({line for page in _pages() for line in command_lines(page) if BY_RUNNING.match(line)})
    logs = [line for line in every if " logs " in line]  # they differ in the words to look for alone
    lines = [line for line in every if line not in logs[1:]]
    assert logs and lines
    with ThreadPoolExecutor(max_workers=4) as pool:  # each waits for the start of a program most of the time
        failed = dict(found for found in pool.map(run, lines) if found is not None)
    assert not failed, json.dumps(failed, indent=1)


def test_the_component_builds(control_plane: ControlPlane, tmp_path: Path) -> None:
    """In an overlay beside the default install, with the dashboard in a ConfigMap that Grafana's sidecar finds."""
    manifests = os.path.relpath(ROOT / "manifests", tmp_path.resolve())
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{manifests}/base"],
        "components": [f"{manifests}/monitoring"],
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    built = list(yaml.safe_load_all(control_plane.kubectl("kustomize", str(tmp_path)).stdout))
    found = {(one["kind"], one["metadata"]["name"]): one for one in built}
    service = found["Deployment", "topogate"]["spec"]["template"]
    monitor = found["PodMonitor", "topogate"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    ports = {port["name"] for port in service["spec"]["containers"][0]["ports"]}
    assert {one["port"] for one in monitor["podMetricsEndpoints"]} <= ports
    dashboard = found["ConfigMap", "topogate-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["topogate-dashboard.json"])["uid"] == "topogate"
    assert ("PrometheusRule", "topogate") in found
    plain = control_plane.kubectl("kustomize", str(ROOT / "manifests/base")).stdout
    assert "monitoring.coreos.com" not in plain


def _pages() -> Iterator[Page]:
    yield pages()[f"{FOLDER}README.md"]
    yield from runbooks().values()


def _expected(line: str, done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether a status is the answer: nothing found in an empty log, no Deployment, no metrics server here."""
    if "grep" in line and done.returncode == 1:
        return not done.stderr or "No resources found" in done.stderr
    outside = ("deployments.apps", "podmonitors", "Metrics API not available", "networkpolicies")
    return any(word in done.stderr for word in outside) or "--watch" in line


def _programs(control_plane: ControlPlane, folder: Path) -> Path:
    """Return a folder with `kubectl` and `topogate`."""
    bin_ = folder / "bin"
    bin_.mkdir()
    (bin_ / "kubectl").symlink_to(control_plane.programs["kubectl"])
    (bin_ / "topogate").write_text(f'#!/bin/sh\nexec env PYTHONPATH={ROOT} {sys.executable} -m webhook.cli "$@"\n')
    (bin_ / "topogate").chmod(0o755)
    return bin_
