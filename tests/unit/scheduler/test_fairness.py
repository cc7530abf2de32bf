"""One namespace beside the others: however many gangs it has, theirs are looked at, planned and written in time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import Toleration
from engine.api.workload import Workload
from engine.controller.term import WRITERS
from engine.policy.model import parse_policy
from engine.scheduler.fairness import LEAST, MANY, SHORT, WHOLE, Shares, WriteLines
from tests.support.cluster_records import changed, gpu_nodes, job, pod, shape
from tests.support.leader import POLICY, Later, Leader

PLAN = 0.01  # seconds that a plan or a look takes in these tests
CROWD = 60


def different(number: int, *, count: int = 4, selects: str | None = None) -> Workload:
    """A gang that asks the planner something that no other one asks."""
    one = job(f"m{number:03}", count=count, held=True, namespace="mallory", created=1.0 + number)
    tolerations = (Toleration(f"t{number}", "Exists", "", ""),)
    wanted = replace(shape(gpu=8), tolerations=tolerations, node_selector=(("pool", selects),) if selects else ())
    main = one.pod_sets[0]
    return changed(one, template=replace(main.template, shape=wanted))


def crowded(many: int = CROWD, *, policy: str = "", selects: str | None = None) -> Leader:
    """Racks of which a host is in use, and gangs of one namespace that want whole racks; all are told why they wait."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=POLICY + policy)
    others = job("others", namespace="bob", require=None)
    leader.has(pod(others, 0, host="b0-r0-h0"), pod(others, 1, host="b0-r1-h0"))
    leader.has(*(different(number, selects=selects) for number in range(many)))
    while leader.settle() and len(leader.hands.told) < many:
        leader.now += 1.0
    leader.later(0.0)
    leader.hands.planned.clear()
    leader.hands.calls.clear()
    leader.hands.broken["plan"] = lambda _name: setattr(leader, "now", leader.now + PLAN)
    return leader


def room(leader: Leader, name: str) -> None:
    """A pod of others has come and gone: there may be room."""
    passing = pod(job("passing", namespace="bob", require=None), 0, host="b0-r0-h1", name=name)
    leader.has(passing)
    leader.stores.pods.apply("DELETED", passing)


def test_a_gang_of_another_namespace_is_planned_in_its_first_turn() -> None:
    """Hundreds of gangs that may fit now are before it in the queue; they get their share of the turn, no more."""
    leader = crowded()
    room(leader, "p")
    leader.has(job("alice", count=2, held=True, namespace="alice", created=9999.0))
    before = leader.now
    leader.turn()
    assert "alice" in leader.hands.planned
    assert leader.now - before <= WHOLE + 3 * PLAN
    assert len(leader.hands.planned) < CROWD / 2


def test_what_is_put_off_is_planned_without_another_event() -> None:
    """The loop does not rest before all that may fit have been tried, each once."""
    leader = crowded()
    room(leader, "p")
    turns = 0
    while turns == 0 or leader.controller._pause() <= PLAN:
        leader.turn()
        turns += 1
    assert turns > 2
    assert Counter(leader.hands.planned) == Counter(f"m{number:03}" for number in range(CROWD))


def test_nobody_waits_for_a_gang_that_was_put_off_and_is_gone() -> None:
    """The loop rests again when the gangs that it had put off are deleted."""
    leader = crowded()
    room(leader, "p")
    leader.turn()
    assert leader.controller._pause() <= PLAN
    for workload in leader.stores.workloads.values():
        leader.stores.workloads.apply("DELETED", workload)
    leader.settle()
    assert leader.controller._pause() > PLAN


def test_a_gang_that_was_placed_with_its_group_is_not_put_off() -> None:
    """The plan of the first gang takes the whole share of the namespace, and places the second one too.

    While their writes were under way the second one was due without being in the queue, which ended every turn early.
    """
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=POLICY)
    leader.hands.broken["plan"] = lambda _name: setattr(leader, "now", leader.now + 2 * WHOLE)
    group = {names.POD_GROUP: "mesh", names.MIN_AVAILABLE: "4"}
    for name in ("first", "second"):
        held = job(name, count=2, held=True, require=None, namespace="mallory")
        leader.has(changed(held, annotations={**held.annotations, **group}))
    leader.turn()
    assert leader.hands.planned == ["first", "second"]
    leader.has(job("later", count=2, held=True, namespace="alice"))
    leader.turn()
    assert leader.hands.planned[-1] == "later"


