"""Pod (anti-)affinity and topology spread: each Job once for the scheduler alone, once as a gang."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import PodConstraints
from engine.decoding import pods as decoded
from local.nodes import BLOCK, RACK
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job, failures, status_of
from tests.support.gangs import Json, Namespace, job_body
from tests.support.scheduler_oracle import OnNode, binds

TRAIN = {"app": "train"}
ALONE = {names.UNCONSTRAINED: "true"}


def term(key: str, labels: dict[str, str], **more: Any) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more}


def near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def apart(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def spread(key: str, **more: Any) -> Json:
    one = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term(key, TRAIN), **more}
    return {"topologySpreadConstraints": [one]}


@dataclass(frozen=True)
class Case:
    """Pods of a gang on 2 blocks of 2 racks of 2 hosts with 8 GPUs, beside others: (host, labels, part of the spec)."""

    pods: int
    spec: Json
    gpus: int = 4
    others: tuple[tuple[int, dict[str, str], Json], ...] = ()
    fits: bool = True
    hosts: frozenset[int] = field(default_factory=lambda: frozenset(range(8)))  # those that are right
    most: dict[str, int] = field(default_factory=dict)  # of its pods in a domain of a label


DB = {"app": "db"}
CASES = {
    "affinity to a running pod": Case(2, near(term(RACK, DB)), others=((6, DB, {}),), hosts=frozenset({6, 7})),
    "affinity to each other": Case(3, near(term(RACK, TRAIN))),
    "affinity to nothing": Case(2, near(term(RACK, DB)), fits=False),
    "anti-affinity to each other": Case(4, apart(term(RACK, TRAIN)), most={RACK: 1}),
    "anti-affinity to each other in too few racks": Case(5, apart(term(RACK, TRAIN)), fits=False),
    "anti-affinity to running pods": Case(
        4, apart(term(BLOCK, DB)), others=((1, DB, {}),), hosts=frozenset({4, 5, 6, 7})
    ),
    "anti-affinity of running pods": Case(
        4, {}, others=((5, {}, apart(term(BLOCK, TRAIN))),), hosts=frozenset({0, 1, 2, 3})
    ),
    "anti-affinity of running pods everywhere": Case(
        1, {}, others=((0, {}, apart(term(BLOCK, TRAIN))), (7, {}, apart(term(BLOCK, TRAIN)))), fits=False
    ),
    "anti-affinity in all namespaces": Case(
        2,
        apart(term(RACK, DB, namespaceSelector={})),
        others=((0, DB, {}), (2, DB, {}), (4, DB, {})),
        hosts=frozenset({6, 7}),
    ),
    "spread beside running pods": Case(4, spread(BLOCK), others=((0, TRAIN, {}), (2, TRAIN, {})), most={BLOCK: 3}),
    "spread over racks": Case(8, spread(RACK), gpus=2, most={RACK: 2}),
    "spread over hosts": Case(8, spread("kubernetes.io/hostname"), gpus=1, most={"kubernetes.io/hostname": 1}),
    "spread over at least two blocks": Case(4, spread(BLOCK, minDomains=2), gpus=1, most={BLOCK: 2}),
    "spread over more blocks than there are": Case(4, spread(BLOCK, minDomains=3), gpus=1, fits=False),
    "spread that counts no pods": Case(12, spread("kubernetes.io/hostname", labelSelector={}, minDomains=9)),
    "spread that counts all nodes": Case(4, spread(RACK, nodeAffinityPolicy="Ignore"), gpus=1, most={RACK: 1}),
}


def start(gangs: Namespace, name: str, case: Case, annotations: dict[str, str]) -> None:
    body = job_body(
        name, pods=case.pods, gpus=case.gpus, annotations=annotations, selector=gangs.fleet.selector, pod_spec=case.spec
    )
    body["spec"]["template"]["metadata"]["labels"] = dict(TRAIN)
    gangs.client.create(gangs.jobs_path, body)


def run_beside(gangs: Namespace, name: str, host: str, labels: dict[str, str], spec: Json) -> None:
    """Somebody else's pod, which no scheduler has looked at."""
    container = {"name": "main", "image": "example.com/other:1"}
    tolerations = [{"operator": "Exists"}]
    path = f"/api/v1/namespaces/{gangs.name}/pods"
    pod = {"nodeName": host, "containers": [container], "tolerations": tolerations, **spec}
    gangs.client.create(path, {"metadata": {"name": name, "labels": labels}, "spec": pod})
    eventually(lambda: gangs.client.get(f"{path}/{name}")["status"].get("phase") == "Running", message=f"{name} runs")


def refused(gangs: Namespace, job: str) -> list[Json]:
    """The pods of a Job that the scheduler has refused."""
    return [
        pod
        for pod in gangs.pods(job)
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
    ]


