"""What users of one namespace read names neither what others run nor the nodes on which they do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.gang import live_view
from engine.api import names
from engine.api.placement import kept_hosts
from engine.api.workload import Workload
from engine.decoding.placements import placement_body
from engine.policy.model import parse_policy
from tests.support.admission import Json, raw_job, review
from tests.support.leader import POLICY
from tests.support.preempting import MOVES, PREEMPTS, PreemptingCluster
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

STRICT = "queue: {order: strict, patience: 20s}\n"
PATIENT = "queue: {patience: 20s}\n"
POLICIES = ["", PREEMPTS, MOVES, PREEMPTS + MOVES, STRICT, PATIENT, STRICT + PREEMPTS]
# Two tenants; no word of our messages is in these, and none of them in another.
TENANTS = {"ours": "quince", "theirs": "zephyr"}

gangs = st.tuples(
    st.sampled_from(["ours", "theirs", "theirs"]),
    st.integers(1, 4),
    st.sampled_from([0, 5, 10]),
    st.sampled_from(["rack", "host", None]),
    st.sampled_from([8, 4]),
    st.booleans(),
)
requests = st.tuples(st.sampled_from(["rack", "host", "block"]), st.integers(1, 6), st.sampled_from([8, 4, 2, 16]))


class Tenants(PreemptingCluster):
    """Two namespaces on two racks of two hosts; each host has a name of its own that says nothing."""

    def __init__(self, policy: str) -> None:
        super().__init__(policy=policy)
        nodes = []
        for place, one in enumerate(self.leader.stores.nodes.values()):
            name = f"node-{place}xq"
            nodes.append(replace(one, name=name, labels={**one.labels, "kubernetes.io/hostname": name}))
        self.hosts_of_cluster = {one.name for one in nodes}
        self.leader.stores.nodes.replace(nodes)
        self.number = 0

    def add(self, *gang: Any) -> None:
        """Submit one of `gangs`."""
        who, count, priority, level, gpus, suspendable = gang
        name = f"{TENANTS[who]}{self.number}"
        self.number += 1
        self.submit(
            name, count, priority=priority, require=level, gpus=gpus, suspendable=suspendable, namespace=TENANTS[who]
        )
        self.go_on()

    def of(self, who: str) -> list[Workload]:
        return [one for one in self.leader.stores.workloads.values() if one.namespace == TENANTS[who]]

    def told(self, who: str) -> str:
        """All that the users of a namespace read: their Placements, and the Events on what is theirs."""
        own = {one.name for one in self.of(who)}
        pods = {pod.name for pod in self.leader.stores.pods.values() if pod.namespace == TENANTS[who]}
        found: list[Any] = [note for name, note in self.leader.hands.notes if name in own | pods]
        for placement in self.leader.stores.placements.values():
            if placement.namespace == TENANTS[who]:
                status = {key: value for key, value in placement.status.items() if key != "keptHosts"}
                found += [{**placement_body(placement), "uid": placement.uid}, status]
        return json.dumps(found)

    def own_hosts(self, who: str) -> set[str]:
        """Where the gangs of a namespace have slots or pods, or had them, and what is kept for them."""
        found: set[str] = set()
        for placement in self.leader.stores.placements.values():
            if placement.namespace == TENANTS[who]:
                found |= set(kept_hosts(placement.status))
                plans = placement.assignment.pod_sets if placement.assignment is not None else ()
                found |= {slot.host for plan in plans for slot in plan.slots}
        return found | {pod.spec.node_name for pod in self.leader.stores.pods.values() if pod.namespace == TENANTS[who]}

    def forecast(self, level: str, count: int, gpus: int) -> str:
        """What our user reads who submits a Job, or asks with a dry run."""
        job: Json = raw_job({names.REQUIRE: level}, namespace=TENANTS["ours"], parallelism=count, completions=count)
        job["metadata"]["name"] = "asked"
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["resources"]["limits"]["nvidia.com/gpu"] = str(gpus)
        reader = live_view(self.leader.view)
        sent = review(job, namespace=TENANTS["ours"])
        mutated = mutate(sent, reader, float("inf"))
        done = review(mutated.document or job, namespace=TENANTS["ours"])
        answers = [mutated, validate(done, reader, float("inf"))]
        return json.dumps([[one.warnings, one.message, [cause.message for cause in one.causes]] for one in answers])


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(POLICIES), st.lists(gangs, min_size=2, max_size=7), st.lists(requests, min_size=1, max_size=4))
@example("", [("theirs", 1, 0, None, 4, True)] * 4, [("host", 3, 4)])
@example(PREEMPTS, [("theirs", 2, 0, "rack", 8, True)] * 2 + [("ours", 2, 10, "rack", 8, True)], [("rack", 2, 8)])
@example(STRICT, [("theirs", 4, 10, None, 8, True)] * 2 + [("ours", 1, 0, "host", 8, True)], [("host", 1, 8)])
def test_nobody_reads_names_of_others(
    policy: str, submitted: list[tuple[str, int, int, str | None, int, bool]], asked: list[tuple[str, int, int]]
) -> None:
    """In warnings, refusals, Placements and Events: no workload and no namespace of others, no node but one's own."""
    cluster = Tenants(policy)
    known: set[str] = set()
    for one in submitted:
        cluster.add(*one)
        known |= cluster.own_hosts("ours")
    cluster.wait(45, every=15.0)
    known |= cluster.own_hosts("ours")
    texts = [cluster.told("ours")]
    foreign = cluster.hosts_of_cluster - known
    for level, count, gpus in asked:
        text = cluster.forecast(level, count, gpus)
        assert not [host for host in cluster.hosts_of_cluster if host in text], text
        texts.append(text)
    for text in texts:
        assert TENANTS["theirs"] not in text, text
        assert not [host for host in foreign if host in text], text


@pytest.mark.parametrize(("nodes", "named"), [("own", False), ("all", True)])
def test_the_policy_says_whether_the_best_node_is_named(nodes: str, named: bool) -> None:
    """By default users read how much room it has, and the domain in which it is."""
    cluster = Tenants(f"messages: {{nodes: {nodes}}}\n")
    for _ in range(4):
        cluster.add("theirs", 1, 0, None, 5, True)
    cluster.add("ours", 2, 0, "host", 3, True)
    (placement,) = [one for one in cluster.leader.stores.placements.values() if one.namespace == TENANTS["ours"]]
    message, best = placement.status["message"], placement.status["best"]
    for text in (message, json.dumps(best), cluster.forecast("host", 2, 3)):
        assert any(host in text for host in cluster.hosts_of_cluster) == named, text
    assert ("; the best host has room for 1 " in message) == (not named)
    assert best[-1]["level"] == "host" and best[-1]["domain"].startswith("b0/b0-r")


def test_the_default_names_no_foreign_nodes() -> None:
    assert parse_policy(POLICY).messages.nodes == "own"