def test_the_first_are_tried_whenever_room_appears_and_the_last_in_the_end() -> None:
    """Room that appears all the time neither keeps the order from counting nor the last gangs from being tried."""
    leader = crowded()
    for turn in range(CROWD):
        leader.hands.planned.clear() if turn == 0 else None
        room(leader, f"p{turn}")
        planned = len(leader.hands.planned)
        leader.turn()
        assert leader.hands.planned[planned] == "m000"
    assert set(leader.hands.planned) == {f"m{number:03}" for number in range(CROWD)}


def test_a_first_gang_with_a_long_plan_does_not_keep_the_last_ones_from_being_tried() -> None:
    """Its plan alone takes longer than the share of its namespace, whenever room appears."""
    leader = crowded(12)
    leader.hands.broken["plan"] = lambda name: setattr(leader, "now", leader.now + (WHOLE if name == "m000" else PLAN))
    for turn in range(12):
        room(leader, f"p{turn}")
        leader.turn()
    assert set(leader.hands.planned) == {f"m{number:03}" for number in range(12)}


def test_nobody_waits_for_a_gang_that_was_put_off_before_the_order_became_strict() -> None:
    """In strict order nobody is put off, and all but the first are not planned: the loop rests."""
    leader = crowded()
    room(leader, "p")
    leader.turn()
    assert leader.controller._pause() <= PLAN
    leader.view.set_policy(parse_policy(POLICY + "queue: {order: strict}\n"))
    leader.later(10.0)
    assert leader.controller._pause() > PLAN