def accepted_by_the_rules(gangs: Namespace, job: str) -> bool:
    """Whether the scheduler could have bound the pods there without their pins."""
    nodes = {
        node["metadata"]["name"]: node["metadata"]["labels"]
        for node in gangs.client.items("/api/v1/nodes")
        if node["metadata"]["name"] in gangs.fleet.names
    }
    there, own = [], []
    for raw in gangs.client.items(f"/api/v1/namespaces/{gangs.name}/pods"):
        one = decoded.pod(json.dumps(raw).encode())
        labels = tuple(sorted(raw["metadata"].get("labels", {}).items()))
        labels = tuple(pair for pair in labels if pair[0] == "app")
        limits = one.spec.constraints or PodConstraints()
        found = OnNode(one.spec.node_name, one.namespace, labels, limits)
        (own if raw["metadata"].get("labels", {}).get("job-name") == job else there).append(found)
    return binds(nodes, there, own, pinned=False)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_gang_is_placed_where_the_scheduler_would_bind_its_pods(gangs: Namespace, case: Case) -> None:
    """What the scheduler binds alone starts as a gang, within the rules; what it cannot place waits with our reason."""
    hosts = gangs.fleet.grid("2x2x2")
    for number, (host, labels, spec) in enumerate(case.others):
        run_beside(gangs, f"other-{number}", hosts[host], labels, spec)
    start(gangs, "plain", case, {})
    if case.fits:
        gangs.all_bound("plain", case.pods)
    else:
        eventually(lambda: refused(gangs, "plain"), message=lambda: gangs.describe("plain"))
        assert len(gangs.bound("plain")) < case.pods
    delete_job(gangs, "plain")
    eventually(lambda: not gangs.pods("plain"), message="the plain pods are gone")
    gangs.pods_seen()
    start(gangs, "train", case, ALONE)
    if not case.fits:
        gangs.waits("train", "PodConstraints")
        assert gangs.bound("train") == {}
        return
    bound = gangs.all_bound("train", case.pods)
    assert {hosts.index(host) for host in bound.values()} <= case.hosts
    for key, most in case.most.items():
        values = [gangs.client.get(f"/api/v1/nodes/{host}")["metadata"]["labels"][key] for host in bound.values()]
        assert max(map(values.count, values)) <= most
    assert accepted_by_the_rules(gangs, "train")
    assert failures(gangs, "train") == 0


def test_growth_and_a_pod_that_appears_keep_to_the_rules(gangs: Namespace) -> None:
    """A third pod goes to the third rack; a fifth waits, and a gang that wants to be near another starts after it."""
    gangs.fleet.grid("2x2x2")
    start(gangs, "follower", Case(2, near(term(RACK, {"job-name": "train"})), gpus=1), ALONE)
    gangs.waits("follower", "PodConstraints")
    message = str(status_of(gangs, "follower")["message"])
    assert message == (
        f"needs room for 2 pods among 8 hosts; 8 hosts excluded by podAffinity on {RACK} with job-name=train"
    )
    start(gangs, "train", Case(2, apart(term(RACK, {"job-name": "train"}))), ALONE)
    first = gangs.racks(gangs.all_bound("train", 2))
    assert len(first) == 2
    follower = gangs.racks(gangs.all_bound("follower", 2))
    assert follower <= first
    gangs.client.patch(f"{gangs.jobs_path}/train", {"spec": {"parallelism": 4, "completions": 4}})
    assert len(gangs.racks(gangs.all_bound("train", 4))) == 4
    gangs.client.patch(f"{gangs.jobs_path}/train", {"spec": {"parallelism": 5, "completions": 5}})
    eventually(
        lambda: "podAntiAffinity" in str(status_of(gangs, "train").get("message")),
        message=lambda: gangs.describe("train"),
    )
    assert len(gangs.bound("train")) == 4


def test_a_deleted_pod_comes_back_apart_from_those_that_stay(gangs: Namespace) -> None:
    """Its own reservation and its terminating pod do not keep it out; the others stay where they are."""
    gangs.fleet.grid("2x2x2")
    start(gangs, "train", Case(4, apart(term(RACK, TRAIN))), ALONE)
    gangs.client.patch(f"{gangs.jobs_path}/train", {"spec": {"backoffLimit": 4}})
    before = gangs.all_bound("train", 4)
    lost = sorted(before)[0]
    path = f"/api/v1/namespaces/{gangs.name}/pods"
    named = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in gangs.pods("train")}
    victim = next(name for name in named if gangs.client.get(f"{path}/{name}")["spec"]["nodeName"] == before[lost])
    gangs.client.delete(f"{path}/{victim}")
    eventually(
        lambda: named[victim] not in {pod["metadata"]["uid"] for pod in gangs.pods("train")},
        message=lambda: gangs.describe("train"),
    )
    after = gangs.all_bound("train", 4)
    assert len(gangs.racks(after)) == 4
    assert accepted_by_the_rules(gangs, "train")
