"""The fair order among namespaces, as the leader plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api.pod import Pod, Shape
from engine.api.workload import Workload
from engine.capacity.quota import Usage, usage_of_pods
from engine.policy.model import parse_policy
from engine.scheduler.fairness import WeightedUsage
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import answer_in_view
from tests.support.cluster_records import changed, gpu_nodes, job, pod
from tests.support.leader import POLICY, Leader


def fair(*, order: str = "best-effort", weights: str = "[]", more: str = "") -> str:
    return f"{POLICY}queue: {{order: {order}, fairness: {{mode: namespaces, weights: {weights}}}{more}}}\n"


def gang(name: str, *, count: int = 1, created: float = 1.0, **more: Any) -> Workload:
    return job(name, count=count, held=True, namespace=name.partition("-")[0], created=created, **more)


def full(leader: Leader, **namespaces: int) -> dict[str, list[Pod]]:
    """Pods of namespaces, each on a whole host."""
    hosts = iter(sorted(node.name for node in leader.stores.nodes.values()))
    found = {
        space: [
            pod(job("runs", namespace=space), None, host=next(hosts), name=f"{space}-{number}")
            for number in range(count)
        ]
        for space, count in namespaces.items()
    }
    leader.has(*(one for pods in found.values() for one in pods))
    return found


def end(leader: Leader, *pods: Pod) -> None:
    for one in pods:
        leader.stores.pods.apply("DELETED", one)
    leader.settle()


def test_the_namespace_that_uses_least_goes_first() -> None:
    """The older gangs of another one wait; what is placed counts at once, so that both go by turns once even."""
    leader = Leader(nodes=gpu_nodes(1, 1, 6), policy=fair())
    pods = full(leader, hog=3, team=1, other=2)
    leader.has(*(gang(f"hog-{n}", created=float(n)) for n in range(3)))
    leader.has(*(gang(f"team-{n}", created=10.0 + n) for n in range(4)))
    leader.settle()
    assert leader.hands.of("place") == []
    end(leader, *pods["other"], pods["hog"][0], pods["team"][0])
    assert leader.hands.of("place") == ["team-0", "team-1", "hog-0", "team-2"]


def test_without_the_policy_the_older_gangs_go_first() -> None:
    """The default is the order by age."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    pods = full(leader, hog=1, other=1)
    leader.has(gang("hog-0", created=1.0), gang("team-0", created=2.0))
    leader.settle()
    end(leader, *pods["other"])
    assert leader.hands.of("place") == ["hog-0"]


def test_a_weight_multiplies_what_a_namespace_may_use_before_others_go_first() -> None:
    """Weight 3: with three hosts against one it is even, and the older gang goes first; with two it goes first."""
    leader = Leader(nodes=gpu_nodes(1, 1, 6), policy=fair(weights="[{namespaces: [pr*], weight: 3}]"))
    pods = full(leader, prod=2, team=1, other=3)
    leader.has(gang("team-0", created=1.0), gang("prod-0", created=2.0), gang("prod-1", created=3.0))
    leader.settle()
    end(leader, *pods["other"])
    assert leader.hands.of("place") == ["prod-0", "team-0", "prod-1"]


def test_a_higher_priority_goes_before_a_smaller_share() -> None:
    """Shares count among gangs of the same priority."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=fair())
    pods = full(leader, hog=1, other=1)
    urgent = gang("hog-0", created=2.0)
    leader.has(changed(urgent, template=replace(urgent.template, priority=5)), gang("team-0", created=0.0))
    leader.settle()
    end(leader, *pods["other"])
    assert leader.hands.of("place") == ["hog-0"]


def test_a_gang_that_does_not_fit_leaves_the_capacity_to_the_next() -> None:
    """Best effort: the first in fair order needs two hosts, and there is one."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=fair())
    pods = full(leader, hog=2, other=1)
    leader.has(gang("team-0", count=2), gang("hog-0", created=2.0))
    leader.settle()
    end(leader, *pods["other"])
    assert leader.hands.of("place") == ["hog-0"]