def dear_looks(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have every look at a gang take as long as a plan; the keys of those that were looked at."""
    seen: list[str] = []
    get = leader.view.gangs.get

    def slow(key: str) -> object:
        leader.now += PLAN
        seen.append(key)
        return get(key)

    monkeypatch.setattr(leader.view.gangs, "get", slow)
    return seen


def test_looks_are_shared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something has changed for all gangs of a namespace: that of another one is looked at in the same turn."""
    leader = crowded()
    leader.hands.broken.clear()
    seen = dear_looks(leader, monkeypatch)
    leader.has(*(changed(different(number), labels={"a": "b"}) for number in range(CROWD)))
    leader.has(job("zoe", count=2, held=True, namespace="zoe"))
    leader.turn()
    assert "uid-zoe" in seen
    assert len(set(seen)) < CROWD / 2
    for _ in range(CROWD):  # of some of them there is news all the time: the others come to their turn as well
        leader.has(*(changed(different(number), labels={"c": str(len(seen))}) for number in range(15)))
        leader.turn()
    assert {f"uid-m{number:03}" for number in range(CROWD)} <= set(seen)


def test_a_term_begins_with_a_look_at_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader knows all that wait before it plans one: who is first goes first, however many wait beside it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    dear_looks(leader, monkeypatch)
    first = job("zz-first", held=True, namespace="mallory", created=0.5)
    leader.has(*(different(number) for number in range(CROWD)), first, job("alice", held=True, namespace="alice"))
    leader.turn()
    assert leader.hands.planned[0] == "zz-first"


@pytest.mark.parametrize("policy", ["", "queue: {order: strict}\n"])
def test_a_gang_that_no_room_helps_is_not_planned_again_before_hosts_change(policy: str) -> None:
    """Pods that end help nobody for whom the hosts are too few or the wrong ones; a host that changes may."""
    leader = crowded(3, policy=policy, selects="none")
    leader.has(job("huge", count=40, held=True, namespace="mallory", created=0.5))
    leader.settle()
    leader.hands.planned.clear()
    room(leader, "p")
    leader.turn()
    assert leader.hands.planned == []
    host = leader.stores.nodes.values()[-1]
    leader.has(replace(host, resource_version="later", allocatable=dict.fromkeys(host.allocatable, 100_000_000)))
    leader.turn()
    assert "huge" in leader.hands.planned


def test_equal_gangs_that_no_room_helps_are_not_planned_again_either() -> None:
    """What one was answered holds for the others too, and for larger ones."""
    leader = crowded(0)
    leader.has(*(job(f"huge-{count}", count=count, held=True, namespace="mallory") for count in (40, 41, 42)))
    leader.has(job("huge-too", count=40, held=True, namespace="mallory"))
    leader.settle()
    leader.settle()
    room(leader, "p")
    leader.turn()
    assert set(leader.view.gangs.keys()) >= {"uid-huge-40", "uid-huge-too"}
    leader.hands.planned.clear()
    room(leader, "q")
    leader.turn()
    assert leader.hands.planned == []


def test_in_strict_order_a_gang_that_waits_for_hosts_still_goes_first() -> None:
    """That it is not planned again lets nobody behind it pass."""
    leader = crowded(1, policy="queue: {order: strict}\n", selects="none")
    leader.has(job("alice", count=2, held=True, namespace="alice", created=9999.0))
    room(leader, "p")
    leader.settle()
    assert leader.hands.planned == []
    assert leader.placed("alice") is None or leader.status("alice") == ("Waiting", "QueuedBehind")


def test_writes_of_one_namespace_do_not_keep_those_of_another_waiting() -> None:
    """The next writer that comes free takes the write of the namespace whose turn it is."""
    pool, done = Later(), list[str]()
    lines = WriteLines(pool, writers=2)
    for number in range(6):
        lines.submit("mallory", lambda number=number: done.append(f"m{number}"))  # type: ignore[misc]
    lines.submit("alice", lambda: done.append("a0"))
    lines.submit("alice", lambda: done.append("a1"))
    assert len(pool.waiting) == 2
    while pool.waiting:
        pool.waiting.pop(0)()
    assert done == ["m0", "m1", "m2", "a0", "m3", "a1", "m4", "m5"]


def test_a_write_that_fails_gives_its_writer_back() -> None:
    """Whatever becomes of one, the next ones are run."""
    pool, done = Later(), list[str]()
    lines = WriteLines(pool, writers=1)

    def fail() -> None:
        raise KeyError("a fault")

    lines.submit("a", fail)
    lines.submit("a", lambda: done.append("next"))
    with pytest.raises(KeyError):
        pool.waiting.pop(0)()
    pool.waiting.pop(0)()
    lines.submit("a", lambda: done.append("later"))
    pool.waiting.pop(0)()
    assert done == ["next", "later"]


def test_a_leader_sends_no_more_writes_than_there_are_writers() -> None:
    """The lines are the leader's: a placement of another namespace is among the next to be written."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.turn()
    leader.has(*(different(number, selects="none") for number in range(3 * WRITERS)))
    leader.turn()
    leader.turn()
    leader.has(job("alice", count=2, held=True, namespace="alice", created=9999.0))
    leader.turn()
    assert len(leader.pool.waiting) == WRITERS
    leader.work()
    leader.work()
    assert leader.hands.of("place") == ["alice"]


def test_every_namespace_has_a_share_however_many_there_are() -> None:
    """Shares are equal, and none is too small to begin something."""
    clock = [0.0]
    shares = Shares([f"n{number}" for number in range(10_000)], lambda: clock[0], due=10)
    assert shares.left("n1")
    with shares.used_by("n1"):
        clock[0] += LEAST
    assert not shares.left("n1")
    assert shares.left("n2")


@pytest.mark.parametrize(
    ("due", "part", "seconds"),
    [(1, 1.0, WHOLE), (MANY, 1.0, WHOLE), (MANY + 1, 1.0, SHORT * WHOLE), (1, 0.5, 0.5 * WHOLE)],
)
def test_turns_are_shorter_where_one_does_not_suffice_anyway(due: int, part: float, seconds: float) -> None:
    """What comes meanwhile waits for the end of the turn; few gangs are not spread over many turns.

    Two sorts of work that halve the share take no more time together than one sort alone would.
    """
    clock = [0.0]
    shares = Shares(["n1"], lambda: clock[0], due=due, part=part)
    with shares.used_by("n1"):
        clock[0] += 0.99 * seconds
    assert shares.left("n1")
    with shares.used_by("n1"):
        clock[0] += 0.02 * seconds
    assert not shares.left("n1")
