"""`simulate` gives the members of a pod group their place in the queue as the leader does."""

from __future__ import annotations

import pytest

from engine.api import names
from engine.policy.model import Policy, parse_policy
from tests.support.simulation import Json, answer, grid, job, priority_class, verdicts
from tests.support.snapshots import runs, waiting_placement, waits

RACK = {"require": "rack"}


def members(*, pods: int = 2, priority: str | None = None) -> list[Json]:
    """Two Jobs of one pod group, which start together; the second may have a PriorityClass."""
    asks = {"unconstrained": "true", names.POD_GROUP: "g", names.MIN_AVAILABLE: str(2 * pods)}
    found = [job("a", pods, asks), job("b", pods, asks)]
    if priority is not None:
        found[1]["spec"]["template"]["spec"]["priorityClassName"] = priority
    return found


def policy(rest: str) -> Policy:
    return parse_policy(f"topologies: [{{name: default, preset: demo}}]\n{rest}")


@pytest.mark.parametrize("order", ["best-effort", "strict"])
def test_a_group_takes_no_hosts_that_are_kept_for_a_gang_ahead_of_it(order: str) -> None:
    """As a gang alone: the older one has waited long, or nobody may pass it."""
    hosts = [f"b0-r0-h{number}" for number in range(6)]
    cluster = [*grid(1, 1, 6), *runs("other", hosts[:2]), waits("big", 6, RACK), waiting_placement("big", kept=hosts)]
    found = answer(cluster, members(), policy=policy(f"queue: {{order: {order}}}"))["workloads"]
    assert [(one["verdict"], one["reason"]) for one in found] == [("waits", "QueuedBehind")] * 2
    assert all("a gang of another namespace, which goes first" in one["message"] for one in found) is (
        order == "best-effort"
    )


def test_a_group_takes_the_place_of_its_first_member_in_strict_order() -> None:
    """One member of a higher priority takes the others along past a gang that waits; without it the group waits."""
    cluster = [*grid(1, 1, 4), priority_class("high", 1000)]
    strict = policy("queue: {order: strict}")
    big = [job("first", 2, RACK), job("big", 3, RACK)]
    for priority, (verdict, reason) in {"high": ("placed", None), None: ("waits", "QueuedBehind")}.items():
        found = verdicts(cluster, [*big, *members(pods=1, priority=priority)], policy=strict)
        assert found[2:] == [("a", verdict, reason), ("b", verdict, reason)]


def test_a_group_waits_behind_the_limit_of_waiting_gangs_and_its_members_do_not_count() -> None:
    """A gang ahead of it reaches a limit of one; alone, both of its members wait for capacity."""
    limited = policy("namespaces: {rules: [{namespaces: [default], maxWaitingGangs: 1}]}")
    cluster = [*grid(1, 1, 3), *runs("other", ["b0-r0-h0"])]
    found = verdicts(cluster, [job("big", 3, RACK), *members(pods=1)], policy=limited)
    assert found[1:] == [("a", "waits", "WaitingGangsLimit"), ("b", "waits", "WaitingGangsLimit")]
    found = verdicts(cluster, members(), policy=limited)
    assert found == [("a", "waits", "InsufficientFreeGPUs"), ("b", "waits", "InsufficientFreeGPUs")]


def test_a_group_on_hold_is_told_that() -> None:
    """It is neither behind a gang nor beyond a limit: nothing new is placed at all."""
    held = policy("mode: hold\nqueue: {order: strict}")
    cluster = [*grid(1, 1, 6), waits("big", 6, RACK), waiting_placement("big")]
    found = answer(cluster, members(), policy=held)["workloads"]
    assert [(one["verdict"], one["reason"]) for one in found] == [("waits", "PolicyHold")] * 2
    assert {one["message"] for one in found} == {"the policy's mode is hold; nothing new is placed until that changes"}