def test_in_strict_order_all_wait_behind_the_first_in_fair_order_and_are_told_why() -> None:
    """A new gang of a namespace that uses less goes ahead of older ones; the reason says so without a name."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=fair(order="strict"))
    pods = full(leader, hog=2, other=1)
    leader.has(gang("hog-0", count=2, created=1.0))
    leader.settle()
    assert leader.status("hog-0")[1] == "InsufficientFreeGPUs"
    leader.has(gang("team-0", count=2, created=2.0))
    leader.settle()
    assert [leader.status(name)[1] for name in ("team-0", "hog-0")] == ["InsufficientFreeGPUs", "QueuedBehind"]
    placement = leader.placed("hog-0")
    assert placement is not None
    assert placement.status["message"] == (
        "a gang of another namespace goes first, because its namespace uses less, and does not fit yet "
        "(policy queue.order: strict)"
    )
    end(leader, *pods["other"])
    assert leader.hands.of("place") == []
    end(leader, pods["hog"][0])
    assert leader.hands.of("place") == ["team-0"]


@pytest.mark.parametrize("order", ["best-effort", "strict"])
@pytest.mark.parametrize(("space", "created"), [("hog", 3.0), ("team", 3.0), ("other", 3.0), ("hog", 0.5)])
def test_the_forecast_tells_what_the_leader_does(order: str, space: str, created: float) -> None:
    """A gang under review has the place in fair order that it will have in the leader's queue."""
    leader = Leader(nodes=gpu_nodes(1, 1, 5), policy=fair(order=order))
    full(leader, hog=3, team=1)
    leader.has(gang("team-0", count=2, created=1.0), gang("hog-0", count=2, created=2.0))
    leader.settle()
    new = gang(f"{space}-new", created=created)
    leader.stores.workloads.apply("ADDED", new)
    with leader.view.lock:
        leader.view.refresh()
        found = leader.view.gangs.get(f"uid-{new.name}")  # type: ignore[arg-type]
        assert found is not None
        told = answer_in_view(leader.view, found, created=created)
    leader.settle()
    leader.later(15)
    if isinstance(told, Placed):
        assert leader.hands.of("place") == [new.name]
        return
    placement = leader.placed(new.name)
    assert placement is not None
    assert (placement.status["reason"], placement.status["message"]) == (told.reason, told.message)


def test_hosts_are_kept_for_a_starving_gang_of_the_namespace_that_uses_least() -> None:
    """Patience follows the same order: a large gang of a namespace with a small share is not passed for ever."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=fair(more=", patience: 1m"))
    pods = full(leader, hog=2, other=1)
    leader.has(gang("hog-0", count=2, created=1.0), gang("team-0", count=2, created=2.0))
    leader.settle()
    leader.later(120)
    assert leader.status("team-0")[1] == "RoomKept"
    end(leader, *pods["other"])
    leader.later(10)
    leader.has(gang("hog-1", created=3.0))
    leader.settle()
    assert leader.hands.of("place") == []
    end(leader, pods["hog"][0])
    assert leader.hands.of("place") == ["team-0"]


@pytest.mark.parametrize(
    ("requests", "gpus"),
    [
        ((("cpu", 4000), ("pods", 1)), 0),
        ((("nvidia.com/gpu", 2), ("pods", 1)), 200),
        ((("amd.com/gpu", 1), ("example.com/gpu", 1)), 200),
        ((("koordinator.sh/gpu-core", 50), ("koordinator.sh/gpu-memory-ratio", 80)), 80),
        ((("koordinator.sh/gpu", 30), ("koordinator.sh/rdma", 100)), 30),
    ],
)
def test_what_a_pod_uses_is_counted_in_percent_of_a_gpu(requests: tuple[tuple[str, int], ...], gpus: int) -> None:
    """Whole ones of any vendor, and the larger part of a share; other devices do not count."""
    assert usage_of_pods(requests, 3) == Usage(3 * gpus, 3)


def test_gpus_by_a_name_of_the_policy_are_used_while_the_policy_knows_it() -> None:
    """Of bound pods, and of slots that are reserved."""
    policy = f"{fair()}gpu: {{vendors: [example.com/npu]}}\n"
    npus = Shape(requests=(("example.com/npu", 2), ("pods", 1)))
    nodes = [replace(one, allocatable={**one.allocatable, "example.com/npu": 2}) for one in gpu_nodes(1, 1, 2)]
    leader = Leader(nodes=nodes, policy=policy)
    wanted = gang("team-0")
    leader.has(changed(wanted, template=replace(wanted.template, shape=npus)))
    runs = job("runs", namespace="hog")
    runs = changed(runs, template=replace(runs.template, shape=npus))
    leader.has(one := pod(runs, None, host="b0-r0-h0"), pod(runs, None, host="b0-r0-h1", phase="Succeeded"))
    leader.settle()

    def used() -> dict[str, int]:
        return {space: usage.gpus for space, usage in leader.view.usage().items()}

    assert used() == {"team": 200, "hog": 200}
    leader.view.set_policy(parse_policy(fair()))
    assert used() == {"team": 0, "hog": 0}
    leader.view.set_policy(parse_policy(policy))
    assert used() == {"team": 200, "hog": 200}
    end(leader, one)
    assert used() == {"team": 200}


def test_pods_decide_where_gpus_are_even() -> None:
    """Namespaces without GPUs are compared by their pods."""
    usage = WeightedUsage({"many": Usage(0, 9), "few": Usage(0, 4), "gpu": Usage(100, 1)}, lambda _: 1)
    assert sorted(("gpu", "many", "few", "none"), key=usage.share) == ["none", "few", "many", "gpu"]


def test_what_is_reserved_counts_before_its_pods_exist() -> None:
    """And it counts once: a bound pod takes the place of its reservation."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=fair())
    leader.has(gang("team-0", count=2))
    leader.settle()
    assert leader.view.usage()["team"].gpus == 1600
    running = leader.stores.workloads.get(("batch", "Job", "team", "team-0"))
    assert running is not None
    (first, _) = sorted(leader.view.capacity.reserved("uid-team-0"))
    leader.has(pod(running, 0, host=first))
    leader.settle()
    assert (leader.view.usage()["team"].gpus, leader.view.usage()["team"].pods) == (1600, 2)
