"""What is wrong with topologies: nodes left out, contradictions, levels that decide nothing, and what to write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policy.model import parse_policy
from tests.support.golden import golden
from tests.support.simulation import BLOCK, RACK, Json, grid, node
from tests.support.snapshots import busy_cluster, snapshot
from webhook.checks.model import DoctorAnswer, Finding
from webhook.checks.presets import likely_levels, separating_label
from webhook.checks.text import doctor_advice, finding_texts, verdict_text
from webhook.checks.topologies import doctor
from webhook.snapshot.snapshot import AnswerProblem, Unread

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "topology-doctor.schema.json").read_text())


def policy(text: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "topogate-policy", "namespace": "topogate-system"},
        "data": {"policy.yaml": text},
    }


def check(objects: Sequence[Json], name: str | None = None) -> DoctorAnswer:
    answer = doctor(snapshot(objects), name=name)
    jsonschema.validate(json.loads(answer.model_dump_json(by_alias=True)), SCHEMA)
    return answer


def printed(answer: DoctorAnswer) -> str:
    lines = [line for one in finding_texts(answer.findings) for line in one.lines]
    text = "\n".join([*lines, verdict_text(answer.findings), *doctor_advice(answer)])
    return re.sub(r"hash [0-9a-f]{12}", "hash 2f03981f5539", text)  # any new field changes it


def bad(answer: DoctorAnswer) -> list[Finding]:
    return [one for one in answer.findings if one.result in ("warn", "fail")]


def without(nodes: list[Json], key: str, *hosts: str) -> list[Json]:
    for one in nodes:
        if one["metadata"]["name"] in hosts:
            one["metadata"]["labels"].pop(key)
    return nodes


def labelled(nodes: list[Json], labels: Mapping[str, str]) -> list[Json]:
    for one in nodes:
        one["metadata"]["labels"].update(labels)
    return nodes


def mislabelled() -> list[Json]:
    """Two blocks of two racks; a host of the second block says that it is in a rack of the first."""
    nodes = grid(2, 2, 3)
    nodes[6]["metadata"]["labels"][RACK] = "b0-r0"
    return nodes


def gke(hosts: int) -> list[Json]:
    labels = "cloud.google.com/gce-topology"
    return [node(f"n{one}", {f"{labels}-block": "b", f"{labels}-subblock": f"s{one // 2}"}) for one in range(hosts)]


def test_what_is_told() -> None:
    """All good; and each thing that can be wrong."""
    pool = labelled(grid(1, 2, 2), {"example.com/pool": "gpu"})
    golden(
        "topology-doctor",
        {
            "all good": printed(check(grid(2, 2, 4))),
            "nodes left out, with and without GPUs": printed(
                check([*without(grid(2, 2, 4), RACK, "b0-r0-h0", "b1-r1-h3"), node("cpu-0", {}, gpus=0)])
            ),
            "nodes left out that a label tells apart": printed(check([*pool, node("other", {BLOCK: "b0"})])),
            "a label value under two parents": printed(check(mislabelled())),
            "levels that decide nothing": printed(check(grid(1, 3, 1))),
            "a preset that lacks one level": printed(check(gke(4))),
            "labels of no preset": printed(
                check([node(f"n{one}", {"example.com/row": f"r{one // 4}", "example.com/rack": f"k{one // 2}"})
                       for one in range(8)])
            ),
            "a preset of another platform": printed(
                check([*grid(2, 2, 2), policy("topologies: [{name: default, preset: eks}]")])
            ),
            "a nodeSelector that no node has": printed(
                check([*grid(1, 2, 2), policy("topologies: [{name: a, preset: demo, nodeSelector: {pool: gpu}}]")])
            ),
            "a level in the policy that does not exist": printed(
                check(
                    [
                        *grid(2, 2, 2),
                        policy(
                            "namespaces:\n"
                            "  defaults: [{namespaces: [x-*], annotations: {topogate.dev/require-topology: zone}}]\n"
                            "  rules: [{namespaces: [y], levels: [zone]}]\n"
                        ),
                    ]
                )
            ),
            "a Topology object that does not exist": printed(
                check(
                    [
                        *grid(1, 2, 2),
                        policy("topologies: [{name: a, fromObject: {group: kueue.x-k8s.io, name: tree}}]"),
                    ]
                )
            ),
            "no nodes": printed(check([])),
        },
    )  # fmt: skip


def test_the_status_is_good_only_where_nothing_is_wrong() -> None:
    assert check(grid(2, 2, 2)).good
    assert not check(mislabelled()).good
    assert not check(without(grid(2, 2, 2), RACK, "b0-r0-h0")).good
    assert check([*grid(2, 2, 2), node("cpu", {}, gpus=0)]).good


@pytest.mark.parametrize(
    "reported",
    [
        {"koordinator.sh/gpu-core": "800", "koordinator.sh/gpu-memory-ratio": "800"},
        {"example.com/accelerator": "8"},
    ],
    ids=["parts of GPUs alone", "a vendor's name in the policy"],
)
def test_a_node_with_gpus_under_any_name_is_missed(reported: Mapping[str, str]) -> None:
    """Left out without its labels, it is missed, and nodes without GPUs are not."""
    nodes = [*grid(2, 2, 2), node("lost", {}, gpus=0), node("cpu", {}, gpus=0)]
    for one in nodes[:-1]:
        allocatable = one["status"]["allocatable"]
        allocatable.pop("nvidia.com/gpu", None)
        allocatable |= reported
    answer = check([*nodes, policy("gpu: {vendors: [example.com/accelerator]}")])
    assert not answer.good
    (finding,) = bad(answer)
    assert "1 node " in finding.found and "lost" in finding.found


def test_racks_that_each_block_numbers_anew_are_no_contradiction() -> None:
    """A domain is a path: where most values repeat, nobody made a mistake."""
    nodes = [
        node(f"{block}-{rack}-{host}", {BLOCK: block, RACK: rack})
        for block in ("b0", "b1", "b2")
        for rack in ("r0", "r1", "r2")
        for host in range(2)
    ]
    assert check(nodes).good
    assert len(bad(check(mislabelled()))) == 1


def test_what_is_to_be_written_is_a_policy_that_helps() -> None:
    """It is taken by the policy's own parser, and with it nothing is wrong any more."""
    cases = {
        "nearly": gke(4),
        "other platform": [*grid(2, 2, 2), policy("topologies: [{name: default, preset: eks}]")],
        "pool": [*labelled(grid(1, 2, 2), {"example.com/pool": "gpu"}), node("other", {BLOCK: "b0"})],
        "own labels": [node(f"n{one}", {"example.com/rack": f"k{one // 2}"}) for one in range(8)],
    }
    for name, objects in cases.items():
        advised = check(objects).policy
        assert advised is not None, name
        assert parse_policy(advised).topologies[0].name == "default"
        again = check([*(one for one in objects if one["kind"] == "Node"), policy(advised)])
        assert (again.policy, bad(again)) == (None, []), name


