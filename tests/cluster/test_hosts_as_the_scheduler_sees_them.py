"""Which hosts can take a pod: our answer for each of them, beside that of the real scheduler."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from engine.api import names
from engine.decoding import objects, workloads
from engine.decoding import pods as decoded
from engine.scheduler.outcome import Placed
from local.client import Client
from local.kubelets import complete_pod
from local.nodes import BLOCK, NODES, RACK, HostShape, node
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import Json
from tests.support.small_cluster import SmallCluster

pytestmark = pytest.mark.core

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST, SIZE = names.HOSTNAME, "example.com/size"
MAIN: Json = {"name": "main", "image": "example.com/probe:1"}
ANYWHERE: Json = {"tolerations": [{"operator": "Exists"}]}
PORT: Json = {"ports": [{"containerPort": 80, "hostPort": 80}]}
ML: Json = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
# block, rack, labels, taints, CPUs
HOSTS: list[tuple[str, str, dict[str, str], list[Json], str]] = [
    ("b0", "r0", {SIZE: "5"}, [], "8"),
    ("b0", "r0", {SIZE: "10"}, [ML], "8"),
    ("b0", "r1", {}, [], "8"),
    ("b1", "r2", {SIZE: "abc"}, [], "2"),
    ("b1", "r3", {}, [{"key": "dedicated", "value": "web", "effect": "NoExecute"}], "8"),
    ("b1", "r3", {SIZE: "007"}, [{**ML, "effect": "PreferNoSchedule"}], "8"),
]
CORDONED = 2


def node_terms(*terms: Json) -> Json:
    return {**ANYWHERE, "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def sized(operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": SIZE, "operator": operator, **({"values": list(values)} if values else {})}]}


def term(kind: str, key: str, app: str, **more: Any) -> Json:
    one = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {**ANYWHERE, "affinity": {kind: {REQUIRED: [one]}}}


def spread(key: str, **more: Any) -> Json:
    one = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    one |= {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "probe"]}]}}
    return {**ANYWHERE, "topologySpreadConstraints": [{**one, **more}]}


def asks(cpu: str, **more: Any) -> Json:
    return {**MAIN, "resources": {"requests": {"cpu": cpu}}, **more}


@dataclass(frozen=True)
class Case:
    """A part of a pod's spec, and the numbers of the hosts that can take it; `labels` beside app=probe."""

    hosts: set[int]
    spec: Json
    labels: dict[str, str] = field(default_factory=dict)


ALL = set(range(len(HOSTS)))
# app=web runs on 0 (port 80, 6 CPUs) and 3; app=cache on 5, and keeps shy pods out of its rack; app=web has ended on 5.
CASES = {
    "no toleration": Case({0, 3, 5}, {}),
    "every toleration": Case(ALL, ANYWHERE),
    "a key": Case({0, 1, 3, 4, 5}, {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}),
    "a value": Case({0, 1, 3, 5}, {"tolerations": [{"key": "dedicated", "value": "ml"}]}),
    "an effect": Case({0, 3, 4, 5}, {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}),
    "In or an empty term": Case({0}, node_terms({}, sized("In", "5"))),
    "only an empty term": Case(set(), node_terms({})),
    "NotIn": Case({1, 2, 3, 4, 5}, node_terms(sized("NotIn", "5"))),
    "DoesNotExist": Case({2, 4}, node_terms(sized("DoesNotExist"))),
    "Gt": Case({1, 5}, node_terms(sized("Gt", "5"))),
    "Lt": Case({0, 5}, node_terms(sized("Lt", "10"))),
    "CPUs": Case({1, 2, 4, 5}, {**ANYWHERE, "containers": [asks("3")]}),
    "CPUs of init containers": Case(
        {1, 2, 4, 5},
        {
            **ANYWHERE,
            "containers": [asks("1")],
            "initContainers": [{**asks("2", restartPolicy="Always"), "name": "s"}, {**asks("1"), "name": "i"}],
        },
    ),
    "a host port": Case(ALL - {0}, {**ANYWHERE, "containers": [{**MAIN, **PORT}]}),
    "near web": Case({0, 1, 3}, term("podAffinity", RACK, "web")),
    "near web of another namespace": Case(set(), term("podAffinity", RACK, "web", namespaces=["default"])),
    "near its own": Case(ALL, term("podAffinity", RACK, "probe")),
    "apart from web": Case({1, 2, 4, 5}, term("podAntiAffinity", HOST, "web")),
    "apart from web of any namespace": Case({2, 4, 5}, term("podAntiAffinity", RACK, "web", namespaceSelector={})),
    "kept away": Case({0, 1, 2, 3}, ANYWHERE, {"shy": "yes"}),
    "spread over racks": Case({2, 4, 5}, spread(RACK)),
    "spread over the hosts that it selects": Case({0, 3}, {**spread(HOST), **node_terms(sized("In", "5", "abc"))}),
    "spread over all hosts": Case(
        set(), {**spread(HOST, nodeAffinityPolicy="Ignore"), **node_terms(sized("In", "5", "abc"))}
    ),
    "spread over the hosts that it tolerates": Case(
        {0, 3},
        {**spread(HOST, nodeTaintsPolicy="Honor"), **node_terms(sized("In", "5", "10", "abc")), "tolerations": []},
    ),
    "spread over more racks than there are": Case({2, 4, 5}, spread(RACK, minDomains=9)),
    "spread by a label that few have": Case({1, 5}, spread(SIZE)),
    "spread that counts no pods": Case(ALL, spread(RACK, labelSelector={})),
    "spread without a selector": Case(ALL, spread(RACK, labelSelector=None)),
}


