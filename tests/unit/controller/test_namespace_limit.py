"""How many gangs a namespace may have, and how fast it is told that they wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.controller.controller import LIMIT_CHECK
from engine.controller.term import BURST, EACH_SECOND, RateLimiter
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, raw_job, review
from tests.support.cluster_records import changed, gpu_nodes, job, shape
from tests.support.families import plain
from tests.support.leader import POLICY, Leader
from webhook.admission.review import Response
from webhook.handlers.validate import validate

FEW = parse_policy("queue: {maxNamespaceGangs: 3}")
RACK = {names.REQUIRE: "rack"}


def leader_worker_set(replicas: int) -> dict[str, object]:
    pods = {"spec": {"containers": [{"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": "ml", "annotations": RACK},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": pods}},
    }


def answered(body: dict[str, object], view: FakeView, old: dict[str, object] | None = None) -> Response:
    return validate(review(body, old=old), view, 0.0)


def test_one_more_than_a_namespace_may_have_is_refused() -> None:
    """The refusal says where, how many there are, which field of the policy says so, and what to do."""
    assert answered(raw_job(RACK), FakeView(policy=FEW, gangs=2)).allowed
    refused = answered(raw_job(RACK), FakeView(policy=FEW, gangs=3))
    assert (refused.allowed, refused.code) == (False, 403)
    assert refused.message == (
        "metadata.namespace: Forbidden: the namespace has 3 gangs that have not ended; the limit is 3 (policy "
        "queue.maxNamespaceGangs); submit it when some have ended, or delete waiting ones"
    )


def test_what_asks_for_nothing_is_not_counted() -> None:
    """The limit is about gangs."""
    assert answered(raw_job(), FakeView(policy=FEW, gangs=3)).allowed


def test_a_change_of_what_is_there_already_is_not_refused() -> None:
    """A namespace that is full goes on with what it has."""
    assert answered(raw_job(RACK, parallelism=3), FakeView(policy=FEW, gangs=9), old=raw_job(RACK)).allowed


def test_what_asks_later_counts_as_new() -> None:
    """An object that asked for nothing is none of the gangs that are there."""
    refused = answered(raw_job(RACK, suspend=True), FakeView(policy=FEW, gangs=3), old=raw_job(suspend=True))
    assert refused.causes[0].reason == "GangLimitExceeded"


@pytest.mark.parametrize(
    ("replicas", "before", "gangs", "field"),
    [
        (3, None, 0, None),
        (4, None, 0, "spec.replicas"),
        (3, None, 1, "metadata.namespace"),
        (3, 2, 2, None),
        (3, 2, 3, "metadata.namespace"),
        (2, 3, 9, None),
    ],
)
def test_every_replica_that_is_a_gang_counts(replicas: int, before: int | None, gangs: int, field: str | None) -> None:
    """At creation and when it is scaled up; `gangs` are those of the namespace, its own among them."""
    old = leader_worker_set(before) if before is not None else None
    answer = answered(leader_worker_set(replicas), FakeView(policy=FEW, gangs=gangs), old)
    assert answer.allowed is (field is None)
    assert field is None or answer.message.startswith(f"{field}: ")


def many(number: int, *, namespace: str = "mallory", **more: object) -> list[object]:
    return [
        job(f"{namespace}-{one}", count=40, held=True, namespace=namespace, **more)  # type: ignore[arg-type]
        for one in range(number)
    ]


def placements(leader: Leader) -> list[str]:
    return sorted(placement.workload.name for placement in leader.view.gangs.placements())


def test_gangs_beyond_the_limit_have_no_placement_and_are_told_once() -> None:
    """Many that came at once, or replicas that were scaled up where no webhook sees it, cost no more than the limit."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + "queue: {maxNamespaceGangs: 3}\n")
    leader.has(*many(5), *many(2, namespace="alice"))  # type: ignore[arg-type]
    leader.settle()
    assert placements(leader) == ["alice-0", "alice-1", "mallory-0", "mallory-1", "mallory-2"]
    leader.later(2 * LIMIT_CHECK)
    leader.later(2 * LIMIT_CHECK)
    assert sorted(leader.hands.of("too many")) == ["mallory-3", "mallory-4"]


