"""`topogate simulate` with `gpu.overcommit`: parts up to what policy and node allow, whole GPUs alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.policy.model import parse_policy
from engine.resources.names import CORE, GPU, MEMORY, NVIDIA, RATIO
from tests.support.simulation import Json, answer, grid, job
from tests.unit.simulate.test_simulate_devices import RACK, asking, told

BOTH = "gpu: {overcommit: {core: 2, memory: 2}}"


def hosts(core: int, ratio: int, *, labels: Json | None = None) -> list[Json]:
    """One host with two GPUs of a Device object, whose node reports these amounts of each."""
    node, devices = told(hosts=1)
    node["status"]["allocatable"] |= {CORE: str(2 * core), RATIO: str(2 * ratio), MEMORY: "1Ti"}
    node["metadata"]["labels"] |= labels or {}
    return [node, devices]


def verdicts(cluster: list[Json], policy: str, *workloads: Json) -> list[str]:
    found = answer(cluster, list(workloads), policy=parse_policy(policy))["workloads"]
    return [one["verdict"] for one in found]


def parts(pods: int, name: str = "parts", **limits: str) -> Json:
    return asking(job(name, pods, RACK), {"limits": limits or {GPU: "50"}})


def minors(cluster: list[Json], policy: str, workload: Json) -> Counter[int]:
    (found,) = answer(cluster, [workload], policy=parse_policy(policy))["workloads"]
    slots: list[Any] = found["podSets"][0]["assignment"]
    return Counter(use["minor"] for slot in slots for pod in slot["devices"] for use in pod)


def test_parts_add_up_to_the_multiple() -> None:
    assert minors(hosts(200, 200), BOTH, parts(8)) == {0: 4, 1: 4}
    assert verdicts(hosts(200, 200), BOTH, parts(9)) == ["never"]
    assert verdicts(hosts(200, 200), "{}", parts(5)) == ["waits"]  # node and Device object disagree


@pytest.mark.parametrize(
    ("core", "ratio", "policy", "most"),
    [
        (100, 100, BOTH, 4),
        (150, 150, BOTH, 6),
        (400, 400, BOTH, 8),
        (200, 100, BOTH, 4),
        (200, 200, "gpu: {overcommit: {core: 2}}", 4),
        (200, 200, "gpu: {overcommit: {core: 2, memory: 2, nodeSelector: {pool: other}}}", 4),
        (200, 200, "gpu: {overcommit: {core: 2, memory: 2, nodeSelector: {pool: mine}}}", 8),
    ],
)
def test_the_smallest_of_policy_and_node_counts(core: int, ratio: int, policy: str, most: int) -> None:
    """Else the scheduler would leave pods pending that were placed."""
    cluster = hosts(core, ratio, labels={"pool": "mine"})
    assert verdicts(cluster, policy, parts(most)) == ["placed"]
    assert verdicts(cluster, policy, parts(most + 1)) != ["placed"]


def test_compute_alone_is_overcommitted() -> None:
    """Four times 50 percent of the compute with a quarter of the memory each."""
    policy = "gpu: {overcommit: {core: 2}}"
    assert minors(hosts(200, 100), policy, parts(8, **{CORE: "50", RATIO: "25"})) == {0: 4, 1: 4}


@pytest.mark.parametrize(("both", "most"), [("200", 8), ("300", 8), ("400", 8), ("100", 4)])
def test_a_node_may_report_less_of_both_together_than_of_compute(both: str, most: int) -> None:
    """`koordinator.sh/gpu` counts its GPUs by what it reports of each: only half of them if it reports half."""
    node, devices = hosts(200, 100)
    node["status"]["allocatable"][GPU] = both
    policy = "gpu: {overcommit: {core: 2}}"
    parts_ = {CORE: "50", RATIO: "25"}
    assert verdicts([node, devices], policy, parts(most, **parts_)) == ["placed"]
    assert verdicts([node, devices], policy, parts(most + 1, **parts_)) != ["placed"]


def test_whole_gpus_are_alone() -> None:
    """Neither joined by parts nor joining them."""
    whole = parts(2, "whole", **{CORE: "100", RATIO: "100"})
    assert verdicts(hosts(200, 200), BOTH, whole, parts(1)) == ["placed", "waits"]
    assert verdicts(hosts(200, 200), BOTH, parts(1), whole) == ["placed", "waits"]
    assert verdicts(hosts(200, 200), BOTH, parts(3, "three", **{CORE: "100", RATIO: "100"})) == ["never"]


def test_memory_in_bytes_counts_against_the_multiple() -> None:
    cluster = hosts(200, 150)
    policy = "gpu: {overcommit: {memory: 1.5}}"
    assert minors(cluster, policy, parts(6, **{MEMORY: "40Gi"})) == {0: 3, 1: 3}
    assert verdicts(cluster, policy, parts(7, **{MEMORY: "40Gi"})) != ["placed"]


def test_without_device_objects_nothing_is_overcommitted() -> None:
    """The number of GPUs is what the node reports."""
    (node,) = grid(1, 1, 1)
    del node["status"]["allocatable"][NVIDIA]
    node["status"]["allocatable"] |= {CORE: "400", RATIO: "400"}
    assert verdicts([node], BOTH, parts(4, **{CORE: "100", RATIO: "100"})) == ["placed"]
