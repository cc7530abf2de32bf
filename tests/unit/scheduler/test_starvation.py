"""Room that is kept free for a gang which has waited too long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import DaemonSet, Node
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Workload
from engine.scheduler.starvation import RENEW_EVERY, TRIES, Nomination, Nominator, StarvingGang
from tests.support.cluster_records import changed, gpu_nodes, job, node, pod, pod_set, shape, spec
from tests.support.leader import POLICY, Leader

PATIENT = POLICY + "queue: {patience: 10m}\n"


def busy(host: str, *, name: str = "") -> Pod:
    """A pod of somebody else that takes a whole host."""
    return pod(job(name or f"on-{host}"), 0, host=host)


def leader_on(nodes: list[Node], *taken: str, policy: str = PATIENT) -> Leader:
    leader = Leader(nodes=nodes, policy=policy)
    leader.has(*(busy(host) for host in taken))
    return leader


def ends(leader: Leader, host: str) -> None:
    found = leader.stores.pods.get(("default", busy(host).name))
    assert found is not None
    leader.stores.pods.apply("DELETED", replace(found, resource_version=leader.hands.version()))
    leader.settle()


def reasons(leader: Leader, name: str) -> list[str]:
    return [status.reason for told, status in leader.hands.told if told == name]


def submit(leader: Leader, name: str, count: int, *, priority: int = 0, **more: object) -> None:
    gang = job(name, count=count, held=True, **{"created": leader.now, **more})  # type: ignore[arg-type]
    leader.has(changed(gang, template=replace(gang.template, priority=priority)))
    leader.settle()


# -- the leader ------------------------------------------------------------------------------------------------------


def test_a_big_gang_gets_the_host_that_a_small_one_would_have_taken() -> None:
    """After its patience a freed host goes to nobody else; when the rack is empty it starts."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    leader.later(601.0)
    submit(leader, "small", 1)
    ends(leader, "b0-r0-h0")
    assert leader.hands.of("place") == []
    assert reasons(leader, "small")[-1] == "QueuedBehind"
    ends(leader, "b0-r0-h1")
    assert leader.hands.of("place") == ["big"]


def test_before_its_patience_is_over_it_is_overtaken() -> None:
    """Best effort: what fits goes."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    leader.later(590.0)
    submit(leader, "small", 1)
    ends(leader, "b0-r0-h0")
    assert leader.hands.of("place") == ["small"]


def test_people_read_where_room_is_kept_and_for_whom() -> None:
    """The gang says the rack; who is held back in the same namespace reads its name."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    leader.later(601.0)
    submit(leader, "small", 1)
    ends(leader, "b0-r0-h0")
    told = dict(leader.hands.told)
    assert told["big"].reason == "RoomKept"
    assert told["big"].message == "has waited for 10m: b0-r0 (2 hosts) kept free until 2 pods fit"
    assert told["small"].message == "the hosts that it needs are kept for big, which goes first"


def test_people_read_that_room_is_kept_for_whole_slices() -> None:
    """Three are enough for it, and two share a rack: it starts with four."""
    leader = leader_on(gpu_nodes(1, 1, 4), *(f"b0-r0-h{number}" for number in range(4)))
    slices = {names.MIN_AVAILABLE: "3", names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}
    held = {names.REQUIRE: "rack", names.HELD_BY: names.HELD_BY_SUSPEND}
    submit(leader, "big", 6, annotations=held | slices)
    leader.later(601.0)
    told = dict(leader.hands.told)
    assert told["big"].message == "has waited for 10m: b0-r0 (4 hosts) kept free until 4 pods fit"


def test_the_gang_of_another_namespace_is_not_named() -> None:
    """Whoever may not list it does not learn of it."""
    leader = leader_on(gpu_nodes(1, 1, 1), "b0-r0-h0")
    submit(leader, "big", 1, namespace="secret")
    leader.later(601.0)
    submit(leader, "small", 1)
    ends(leader, "b0-r0-h0")
    submit(leader, "late", 1)
    assert not any("big" in status.message for name, status in leader.hands.told if name != "big")


