"""How much a template may say."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import names
from engine.decoding.workloads import workload as of_kind
from engine.gang.request import PlacementRequest, parse_request
from engine.gang.validation import MAX_ALL_CONTAINERS, MAX_CONTAINERS, MAX_REQUIREMENTS, MAX_VALUES
from engine.kinds.registry import built_in
from engine.policy.model import default_policy
from engine.topology.topology import topologies_of
from tests.support.admission import NODES, raw_job, workload
from tests.support.cluster_records import gpu_nodes
from tests.support.kinds import example, merged, workload_of

AFFINITY = "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
Json = dict[str, Any]


def containers(count: int) -> list[Json]:
    return [{"name": f"c{number}", "image": "x"} for number in range(count)]


def affinity(terms: list[Json]) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def one_term(requirements: int, values: int = 1) -> list[Json]:
    named = [str(number) for number in range(values)]
    return [{"matchExpressions": [{"key": f"k{n}", "operator": "In", "values": named} for n in range(requirements)]}]


def read(spec: Json, annotations: Json | None = None) -> PlacementRequest:
    job = raw_job({names.REQUIRE: "rack"} if annotations is None else annotations)
    job["spec"]["template"]["spec"] |= spec
    policy = default_policy()
    return parse_request(workload(job), policy=policy, topologies=topologies_of(policy.topologies, NODES))


@pytest.mark.parametrize(
    ("most", "more", "field", "told"),
    [
        (
            {"containers": containers(MAX_CONTAINERS - 6), "initContainers": containers(6)},
            {"containers": containers(MAX_CONTAINERS - 6), "initContainers": containers(7)},
            "spec.template.spec.containers",
            "257 containers and init containers; a template may have at most 256",
        ),
        (
            {"nodeSelector": {f"k{n}": "v" for n in range(MAX_REQUIREMENTS)}},
            {"nodeSelector": {f"k{n}": "v" for n in range(MAX_REQUIREMENTS + 1)}},
            "spec.template.spec.nodeSelector",
            "257 labels; a template may have at most 256",
        ),
        (
            {"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(MAX_REQUIREMENTS)]},
            {"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(MAX_REQUIREMENTS + 1)]},
            "spec.template.spec.tolerations",
            "257 tolerations; a template may have at most 256",
        ),
        (
            {"affinity": affinity(one_term(MAX_REQUIREMENTS - 1))},
            {"affinity": affinity(one_term(MAX_REQUIREMENTS))},
            AFFINITY,
            "257 terms and requirements; a template may have at most 256",
        ),
        (
            {"affinity": affinity(one_term(1, MAX_VALUES))},
            {"affinity": affinity(one_term(1, MAX_VALUES + 1))},
            AFFINITY,
            "4,097 values; a template may have at most 4,096",
        ),
    ],
    ids=["containers", "nodeSelector", "tolerations", "requirements", "values"],
)
def test_what_a_template_may_say_is_bounded(most: Json, more: Json, field: str, told: str) -> None:
    """As much as is allowed passes; one more is refused with its path and the limit."""
    assert read(most).errors == ()
    (error,) = read(more).errors
    assert (error.kind, error.field, error.message) == ("Too many", field, told)


def test_who_asks_for_nothing_may_say_what_he_will() -> None:
    """The bounds are those of what is planned."""
    found = read({"containers": containers(MAX_CONTAINERS + 1)}, annotations={})
    assert (found.errors, found.ignored) == ((), "NoTopologyRequested")


def test_the_pin_of_a_placed_pod_does_not_count() -> None:
    """Each term gets a matchField, which must not make wrong what was right when it was asked for."""
    terms = [
        {"matchExpressions": [{"key": "k", "operator": "Exists"}], "matchFields": [field, field]}
        for field in [{"key": "metadata.name", "operator": "In", "values": ["host"]}]
    ] * (MAX_REQUIREMENTS // 2)
    assert read({"affinity": affinity(terms)}).errors == ()


def test_the_containers_of_all_templates_are_bounded_together() -> None:
    """A workload of many templates has no more of them than one review may cost."""

    def jobset(of_each: int) -> PlacementRequest:
        job = {"parallelism": 1, "completions": 1, "template": {"spec": {"containers": containers(of_each)}}}
        raw = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "a", "namespace": "ml", "annotations": {names.REQUIRE: "rack"}},
            "spec": {"replicatedJobs": [{"name": f"r{n}", "template": {"spec": job}} for n in range(8)]},
        }
        entry = built_in().entry_of(raw)
        assert entry is not None
        policy = default_policy()
        record = of_kind(raw, entry=entry, registry=built_in())
        return parse_request(record, policy=policy, topologies=topologies_of(policy.topologies, gpu_nodes(1, 1, 2)))

    assert not any(error.kind == "Too many" for error in jobset(MAX_ALL_CONTAINERS // 8).errors)
    (error,) = [error for error in jobset(MAX_ALL_CONTAINERS // 8 + 1).errors if error.kind == "Too many"]
    assert (error.field, error.message) == (
        "spec",
        "1,032 containers in all templates; a workload may have at most 1,024",
    )


def test_too_many_groups_are_told_at_the_field_that_sets_their_number() -> None:
    """Not at the status, which counts those of an update besides."""
    asks = {"annotations": {names.REQUIRE: "rack"}}
    raw = merged(example("leaderworkerset")["object"], {"metadata": asks, "spec": {"replicas": 10_001}})
    found = parse_request(workload_of(raw), policy=default_policy(), topologies=topologies_of((), gpu_nodes(1, 1, 2)))
    (error,) = found.errors
    assert (error.field, error.value, error.reason) == ("spec.replicas", "10001", "GangLimitExceeded")
