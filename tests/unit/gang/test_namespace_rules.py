"""What a namespace may request, by the policy's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from engine.api import names
from engine.api.placement import GangRequest
from engine.gang.relaxation import relaxed
from engine.gang.request import PlacementRequest, parse_request
from engine.policy.model import PolicyError, parse_policy
from engine.topology.topology import topologies_of
from tests.support.admission import NODES, raw_job, workload

POLICY = parse_policy("""
topologies: [{name: default, preset: demo}]
namespaces:
  rules:
  - {namespaces: [research-*], levels: [rack, kubernetes.io/hostname], maxGangPods: 6}
  - {namespaces: [coarse], levels: [block]}
  - {namespaces: [shared], exclusive: false}
  - {namespaces: [free], exclusive: true}
  - {namespaces: ["*"], allow: false}
""")
RACK_KEY = "cloud.provider.com/topology-rack"


def read(namespace: str, annotations: Mapping[str, str] | None = None, **job: Any) -> PlacementRequest:
    return parse_request(
        workload(raw_job(annotations, namespace=namespace, **job)),
        policy=POLICY,
        topologies=topologies_of(POLICY.topologies, list(NODES)),
    )


def refusals(found: PlacementRequest) -> list[tuple[str, str]]:
    assert found.asked is None
    return [(error.field.rpartition("[")[2].rstrip("]"), error.reason) for error in found.errors]


@pytest.mark.parametrize(
    "asked",
    [
        {names.REQUIRE: "rack"},
        {names.REQUIRE: RACK_KEY},
        {names.PREFER: "host"},
        {names.REQUIRE: "auto"},
        {names.UNCONSTRAINED: "true"},
        {names.UNCONSTRAINED: "true", names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"},
    ],
)
def test_levels_of_the_rule_may_be_named(asked: Mapping[str, str]) -> None:
    """By alias, by label key, by `auto`; a gang without a level names none."""
    assert read("research-a", asked).errors == ()


@pytest.mark.parametrize(
    "key",
    [
        names.REQUIRE,
        names.PREFER,
        names.SLICE_TOPOLOGY,
        names.SPREAD,
        names.EXCLUSIVE,
        "kueue.x-k8s.io/podset-required-topology",
        "kai.scheduler/topology-preferred-placement",
    ],
)
@pytest.mark.parametrize("value", ["block", "cloud.provider.com/topology-block"])
def test_any_other_level_is_refused_under_every_key(key: str, value: str) -> None:
    """Foreign dialects and slices name levels too; the message says which are allowed, and which field says so."""
    beside = {names.SLICE_TOPOLOGY: {names.SLICE_SIZE: "2"}, names.SPREAD: {names.SPREAD_GROUP: "g"}}.get(key, {})
    if key != names.REQUIRE and key in names.REQUEST_KEYS:
        beside = {**beside, names.REQUIRE: "rack"}
    found = read("research-a", {key: value, **beside})
    assert refusals(found) == [(key, "LevelNotAllowed")]
    assert found.errors[0].message == (
        f'"{value}" is a level that this namespace may not request; allowed: rack, host '
        "(policy namespaces.rules[0].levels)"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (names.SLICES, "block=4,rack=2"),
        ("kueue.x-k8s.io/podset-slice-required-topology-constraints", '[{"topology":"block","size":4}]'),
    ],
)
def test_a_layer_of_slices_names_a_level_too(key: str, value: str) -> None:
    """In the own spelling and in Kueue's."""
    assert refusals(read("research-a", {key: value, names.UNCONSTRAINED: "true"})) == [(key, "LevelNotAllowed")]
    assert read("coarse", {names.SLICES: "block=4", names.UNCONSTRAINED: "true"}).errors == ()


def test_an_unknown_level_is_offered_only_what_is_allowed() -> None:
    """A typo is still a typo; the levels that it suggests are those that the namespace may name."""
    (error,) = read("research-a", {names.REQUIRE: "rakc"}).errors
    assert (error.reason, error.message) == ("UnknownLevel", 'allowed: rack, host, auto; did you mean "rack"?')


def test_the_first_rule_that_matches_counts() -> None:
    """A later rule for every namespace changes nothing for those that an earlier one names."""
    assert read("free", {names.REQUIRE: "block"}).errors == ()
    assert refusals(read("coarse", {names.REQUIRE: "rack"})) == [(names.REQUIRE, "LevelNotAllowed")]


@pytest.mark.parametrize(
    "asked", [{names.REQUIRE: "rack"}, {names.UNCONSTRAINED: "true"}, {"kai.scheduler/topology": "default"}]
)
def test_a_namespace_that_may_not_request_anything_is_refused_every_request(asked: Mapping[str, str]) -> None:
    """Once for an object, at the first annotation of the request."""
    found = read("other", asked)
    assert refusals(found) == [(next(iter(asked)), "NamespaceNotAllowed")]
    assert found.errors[0].message == (
        "this namespace may not request a topology or a gang (policy namespaces.rules[4].allow); remove the request, "
        "or use another namespace"
    )


