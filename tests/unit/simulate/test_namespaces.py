"""`topogate simulate` keeps to the limits and the fair order of namespaces as the leader does."""

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


def test_a_domain_that_nobody_else_may_use_counts_whole() -> None:
    """One small pod in a rack of its own takes four hosts from the others."""
    alone = job("alone", 1, {**RACK, "topogate.dev/exclusive-topology": "rack"})
    found = answer(grid(1, 2, 4), [at("a", alone)], policy=limited("maxReservedHosts: 3"))["workloads"]
    assert (found[0]["verdict"], found[0]["reason"]) == ("waits", "ReservedHostsLimit")
    assert found[0]["message"].startswith("needs 4 hosts; the limit is 3")


def test_a_domain_that_an_earlier_gang_keeps_counts_whole() -> None:
    """In the same run as for the leader."""
    kept = job("alone", 1, {**RACK, "topogate.dev/exclusive-topology": "rack"})
    jobs = [at("a", kept), at("a", job("next", 1, RACK))]
    found = answer(grid(1, 2, 4), jobs, policy=limited("maxReservedHosts: 4"))["workloads"]
    assert [(one["verdict"], one["reason"]) for one in found] == [("placed", None), ("waits", "ReservedHostsLimit")]
    assert "its namespace has slots on, or keeps, 4 hosts; the limit is 4" in found[1]["message"]


FAIR = parse_policy("""
topologies: [{name: default, preset: demo}]
queue: {fairness: {mode: namespaces, weights: [{namespaces: [b], weight: 2}]}}
""")


def test_with_a_queue_namespaces_go_by_what_they_use() -> None:
    """Pods that run count, and so do gangs placed before in the run: b, of weight 2, gets two hosts for each of a."""
    jobs = [at(space, job(f"{space}-{n}", 1, RACK)) for space in ("a", "b") for n in range(4)]
    found = [name for name, verdict, _ in verdicts(grid(1, 1, 6), jobs, policy=FAIR, queue=True) if verdict == "placed"]
    assert found == ["a-0", "b-0", "b-1", "a-1", "b-2", "b-3"]
    by_age = verdicts(
        grid(1, 1, 6), jobs, policy=parse_policy("topologies: [{name: default, preset: demo}]"), queue=True
    )
    assert [name for name, verdict, _ in by_age if verdict == "placed"] == ["a-0", "a-1", "a-2", "a-3", "b-0", "b-1"]


def test_in_file_order_only_strict_order_asks_who_uses_less() -> None:
    """Without a queue the files say who comes first; in strict order a gang may still wait for an earlier one."""
    host = grid(1, 1, 1)[0]["metadata"]["name"]
    jobs = [at("a", job("a-0", 2, RACK)), at("b", job("b-0", 1, RACK)), at("a", job("a-1", 1, RACK))]
    running = pod("runs", host)
    running["metadata"]["namespace"] = "b"
    strict = parse_policy(
        "topologies: [{name: default, preset: demo}]\nqueue: {order: strict, fairness: {mode: namespaces}}"
    )
    found = answer([*grid(1, 1, 2), running], jobs, policy=strict)["workloads"]
    assert [(one["verdict"], one["reason"]) for one in found] == [
        ("waits", "InsufficientFreeGPUs"),
        ("waits", "QueuedBehind"),
        ("waits", "QueuedBehind"),
    ]
    assert "because its namespace uses less" in found[1]["message"]
