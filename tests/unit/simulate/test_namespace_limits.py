"""`topogate simulate` keeps to the limits of namespaces as the leader does."""

from __future__ import annotations

from engine.policy.model import parse_policy
from tests.support.simulation import Json, answer, grid, job, pod, verdicts

RACK = {"topogate.dev/require-topology": "rack"}


def at(namespace: str, found: Json) -> Json:
    found["metadata"]["namespace"] = namespace
    return found


def limited(rule: str) -> object:
    return parse_policy(
        f"topologies: [{{name: default, preset: demo}}]\nnamespaces: {{rules: [{{namespaces: [a*], {rule}}}]}}"
    )


def test_gangs_beyond_the_waiting_limit_wait_behind_those_of_their_namespace() -> None:
    """In the order of submission; other namespaces have limits of their own."""
    full = [
        *grid(1, 1, 2),
        *(pod(f"p{n}", name) for n, name in enumerate(one["metadata"]["name"] for one in grid(1, 1, 2))),
    ]
    jobs = [at(space, job(f"{space}-{n}", 1, RACK)) for space in ("a1", "a2") for n in range(2)]
    assert verdicts(full, jobs, policy=limited("maxWaitingGangs: 1")) == [
        ("a1-0", "waits", "InsufficientFreeGPUs"),
        ("a1-1", "waits", "WaitingGangsLimit"),
        ("a2-0", "waits", "InsufficientFreeGPUs"),
        ("a2-1", "waits", "WaitingGangsLimit"),
    ]


def test_gangs_beyond_the_limit_of_hosts_wait() -> None:
    """Gangs that are placed in the same run count."""
    jobs = [at("a", job("first", 2, RACK)), at("a", job("second", 2, RACK)), at("a", job("third", 1, RACK))]
    found = answer(grid(1, 2, 4), jobs, policy=limited("maxReservedHosts: 3"))["workloads"]
    assert [(one["verdict"], one["reason"]) for one in found] == [
        ("placed", None),
        ("waits", "ReservedHostsLimit"),
        ("placed", None),
    ]
    assert found[1]["message"].startswith("needs 2 more hosts; its namespace has slots on 2 hosts; the limit is 3")


def test_a_gang_above_the_limit_by_itself_is_told_so() -> None:
    """No other gang of its namespace is in the way."""
    found = answer(grid(1, 2, 4), [at("a", job("large", 4, RACK))], policy=limited("maxReservedHosts: 3"))["workloads"]
    assert found[0]["message"] == ("needs 4 hosts; the limit is 3 (policy namespaces.rules[0].maxReservedHosts)")
    assert "would wait: needs 4 hosts" not in str(found[0]["warnings"])