def test_a_namespace_that_may_not_request_anything_has_other_workloads() -> None:
    """Without a request, and with the one that says so, nothing is refused."""
    assert read("other").ignored == "NoTopologyRequested"
    assert read("other", {names.UNCONSTRAINED: "false"}).ignored == "NoTopologyRequested"


@pytest.mark.parametrize("level", ["rack", "block", "host", RACK_KEY])
def test_a_rule_forbids_domains_for_one_gang(level: str) -> None:
    """Whatever the level; spreading, and requests without it, are not affected."""
    asked = {names.REQUIRE: "rack", names.EXCLUSIVE: level}
    found = read("shared", asked)
    assert refusals(found) == [(names.EXCLUSIVE, "ExclusiveNotAllowed")]
    assert found.errors[0].message == (
        "gangs of this namespace may not keep a domain for themselves (policy namespaces.rules[2].exclusive); "
        "remove it, or use another namespace"
    )
    assert read("free", asked).errors == ()
    assert read("shared", {names.REQUIRE: "rack", names.SPREAD: "rack", names.SPREAD_GROUP: "g"}).errors == ()


def test_a_level_that_is_not_there_and_not_allowed_are_two_errors() -> None:
    """All errors at once."""
    found = read("shared", {names.REQUIRE: "rack", names.EXCLUSIVE: "rak"})
    assert sorted(refusals(found)) == [(names.EXCLUSIVE, "ExclusiveNotAllowed"), (names.EXCLUSIVE, "UnknownLevel")]


@pytest.mark.parametrize("value", ["never", "3", "[]", "{}"])
def test_the_field_is_true_or_false(value: str) -> None:
    """Anything else is refused with its path."""
    with pytest.raises(PolicyError) as refusal:
        parse_policy(f"namespaces: {{rules: [{{namespaces: [ml], exclusive: {value}}}]}}")
    assert [error.field for error in refusal.value.errors] == ["namespaces.rules[0].exclusive"]


def test_the_rule_bounds_the_pods_of_a_gang() -> None:
    """The message names the field that counts: the rule's, else the queue's."""
    assert read("research-a", {names.REQUIRE: "rack"}, parallelism=6, completions=6).errors == ()
    (error,) = read("research-a", {names.REQUIRE: "rack"}, parallelism=7, completions=7).errors
    assert (error.field, error.reason, error.value) == ("spec.parallelism", "GangLimitExceeded", "7")
    ask = "use fewer, or ask the cluster's admin for more"
    assert error.message == f"a gang has at most 6 pods (policy namespaces.rules[0].maxGangPods); {ask}"
    (error,) = read("free", {names.REQUIRE: "rack"}, parallelism=20_000, completions=20_000).errors
    assert error.message == f"a gang has at most 10,000 pods (policy queue.maxGangPods); {ask}"


def test_a_preferred_auto_is_the_lowest_level_of_the_rule() -> None:
    """Without a rule it is the host."""
    found = [read(namespace, {names.PREFER: "auto"}).asked for namespace in ("coarse", "research-a", "free")]
    assert [one.prefer for one in found if one is not None] == ["block", "host", "host"]


def test_a_required_auto_that_is_relaxed_prefers_the_lowest_level_of_the_rule() -> None:
    """A relaxation names no level that its user may not name."""
    found = read("coarse", {names.REQUIRE: "auto", names.RELAX_AFTER: "1m"})
    (ask,) = relaxed(found).pod_sets
    assert (ask.prefer, ask.relaxed) == ("block", "auto")


def test_a_level_of_another_topology_leaves_none_for_auto() -> None:
    """A rule names levels of any topology; where it names none of the workload's own, `auto` has no meaning."""
    policy = parse_policy("""
topologies:
- {name: default, preset: demo}
- {name: other, levels: [{name: hall, keys: [example.com/hall]}], nodeSelector: {pool: other}}
namespaces: {rules: [{namespaces: [ml], levels: [hall]}]}
""")
    for key in (names.REQUIRE, names.PREFER):
        job = workload(raw_job({key: "auto"}))
        found = parse_request(job, policy=policy, topologies=topologies_of(policy.topologies, list(NODES)))
        (error,) = found.errors
        assert error.reason == "LevelNotAllowed"
        assert "none of this topology is allowed (policy namespaces.rules[0].levels)" in error.message


def test_a_gang_of_several_pod_sets_is_relaxed_within_the_rule() -> None:
    """The level of the whole gang follows the rule as that of a pod set does."""
    found = PlacementRequest(gang=GangRequest("auto", None, None), levels=("block", "rack"))
    assert relaxed(found).gang == GangRequest(None, "rack", None, relaxed="auto")