class Oracle:
    """Asks the scheduler and us about one pod on one host."""

    def __init__(self, client: Client, namespace: str, hosts: list[str], selector: Json) -> None:
        self._client, self._namespace, self._pods = client, namespace, f"/api/v1/namespaces/{namespace}/pods"
        self._nodes = [objects.node(json.dumps(one).encode()) for one in client.items(NODES)]
        self._running = [decoded.pod(json.dumps(one).encode()) for one in client.items("/api/v1/pods")]
        self._numbers = count()
        self.hosts, self.selector = hosts, selector

    def ours(self, template: Json, host: str) -> bool:
        job = {
            "metadata": {
                "name": "probe",
                "namespace": self._namespace,
                "uid": "probe",
                "annotations": {names.UNCONSTRAINED: "true"},
            },
            "spec": {"suspend": True, "completions": 1, "parallelism": 1, "template": only_on(template, host)},
        }
        workload = workloads.job(json.dumps(job).encode())
        return isinstance(SmallCluster([workload], nodes=self._nodes, pods=self._running).plan(workload), Placed)

    def bound(self, template: Json, host: str) -> bool:
        """Whether the scheduler binds the pod, as its user wrote it and pinned as we pin it."""
        return self._bound(only_on(template, host)) and self._bound(pinned(template, host))

    def _bound(self, template: Json) -> bool:
        name = f"probe-{next(self._numbers)}"
        self._client.create(self._pods, {**template, "metadata": {**template["metadata"], "name": name}})

        def verdict() -> str | None:
            pod = self._client.get(f"{self._pods}/{name}")
            refused = any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", ()))
            return pod["spec"].get("nodeName") or ("refused" if refused else None)

        found = eventually(verdict, message=f"a verdict on {name}")
        self._client.delete(f"{self._pods}/{name}", grace=0)
        return found != "refused"


def only_on(template: Json, host: str) -> Json:
    """The pod with a request that one host can grant: unlike a pin, that changes nothing of what spread counts."""
    template = deepcopy(template)
    resources = template["spec"]["containers"][0].setdefault("resources", {})
    for kind in ("requests", "limits"):
        resources.setdefault(kind, {})[f"only.example.com/{host}"] = "1"
    return template


def pinned(template: Json, host: str) -> Json:
    template = deepcopy(template)
    affinity = template["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    for one in affinity.setdefault(REQUIRED, {"nodeSelectorTerms": [{"matchFields": []}]})["nodeSelectorTerms"]:
        if one != {}:
            one["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [host]}]
    return template


@pytest.fixture
def oracle(client: Client, namespace: str, nodes: Fleet) -> Oracle:
    """Six hosts with some pods on them."""
    hosts = [f"{nodes.prefix}{number}" for number in range(len(HOSTS))]
    nodes.add(
        node(
            host,
            shape=HostShape(cpu=cpu, extended={f"only.example.com/{host}": "9"}),
            labels={BLOCK: nodes.prefix + block, RACK: nodes.prefix + rack, **labels, **nodes.selector},
            taints=taints,
        )
        for host, (block, rack, labels, taints, cpu) in zip(hosts, HOSTS, strict=True)
    )
    nodes.cordon(hosts[CORDONED])
    web = {"containers": [asks("6", **PORT)]}
    shy = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"shy": "yes"}}}
    others: list[tuple[str, int, str, Json]] = [
        ("web-0", 0, "web", web),
        ("web-3", 3, "web", {}),
        ("cache", 5, "cache", {"affinity": {"podAntiAffinity": {REQUIRED: [shy]}}}),
        ("ended", 5, "web", {**web, "restartPolicy": "Never"}),
    ]
    path = f"/api/v1/namespaces/{namespace}/pods"

    def phase(name: str, wanted: str) -> bool:
        return bool(client.get(f"{path}/{name}")["status"].get("phase") == wanted)

    for name, host, app, spec in others:
        body = {"nodeName": hosts[host], "containers": [MAIN], **ANYWHERE, **spec}
        client.create(path, {"metadata": {"name": name, "labels": {"app": app}}, "spec": body})
        eventually(lambda name=name: phase(name, "Running"), message=f"{name} runs")  # type: ignore[misc]
    complete_pod(client, namespace, "ended")
    eventually(lambda: phase("ended", "Succeeded"), message="the last pod ends")
    return Oracle(client, namespace, hosts, nodes.selector)


def test_the_scheduler_takes_a_pod_on_the_hosts_that_we_say(oracle: Oracle) -> None:
    """Taints, node affinity, requests, ports, and what pods require of each other."""
    seen, said = {}, {}
    for name, case in CASES.items():
        spec = {"restartPolicy": "Never", "containers": [MAIN], "nodeSelector": oracle.selector, **case.spec}
        template = {"metadata": {"labels": {"app": "probe", **case.labels}}, "spec": spec}
        seen[name] = {number for number, host in enumerate(oracle.hosts) if oracle.bound(template, host)}
        said[name] = {number for number, host in enumerate(oracle.hosts) if oracle.ours(template, host)}
    assert said == seen
    assert seen == {name: case.hosts for name, case in CASES.items()}