def test_nobody_of_a_higher_priority_is_held_back() -> None:
    """It takes the freed host at once."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    leader.later(601.0)
    submit(leader, "urgent", 1, priority=7)
    ends(leader, "b0-r0-h0")
    assert leader.hands.of("place") == ["urgent"]


def test_other_hosts_are_everybodys() -> None:
    """No more hosts are kept than the gang will use."""
    leader = leader_on(gpu_nodes(1, 1, 4), *(f"b0-r0-h{number}" for number in range(4)))
    submit(leader, "big", 2)
    leader.later(601.0)
    submit(leader, "one", 1)
    submit(leader, "two", 1)
    submit(leader, "three", 1)
    ends(leader, "b0-r0-h3")
    ends(leader, "b0-r0-h2")
    assert len(leader.hands.of("place")) == 2
    ends(leader, "b0-r0-h1")
    assert len(leader.hands.of("place")) == 2
    ends(leader, "b0-r0-h0")
    assert leader.hands.of("place")[2:] == ["big"]


def test_the_rack_that_lacks_least_is_chosen() -> None:
    """Three of four are free in the second rack, one in the first: there it waits for one pod to end."""
    leader = leader_on(gpu_nodes(1, 2, 4), "b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r1-h0")
    submit(leader, "big", 4)
    leader.later(601.0)
    assert leader.controller._term.nominator.of("uid-big") is not None
    assert "r1" in leader.hands.told[-1][1].message
    submit(leader, "small", 1)
    placed = leader.placed("small")
    assert placed is not None
    assert placed.assignment is not None
    assert placed.assignment.pod_sets[0].slots[0].host == "b0-r0-h3"


def test_another_rack_is_kept_when_the_gang_lacks_less_there() -> None:
    """Pods end where nobody expected it; the Placement says the new place."""
    leader = leader_on(gpu_nodes(1, 2, 3), *(f"b0-r{rack}-h{host}" for rack in (0, 1) for host in range(3)))
    submit(leader, "big", 3)
    leader.later(601.0)
    assert "r0" in leader.hands.told[-1][1].message
    ends(leader, "b0-r1-h1")
    leader.later(RENEW_EVERY)
    assert "r1" in leader.hands.told[-1][1].message
    ends(leader, "b0-r0-h0")
    leader.later(RENEW_EVERY)
    assert "r1" in leader.hands.told[-1][1].message, "no better there: it stays"


def test_a_preferring_gang_has_enough_hosts_kept() -> None:
    """No domain is required: any hosts will do, wherever they are."""
    leader = leader_on(gpu_nodes(1, 2, 1), "b0-r0-h0", "b0-r1-h0")
    submit(leader, "big", 2, require=None, annotations={"topogate.dev/prefer-topology": "rack", **HELD})
    leader.later(601.0)
    submit(leader, "small", 1)
    ends(leader, "b0-r0-h0")
    assert leader.hands.of("place") == []
    ends(leader, "b0-r1-h0")
    assert leader.hands.of("place") == ["big"]


HELD = {"topogate.dev/held-by": "suspend"}


def test_a_gang_that_never_fits_has_nothing_kept() -> None:
    """Five pods for a rack of four."""
    leader = leader_on(gpu_nodes(1, 1, 4), "b0-r0-h0")
    submit(leader, "huge", 5)
    leader.later(601.0)
    assert len(leader.controller._term.nominator) == 0
    submit(leader, "small", 1)
    assert leader.hands.of("place") == ["small"]


def test_a_gang_that_only_broken_hosts_would_help_has_nothing_kept() -> None:
    """The cordoned host does not get empty by waiting."""
    nodes = gpu_nodes(1, 1, 2)
    leader = leader_on([nodes[0], replace(nodes[1], unschedulable=True)], "b0-r0-h0")
    submit(leader, "big", 2)
    leader.later(601.0)
    assert len(leader.controller._term.nominator) == 0


def test_what_daemons_use_never_gets_free() -> None:
    """On the host with the daemon there are seven GPUs for others: the rack without it is kept."""
    nodes = gpu_nodes(1, 2, 1)
    leader = leader_on(nodes, "b0-r1-h0")
    daemon = pod(job("daemon"), 0, host="b0-r0-h0")
    daemon = replace(daemon, owner=OwnerRef("apps/v1", "DaemonSet", "daemon", "uid-d", controller=True))
    leader.has(daemon)
    submit(leader, "big", 1)
    leader.later(601.0)
    room = leader.controller._term.nominator.of("uid-big")
    assert room is not None
    assert room.hosts == {"b0-r1-h0"}


def test_without_a_host_free_of_daemons_nothing_is_kept() -> None:
    """It would wait there for ever."""
    leader = leader_on(gpu_nodes(1, 1, 1))
    daemon = pod(job("daemon"), 0, host="b0-r0-h0")
    leader.has(replace(daemon, owner=OwnerRef("apps/v1", "DaemonSet", "daemon", "uid-d", controller=True)))
    submit(leader, "big", 1)
    leader.later(601.0)
    assert len(leader.controller._term.nominator) == 0


def test_a_daemon_that_is_to_come_uses_its_host_as_one_that_runs() -> None:
    """It is on the last host, and is expected on the first: only the one between them has eight GPUs for others."""
    nodes = gpu_nodes(1, 3, 1)
    nodes = [replace(one, labels={**one.labels, "daemon": str(number % 2)}) for number, one in enumerate(nodes)]
    template = spec(shape=replace(shape(gpu=1), node_selector=(("daemon", "0"),)))
    leader = leader_on(nodes, "b0-r1-h0")
    leader.stores.daemon_sets.apply("ADDED", DaemonSet("default", "daemon", template, False, uid="uid-d"))
    owner = OwnerRef("apps/v1", "DaemonSet", "daemon", "uid-d", controller=True)
    leader.has(replace(pod(job("daemon"), 0), owner=owner, spec=replace(template, node_name="b0-r2-h0")))
    submit(leader, "big", 1)
    leader.later(601.0)
    room = leader.controller._term.nominator.of("uid-big")
    assert room is not None
    assert room.hosts == {"b0-r1-h0"}


def test_hosts_of_daemons_are_left_out_one_after_the_other() -> None:
    """However many have one, the host without a daemon is found, and stays the one."""
    leader = leader_on(gpu_nodes(1, 4, 1), "b0-r3-h0")
    for number in range(3):
        daemon = pod(job(f"daemon-{number}"), 0, host=f"b0-r{number}-h0")
        leader.has(replace(daemon, owner=OwnerRef("apps/v1", "DaemonSet", "daemon", "uid-d", controller=True)))
    submit(leader, "big", 1)
    leader.later(601.0)
    room = leader.controller._term.nominator.of("uid-big")
    assert room is not None
    assert room.hosts == {"b0-r3-h0"}


@pytest.mark.parametrize("how", ["finished", "gone", "changed"])
def test_it_ends_with_the_gang(how: str) -> None:
    """Those who were held back go on at once."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    leader.later(601.0)
    submit(leader, "small", 1)
    ends(leader, "b0-r0-h0")
    assert leader.hands.of("place") == []
    big = leader.workload("big")
    if how == "gone":
        leader.stores.workloads.apply("DELETED", big)
    elif how == "finished":
        leader.has(replace(big, finished=True, resource_version=leader.hands.version()))
    else:
        leader.has(changed(big, slots=9, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(RENEW_EVERY)
    assert leader.hands.of("place") == ["small"]


def test_somebody_of_a_higher_priority_who_waited_too_long_takes_it_over() -> None:
    """One gang of a topology at a time."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "low", 2)
    submit(leader, "high", 2, priority=5)
    leader.later(601.0)
    assert [room.key for room in leader.controller._term.nominator.kept()] == ["uid-high"]
    ends(leader, "b0-r0-h0")
    ends(leader, "b0-r0-h1")
    assert leader.hands.of("place") == ["high"]


def test_a_fail_over_starts_no_patience_anew() -> None:
    """The next leader reads in the Placement since when the gang waits."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    leader.later(500.0)
    leader.leading = False
    leader.later(1.0)
    leader.leading = True
    leader.later(1.0)
    leader.later(100.0)
    submit(leader, "small", 1)
    ends(leader, "b0-r0-h0")
    assert leader.hands.of("place") == []


def test_in_strict_order_nothing_is_kept() -> None:
    """Nobody overtakes there."""
    strict = POLICY + "queue: {order: strict, patience: 10m}\n"
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1", policy=strict)
    submit(leader, "big", 2)
    leader.later(601.0)
    assert len(leader.controller._term.nominator) == 0


def test_room_that_is_kept_is_told_once() -> None:
    """However often it is looked at."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    for _ in range(5):
        leader.later(700.0)
        leader.has(node("elsewhere", labels={}))
    assert reasons(leader, "big").count("RoomKept") == 1


def test_without_anybody_impatient_plans_stay_as_cheap() -> None:
    """No host is left out, and nobody is planned twice."""
    leader = leader_on(gpu_nodes(1, 1, 2), "b0-r0-h0", "b0-r0-h1")
    submit(leader, "big", 2)
    before = len(leader.hands.planned)
    leader.later(60.0)
    submit(leader, "small", 1)
    assert len(leader.hands.planned) - before <= 3


# -- the rule alone --------------------------------------------------------------------------------------------------


def room(gang: StarvingGang, *hosts: str) -> Nomination:
    return Nomination(
        gang.key, f"default/{gang.key}", gang.priority, gang.topology, frozenset(hosts or {gang.key}), "there"
    )


LOW, MATE, HIGH = StarvingGang("low", 0, "a"), StarvingGang("mate", 0, "a"), StarvingGang("high", 5, "a")


def test_whoever_has_room_keeps_it_among_equals() -> None:
    """An older gang that becomes impatient later does not take it."""
    kept = Nominator()
    kept.renew([LOW], 0.0, lambda gang, *_: room(gang))
    kept.renew([MATE, LOW], RENEW_EVERY, lambda gang, *_: room(gang))
    assert [one.key for one in kept.kept()] == ["low"]
    assert kept.renew([HIGH, MATE, LOW], 2 * RENEW_EVERY, lambda gang, *_: room(gang))
    assert [one.key for one in kept.kept()] == ["high"]


def test_one_that_cannot_be_helped_holds_up_no_other() -> None:
    """A quota, say: the next one has room kept."""
    kept = Nominator()
    kept.renew([LOW, MATE], 0.0, lambda gang, *_: None if gang is LOW else room(gang))
    assert [one.key for one in kept.kept()] == ["mate"]


def test_when_whoever_had_room_is_gone_the_others_are_tried_at_once() -> None:
    """Also those that could not be helped beside him a moment ago."""
    kept = Nominator()
    kept.renew([MATE, LOW], 0.0, lambda gang, *_: None if gang is MATE else room(gang))
    assert [one.key for one in kept.kept()] == ["low"]
    kept.renew([MATE], 1.0, lambda gang, *_: room(gang))
    assert [one.key for one in kept.kept()] == ["mate"]


def test_only_so_many_are_tried_at_a_time() -> None:
    """A try costs plans."""
    tried: list[str] = []

    def fail(gang: StarvingGang, _kept: Nomination | None, _taken: frozenset[str]) -> None:
        tried.append(gang.key)

    gangs = [StarvingGang(f"g{number}", 0, "a") for number in range(TRIES * 3)]
    Nominator().renew(gangs, 0.0, fail)
    assert len(tried) == TRIES


def test_however_many_cannot_be_helped_everybody_is_tried_in_the_end() -> None:
    """Each look goes on where the last one ended, and begins anew when all were tried."""
    kept, tried = Nominator(), list[str]()

    def fail(gang: StarvingGang, _kept: Nomination | None, _taken: frozenset[str]) -> None:
        tried.append(gang.key)

    gangs = [StarvingGang(f"g{number}", number % 2, "a") for number in range(TRIES * 2 + 1)]
    for look in range(4):
        kept.renew(gangs, look * RENEW_EVERY, fail)
        kept.renew(gangs, look * RENEW_EVERY + 1.0, fail)
    assert sorted(tried[: len(gangs)]) == sorted(gang.key for gang in gangs)
    assert tried[len(gangs) :][:3] == ["g1", "g3", "g5"]
    assert len(tried) == 4 * TRIES


def test_many_of_one_namespace_hold_up_no_other_namespace() -> None:
    """Its first gang is tried in the first look, however many of another namespace wait for longer."""
    kept = Nominator()
    many = [StarvingGang(f"m{number}", 0, "a", "mallory") for number in range(100)]
    last = StarvingGang("alice", 0, "a", "alice")
    kept.renew([*many, last], 0.0, lambda gang, *_: room(gang) if gang is last else None)
    assert [one.key for one in kept.kept()] == ["alice"]


def test_who_has_room_is_looked_at_beside_those_of_a_higher_priority_who_cannot_be_helped() -> None:
    """They are tried again and again, and take the room as soon as it helps them."""
    kept, looks = Nominator(), list[str]()
    kept.renew([LOW], 0.0, lambda gang, *_: room(gang))

    def find(gang: StarvingGang, _kept: Nomination | None, _taken: frozenset[str]) -> Nomination | None:
        looks.append(gang.key)
        return None if gang is HIGH and len(looks) < 6 else room(gang)

    for look in range(1, 4):
        kept.renew([HIGH, LOW], look * RENEW_EVERY, find)
    assert looks == ["high", "low"] * 3
    assert [one.key for one in kept.kept()] == ["low"]
    kept.renew([HIGH, LOW], 4 * RENEW_EVERY, find)
    assert [one.key for one in kept.kept()] == ["high"]


def test_nothing_is_looked_at_again_before_its_time() -> None:
    """Turns come fifty times a second."""
    kept, looks = Nominator(), []

    def find(gang: StarvingGang, _kept: Nomination | None, _taken: frozenset[str]) -> Nomination:
        looks.append(gang.key)
        return room(gang)

    kept.renew([LOW], 0.0, find)
    kept.renew([LOW], 1.0, find)
    assert looks == ["low"]
    kept.renew([LOW], RENEW_EVERY, find)
    assert looks == ["low", "low"]


def test_topologies_have_room_of_their_own_on_other_hosts() -> None:
    """One gang each, and what is kept in one is not kept in the other too."""
    other = StarvingGang("other", 0, "b")
    seen: dict[str, frozenset[str]] = {}

    def find(gang: StarvingGang, _kept: Nomination | None, taken: frozenset[str]) -> Nomination:
        seen[gang.key] = taken
        return room(gang)

    kept = Nominator()
    kept.renew([LOW, other], 0.0, find)
    assert (seen["low"], seen["other"]) == (frozenset(), {"low"})
    assert [one.key for one in kept.before("x", 0)] == ["low", "other"]
    assert kept.before("x", 1) == []
    assert [one.key for one in kept.before("low", 0)] == ["other"]


def launcher_and_workers(name: str, workers: int) -> Workload:
    gang = job(name, held=True)
    return replace(gang, pod_sets=(pod_set("launcher", count=1), pod_set("worker", count=workers)))


def test_a_gang_of_several_pod_sets_has_room_kept_for_all_of_them() -> None:
    """A launcher and two workers need three hosts of one rack, empty at the same time."""
    leader = leader_on(gpu_nodes(1, 2, 3), *(f"b0-r{rack}-h{host}" for rack in (0, 1) for host in range(3)))
    leader.has(launcher_and_workers("big", 2))
    leader.settle()
    leader.later(601.0)
    room = leader.controller._term.nominator.of("uid-big")
    assert room is not None
    assert room.hosts == {"b0-r0-h0", "b0-r0-h1", "b0-r0-h2"}
    submit(leader, "small", 1)
    for host in range(3):
        ends(leader, f"b0-r0-h{host}")
    assert leader.hands.of("place") == ["big"]


def test_the_halves_of_two_gangs_are_never_placed_beside_each_other() -> None:
    """Two launchers and the workers of one would fit: one gang is placed whole, nothing of the other."""
    leader = leader_on(gpu_nodes(1, 1, 4))
    leader.has(launcher_and_workers("left", 2), launcher_and_workers("right", 2))
    leader.settle()
    (first,) = leader.hands.of("place")
    other = "right" if first == "left" else "left"
    placed = leader.placed(first)
    assert placed is not None
    assert placed.assignment is not None
    assert [sum(slot.count for slot in one.slots) for one in placed.assignment.pod_sets] == [1, 2]
    waits = leader.placed(other)
    assert waits is not None
    assert waits.assignment is None
    assert leader.view.capacity.reserved(f"uid-{other}") == {}


def test_a_gang_with_fewer_workers_is_asked_for_although_the_larger_one_did_not_fit() -> None:
    """Both begin with the same launcher: what did not fit are the workers of the first."""
    leader = leader_on(gpu_nodes(1, 1, 3))
    leader.has(
        replace(launcher_and_workers("large", 5), created=1.0), replace(launcher_and_workers("fits", 2), created=2.0)
    )
    leader.settle()
    assert leader.hands.of("place") == ["fits"]