@pytest.mark.parametrize("how", ["ended", "deleted"])
def test_the_next_one_counts_when_one_is_over(how: str) -> None:
    """Nobody has to submit it again."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + "queue: {maxNamespaceGangs: 3}\n")
    leader.has(*many(4))  # type: ignore[arg-type]
    leader.settle()
    over = leader.stores.workloads.get(("batch", "Job", "mallory", "mallory-0"))
    assert over is not None
    if how == "ended":
        leader.has(replace(over, finished=True, resource_version=leader.hands.version()))
    else:
        leader.stores.workloads.apply("DELETED", over)
        placement = leader.placed("mallory-0")
        assert placement is not None
        leader.stores.placements.apply("DELETED", placement)
    leader.settle()
    leader.later(LIMIT_CHECK + 1.0)
    assert "mallory-3" in placements(leader)


def test_namespaces_and_workloads_that_are_gone_are_forgotten() -> None:
    """They come and go for as long as one leader leads."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + "queue: {maxNamespaceGangs: 3}\n")
    leader.has(*many(5), *many(2, namespace="alice"))  # type: ignore[arg-type]
    leader.settle()
    term = leader.controller._term
    assert term.counted == {"mallory": 3, "alice": 2} and len(term.limit_reported) == 2
    for gang in leader.stores.workloads.values():
        leader.stores.workloads.apply("DELETED", gang)
    for placement in leader.stores.placements.values():
        leader.stores.placements.apply("DELETED", placement)
    leader.settle()
    assert len(term.counted) == len(term.limit_reported) == 0


def test_another_leader_counts_what_is_there() -> None:
    """Placements count before those that have none, whatever they are called."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + "queue: {maxNamespaceGangs: 2}\n")
    leader.has(*many(2, namespace="zoe"))  # type: ignore[arg-type]
    leader.settle()
    leader.leading = False
    leader.settle()
    leader.has(changed(job("early", count=40, held=True, namespace="zoe"), slots=40))
    leader.leading = True
    leader.settle()
    assert placements(leader) == ["zoe-0", "zoe-1"]


def test_a_namespace_is_told_at_a_pace_and_the_others_at_once() -> None:
    """The first hundred at once, the rest in the seconds that follow, each in the end."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(*many(int(BURST) + 40))  # type: ignore[arg-type]
    leader.settle()
    assert len(leader.hands.told) == BURST
    leader.has(*many(1, namespace="alice"))  # type: ignore[arg-type]
    leader.settle()
    assert leader.hands.told[-1][0] == "alice-0"
    for _ in range(30):
        leader.later(0.1)
    assert len(leader.hands.told) == BURST + 1 + 40


def test_the_pace_is_kept_for_each_namespace_by_itself() -> None:
    """So many at once, then so many in a second; who was quiet may say as much again."""
    pace = RateLimiter()
    assert sum(pace.wait("a", 0.0) == 0 for _ in range(500)) == BURST
    assert 0 < pace.wait("a", 0.0) <= 1 / EACH_SECOND
    assert pace.wait("b", 0.0) == 0
    assert sum(pace.wait("a", 1.0) == 0 for _ in range(500)) == EACH_SECOND
    assert sum(pace.wait("a", 1000.0) == 0 for _ in range(500)) == BURST


def test_namespaces_that_are_quiet_are_forgotten() -> None:
    """Namespaces come and go for ever."""
    pace = RateLimiter()
    for number in range(1000):
        pace.wait(f"n{number}", float(number))
    assert len(pace) <= BURST + 1


def test_each_namespace_is_told_that_its_gangs_of_pods_are_too_many() -> None:
    """They have no workload with a uid of its own: those of one namespace are told from those of another by it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 1), policy=POLICY + "queue: {maxNamespaceGangs: 1}\n")
    for namespace in ("one", "two"):
        for gang in ("a", "b", "c"):
            made = plain(gang, size="1")
            said = {**made.spec.annotations, names.GANG_NAME: gang}
            own = replace(made.spec, annotations=said, shape=shape(gpu=80))
            leader.has(replace(made, namespace=namespace, uid=f"{namespace}-{gang}", spec=own))
            leader.settle()
    assert len(leader.hands.of("too many")) == 2