def test_a_selector_that_is_advised_keeps_the_one_that_stands() -> None:
    nodes = [*labelled(grid(1, 2, 2), {"example.com/pool": "gpu", "a": "b"}), node("other", {BLOCK: "b0", "a": "b"})]
    text = "topologies: [{name: x, preset: demo, nodeSelector: {a: b}}]"
    advised = yaml.safe_load(check([*nodes, policy(text)]).policy or "")
    assert advised["topologies"] == [
        {"name": "x", "preset": "demo", "nodeSelector": {"a": "b", "example.com/pool": "gpu"}}
    ]


def test_one_topology_is_checked_by_its_name() -> None:
    two = policy("topologies: [{name: a, preset: demo}, {name: b, preset: eks}]")
    assert check([*grid(1, 2, 2), two], name="a").good
    assert not check([*grid(1, 2, 2), two]).good
    with pytest.raises(AnswerProblem, match='no topology "c"; there are: a, b'):
        check([*grid(1, 2, 2), two], name="c")


def test_what_the_caller_may_not_read_is_told() -> None:
    whole = snapshot(busy_cluster())
    with pytest.raises(AnswerProblem, match="nodes cannot be read"):
        doctor(replace(whole, unread=(Unread("nodes"),)))
    found = doctor(replace(whole, unread=(Unread("configmaps"),)))
    assert [one.result for one in found.findings if one.check == "policy"] == ["skip"]
    assert found.remarks == (
        "configmaps cannot be read: the policy is not known; levels follow from the nodes' labels",
    )


def test_a_label_with_control_characters_stays_on_its_line() -> None:
    nodes = grid(2, 2, 2)
    nodes[0]["metadata"]["labels"] |= {BLOCK: "b1", RACK: "b0-r0\x1b[31m\n"}
    nodes[1]["metadata"]["labels"] |= {RACK: "b0-r0\x1b[31m\n"}
    assert "\x1b" not in printed(check(nodes))


LABELS = st.dictionaries(
    st.sampled_from([BLOCK, RACK, "example.com/rack", "topology.kubernetes.io/zone", "pool"]),
    st.sampled_from(["", "a", "b", "c"]),
)


@settings(deadline=None)
@given(st.lists(st.tuples(LABELS, st.integers(0, 8)), max_size=12))
def test_every_node_is_counted_once(nodes: list[tuple[dict[str, str], int]]) -> None:
    """It is in the topology or left out, and what is good has no remedy."""
    answer = check([node(f"n{place}", labels, gpus=gpus) for place, (labels, gpus) in enumerate(nodes)])
    (one,) = answer.topologies
    assert one.nodes + sum(left.count for left in one.left_out) == len(nodes)
    assert all((found.remedy is None) == (found.result in ("ok", "skip")) for found in answer.findings)
    assert answer.good == (bad(answer) == [])


@settings(deadline=None)
@given(st.lists(LABELS, max_size=8), st.lists(LABELS, max_size=8))
def test_a_separating_label_separates(inside: list[dict[str, str]], outside: list[dict[str, str]]) -> None:
    objects = [node(f"i{place}", labels) for place, labels in enumerate(inside)]
    objects += [node(f"o{place}", labels) for place, labels in enumerate(outside)]
    nodes = snapshot(objects).view.stores.nodes
    ours = [one for one in nodes.values() if one.name.startswith("i")]
    others = [one for one in nodes.values() if one.name.startswith("o")]
    for key, value in separating_label(ours, others).items():
        assert all(one.labels.get(key) == value for one in ours)
        assert all(one.labels.get(key) != value for one in others)


def test_a_label_of_each_node_alone_is_no_level() -> None:
    nodes = [
        node(f"n{one}", {"example.com/rack": f"k{one // 2}", "example.com/switch-port": f"p{one}", "row": "only"})
        for one in range(6)
    ]
    assert [level.name for level in likely_levels(list(snapshot(nodes).view.stores.nodes.values()))] == ["rack"]


def test_levels_that_gangs_request_and_that_have_gone() -> None:
    """After the policy has dropped one: how many wait for it or have slots, by name, and what to do."""
    blocks = f"topologies: [{{name: default, levels: [{{name: block, keys: [{BLOCK}]}}]}}]\n"
    cluster = [*busy_cluster(), policy(blocks)]
    (found,) = [one for one in check(cluster).findings if one.check == "requests"]
    assert (found.result, found.found) == (
        "fail",
        'level "rack" of topology default does not exist, but is requested by 2 gangs, 1 of them waiting: '
        "alice/train, alice/wide",
    )
    assert found.remedy is not None and "put it back" in found.remedy
    other = [*busy_cluster(), policy(blocks.replace("default", "other"))]
    (found,) = [one for one in check(other).findings if one.check == "requests"]
    assert found.found.startswith('topology "default" does not exist')
    assert [one.result for one in check(busy_cluster()).findings if one.check == "requests"] == ["ok"]
    running = [one for one in cluster if one["metadata"]["name"] not in ("wide", "job-wide")]
    assert [one.result for one in check(running).findings if one.check == "requests"] == ["warn"]


def test_without_the_placements_requests_are_not_compared() -> None:
    hidden = replace(snapshot(busy_cluster()), unread=(Unread("placements"),))
    answer = doctor(hidden)
    assert [one.result for one in answer.findings if one.check == "requests"] == ["skip"]
    assert answer.remarks == ()
